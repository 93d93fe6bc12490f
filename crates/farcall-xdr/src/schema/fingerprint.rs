//! Computes a number, the fingerprint, from the wire form of types. Equal forms have equal fingerprints.

use super::{Body, Field, Type, Types};
use crate::MAX_DEPTH;

/// Returns the fingerprint of values of the types `shape`, one after the other.
///
/// The fingerprint depends on the order and the wire types of the values, on declared maxima, and on the
/// discriminants that select a union's arms. It does not depend on names, documentation, the order of the
/// table, or fields that were added to an extensible struct. Fingerprints are sent, so the fingerprint of a
/// given shape never changes.
///
/// Each kind of type has a code (below). A type's hash is FNV-1a over the code, the type's sizes, maxima or
/// discriminants, and the hashes of its parts, all as 64-bit big-endian words; the result is mixed as in
/// SplitMix64. The hash of a named type is that of its body. A type that contains itself is unrolled 128
/// times, because decoders refuse values that nest deeper.
pub fn fingerprint(types: &Types, shape: &[Type]) -> u64 {
    let mut hashes = vec![0; types.definitions.len()];
    // Each round hashes one more level. For types that do not contain themselves, a few rounds suffice.
    for _ in 0..MAX_DEPTH {
        let deeper: Vec<u64> =
            types.definitions.iter().map(|definition| of_body(&definition.body, &hashes)).collect();
        if deeper == hashes {
            break;
        }
        hashes = deeper;
    }
    of_types(shape.iter(), &hashes)
}

fn of_body(body: &Body, hashes: &[u64]) -> u64 {
    match body {
        Body::Struct { fields, extensible: false } => of_fields(fields, hashes),
        Body::Struct { fields, extensible: true } => Hash::new(21).word(of_fields(fields, hashes)).finish(),
        Body::Union { arms } => {
            let mut arms: Vec<_> = arms.iter().collect();
            // The order of declaration does not matter on the wire. The default arm has no discriminant; the
            // hash has `u64::MAX` instead.
            arms.sort_by_key(|arm| arm.tag);
            let hash = arms.iter().fold(Hash::new(22), |hash, arm| {
                let tag = arm.tag.map_or(u64::MAX, |tag| u64::from(tag as u32));
                hash.word(tag).word(of_fields(&arm.fields, hashes))
            });
            hash.finish()
        }
    }
}

fn of_fields(fields: &[Field], hashes: &[u64]) -> u64 {
    of_types(fields.iter().filter(|field| !field.defaulted).map(|field| &field.ty), hashes)
}

fn of_types<'t>(types: impl Iterator<Item = &'t Type>, hashes: &[u64]) -> u64 {
    types.fold(Hash::new(20), |hash, ty| hash.word(of_type(ty, hashes))).finish()
}

fn of_type(ty: &Type, hashes: &[u64]) -> u64 {
    let hash = match ty {
        Type::Void => Hash::new(0),
        Type::Bool => Hash::new(1),
        Type::I8 => Hash::new(2),
        Type::I16 => Hash::new(3),
        Type::I32 => Hash::new(4),
        Type::I64 => Hash::new(5),
        Type::U8 => Hash::new(6),
        Type::U16 => Hash::new(7),
        Type::U32 => Hash::new(8),
        Type::U64 => Hash::new(9),
        Type::F32 => Hash::new(10),
        Type::F64 => Hash::new(11),
        Type::Opaque { size } => Hash::new(12).word((*size).into()),
        Type::Bytes { max } => Hash::new(13).word((*max).into()),
        Type::String { max } => Hash::new(14).word((*max).into()),
        Type::Array { size, element } => Hash::new(15).word((*size).into()).word(of_type(element, hashes)),
        Type::List { max, element } => Hash::new(16).word((*max).into()).word(of_type(element, hashes)),
        Type::Optional(inner) => Hash::new(17).word(of_type(inner, hashes)),
        Type::Chain(inner) => Hash::new(18).word(of_type(inner, hashes)),
        Type::Tuple(types) => return of_types(types.iter(), hashes),
        Type::Named(place) => return hashes.get(*place as usize).copied().unwrap_or_default(),
    };
    hash.finish()
}

/// Returns a hash of a procedure's name. Two programs compare it to see whether they mean the same procedure.
pub fn name_hash(name: &str) -> u64 {
    name.bytes().fold(Hash::new(23), |hash, byte| hash.word(u64::from(byte))).finish()
}

/// The hash function FNV-1a with 64 bits.
struct Hash(u64);

impl Hash {
    fn new(tag: u64) -> Hash {
        Hash(0xcbf2_9ce4_8422_2325).word(tag)
    }

    fn word(self, word: u64) -> Hash {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Hash(word.to_be_bytes().into_iter().fold(self.0, step))
    }

    fn finish(self) -> u64 {
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
