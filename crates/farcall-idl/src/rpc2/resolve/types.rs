//! Resolves types.

use std::collections::HashMap;

use super::super::predefined::{Predefined, Sort};
use super::super::syntax::{self, *};
use super::{Resolver, named};
use crate::language::tree::{Body, Declared, Enumerator, Field, Named, Type};
use crate::nearest;
use crate::text::diagnostic::{Diagnostic, Undeclared};
use crate::text::source::Span;

/// The maximum number of bytes of an array. No packet of RPC2 has as many.
const MAX_ARRAY: i128 = 1 << 16;

/// The meaning of a type's name.
#[derive(Clone)]
pub(super) enum Meaning {
    /// A predefined type, which may need a definition.
    Predefined(Predefined),
    Declared(Declared, Sort),
}

impl Meaning {
    pub(super) fn is_bulk(&self) -> bool {
        matches!(
            self,
            Meaning::Declared(_, Sort::Bulk) | Meaning::Predefined(Predefined::Plain(_, Sort::Bulk))
        )
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn typedef(&mut self, typedef: &'a Typedef) {
        let Typedef { name, body, bound } = typedef;
        if let Some((first, _)) = self.meanings.get(name.text.as_str()) {
            let why = format!("a type of the name `{}` is declared already, and that one counts", name.text);
            match first {
                None => self.warn(name.at, format!("{why}: it is one of RPC2's own")),
                Some(_) => self.warn(name.at, why),
            }
            return;
        }
        let Some((body, sort)) = self.body(body, bound.as_ref()) else {
            // Uses of the name are not reported too.
            self.meanings.insert(&name.text, (Some(name.at), unknown()));
            return;
        };
        let declared = match body {
            Body::Alias(Declared::Bulk) => Declared::Bulk,
            body => {
                let place = self.add(&name.text, &name.docs, name.at, body);
                Declared::One(Type::Defined(place))
            }
        };
        self.meanings.insert(&name.text, (Some(name.at), Meaning::Declared(declared, sort)));
    }

    fn body(&mut self, body: &'a syntax::Body, bound: Option<&Number>) -> Option<(Body, Sort)> {
        let (at, resolved) = match body {
            syntax::Body::Named(reference) => {
                let (declared, sort) = self.named_type(reference)?;
                (Some(reference.at), (Body::Alias(declared), sort))
            }
            syntax::Body::Struct(groups) => (None, (Body::Struct(self.fields(groups)?), Sort::Struct)),
            syntax::Body::Enum(all) => (None, (Body::Enum(self.enumerators(all)), Sort::Other)),
        };
        let Some(bound) = bound else { return Some(resolved) };
        if resolved.1 != Sort::Byte {
            self.fault(at.unwrap_or(bound.at), "RPC2 has arrays of RPC2_Byte only");
            return None;
        }
        let why = format!("an array has from 1 to {MAX_ARRAY} bytes");
        let size = self.number(bound, 1, MAX_ARRAY, &why)?;
        Some((Body::Alias(Declared::Opaque { size: u32::try_from(size).ok()? }), Sort::Other))
    }

    fn fields(&mut self, groups: &'a [Group]) -> Option<Vec<Field>> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut fields = Vec::new();
        for Group { ty, names } in groups {
            let (declared, sort) = self.named_type(ty)?;
            if sort == Sort::Bulk {
                self.fault(ty.at, "a struct cannot contain an SE_Descriptor: it is not sent");
            }
            for name in names {
                if let Some(first) = seen.insert(&name.text, name.at) {
                    self.again(name.at, first, format!("there is a second `{}`", name.text));
                }
                fields.push(Field { named: named(name), declared: declared.clone() });
            }
        }
        Some(fields)
    }

    fn enumerators(&mut self, all: &'a [(Name, Number)]) -> Vec<Enumerator> {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        let mut enumerators = Vec::new();
        for (name, number) in all {
            if let Some(first) = seen.insert(&name.text, name.at) {
                self.again(name.at, first, format!("`{}` is declared a second time", name.text));
                continue;
            }
            let (least, most) = (i128::from(i32::MIN), i128::from(i32::MAX));
            let value = self.number(number, least, most, "this is no number of 32 bits");
            let value = value.and_then(|value| i32::try_from(value).ok());
            enumerators.extend(value.map(|value| Enumerator { named: named(name), value }));
        }
        enumerators
    }

    /// Returns the type of that name, and what it is.
    pub(super) fn named_type(&mut self, reference: &'a Reference) -> Option<(Declared, Sort)> {
        let Reference { name, at } = reference;
        let Some((first, meaning)) = self.meanings.get(name.as_str()) else {
            self.undeclared(reference);
            return None;
        };
        let first = *first;
        match meaning.clone() {
            Meaning::Declared(declared, sort) => Some((declared, sort)),
            Meaning::Predefined(Predefined::Plain(simple, sort)) => Some((simple.declared(), sort)),
            Meaning::Predefined(Predefined::Struct(fields, sort, docs)) => {
                let fields = fields.iter().map(|(name, simple)| Field {
                    named: Named { name: (*name).into(), docs: String::new() },
                    declared: simple.declared(),
                });
                let place = self.add(name, docs, *at, Body::Struct(fields.collect()));
                let declared = Declared::One(Type::Defined(place));
                self.meanings.insert(name, (first, Meaning::Declared(declared.clone(), sort)));
                Some((declared, sort))
            }
        }
    }

    fn undeclared(&mut self, Reference { name, at }: &'a Reference) {
        let similar = if self.suggestions > 0 { nearest(name, self.meanings.keys().copied()) } else { None };
        let similar = similar.map(|similar| format!("a similar name is declared: `{similar}`"));
        self.suggestions = self.suggestions.saturating_sub(1);
        self.push(|sources| {
            let why = format!("no type of the name `{name}` is declared before this");
            let fault = Diagnostic::new(sources, *at, why).about_undeclared(Undeclared::Type(name.clone()));
            similar.into_iter().fold(fault, Diagnostic::help)
        });
    }
}

/// Returns the meaning of a type whose declaration has a fault.
fn unknown() -> Meaning {
    Meaning::Declared(Declared::One(Type::I32), Sort::Other)
}
