//! Checks that values of the types can exist: no type contains itself without end, and none is too large.

use std::collections::HashSet;

use super::super::components::Components;
use super::super::tree::{Body, Declared, Definition, Type};
use super::Resolver;

/// The maximum size of a value of a type in XDR without the content of pointers and lists, in bytes.
const MAX_IN_PLACE_BYTES: u64 = 1 << 26;

/// Refuses types whose values cannot exist.
pub(super) fn check(resolver: &mut Resolver, types: &[Definition]) {
    // A union ends the recursion, because its values can have an arm that does not contain the type.
    let always = |body: &Body| if matches!(body, Body::Union(_)) { Vec::new() } else { in_place(body) };
    refuse_circles(resolver, types, always, "contains itself without end: use `*` or `<>`");
    let renamed = |body: &Body| match body {
        Body::Alias(declared) => declared.element().and_then(Type::place).into_iter().collect(),
        _ => Vec::new(),
    };
    refuse_circles(resolver, types, renamed, "is nothing but itself");
    if resolver.faults.is_empty() {
        check_sizes(resolver, types);
    }
}

/// Refuses the first type of each circle.
fn refuse_circles(
    resolver: &mut Resolver,
    types: &[Definition],
    within: impl Fn(&Body) -> Vec<usize>,
    what: &str,
) {
    let edges: Vec<Vec<usize>> = types.iter().map(|definition| within(&definition.body)).collect();
    let components = Components::of(&edges);
    let mut told = HashSet::new();
    for (place, definition) in types.iter().enumerate() {
        if components.is_cyclic(place, &edges) && told.insert(components.of[place]) {
            resolver.fault_of_type(place, format!("`{}` {what}", definition.named.name));
        }
    }
}

fn check_sizes(resolver: &mut Resolver, types: &[Definition]) {
    let edges: Vec<Vec<usize>> = types.iter().map(|definition| in_place(&definition.body)).collect();
    let mut sizes: Vec<Option<u64>> = vec![None; types.len()];
    for place in Components::of(&edges).inner_first() {
        let size = size(&types[place].body, &sizes);
        sizes[place] = Some(size);
        if size > MAX_IN_PLACE_BYTES {
            let name = &types[place].named.name;
            let why = format!(
                "`{name}` takes {size} bytes without pointers and lists; the limit is {MAX_IN_PLACE_BYTES}"
            );
            resolver.fault_of_type(place, why);
            // The error is reported once: types that contain this type are too large for the same reason.
            sizes[place] = Some(0);
        }
    }
}

fn size(body: &Body, sizes: &[Option<u64>]) -> u64 {
    let of = |declared: &Declared| match declared {
        Declared::One(ty) => size_of(ty, sizes),
        Declared::Array { element, size } => size_of(element, sizes).saturating_mul(u64::from(*size)),
        Declared::Opaque { size } => u64::from(*size),
        Declared::Optional(_) | Declared::List { .. } | Declared::Bytes { .. } | Declared::String { .. } => 4,
    };
    let parts = body.declarations().into_iter().map(of);
    match body {
        Body::Enum(_) => 4,
        Body::Alias(_) | Body::Struct(_) => parts.fold(0, u64::saturating_add),
        Body::Union(_) => parts.max().unwrap_or(0).saturating_add(4),
    }
}

/// Returns the size of a type. If the size is not known yet, the type contains itself through a union's arm,
/// which becomes a pointer.
fn size_of(ty: &Type, sizes: &[Option<u64>]) -> u64 {
    match ty {
        Type::Defined(place) => sizes[*place].unwrap_or(8).max(1),
        Type::I64 | Type::U64 | Type::F64 => 8,
        Type::Quadruple => 16,
        _ => 4,
    }
}

/// Returns the types that a type contains directly, and not through pointers or lists.
fn in_place(body: &Body) -> Vec<usize> {
    let declarations = body.declarations().into_iter();
    declarations.filter_map(|declared| declared.in_place()?.place()).collect()
}
