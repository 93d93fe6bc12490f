//! Resolves constants: numbers of declarations, and values of any type, whose form follows from the type.

use std::collections::HashMap;

use super::super::syntax::*;
use super::names::MAX_CHAIN;
use super::types::MAX_CARDINAL;
use super::{Resolver, parts_of_text};
use crate::language::tree::{Body, Declared, Literal, Type};
use crate::text::source::Span;

impl Resolver<'_> {
    /// Returns a number from 0 to `max`. Refuses any other number with the message `why`.
    pub(super) fn number(&mut self, program: usize, value: &Value, max: u32, why: &str) -> Option<u32> {
        let number = self.numeric(program, value)?;
        let number = u32::try_from(number).ok().filter(|number| *number <= max);
        if number.is_none() {
            self.fault(value.at, why);
        }
        number
    }

    /// Returns the number that a value is, perhaps by the names of constants.
    fn numeric(&mut self, program: usize, value: &Value) -> Option<i128> {
        let (mut program, mut next) = (program, value);
        for _ in 0..MAX_CHAIN {
            match &next.kind {
                ValueKind::Number(number) => return Some(*number),
                ValueKind::Name(name) => {
                    let (other, index) = self.find(program, name, "a number")?;
                    let declaration = &self.declarations(other)[index];
                    match &declaration.value {
                        Some(value) if !self.is_callable(other, &declaration.ty) => {
                            (program, next) = (other, value);
                        }
                        _ => return self.no_number(value.at),
                    }
                }
                _ => return self.no_number(value.at),
            }
        }
        self.endless(value.at)
    }

    fn no_number<T>(&mut self, at: Span) -> Option<T> {
        self.fault(at, "a number should stand here");
        None
    }

    fn endless<T>(&mut self, at: Span) -> Option<T> {
        self.fault(at, format!("this constant is defined by itself, or by more than {MAX_CHAIN} others"));
        None
    }

    /// Returns the value of a constant of a type. `depth` counts the names and the parts that led here.
    pub(super) fn literal(
        &mut self,
        program: usize,
        value: &Value,
        declared: &Declared,
        depth: usize,
    ) -> Option<Literal> {
        if depth > MAX_CHAIN {
            return self.endless(value.at);
        }
        self.charge_value(value.at, 1)?;
        match declared {
            Declared::One(Type::Defined(place)) => self.defined(program, value, *place, depth),
            _ if matches!(value.kind, ValueKind::Name(_)) => self.by_name(program, value, declared, depth),
            Declared::One(ty) => self.plain(value, ty),
            Declared::Array { element, size } => match &value.kind {
                ValueKind::Elements(all) if all.len() as u64 == u64::from(*size) => {
                    self.elements(program, all, element, depth)
                }
                _ => self.unfit(value.at, format!("an array of {size} elements, as in `[…, …]`,")),
            },
            Declared::List { element, max } => match &value.kind {
                ValueKind::Elements(all) if all.len() as u64 <= u64::from(*max) => {
                    self.elements(program, all, element, depth)
                }
                _ => self.unfit(value.at, format!("a sequence of at most {max} elements, as in `[…, …]`,")),
            },
            _ => match &value.kind {
                ValueKind::Text(text) if text.len() <= MAX_CARDINAL as usize => {
                    self.charge_value(value.at, parts_of_text(text))?;
                    Some(Literal::Text(text.clone()))
                }
                _ => self.unfit(value.at, "a string of at most 65535 bytes"),
            },
        }
    }

    /// Counts parts of values. Returns `None` if there are too many.
    fn charge_value(&mut self, at: Span, parts: usize) -> Option<()> {
        let Some(left) = self.values_left.checked_sub(parts) else {
            self.values_left = 0;
            self.fault(at, "the values of the constants have too many parts together");
            return None;
        };
        self.values_left = left;
        Some(())
    }

    fn unfit<T>(&mut self, at: Span, what: impl std::fmt::Display) -> Option<T> {
        self.fault(at, format!("{what} should stand here"));
        None
    }

    fn plain(&mut self, value: &Value, ty: &Type) -> Option<Literal> {
        let (least, most) = match ty {
            Type::Bool => match &value.kind {
                ValueKind::Bool(value) => return Some(Literal::Bool(*value)),
                _ => return self.unfit(value.at, "`TRUE` or `FALSE`"),
            },
            Type::I16 => (i16::MIN.into(), i16::MAX.into()),
            Type::I32 => (i32::MIN.into(), i32::MAX.into()),
            Type::U32 => (0, u32::MAX.into()),
            _ => (0, i128::from(MAX_CARDINAL)),
        };
        match &value.kind {
            ValueKind::Number(number) if (least..=most).contains(number) => Some(Literal::Number(*number)),
            _ => self.unfit(value.at, format!("a number from {least} to {most}")),
        }
    }

    fn elements(&mut self, program: usize, all: &[Value], element: &Type, depth: usize) -> Option<Literal> {
        let element = Declared::One(element.clone());
        let all: Vec<Option<Literal>> =
            all.iter().map(|each| self.literal(program, each, &element, depth + 1)).collect();
        all.into_iter().collect::<Option<Vec<_>>>().map(Literal::Elements)
    }

    /// Returns the value of the constant that a name means. The value must fit the type that is expected
    /// here.
    fn by_name(
        &mut self,
        program: usize,
        value: &Value,
        declared: &Declared,
        depth: usize,
    ) -> Option<Literal> {
        let ValueKind::Name(name) = &value.kind else { return None };
        let (other, index) = self.find(program, name, "a constant of this type")?;
        let declaration = &self.declarations(other)[index];
        match &declaration.value {
            Some(value) if !self.is_callable(other, &declaration.ty) => {
                self.literal(other, value, declared, depth + 1)
            }
            _ => self.unfit(value.at, "a constant"),
        }
    }

    /// Returns a value of the type at that index.
    fn defined(&mut self, program: usize, value: &Value, place: usize, depth: usize) -> Option<Literal> {
        // The body is cloned only if it is small: an alias.
        if let Body::Alias(declared) = &self.types[place].body {
            let declared = declared.clone();
            return self.literal(program, value, &declared, depth + 1);
        }
        if let ValueKind::Name(name) = &value.kind
            && let Some((index, _)) = self.member(place, &name.name)
        {
            match &self.types[place].body {
                Body::Enum(_) => return Some(Literal::Enumerator(index)),
                Body::Union(_) => {
                    let what = format!("a value behind the designator, as in `{} []`,", name.name);
                    return self.unfit(value.at, what);
                }
                _ => {}
            }
        }
        let type_name = self.types[place].named.name.clone();
        match (&self.types[place].body, &value.kind) {
            (_, ValueKind::Name(_)) => {
                self.by_name(program, value, &Declared::One(Type::Defined(place)), depth)
            }
            (Body::Struct(fields), ValueKind::Elements(all)) if all.len() == fields.len() => {
                let fields: Vec<Declared> = fields.iter().map(|field| field.declared.clone()).collect();
                let each = all.iter().zip(&fields);
                let all: Vec<Option<Literal>> =
                    each.map(|(value, declared)| self.literal(program, value, declared, depth + 1)).collect();
                all.into_iter().collect::<Option<Vec<_>>>().map(Literal::Record)
            }
            (Body::Struct(_), ValueKind::Components(components)) => {
                self.components(program, value.at, components, place, depth)
            }
            (Body::Union(_), ValueKind::Choice(name, content)) => {
                self.alternative(program, name, content, place, depth)
            }
            (Body::Struct(fields), _) => {
                let what = match fields.len() {
                    0 => format!("`[]`, for `{type_name}`,"),
                    count => format!("a record with the {count} fields of `{type_name}`, as in `[…, …]`,"),
                };
                self.unfit(value.at, what)
            }
            (Body::Enum(_), _) => self.unfit(value.at, format!("an enumerator of `{type_name}`")),
            _ => {
                let what = format!("a designator of `{type_name}` and its value, as in `designator []`,");
                self.unfit(value.at, what)
            }
        }
    }

    /// Returns a record whose fields are given by name, in any order.
    fn components(
        &mut self,
        program: usize,
        at: Span,
        components: &[(Vec<Name>, Value)],
        place: usize,
        depth: usize,
    ) -> Option<Literal> {
        let mut given: HashMap<usize, (Span, &Value)> = HashMap::new();
        for (name, value) in
            components.iter().flat_map(|(names, value)| names.iter().map(move |name| (name, value)))
        {
            let Some((field, _)) = self.member(place, &name.text) else {
                self.fault(
                    name.at,
                    format!("`{}` has no field `{}`", self.types[place].named.name, name.text),
                );
                return None;
            };
            if let Some((first, _)) = given.insert(field, (name.at, value)) {
                self.again(name.at, first, format!("`{}` is given a second time", name.text));
                return None;
            }
        }
        let Body::Struct(fields) = &self.types[place].body else { return None };
        let missing = fields.iter().enumerate().find(|(field, _)| !given.contains_key(field));
        if let Some((_, missing)) = missing {
            let (missing, of) = (&missing.named.name, &self.types[place].named.name);
            let why = format!("the field `{missing}` of `{of}` is missing");
            self.fault(at, why);
            return None;
        }
        let fields: Vec<Declared> = fields.iter().map(|field| field.declared.clone()).collect();
        let mut values = Vec::new();
        for (field, declared) in fields.iter().enumerate() {
            let (_, value) = given.get(&field)?;
            values.push(self.literal(program, value, declared, depth + 1)?);
        }
        Some(Literal::Record(values))
    }

    fn alternative(
        &mut self,
        program: usize,
        name: &Reference,
        content: &Value,
        place: usize,
        depth: usize,
    ) -> Option<Literal> {
        let Some((arm, value)) = self.member(place, &name.name) else {
            self.fault(
                name.at,
                format!("`{}` has no designator `{}`", self.types[place].named.name, name.name),
            );
            return None;
        };
        let Body::Union(union) = &self.types[place].body else { return None };
        let field = union.arms[arm].field.clone();
        match (field, &content.kind) {
            (Some(field), _) => {
                let content = self.literal(program, content, &field.declared, depth + 1)?;
                Some(Literal::Choice(value, Some(Box::new(content))))
            }
            (None, ValueKind::Elements(all)) if all.is_empty() => Some(Literal::Choice(value, None)),
            (None, _) => self.unfit(content.at, format!("`[]`, because `{}` has no content,", name.name)),
        }
    }
}
