//! The accesses to memory in simulations of the protocol: their numbers, the contents of their results and of
//! posted writes, and the truth about the writes that each import has posted.

use farcall_proto::{ACCESSES, READINGS};

/// A reading (an access that only reads) that is answered at once where possible.
pub const READ: u32 = READINGS;
/// A reading whose result the server always keeps until it is acknowledged.
pub const FACTS: u32 = READINGS + 1;
/// A question about how many writes of a stream were done.
pub const POSTED: u32 = READINGS + 2;
/// A write, or a compare and swap.
pub const WRITE: u32 = ACCESSES;
/// The opening of a stream.
pub const OPEN: u32 = ACCESSES + 2;

/// The beginning of the result of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of writes that the server has done so far, in all its lives.
    pub version: u64,
    /// For [`OPEN`], the stream; for [`POSTED`], the number of the first write that was not done.
    pub word: u64,
    /// For [`POSTED`]: [`KNOWN`], [`REFUSED`] or [`FORGOTTEN`].
    pub status: u64,
}

/// All writes before the given one are done.
pub const KNOWN: u64 = 0;
/// All writes before the given one are done. The given write never will be.
pub const REFUSED: u64 = 1;
/// The server no longer has the stream.
pub const FORGOTTEN: u64 = 2;

impl Head {
    /// The length of a head in bytes.
    pub const LEN: usize = 24;

    /// Appends the head to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        put([self.version, self.word, self.status], out);
    }

    /// Reads a head from the front of `body`, and returns it with the rest.
    pub fn read(body: &[u8]) -> Option<(Head, &[u8])> {
        let ([version, word, status], rest) = take(body)?;
        Some((Head { version, word, status }, rest))
    }
}

/// The beginning of a posted write: its stream, its number there, and its import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// The stream.
    pub stream: u64,
    /// The number in the stream.
    pub number: u64,
    /// The import.
    pub import: u64,
}

impl Post {
    /// The length of this beginning in bytes.
    pub const LEN: usize = 24;

    /// Appends the beginning of a posted write to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        put([self.stream, self.number, self.import], out);
    }

    /// Reads the beginning of a posted write from the front of `bytes`, and returns it with the rest.
    pub fn read(bytes: &[u8]) -> Option<(Post, &[u8])> {
        let ([stream, number, import], rest) = take(bytes)?;
        Some((Post { stream, number, import }, rest))
    }
}

fn put(words: [u64; 3], out: &mut Vec<u8>) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

fn take(bytes: &[u8]) -> Option<([u64; 3], &[u8])> {
    let (words, rest) = bytes.split_first_chunk::<24>()?;
    let (words, []) = words.as_chunks::<8>() else { return None };
    Some(([0, 1, 2].map(|at| u64::from_be_bytes(words[at])), rest))
}

/// The truth about the writes that one import has posted.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// The server whose memory is imported.
    pub server: usize,
    /// The export.
    pub export: u64,
    /// How many writes were done.
    pub done: u64,
    /// Whether a write was refused.
    pub refused: bool,
}
