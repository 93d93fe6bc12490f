//! Memory that others read and write without a call: segments (Thekkath, Levy & Lazowska 1994).
//!
//! A process *exports* a segment of memory under a name; others *import* it, and read, write, and compare and
//! swap at any offset. Nothing of the exporter's is scheduled for that, unless the exporter asks for
//! [notices](Notify).
//!
//! ```no_run
//! use farcall::memory::{Memory, Rights, Settings};
//!
//! # fn main() -> farcall::memory::Result<()> {
//! let load = farcall::memory::export("Load", Settings::new(64).anyone(Rights::READ))?;
//! load.store(0, 42)?;
//!
//! let remote = farcall::memory::import("Load")?; // anywhere else
//! assert_eq!(remote.load(0)?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run --example memory` is a whole program, both ends.
//!
//! **Words.** Eight bytes at an offset that eight divides are a word: a number in little-endian order, read
//! and written as a whole by everybody, near and far. An access of several words takes them in ascending
//! order, one by one: a load sees what was written before the store that it sees (acquire and release), so a
//! later word of one access is never older than what an earlier word of it has made known. Of several words
//! together nothing is atomic: [`Memory`] has no references into it, because others change it at any time.
//!
//! **Writes** of one importer are done in the order in which it made them. [`Memory::write`] returns when it
//! may, which is when the bytes are there wherever that is known today; [`Remote::post`] does so before. Only
//! [`Memory::flush`] says that all are done, or that one was refused.
//!
//! **Refusals** are [`Refused`], the declared exception of every access; whether an access that *failed* was
//! done is what [`CallFailed::ran`](crate::CallFailed::ran) says, as for a call.

mod counters;

use std::net::SocketAddr;

use crate::Runtime;
use farcall_memory::clerk as names;

pub use counters::Counters;
#[doc(hidden)]
pub use counters::fuzz_counters;
#[doc(hidden)]
pub use farcall_memory::fuzz_access;
pub use farcall_memory::{
    Beat, Consumer, Memory, Notice, Notify, Producer, Pulse, Record, Refused, Remote, Result, Rights, Ring,
    Segment, Settings, Stuck, Unread, Word, Writer,
};

pub mod clerk {
    //! The segment name service: a clerk on each machine, which read one another's memory (Thekkath et al.
    //! 1994, section 4).
    //!
    //! A clerk knows the segments that are exported on its machine. It keeps them in a hash table in a
    //! segment of its own, so to look a name up on another machine costs one remote read, and nothing runs
    //! there.
    //!
    //! [`Runtime::export_segment`](crate::Runtime::export_segment) and
    //! [`Runtime::import_segment`](crate::Runtime::import_segment) go through the machine's clerk. The first
    //! process on a machine that exports or imports a segment starts it, if [`Clerk::start`] has not.
    #[doc(hidden)]
    pub use farcall_memory::clerk::fuzz_record;
    pub use farcall_memory::clerk::{Clerk, Entry, Fault, MAX_NAME, Settings};
}

/// Exports a new segment of zeros under a name, until the handle is dropped.
///
/// # Errors
/// When the name is no name or is taken, there is no memory, or the registry fails.
pub fn export(name: &str, settings: Settings) -> crate::Result<Segment> {
    Runtime::current()?.export_segment(name, settings)
}

/// Imports the segment that somebody exports under a name, or at an address (`"udp://10.0.0.7:7000/Load"`).
///
/// # Errors
/// When nobody exports the name, or nobody answers.
pub fn import(name: &str) -> crate::Result<Remote> {
    Runtime::current()?.import_segment(name)
}

impl Runtime {
    /// Exports a segment from this runtime, as [`memory::export`](export) does.
    ///
    /// # Errors
    /// As [`memory::export`](export).
    pub fn export_segment(&self, name: &str, settings: Settings) -> crate::Result<Segment> {
        names::export_segment(self, name, settings)
    }

    /// Imports a segment from this runtime, as [`memory::import`](import) does.
    ///
    /// # Errors
    /// As [`memory::import`](import).
    pub fn import_segment(&self, name: &str) -> crate::Result<Remote> {
        names::import_segment(self, name)
    }

    /// Imports the segment that is exported under a name on the machine whose clerk is at the hint. The name
    /// is looked up there, unless this machine's clerk has learnt it before and it is still so.
    ///
    /// # Errors
    /// When nobody exports the name there, or nobody answers.
    pub fn import_segment_at(&self, name: &str, hint: SocketAddr) -> crate::Result<Remote> {
        names::import_segment_at(self, name, hint)
    }

    /// Imports a segment, believing nothing that this machine's clerk has learnt before: for a program that
    /// knows, from an access that failed, that it is no longer so.
    ///
    /// # Errors
    /// When nobody exports the name, or nobody answers.
    pub fn import_segment_anew(&self, name: &str, hint: Option<SocketAddr>) -> crate::Result<Remote> {
        names::import_segment_anew(self, name, hint)
    }
}
