//! Posted writes at the exporter: each stream's are done in order, and once.
//!
//! A stream is opened by a call, so it is never opened twice, and what was posted to one that is forgotten is not done.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Result;
use super::access::Refused;
use crate::Error;

/// So many streams of a segment are remembered.
const MOST: usize = 1024;

/// The streams of one segment.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// The newest; numbers are not used again.
    newest: u64,
    /// The one used last in front.
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    /// The write that is to be done next: all before it were.
    next: u64,
    /// Why that one was not, and none will be.
    refused: Option<Refused>,
}

/// How far a stream has come.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Posted {
    /// The number of the first write that was not done; none if the stream was forgotten.
    pub(super) next: Option<u64>,
    /// Why that one was refused.
    pub(super) refused: Option<Refused>,
}

impl Streams {
    /// A new one, whose first write has the number 0. The one that was not used for longest may be forgotten for it.
    pub(super) fn open(&self) -> u64 {
        let mut open = self.lock();
        open.newest += 1;
        let stream = Stream { id: open.newest, next: 0, refused: None };
        open.streams.insert(0, stream);
        open.streams.truncate(MOST);
        open.newest
    }

    /// Does the write of that number, if it is the stream's next and none was refused.
    pub(super) fn post(&self, id: u64, number: u64, write: impl FnOnce() -> Result<()>) {
        let mut open = self.lock();
        let Some(stream) = open.find(id).filter(|stream| stream.next == number && stream.refused.is_none()) else {
            return;
        };
        match write() {
            Ok(()) => stream.next += 1,
            Err(Error::Declared(why)) => stream.refused = Some(why),
            Err(Error::CallFailed(_)) => {}
        }
    }

    /// How far it has come.
    pub(super) fn posted(&self, id: u64) -> Posted {
        match self.lock().find(id) {
            Some(stream) => Posted { next: Some(stream.next), refused: stream.refused.clone() },
            None => Posted { next: None, refused: None },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// The stream, which is the one used last from now on.
    fn find(&mut self, id: u64) -> Option<&mut Stream> {
        let place = self.streams.iter().position(|stream| stream.id == id)?;
        self.streams[..=place].rotate_right(1);
        self.streams.first_mut()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn writes_are_done_in_order_and_once() {
        let (streams, done) = (Streams::default(), RefCell::new(Vec::new()));
        let (one, other) = (streams.open(), streams.open());
        for (stream, number) in
            [(one, 1), (one, 0), (one, 0), (one, 2), (one, 1), (other, 0), (one, 2), (7, 0), (one, 1)]
        {
            streams.post(stream, number, || {
                done.borrow_mut().push((stream, number));
                Ok(())
            });
        }
        assert_eq!(done.into_inner(), [(one, 0), (one, 1), (other, 0), (one, 2)]);
        assert_eq!(streams.posted(one), Posted { next: Some(3), refused: None });
        assert_eq!(streams.posted(7), Posted { next: None, refused: None });
    }

    #[test]
    fn nothing_is_done_behind_what_was_refused() {
        let streams = Streams::default();
        let stream = streams.open();
        streams.post(stream, 0, || Err(Refused::Inhibited.into()));
        for number in [0, 1] {
            streams.post(stream, number, || unreachable!("it comes behind"));
        }
        assert_eq!(streams.posted(stream), Posted { next: Some(0), refused: Some(Refused::Inhibited) });
    }

    #[test]
    fn the_stream_that_was_not_used_for_longest_is_forgotten() {
        let streams = Streams::default();
        let (first, second) = (streams.open(), streams.open());
        for _ in 2..MOST {
            streams.open();
        }
        streams.post(first, 0, || Ok(()));
        streams.open();
        assert_eq!((streams.posted(first).next, streams.posted(second).next), (Some(1), None));
        streams.post(second, 0, || unreachable!("it is forgotten"));
    }
}
