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
//! sync       futexes: how long one may sleep where the other side could strand him
//! page       the memory file;  area: memory files for arguments and segments;  copy: bytes out of words and into
//!            words. Only these three have unsafe code.
//! meeting    Unix sockets: finding one another, passing the file, noticing a death;  disposal: closing them
//! hello      what an importer says first, and the question by which an exporter proves itself
//! ```
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod area;
mod bell;
mod caller;
mod copy;
mod disposal;
mod hello;
mod lane;
mod layout;
mod meeting;
mod page;
mod server;
mod sync;
mod turn;
mod words;

pub use area::{Area, May, Sight, punch, written};
pub use caller::{Caller, Lane, Ticket};
pub use disposal::unclosed;
pub use hello::{Hello, MAX_HELLO, PROOF, TicketHolder, Wants};
pub use lane::{Emptier, Filler};
pub use layout::{DETAIL, FETCHED, INLINE, LANES, PART, PARTS, SLOTS};
pub use meeting::{Alarm, Ear, Heard, Listener, Wire, file_limit};
pub use page::Page;
pub use server::{Added, Call, Request, Seen, Server, Taker};

/// A thread that has said that it is about to sleep at a bell: how often its own process had called it back
/// before.
#[derive(Clone, Copy, Debug)]
pub struct Lying(u32);

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
