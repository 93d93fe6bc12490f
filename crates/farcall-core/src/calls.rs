//! A set of started calls, from which one thread takes the calls as they end.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::System;
use crate::env::{Env, Time};
use crate::stub::{PendingCall, poll_result};
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::Decode;
use crate::{Never, Pending, Result, self_wait};

/// A set of started calls, each with a key that the caller chooses. The caller takes the calls out as they
/// end.
///
/// The thread that [waits](Calls::wait) receives the replies itself; no other thread or task takes part. This
/// is the cheapest way to have many calls outstanding that end in any order.
///
/// ```
/// # #[farcall::interface]
/// # pub trait Echo { fn echo(&self, n: u64) -> farcall::Result<u64>; }
/// # struct Server;
/// # impl Echo for Server { fn echo(&self, n: u64) -> farcall::Result<u64> { Ok(n) } }
/// # fn main() -> farcall::Result<()> {
/// # let echo = farcall::stub::local::<dyn Echo>(std::sync::Arc::new(Server));
/// let mut calls = farcall::Calls::new();
/// for n in 0..10 {
///     calls.add(n, echo.start().echo(n));
/// }
/// while let Some((n, result)) = calls.wait() {
///     assert_eq!(result?, n);
/// }
/// # Ok(())
/// # }
/// ```
///
/// Dropping the set cancels the calls that have not ended.
pub struct Calls<K, T, E = Never> {
    /// The slots whose calls may have ended, and are to be polled.
    ready: ReadyList,
    /// The wait point of the first call under way. The thread waits there for all calls.
    wait_point: Option<Arc<dyn WaitPoint>>,
    /// Whether the wait point is one at which the thread only sleeps, because no call had one yet.
    sleeps: bool,
    /// Where the thread sleeps then.
    env: Arc<dyn Env>,
    /// The calls that have not ended, each in a slot.
    slots: Vec<Option<(K, Box<dyn PendingCall>)>>,
    /// The slots without a call.
    free: Vec<u32>,
    /// The calls that had ended when they were added.
    ended: VecDeque<(K, Result<T, E>)>,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<K, T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Calls<K, T, E> {
    /// Returns an empty set.
    pub fn new() -> Calls<K, T, E> {
        Calls::default()
    }

    /// Returns an empty set for a thread of this environment. While no call has been sent, the thread sleeps
    /// in it. [`new`](Calls::new) is for the operating system's own; in a simulation the set must know its
    /// own.
    pub fn in_env(env: Arc<dyn Env>) -> Calls<K, T, E> {
        Calls { env, ..Calls::default() }
    }

    /// Adds a call.
    pub fn add(&mut self, key: K, call: Pending<T, E>) {
        let Some(mut call) = call.into_call() else { return };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        // The first call decides where the thread waits. A call that failed before it was sent has no wait
        // point, so it does not decide.
        let decides = self.under_way() == 1 || self.sleeps;
        if decides && let Some(wait_point) = call.wait_point() {
            self.wait_point = Some(wait_point);
            if std::mem::take(&mut self.sleeps) {
                self.poll_again();
            }
        }
        let (sleeps, env) = (&mut self.sleeps, &self.env);
        let wait_point = self.wait_point.get_or_insert_with(|| {
            *sleeps = true;
            Arc::new(Parking::new(env.clone()))
        });
        match poll_result(|sink| call.poll_at(wait_point, &self.ready, slot, sink)) {
            Poll::Ready(result) => {
                self.free.push(slot);
                self.ended.push_back((key, result));
            }
            Poll::Pending => self.slots[slot as usize] = Some((key, call)),
        }
    }

    /// Blocks until a call has ended, and takes it out. Returns `None` if the set is empty.
    pub fn wait(&mut self) -> Option<(K, Result<T, E>)> {
        self.take_until(None)
    }

    /// Blocks until a call has ended, and takes it out. Returns `None` if the set is empty, or no call ends
    /// within `time`.
    pub fn wait_for(&mut self, time: Duration) -> Option<(K, Result<T, E>)> {
        let wait_point = self.wait_point.as_ref()?;
        let until = wait_point.now() + time;
        self.take_until(Some(until))
    }

    /// Takes out a call that has ended, if there is one. Does not block.
    pub fn try_next(&mut self) -> Option<(K, Result<T, E>)> {
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        // The error is ignored here. A thread that must not receive at this wait point gets the error when it
        // calls `wait`.
        let _ = self.wait_point.as_ref()?.look();
        self.take()
    }

    /// Returns the number of calls in the set, ended or not.
    pub fn len(&self) -> usize {
        self.under_way() + self.ended.len()
    }

    /// Returns whether the set has no calls.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_until(&mut self, until: Option<Time>) -> Option<(K, Result<T, E>)> {
        loop {
            if let Some(taken) = self.take() {
                return Some(taken);
            }
            if self.is_empty() {
                return None;
            }
            let wait_point = self.wait_point.as_ref()?;
            if until.is_some_and(|until| until <= wait_point.now()) {
                return None;
            }
            let stuck = || self.slots.iter().flatten().all(|(_, call)| call.waits_for_itself());
            if let Err(why) = self_wait::wait(&**wait_point, (&self.ready, 1), until, stuck) {
                let slot = self.slots.iter().position(Option::is_some)?;
                let (key, mut call) = self.remove(slot)?;
                call.cancel();
                return Some((key, Err(why.but_ran(crate::Ran::Maybe).into())));
            }
        }
    }

    /// Has all calls polled again, because the thread waits elsewhere from now on.
    fn poll_again(&self) {
        for (slot, call) in (0..).zip(&self.slots) {
            if call.is_some() {
                self.ready.token(slot).mark_ready();
            }
        }
    }

    /// Takes out a call that has ended, if there is one. Does not receive.
    fn take(&mut self) -> Option<(K, Result<T, E>)> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        while let Some(slot) = self.ready.take() {
            // The slot may have been marked for an earlier call, and be free.
            let (Some((_, call)), Some(wait_point)) = (&mut self.slots[slot as usize], &self.wait_point)
            else {
                continue;
            };
            let polled = poll_result(|sink| call.poll_at(wait_point, &self.ready, slot, sink));
            if let Poll::Ready(result) = polled {
                let (key, _) = self.remove(slot as usize)?;
                return Some((key, result));
            }
        }
        None
    }

    fn remove(&mut self, slot: usize) -> Option<(K, Box<dyn PendingCall>)> {
        let removed = self.slots[slot].take()?;
        self.free.push(slot as u32);
        Some(removed)
    }
}

impl<K, T, E> Calls<K, T, E> {
    fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<K, T, E> Default for Calls<K, T, E> {
    fn default() -> Calls<K, T, E> {
        Calls {
            ready: ReadyList::default(),
            wait_point: None,
            sleeps: false,
            env: Arc::new(System),
            slots: Vec::new(),
            free: Vec::new(),
            ended: VecDeque::new(),
            reply: PhantomData,
        }
    }
}

impl<K, T, E> fmt::Debug for Calls<K, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}
