//! Resolves types. A type that is declared in line gets a definition of its own, named after what is around
//! it.

use std::collections::HashMap;

use super::super::syntax::*;
use super::names::MAX_CHAIN;
use super::{Resolver, named};
use crate::language::inline_name;
use crate::language::tree::{Arm, Body, Declared, Enumerator, Field, Label, Named, Type, Union};
use crate::text::source::Span;

/// The largest number of 16 bits: that of elements, bytes of a string, and designators.
pub(in crate::cr) const MAX_CARDINAL: u32 = u16::MAX as u32;

impl<'a> Resolver<'a> {
    /// Returns whether a type is `PROCEDURE` or `ERROR`, perhaps by a name. No values of such types are sent.
    pub(super) fn is_callable(&self, program: usize, ty: &TypeExpression) -> bool {
        self.callable(program, ty).is_some()
    }

    /// Returns the `PROCEDURE` or `ERROR` that a type means, with its program.
    pub(super) fn callable<'t>(
        &self,
        program: usize,
        ty: &'t TypeExpression,
    ) -> Option<(usize, &'t TypeExpression)>
    where
        'a: 't,
    {
        let (mut program, mut ty) = (program, ty);
        for _ in 0..MAX_CHAIN {
            match &ty.kind {
                TypeKind::Procedure(_) | TypeKind::Error(_) => return Some((program, ty)),
                TypeKind::Named(name) => {
                    let (other, index) = self.find_silently(program, name)?;
                    let declaration = &self.declarations(other)[index];
                    if declaration.value.is_some() {
                        return None;
                    }
                    (program, ty) = (other, &declaration.ty);
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the body of a type whose name is `around`.
    pub(super) fn body(&mut self, program: usize, ty: &TypeExpression, around: &str) -> Body {
        match &ty.kind {
            TypeKind::Enumeration(all) => Body::Enum(self.enumerators(program, all)),
            TypeKind::Record(groups) => Body::Struct(self.fields(program, groups, around)),
            TypeKind::Choice(choice) => Body::Union(self.choice(program, choice, around)),
            _ => Body::Alias(self.declared(program, ty, around, "item")),
        }
    }

    /// Resolves the type of something called `name` within `around`.
    pub(super) fn declared(
        &mut self,
        program: usize,
        ty: &TypeExpression,
        around: &str,
        name: &str,
    ) -> Declared {
        match &ty.kind {
            TypeKind::String => Declared::String { max: MAX_CARDINAL },
            TypeKind::Array(size, element) => {
                let why = "an array has at most 65535 elements";
                let size = self.number(program, size, MAX_CARDINAL, why).unwrap_or(0);
                Declared::Array { element: self.single(program, element, around, name), size }
            }
            TypeKind::Sequence(max, element) => {
                let why = "a sequence has at most 65535 elements";
                let max = max.as_ref().and_then(|max| self.number(program, max, MAX_CARDINAL, why));
                let max = max.unwrap_or(MAX_CARDINAL);
                Declared::List { element: self.single(program, element, around, name), max }
            }
            _ => Declared::One(self.single(program, ty, around, name)),
        }
    }

    /// Resolves a type that is no array, sequence or string. Gives such a type, and any other that is
    /// declared in line, a definition of its own.
    fn single(&mut self, program: usize, ty: &TypeExpression, around: &str, name: &str) -> Type {
        match &ty.kind {
            TypeKind::Plain(plain) => plain.clone(),
            TypeKind::Named(reference) => self.named_type(program, reference),
            TypeKind::Procedure(_) | TypeKind::Error(_) => {
                self.fault(ty.at, "procedures and errors cannot be sent");
                Type::Void
            }
            _ => {
                let name = inline_name(around, name);
                let place = self.add(program, &name, "", ty.at);
                self.types[place].body = self.body(program, ty, &name);
                Type::Defined(place)
            }
        }
    }

    fn named_type(&mut self, program: usize, reference: &Reference) -> Type {
        let Some((other, index)) = self.find(program, reference, "a type") else { return Type::Void };
        if let Some(place) = self.places[other][index] {
            return Type::Defined(place);
        }
        let name = &reference.name;
        let why = match self.declarations(other)[index].value {
            Some(_) => format!("`{name}` is a constant, a procedure or an error, not a type"),
            None => format!("`{name}` is the type of procedures or errors, which cannot be sent"),
        };
        self.fault(reference.at, why);
        Type::Void
    }

    /// Resolves fields. `a, b: T` are two fields of the same type.
    pub(super) fn fields(&mut self, program: usize, groups: &[Group], around: &str) -> Vec<Field> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut fields = Vec::new();
        for Group { names, ty } in groups {
            let first = names.first().map_or("", |name| &name.text);
            let declared = self.declared(program, ty, around, first);
            for name in names {
                if let Some(first) = seen.insert(&name.text, name.at) {
                    self.again(name.at, first, format!("there is a second `{}`", name.text));
                }
                fields.push(Field { named: named(name), declared: declared.clone() });
            }
        }
        fields
    }

    fn enumerators(&mut self, program: usize, all: &[Designator]) -> Vec<Enumerator> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut enumerators = Vec::new();
        for Designator { name, number } in all {
            if let Some(first) = seen.insert(&name.text, name.at) {
                self.again(name.at, first, format!("`{}` is declared a second time", name.text));
                continue;
            }
            let Some(number) = number else {
                self.fault(name.at, format!("`{}` needs a number: `{}(0)`", name.text, name.text));
                continue;
            };
            let value = self.designator(program, number);
            enumerators.extend(value.map(|value| Enumerator { named: named(name), value }));
        }
        enumerators
    }

    fn designator(&mut self, program: usize, number: &Value) -> Option<i32> {
        let value = self.number(program, number, MAX_CARDINAL, "this number must be between 0 and 65535");
        value.map(u32::cast_signed)
    }

    fn choice(&mut self, program: usize, choice: &Choice, around: &str) -> Union {
        let enumeration = choice.enumeration.as_ref().map(|name| self.enumeration(program, name));
        let discriminant = match enumeration {
            Some(Some(place)) => Type::Defined(place),
            _ => Type::U16,
        };
        let mut seen = HashMap::new();
        let mut arms = Vec::new();
        for Candidate { designators, ty } in &choice.candidates {
            let mut labels = Vec::new();
            for designator in designators {
                let value = match enumeration {
                    Some(place) => self.typed(place, designator),
                    None => self.untyped(program, designator),
                };
                let Some(value) = value else { continue };
                let name = &designator.name;
                if let Some(first) = seen.insert(value, name.at) {
                    self.again(name.at, first, "another designator of this choice has the same value");
                    continue;
                }
                labels.push(Label { name: Some(name.text.clone()), value });
            }
            let docs = designators.iter().map(|each| each.name.docs.as_str()).filter(|docs| !docs.is_empty());
            let docs = docs.collect::<Vec<_>>().join("\n\n");
            let first = designators.first().map_or("", |designator| &designator.name.text);
            let is_empty = matches!(&ty.kind, TypeKind::Record(groups) if groups.is_empty());
            let field = (!is_empty).then(|| Field {
                named: Named::default(),
                declared: self.declared(program, ty, around, first),
            });
            arms.push(Arm { labels, field, docs });
        }
        Union {
            switch: Named { name: "designator".into(), docs: String::new() },
            discriminant,
            arms,
            default: None,
        }
    }

    /// Returns the index of the enumeration of that name, perhaps under another name.
    fn enumeration(&mut self, program: usize, reference: &Reference) -> Option<usize> {
        let (mut program, mut name) = (program, reference);
        for _ in 0..MAX_CHAIN {
            let (other, index) = self.find(program, name, "an enumeration")?;
            let declaration = &self.declarations(other)[index];
            match (&declaration.ty.kind, self.places[other][index]) {
                (TypeKind::Enumeration(_), Some(place)) => return Some(place),
                (TypeKind::Named(next), Some(_)) => (program, name) = (other, next),
                _ => break,
            }
        }
        self.fault(reference.at, format!("`{}` is no enumeration, so it cannot select", reference.name));
        None
    }

    /// Returns the value of a designator that an enumeration declares. The enumeration may be unknown after
    /// an error.
    fn typed(&mut self, enumeration: Option<usize>, designator: &Designator) -> Option<i32> {
        let (place, name) = (enumeration?, &designator.name);
        if let Some(number) = &designator.number {
            self.fault(number.at, "the enumeration gives this number: leave it out");
            return None;
        }
        let found = self.member(place, &name.text);
        if found.is_none() {
            let why = format!("`{}` has no enumerator `{}`", self.types[place].named.name, name.text);
            self.fault(name.at, why);
        }
        found.map(|(_, value)| value)
    }

    /// Returns the index of the enumerator, field or alternative of that name in the type at `place`, and the
    /// value of an enumerator or a designator.
    pub(super) fn member(&mut self, place: usize, name: &str) -> Option<(usize, i32)> {
        let body = &self.types[place].body;
        let members = self.members.entry(place).or_insert_with(|| match body {
            Body::Enum(all) => {
                all.iter().enumerate().map(|(at, each)| (each.named.name.clone(), (at, each.value))).collect()
            }
            Body::Struct(fields) => {
                fields.iter().enumerate().map(|(at, field)| (field.named.name.clone(), (at, 0))).collect()
            }
            Body::Union(union) => {
                let arms = union.arms.iter().enumerate();
                let labels = arms.flat_map(|(at, arm)| arm.labels.iter().map(move |label| (at, label)));
                labels.filter_map(|(at, label)| Some((label.name.clone()?, (at, label.value)))).collect()
            }
            Body::Alias(_) | Body::Exception(_) => HashMap::new(),
        });
        members.get(name).copied()
    }

    fn untyped(&mut self, program: usize, designator: &Designator) -> Option<i32> {
        let name = &designator.name;
        match &designator.number {
            Some(number) => self.designator(program, number),
            None => {
                let why = format!(
                    "`{0}` needs a number, as in `{0}(0)`, because this choice names no enumeration",
                    name.text
                );
                self.fault(name.at, why);
                None
            }
        }
    }
}
