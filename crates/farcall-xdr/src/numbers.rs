//! Implements the wire forms of numbers, booleans, characters, and bytes (RFC 4506 sections 4.1 to 4.10).

use std::num::NonZero;

use crate::crossing::crossing;
use crate::schema::{Type, Types};
use crate::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

/// Implements the traits for numbers that take as many bytes on the wire as in memory. Arrays of them are
/// converted in groups.
macro_rules! wide {
    ($($number:ident $wire:ident $size:literal, $encode:literal $decode:literal;)*) => {$(
        impl Encode for $number {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                e.$number(*self)
            }

            #[inline]
            fn encode_slice(items: &[Self], e: &mut Encoder<'_>) -> Result<(), Error> {
                e.numbers::<_, $size, $encode>(items, $number::to_be_bytes)
            }
        }

        impl Decode<'_> for $number {
            const MIN_SIZE: usize = $size;

            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                d.$number()
            }

            #[inline]
            fn decode_vec(d: &mut Decoder<'_>, count: usize) -> Result<Vec<Self>, Error> {
                d.numbers::<_, $size, $decode>(count, $number::from_be_bytes)
            }

            #[inline]
            fn decode_array<const N: usize>(d: &mut Decoder<'_>) -> Result<[Self; N], Error> {
                d.number_array($number::from_be_bytes)
            }
        }

        impl Schema for $number {
            fn schema(_: &mut Types) -> Type {
                Type::$wire
            }
        }
    )*};
}

// The sizes of groups were measured with `examples/speed.rs`. Numbers of eight bytes are fastest in groups of
// eight that are converted one by one: twice as fast as vector instructions on x86-64 without SSSE3, which
// cannot shuffle bytes. For numbers of four bytes, vector instructions are faster. For decoding, the compiler
// chooses the best groups itself.
wide! {
    i32 I32 4, 16 1;
    u32 U32 4, 16 1;
    f32 F32 4, 16 1;
    i64 I64 8, 8 8;
    u64 U64 8, 8 8;
    f64 F64 8, 8 8;
}

#[inline]
fn narrowed<W: Copy + Into<i64>, N: TryFrom<W>>(
    value: W,
    d: &Decoder<'_>,
    of: &'static str,
) -> Result<N, Error> {
    N::try_from(value).map_err(|_| d.error_in_last(4, ErrorKind::OutOfRange { value: value.into(), of }))
}

/// One byte is sent as an unsigned integer. Several bytes are opaque data (sections 4.9 and 4.10).
impl Encode for u8 {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.u32((*self).into())
    }

    #[inline]
    fn encode_slice(items: &[Self], e: &mut Encoder<'_>) -> Result<(), Error> {
        e.opaque(items)
    }
}

impl Decode<'_> for u8 {
    const MIN_SIZE: usize = 4;
    const MIN_ELEMENT_SIZE: usize = 1;

    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        narrowed(d.u32()?, d, "u8")
    }

    #[inline]
    fn decode_vec(d: &mut Decoder<'_>, count: usize) -> Result<Vec<Self>, Error> {
        let bytes = d.opaque(count)?;
        d.charge(count)?;
        let mut copy = d.room(count)?;
        copy.extend_from_slice(bytes);
        Ok(copy)
    }

    #[inline]
    fn decode_array<const N: usize>(d: &mut Decoder<'_>) -> Result<[Self; N], Error> {
        d.opaque_array()
    }
}

impl Schema for u8 {
    const IS_BYTE: bool = true;

    fn schema(_: &mut Types) -> Type {
        Type::U8
    }
}

crossing! {
    // Numbers that are sent as wider numbers. The decoder refuses a number that does not fit its type.
    i8, 4, |_| Type::I8, |value, e| e.i32((*value).into()), |d| narrowed(d.i32()?, d, "i8");
    i16, 4, |_| Type::I16, |value, e| e.i32((*value).into()), |d| narrowed(d.i32()?, d, "i16");
    u16, 4, |_| Type::U16, |value, e| e.u32((*value).into()), |d| narrowed(d.u32()?, d, "u16");

    // RFC 4506 has no numbers of 128 bits. They are sent as two hyper integers, the more significant first.
    i128, 16, |_| Type::Tuple(vec![Type::I64, Type::U64]), |value, e| e.opaque(&value.to_be_bytes()),
        |d| Ok(Self::from(d.i64()?) << 64 | Self::from(d.u64()?));
    u128, 16, |_| Type::Tuple(vec![Type::U64, Type::U64]), |value, e| e.opaque(&value.to_be_bytes()),
        |d| Ok(Self::from(d.u64()?) << 64 | Self::from(d.u64()?));

    bool, 4, |_| Type::Bool, |value, e| e.bool(*value), |d| d.bool();

    char, 4, |_| Type::U32, |value, e| e.u32((*value).into()),
        |d| {
            let value = d.u32()?;
            char::from_u32(value).ok_or_else(|| d.error_in_last(4, ErrorKind::NotChar(value)))
        };
}

macro_rules! non_zero {
    ($($number:ident)*) => { crossing! {$(
        NonZero<$number>, <$number as Decode<'_>>::MIN_SIZE, |types| $number::schema(types),
            |value, e| value.get().encode(e),
            |d| {
                let value = $number::decode(d)?;
                NonZero::new(value).ok_or_else(|| {
                    let kind = ErrorKind::Invalid("zero, where it must not be".into());
                    d.error_in_last(Self::MIN_SIZE, kind)
                })
            };
    )*} };
}

non_zero! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }
