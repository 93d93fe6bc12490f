//! Wire types as people read them: `string<255>`, `opaque<>`, `u64[4]`, `Entry?`, `Entry*`.

use farcall_xdr::schema::{Type, Types};

/// The type on one line; structs and unions by their name.
pub fn spell(types: &Types, ty: &Type) -> String {
    let of = |inner: &Type| spell(types, inner);
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

/// `<255>`, or `<>` where only the length's own 32 bits are the limit.
fn most(max: u32) -> String {
    match max {
        u32::MAX => "<>".into(),
        max => format!("<{max}>"),
    }
}
