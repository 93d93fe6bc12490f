//! Numbers, booleans and characters, and bytes as opaque data (RFC 4506 sections 4.1 to 4.10).

use std::num::NonZero;

use crate::schema::{Type, Types};
use crate::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

/// Numbers that cross in their own width; arrays of them are swapped in bulk.
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

// Grouped as measured by `examples/speed.rs`: of eight bytes, eight together are swapped one by one, at
// twice the speed of vectors where those cannot shuffle bytes (x86-64 as it comes); of four bytes,
// vectors are the faster way, and for decoding the compiler groups best by itself.
wide! {
    i32 I32 4, 16 1;
    u32 U32 4, 16 1;
    f32 F32 4, 16 1;
    i64 I64 8, 8 8;
    u64 U64 8, 8 8;
    f64 F64 8, 8 8;
}

impl Encoder<'_> {
    /// A floating-point number (RFC 4506 section 4.6).
    #[inline]
    pub fn f32(&mut self, value: f32) -> Result<(), Error> {
        self.u32(value.to_bits())
    }

    /// A double-precision floating-point number (section 4.7).
    #[inline]
    pub fn f64(&mut self, value: f64) -> Result<(), Error> {
        self.u64(value.to_bits())
    }
}

impl Decoder<'_> {
    /// A floating-point number (RFC 4506 section 4.6).
    #[inline]
    pub fn f32(&mut self) -> Result<f32, Error> {
        Ok(f32::from_bits(self.u32()?))
    }

    /// A double-precision floating-point number (section 4.7).
    #[inline]
    pub fn f64(&mut self) -> Result<f64, Error> {
        Ok(f64::from_bits(self.u64()?))
    }
}

/// Numbers that cross as a wider one, and must fit when they arrive.
macro_rules! narrow {
    ($number:ident as $wide:ident, $wire:ident) => {
        impl Encode for $number {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                e.$wide((*self).into())
            }
        }

        impl Decode<'_> for $number {
            const MIN_SIZE: usize = 4;

            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                narrowed(d.$wide()?, d, stringify!($number))
            }
        }

        impl Schema for $number {
            fn schema(_: &mut Types) -> Type {
                Type::$wire
            }
        }
    };
}

narrow!(i8 as i32, I8);
narrow!(i16 as i32, I16);
narrow!(u16 as u32, U16);

#[inline]
fn narrowed<W: Copy + Into<i64>, N: TryFrom<W>>(
    value: W,
    d: &Decoder<'_>,
    of: &'static str,
) -> Result<N, Error> {
    N::try_from(value).map_err(|_| d.error_in_last(4, ErrorKind::OutOfRange { value: value.into(), of }))
}

/// A lone byte is an unsigned integer; several are opaque data (sections 4.9 and 4.10).
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
        Ok(bytes.to_vec())
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

/// 128 bits, which RFC 4506 lacks: two hypers, the more significant first.
macro_rules! twice {
    ($($number:ident $high:ident $wire:ident)*) => {$(
        impl Encode for $number {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                e.opaque(&self.to_be_bytes())
            }
        }

        impl Decode<'_> for $number {
            const MIN_SIZE: usize = 16;

            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                Ok($number::from($high::decode(d)?) << 64 | $number::from(d.u64()?))
            }
        }

        impl Schema for $number {
            fn schema(_: &mut Types) -> Type {
                Type::Tuple(vec![Type::$wire, Type::U64])
            }
        }
    )*};
}

twice! { i128 i64 I64  u128 u64 U64 }

impl Encode for bool {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.bool(*self)
    }
}

impl Decode<'_> for bool {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        d.bool()
    }
}

impl Schema for bool {
    fn schema(_: &mut Types) -> Type {
        Type::Bool
    }
}

impl Encode for char {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.u32((*self).into())
    }
}

impl Decode<'_> for char {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
        let value = d.u32()?;
        char::from_u32(value).ok_or_else(|| d.error_in_last(4, ErrorKind::NotChar(value)))
    }
}

impl Schema for char {
    fn schema(_: &mut Types) -> Type {
        Type::U32
    }
}

macro_rules! non_zero {
    ($($number:ident)*) => {$(
        impl Encode for NonZero<$number> {
            #[inline]
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                self.get().encode(e)
            }
        }

        impl Decode<'_> for NonZero<$number> {
            const MIN_SIZE: usize = <$number as Decode<'_>>::MIN_SIZE;

            #[inline]
            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                let value = $number::decode(d)?;
                NonZero::new(value).ok_or_else(|| {
                    let kind = ErrorKind::Invalid("zero, where it must not be".into());
                    d.error_in_last(Self::MIN_SIZE, kind)
                })
            }
        }

        impl Schema for NonZero<$number> {
            fn schema(types: &mut Types) -> Type {
                $number::schema(types)
            }
        }
    )*};
}

non_zero! { i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 }
