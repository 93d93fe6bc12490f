//! Encodes values, and appends their bytes directly to the packet.

use std::fmt;

use bytes::Bytes;

use crate::{Error, ErrorKind, MAX_DEPTH};

/// Returns the number of padding bytes that make `length` a multiple of four (RFC 4506 section 3).
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Appends encoded values to a buffer, which can already hold a packet's header.
///
/// After an error, the buffer keeps the bytes that were appended before the error. Truncate it to its former
/// length.
///
/// ```
/// use farcall_xdr::{Encode, Encoder};
/// let mut packet = vec![0xff];
/// let mut encoder = Encoder::new(&mut packet);
/// 7u32.encode(&mut encoder)?;
/// "ab".encode(&mut encoder)?;
/// assert_eq!(packet, [0xff, 0, 0, 0, 7, 0, 0, 0, 2, b'a', b'b', 0, 0]);
/// # Ok::<(), farcall_xdr::Error>(())
/// ```
pub struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    /// The length of `out` when the encoding began.
    start: usize,
    /// The maximum length that `out` may reach. It is never below the present length.
    end: usize,
    /// How many levels deeper the value may still nest.
    depth: u32,
    /// The receiver of long opaque data.
    spill: Option<&'b mut dyn Spill>,
    /// The number of bytes that `spill` has taken.
    spilled: usize,
}

/// Receives long opaque data during encoding, so that the data need not be copied to the encoder's buffer.
pub trait Spill {
    /// Takes `before`, which is everything that the encoder's buffer holds, and then some or all of `bytes`
    /// from their beginning. Returns how many of `bytes` it took, or `None` if it took nothing. Unless it
    /// took all `bytes`, the encoder does not call it again. At least `more` further bytes follow `bytes`.
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize>;

    /// Keeps a reference to `bytes` and returns true, or refuses and returns false. Kept bytes belong after
    /// the first `at` bytes of the encoder's buffer. After this has returned true, the encoder does not call
    /// the spill again.
    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        let _ = (at, bytes);
        false
    }
}

/// The least number of bytes of opaque data for which a [`Spill`] is called. Shorter data is cheaper to copy.
const SPILL_THRESHOLD_BYTES: usize = 8 << 10;

impl<'b> Encoder<'b> {
    /// Returns an encoder that appends to `out`.
    #[inline]
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        Self::with_limit(out, usize::MAX)
    }

    /// Returns an encoder that appends at most `limit` bytes to `out`. Encoding more is an error.
    #[inline]
    pub fn with_limit(out: &'b mut Vec<u8>, limit: usize) -> Self {
        let start = out.len();
        Encoder { out, start, end: start.saturating_add(limit), depth: MAX_DEPTH, spill: None, spilled: 0 }
    }

    /// Returns an encoder that passes long opaque data to `spill`, after everything that `out` holds at that
    /// time. Bytes that `out` holds at the end follow the spilled data.
    #[inline]
    pub fn with_spill(out: &'b mut Vec<u8>, spill: &'b mut dyn Spill) -> Self {
        Encoder { spill: Some(spill), ..Self::new(out) }
    }

    /// Returns the number of bytes that have been encoded.
    #[inline]
    pub fn offset(&self) -> usize {
        self.spilled + self.out.len() - self.start
    }

    /// Returns an error at the present offset.
    #[cold]
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset())
    }

    #[cold]
    fn full(&self) -> Error {
        self.error(ErrorKind::BufferFull(self.end - self.start))
    }

    /// Checks that `length` more bytes are within the limit.
    #[inline]
    fn admit(&self, length: usize) -> Result<(), Error> {
        if length > self.end - self.out.len() {
            return Err(self.full());
        }
        Ok(())
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), Error> {
        self.admit(N)?;
        if N > self.out.capacity() - self.out.len() {
            return self.put_into_more(&bytes);
        }
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    /// Appends bytes for which the buffer has no room yet.
    #[cold]
    #[inline(never)]
    fn put_into_more(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.reserve(bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Encodes a boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) -> Result<(), Error> {
        self.u32(value.into())
    }

    /// Encodes opaque data of a fixed length (section 4.9): the bytes, then zeros up to a multiple of four.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() >= SPILL_THRESHOLD_BYTES {
            return self.long(bytes);
        }
        let padding = padding(bytes.len());
        self.admit(bytes.len() + padding)?;
        self.append(bytes, padding)
    }

    #[inline]
    fn append(&mut self, bytes: &[u8], padding: usize) -> Result<(), Error> {
        let len = bytes.len() + padding;
        if len > self.out.capacity() - self.out.len() {
            self.reserve(len)?;
        }
        self.out.extend_from_slice(bytes);
        if padding > 0 {
            self.out.extend_from_slice(&[0; 3][..padding]);
        }
        Ok(())
    }

    /// Makes room for more bytes.
    #[cold]
    #[inline(never)]
    fn reserve(&mut self, more: usize) -> Result<(), Error> {
        self.out.try_reserve(more).map_err(|_| self.error(ErrorKind::NoMemory(more)))
    }

    /// Encodes long opaque data, and passes it to the spill if there is one.
    #[inline(never)]
    fn long(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let padding = padding(bytes.len());
        self.admit(bytes.len().saturating_add(padding))?;
        let rest = if self.spill.is_some() { self.spill(bytes, padding) } else { bytes };
        self.append(rest, padding)
    }

    /// Passes bytes to the spill. Returns the bytes that the spill has not taken.
    #[cold]
    fn spill<'a>(&mut self, bytes: &'a [u8], padding: usize) -> &'a [u8] {
        let Some(spill) = &mut self.spill else { return bytes };
        let taken = spill.take(self.out, bytes, padding);
        if taken != Some(bytes.len()) {
            self.spill = None;
        }
        let Some(taken) = taken else { return bytes };
        self.spilled += self.out.len() - self.start + taken;
        self.start = 0;
        self.out.clear();
        &bytes[taken.min(bytes.len())..]
    }

    /// Encodes opaque data of a variable length (section 4.10) or a string (section 4.11): the length, then
    /// the bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.count(bytes.len())?;
        self.opaque(bytes)
    }

    /// Encodes opaque data of a variable length (section 4.10). A [`Spill`] can keep a reference to the data
    /// instead of copying it.
    #[inline]
    pub fn shared(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.count(bytes.len())?;
        if bytes.len() < SPILL_THRESHOLD_BYTES || !self.keep(bytes) {
            return self.opaque(bytes);
        }
        self.append(&[], padding(bytes.len()))
    }

    #[cold]
    fn keep(&mut self, bytes: &Bytes) -> bool {
        let at = self.out.len() - self.start;
        let kept = self.spill.as_mut().is_some_and(|spill| spill.keep(at, bytes));
        if kept {
            self.spill = None;
            self.spilled += bytes.len();
        }
        kept
    }

    /// Encodes the length that begins an array, a string or opaque data.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] if the length does not fit 32 bits.
    #[inline]
    pub fn count(&mut self, count: usize) -> Result<(), Error> {
        match u32::try_from(count) {
            Ok(count) => self.u32(count),
            Err(_) => Err(self.error(ErrorKind::TooLong { length: count, max: u32::MAX })),
        }
    }

    /// Encodes a value inside a box, list or map, one level deeper. A type that can contain itself must be
    /// encoded through this function, which bounds the depth so that no value can overflow the stack.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`] at a depth of 128, which is also the default limit of decoders, or the error of
    /// `inner`.
    #[inline]
    pub fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        if self.depth == 0 {
            return Err(self.error(ErrorKind::TooDeep(MAX_DEPTH)));
        }
        self.depth -= 1;
        let result = inner(self);
        self.depth += 1;
        result
    }

    /// Encodes the length of a part in bytes, then the part by `inner`.
    pub fn sized(&mut self, inner: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        // The length is known only after the part. Until then the part must stay in this buffer.
        let spill = self.spill.take();
        let at = self.out.len();
        self.u32(0)?;
        inner(self)?;
        self.spill = spill;
        let length = self.out.len() - at - 4;
        match u32::try_from(length) {
            Ok(length) => self.out[at..at + 4].copy_from_slice(&length.to_be_bytes()),
            Err(_) => {
                return Err(self.error(ErrorKind::TooLong { length, max: u32::MAX }));
            }
        }
        Ok(())
    }

    /// Encodes an array of numbers of `W` bytes each.
    ///
    /// The numbers are converted in groups of `G`, which are 64 bytes. A group fits into registers, so the
    /// compiler converts it there. That saves clearing a buffer, and checking the space for each number.
    #[inline]
    pub(crate) fn numbers<T: Copy, const W: usize, const G: usize>(
        &mut self,
        items: &[T],
        to_bytes: impl Fn(T) -> [u8; W],
    ) -> Result<(), Error> {
        self.admit(size_of_val(items))?;
        self.reserve(size_of_val(items))?;
        let (groups, tail) = items.as_chunks::<G>();
        for group in groups {
            self.out.extend_from_slice(group.map(&to_bytes).as_flattened());
        }
        for item in tail {
            self.out.extend_from_slice(&to_bytes(*item));
        }
        Ok(())
    }
}

macro_rules! numbers {
    ($($(#[$docs:meta])* $number:ident;)*) => {
        impl Encoder<'_> {$(
            $(#[$docs])*
            #[inline]
            pub fn $number(&mut self, value: $number) -> Result<(), Error> {
                self.put(value.to_be_bytes())
            }
        )*}
    };
}

numbers! {
    /// Encodes an integer (RFC 4506 section 4.1).
    i32;
    /// Encodes an unsigned integer (section 4.2).
    u32;
    /// Encodes a hyper integer (section 4.5).
    i64;
    /// Encodes an unsigned hyper integer (section 4.5).
    u64;
    /// Encodes a floating-point number (section 4.6).
    f32;
    /// Encodes a double-precision floating-point number (section 4.7).
    f64;
}

impl fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("offset", &self.offset()).finish_non_exhaustive()
    }
}
