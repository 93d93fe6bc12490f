//! A thread that waits for an outcome: where others leave it, and by what they wake it.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use farcall_proto::Failure;
use farcall_proto::client::Outcome;

use super::Peer;
use super::lead::Seat;
use super::lent::{Lent, Train};
use super::owners::Watcher;
use crate::env::{Env, Event, place};
use crate::guard;
use crate::wait::ReadyToken;
use crate::{CallFailed, Kind, Ran, depart};

/// How a call ended; its body is kept apart.
#[derive(Debug)]
pub(super) enum Ending {
    Result,
    Exception,
    Failed(Box<Failure>),
}

/// Bodies as long as that are kept in place, longer ones in a buffer.
const SHORT: usize = 64;

/// Bodies as long as that are not copied if they may stay where they arrived.
const LENDABLE: usize = 1 << 10;

/// Bodies longer than that have a buffer of their own.
const LARGE: usize = 64 << 10;

/// An outcome that waits to be fetched. The buffer of its body is used again and again.
#[derive(Debug)]
pub(super) struct Kept {
    ending: Option<Ending>,
    /// The body's length, which has 32 bits on the wire; up to [`SHORT`] it stands in `short`.
    len: u32,
    /// From which byte on it stands in `lent`, if there.
    at: u32,
    short: [u8; SHORT],
    long: Vec<u8>,
    lent: Option<Train>,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { ending: None, len: 0, at: 0, short: [0; SHORT], long: Vec::new(), lent: None }
    }
}

impl Kept {
    #[inline]
    pub(super) fn put(&mut self, outcome: Outcome<'_>) {
        self.put_into(outcome, &mut Vec::new(), None);
    }

    /// Keeps an outcome. Its body stays in its train, if there is one; else it goes into the room of the
    /// call's arguments, if there is no other: nobody needs those any more, unless the call failed.
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
            body if body.len() <= SHORT => self.short[..body.len()].copy_from_slice(&body),
            Cow::Owned(body) => self.long = body,
            Cow::Borrowed(body) => {
                if let Some(train) = train.filter(|_| body.len() >= LENDABLE)
                    && let Some(place) = place(train, body)
                {
                    (self.lent, self.at) = (Some(train.clone()), place.start as u32);
                    return;
                }
                // Not in much room: it would be held for as long as the thread, or the result, is.
                let room = arguments.capacity();
                if self.long.capacity() < body.len()
                    && room >= body.len()
                    && room <= LARGE.max(2 * body.len())
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

    /// These arguments.
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
        let body = match self.len as usize > LARGE {
            true => Cow::Owned(std::mem::take(&mut self.long)),
            false => Cow::Borrowed(self.body()),
        };
        Some(match ending {
            Ending::Result => Outcome::Result(body),
            Ending::Exception => Outcome::Exception(body),
            Ending::Failed(failure) => Outcome::Failed(*failure),
        })
    }

    fn body(&self) -> &[u8] {
        let (at, len) = (self.at as usize, self.len as usize);
        match &self.lent {
            _ if len <= SHORT => &self.short[..len],
            Some(train) => &train[at..at + len],
            None => &self.long,
        }
    }
}

/// A thread that waits, seen by the others.
pub(super) struct Waiter {
    event: Arc<dyn Event>,
    /// There is an outcome in `kept`.
    full: AtomicBool,
    kept: Mutex<Kept>,
}

impl Seat for Waiter {
    fn wake(&self) {
        self.event.set();
    }
}

impl Waiter {
    pub(super) fn new(env: &dyn Env) -> Arc<Waiter> {
        Arc::new(Waiter { event: env.event(), full: AtomicBool::new(false), kept: Mutex::default() })
    }

    /// Waits until somebody wakes it, perhaps without reason, or `most` has passed.
    pub(super) fn wait(&self, most: Option<Duration>) {
        self.event.wait(most);
    }

    pub(super) fn put(&self, outcome: Outcome<'_>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(outcome);
        self.full.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn has_outcome(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// What was put; nothing left.
    pub(super) fn take(&self) -> Kept {
        self.full.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives the buffer of what was taken back, unless it is a large one: a thread keeps it for ever.
    pub(super) fn give_back(&self, kept: Kept) {
        if kept.long.capacity() > LARGE {
            return;
        }
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}

/// What a thread needs to call, kept from one call to the next.
pub(super) struct Caller {
    env: Arc<dyn Env>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) tools: Tools,
    /// The thread was in a call already.
    nested: bool,
}

/// What sending and receiving need.
pub(super) struct Tools {
    /// Room for datagrams that leave.
    pub(super) out: Box<[u8]>,
    /// Room for the arguments of the next call.
    pub(super) arguments: Vec<u8>,
    /// How long the last arguments were that the thread called with.
    pub(super) usual_arguments: usize,
    /// Room for what arrives, once the thread has led.
    pub(super) buffer: Box<[u8]>,
    pub(super) lent: Lent,
    pub(super) wakes: Wakes,
    /// Room for the peers whose calls are sent.
    pub(super) peers: Vec<Arc<Peer>>,
}

impl Tools {
    pub(super) fn new() -> Tools {
        Tools {
            out: vec![0; depart::ROOM].into_boxed_slice(),
            arguments: Vec::new(),
            usual_arguments: 0,
            buffer: Box::default(),
            lent: Lent::default(),
            wakes: Wakes::default(),
            peers: Vec::new(),
        }
    }
}

/// One who is to be woken and is no thread.
pub(super) enum Other {
    Task(Waker),
    Gatherer(ReadyToken),
}

/// Whom to wake when no lock is held.
#[derive(Default)]
pub(super) struct Wakes {
    pub(super) waiters: Vec<Arc<Waiter>>,
    pub(super) others: Vec<Other>,
}

impl Wakes {
    #[inline]
    pub(super) fn add(&mut self, watcher: Watcher) {
        match watcher {
            Watcher::Nobody => {}
            Watcher::Thread(waiter) => self.waiters.push(waiter),
            Watcher::Task(waker) => self.others.push(Other::Task(waker)),
            Watcher::Gatherer(token) => self.others.push(Other::Gatherer(token)),
        }
    }

    #[inline]
    pub(super) fn run(&mut self) {
        if !self.waiters.is_empty() || !self.others.is_empty() {
            self.wake_all();
        }
    }

    /// How many tasks are among them.
    #[inline]
    pub(super) fn tasks(&self) -> usize {
        if self.others.is_empty() {
            return 0;
        }
        self.others.iter().filter(|other| matches!(other, Other::Task(_))).count()
    }

    fn wake_all(&mut self) {
        self.waiters.drain(..).for_each(|waiter| waiter.wake());
        for other in self.others.drain(..) {
            match other {
                // A panic in it is not that of the caller who happens to lead.
                Other::Task(waker) => guard::run_alone("a waker", || waker.wake()),
                Other::Gatherer(token) => guard::run_alone("a waker", || token.mark_ready_serving()),
            }
        }
    }
}

/// A type's decoding that panics in the leader must cost nobody else the word that its outcome is there.
impl Drop for Wakes {
    fn drop(&mut self) {
        self.run();
    }
}

thread_local! {
    static CALLER: Cell<Option<Box<Caller>>> = const { Cell::new(None) };
    /// There is a caller of this thread: if not in `CALLER`, then in a call.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

impl Caller {
    /// This thread's; a new one if it has none for this environment, or is in a call already (a
    /// waker, or a type's decoding, that starts a call).
    #[inline(always)]
    pub(super) fn take(env: &Arc<dyn Env>) -> Box<Caller> {
        match CALLER.try_with(Cell::take) {
            Ok(Some(caller)) if Arc::ptr_eq(&caller.env, env) => caller,
            Ok(other) => {
                drop(other);
                let nested = KNOWN.try_with(|known| known.replace(true)).unwrap_or(false);
                Caller::new(env, nested)
            }
            Err(_) => Caller::new(env, false),
        }
    }

    /// Takes the thread's caller in order to wait. A thread that is in a call already may be the one that
    /// receives for all others: if it waited in a second call, nobody would receive any more.
    #[inline(always)]
    pub(super) fn take_to_wait(env: &Arc<dyn Env>) -> Result<Box<Caller>, CallFailed> {
        crate::serving::may_wait()?;
        let caller = Caller::take(env);
        if !caller.nested {
            return Ok(caller);
        }
        let why =
            "no call can be waited for in a waker, or while a value is encoded or decoded: start it there";
        Err(CallFailed::new(Kind::Local, Ran::No).because(why))
    }

    /// As if this thread were in a call for ever: it receives for others, so that their wakers must not wait in it.
    pub(super) fn never_waits() {
        KNOWN.set(true);
    }

    /// Whether its thread was in a call already: it must not wait.
    #[inline(always)]
    pub(super) fn is_nested(&self) -> bool {
        self.nested
    }

    fn new(env: &Arc<dyn Env>, nested: bool) -> Box<Caller> {
        Box::new(Caller { env: env.clone(), waiter: Waiter::new(&**env), tools: Tools::new(), nested })
    }

    /// Keeps it for the thread's next call.
    #[inline(always)]
    pub(super) fn keep(self: Box<Self>) {
        if !self.nested {
            // Where the thread is ending it is dropped.
            let _ = CALLER.try_with(|place| place.set(Some(self)));
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.nested {
            let _ = KNOWN.try_with(|known| known.set(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_result_does_not_keep_the_room_of_long_arguments() {
        let body = [7; 100];
        let result = || Outcome::Result(Cow::Borrowed(&body));
        let (mut kept, mut arguments) = (Kept::default(), Vec::with_capacity(8 << 20));
        kept.put_into(result(), &mut arguments, None);
        assert!(kept.long.capacity() <= LARGE && arguments.capacity() >= 8 << 20);
        let (mut kept, mut arguments) = (Kept::default(), Vec::with_capacity(4096));
        kept.put_into(result(), &mut arguments, None);
        assert!(kept.long.capacity() >= 4096, "little room is used again");
        assert!(matches!(kept.take(), Some(Outcome::Result(taken)) if taken[..] == body));
    }
}
