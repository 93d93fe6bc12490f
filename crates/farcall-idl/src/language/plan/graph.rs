//! Examines how the types of a tree refer to one another: which are linked lists, which contain themselves,
//! and which nest too deeply.

use super::{MAX_DEPTH, Refused, option};
use crate::language::components::Components;
use crate::language::tree::{Body, Declared, Field, Specification, Type};

/// Returns the type with aliases resolved. For a circle of aliases, returns one of them.
pub fn stripped<'t>(specification: &'t Specification, ty: &'t Type) -> &'t Type {
    let mut stripped = ty;
    for _ in 0..=specification.types.len() {
        match stripped {
            Type::Defined(item) => match &specification.types[*item].body {
                Body::Alias(Declared::One(ty)) => stripped = ty,
                _ => break,
            },
            _ => break,
        }
    }
    stripped
}

/// Returns the declaration with aliases resolved. Unlike [`stripped`], also resolves a last alias that means
/// optional data, an array or another declaration that is not a single type.
fn declaration<'t>(specification: &'t Specification, declared: &'t Declared) -> &'t Declared {
    let Declared::One(ty) = declared else { return declared };
    match stripped(specification, ty) {
        Type::Defined(item) => match &specification.types[*item].body {
            Body::Alias(declared) => declared,
            _ => declared,
        },
        _ => declared,
    }
}

/// Returns whether a struct is the node of a linked list: its last field, and no other field, is an optional
/// pointer to itself.
pub fn is_list(specification: &Specification, index: usize) -> bool {
    let Body::Struct(fields) = &specification.types[index].body else { return false };
    let points_here = |field: &Field| match declaration(specification, &field.declared) {
        Declared::Optional(ty) => *stripped(specification, ty) == Type::Defined(index),
        _ => false,
    };
    match fields.split_last() {
        Some((last, others)) => points_here(last) && !others.iter().any(points_here),
        None => false,
    }
}

/// Refuses types that are nested so deeply that the Rust compiler would fail. Returns, for each definition,
/// whether it is an alias that contains itself.
pub fn check(specification: &Specification) -> Result<Vec<bool>, Refused> {
    let types = &specification.types;
    let every: Vec<Vec<usize>> = types.iter().map(|ty| mentioned(&ty.body)).collect();
    let components = Components::of(&every);
    if let Some(deep) = components.deeper_than(MAX_DEPTH) {
        let name = &types[deep].named.name;
        return Err(Refused(format!(
            "`{name}` refers to a type that refers to a type and so on, more than {MAX_DEPTH} types deep"
        )));
    }
    let is_name: Vec<bool> = types.iter().map(|ty| is_name(specification, &ty.body)).collect();
    let names = every.iter().zip(&is_name).map(|(mentioned, is)| match is {
        true => mentioned.iter().copied().filter(|to| is_name[*to]).collect(),
        false => Vec::new(),
    });
    let names: Vec<Vec<usize>> = names.collect();
    let components = Components::of(&names);
    Ok((0..types.len()).map(|index| components.is_cyclic(index, &names)).collect())
}

/// Returns whether the definition only names another Rust type (an alias or an `Option`), so that no struct
/// or enum is generated for it.
fn is_name(specification: &Specification, body: &Body) -> bool {
    match body {
        Body::Alias(_) => true,
        Body::Union(union) => option(specification, union).is_some(),
        _ => false,
    }
}

/// Returns the definitions that a definition refers to.
fn mentioned(body: &Body) -> Vec<usize> {
    let discriminant = match body {
        Body::Union(union) => union.discriminant.place(),
        Body::Alias(_) | Body::Enum(_) | Body::Struct(_) | Body::Exception(_) => None,
    };
    let parts = body.declarations().into_iter().filter_map(|declared| declared.element()?.place());
    discriminant.into_iter().chain(parts).collect()
}
