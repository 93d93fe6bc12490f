//! Decides where a Rust type needs a box: where the type would contain itself, and where it would be too
//! large for the stack.

use super::{Item, Kind, Shape};
use crate::language::components::Components;
use crate::language::tree::Type;

/// The maximum memory that an array takes without a box, in bytes.
const MAX_ARRAY_BYTES: u64 = 4 << 10;
/// The maximum memory that any other part takes without a box, in bytes.
const MAX_PART_BYTES: u64 = 64 << 10;

/// Adds the boxes. In a type that contains itself, the `Option`s are boxed first, like pointers in C. If that
/// is not enough, the other parts are boxed too.
pub fn insert(items: &mut [Item]) {
    for optional in [true, false] {
        let edges = edges(items);
        let components = Components::of(&edges);
        for (index, item) in items.iter_mut().enumerate() {
            if components.is_cyclic(index, &edges) {
                let in_circle = |to: usize| components.of[to] == components.of[index];
                shapes_mut(&mut item.kind).for_each(|shape| cut(shape, optional, &in_circle));
            }
        }
    }
    // Now no type contains itself. Types are sized before the types that contain them.
    let mut sizes = vec![0; items.len()];
    for index in Components::of(&edges(items)).inner_first() {
        let kind = &mut items[index].kind;
        shapes_mut(kind).for_each(|shape| shrink(shape, &sizes));
        let parts = shapes(kind).map(|shape| size(shape, &sizes));
        sizes[index] = match kind {
            Kind::Union(_) => 8 + parts.max().unwrap_or_default(),
            Kind::Enumeration(_) => 4,
            _ => parts.fold(0, u64::saturating_add),
        };
    }
}

/// Returns the shapes of an item's parts.
pub fn shapes(kind: &Kind) -> Box<dyn Iterator<Item = &Shape> + '_> {
    match kind {
        Kind::Alias(shape) | Kind::Newtype(shape) => Box::new(std::iter::once(shape)),
        Kind::Struct(members) => Box::new(members.iter().map(|member| &member.shape)),
        Kind::Union(union) => Box::new(union.variants.iter().filter_map(|variant| variant.shape.as_ref())),
        Kind::Exception(errors) => {
            Box::new(errors.iter().flat_map(|error| &error.members).map(|member| &member.shape))
        }
        Kind::Enumeration(_) | Kind::Foreign(_) => Box::new(std::iter::empty()),
    }
}

fn shapes_mut(kind: &mut Kind) -> Box<dyn Iterator<Item = &mut Shape> + '_> {
    match kind {
        Kind::Alias(shape) | Kind::Newtype(shape) => Box::new(std::iter::once(shape)),
        Kind::Struct(members) => Box::new(members.iter_mut().map(|member| &mut member.shape)),
        Kind::Union(union) => {
            Box::new(union.variants.iter_mut().filter_map(|variant| variant.shape.as_mut()))
        }
        Kind::Exception(errors) => {
            Box::new(errors.iter_mut().flat_map(|error| &mut error.members).map(|member| &mut member.shape))
        }
        Kind::Enumeration(_) | Kind::Foreign(_) => Box::new(std::iter::empty()),
    }
}

/// Returns, for each item, the items that it contains in its own memory.
fn edges(items: &[Item]) -> Vec<Vec<usize>> {
    let of_item = |item: &Item| shapes(&item.kind).filter_map(inline).collect();
    items.iter().map(of_item).collect()
}

/// Returns the item that is in the memory of the shape itself.
fn inline(shape: &Shape) -> Option<usize> {
    match shape {
        Shape::Named(item) | Shape::Linked(item) => Some(*item),
        Shape::Optional(inner) | Shape::Array(inner, _) => inline(inner),
        _ => None,
    }
}

/// Boxes the parts of a shape that lead back to the type itself: those in an `Option` if `optional`,
/// otherwise the others.
fn cut(shape: &mut Shape, optional: bool, in_circle: &dyn Fn(usize) -> bool) {
    match shape {
        Shape::Optional(inner) if optional && inline(inner).is_some_and(in_circle) => enclose(inner),
        Shape::Named(item) | Shape::Linked(item) if !optional && in_circle(*item) => enclose(shape),
        Shape::Optional(inner) | Shape::Array(inner, _) => cut(inner, optional, in_circle),
        _ => {}
    }
}

fn enclose(shape: &mut Shape) {
    let inner = std::mem::replace(shape, Shape::Opaque(0));
    *shape = Shape::Boxed(Box::new(inner));
}

/// Boxes large parts.
fn shrink(shape: &mut Shape, sizes: &[u64]) {
    match shape {
        Shape::Optional(inner) | Shape::List(inner, _) | Shape::Array(inner, _) => shrink(inner, sizes),
        _ => {}
    }
    let most = match shape {
        Shape::Array(..) | Shape::Opaque(_) => MAX_ARRAY_BYTES,
        _ => MAX_PART_BYTES,
    };
    if size(shape, sizes) > most {
        enclose(shape);
    }
}

/// Returns about how many bytes of memory a value takes in place.
fn size(shape: &Shape, sizes: &[u64]) -> u64 {
    match shape {
        Shape::Named(item) => sizes[*item],
        Shape::Linked(item) => sizes[*item].saturating_add(24),
        Shape::Optional(inner) => size(inner, sizes).saturating_add(8),
        Shape::Array(inner, count) => size(inner, sizes).saturating_mul((*count).into()),
        Shape::Opaque(size) => (*size).into(),
        Shape::Scalar(Type::Quadruple) => 16,
        Shape::Scalar(_) | Shape::Boxed(_) => 8,
        Shape::Chain(_) | Shape::List(..) | Shape::Bytes(_) | Shape::String(_) | Shape::Bulk => 24,
    }
}
