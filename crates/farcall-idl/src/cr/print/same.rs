//! Compares the wire forms of two interfaces, whatever their names and the grouping of their fields.

use std::collections::HashSet;

use farcall_xdr::schema::{Body, Field, Type, Types};

use crate::{Interface, Procedure};

/// The maximum number of types that are compared. A description can come from a peer.
const MAX_COMPARED: usize = 1 << 20;
/// The maximum depth of the comparison.
const MAX_DEPTH: usize = 256;

/// Returns whether all calls of the two interfaces have the same bytes in Courier, or `None` if the
/// interfaces are too large to be compared.
pub(super) fn on_the_wire(a: &Interface, b: &Interface) -> Option<bool> {
    let mut comparison =
        Comparison { a: &a.types, b: &b.types, seen: HashSet::new(), left: MAX_COMPARED, ended: false };
    let arguments = |procedure: &Procedure| -> Vec<Type> {
        procedure.arguments.iter().map(|argument| argument.ty.clone()).collect()
    };
    let mut same = |(a, b): (&Procedure, &Procedure)| {
        let ends = |procedure: &Procedure| [procedure.result.clone(), procedure.exception.clone()];
        let ([result, exception], [other_result, other_exception]) = (ends(a), ends(b));
        a.number == b.number
            && comparison.same(&arguments(a), &arguments(b), MAX_DEPTH)
            && comparison.same(&[result], &[other_result], MAX_DEPTH)
            && comparison.same(&[exception], &[other_exception], MAX_DEPTH)
    };
    let all =
        a.procedures.len() == b.procedures.len() && a.procedures.iter().zip(&b.procedures).all(&mut same);
    (!comparison.ended).then_some(all)
}

struct Comparison<'t> {
    a: &'t Types,
    b: &'t Types,
    /// Pairs that are equal, or whose comparison has begun.
    seen: HashSet<(Type, Type)>,
    left: usize,
    /// Whether a limit ended the comparison.
    ended: bool,
}

impl Comparison<'_> {
    /// Compares two rows of types, whose records count as their fields.
    fn same(&mut self, a: &[Type], b: &[Type], depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else {
            self.ended = true;
            return false;
        };
        let (mut flat_a, mut flat_b) = (Vec::new(), Vec::new());
        let flattened = flatten(self.a, a, depth, &mut self.left, &mut flat_a).is_some()
            && flatten(self.b, b, depth, &mut self.left, &mut flat_b).is_some();
        self.ended |= !flattened;
        flattened
            && flat_a.len() == flat_b.len()
            && flat_a.iter().zip(&flat_b).all(|(a, b)| self.same_type(a, b, depth))
    }

    fn same_type(&mut self, a: &Type, b: &Type, depth: usize) -> bool {
        if !self.seen.insert((a.clone(), b.clone())) {
            return true;
        }
        match (a, b) {
            // Courier's strings have no maximum.
            (Type::String { .. }, Type::String { .. }) => true,
            (Type::Array { size, element }, Type::Array { size: other_size, element: other }) => {
                size == other_size && self.same(&[*element.clone()], &[*other.clone()], depth)
            }
            (Type::List { max, element }, Type::List { max: other_max, element: other }) => {
                max == other_max && self.same(&[*element.clone()], &[*other.clone()], depth)
            }
            (Type::Named(place), Type::Named(other)) => self.same_union(*place, *other, depth),
            (a, b) => a == b,
        }
    }

    fn same_union(&mut self, a: u32, b: u32, depth: usize) -> bool {
        let (a, b) = (self.a.get(a).map(|found| &found.body), self.b.get(b).map(|found| &found.body));
        let (Some(Body::Union { arms: a }), Some(Body::Union { arms: b })) = (a, b) else { return false };
        let same = a
            .iter()
            .zip(b)
            .all(|(a, b)| a.tag == b.tag && self.same(&types_of(&a.fields), &types_of(&b.fields), depth));
        a.len() == b.len() && same
    }
}

fn types_of(fields: &[Field]) -> Vec<Type> {
    fields.iter().map(|field| field.ty.clone()).collect()
}

/// Adds the types to `flat`, with the fields of records in place of the records. Returns `None` at a limit.
fn flatten(types: &Types, row: &[Type], depth: usize, left: &mut usize, flat: &mut Vec<Type>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    for ty in row {
        *left = left.checked_sub(1)?;
        match ty {
            Type::Void => {}
            Type::Tuple(parts) => flatten(types, parts, depth, left, flat)?,
            Type::Named(place) => match types.get(*place).map(|definition| &definition.body) {
                Some(Body::Struct { fields, .. }) => flatten(types, &types_of(fields), depth, left, flat)?,
                _ => flat.push(ty.clone()),
            },
            other => flat.push(other.clone()),
        }
    }
    Some(())
}
