//! Whether types can exist: none may contain itself without end, and none may be larger than memory is.
//!
//! Without recursion, for a file may name as many types in a row as it likes.

use std::collections::HashSet;

use super::super::tree::{Body, Declared, Definition, Type};
use super::Resolver;

/// How many bytes a type may take in place, as XDR has it.
const MAX_IN_PLACE: u64 = 1 << 26;

/// How far a type was looked at.
#[derive(Clone, Copy, PartialEq)]
enum Seen {
    NotYet,
    Now,
    Done,
}

/// Refuses what cannot be.
pub(super) fn check(resolver: &mut Resolver, types: &[Definition]) {
    check_cycles(resolver, types, "contains itself, and so has no end: use `*` or `<>`", |body, out| {
        match body {
            // An arm of a union need not be taken, and so ends it.
            Body::Struct(fields) => fields.iter().for_each(|field| in_place(&field.declared, out)),
            Body::Alias(declared) => in_place(declared, out),
            Body::Enum(_) | Body::Union(_) => {}
        }
    });
    check_cycles(resolver, types, "is nothing but itself", |body, out| {
        if let Body::Alias(declared) = body {
            out.extend(element(declared));
        }
    });
    if resolver.faults.is_empty() {
        check_sizes(resolver, types);
    }
}

fn check_cycles(
    resolver: &mut Resolver,
    types: &[Definition],
    what: &str,
    within: impl Fn(&Body, &mut Vec<usize>),
) {
    let mut seen = vec![Seen::NotYet; types.len()];
    let mut told = HashSet::new();
    let next = |place: usize| {
        let mut out = Vec::new();
        within(&types[place].body, &mut out);
        out
    };
    for start in 0..types.len() {
        if seen[start] != Seen::NotYet {
            continue;
        }
        let mut open = vec![(start, next(start))];
        seen[start] = Seen::Now;
        while let Some((place, rest)) = open.last_mut() {
            match rest.pop() {
                None => {
                    seen[*place] = Seen::Done;
                    open.pop();
                }
                Some(inner) if seen[inner] == Seen::NotYet => {
                    seen[inner] = Seen::Now;
                    open.push((inner, next(inner)));
                }
                Some(inner) if seen[inner] == Seen::Now && told.insert(inner) => {
                    let name = resolver.syntax.types[inner].name.text.clone();
                    resolver.fault_of_type(inner, format!("`{name}` {what}"));
                }
                Some(_) => {}
            }
        }
    }
}

/// What each type takes in place, those first that others contain.
fn check_sizes(resolver: &mut Resolver, types: &[Definition]) {
    let mut sizes: Vec<Option<u64>> = vec![None; types.len()];
    let mut begun = vec![false; types.len()];
    for start in 0..types.len() {
        let mut open = vec![start];
        while let Some(place) = open.last().copied() {
            if sizes[place].is_some() {
                open.pop();
                continue;
            }
            if !std::mem::replace(&mut begun[place], true) {
                let mut inner = Vec::new();
                contained(&types[place].body, &mut inner);
                // What is open already contains itself by way of a union's arm, where it takes a pointer.
                open.extend(inner.into_iter().filter(|inner| !begun[*inner]));
                continue;
            }
            open.pop();
            let size = size(&types[place].body, &sizes);
            sizes[place] = Some(size);
            if size > MAX_IN_PLACE {
                let name = resolver.syntax.types[place].name.text.clone();
                let why = format!("`{name}` takes {size} bytes in place, of at most {MAX_IN_PLACE}");
                resolver.fault_of_type(place, why);
                // Those that contain it are as large.
                sizes[place] = Some(0);
            }
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
    match body {
        Body::Alias(declared) => of(declared),
        Body::Enum(_) => 4,
        Body::Struct(fields) => fields.iter().fold(0, |sum, field| sum.saturating_add(of(&field.declared))),
        Body::Union(union) => {
            let arms =
                union.arms.iter().filter_map(|arm| arm.field.as_ref()).chain(union.default.iter().flatten());
            arms.map(|field| of(&field.declared)).max().unwrap_or(0).saturating_add(4)
        }
    }
}

fn size_of(ty: &Type, sizes: &[Option<u64>]) -> u64 {
    match ty {
        Type::Defined(place) => sizes[*place].unwrap_or(8).max(1),
        Type::I64 | Type::U64 | Type::F64 => 8,
        Type::Quadruple => 16,
        _ => 4,
    }
}

/// All types that one contains in place.
fn contained(body: &Body, out: &mut Vec<usize>) {
    match body {
        Body::Alias(declared) => in_place(declared, out),
        Body::Enum(_) => {}
        Body::Struct(fields) => fields.iter().for_each(|field| in_place(&field.declared, out)),
        Body::Union(union) => {
            let arms =
                union.arms.iter().filter_map(|arm| arm.field.as_ref()).chain(union.default.iter().flatten());
            arms.for_each(|field| in_place(&field.declared, out));
        }
    }
}

fn in_place(declared: &Declared, out: &mut Vec<usize>) {
    if let Declared::One(Type::Defined(place)) | Declared::Array { element: Type::Defined(place), .. } =
        declared
    {
        out.push(*place);
    }
}

fn element(declared: &Declared) -> Option<usize> {
    match declared {
        Declared::One(Type::Defined(place)) | Declared::Optional(Type::Defined(place)) => Some(*place),
        Declared::Array { element: Type::Defined(place), .. }
        | Declared::List { element: Type::Defined(place), .. } => Some(*place),
        _ => None,
    }
}
