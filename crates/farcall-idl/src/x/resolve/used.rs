//! What of all that was read the file uses: its own types, and what those need of others.

use std::collections::HashMap;

use super::super::tree::{Body, Declared, Specification, Type};

/// Leaves out what came from elsewhere and is not used, and what stands for nothing of its own (`dropped`).
/// Gives also which of the types were kept.
pub(super) fn keep(
    mut specification: Specification,
    own: usize,
    dropped: &HashMap<usize, Type>,
) -> (Specification, Vec<bool>) {
    let count = specification.types.len();
    for definition in &mut specification.types {
        each_type(&mut definition.body, &mut |ty| *ty = instead(ty, dropped));
    }
    each_type_of_programs(&mut specification, &mut |ty| *ty = instead(ty, dropped));

    let mut used = vec![false; count];
    let mut waiting: Vec<usize> = (0..own).filter(|place| !dropped.contains_key(place)).collect();
    each_type_of_programs(&mut specification, &mut |ty| waiting.extend(place_of(ty)));
    while let Some(place) = waiting.pop() {
        if !std::mem::replace(&mut used[place], true) {
            each_type(&mut specification.types[place].body, &mut |ty| waiting.extend(place_of(ty)));
        }
    }

    let mut places = vec![0; count];
    let mut next = 0;
    for (place, used) in used.iter().enumerate() {
        places[place] = next;
        next += usize::from(*used);
    }
    let renumber = |ty: &mut Type| {
        if let Type::Defined(place) = ty {
            *place = places[*place];
        }
    };
    let mut keep = used.iter();
    specification.types.retain(|_| *keep.next().unwrap_or(&false));
    for definition in &mut specification.types {
        each_type(&mut definition.body, &mut |ty| renumber(ty));
    }
    each_type_of_programs(&mut specification, &mut |ty| renumber(ty));
    (specification, used)
}

/// What a type is, if it stands for nothing of its own; such may stand for such.
fn instead(ty: &Type, dropped: &HashMap<usize, Type>) -> Type {
    let mut ty = ty;
    for _ in 0..dropped.len() + 1 {
        match ty {
            Type::Defined(place) => match dropped.get(place) {
                Some(next) => ty = next,
                None => break,
            },
            _ => break,
        }
    }
    ty.clone()
}

fn place_of(ty: &Type) -> Option<usize> {
    match ty {
        Type::Defined(place) => Some(*place),
        _ => None,
    }
}

pub(in crate::x) fn each_type(body: &mut Body, f: &mut impl FnMut(&mut Type)) {
    match body {
        Body::Alias(declared) => declared_type(declared).into_iter().for_each(f),
        Body::Enum(_) => {}
        Body::Struct(fields) => {
            fields.iter_mut().filter_map(|field| declared_type(&mut field.declared)).for_each(f)
        }
        Body::Union(union) => {
            f(&mut union.discriminant);
            let arms = union.arms.iter_mut().filter_map(|arm| arm.field.as_mut());
            arms.chain(union.default.iter_mut().flatten())
                .filter_map(|field| declared_type(&mut field.declared))
                .for_each(f);
        }
    }
}

pub(in crate::x) fn each_type_of_programs(specification: &mut Specification, f: &mut impl FnMut(&mut Type)) {
    let versions = specification.programs.iter_mut().flat_map(|program| &mut program.versions);
    for procedure in versions.flat_map(|version| &mut version.procedures) {
        let arguments = procedure.arguments.iter_mut().map(|argument| &mut argument.declared);
        arguments.chain([&mut procedure.result]).filter_map(declared_type).for_each(&mut *f);
    }
}

fn declared_type(declared: &mut Declared) -> Option<&mut Type> {
    match declared {
        Declared::One(ty) | Declared::Optional(ty) => Some(ty),
        Declared::Array { element, .. } | Declared::List { element, .. } => Some(element),
        Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } => None,
    }
}
