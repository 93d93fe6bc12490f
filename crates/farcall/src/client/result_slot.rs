//! Where the outcome of a call stays until its caller fetches it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::receive_buffers::Train;
use crate::env::place;

/// How a call ended. The bytes of its result or exception are stored separately.
#[derive(Debug)]
pub(super) enum Ending {
    Result,
    Exception,
    Failed(Box<Failure>),
}

/// Longer bodies stand in a buffer, shorter ones in the outcome itself.
const MAX_INLINE_BYTES: usize = 64;

/// Bodies of at least so many bytes are not copied if they may stay where they arrived.
const MIN_SHARED_BYTES: usize = 1 << 10;

/// The largest buffer that is used again. Longer bodies have one of their own.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// An outcome that waits to be fetched. A `Waiter` uses one, and its buffer, for many calls.
#[derive(Debug)]
pub(super) struct BufferedOutcome {
    ending: Option<Ending>,
    /// The body's length, which has 32 bits on the wire. A body of at most [`MAX_INLINE_BYTES`] is in
    /// `short`.
    len: u32,
    /// Where the body begins in `lent`, if it is there.
    at: u32,
    short: [u8; MAX_INLINE_BYTES],
    long: Vec<u8>,
    lent: Option<Train>,
}

impl Default for BufferedOutcome {
    fn default() -> BufferedOutcome {
        BufferedOutcome {
            ending: None,
            len: 0,
            at: 0,
            short: [0; MAX_INLINE_BYTES],
            long: Vec::new(),
            lent: None,
        }
    }
}

impl BufferedOutcome {
    #[inline]
    pub(super) fn put(&mut self, outcome: Outcome<'_>) {
        self.put_into(outcome, &mut Vec::new(), None);
    }

    /// Keeps an outcome. A long body stays in the receive buffer if `train` is given. Otherwise it is copied
    /// to `long`. If `long` is too small, it takes over the buffer of `arguments`, which a call that
    /// succeeded no longer needs.
    #[inline]
    pub(super) fn put_into(&mut self, outcome: Outcome<'_>, arguments: &mut Vec<u8>, train: Option<&Train>) {
        let (ending, body) = match outcome {
            Outcome::Result(body) => (Ending::Result, body),
            Outcome::Exception(body) => (Ending::Exception, body),
            Outcome::Failed(failure) => (Ending::Failed(Box::new(failure)), Cow::Borrowed(&[][..])),
        };
        self.ending = Some(ending);
        self.len = body.len() as u32;
        match body {
            body if body.len() <= MAX_INLINE_BYTES => self.short[..body.len()].copy_from_slice(&body),
            Cow::Owned(body) => self.long = body,
            Cow::Borrowed(body) => {
                if let Some(train) = train.filter(|_| body.len() >= MIN_SHARED_BYTES)
                    && let Some(place) = place(train, body)
                {
                    (self.lent, self.at) = (Some(train.clone()), place.start as u32);
                    return;
                }
                // A very large buffer is not taken over: it would stay allocated as long as the thread or the
                // result lives.
                let room = arguments.capacity();
                if self.long.capacity() < body.len()
                    && room >= body.len()
                    && room <= MAX_KEPT_BYTES.max(2 * body.len())
                {
                    std::mem::swap(&mut self.long, arguments);
                }
                self.long.clear();
                self.long.extend_from_slice(body);
            }
        }
    }

    /// A failure has no body: the arguments of the call that failed stand in its place.
    pub(super) fn put_arguments(&mut self, arguments: &mut Vec<u8>) {
        if let Some(Ending::Failed(_)) = self.ending {
            self.long = std::mem::take(arguments);
        }
    }

    /// Takes the arguments that [`Self::put_arguments`] stored; empty if the call did not fail.
    #[inline]
    pub(super) fn take_arguments(&mut self) -> Vec<u8> {
        match self.ending {
            Some(Ending::Failed(_)) => std::mem::take(&mut self.long),
            _ => Vec::new(),
        }
    }

    /// The outcome, once. It borrows the body, or owns a large one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Outcome<'_>> {
        let ending = self.ending.take()?;
        let body = match self.len as usize > MAX_KEPT_BYTES {
            true => Cow::Owned(std::mem::take(&mut self.long)),
            false => Cow::Borrowed(self.body()),
        };
        Some(match ending {
            Ending::Result => Outcome::Result(body),
            Ending::Exception => Outcome::Exception(body),
            Ending::Failed(failure) => Outcome::Failed(*failure),
        })
    }

    /// Whether its buffer is so large that a thread does not keep it.
    pub(super) fn is_large(&self) -> bool {
        self.long.capacity() > MAX_KEPT_BYTES
    }

    fn body(&self) -> &[u8] {
        let (at, len) = (self.at as usize, self.len as usize);
        match &self.lent {
            _ if len <= MAX_INLINE_BYTES => &self.short[..len],
            Some(train) => &train[at..at + len],
            None => &self.long,
        }
    }
}

/// Where the outcome of a call that was started comes to.
#[derive(Default)]
pub(super) struct ResultSlot {
    /// The outcome; for a failed call, also its encoded arguments, so that the call can be repeated.
    kept: Mutex<BufferedOutcome>,
    over: AtomicBool,
}

/// Takes an outcome and, if the call failed, its encoded arguments.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(Outcome<'_>, &[u8]);

impl ResultSlot {
    /// The outcome has come.
    #[inline]
    pub(super) fn end(&self, outcome: Outcome<'_>, arguments: &mut Vec<u8>, train: Option<&Train>) {
        debug_assert!(!self.is_over(), "a call ends once");
        let mut kept = self.lock();
        kept.put_into(outcome, arguments, train);
        kept.put_arguments(arguments);
        drop(kept);
        self.over.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Gives the outcome, once, if it has come. `taker` runs under the lock, because nobody else needs the
    /// lock after the end.
    #[inline]
    pub(super) fn give(&self, taker: Taker<'_>) {
        let mut kept = self.lock();
        let arguments = kept.take_arguments();
        if let Some(outcome) = kept.take() {
            taker(outcome, &arguments);
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, BufferedOutcome> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_result_does_not_keep_the_room_of_long_arguments() {
        let body = [7; 100];
        let result = || Outcome::Result(Cow::Borrowed(&body));
        let (mut kept, mut arguments) = (BufferedOutcome::default(), Vec::with_capacity(8 << 20));
        kept.put_into(result(), &mut arguments, None);
        assert!(kept.long.capacity() <= MAX_KEPT_BYTES && arguments.capacity() >= 8 << 20);
        let (mut kept, mut arguments) = (BufferedOutcome::default(), Vec::with_capacity(4096));
        kept.put_into(result(), &mut arguments, None);
        assert!(kept.long.capacity() >= 4096, "little room is used again");
        assert!(matches!(kept.take(), Some(Outcome::Result(taken)) if taken[..] == body));
    }
}
