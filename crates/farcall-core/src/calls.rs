//! Started calls of which one thread waits for whichever ends first.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::env::Time;
use crate::stub::{PendingCall, decode_reply, no_reply};
use crate::wait::{Parking, ReadyList, WaitPoint};
use crate::xdr::Decode;
use crate::{Never, Pending, Result, System, self_wait};

/// Calls under way, each with a key of the caller's, to be taken out as they end.
///
/// The thread that [waits](Calls::wait) receives for them itself, and no other thread nor task has a part in it: the
/// cheapest way to have many calls outstanding whose ends come in no order.
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
/// Dropping it cancels what has not ended.
pub struct Calls<K, T, E = Never> {
    ready: ReadyList,
    /// Where they are waited for: where the first of those under way is.
    wait_point: Option<Arc<dyn WaitPoint>>,
    /// At their ready' places.
    under_way: Vec<Option<(K, Box<dyn PendingCall>)>>,
    free: Vec<u32>,
    /// Those that had ended when they were added.
    ended: VecDeque<(K, Result<T, E>)>,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<K, T: for<'a> Decode<'a>, E: for<'a> Decode<'a>> Calls<K, T, E> {
    /// None yet.
    pub fn new() -> Calls<K, T, E> {
        Calls::default()
    }

    /// Adds a call.
    pub fn add(&mut self, key: K, call: Pending<T, E>) {
        let Some(mut call) = call.into_call() else { return };
        let place = self.free.pop().unwrap_or_else(|| {
            self.under_way.push(None);
            self.under_way.len() as u32 - 1
        });
        // One that had failed when it was added is waited for nowhere, and must not say where the next ones are.
        let is_first = self.under_way.len() == self.free.len() + 1;
        if is_first && let Some(wait_point) = call.wait_point() {
            self.wait_point = Some(wait_point);
        }
        let wait_point = self.wait_point.get_or_insert_with(parking);
        match poll_at(&mut *call, wait_point, &self.ready, place) {
            Some(result) => {
                self.free.push(place);
                self.ended.push_back((key, result));
            }
            None => self.under_way[place as usize] = Some((key, call)),
        }
    }

    /// Blocks until one has ended, and takes it out; `None` if there is none.
    pub fn wait(&mut self) -> Option<(K, Result<T, E>)> {
        self.take_until(None)
    }

    /// As [`Calls::wait`], but no longer than that.
    pub fn wait_for(&mut self, time: Duration) -> Option<(K, Result<T, E>)> {
        let wait_point = self.wait_point.as_ref()?;
        let until = wait_point.now() + time;
        self.take_until(Some(until))
    }

    /// Takes one out that has ended, if there is one. Does not wait.
    pub fn try_next(&mut self) -> Option<(K, Result<T, E>)> {
        if let Some(taken) = self.take() {
            return Some(taken);
        }
        // Where this thread must not receive, it hears that from `wait`.
        let _ = self.wait_point.as_ref()?.look();
        self.take()
    }

    /// How many there are, those included that have ended.
    pub fn len(&self) -> usize {
        self.under_way.len() - self.free.len() + self.ended.len()
    }

    /// Whether there is none.
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
            let stuck = || self.under_way.iter().flatten().all(|(_, call)| call.waits_for_itself());
            if let Err(why) = self_wait::wait(&**wait_point, (&self.ready, 1), until, stuck) {
                let place = self.under_way.iter().position(Option::is_some)?;
                let (key, mut call) = self.remove(place)?;
                call.cancel();
                return Some((key, Err(why.but_ran(crate::Ran::Maybe).into())));
            }
        }
    }

    /// One that has ended, as far as this thread has heard.
    fn take(&mut self) -> Option<(K, Result<T, E>)> {
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        while let Some(place) = self.ready.take() {
            // Its bell may have been rung for the one that had the place before.
            let (Some((_, call)), Some(wait_point)) = (&mut self.under_way[place as usize], &self.wait_point)
            else {
                continue;
            };
            if let Some(result) = poll_at(&mut **call, wait_point, &self.ready, place) {
                let (key, _) = self.remove(place as usize)?;
                return Some((key, result));
            }
        }
        None
    }

    fn remove(&mut self, place: usize) -> Option<(K, Box<dyn PendingCall>)> {
        let removed = self.under_way[place].take()?;
        self.free.push(place as u32);
        Some(removed)
    }
}

/// The call's result if it has ended; else its bell is rung when it has.
fn poll_at<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
    call: &mut dyn PendingCall,
    wait_point: &Arc<dyn WaitPoint>,
    ready: &ReadyList,
    place: u32,
) -> Option<Result<T, E>> {
    let mut result = None;
    let polled = call.poll_at(wait_point, ready, place, &mut |reply| result = Some(decode_reply(reply)));
    polled.is_ready().then(|| result.unwrap_or_else(|| Err(no_reply().into())))
}

fn parking() -> Arc<dyn WaitPoint> {
    Arc::new(Parking::new(Arc::new(System)))
}

impl<K, T, E> Default for Calls<K, T, E> {
    fn default() -> Calls<K, T, E> {
        let (under_way, free, ended) = (Vec::new(), Vec::new(), VecDeque::new());
        Calls { ready: ReadyList::default(), wait_point: None, under_way, free, ended, reply: PhantomData }
    }
}

impl<K, T, E> fmt::Debug for Calls<K, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("under_way", &(self.under_way.len() - self.free.len()))
            .finish_non_exhaustive()
    }
}
