//! Reads encodings with bounds. Numbers are big-endian.

use std::fmt;

use farcall_base::work;

use crate::PublicKey;

/// Why bytes are not a grant, a presentation or a revocation list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    what: &'static str,
    at: usize,
    why: String,
}

impl Malformed {
    pub(crate) fn new(what: &'static str, at: usize, why: impl Into<String>) -> Malformed {
        Malformed { what, at, why: why.into() }
    }

    /// Returns the place of the error, in bytes from the beginning.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: at byte {}: {}", self.what, self.at, self.why)
    }
}

impl std::error::Error for Malformed {}

/// What was read, or why it cannot be read.
pub(crate) type Read<T> = Result<T, Malformed>;

/// A position in bytes that are being read.
pub(crate) struct Reader<'a> {
    /// What the bytes should be, with its article, for errors.
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, bytes, at: 0 }
    }

    /// Returns an error at the position that the last value ended at.
    pub(crate) fn wrong(&self, why: impl Into<String>) -> Malformed {
        Malformed::new(self.what, self.at, why)
    }

    pub(crate) fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..count) else {
            return Err(self.wrong(format!("expected {count} bytes, found {}: it is truncated", rest.len())));
        };
        self.at += count;
        work::steps(1 + count / 16);
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads the version byte, which comes first.
    pub(crate) fn version(&mut self, known: u8) -> Read<()> {
        match self.u8()? {
            version if version == known => Ok(()),
            version => {
                Err(self.wrong(format!("version {version} is unknown; this farcall reads version {known}")))
            }
        }
    }

    pub(crate) fn key(&mut self) -> Read<PublicKey> {
        let bytes = self.array()?;
        PublicKey::from_bytes(bytes).map_err(|why| self.wrong(why.to_string()))
    }

    /// Reads a text of at most 255 bytes that has its length in front.
    pub(crate) fn text(&mut self) -> Read<&'a str> {
        let count = self.u8()?;
        let bytes = self.take(usize::from(count))?;
        std::str::from_utf8(bytes).map_err(|_| self.wrong("a name is not UTF-8"))
    }

    /// Returns how many bytes remain.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Checks that nothing remains.
    pub(crate) fn end(self) -> Read<()> {
        match self.remaining() {
            0 => Ok(()),
            more => Err(self.wrong(format!("{more} bytes follow the end"))),
        }
    }
}

/// Appends a text of at most 255 bytes with its length in front.
pub(crate) fn put_text(text: &str, into: &mut Vec<u8>) {
    debug_assert!(text.len() <= 255, "names have bounds below 255 bytes");
    into.push(text.len() as u8);
    into.extend_from_slice(text.as_bytes());
}
