//! Accesses to memory, as the proofs of the protocol make them: which there are, what is in their results and
//! in what is posted, and what is true of the writes that each import has posted.

use farcall_proto::{ACCESSES, READINGS};

/// A reading that is answered at once, where it may be.
pub const READ: u32 = READINGS;
/// A reading whose result is always held.
pub const FACTS: u32 = READINGS + 1;
/// How far a stream of posted writes has come.
pub const POSTED: u32 = READINGS + 2;
/// A write, or a compare and swap.
pub const WRITE: u32 = ACCESSES;
/// A new stream.
pub const OPEN: u32 = ACCESSES + 2;

/// What stands in front of the result of an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// How many writes the server had done, in all its lives.
    pub version: u64,
    /// The stream, of [`OPEN`]; the number of the first write that was not done, of [`POSTED`].
    pub word: u64,
    /// Of [`POSTED`]: [`KNOWN`] or not.
    pub status: u64,
}

/// All writes before that one are done.
pub const KNOWN: u64 = 0;
/// All writes before that one are done, and that one never will be.
pub const REFUSED: u64 = 1;
/// There is no such stream any more.
pub const FORGOTTEN: u64 = 2;

impl Head {
    /// Its bytes.
    pub const LEN: usize = 24;

    /// Writes it.
    pub fn write(self, out: &mut Vec<u8>) {
        [self.version, self.word, self.status]
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads it; the rest.
    pub fn read(body: &[u8]) -> Option<(Head, &[u8])> {
        let (version, rest) = word(body)?;
        let (word_, rest) = word(rest)?;
        let (status, rest) = word(rest)?;
        Some((Head { version, word: word_, status }, rest))
    }
}

/// What is in front of a posted write: its stream, its number there, the import that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Post {
    /// The stream.
    pub stream: u64,
    /// Its number there.
    pub number: u64,
    /// The import.
    pub import: u64,
}

impl Post {
    /// Its bytes.
    pub const LEN: usize = 24;

    /// Writes it.
    pub fn write(self, out: &mut Vec<u8>) {
        [self.stream, self.number, self.import]
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
    }

    /// Reads it; the rest.
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

/// What is true of the writes that one import has posted.
#[derive(Clone, Copy, Debug)]
pub struct Import {
    /// Whose memory it is of.
    pub server: usize,
    /// The export.
    pub export: u64,
    /// So many were done.
    pub done: u64,
    /// One was refused.
    pub refused: bool,
}
