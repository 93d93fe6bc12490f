//! Calls between two processes of one Linux machine through memory that both of them write.
//!
//! Bytes only: what a call means is `farcall`'s affair. `docs/shared-memory.md` says who owns which word, and why
//! nothing that the other side writes can do harm.
//!
//! ```text
//! caller     the calling half: slots, requests, waiting for their turns
//! server     the serving half: which calls are there, answering them
//! layout     what stands where: atomic words, nothing else
//! lane       what a slot cannot hold: one side fills parts while the other empties those before
//! turn       a slot's answer, and how one sleeps until it is there;  bell: how one sleeps until there is work
//! page       the memory file, and unsafe code;  area: memory files for arguments and segments, and the rest of it
//! meeting    Unix sockets: finding one another, passing the file, noticing a death
//! ```
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod area;
mod bell;
mod caller;
mod lane;
mod layout;
mod meeting;
mod page;
mod server;
mod turn;
mod words;

mod sync {
    //! What `bell` and `turn` take their atomics and their sleep from; loom's stand in their place in tests/sleep.rs.
    use std::time::Duration;

    use rustix::thread::Timespec;
    use rustix::thread::futex::{Flags, wait, wake};

    pub(super) use std::sync::atomic::{AtomicU32, Ordering};

    /// Sleeps while the word has that value, no longer than `most`; may return without a reason.
    pub(super) fn sleep(word: &AtomicU32, value: u32, most: Option<Duration>) {
        // Too long for a timespec is for ever.
        let most = most.and_then(|most| Timespec::try_from(most).ok());
        let _ = wait(word, Flags::empty(), value, most.as_ref());
    }

    /// Wakes the one who sleeps there, if somebody does.
    pub(super) fn wake_one(word: &AtomicU32) {
        let _ = wake(word, Flags::empty(), 1);
    }
}

pub use area::{Area, May, Sight, punch, written};
pub use caller::{Caller, Lane, Ticket};
pub use lane::{Emptier, Filler};
pub use layout::{DETAIL, FETCHED, INLINE, LANES, PART, PARTS, SLOTS};
pub use meeting::{Alarm, Ear, Heard, Listener, Wire};
pub use page::Page;
pub use server::{Added, Call, Request, Seen, Server, Taker};

/// What the answer to a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The procedure's result.
    Result,
    /// Its declared exception.
    Exception,
    /// Neither: a kind, and whether it ran, by their numbers; the body is a sentence for people.
    Failed {
        /// The kind's number.
        kind: u16,
        /// The number of whether it ran.
        ran: u8,
    },
    /// A part was given.
    Part,
}

impl Status {
    fn code(self) -> u32 {
        match self {
            Status::Result => 0,
            Status::Exception => 1,
            Status::Part => 2,
            Status::Failed { kind, ran } => 3 | u32::from(ran) << 8 | u32::from(kind) << 16,
        }
    }

    /// Total: whatever stands there is some status.
    fn from_code(code: u32) -> Status {
        match code & 0xff {
            0 => Status::Result,
            1 => Status::Exception,
            2 => Status::Part,
            _ => Status::Failed { kind: (code >> 16) as u16, ran: (code >> 8) as u8 },
        }
    }
}
