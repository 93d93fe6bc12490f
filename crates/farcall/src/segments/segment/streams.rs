//! Posted writes at the exporter: the streams of a segment, and how an answer tells how far one has come.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farcall_proto::server::HostName;
use farcall_proto::{Mutant, server};

use super::super::Result;
use super::super::access::{Posted, Refused};
use crate::Error;

/// The most streams of a segment that are remembered.
const MAX_STREAMS: usize = 1024;

/// The streams of one segment.
#[derive(Debug)]
pub(super) struct Streams(Mutex<server::Streams<Refused>>);

impl Default for Streams {
    fn default() -> Streams {
        Streams(Mutex::new(server::Streams::new(MAX_STREAMS, Mutant::NONE)))
    }
}

impl Streams {
    /// Opens a stream of that host, whose first write has the number 0.
    pub(super) fn open(&self, host: HostName) -> u64 {
        self.lock().open(host)
    }

    /// Does the write of that number, if it is the stream's next and none was refused.
    pub(super) fn post(&self, id: u64, number: u64, write: impl FnOnce() -> Result<()>) {
        self.lock().post(id, number, || match write() {
            Ok(()) => server::Write::Done,
            Err(Error::Declared(why)) => server::Write::Refused(why),
            Err(Error::CallFailed(_)) => server::Write::Nothing,
        });
    }

    /// How far it has come.
    pub(super) fn posted(&self, id: u64) -> Posted {
        match self.lock().posted(id) {
            Some((next, refused)) => Posted { next: Some(next), refused: refused.cloned() },
            None => Posted { next: None, refused: None },
        }
    }

    fn lock(&self) -> MutexGuard<'_, server::Streams<Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
