//! Computes a number, the fingerprint, from the wire form of types. Equal forms have equal fingerprints.

use super::{Body, Field, Type, Types};
use crate::MAX_DEPTH;
use farcall_base::work;

/// Returns the fingerprint of values of the types `shape`, one after the other. For many shapes by one table,
/// make its [`TypeHashes`] once.
pub fn fingerprint(types: &Types, shape: &[Type]) -> u64 {
    TypeHashes::new(types).fingerprint(shape)
}

/// The hashes of the named types of a table, from which fingerprints are computed.
///
/// The fingerprint of a shape depends on the order and the wire types of its values, on declared maxima, and
/// on the discriminants that select a union's arms. It does not depend on names, documentation, the order of
/// the table, or fields that were added to an extensible struct. Fingerprints are sent, so the fingerprint of
/// a given shape never changes.
///
/// Each kind of type has a code (below). A type's hash is FNV-1a over the code, the type's sizes, maxima or
/// discriminants, and the hashes of its parts, all as 64-bit big-endian words; the result is mixed as in
/// SplitMix64. The hash of a named type is that of its body. A type that contains itself is unrolled 128
/// times, because decoders refuse values that nest deeper.
#[derive(Clone, Debug)]
pub struct TypeHashes(Vec<u64>);

impl TypeHashes {
    /// Computes the hashes of a table. This takes at most 128 times as long as reading the table, however the
    /// types refer to one another.
    pub fn new(types: &Types) -> TypeHashes {
        let definitions = &types.definitions;
        let mut users: Vec<Vec<u32>> = vec![Vec::new(); definitions.len()];
        for (place, definition) in (0_u32..).zip(definitions) {
            each_named(&definition.body, &mut |named| {
                let known = users.get_mut(named as usize);
                known
                    .into_iter()
                    .filter(|users| users.last() != Some(&place))
                    .for_each(|users| users.push(place));
            });
        }
        let mut hashes = vec![0; definitions.len()];
        // Each round hashes one more level, of the types to whose parts the last round gave other hashes. For
        // types that do not contain themselves, a few rounds suffice.
        let mut stale: Vec<u32> = (0..definitions.len() as u32).collect();
        let mut round_of = vec![0; definitions.len()];
        for round in 1..=MAX_DEPTH {
            let deeper: Vec<(u32, u64)> = stale
                .iter()
                .map(|place| (*place, of_body(&definitions[*place as usize].body, &hashes)))
                .filter(|(place, hash)| hashes[*place as usize] != *hash)
                .collect();
            stale.clear();
            for (place, hash) in deeper {
                hashes[place as usize] = hash;
                for user in &users[place as usize] {
                    work::step();
                    if round_of[*user as usize] != round {
                        round_of[*user as usize] = round;
                        stale.push(*user);
                    }
                }
            }
        }
        TypeHashes(hashes)
    }

    /// Returns the fingerprint of values of the types `shape`, one after the other. They are types of the
    /// table.
    pub fn fingerprint<'t>(&self, shape: impl IntoIterator<Item = &'t Type>) -> u64 {
        of_types(shape.into_iter(), &self.0)
    }

    /// Returns the fingerprint of values that have these hashes, one after the other.
    pub fn together(hashes: &[u64]) -> u64 {
        hashes.iter().fold(Hash::new(20), |hash, word| hash.word(*word)).finish()
    }

    /// Returns the hash of one type of the table.
    pub fn of(&self, ty: &Type) -> u64 {
        of_type(ty, &self.0)
    }
}

/// Calls `f` with each reference to a named type that a body contains.
fn each_named(body: &Body, f: &mut impl FnMut(u32)) {
    fn inside(ty: &Type, f: &mut impl FnMut(u32)) {
        match ty {
            Type::Named(place) => f(*place),
            Type::Array { element: inner, .. }
            | Type::List { element: inner, .. }
            | Type::Optional(inner)
            | Type::Chain(inner) => inside(inner, f),
            Type::Tuple(parts) => parts.iter().for_each(|part| inside(part, f)),
            _ => {}
        }
    }
    match body {
        Body::Struct { fields, .. } => fields.iter().for_each(|field| inside(&field.ty, f)),
        Body::Union { arms } => {
            arms.iter().flat_map(|arm| &arm.fields).for_each(|field| inside(&field.ty, f));
        }
    }
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
                work::step();
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
    work::step();
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
