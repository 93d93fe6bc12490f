//! External Data Representation (RFC 4506): the form in which values cross between machines.
//!
//! [`Encode`] writes a value to an [`Encoder`], [`Decode`] reads it from a [`Decoder`], [`Schema`] describes
//! its wire form, and [`Xdr`] is all three for owned values. `#[derive(Xdr)]` of farcall implements them for
//! structs and enums.
//!
//! ```
//! let packet = farcall_xdr::to_vec(&(7u32, "seven"))?;
//! assert_eq!(packet, b"\0\0\0\x07\0\0\0\x05seven\0\0\0");
//! assert_eq!(farcall_xdr::from_slice::<(u32, &str)>(&packet)?, (7, "seven"));
//! # Ok::<(), farcall_xdr::Error>(())
//! ```
//!
//! # Wire forms
//!
//! | Rust | RFC 4506 |
//! |---|---|
//! | `i8` `i16` `i32`, `u8` `u16` `u32` | int (4.1), unsigned int (4.2); the narrower ones range-checked |
//! | `i64`, `u64` | hyper, unsigned hyper (4.5) |
//! | `i128`, `u128` | two hypers, the more significant first |
//! | `f32`, `f64` | float (4.6), double (4.7); a quadruple (4.8) is `[u8; 16]` |
//! | `bool`, `char` | bool (4.4), unsigned int |
//! | `[u8; N]`, and `Vec<u8>` `&[u8]` `Bytes` | opaque, fixed (4.9) and variable (4.10) |
//! | `String`, `&str` | string (4.11), in UTF-8 |
//! | [`ByteString`] | string, of any bytes |
//! | `[T; N]`, and `Vec<T>`, sets, maps | array, fixed (4.12) and variable (4.13); a map's elements are pairs |
//! | struct, tuple | struct (4.14) |
//! | enum | enum (4.3) where no variant has fields; else discriminated union (4.15) |
//! | `()` | void (4.16) |
//! | `Option<T>` | optional-data (4.19) |
//! | [`Chain<T>`] | linked list of optional-data (4.19) |
//! | `Box<T>`, `Rc<T>`, `Arc<T>`, `&T` | as `T` |
//! | `Duration` | struct of unsigned hyper seconds, unsigned int nanoseconds |
//! | `SystemTime` | struct of hyper seconds since 1970, unsigned int nanoseconds |
//! | `IpAddr`, `SocketAddr` | union of 4 and 6, by the version |
#![forbid(unsafe_code)]

mod bounds;
mod containers;
mod crossing;
mod decode;
#[doc(hidden)]
pub mod derive;
mod encode;
mod error;
mod numbers;
mod onc;
pub mod schema;
mod time_and_net;

pub use containers::Counted;
pub use decode::{Decoder, Limits};
pub use encode::{Encoder, Spill};
pub use error::{Error, ErrorKind};
pub use onc::{Bounded, ByteString, Chain, Foreign, Linked};

use schema::{Type, Types};

/// How deep values nest by default. Encoders and decoders agree, so that a peer takes what we send.
const MAX_DEPTH: u32 = 128;
/// How much memory a decoded value takes at most by default, in bytes.
const MAX_MEMORY_BYTES: usize = 1 << 30;
/// How many elements of no bytes a value has at most.
const MAX_EMPTY_ELEMENTS: u32 = 1 << 16;

/// A value that can be put on the wire.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be put on the wire",
    label = "not `Encode`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Encode {
    /// Appends the value.
    ///
    /// # Errors
    /// If the value exceeds a declared maximum, or the encoder's limit.
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error>;

    /// Appends `items` without their number: the hook by which bytes become opaque data.
    #[doc(hidden)]
    #[inline]
    fn encode_slice(items: &[Self], e: &mut Encoder<'_>) -> Result<(), Error>
    where
        Self: Sized,
    {
        e.nested(|e| {
            for (index, item) in items.iter().enumerate() {
                item.encode(e).map_err(|error| error.at_index(index))?;
            }
            Ok(())
        })
    }
}

/// A value that can be taken from the wire. `&'a str`, `&'a [u8]` and `Cow` of them borrow from it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from the wire",
    label = "not `Decode`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "of references, only `&str` and `&[u8]` can be decoded: they borrow from the packet",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Decode<'a>: Sized {
    /// The fewest bytes that a value takes; 0 is always right. With it, a false count of elements is
    /// found before the first is decoded.
    const MIN_SIZE: usize = 0;

    /// The fewest bytes that a value takes as an element of an array: a byte of opaque data takes one.
    #[doc(hidden)]
    const MIN_ELEMENT_SIZE: usize = Self::MIN_SIZE;

    /// Takes a value from the front.
    ///
    /// # Errors
    /// If the bytes are no such value, or one beyond the decoder's limits.
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error>;

    /// Takes a value for a box: the hook by which large arrays come there without standing on the stack.
    #[doc(hidden)]
    #[inline]
    fn decode_boxed(d: &mut Decoder<'a>) -> Result<Box<Self>, Error> {
        d.charge(size_of::<Self>())?;
        Self::decode(d).map(Box::new)
    }

    /// Takes `count` values: the hook by which bytes become opaque data.
    #[doc(hidden)]
    #[inline]
    fn decode_vec(d: &mut Decoder<'a>, count: usize) -> Result<Vec<Self>, Error> {
        let room = d.admit(count, Self::MIN_SIZE, size_of::<Self>())?;
        let mut items = Vec::with_capacity(room);
        d.elements(count, |d| {
            items.push(Self::decode(d)?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Takes `N` values: the same hook for a fixed number of them.
    #[doc(hidden)]
    #[inline]
    fn decode_array<const N: usize>(d: &mut Decoder<'a>) -> Result<[Self; N], Error> {
        let mut failure = None;
        let items: [Option<Self>; N] = d.nested(|d| {
            Ok(std::array::from_fn(|index| {
                if failure.is_some() {
                    return None;
                }
                match Self::decode(d) {
                    Ok(item) => return Some(item),
                    Err(error) => failure = Some(error.at_index(index)),
                }
                None
            }))
        })?;
        match failure {
            Some(error) => Err(error),
            None => Ok(items.map(|item| item.expect("without a failure each item is there"))),
        }
    }
}

/// A type whose wire form can be described.
#[diagnostic::on_unimplemented(
    message = "the wire form of `{Self}` is not described",
    label = "not `Schema`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Schema {
    /// Whether a sequence of them is opaque data: true for `u8` alone.
    #[doc(hidden)]
    const IS_BYTE: bool = false;

    /// The wire form; structs and enums are entered in `types` and referred to by their place.
    fn schema(types: &mut Types) -> Type;
}

/// What an owned value on the wire is. Implemented for all that is `Encode`, `Decode` and `Schema`.
pub trait Xdr: Encode + Schema + for<'a> Decode<'a> {}

impl<T: Encode + Schema + for<'a> Decode<'a>> Xdr for T {}

/// The encoding of `value`.
///
/// # Errors
/// If the value exceeds a declared maximum.
pub fn to_vec<T: Encode + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    value.encode(&mut Encoder::new(&mut out))?;
    Ok(out)
}

/// The value that `bytes` encode, strictly and wholly.
///
/// # Errors
/// If they are no such value, or more than one.
pub fn from_slice<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}
