//! The encoder: values to bytes, appended straight to the packet.

use std::fmt;

use bytes::Bytes;

use crate::{Error, ErrorKind, MAX_DEPTH};

/// The bytes that bring `length` up to a multiple of four (RFC 4506 section 3).
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}

/// Appends encodings to a buffer, which may already hold a packet's header.
///
/// After an error the buffer keeps what was appended before it; truncate it to what it was.
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
    /// Where in `out` this encoding begins.
    start: usize,
    /// The length that `out` may reach; never below its present length.
    end: usize,
    /// How much deeper the value may nest.
    depth: u32,
    /// Where long opaque data goes.
    spill: Option<&'b mut dyn Spill>,
    /// How many bytes went there.
    spilled: usize,
}

/// Takes an encoding while it is made, so that long opaque data needs no copy in the encoder's buffer.
pub trait Spill {
    /// Takes `before`, then `bytes` from their beginning: returns how many of these, or `None` if nothing.
    /// Where that is not all of them it is not asked again. `more` bytes, at least, will follow `bytes`.
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize>;

    /// Keeps bytes that then belong behind the first `at` of those that the encoder's buffer will hold. If it
    /// does it is not asked again.
    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        let _ = (at, bytes);
        false
    }
}

/// The fewest bytes of opaque data that are worth a [`Spill`].
const SPILL_THRESHOLD_BYTES: usize = 8 << 10;

impl<'b> Encoder<'b> {
    /// An encoder that appends to `out`.
    #[inline]
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        Self::with_limit(out, usize::MAX)
    }

    /// An encoder that appends at most `limit` bytes to `out`, and then fails.
    #[inline]
    pub fn with_limit(out: &'b mut Vec<u8>, limit: usize) -> Self {
        let start = out.len();
        Encoder { out, start, end: start.saturating_add(limit), depth: MAX_DEPTH, spill: None, spilled: 0 }
    }

    /// An encoder whose long opaque data goes to `spill`, after all that stands in `out` by then. What `out`
    /// holds at the end follows that.
    #[inline]
    pub fn with_spill(out: &'b mut Vec<u8>, spill: &'b mut dyn Spill) -> Self {
        Encoder { spill: Some(spill), ..Self::new(out) }
    }

    /// How many bytes have been appended.
    #[inline]
    pub fn offset(&self) -> usize {
        self.spilled + self.out.len() - self.start
    }

    /// An error at the present offset.
    #[cold]
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error::new(kind, self.offset())
    }

    #[cold]
    fn full(&self) -> Error {
        self.error(ErrorKind::BufferFull(self.end - self.start))
    }

    /// Makes sure that `length` more bytes are within the limit.
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
        self.out.extend_from_slice(&bytes);
        Ok(())
    }

    /// A boolean (section 4.4).
    #[inline]
    pub fn bool(&mut self, value: bool) -> Result<(), Error> {
        self.u32(value.into())
    }

    /// Opaque data whose length the reader knows (section 4.9): the bytes, and zeros up to a
    /// multiple of four.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() >= SPILL_THRESHOLD_BYTES {
            return self.long(bytes);
        }
        let padding = padding(bytes.len());
        self.admit(bytes.len() + padding)?;
        self.append(bytes, padding);
        Ok(())
    }

    #[inline]
    fn append(&mut self, bytes: &[u8], padding: usize) {
        self.out.reserve(bytes.len() + padding);
        self.out.extend_from_slice(bytes);
        if padding > 0 {
            self.out.extend_from_slice(&[0; 3][..padding]);
        }
    }

    /// Opaque data that is worth a spill, if there is one.
    #[inline(never)]
    fn long(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let padding = padding(bytes.len());
        self.admit(bytes.len().saturating_add(padding))?;
        let rest = if self.spill.is_some() { self.spill(bytes, padding) } else { bytes };
        self.append(rest, padding);
        Ok(())
    }

    /// Has a part of the bytes taken, and returns the rest.
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

    /// Opaque data of any length (section 4.10), and strings (section 4.11): the length, then the bytes.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.count(bytes.len())?;
        self.opaque(bytes)
    }

    /// Opaque data of any length (section 4.10), which a [`Spill`] may keep instead of copying it.
    #[inline]
    pub fn shared(&mut self, bytes: &Bytes) -> Result<(), Error> {
        self.count(bytes.len())?;
        if bytes.len() < SPILL_THRESHOLD_BYTES || !self.keep(bytes) {
            return self.opaque(bytes);
        }
        self.out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
        Ok(())
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

    /// The length that begins an array, a string or opaque data.
    ///
    /// # Errors
    /// [`ErrorKind::TooLong`] if it does not fit an unsigned integer.
    #[inline]
    pub fn count(&mut self, count: usize) -> Result<(), Error> {
        match u32::try_from(count) {
            Ok(count) => self.u32(count),
            Err(_) => Err(self.error(ErrorKind::TooLong { length: count, max: u32::MAX })),
        }
    }

    /// Encodes what stands one level deeper: inside a box, list or map. A type that can contain
    /// itself goes through here, so that no value overflows the stack.
    ///
    /// # Errors
    /// [`ErrorKind::TooDeep`], at the depth at which decoders refuse by default; else what `inner` returns.
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

    /// Encodes what `inner` encodes, preceded by its length in bytes.
    pub fn sized(&mut self, inner: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        // The length is written behind what it counts, which must stand here for that.
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

    /// The elements of an array of numbers, `W` bytes each.
    ///
    /// They go in groups of `G`, 64 bytes: few enough for registers, so that the compiler swaps them there
    /// and needs neither a cleared buffer nor a check of the room for each.
    #[inline]
    pub(crate) fn numbers<T: Copy, const W: usize, const G: usize>(
        &mut self,
        items: &[T],
        to_bytes: impl Fn(T) -> [u8; W],
    ) -> Result<(), Error> {
        self.admit(size_of_val(items))?;
        self.out.reserve(size_of_val(items));
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

impl fmt::Debug for Encoder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").field("offset", &self.offset()).finish_non_exhaustive()
    }
}
