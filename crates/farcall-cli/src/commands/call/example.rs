//! What a procedure's arguments may look like, as a start for whoever writes some.

use farcall::xdr::schema::{Body, Field, Type, Types};
use farcall_idl::{Interface, Procedure};
use serde_json::{Value, json};

/// How deep an example nests, and how wide it is: types may come from anywhere.
const DEPTH: usize = 8;
const WIDTH: usize = 64;

/// Zeros, empty strings and lists, first variants.
pub fn arguments(interface: &Interface, procedure: &Procedure) -> Value {
    let arguments = procedure.arguments.iter().take(WIDTH);
    arguments.map(|argument| (argument.name.clone(), value(&interface.types, &argument.ty, DEPTH))).collect()
}

fn value(types: &Types, ty: &Type, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    match ty {
        Type::Void | Type::Optional(_) => Value::Null,
        Type::Bool => false.into(),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::U8 | Type::U16 | Type::U32 | Type::U64 => 0.into(),
        Type::F32 | Type::F64 => 0.0.into(),
        Type::Opaque { .. } | Type::Bytes { .. } | Type::String { .. } => "".into(),
        Type::Array { size, element } => {
            let element = value(types, element, depth);
            vec![element; (*size as usize).min(WIDTH)].into()
        }
        Type::List { .. } | Type::Chain(_) => json!([]),
        Type::Tuple(parts) => parts.iter().take(WIDTH).map(|part| value(types, part, depth)).collect(),
        Type::Named(place) => match types.get(*place).map(|found| &found.body) {
            None => Value::Null,
            Some(Body::Struct { fields: all, .. }) => fields(types, all, depth),
            Some(Body::Union { arms }) => match arms.first() {
                None => Value::Null,
                Some(arm) if arm.fields.is_empty() => arm.name.clone().into(),
                Some(arm) => json!({ &arm.name: fields(types, &arm.fields, depth) }),
            },
        },
    }
}

/// By name; unnamed ones as an array, and a single one as it is.
fn fields(types: &Types, fields: &[Field], depth: usize) -> Value {
    let unnamed = fields.iter().enumerate().all(|(at, field)| field.name == at.to_string());
    let each = |field: &Field| value(types, &field.ty, depth);
    match (unnamed, fields) {
        (true, [only]) => each(only),
        (true, [_, ..]) => fields.iter().take(WIDTH).map(each).collect(),
        _ => fields.iter().take(WIDTH).map(|field| (field.name.clone(), each(field))).collect(),
    }
}
