//! External Data Representation (XDR, RFC 4506): the form of values on the wire.
//!
//! [`Encode`] writes a value to an [`Encoder`], [`Decode`] reads a value from a [`Decoder`], and [`Schema`]
//! describes the wire form. [`Xdr`] stands for all three, for owned values. `#[derive(Xdr)]` of farcall
//! implements the traits for structs and enums.
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
//! | `IpAddr`, `SocketAddr` | discriminated union: arm 4 for IPv4, arm 6 for IPv6 |
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

/// The default for the maximum depth to which values nest. Encoders and decoders have the same limit, so that
/// a peer accepts what this program sends.
const MAX_DEPTH: u32 = 128;
/// The default for the maximum memory that a decoded value takes, in bytes.
const MAX_MEMORY_BYTES: usize = 1 << 30;
/// The maximum number of elements in a value that take no bytes on the wire, such as `()`.
const MAX_EMPTY_ELEMENTS: u32 = 1 << 16;

/// A value that can be encoded.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be put on the wire",
    label = "not `Encode`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Encode {
    /// Appends the value to the encoder's buffer.
    ///
    /// # Errors
    /// When the value exceeds a declared maximum or the encoder's limit.
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error>;

    /// Appends `items` without their count. The implementation for `u8` writes opaque data.
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

/// A value that can be decoded. `&'a str`, `&'a [u8]` and `Cow` of these borrow from the input.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from the wire",
    label = "not `Decode`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "of references, only `&str` and `&[u8]` can be decoded: they borrow from the packet",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Decode<'a>: Sized {
    /// The least number of bytes that a value takes on the wire; 0 is always correct. By this number the
    /// decoder refuses an impossible element count before it decodes the first element.
    const MIN_SIZE: usize = 0;

    /// The least number of bytes that a value takes as an element of an array. For `u8` this is 1, because an
    /// array of `u8` is opaque data.
    #[doc(hidden)]
    const MIN_ELEMENT_SIZE: usize = Self::MIN_SIZE;

    /// Decodes a value from the front of the remaining bytes.
    ///
    /// # Errors
    /// When the bytes are not a value of this type, or the value exceeds the decoder's limits.
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error>;

    /// Decodes a value into a box. The implementation for arrays avoids a large array on the stack.
    #[doc(hidden)]
    #[inline]
    fn decode_boxed(d: &mut Decoder<'a>) -> Result<Box<Self>, Error> {
        d.charge(size_of::<Self>())?;
        Self::decode(d).map(Box::new)
    }

    /// Decodes `count` values. The implementation for `u8` reads opaque data.
    #[doc(hidden)]
    #[inline]
    fn decode_vec(d: &mut Decoder<'a>, count: usize) -> Result<Vec<Self>, Error> {
        let room = d.admit(count, Self::MIN_SIZE, size_of::<Self>())?;
        let mut items = d.room(room)?;
        d.elements(count, |d| {
            items.push(Self::decode(d)?);
            Ok(())
        })?;
        Ok(items)
    }

    /// Decodes `N` values. The implementation for `u8` reads opaque data.
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

/// A type with a description of its wire form.
#[diagnostic::on_unimplemented(
    message = "the wire form of `{Self}` is not described",
    label = "not `Schema`",
    note = "implement it by `#[derive(Xdr)]`, or name functions of your own with `#[xdr(with = path)]`",
    note = "usize and isize differ between machines: use u32 or u64, i32 or i64"
)]
pub trait Schema {
    /// Whether a sequence of such values is opaque data. Only `u8` sets it.
    #[doc(hidden)]
    const IS_BYTE: bool = false;

    /// Returns the wire form. Structs and enums are entered in `types`, and the result refers to them by
    /// index.
    fn schema(types: &mut Types) -> Type;
}

/// An owned value that can be sent and received. All types that are `Encode`, `Decode` and `Schema` implement
/// it.
pub trait Xdr: Encode + Schema + for<'a> Decode<'a> {}

impl<T: Encode + Schema + for<'a> Decode<'a>> Xdr for T {}

/// Encodes `value`.
///
/// # Errors
/// When the value exceeds a declared maximum.
pub fn to_vec<T: Encode + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    value.encode(&mut Encoder::new(&mut out))?;
    Ok(out)
}

/// Decodes the value in `bytes` strictly. It must take all of `bytes`.
///
/// # Errors
/// When the bytes are not a value of this type, or more bytes follow the value.
pub fn from_slice<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    let mut decoder = Decoder::new(bytes);
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}
