//! Looks up names, from the innermost namespace outwards.

use std::collections::HashMap;

use farcall_base::work;

use super::super::syntax::*;
use super::super::tree::Type;
use super::{Resolver, ValueId};

impl<'a> Resolver<'a> {
    /// Enters all declared names, and refuses a name that is declared twice with different meanings.
    pub(super) fn check_names(&mut self) {
        for (place, item) in self.syntax.types.iter().enumerate() {
            if names_itself(item) {
                continue;
            }
            match self.types.entry((item.scope, &item.name.text)) {
                std::collections::hash_map::Entry::Vacant(free) => drop(free.insert(place)),
                // The file's own declarations take precedence over those of files that it includes for C.
                std::collections::hash_map::Entry::Occupied(_) if place >= self.own.types => {}
                std::collections::hash_map::Entry::Occupied(first) => {
                    let first = *first.get();
                    if !same_type(&self.syntax.types[first].body, &item.body) {
                        self.twice(&item.name, &self.syntax.types[first].name);
                    }
                }
            }
        }
        // The file's own declarations take precedence over implied ones, such as those of macros.
        let is_own = |place: usize, item: &ConstantItem| place < self.own.constants && !item.is_implied;
        let (own, implied): (Vec<_>, Vec<_>) =
            self.syntax.constants.iter().enumerate().partition(|(place, item)| is_own(*place, item));
        for (place, item) in own {
            self.check_value((item.scope, &item.name), ValueId::Constant(place), true);
        }
        self.add_enumerators(0..self.own.types);
        for (place, item) in implied {
            self.check_value((item.scope, &item.name), ValueId::Constant(place), false);
        }
        self.add_enumerators(self.own.types..self.syntax.types.len());
    }

    fn add_enumerators(&mut self, places: std::ops::Range<usize>) {
        for place in places {
            let item = &self.syntax.types[place];
            let BodyItem::Enum(enumerators) = &item.body else { continue };
            for (position, (name, _)) in enumerators.iter().enumerate() {
                self.values.entry((item.scope, &name.text)).or_insert(ValueId::Enumerator(place, position));
            }
        }
    }

    /// Checks that two constants of one name have the same value. Enumerators are not checked: their
    /// enumeration distinguishes them.
    fn check_value(&mut self, (scope, name): (ScopeId, &'a Name), value: ValueId, own: bool) {
        let first = *self.values.entry((scope, &name.text)).or_insert(value);
        let (ValueId::Constant(first), ValueId::Constant(place)) = (first, value) else { return };
        if first == place || !own {
            return;
        }
        let constants = &self.syntax.constants;
        let same = match (&constants[first].value, &constants[place].value) {
            (ConstantValue::Text(a), ConstantValue::Text(b)) => a == b,
            (ConstantValue::Amount(_), ConstantValue::Amount(_)) => {
                matches!((self.constant(first), self.constant(place)), (Ok(a), Ok(b)) if a == b)
            }
            _ => false,
        };
        if !same {
            self.twice(name, &self.syntax.constants[first].name);
        }
    }

    pub(super) fn twice(&mut self, again: &Name, first: &Name) {
        self.again(again.at, first.at, format!("`{}` is declared a second time", again.text));
    }

    /// Returns the index of the type of that name.
    pub(super) fn find_type(&self, from: ScopeId, path: &Path) -> Option<usize> {
        self.find(from, path, |scope, name| self.types.get(&(scope, name)).copied())
    }

    /// Returns the constant or enumerator of that name. `a::b` may be the enumerator `b` of the enumeration
    /// `a`.
    pub(super) fn find_value(&mut self, from: ScopeId, path: &Path) -> Option<ValueId> {
        let found = self.find(from, path, |scope, name| self.values.get(&(scope, name)).copied());
        if found.is_some() {
            return found;
        }
        let (name, outer) = path.parts.split_last()?;
        let outer = Path { parts: outer.to_vec(), ..path.clone() };
        let place = self.find_type(from, &outer).filter(|_| !outer.parts.is_empty())?;
        Some(ValueId::Enumerator(place, self.enumerator(place, name)?))
    }

    /// Returns the index of an enumerator in the enumeration at that index.
    pub(super) fn enumerator(&mut self, place: usize, name: &str) -> Option<usize> {
        let BodyItem::Enum(enumerators) = &self.syntax.types[place].body else { return None };
        if let Some(ValueId::Enumerator(of, position)) =
            self.values.get(&(self.syntax.types[place].scope, name))
            && *of == place
        {
            return Some(*position);
        }
        let positions = self.positions.entry(place).or_insert_with(|| {
            let mut positions = HashMap::new();
            for (position, (enumerator, _)) in enumerators.iter().enumerate() {
                work::step();
                positions.entry(enumerator.text.as_str()).or_insert(position);
            }
            positions
        });
        positions.get(name).copied()
    }

    fn find<T>(
        &self,
        from: ScopeId,
        path: &Path,
        in_scope: impl Fn(ScopeId, &str) -> Option<T>,
    ) -> Option<T> {
        let (name, outer) = path.parts.split_last()?;
        let mut scope = if path.absolute { 0 } else { from };
        loop {
            let within =
                outer.iter().try_fold(scope, |scope, name| self.scopes.get(&(scope, name.as_str())).copied());
            if let Some(found) = within.and_then(|within| in_scope(within, name)) {
                return Some(found);
            }
            if scope == 0 {
                return None;
            }
            scope = self.syntax.scopes[scope].outer;
        }
    }
}

/// Returns whether this is `typedef struct a a;`, which declares a name in C but nothing in this language.
pub(super) fn names_itself(item: &TypeItem) -> bool {
    let BodyItem::Alias(declaration) = &item.body else { return false };
    let same = |path: &Path| !path.absolute && path.parts.len() == 1 && path.parts[0] == item.name.text;
    matches!((&declaration.specifier, &declaration.shape), (Specifier::Named(path), Shape::One) if same(path))
}

/// Returns the built-in type of this name in C, which needs no declaration.
pub(super) fn builtin(name: &str) -> Option<Type> {
    BUILTIN_TYPES
        .iter()
        .find(|(_, names)| names.split(' ').any(|known| known == name))
        .map(|(ty, _)| ty.clone())
}

/// The types that [`builtin`] knows, with their names.
const BUILTIN_TYPES: [(Type, &str); 11] = [
    (Type::Bool, "bool_t boolean boolean_t"),
    (Type::I8, "int8_t int8"),
    (Type::I16, "int16_t int16"),
    (Type::I32, "int32_t int32"),
    (Type::I64, "int64_t int64 quad_t longlong_t"),
    (Type::U8, "u_char uchar uint8_t u_int8_t uint8"),
    (Type::U16, "u_short ushort uint16_t u_int16_t uint16"),
    (Type::U32, "u_int uint u_long ulong uint32_t u_int32_t uint32"),
    (Type::U64, "uint64_t u_int64_t uint64 u_quad_t u_longlong_t u_hyper"),
    (Type::F32, "float32 float32_t"),
    (Type::F64, "float64 float64_t"),
];

/// Returns the names that [`builtin`] knows.
pub(super) fn builtin_types<'n>() -> impl Iterator<Item = &'n str> {
    BUILTIN_TYPES.iter().flat_map(|(_, names)| names.split(' '))
}

/// Returns whether two definitions of one name are equal, as far as this is easy to see.
fn same_type(a: &BodyItem, b: &BodyItem) -> bool {
    let (BodyItem::Alias(a), BodyItem::Alias(b)) = (a, b) else { return false };
    let same_shape = match (&a.shape, &b.shape) {
        (Shape::One, Shape::One)
        | (Shape::Optional, Shape::Optional)
        | (Shape::Variable(None), Shape::Variable(None)) => true,
        (Shape::Fixed(a), Shape::Fixed(b)) | (Shape::Variable(Some(a)), Shape::Variable(Some(b))) => {
            matches!((&a.expression, &b.expression), (Expression::Number(a), Expression::Number(b)) if a == b)
                || matches!((&a.expression, &b.expression), (Expression::Name(a), Expression::Name(b)) if a.parts == b.parts)
        }
        _ => false,
    };
    let same_specifier = match (&a.specifier, &b.specifier) {
        (Specifier::Plain(a), Specifier::Plain(b)) => a == b,
        (Specifier::Named(a), Specifier::Named(b)) => a.parts == b.parts,
        (Specifier::Opaque, Specifier::Opaque) | (Specifier::String, Specifier::String) => true,
        _ => false,
    };
    same_shape && same_specifier
}

/// Returns the value of `TRUE` or `FALSE`, in capital or small letters. Every dialect knows these names.
pub(super) fn builtin_value(name: &str) -> Option<i128> {
    BUILTIN_VALUES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The names that [`builtin_value`] knows.
pub(super) const BUILTIN_VALUES: [(&str, i128); 4] = [("TRUE", 1), ("true", 1), ("FALSE", 0), ("false", 0)];
