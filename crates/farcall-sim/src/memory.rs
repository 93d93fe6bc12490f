//! The accesses to memory that the proofs of the protocol make: their numbers, the contents of their results
//! and of posted writes, and the truth about the writes that each import has posted.

use farcall_proto::{ACCESSES, READINGS};

/// A reading that is answered at once where possible.
pub const READ: u32 = READINGS;
/// A reading whose result is always held.
pub const FACTS: u32 = READINGS + 1;
/// A question how far a stream of posted writes has come.
pub const POSTED: u32 = READINGS + 2;
/// A write, or a compare and swap.
pub const WRITE: u32 = ACCESSES;
/// The opening of a stream.
pub const OPEN: u32 = ACCESSES + 2;

/// The beginning of the result of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of writes that the server had done, in all its lives.
    pub version: u64,
    /// For [`OPEN`], the stream; for [`POSTED`], the number of the first write that was not done.
    pub word: u64,
    /// For [`POSTED`]: [`KNOWN`], [`REFUSED`] or [`FORGOTTEN`].
    pub status: u64,
}

/// All writes before the named one are done.
pub const KNOWN: u64 = 0;
/// All writes before the named one are done, and that one never will be.
pub const REFUSED: u64 = 1;
/// The server does not have the stream any more.
pub const FORGOTTEN: u64 = 2;

impl Head {
    /// The length of a head in bytes.
    pub const LEN: usize = 24;

    /// Appends the head to `out`.
    pub fn write(self, out: &mut Vec<u8>) {
        [self.version, self.word, self.status]
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads a head from the front of `body`, and returns it with the rest.
    pub fn read(body: &[u8]) -> Option<(Head, &[u8])> {
        let (version, rest) = word(body)?;
        let (word_, rest) = word(rest)?;
        let (status, rest) = word(rest)?;
        Some((Head { version, word: word_, status }, rest))
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
        [self.stream, self.number, self.import]
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads the beginning of a posted write from the front of `bytes`, and returns it with the rest.
    pub fn read(bytes: &[u8]) -> Option<(Post, &[u8])> {
        let (stream, rest) = word(bytes)?;
        let (number, rest) = word(rest)?;
        let (import, rest) = word(rest)?;
        Some((Post { stream, number, import }, rest))
    }
}

fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk().map(|(word, rest)| (u64::from_be_bytes(*word), rest))
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
