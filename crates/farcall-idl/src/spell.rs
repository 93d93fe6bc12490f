//! Writes wire types for people (`string<255>`, `opaque<>`, `u64[4]`, `Entry?`, `Entry*`, `stream<Entry>`),
//! and the numbers of programs.

use farcall_xdr::schema::{Type, Types};

/// Returns the type on one line. Structs and unions are written as their names.
pub fn spell(types: &Types, ty: &Type) -> String {
    let of = |inner: &Type| spell(types, inner);
    if let Some(item) = stream_item(ty) {
        return format!("stream<{}>", of(item));
    }
    match ty {
        Type::Void => "void".into(),
        Type::Bool => "bool".into(),
        Type::I8 => "i8".into(),
        Type::I16 => "i16".into(),
        Type::I32 => "i32".into(),
        Type::I64 => "i64".into(),
        Type::U8 => "u8".into(),
        Type::U16 => "u16".into(),
        Type::U32 => "u32".into(),
        Type::U64 => "u64".into(),
        Type::F32 => "f32".into(),
        Type::F64 => "f64".into(),
        Type::Opaque { size } => format!("opaque[{size}]"),
        Type::Bytes { max } => format!("opaque{}", most(*max)),
        Type::String { max } => format!("string{}", most(*max)),
        Type::Array { size, element } => format!("{}[{size}]", of(element)),
        Type::List { max, element } => format!("{}{}", of(element), most(*max)),
        Type::Optional(inner) => format!("{}?", of(inner)),
        Type::Chain(element) => format!("{}*", of(element)),
        Type::Tuple(parts) => format!("({})", parts.iter().map(of).collect::<Vec<_>>().join(", ")),
        Type::Named(place) => types.get(*place).map_or_else(|| "?".into(), |found| found.name.clone()),
    }
}

/// Returns the number of an ONC RPC program as people write it. Assigned numbers are decimal. Numbers from
/// 0x20000000 on, which anyone may choose (RFC 5531 section 13.1), are hexadecimal.
///
/// ```
/// assert_eq!([100_003, 0x2000_0100].map(farcall_idl::spell_program), ["100003", "0x20000100"]);
/// ```
pub fn spell_program(number: u32) -> String {
    const ASSIGNED: u32 = 0x2000_0000;
    if number < ASSIGNED { number.to_string() } else { format!("{number:#010x}") }
}

/// Returns a maximum such as `<255>`, or `<>` if only the 32-bit length is a limit.
fn most(max: u32) -> String {
    match max {
        u32::MAX => "<>".into(),
        max => format!("<{max}>"),
    }
}

/// Returns the type of a stream of these items.
#[cfg(feature = "x")]
pub(crate) fn stream_of(item: Type) -> Type {
    Type::Tuple(vec![Type::Opaque { size: 0 }, item])
}

/// Returns the type of a stream's items, if the type is a stream. A description has a stream as a tuple of
/// opaque data of length 0 and an item.
pub(crate) fn stream_item(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Tuple(parts) => match parts.as_slice() {
            [Type::Opaque { size: 0 }, item] => Some(item),
            _ => None,
        },
        _ => None,
    }
}
