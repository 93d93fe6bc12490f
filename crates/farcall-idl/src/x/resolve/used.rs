//! Selects the declarations that the file uses: its own types, and the types of other files that its types or
//! programs need.

use std::collections::HashMap;

use super::super::tree::{Body, Declared, Specification, Type};

/// Removes declarations of other files that are not used. Also removes the types in `dropped`, which only
/// stand for another: a built-in type under its own name (`typedef int int32_t;`), `typedef struct a a;`, or
/// a type that the user declares elsewhere. `dropped` has the replacement of each. Also returns, for each
/// type, whether it was kept.
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
    each_type_of_programs(&mut specification, &mut |ty| waiting.extend(ty.place()));
    while let Some(place) = waiting.pop() {
        if !std::mem::replace(&mut used[place], true) {
            each_type(&mut specification.types[place].body, &mut |ty| waiting.extend(ty.place()));
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

/// Returns the type that replaces this one if it was dropped, and otherwise the same type. A replacement can
/// itself have been dropped; then its replacement is taken.
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

/// Calls `f` with each type that a definition refers to.
pub(in crate::x) fn each_type(body: &mut Body, f: &mut impl FnMut(&mut Type)) {
    match body {
        Body::Alias(declared) => declared.element_mut().into_iter().for_each(&mut *f),
        Body::Union(union) => f(&mut union.discriminant),
        Body::Enum(_) | Body::Struct(_) | Body::Exception(_) => {}
    }
    let fields = body.fields_mut().into_iter();
    fields.filter_map(|field| field.declared.element_mut()).for_each(f);
}

/// Calls `f` with each type that a procedure takes or returns.
pub(in crate::x) fn each_type_of_programs(specification: &mut Specification, f: &mut impl FnMut(&mut Type)) {
    let versions = specification.programs.iter_mut().flat_map(|program| &mut program.versions);
    for procedure in versions.flat_map(|version| &mut version.procedures) {
        let arguments = procedure.arguments.iter_mut().map(|argument| &mut argument.declared);
        arguments.chain([&mut procedure.result]).filter_map(Declared::element_mut).for_each(&mut *f);
    }
}
