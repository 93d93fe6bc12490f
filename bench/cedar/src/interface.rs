//! The measured interface, which has the twelve procedures of table I, its server, and its local form.

// One procedure has ten arguments, as in the paper.
#![allow(clippy::too_many_arguments)]

use std::hint::black_box;
use std::sync::Arc;

use farcall::{Answer, Result};

/// An argument or a result of 16 bits.
type Word = i16;
/// Ten results.
type Ten = (Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

/// The procedures of table I, and `store` for section 4's transfer of much data.
#[farcall::interface]
pub trait Cedar {
    fn none(&self) -> Result<()>;
    fn one(&self, a: i16) -> Result<i16>;
    fn two(&self, a: i16, b: i16) -> Result<(i16, i16)>;
    fn four(&self, a: i16, b: i16, c: i16, d: i16) -> Result<(i16, i16, i16, i16)>;
    fn ten(
        &self,
        a: i16,
        b: i16,
        c: i16,
        d: i16,
        e: i16,
        f: i16,
        g: i16,
        h: i16,
        i: i16,
        j: i16,
    ) -> Result<Ten>;
    fn words_1(&self, words: &[i16; 1]) -> Result<[i16; 1]>;
    fn words_4(&self, words: &[i16; 4]) -> Result<[i16; 4]>;
    fn words_10(&self, words: &[i16; 10]) -> Result<[i16; 10]>;
    fn words_40(&self, words: &[i16; 40]) -> Result<[i16; 40]>;
    fn words_100(&self, words: &[i16; 100]) -> Result<[i16; 100]>;
    /// Raises the exception, and returns when a handler has resumed it.
    fn raise(&self) -> Result<()>;
    /// Takes bytes, and returns how many there were.
    fn store(&self, bytes: &[u8]) -> Result<u32>;
    /// The exception, which has no argument and no result.
    #[signal]
    fn exception(&self);
}

/// The server. Each procedure returns its arguments.
pub struct Server;

impl Cedar for Server {
    fn none(&self) -> Result<()> {
        Ok(())
    }

    fn one(&self, a: Word) -> Result<Word> {
        Ok(a)
    }

    fn two(&self, a: Word, b: Word) -> Result<(Word, Word)> {
        Ok((a, b))
    }

    fn four(&self, a: Word, b: Word, c: Word, d: Word) -> Result<(Word, Word, Word, Word)> {
        Ok((a, b, c, d))
    }

    fn ten(
        &self,
        a: Word,
        b: Word,
        c: Word,
        d: Word,
        e: Word,
        f: Word,
        g: Word,
        h: Word,
        i: Word,
        j: Word,
    ) -> Result<Ten> {
        Ok((a, b, c, d, e, f, g, h, i, j))
    }

    fn words_1(&self, words: &[Word; 1]) -> Result<[Word; 1]> {
        Ok(*words)
    }

    fn words_4(&self, words: &[Word; 4]) -> Result<[Word; 4]> {
        Ok(*words)
    }

    fn words_10(&self, words: &[Word; 10]) -> Result<[Word; 10]> {
        Ok(*words)
    }

    fn words_40(&self, words: &[Word; 40]) -> Result<[Word; 40]> {
        Ok(*words)
    }

    fn words_100(&self, words: &[Word; 100]) -> Result<[Word; 100]> {
        Ok(*words)
    }

    fn raise(&self) -> Result<()> {
        Ok(CedarSignals::exception()?)
    }

    fn store(&self, bytes: &[u8]) -> Result<u32> {
        Ok(bytes.len() as u32)
    }
}

/// What the caller's handler does with the exception.
#[derive(Clone, Copy)]
enum Handler {
    Resumes,
    Unwinds,
}

impl CedarHandler for Handler {
    fn exception(&self, by: CedarRaiser) -> Answer<()> {
        match (self, by) {
            (Handler::Unwinds, CedarRaiser::raise(call)) => call.unwind(Ok(())),
            _ => Answer::Resume(()),
        }
    }
}

/// A line of table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    Values(u16),
    Words(u16),
    Resumed,
    Unwound,
}

impl Procedure {
    /// All lines, in the order of the table.
    pub const ALL: [Procedure; 12] = [
        Procedure::Values(0),
        Procedure::Values(1),
        Procedure::Values(2),
        Procedure::Values(4),
        Procedure::Values(10),
        Procedure::Words(1),
        Procedure::Words(4),
        Procedure::Words(10),
        Procedure::Words(40),
        Procedure::Words(100),
        Procedure::Resumed,
        Procedure::Unwound,
    ];

    /// Returns the name that the paper has for it.
    pub fn name(self) -> String {
        match self {
            Procedure::Values(0) => "no args/results".into(),
            Procedure::Values(1) => "1 arg/result".into(),
            Procedure::Values(count) => format!("{count} args/results"),
            Procedure::Words(count) => format!("{count} word array"),
            Procedure::Resumed => "resume except'n".into(),
            Procedure::Unwound => "unwind except'n".into(),
        }
    }

    /// Returns whether an exception is raised in the call.
    pub fn raises(self) -> bool {
        matches!(self, Procedure::Resumed | Procedure::Unwound)
    }

    /// Returns the stub, with a handler if the procedure raises an exception.
    pub fn prepared(self, stub: CedarClient) -> CedarClient {
        match self {
            Procedure::Resumed => stub.catching(Handler::Resumes),
            Procedure::Unwound => stub.catching(Handler::Unwinds),
            Procedure::Values(_) | Procedure::Words(_) => stub,
        }
    }

    /// Calls the procedure for as long as `next` returns true.
    #[inline]
    pub fn calls(self, server: &(impl Cedar + ?Sized), mut next: impl FnMut() -> bool) -> Result<()> {
        /// Makes one loop for each procedure, so that no call includes the choice.
        macro_rules! calls {
            ($call:expr) => {{
                while next() {
                    black_box($call?);
                }
            }};
        }
        let word = || black_box(7);
        match self {
            Procedure::Values(0) => calls!(server.none()),
            Procedure::Values(1) => calls!(server.one(word())),
            Procedure::Values(2) => calls!(server.two(word(), word())),
            Procedure::Values(4) => calls!(server.four(word(), word(), word(), word())),
            Procedure::Values(_) => calls!(server.ten(
                word(),
                word(),
                word(),
                word(),
                word(),
                word(),
                word(),
                word(),
                word(),
                word()
            )),
            Procedure::Words(1) => calls!(server.words_1(black_box(&[7; 1]))),
            Procedure::Words(4) => calls!(server.words_4(black_box(&[7; 4]))),
            Procedure::Words(10) => calls!(server.words_10(black_box(&[7; 10]))),
            Procedure::Words(40) => calls!(server.words_40(black_box(&[7; 40]))),
            Procedure::Words(_) => calls!(server.words_100(black_box(&[7; 100]))),
            Procedure::Resumed | Procedure::Unwound => calls!(server.raise()),
        }
        Ok(())
    }
}

/// Returns the server's object itself, as a program that binds directly has it.
pub fn direct() -> Arc<dyn Cedar> {
    // `black_box` keeps the compiler from calling the procedures without the object's table.
    black_box(Arc::new(Server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_procedures_can_be_called_in_this_process() {
        for procedure in Procedure::ALL {
            let stub = procedure.prepared(farcall::stub::local(direct()));
            let mut calls = 0..3;
            procedure.calls(&stub, || calls.next().is_some()).unwrap();
        }
    }
}
