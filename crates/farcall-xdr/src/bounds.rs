//! Encodes and decodes values with a declared maximum of their length (RFC 4506 sections 4.10 to 4.13).

use crate::schema::{Type, Types};
use crate::{Counted, Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

/// Encodes a value whose length must be at most `max`.
#[inline]
pub fn encode_max<T: Encode + Counted + ?Sized>(
    value: &T,
    max: u32,
    e: &mut Encoder<'_>,
) -> Result<(), Error> {
    if let Some(length) = value.count().filter(|count| *count > max as usize) {
        return Err(e.error(ErrorKind::TooLong { length, max }));
    }
    value.encode(e)
}

/// Decodes a value whose length must be at most `max`. A longer value is refused before it is decoded.
#[inline]
pub fn decode_max<'a, T: Decode<'a> + Counted>(max: u32, d: &mut Decoder<'a>) -> Result<T, Error> {
    if let Some(count) = T::count_ahead(d.ahead()).filter(|count| *count > max) {
        return Err(d.error(ErrorKind::TooLong { length: count as usize, max }));
    }
    T::decode(d)
}

/// Returns the wire form of `T` with a length of at most `max`.
pub fn schema_max<T: Schema + Counted + ?Sized>(max: u32, types: &mut Types) -> Type {
    T::schema(types).bounded(max)
}
