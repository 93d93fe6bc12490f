//! The decoder: bytes to values, borrowing from the packet, never trusting it.

use bytes::Bytes;

use crate::encode::padding;
use crate::{Error, ErrorKind, MAX_DEPTH, MAX_EMPTY_ELEMENTS, MAX_MEMORY_BYTES};

/// How large a value a [`Decoder`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How deep boxes, lists and maps may nest; 128 by default. It bounds the stack.
    pub depth: u32,
    /// How much memory the value may take besides the packet, in bytes; 1 GiB by default. A list
    /// takes at most its elements' size in memory over that on the wire times the packet's length.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { depth: MAX_DEPTH, bytes: MAX_MEMORY_BYTES }
    }
}

/// Takes values from the front of some bytes.
///
/// Any bytes give a value or an error: no panic, no allocation larger than the bytes justify, no
/// more than linear work. Strict, unless made [`lenient`](Self::lenient). After an error the position
/// means nothing: drop the decoder.
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
    /// What is not decoded yet.
    rest: &'a [u8],
    /// The offset, in the whole input, of the end of `rest`.
    end: usize,
    /// The whole input, where values may share it.
    packet: Option<&'a Bytes>,
    lenient: bool,
    limits: Limits,
    /// How much deeper the value may nest.
    depth: u32,
    /// How many more bytes of memory the value may take.
    memory: usize,
    /// How many more elements of no bytes there may be.
    empty: u32,
}

impl<'a> Decoder<'a> {
    /// A strict decoder with the default limits.
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

    /// A decoder of a whole packet, which decoded [`Bytes`] share if they are at least a quarter
    /// of it; shorter ones are copied, so that they do not keep the packet in memory.
    #[inline]
    pub fn with_packet(packet: &'a Bytes) -> Self {
        Decoder { packet: Some(packet), ..Self::new(packet) }
    }

    /// Accepts what older peers send though RFC 4506 forbids it: padding that is not zero or, at the very
    /// end, missing; any value but 0 as true; a key twice in a map (the last one counts); bytes after the
    /// value.
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

    /// Whether [`lenient`](Self::lenient) was asked for.
    #[inline]
    pub fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// How many bytes have been decoded.
    #[inline]
    pub fn offset(&self) -> usize {
        self.end - self.rest.len()
    }

    /// How many bytes are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// An error at the present offset.
    #[cold]
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset())
    }

    /// An error at the item of `length` bytes that was just decoded.
    #[cold]
    pub(crate) fn error_in_last(&self, length: usize, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset().saturating_sub(length))
    }

    #[cold]
    fn truncated(&self, needed: usize) -> Error {
        self.error(ErrorKind::Truncated { needed, remaining: self.rest.len() })
    }

    /// Ends the decoding.
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

    /// A boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ if self.lenient => Ok(true),
            other => Err(self.error_in_last(4, ErrorKind::NotBool(other))),
        }
    }

    /// Opaque data of a known length (section 4.9), and its padding.
    #[inline]
    pub fn opaque(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let bytes = self.take_slice(length)?;
        self.skip_padding(length)?;
        Ok(bytes)
    }

    /// Opaque data of a length that the compiler knows.
    #[inline]
    pub(crate) fn opaque_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.take()?;
        self.skip_padding(N)?;
        Ok(bytes)
    }

    /// Takes the padding after `length` bytes of opaque data.
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

    /// Opaque data that tells its length (section 4.10).
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let length = self.count()?;
        self.opaque(length)
    }

    /// A string (section 4.11); it must be UTF-8.
    #[inline]
    pub fn string(&mut self) -> Result<&'a str, Error> {
        let start = self.offset() + 4;
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes)
            .map_err(|error| Error::new(ErrorKind::NotUtf8, start + error.valid_up_to()))
    }

    /// Opaque data that tells its length, sharing the packet where that is worth while.
    pub fn shared(&mut self) -> Result<Bytes, Error> {
        let start = self.offset() + 4;
        let bytes = self.bytes()?;
        match self.packet {
            Some(packet) if bytes.len() >= packet.len() / 4 => Ok(packet.slice(start..start + bytes.len())),
            _ => {
                self.charge(bytes.len())?;
                Ok(Bytes::copy_from_slice(bytes))
            }
        }
    }

    /// The length that begins an array, a string or opaque data. It may be a lie: take the elements
    /// by [`elements`](Self::elements), and reserve no memory by it.
    #[inline]
    pub fn count(&mut self) -> Result<usize, Error> {
        Ok(self.u32()? as usize)
    }

    /// The bytes ahead, without taking them.
    #[inline]
    pub(crate) fn ahead(&self) -> &'a [u8] {
        self.rest
    }

    /// Decodes what stands one level deeper: inside a box, list or map. A type that can contain
    /// itself goes through here, so that no peer overflows the stack.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`] at the limit; else what `inner` returns.
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

    /// Decodes `count` elements, one level deeper, by as many calls of `each`; an error gets the index.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`]; [`ErrorKind::TooManyEmpty`] after 65,536 elements that took no
    /// bytes, for else four bytes could ask for four billion of them; else what `each` returns.
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

    /// Takes `bytes` of memory from the limit. A type that allocates what it decodes calls this
    /// before; those of std and derived ones do.
    ///
    /// # Errors
    /// [`ErrorKind::TooMuchMemory`] if not so much is left.
    #[inline]
    pub fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        match self.memory.checked_sub(bytes) {
            Some(left) => self.memory = left,
            None => return Err(self.error(ErrorKind::TooMuchMemory(self.limits.bytes))),
        }
        Ok(())
    }

    /// Admits the `count` that was just decoded, of elements that take at least `wire` bytes each
    /// there and `memory` bytes here: returns how many to make room for at once.
    #[inline]
    pub(crate) fn admit(&mut self, count: usize, wire: usize, memory: usize) -> Result<usize, Error> {
        let remaining = self.rest.len();
        if count.saturating_mul(wire) > remaining {
            return Err(self.error_in_last(4, ErrorKind::Count { count, remaining }));
        }
        self.charge(count.saturating_mul(memory))?;
        // Eight times the bytes is room for most lists; one of large, mostly empty elements grows.
        Ok(count.min(remaining.saturating_mul(8) / memory.max(1)))
    }

    /// The elements of an array of numbers, `W` bytes each, in groups of `G` for speed.
    #[inline]
    pub(crate) fn numbers<T, const W: usize, const G: usize>(
        &mut self,
        count: usize,
        from_bytes: impl Fn([u8; W]) -> T,
    ) -> Result<Vec<T>, Error> {
        self.admit(count, W, W)?;
        let bytes = self.take_slice(count * W)?;
        let (groups, tail) = bytes.as_chunks().0.as_chunks::<G>();
        let mut items = Vec::with_capacity(count.div_ceil(G));
        items.extend(groups.iter().map(|group| group.map(&from_bytes)));
        let mut items = items.into_flattened();
        items.extend(tail.iter().map(|chunk| from_bytes(*chunk)));
        Ok(items)
    }

    /// The elements of an array of `N` numbers, `W` bytes each.
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

    /// Decodes, by `inner`, what is preceded by its length in bytes. What `inner` leaves is skipped:
    /// a later version put it there.
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
    /// An integer (RFC 4506 section 4.1).
    i32;
    /// An unsigned integer (section 4.2).
    u32;
    /// A hyper integer (section 4.5).
    i64;
    /// An unsigned hyper integer (section 4.5).
    u64;
    /// A floating-point number (section 4.6).
    f32;
    /// A double-precision floating-point number (section 4.7).
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
