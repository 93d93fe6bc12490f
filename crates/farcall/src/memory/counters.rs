//! Imports and reads the counters of a server.

use std::fmt;
use std::net::SocketAddr;

use super::{Memory, Remote, Result};
use crate::stats::Serving;
use crate::stats::words::{self, Record};
use crate::{CallFailed, Kind, Ran, Runtime};
use farcall_memory::clerk::COUNTERS;

/// The counters of a server. A client reads them from the server's memory, even while all threads that
/// execute procedures are stuck.
///
/// Every server that [describes](crate::Builder::describe) itself exports them as the segment `counters`.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use farcall::memory::Counters;
///
/// let counters = Counters::import(&farcall::Runtime::current()?, "127.0.0.1:7000".parse()?)?;
/// for export in counters.read()?.exports {
///     println!("{}: {} calls execute", export.name, export.running);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Counters(Remote);

impl Counters {
    /// Imports the counters of the server at this address.
    ///
    /// # Errors
    /// When no server answers there, or the server does not describe itself.
    pub fn import(runtime: &Runtime, address: SocketAddr) -> crate::Result<Counters> {
        runtime.import_segment(&format!("udp://{address}/{COUNTERS}")).map(Counters)
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// The errors of [`Memory::read`], and an error when the counters are in a format that this version does
    /// not know, or when none of 8 reads found them whole, because the server changed them meanwhile.
    pub fn read(&self) -> Result<Serving> {
        /// The size of the first read in bytes: more than most servers' counters take.
        const FIRST_BYTES: usize = 4 << 10;
        /// The maximum number of reads. A read fails to find a whole record if the server writes meanwhile,
        /// or if the record is longer than the read.
        const MAX_TRIES: usize = 8;
        let mut len = FIRST_BYTES;
        for _ in 0..MAX_TRIES {
            let mut bytes = vec![0; len.min(self.0.size() as usize)];
            self.0.read(0, &mut bytes)?;
            let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            match words::read(&words) {
                Record::Whole(serving) => return Ok(*serving),
                Record::Longer(words) => len = words.saturating_mul(8),
                Record::Torn => {}
                Record::Unknown => break,
            }
        }
        let why =
            "the server's counters are in a format that this version does not know, or changed meanwhile";
        Err(CallFailed::new(Kind::BadResult, Ran::Yes).because(why).into())
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

/// Reads a record of counters from arbitrary words, for the fuzz target.
#[doc(hidden)]
pub fn fuzz_counters(words: &[u64]) -> Option<usize> {
    match words::read(words) {
        Record::Whole(serving) => Some(serving.exports.len()),
        Record::Longer(_) | Record::Torn | Record::Unknown => None,
    }
}
