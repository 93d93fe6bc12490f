//! The failures of calls: the kind of failure, whether the call ran, and the numbers of both on the wire.

use std::borrow::Cow;
use std::fmt;

/// Whether a failed call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ran {
    /// The call was not executed and never will be.
    No,
    /// The call may have been executed, or may be yet.
    Maybe,
    /// The call was executed; its result is lost.
    Yes,
}

impl Ran {
    /// Returns the number on the wire.
    #[inline]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the value with this number on the wire. An unknown number gives `Maybe`, which promises the
    /// least.
    #[inline]
    pub fn from_code(code: u8) -> Ran {
        match code {
            0 => Ran::No,
            2 => Ran::Yes,
            _ => Ran::Maybe,
        }
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ran::No => "it did not run",
            Ran::Maybe => "it may have run",
            Ran::Yes => "it ran",
        })
    }
}

impl Kind {
    /// Returns whether a procedure fails in this way because of what it waited for: a call of its own, or a
    /// stream of the call that it serves.
    pub fn is_of_what_it_waited_for(self) -> bool {
        matches!(self, Kind::Nested | Kind::Cancelled)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// The kind of a failure. The numbers are those on the wire (docs/protocol.md, "Kinds").
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $code,)* }

        impl Kind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// Returns the kind's number on the wire.
            #[inline]
            pub fn code(self) -> u16 {
                self as u16
            }

            /// Returns the kind with this number. A number that a later version added gives `Other`.
            pub fn from_code(code: u16) -> Kind {
                match code { $($code => Kind::$name,)* _ => Kind::Other }
            }
        }

        impl fmt::Display for Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Kind::$name => $text,)* })
            }
        }
    };
}

kinds! {
    /// A kind that this version does not know.
    Other = 0, "the call failed";
    /// No registry entry has the name.
    NoSuchName = 1, "no such name";
    /// The server does not answer.
    Unreachable = 2, "the server does not answer";
    /// The server that received the call is gone; another incarnation answers at its address.
    ServerRestarted = 3, "the server restarted";
    /// The server does not export this interface, or does so no longer.
    NotExported = 4, "not exported";
    /// The export has no procedure of this number.
    NoSuchProcedure = 5, "no such procedure";
    /// A bound was reached: outstanding calls, the server's queue, or its memory.
    Overloaded = 6, "overloaded";
    /// The server could not decode the arguments.
    BadArguments = 7, "bad arguments";
    /// The result could not be encoded or decoded.
    BadResult = 8, "bad result";
    /// Importer and exporter disagree on a procedure's types, or share no wire version.
    Mismatch = 9, "the interfaces differ";
    /// The caller cancelled the call.
    Cancelled = 10, "cancelled";
    /// The deadline passed.
    Deadline = 11, "the deadline passed";
    /// The server does not permit this caller to make this call.
    NotPermitted = 12, "not permitted";
    /// A call that the procedure itself made failed, and the procedure passed the failure on.
    Nested = 13, "a call made by the procedure failed";
    /// The procedure panicked.
    Panicked = 14, "the procedure panicked";
    /// Arguments or result are larger than a limit.
    TooLarge = 15, "too large";
    /// The server takes no more calls, or none of the export: it drains.
    Draining = 16, "the server drains";
    /// The call ran; the server no longer holds its result.
    ResultLost = 17, "the result is no longer held";
    /// The handle was made before a `fork` and is used in the child.
    Forked = 18, "the handle belongs to the parent process";
    /// The registry of names could not be read or written.
    Registry = 19, "the registry of names failed";
    /// The local socket or operating system refused.
    Local = 20, "the local system refused";
    /// The runtime that the handle belongs to is shut down.
    Stopped = 21, "the runtime is shut down";
    /// The server forgot the conversation while it was idle, or to make room.
    Forgotten = 22, "the server forgot the conversation";
    /// The procedure raised a signal, and the caller unwound the call or had no handler for the signal.
    Unwound = 23, "unwound by a signal";
}

/// A call's failure: its kind, whether it ran, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: Kind,
    /// Whether the call ran.
    pub ran: Ran,
    /// The detail, for people. It may be empty. At most [`Failure::MAX_DETAIL`] bytes of it are sent.
    pub detail: String,
}

impl Failure {
    /// The maximum number of bytes of a detail that are sent.
    pub const MAX_DETAIL: usize = 512;

    /// Makes a failure without detail.
    #[inline]
    pub fn new(kind: Kind, ran: Ran) -> Failure {
        Failure { kind, ran, detail: String::new() }
    }

    /// Adds a sentence for people to the failure.
    pub fn with_detail(mut self, detail: impl Into<String>) -> Failure {
        self.detail = detail.into();
        self
    }

    /// Returns the failure of a call whose deadline has passed. If the procedure failed because what it
    /// waited for was over, perhaps a stream or a call of its own, the deadline is the cause.
    pub fn at_deadline(self) -> Failure {
        match self.kind.is_of_what_it_waited_for() {
            true => Failure { kind: Kind::Deadline, ..self },
            false => self,
        }
    }

    /// Returns the detail as it is sent, in at most [`Failure::MAX_DETAIL`] bytes. Of a longer one the middle
    /// is left out: where calls are nested, the end is their cause. It says how many nested calls that leaves
    /// out.
    pub fn sent_detail(&self) -> Cow<'_, str> {
        const HEAD: usize = 160;
        const TAIL: usize = 300;
        let detail = &*self.detail;
        if detail.len() <= Failure::MAX_DETAIL {
            return Cow::Borrowed(detail);
        }
        let (mut head, mut tail) = (HEAD, detail.len() - TAIL);
        while !detail.is_char_boundary(head) {
            head -= 1;
        }
        while !detail.is_char_boundary(tail) {
            tail += 1;
        }
        // (A cut may go through the words that are counted.)
        let shown = nested_calls(&detail[..head]).saturating_add(nested_calls(&detail[tail..]));
        let hidden = nested_calls(detail).saturating_sub(shown);
        let what = if hidden > 0 { format!("{HIDDEN}{hidden}{NESTED_CALLS}") } else { " … ".to_owned() };
        Cow::Owned(format!("{}{what}{}", &detail[..head], &detail[tail..]))
    }
}

/// What stands for nested calls that are left out, around their number.
const HIDDEN: &str = " … (";
const NESTED_CALLS: &str = " nested calls) … ";

/// Returns how many nested calls a part of a detail tells of, with those that were left out of it before.
fn nested_calls(part: &str) -> u64 {
    let named = part.matches(&Kind::Nested.to_string()).count() as u64;
    let hidden =
        part.split(HIDDEN).skip(1).filter_map(|rest| rest.split_once(NESTED_CALLS)?.0.parse::<u64>().ok());
    hidden.fold(named, u64::saturating_add)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each server passes on what its own call met, as `CallFailed::nested` does, and each caller says where.
    #[test]
    fn however_deep_calls_are_nested_the_failure_tells_its_cause_and_how_deep() {
        let cause = "the server does not answer: get at 10.0.0.9:7000; it may have run";
        let mut detail = cause.to_owned();
        for depth in 0..100 {
            let failure = Failure::new(Kind::Nested, Ran::Yes).with_detail(detail);
            let sent = failure.sent_detail();
            assert!(sent.len() <= Failure::MAX_DETAIL && sent.ends_with(cause), "{depth}: {sent}");
            assert_eq!(nested_calls(&sent), depth, "{sent}");
            detail = format!("{}: relay at 127.0.0.1:{}: {sent}", Kind::Nested, 40_000 + depth);
        }
        assert!(detail.contains("nested calls) … "), "{detail}");
    }

    #[test]
    fn a_detail_is_shortened_between_characters() {
        for before in 0..8 {
            let detail = "-".repeat(before) + &"\u{1d11e}".repeat(300);
            let sent = Failure::new(Kind::Other, Ran::Yes).with_detail(detail);
            assert!(sent.sent_detail().contains(" … ") && sent.sent_detail().len() <= Failure::MAX_DETAIL);
        }
    }

    #[test]
    fn codes_are_distinct_and_come_back() {
        for (i, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind.code() as usize, i);
            assert_eq!(Kind::from_code(kind.code()), *kind);
        }
        assert_eq!(Kind::from_code(60_000), Kind::Other);
        for ran in [Ran::No, Ran::Maybe, Ran::Yes] {
            assert_eq!(Ran::from_code(ran.code()), ran);
        }
        assert_eq!(Ran::from_code(77), Ran::Maybe);
    }
}
