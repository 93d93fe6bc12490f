//! Types for wire forms of `.x` files (RFC 4506 section 6) that Rust lacks: byte strings, linked lists, and
//! lengths with a maximum.

use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::str::Utf8Error;

use crate::crossing::crossing;
use crate::schema::{Body, Type, Types};
use crate::{Counted, Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema, bounds};

/// A string of RFC 4506 (section 4.11): bytes, which are usually text.
///
/// It is displayed as text, with U+FFFD for bytes that are not UTF-8. It dereferences to its bytes.
///
/// ```
/// use farcall_xdr::ByteString;
/// let name: ByteString = "caf\u{e9}".into();
/// assert_eq!(name.to_str(), Ok("caf\u{e9}"));
/// assert_eq!(name.len(), 5);
/// assert_eq!(ByteString::from(b"caf\xe9".as_slice()).to_string(), "caf\u{fffd}");
/// ```
#[derive(Clone)]
pub struct ByteString(Repr);

/// The maximum length of a string that needs no allocation, in bytes. Most names are no longer. A
/// `ByteString` of this size takes 32 bytes of memory.
const INLINE_BYTES: usize = 30;

#[derive(Clone)]
enum Repr {
    Short { length: u8, bytes: [u8; INLINE_BYTES] },
    Long(Vec<u8>),
}

impl ByteString {
    /// Returns the text, if the string is UTF-8.
    ///
    /// # Errors
    /// The position of the first byte that is not UTF-8.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(self)
    }

    /// Returns the text, with U+FFFD for bytes that are not UTF-8.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self)
    }

    /// Returns the bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.0 {
            Repr::Short { .. } => self.to_vec(),
            Repr::Long(bytes) => bytes,
        }
    }
}

impl Default for ByteString {
    fn default() -> Self {
        ByteString(Repr::Short { length: 0, bytes: [0; INLINE_BYTES] })
    }
}

impl Deref for ByteString {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // `length` is at most `INLINE_BYTES`. With `min` the compiler knows it, and generates no panic.
            Repr::Short { length, bytes } => &bytes[..usize::from(*length).min(INLINE_BYTES)],
            Repr::Long(bytes) => bytes,
        }
    }
}

impl DerefMut for ByteString {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Repr::Short { length, bytes } => &mut bytes[..usize::from(*length).min(INLINE_BYTES)],
            Repr::Long(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for ByteString {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for ByteString {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for ByteString {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ByteString {}

impl PartialOrd for ByteString {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByteString {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(other)
    }
}

/// The hash is that of the bytes, so that a map with `ByteString` keys can be searched by bytes.
impl Hash for ByteString {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Display for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_string_lossy().fmt(f)
    }
}

/// Writes a string literal, with bytes that are not UTF-8 escaped.
impl fmt::Debug for ByteString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_str() {
            Ok(text) => text.fmt(f),
            Err(_) => write!(f, "b\"{}\"", self.escape_ascii()),
        }
    }
}

impl From<Vec<u8>> for ByteString {
    fn from(bytes: Vec<u8>) -> Self {
        ByteString(Repr::Long(bytes))
    }
}

impl From<String> for ByteString {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&[u8]> for ByteString {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        let mut short = [0; INLINE_BYTES];
        ByteString(match (short.get_mut(..bytes.len()), bytes.len() as u8) {
            (Some(room), length) => {
                room.copy_from_slice(bytes);
                Repr::Short { length, bytes: short }
            }
            (None, _) => Repr::Long(bytes.to_vec()),
        })
    }
}

impl From<&str> for ByteString {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<ByteString> for Vec<u8> {
    fn from(string: ByteString) -> Self {
        string.into_bytes()
    }
}

impl PartialEq<str> for ByteString {
    fn eq(&self, other: &str) -> bool {
        **self == *other.as_bytes()
    }
}

impl PartialEq<&str> for ByteString {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

crossing! {
    ByteString, 4, |types| str::schema(types), |value, e| e.bytes(value),
        |d| {
            let ahead = d.ahead();
            let bytes = d.bytes()?;
            if bytes.len() > INLINE_BYTES {
                d.charge(bytes.len())?;
                let mut copy = d.room(bytes.len())?;
                copy.extend_from_slice(bytes);
                return Ok(ByteString(Repr::Long(copy)));
            }
            // Copying a constant number of bytes is faster than copying exactly `length` bytes.
            Ok(match (ahead.get(4..).and_then(<[u8]>::first_chunk), bytes.len() as u8) {
                (Some(room), length) => ByteString(Repr::Short { length, bytes: *room }),
                (None, _) => bytes.into(),
            })
        };
}

impl Counted for ByteString {
    #[inline]
    fn count(&self) -> Option<usize> {
        Some(self.len())
    }
}

/// Encodes the elements as a linked list (RFC 4506 section 4.19): an integer 1 before each element, and an
/// integer 0 after the last.
#[inline]
pub fn encode_chain<T: Encode>(items: &[T], e: &mut Encoder<'_>) -> Result<(), Error> {
    e.nested(|e| {
        for (index, item) in items.iter().enumerate() {
            e.bool(true)?;
            item.encode(e).map_err(|error| error.at_index(index))?;
        }
        e.bool(false)
    })
}

/// Decodes a linked list, by a loop and not by recursion, because a peer can send a list as long as its
/// packets allow.
#[inline]
pub fn decode_chain<'a, T: Decode<'a>>(d: &mut Decoder<'a>) -> Result<Vec<T>, Error> {
    d.nested(|d| {
        let mut items = Vec::new();
        while d.bool()? {
            d.charge(size_of::<T>())?;
            items.try_reserve(1).map_err(|_| d.error(ErrorKind::NoMemory(size_of::<T>())))?;
            items.push(T::decode(d).map_err(|error| error.at_index(items.len()))?);
        }
        Ok(items)
    })
}

/// A list that is sent as a linked list (`entry *next` in `.x` files) rather than as an array. In Rust it
/// wraps a `Vec`.
///
/// ```
/// use farcall_xdr::Chain;
/// let ports: Chain<u32> = [111, 2049].into_iter().collect();
/// assert_eq!(farcall_xdr::to_vec(&ports)?, [0, 0, 0, 1, 0, 0, 0, 111, 0, 0, 0, 1, 0, 0, 8, 1, 0, 0, 0, 0]);
/// assert_eq!(ports.len(), 2);
/// # Ok::<(), farcall_xdr::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chain<T>(pub Vec<T>);

impl<T> Default for Chain<T> {
    fn default() -> Self {
        Chain(Vec::new())
    }
}

impl<T> Deref for Chain<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> DerefMut for Chain<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T> From<Vec<T>> for Chain<T> {
    fn from(items: Vec<T>) -> Self {
        Chain(items)
    }
}

impl<T> From<Chain<T>> for Vec<T> {
    fn from(chain: Chain<T>) -> Self {
        chain.0
    }
}

impl<T> FromIterator<T> for Chain<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Chain(items.into_iter().collect())
    }
}

impl<T> IntoIterator for Chain<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Chain<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Encode> Encode for Chain<T> {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        encode_chain(&self.0, e)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Chain<T> {
    const MIN_SIZE: usize = 4;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        decode_chain(d).map(Chain)
    }
}

impl<T: Schema> Schema for Chain<T> {
    fn schema(types: &mut Types) -> Type {
        Type::Chain(Box::new(T::schema(types)))
    }
}

/// The nodes of a linked list that cannot be empty: the first node, which an `.x` file declares without a
/// pointer, then the other nodes as a [`Chain`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linked<T> {
    /// The first element.
    pub first: T,
    /// All other elements, in order.
    pub rest: Vec<T>,
}

impl<T> Linked<T> {
    /// Iterates over all elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

impl<T> From<T> for Linked<T> {
    fn from(first: T) -> Self {
        Linked { first, rest: Vec::new() }
    }
}

impl<T: Encode> Encode for Linked<T> {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        e.nested(|e| self.first.encode(e))?;
        encode_chain(&self.rest, e)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Linked<T> {
    const MIN_SIZE: usize = T::MIN_SIZE;

    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        let first = d.nested(T::decode)?;
        Ok(Linked { first, rest: decode_chain(d)? })
    }
}

impl<T: Schema> Schema for Linked<T> {
    fn schema(types: &mut Types) -> Type {
        let first = T::schema(types);
        Type::Tuple(vec![first.clone(), Type::Chain(Box::new(first))])
    }
}

/// A string, opaque data or a list of at most `MAX` bytes or elements, for places where `#[xdr(max = …)]`
/// cannot stand: within another list, or as a result. The maximum is checked when the value is encoded or
/// decoded.
///
/// ```
/// use farcall_xdr::{Bounded, ByteString};
/// let names: Vec<Bounded<ByteString, 3>> = vec!["abc".into(), ByteString::from("long").into()];
/// let why = farcall_xdr::to_vec(&names).unwrap_err();
/// assert_eq!(why.to_string(), "at byte 12, in [1]: length 4 is over the maximum of 3");
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bounded<T, const MAX: u32>(pub T);

impl<T, const MAX: u32> Deref for Bounded<T, MAX> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const MAX: u32> DerefMut for Bounded<T, MAX> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T, const MAX: u32> From<T> for Bounded<T, MAX> {
    fn from(value: T) -> Self {
        Bounded(value)
    }
}

impl<const MAX: u32> From<&str> for Bounded<ByteString, MAX> {
    fn from(text: &str) -> Self {
        Bounded(text.into())
    }
}

impl<T: fmt::Display, const MAX: u32> fmt::Display for Bounded<T, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug, const MAX: u32> fmt::Debug for Bounded<T, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: Encode + Counted, const MAX: u32> Encode for Bounded<T, MAX> {
    #[inline]
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
        bounds::encode_max(&self.0, MAX, e)
    }
}

impl<'a, T: Decode<'a> + Counted, const MAX: u32> Decode<'a> for Bounded<T, MAX> {
    const MIN_SIZE: usize = T::MIN_SIZE;

    #[inline]
    fn decode(d: &mut Decoder<'a>) -> Result<Self, Error> {
        bounds::decode_max(MAX, d).map(Bounded)
    }
}

impl<T: Schema + Counted, const MAX: u32> Schema for Bounded<T, MAX> {
    fn schema(types: &mut Types) -> Type {
        bounds::schema_max::<T>(MAX, types)
    }
}

/// A type without values. Rust that is generated from an `.x` file uses it for a type that the file mentions
/// but does not declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Foreign {}

crossing! {
    Foreign, 0,
        |types| types.define("farcall::xdr::Foreign", "Foreign", "", |_| Body::Union { arms: Vec::new() }),
        |value, _| match *value {},
        |d| Err(d.error(ErrorKind::Invalid("a type that the .x file does not declare".into())));
}
