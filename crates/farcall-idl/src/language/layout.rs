//! Checks that values of the types can exist: no type contains itself without end, and none is too large.

use std::collections::HashSet;

use super::components::Components;
use super::tree::{Body, Declared, Definition, Type};

/// The maximum size of a value of a type in XDR without the content of pointers and lists, in bytes.
const MAX_IN_PLACE_BYTES: u64 = 1 << 26;

/// Returns the types whose values cannot exist, each with the reason. `bounded` says how the language keeps a
/// type from containing itself.
pub(crate) fn faults(types: &[Definition], bounded: &str) -> Vec<(usize, String)> {
    // A union ends the recursion, because its values can have an arm that does not contain the type.
    let always = |body: &Body| if matches!(body, Body::Union(_)) { Vec::new() } else { in_place(body) };
    let mut faults = circles(types, always, &format!("contains itself without end: use {bounded}"));
    let renamed = |body: &Body| match body {
        Body::Alias(declared) => declared.element().and_then(Type::place).into_iter().collect(),
        _ => Vec::new(),
    };
    faults.extend(circles(types, renamed, "is nothing but itself"));
    if faults.is_empty() { too_large(types) } else { faults }
}

/// Returns the first type of each circle.
fn circles(types: &[Definition], within: impl Fn(&Body) -> Vec<usize>, what: &str) -> Vec<(usize, String)> {
    let edges: Vec<Vec<usize>> = types.iter().map(|definition| within(&definition.body)).collect();
    let components = Components::of(&edges);
    let mut told = HashSet::new();
    let first = |place: &usize| components.is_cyclic(*place, &edges) && told.insert(components.of[*place]);
    let fault = |place: usize| (place, format!("`{}` {what}", types[place].named.name));
    (0..types.len()).filter(first).map(fault).collect()
}

fn too_large(types: &[Definition]) -> Vec<(usize, String)> {
    let edges: Vec<Vec<usize>> = types.iter().map(|definition| in_place(&definition.body)).collect();
    let mut sizes: Vec<Option<u64>> = vec![None; types.len()];
    let mut faults = Vec::new();
    for place in Components::of(&edges).inner_first() {
        let size = size(&types[place].body, &sizes);
        sizes[place] = Some(size);
        if size > MAX_IN_PLACE_BYTES {
            let name = &types[place].named.name;
            let why = format!(
                "`{name}` takes {size} bytes without pointers and lists; the limit is {MAX_IN_PLACE_BYTES}"
            );
            faults.push((place, why));
            // The error is reported once: types that contain this type are too large for the same reason.
            sizes[place] = Some(0);
        }
    }
    faults
}

fn size(body: &Body, sizes: &[Option<u64>]) -> u64 {
    let of = |declared: &Declared| match declared {
        Declared::One(ty) => size_of(ty, sizes),
        Declared::Array { element, size } => size_of(element, sizes).saturating_mul(u64::from(*size)),
        Declared::Opaque { size } => u64::from(*size),
        Declared::Optional(_) | Declared::List { .. } | Declared::Bytes { .. } => 4,
        Declared::String { .. } | Declared::Bulk => 4,
    };
    let parts = body.declarations().into_iter().map(of);
    match body {
        Body::Enum(_) => 4,
        Body::Alias(_) | Body::Struct(_) => parts.fold(0, u64::saturating_add),
        Body::Union(_) | Body::Exception(_) => parts.max().unwrap_or(0).saturating_add(4),
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
