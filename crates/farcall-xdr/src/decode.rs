//! Decodes bytes into values, which can borrow from the packet. The bytes can come from an untrusted peer.

use bytes::Bytes;
use farcall_base::room;

use crate::encode::padding;
use crate::{Error, ErrorKind, MAX_DEPTH, MAX_EMPTY_ELEMENTS, MAX_MEMORY_BYTES};

/// The limits for a value that a [`Decoder`] decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum depth to which boxes, lists and maps nest; 128 by default. It bounds the use of the stack.
    pub depth: u32,
    /// The maximum memory that the value may take besides the packet, in bytes; 1 GiB by default. A list
    /// takes at most packet length × (element size in memory ÷ element size on the wire).
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: MAX_DEPTH, bytes: MAX_MEMORY_BYTES }
    }
}

/// Decodes values from the front of some bytes.
///
/// For any bytes, the decoder returns a value or an error. It never panics, allocates no more than the length
/// of the bytes justifies, and does work at most in proportion to that length. It is strict unless
/// [`lenient`](Self::lenient) is called. After an error the position has no meaning: drop the decoder.
///
/// ```
/// use farcall_xdr::{Decode, Decoder};
/// let mut decoder = Decoder::new(&[0, 0, 0, 7, 0, 0, 0, 2, b'a', b'b', 0, 0]);
/// assert_eq!(u32::decode(&mut decoder)?, 7);
/// assert_eq!(<&str>::decode(&mut decoder)?, "ab");
/// decoder.finish()?;
/// # Ok::<(), farcall_xdr::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    /// The bytes that are not decoded yet.
    rest: &'a [u8],
    /// The offset of the end of `rest` in the whole input.
    end: usize,
    /// The whole input, if decoded [`Bytes`] may share its memory.
    packet: Option<&'a Bytes>,
    lenient: bool,
    limits: Limits,
    /// How many levels deeper the value may still nest.
    depth: u32,
    /// The number of bytes of memory that the value may still take.
    memory: usize,
    /// How many more elements without bytes on the wire, such as `()`, the value may have.
    empty: u32,
}

impl<'a> Decoder<'a> {
    /// Returns a strict decoder with the default limits.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        let limits = Limits { depth: MAX_DEPTH, bytes: MAX_MEMORY_BYTES };
        Decoder {
            rest: bytes,
            end: bytes.len(),
            packet: None,
            lenient: false,
            limits,
            depth: MAX_DEPTH,
            memory: MAX_MEMORY_BYTES,
            empty: MAX_EMPTY_ELEMENTS,
        }
    }

    /// Returns a decoder of a whole packet. Decoded [`Bytes`] of at least a quarter of the packet share its
    /// memory. Shorter ones are copied, so that they do not keep the packet in memory.
    #[inline]
    pub fn with_packet(packet: &'a Bytes) -> Self {
        Decoder { packet: Some(packet), ..Self::new(packet) }
    }

    /// Accepts what older peers send although RFC 4506 forbids it: padding that is not zero; missing padding
    /// at the end of the input; any number but 0 as true; the same key twice in a map (the last value
    /// counts); bytes after the value.
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self
    }

    /// Replaces the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.depth = limits.depth;
        self.memory = limits.bytes;
        self
    }

    /// Returns whether the decoder is [`lenient`](Self::lenient).
    #[inline]
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Returns the number of bytes that have been decoded.
    #[inline]
    pub fn offset(&self) -> usize {
        self.end - self.rest.len()
    }

    /// Returns the number of bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns an error at the present offset.
    #[cold]
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset())
    }

    /// Returns an error at the beginning of the item that was just decoded, which took `length` bytes.
    #[cold]
    pub(crate) fn error_in_last(&self, length: usize, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset().saturating_sub(length))
    }

    #[cold]
    fn truncated(&self, needed: usize) -> Error {
        self.error(ErrorKind::Truncated { needed, remaining: self.rest.len() })
    }

    /// Ends decoding.
    ///
    /// # Errors
    /// [`ErrorKind::Trailing`] if bytes are left and the decoder is strict.
    #[inline]
    pub fn finish(self) -> Result<(), Error> {
        if !self.rest.is_empty() && !self.lenient {
            return Err(self.error(ErrorKind::Trailing(self.rest.len())));
        }
        Ok(())
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let Some((head, rest)) = self.rest.split_first_chunk() else {
            return Err(self.truncated(N));
        };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    fn take_slice(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let Some((head, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.truncated(length));
        };
        self.rest = rest;
        Ok(head)
    }

    /// Decodes a boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ if self.lenient => Ok(true),
            other => Err(self.error_in_last(4, ErrorKind::NotBool(other))),
        }
    }

    /// Decodes opaque data of a fixed length (section 4.9), and skips the padding.
    #[inline]
    pub fn opaque(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let bytes = self.take_slice(length)?;
        self.skip_padding(length)?;
        Ok(bytes)
    }

    /// Decodes opaque data of the constant length `N`, and skips the padding.
    #[inline]
    pub(crate) fn opaque_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.take()?;
        self.skip_padding(N)?;
        Ok(bytes)
    }

    /// Skips the padding after `length` bytes of opaque data.
    #[inline]
    fn skip_padding(&mut self, length: usize) -> Result<(), Error> {
        let padding = padding(length);
        if padding == 0 {
            return Ok(());
        }
        match self.rest.split_at_checked(padding) {
            Some((zeros, rest)) if self.lenient || zeros.iter().all(|byte| *byte == 0) => {
                self.rest = rest;
            }
            Some(_) => return Err(self.error(ErrorKind::Padding)),
            None if self.lenient => self.rest = &[],
            None => return Err(self.truncated(padding)),
        }
        Ok(())
    }

    /// Decodes opaque data of a variable length (section 4.10): the length, then the bytes.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.count()?;
        self.opaque(length)
    }

    /// Decodes a string (section 4.11), which must be UTF-8.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, Error> {
        let start = self.offset() + 4;
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes)
            .map_err(|error| Error::new(ErrorKind::NotUtf8, start + error.valid_up_to()))
    }

    /// Decodes opaque data of a variable length. The result shares the packet's memory as
    /// [`with_packet`](Self::with_packet) says.
    pub fn shared(&mut self) -> Result<Bytes, Error> {
        let start = self.offset() + 4;
        let bytes = self.bytes()?;
        match self.packet {
            Some(packet) if bytes.len() >= packet.len() / 4 => Ok(packet.slice(start..start + bytes.len())),
            _ => {
                self.charge(bytes.len())?;
                let copy =
                    room::copied(bytes).map_err(|why| Error::new(ErrorKind::NoMemory(why.bytes), start))?;
                Ok(copy.into())
            }
        }
    }

    /// Decodes the length that begins an array, a string or opaque data. A hostile peer can send any length.
    /// So decode the elements by [`elements`](Self::elements), and reserve no memory for them in advance.
    #[inline]
    pub fn count(&mut self) -> Result<usize, Error> {
        Ok(self.u32()? as usize)
    }

    /// Returns the bytes that are left, without decoding them.
    #[inline]
    pub(crate) fn ahead(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes a value inside a box, list or map, one level deeper. A type that can contain itself must be
    /// decoded through this function, which bounds the depth so that no peer can overflow the stack.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`] at the limit, or the error of `inner`.
    #[inline]
    pub fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth == 0 {
            return Err(self.error(ErrorKind::TooDeep(self.limits.depth)));
        }
        self.depth -= 1;
        let result = inner(self);
        self.depth += 1;
        result
    }

    /// Decodes `count` elements, one level deeper. Calls `each` once for each element, and adds the element's
    /// index to its error.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`] at the depth limit; [`ErrorKind::TooManyEmpty`] after 65,536 elements that take
    /// no bytes, because four bytes could otherwise announce four billion of them; or the error of `each`.
    #[inline]
    pub fn elements(
        &mut self,
        count: usize,
        mut each: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.nested(|d| {
            for index in 0..count {
                let before = d.rest.len();
                each(d).map_err(|error| error.at_index(index))?;
                if d.rest.len() == before {
                    d.spend_empty()?;
                }
            }
            Ok(())
        })
    }

    #[inline]
    fn spend_empty(&mut self) -> Result<(), Error> {
        if self.empty == 0 {
            return Err(self.error(ErrorKind::TooManyEmpty(MAX_EMPTY_ELEMENTS)));
        }
        self.empty -= 1;
        Ok(())
    }

    /// Subtracts `bytes` from the memory that the value may still take. A type that allocates memory when it
    /// is decoded must call this first. The types of std and types with `#[derive(Xdr)]` do.
    ///
    /// # Errors
    /// [`ErrorKind::TooMuchMemory`] if less than `bytes` is left.
    #[inline]
    pub fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        match self.memory.checked_sub(bytes) {
            Some(left) => self.memory = left,
            None => return Err(self.error(ErrorKind::TooMuchMemory(self.limits.bytes))),
        }
        Ok(())
    }

    /// Checks a decoded `count` of elements, and charges for their memory. An element takes at least `wire`
    /// bytes on the wire, and `memory` bytes in memory. Returns the number of elements for which to reserve
    /// memory at once.
    #[inline]
    pub(crate) fn admit(&mut self, count: usize, wire: usize, memory: usize) -> Result<usize, Error> {
        let remaining = self.rest.len();
        if count.saturating_mul(wire) > remaining {
            return Err(self.error_in_last(4, ErrorKind::Count { count, remaining }));
        }
        self.charge(count.saturating_mul(memory))?;
        // Memory of eight times the remaining bytes suffices for most lists. A list of large elements that
        // are mostly empty on the wire grows later.
        Ok(count.min(remaining.saturating_mul(8) / memory.max(1)))
    }

    /// Returns an empty vector with room for `count` elements.
    ///
    /// # Errors
    /// [`ErrorKind::NoMemory`] if this process has no memory for them.
    #[inline]
    pub(crate) fn room<T>(&self, count: usize) -> Result<Vec<T>, Error> {
        let mut items = Vec::new();
        match items.try_reserve_exact(count) {
            Ok(()) => Ok(items),
            Err(_) => Err(self.error(ErrorKind::NoMemory(count.saturating_mul(size_of::<T>())))),
        }
    }

    /// Decodes an array of `count` numbers of `W` bytes each. Groups of `G` numbers are converted together,
    /// for speed.
    #[inline]
    pub(crate) fn numbers<T, const W: usize, const G: usize>(
        &mut self,
        count: usize,
        from_bytes: impl Fn([u8; W]) -> T,
    ) -> Result<Vec<T>, Error> {
        self.admit(count, W, W)?;
        let bytes = self.take_slice(count * W)?;
        let (groups, tail) = bytes.as_chunks().0.as_chunks::<G>();
        let mut items = self.room(count.div_ceil(G))?;
        items.extend(groups.iter().map(|group| group.map(&from_bytes)));
        let mut items = items.into_flattened();
        items.extend(tail.iter().map(|chunk| from_bytes(*chunk)));
        Ok(items)
    }

    /// Decodes an array of `N` numbers of `W` bytes each.
    #[inline]
    pub(crate) fn number_array<T: Copy + Default, const W: usize, const N: usize>(
        &mut self,
        from_bytes: impl Fn([u8; W]) -> T,
    ) -> Result<[T; N], Error> {
        let bytes = self.take_slice(N * W)?;
        let mut items = [T::default(); N];
        for (item, chunk) in items.iter_mut().zip(bytes.as_chunks().0) {
            *item = from_bytes(*chunk);
        }
        Ok(items)
    }

    /// Decodes the length of a part in bytes, then the part by `inner`. Skips the bytes that `inner` leaves,
    /// because they are fields of a later version.
    pub fn sized<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let length = self.count()?;
        if length % 4 != 0 {
            let why = "the length of an extensible struct is not a multiple of four";
            return Err(self.error_in_last(4, ErrorKind::Invalid(why.into())));
        }
        let body = self.take_slice(length)?;
        let after = std::mem::replace(&mut self.rest, body);
        self.end -= after.len();
        let value = inner(self)?;
        self.end += after.len();
        self.rest = after;
        Ok(value)
    }
}

macro_rules! numbers {
    ($($(#[$docs:meta])* $number:ident;)*) => {
        impl Decoder<'_> {$(
            $(#[$docs])*
            #[inline]
            pub fn $number(&mut self) -> Result<$number, Error> {
                Ok($number::from_be_bytes(self.take()?))
            }
        )*}
    };
}

numbers! {
    /// Decodes an integer (RFC 4506 section 4.1).
    i32;
    /// Decodes an unsigned integer (section 4.2).
    u32;
    /// Decodes a hyper integer (section 4.5).
    i64;
    /// Decodes an unsigned hyper integer (section 4.5).
    u64;
    /// Decodes a floating-point number (section 4.6).
    f32;
    /// Decodes a double-precision floating-point number (section 4.7).
    f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reserves_at_most_eight_times_the_bytes_that_are_left() {
        let bytes = [0; 4000];
        let room = |memory| Decoder::new(&bytes).admit(1000, 4, memory).unwrap();
        assert_eq!([0, 1, 32, 33, 800, 40_000].map(room), [1000, 1000, 1000, 969, 40, 0]);
    }
}
