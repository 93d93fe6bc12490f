//! Hashes bytes while they pass, for both ends of a transfer.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::Digest;

/// How many bytes are read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// The digest of the bytes so far.
///
/// ```
/// let mut digesting = farcall_file_access::Digesting::default();
/// digesting.add(b"farcall");
/// assert_eq!(digesting.clone().end().length, 7);
/// ```
#[derive(Clone, Default)]
pub struct Digesting {
    hash: Sha256,
    length: u64,
}

impl Digesting {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Adds what a reader gives until its end, or until `is_over` returns true.
    ///
    /// # Errors
    /// Those of the reader; [`io::ErrorKind::Interrupted`] if `is_over` returned true.
    pub fn add_all(&mut self, mut reader: impl Read, is_over: impl Fn() -> bool) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            if is_over() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match reader.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(read) => self.add(&chunk[..read]),
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    /// Returns how many bytes were added.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the digest.
    pub fn end(self) -> Digest {
        Digest { length: self.length, sha256: self.hash.finalize().into() }
    }
}
