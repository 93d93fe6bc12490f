//! Segments: memory that other processes read and write without a call (Thekkath, Levy & Lazowska 1994).
//!
//! A process *exports* a segment of memory under a name. Other processes *import* the segment, and read,
//! write, and compare and swap at any offset. No procedure of the exporter runs for that, unless the exporter
//! asks for [notices](Notify).
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
//! `cargo run --example memory` runs a whole program, exporter and importer.
//!
//! **Words.** A word is eight bytes at an offset that is a multiple of eight: a number in little-endian
//! order. Every process, on any machine, reads and writes it as a whole. An access of several words takes
//! them one by one in ascending order. Loads acquire and stores release: a load that sees a store also sees
//! all that was written before that store. So if an earlier word of one access shows that some writes were
//! done, a later word of the same access shows them too. An access of several words is not atomic. [`Memory`]
//! gives no references into a segment, because other processes change it at any time.
//!
//! **Writes** of one importer take effect in the order in which the importer made them. [`Memory::write`] may
//! return before the bytes are in the segment, although the present carriers return only afterwards.
//! [`Remote::post`] returns earlier. Only [`Memory::flush`] reports that all writes are done, or that one was
//! refused.
//!
//! **An import is of one generation.** [`Renewing`] imports again when the segment was exported again, or its
//! exporter was restarted.
//!
//! **A refusal** is a [`Refused`], the declared exception of every access. If an access *fails*,
//! [`CallFailed::ran`](crate::CallFailed::ran) says whether it was done, as for a call.

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
    Beat, Condition, Consumer, Deposit, HugePages, Importers, Memory, Notice, Notify, Producer, Pulse,
    Record, Refused, Remote, Renewing, Result, Rights, Ring, Segment, Settings, Stuck, Unread, Word, Writer,
};

pub mod clerk {
    //! The segment name service: each machine has a clerk, and the clerks read one another's memory (Thekkath
    //! et al. 1994, section 4).
    //!
    //! A clerk knows the segments that are exported on its machine. It keeps their names in a hash table in a
    //! segment of its own. So looking a name up on another machine takes one remote read, and runs no
    //! procedure there.
    //!
    //! [`Runtime::export_segment`](crate::Runtime::export_segment) and
    //! [`Runtime::import_segment`](crate::Runtime::import_segment) go through the machine's clerk. The first
    //! process on a machine that exports or imports a segment starts the clerk, unless [`Clerk::start`] has
    //! started it.
    #[doc(hidden)]
    pub use farcall_memory::clerk::fuzz_record;
    pub use farcall_memory::clerk::{Clerk, Entry, Fault, MAX_NAME, Search, Settings};
}

/// Exports a new segment of zeros under a name, until the handle is dropped.
///
/// # Errors
/// When the name is malformed or taken, there is not enough memory, or the registry fails.
pub fn export(name: &str, settings: Settings) -> crate::Result<Segment> {
    Runtime::current()?.export_segment(name, settings)
}

/// Exports memory that the program has already under a name: the [`Settings`]' number of bytes of a memory
/// file, a multiple of eight, from an offset on that is a multiple of a page.
///
/// The program goes on using its own mapping of the file. Importers access the memory by calls, also on this
/// machine, because memory that they have mapped could not be taken away from them without taking it away
/// from the program. Memory that is in no file, as that of a `Vec`, cannot be exported: move it to a memory
/// file (`memfd_create`), or [write](Memory::write) it to a segment.
///
/// # Errors
/// Those of [`export`]. [`Kind::Local`](crate::Kind::Local) if the file is no memory file, may not be written,
/// does not have these bytes, or could be cut off while it is exported: it must allow seals
/// (`MFD_ALLOW_SEALING`), and is sealed against shrinking. On big-endian machines, where its bytes would be in
/// another order than importers expect, and on systems other than Linux.
#[cfg(unix)]
pub fn export_file(
    name: &str,
    file: std::os::fd::OwnedFd,
    offset: u64,
    settings: Settings,
) -> crate::Result<Segment> {
    Runtime::current()?.export_file(name, file, offset, settings)
}

/// Imports the segment that is exported under a name, or at an address (`"udp://10.0.0.7:7000/Load"`).
///
/// # Errors
/// When no process exports the name, or its exporter does not answer.
pub fn import(name: &str) -> crate::Result<Remote> {
    Runtime::current()?.import_segment(name)
}

impl Runtime {
    /// Exports a segment from this runtime, as [`memory::export`](export) does.
    ///
    /// # Errors
    /// Those of [`memory::export`](export).
    pub fn export_segment(&self, name: &str, settings: Settings) -> crate::Result<Segment> {
        names::export_segment(self, name, settings)
    }

    /// Exports memory that the program has already, as [`memory::export_file`](export_file) does.
    ///
    /// # Errors
    /// Those of [`memory::export_file`](export_file).
    #[cfg(unix)]
    pub fn export_file(
        &self,
        name: &str,
        file: std::os::fd::OwnedFd,
        offset: u64,
        settings: Settings,
    ) -> crate::Result<Segment> {
        names::export_file(self, name, (file, offset), settings)
    }

    /// Imports a segment from this runtime, as [`memory::import`](import) does.
    ///
    /// # Errors
    /// Those of [`memory::import`](import).
    pub fn import_segment(&self, name: &str) -> crate::Result<Remote> {
        names::import_segment(self, name)
    }

    /// Imports the segment that is exported under a name on another machine. `hint` is the address of that
    /// machine's clerk. The name is looked up there, unless this machine's clerk knows it already and the
    /// entry is still valid.
    ///
    /// # Errors
    /// When no process there exports the name, or no clerk or exporter answers.
    pub fn import_segment_at(&self, name: &str, hint: SocketAddr) -> crate::Result<Remote> {
        names::import_segment_at(self, name, hint)
    }

    /// Imports a segment, and looks its name up again even if this machine's clerk knows it already. Use it
    /// in a program that has learnt from a failed access that the clerk's entry is out of date.
    ///
    /// # Errors
    /// When no process exports the name, or no clerk or exporter answers.
    pub fn import_segment_anew(&self, name: &str, hint: Option<SocketAddr>) -> crate::Result<Remote> {
        names::import_segment_anew(self, name, hint)
    }
}
