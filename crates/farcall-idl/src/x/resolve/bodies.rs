//! Resolves the bodies of types.

use std::collections::HashMap;

use super::super::syntax::*;
use super::super::tree::{Arm, Body, Declared, Enumerator, Field, Label, Type, Union};
use super::constants::Reckoning;
use super::lookup::{builtin, names_itself};
use super::{Resolver, named};
use crate::text::source::Span;

/// The longest chain of typedefs that is followed.
const MAX_ALIASES: usize = 64;
/// The maximum number of elements in an array of fixed size.
const MAX_FIXED_SIZE: u32 = 1 << 24;

impl Resolver<'_> {
    /// Returns the body of the type at that index, or `None` if the type defines nothing itself.
    pub(super) fn body(&mut self, place: usize) -> Option<Body> {
        let item = &self.syntax.types[place];
        match &item.body {
            BodyItem::Alias(declaration) => {
                let declared = self.declared(item.scope, declaration);
                if names_itself(item) {
                    let named =
                        Path { absolute: false, parts: vec![item.name.text.clone()], at: item.name.at };
                    let instead = self.named_type(item.scope, &named);
                    self.dropped.insert(place, instead);
                    return None;
                }
                // `typedef int int32_t;` is for compilers that do not know that type.
                if let Declared::One(ty) = &declared
                    && builtin(&item.name.text).is_some_and(|known| Some(known) == self.plain(ty))
                {
                    self.dropped.insert(place, self.plain(ty)?);
                    return None;
                }
                Some(Body::Alias(declared))
            }
            BodyItem::Enum(enumerators) => Some(Body::Enum(self.enumerators(place, enumerators))),
            BodyItem::Struct(fields) => Some(Body::Struct(self.fields(item.scope, fields))),
            BodyItem::Union(union) => Some(Body::Union(self.union(item.scope, union))),
        }
    }

    fn enumerators(&mut self, place: usize, items: &[(Name, Option<Amount>)]) -> Vec<Enumerator> {
        let mut seen: HashMap<&str, &Name> = HashMap::new();
        let mut all = Vec::new();
        for ((name, given), value) in items.iter().zip(self.enumeration(place)) {
            if let Some(first) = seen.insert(&name.text, name) {
                self.twice(name, first);
            }
            let at = given.as_ref().map_or(name.at, |amount| amount.at);
            let value = self.fitting(at, value, in_32_bits, "an enumerator is a number of 32 bits");
            all.extend(value.map(|value| Enumerator { named: named(name), value }));
        }
        all
    }

    fn fields(&mut self, scope: ScopeId, items: &[Declaration]) -> Vec<Field> {
        let mut seen: HashMap<&str, &Name> = HashMap::new();
        let mut fields = Vec::new();
        for item in items.iter().filter(|item| !item.is_void()) {
            if let Some(first) = seen.insert(&item.name.text, &item.name) {
                self.twice(&item.name, first);
            }
            fields.push(self.field(scope, item));
        }
        fields
    }

    fn field(&mut self, scope: ScopeId, item: &Declaration) -> Field {
        Field { named: named(&item.name), declared: self.declared(scope, item) }
    }

    fn union(&mut self, scope: ScopeId, item: &UnionItem) -> Union {
        let discriminant = match self.declared(scope, &item.switch) {
            // Every type that a discriminant can have takes 32 bits.
            Declared::One(Type::Foreign(_)) => Type::I32,
            Declared::One(ty) => ty,
            _ => {
                self.fault(item.switch.at, "a union needs a single value in `switch`");
                Type::I32
            }
        };
        let plain = self.plain(&discriminant);
        if matches!(plain, Some(Type::I64 | Type::U64 | Type::F32 | Type::F64 | Type::Quadruple | Type::Void))
        {
            self.fault(
                item.switch.at,
                "a union needs an enumeration, a `bool`, or a number of at most 32 bits in `switch`",
            );
        }
        let enumeration = self.seen_through(&discriminant).and_then(|ty| ty.place());
        let mut seen = HashMap::new();
        let mut arms = Vec::new();
        for arm in &item.arms {
            let mut labels = Vec::new();
            for amount in &arm.labels {
                let Some(label) = self.label(scope, enumeration, amount) else { continue };
                if let Some(first) = seen.insert(label.value, amount.at) {
                    self.again(amount.at, first, "another label has this value already");
                }
                labels.push(label);
            }
            let field = arm.declaration.as_ref().map(|declaration| self.field(scope, declaration));
            arms.push(Arm { labels, field, docs: arm.docs.clone() });
        }
        let default =
            item.default.as_ref().map(|arm| arm.as_ref().map(|declaration| self.field(scope, declaration)));
        Union { switch: named(&item.switch.name), discriminant, arms, default }
    }

    /// Resolves a label. A name is looked up first among the enumeration's own enumerators.
    fn label(&mut self, scope: ScopeId, enumeration: Option<usize>, amount: &Amount) -> Option<Label> {
        let name = match &amount.expression {
            Expression::Name(path) => path.parts.last().cloned(),
            _ => None,
        };
        let own = enumeration
            .zip(name.as_ref())
            .and_then(|(place, name)| Some((place, self.enumerator(place, name)?)));
        let value = match own {
            Some((place, position)) => self.enumerator_value(place, position, 0),
            None => self.amount(scope, amount),
        };
        let value = self.fitting(amount.at, value, in_32_bits, "a label is a number of 32 bits")?;
        Some(Label { name, value })
    }

    /// Resolves a declaration, without its name.
    pub(super) fn declared(&mut self, scope: ScopeId, item: &Declaration) -> Declared {
        match (&item.specifier, &item.shape) {
            (Specifier::Void, Shape::One) => Declared::One(Type::Void),
            (Specifier::String, Shape::One) => Declared::String { max: u32::MAX },
            (Specifier::String, Shape::Variable(max)) => Declared::String { max: self.max(scope, max) },
            (Specifier::Opaque, Shape::Variable(max)) => Declared::Bytes { max: self.max(scope, max) },
            (Specifier::Opaque, Shape::Fixed(size)) => Declared::Opaque { size: self.size(scope, size) },
            (Specifier::Void, _) => self.refuse(item, "`void` cannot be an array or behind a pointer"),
            (Specifier::String, _) => {
                self.refuse(item, "a string has a variable length: write `<n>` or `<>`")
            }
            (Specifier::Opaque, _) => {
                self.refuse(item, "`opaque` needs a number of bytes: write `[n]`, `<n>` or `<>`")
            }
            (Specifier::Plain(ty), shape) => self.shaped(scope, ty.clone(), shape),
            (Specifier::Inline(place), shape) => self.shaped(scope, Type::Defined(*place), shape),
            (Specifier::Named(path), shape) => {
                let ty = self.named_type(scope, path);
                self.shaped(scope, ty, shape)
            }
        }
    }

    fn shaped(&mut self, scope: ScopeId, element: Type, shape: &Shape) -> Declared {
        match shape {
            Shape::One => Declared::One(element),
            Shape::Optional => Declared::Optional(element),
            Shape::Fixed(size) => Declared::Array { element, size: self.size(scope, size) },
            Shape::Variable(max) => Declared::List { element, max: self.max(scope, max) },
        }
    }

    fn refuse(&mut self, item: &Declaration, why: &str) -> Declared {
        self.fault(item.at, why);
        Declared::One(Type::Void)
    }

    fn size(&mut self, scope: ScopeId, amount: &Amount) -> u32 {
        let why = format!("a fixed size is at most {MAX_FIXED_SIZE}");
        self.number(scope, amount, MAX_FIXED_SIZE, &why).unwrap_or(0)
    }

    fn max(&mut self, scope: ScopeId, amount: &Option<Amount>) -> u32 {
        let why = "a length is between 0 and 4294967295";
        amount.as_ref().and_then(|amount| self.number(scope, amount, u32::MAX, why)).unwrap_or(u32::MAX)
    }

    /// Returns the value of an amount, an unsigned number of at most `max`. Refuses an amount that has no
    /// value, and refuses any other number with the message `why`.
    pub(super) fn number(&mut self, scope: ScopeId, amount: &Amount, max: u32, why: &str) -> Option<u32> {
        let value = self.amount(scope, amount);
        let fits = |number| u32::try_from(number).ok().filter(|number| *number <= max);
        self.fitting(amount.at, value, fits, why)
    }

    /// Returns the value converted by `fit`. If `fit` returns `None`, refuses the value with the message
    /// `why`.
    fn fitting<T>(
        &mut self,
        at: Span,
        value: Reckoning,
        fit: impl Fn(i128) -> Option<T>,
        why: &str,
    ) -> Option<T> {
        match value.map(fit) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => self.fault(at, why),
            Err(unknown) => self.refuse_unknown(at, unknown),
        }
        None
    }

    /// Returns the type of that name: a type that the user declares elsewhere, a type of the file, a built-in
    /// type, or a type of RPC.
    pub(super) fn named_type(&mut self, scope: ScopeId, path: &Path) -> Type {
        let name = path.parts.last().map_or("", String::as_str);
        if self.external.contains(name) {
            return Type::Foreign(name.to_owned());
        }
        let found = self.find_type(scope, path);
        let known = builtin(name).filter(|_| found.is_none_or(|place| place >= self.own.types));
        match (known, found) {
            (Some(ty), _) => ty,
            (None, Some(place)) => Type::Defined(place),
            (None, None) => {
                self.undeclared_type(path.at, name);
                Type::Foreign(name.to_owned())
            }
        }
    }

    /// Returns the scalar type with aliases resolved, or `None` for an enumeration, a struct or a union.
    fn plain(&self, ty: &Type) -> Option<Type> {
        self.seen_through(ty).filter(|ty| ty.place().is_none())
    }

    /// Returns the type with aliases resolved.
    fn seen_through(&self, ty: &Type) -> Option<Type> {
        let mut ty = ty.clone();
        for _ in 0..MAX_ALIASES {
            let Type::Defined(place) = ty else { return Some(ty) };
            let item = &self.syntax.types[place];
            let BodyItem::Alias(Declaration { specifier, shape: Shape::One, .. }) = &item.body else {
                return Some(ty);
            };
            ty = match specifier {
                Specifier::Plain(plain) => return Some(plain.clone()),
                Specifier::Inline(place) => Type::Defined(*place),
                Specifier::Named(path) => {
                    let name = path.parts.last()?;
                    let foreign = Type::Foreign(name.clone());
                    if self.external.contains(name.as_str()) {
                        return Some(foreign);
                    }
                    match self.find_type(item.scope, path) {
                        Some(next) => Type::Defined(next),
                        None => return Some(builtin(name).unwrap_or(foreign)),
                    }
                }
                _ => return None,
            };
        }
        None
    }
}

/// Returns the number in 32 bits. An unsigned number keeps its bits.
fn in_32_bits(value: i128) -> Option<i32> {
    i32::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(u32::cast_signed))
}
