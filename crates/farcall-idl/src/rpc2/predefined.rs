//! The types that `rp2gen` knows without a declaration.

use crate::language::tree::{Declared, Type};

/// The number of bytes of an RPC2_EncryptionKey.
const KEY_BYTES: u32 = 8;

/// What a type is, with all names for it resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Integer,
    Byte,
    CountedBytes,
    BoundedBytes,
    Struct,
    Bulk,
    /// Any other type, for which no rule of the language asks.
    Other,
}

/// A predefined type.
#[derive(Clone, Copy)]
pub(super) enum Predefined {
    /// A type that needs no definition.
    Plain(Simple, Sort),
    /// A struct with these fields, which is defined when the file uses it.
    Struct(&'static [(&'static str, Simple)], Sort, &'static str),
}

/// A type without a definition.
#[derive(Clone, Copy)]
pub(super) enum Simple {
    Integer,
    Unsigned,
    Byte,
    Double,
    String,
    Bytes,
    Key,
    Bulk,
}

impl Simple {
    pub fn declared(self) -> Declared {
        match self {
            Simple::Integer => Declared::One(Type::I32),
            Simple::Unsigned => Declared::One(Type::U32),
            Simple::Byte => Declared::One(Type::U8),
            Simple::Double => Declared::One(Type::F64),
            Simple::String => Declared::String { max: u32::MAX },
            Simple::Bytes => Declared::Bytes { max: u32::MAX },
            Simple::Key => Declared::Opaque { size: KEY_BYTES },
            Simple::Bulk => Declared::Bulk,
        }
    }
}

/// A value has these parts on the wire in this order.
const BOUNDED: &[(&str, Simple)] = &[("MaxSeqLen", Simple::Unsigned), ("SeqBody", Simple::Bytes)];
const CALL_COUNT: &[(&str, Simple)] = &[
    ("name", Simple::String),
    ("countent", Simple::Integer),
    ("countexit", Simple::Integer),
    ("tsec", Simple::Integer),
    ("tusec", Simple::Integer),
    ("counttime", Simple::Integer),
];
/// RPC2's own functions leave out `counthost`, which rp2gen puts into its table of types.
const MULTI_CALL: &[(&str, Simple)] = CALL_COUNT;
const MULTI_STUB: &[(&str, Simple)] =
    &[("opengate", Simple::Integer), ("tsec", Simple::Integer), ("tusec", Simple::Integer)];

const BOUNDED_DOCS: &str = "Bytes in a buffer of the client's. `max_seq_len` is the buffer's length, so that \
                            a server knows how many bytes it can send back.";

/// The predefined types, with their names.
pub(super) const ALL: [(&str, Predefined); 12] = [
    ("RPC2_Integer", Predefined::Plain(Simple::Integer, Sort::Integer)),
    ("RPC2_Unsigned", Predefined::Plain(Simple::Unsigned, Sort::Other)),
    ("RPC2_Byte", Predefined::Plain(Simple::Byte, Sort::Byte)),
    ("RPC2_Double", Predefined::Plain(Simple::Double, Sort::Other)),
    ("RPC2_String", Predefined::Plain(Simple::String, Sort::Other)),
    ("RPC2_CountedBS", Predefined::Plain(Simple::Bytes, Sort::CountedBytes)),
    ("RPC2_EncryptionKey", Predefined::Plain(Simple::Key, Sort::Other)),
    ("SE_Descriptor", Predefined::Plain(Simple::Bulk, Sort::Bulk)),
    ("RPC2_BoundedBS", Predefined::Struct(BOUNDED, Sort::BoundedBytes, BOUNDED_DOCS)),
    ("CallCountEntry", Predefined::Struct(CALL_COUNT, Sort::Struct, "")),
    ("MultiCallEntry", Predefined::Struct(MULTI_CALL, Sort::Struct, "")),
    ("MultiStubWork", Predefined::Struct(MULTI_STUB, Sort::Struct, "")),
];
