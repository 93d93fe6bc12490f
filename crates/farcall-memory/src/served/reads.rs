//! Started reads of a segment of another process. They share packets while many are under way.
//!
//! A started read joins the open batch. The batch is sent when it has at least half as many reads as are
//! under way, when it fills a packet, or when the caller waits for one of its reads. So a single read is sent
//! at once, the importer and the exporter both always have work, and many reads share the cost of a packet.
//! (This is Nagle's algorithm, RFC 896, with reads instead of bytes.)

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;

use super::{other_length, refuse};
use crate::Result;
use crate::access::{READ, Refused};
use farcall_core::context::Set;
use farcall_core::env::Env;
use farcall_core::stub::{Binding, PendingCall, Reply, Sink, decode_reply};
use farcall_core::xdr::{Decoder, Encode, Encoder};
use farcall_core::{CallFailed, Error, Kind, Pending, Ran, guard, lock};

/// The started reads of one import.
pub(super) struct Reads {
    env: Arc<dyn Env>,
    binding: Binding,
    generation: u64,
    open: Mutex<Option<Arc<Batch>>>,
    /// How many reads were sent and have no outcome yet.
    under_way: Arc<AtomicUsize>,
}

/// The most reads of a batch.
const MAX_BATCH_READS: usize = 64;
/// The most bytes of a batch of several reads. They fit the smallest datagram.
const MAX_BATCH_BYTES: usize = 1_000;

/// The most bytes of a read whose result is passed on without an allocation.
const MAX_SHORT_READ_BYTES: usize = 64;

/// Reads that are sent together.
struct Batch {
    under_way: Arc<AtomicUsize>,
    stage: Mutex<Stage>,
    /// Wakers of the tasks and threads that wait for the batch.
    wakers: Mutex<Vec<Waker>>,
}

enum Stage {
    /// Reads may be added.
    Open { ranges: Vec<(u64, u32)>, bytes: usize },
    /// The batch was sent. `call` is `None` while a thread starts the call or waits for it.
    Sent { call: Option<Box<dyn PendingCall>>, reads: usize },
    /// The batch is over: the bytes of all reads, or why they failed.
    Over(Result<Bytes>),
}

impl Reads {
    pub(super) fn new(env: Arc<dyn Env>, binding: Binding, generation: u64) -> Arc<Reads> {
        Arc::new(Reads { env, binding, generation, open: Mutex::default(), under_way: Arc::default() })
    }

    /// Starts a read.
    pub(super) fn start(self: &Arc<Self>, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        let (mut filled, mut due) = (None, None);
        let part = {
            let mut open = lock(&self.open);
            let mut added = open.as_ref().and_then(|batch| batch.add(offset, len));
            if added.is_none() {
                filled = open.replace(Arc::new(Batch::new(self.under_way.clone())));
                added = open.as_ref().and_then(|batch| batch.add(offset, len));
            }
            let (Some(batch), Some((at, reads, full))) = (&*open, added) else {
                unreachable!("an empty batch has room")
            };
            let part = Part { reads: self.clone(), batch: batch.clone(), at, len: len as usize };
            if full || reads * 2 >= self.under_way.load(Ordering::Relaxed) {
                due = open.take();
            }
            part
        };
        // Batches are sent with nothing locked, because interceptors may start reads of this import.
        filled.into_iter().chain(due).for_each(|batch| batch.send(self));
        Pending::new(Box::new(part))
    }

    /// Sends the batch if it is the open one.
    fn send(&self, batch: &Arc<Batch>) {
        let unsent = lock(&self.open).take_if(|open| Arc::ptr_eq(open, batch));
        unsent.inspect(|batch| batch.send(self));
    }
}

impl Batch {
    fn new(under_way: Arc<AtomicUsize>) -> Batch {
        let stage = Stage::Open { ranges: Vec::with_capacity(MAX_BATCH_READS / 4), bytes: 0 };
        Batch { under_way, stage: Mutex::new(stage), wakers: Mutex::default() }
    }

    /// Adds a read if there is room. Returns the offset of its bytes in the result, the number of reads, and
    /// whether the batch is full.
    fn add(&self, offset: u64, len: u32) -> Option<(usize, usize, bool)> {
        let Stage::Open { ranges, bytes } = &mut *lock(&self.stage) else { return None };
        let at = *bytes;
        if !ranges.is_empty() && at + len as usize > MAX_BATCH_BYTES {
            return None;
        }
        ranges.push((offset, len));
        *bytes += len as usize;
        Some((at, ranges.len(), ranges.len() >= MAX_BATCH_READS || *bytes >= MAX_BATCH_BYTES))
    }

    /// Sends the batch.
    fn send(&self, reads: &Reads) {
        let ranges = {
            let mut stage = lock(&self.stage);
            let Stage::Open { ranges, .. } = &mut *stage else { return };
            let ranges = std::mem::take(ranges);
            *stage = Stage::Sent { call: None, reads: ranges.len() };
            ranges
        };
        self.under_way.fetch_add(ranges.len(), Ordering::Relaxed);
        let unstarted = Unstarted(self);
        let Reads { binding, generation, .. } = reads;
        let pending = binding.start::<Bytes, Refused>(&READ, &|e| {
            e.u64(*generation)?;
            ranges.iter().try_for_each(|range| range.encode(e))
        });
        std::mem::forget(unstarted);
        if let Stage::Sent { call, .. } = &mut *lock(&self.stage) {
            *call = pending.into_call();
        }
        // Threads and tasks that began to wait while the call was being started are woken, because they had
        // no call to wait for.
        self.wake_all();
    }

    /// Blocks until the batch is over.
    fn wait(self: &Arc<Self>, reads: &Reads) {
        reads.send(self);
        loop {
            let call = match &mut *lock(&self.stage) {
                Stage::Over(_) => return,
                Stage::Sent { call, .. } => call.take(),
                Stage::Open { .. } => None,
            };
            if let Some(call) = call {
                let mut outcome = None;
                call.wait(&mut |reply| outcome = Some(decode_reply(reply)));
                return self.end(outcome);
            }
            let event = reads.env.event();
            self.add_waker(&Waker::from(Arc::new(Set(event.clone()))));
            if !self.can_proceed() {
                event.wait(None);
            }
        }
    }

    /// Returns whether the batch is over. If not, the task will be woken when the batch is over.
    fn poll(self: &Arc<Self>, reads: &Reads, context: &Context<'_>) -> bool {
        reads.send(self);
        self.add_waker(context.waker());
        let mut outcome = None;
        match &mut *lock(&self.stage) {
            Stage::Over(_) => return true,
            Stage::Sent { call: Some(call), .. } => {
                let waker = Waker::from(self.clone());
                let mut context = Context::from_waker(&waker);
                if call.poll(&mut context, &mut |reply| outcome = Some(decode_reply(reply))).is_pending() {
                    return false;
                }
            }
            // The thread that waits for the call will wake the task.
            _ => return false,
        }
        self.end(outcome);
        true
    }

    fn add_waker(&self, waker: &Waker) {
        let mut wakers = lock(&self.wakers);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// Returns whether a waiting thread can go on: the batch is over, or no other thread waits for its call.
    fn can_proceed(&self) -> bool {
        matches!(&*lock(&self.stage), Stage::Over(_) | Stage::Sent { call: Some(_), .. })
    }

    /// Ends the batch with the outcome of its call.
    fn end(&self, outcome: Option<Result<Bytes>>) {
        let outcome = outcome.unwrap_or_else(|| Err(farcall_core::stub::no_reply().into()));
        if let Stage::Sent { reads, .. } = std::mem::replace(&mut *lock(&self.stage), Stage::Over(outcome)) {
            self.under_way.fetch_sub(reads, Ordering::Relaxed);
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        for waker in std::mem::take(&mut *lock(&self.wakers)) {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    /// Passes the outcome of one read to the sink if the batch is over. Returns whether the batch is over.
    fn give(&self, at: usize, len: usize, sink: Sink<'_>) -> bool {
        let stage = lock(&self.stage);
        let Stage::Over(outcome) = &*stage else { return false };
        match outcome {
            Ok(bytes) => {
                let Some(bytes) = bytes.get(at..at + len) else {
                    sink(Reply::Failed(other_length(at + len, bytes.len())));
                    return true;
                };
                // The bytes are encoded as opaque data, like the result of a single read.
                let mut short = [0; 4 + MAX_SHORT_READ_BYTES];
                if len <= MAX_SHORT_READ_BYTES {
                    short[..4].copy_from_slice(&(len as u32).to_be_bytes());
                    short[4..4 + len].copy_from_slice(bytes);
                    sink(Reply::Result(Decoder::new(&short[..4 + len.next_multiple_of(4)])));
                    return true;
                }
                let mut encoded = Vec::new();
                match bytes.encode(&mut Encoder::new(&mut encoded)) {
                    Ok(()) => sink(Reply::Result(Decoder::new(&encoded))),
                    Err(why) => sink(Reply::Failed(farcall_core::stub::bad_arguments(why))),
                }
            }
            Err(Error::Declared(refused)) => refuse(refused, sink),
            Err(Error::CallFailed(why)) => sink(Reply::Failed(why.clone())),
        }
        true
    }
}

/// Ends a batch whose call could not be started, because an interceptor panicked.
struct Unstarted<'a>(&'a Batch);

impl Drop for Unstarted<'_> {
    fn drop(&mut self) {
        let why =
            CallFailed::new(Kind::Other, Ran::No).because("the call of a batch of reads was not started");
        self.0.end(Some(Err(why.into())));
    }
}

/// Wakes all tasks and threads that wait for a batch, because its call may have ended.
impl Wake for Batch {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let stage = self.stage.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Sent { reads, .. } = stage {
            self.under_way.fetch_sub(*reads, Ordering::Relaxed);
        }
    }
}

/// One read of a batch.
struct Part {
    reads: Arc<Reads>,
    batch: Arc<Batch>,
    at: usize,
    len: usize,
}

impl PendingCall for Part {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        while !self.batch.give(self.at, self.len, sink) {
            self.batch.wait(&self.reads);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        if !self.batch.poll(&self.reads, context) {
            return Poll::Pending;
        }
        self.batch.give(self.at, self.len, sink);
        Poll::Ready(())
    }

    /// Does nothing, because the batch's other reads go on.
    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_core::System;
    use farcall_core::stub::{Call, Channel};
    use std::sync::{OnceLock, Weak};

    /// A server that cannot be reached.
    struct Unreachable;

    impl Channel for Unreachable {
        fn call(&self, _: Call<'_>, sink: Sink<'_>) {
            sink(Reply::Failed(CallFailed::new(Kind::Unreachable, Ran::No)));
        }

        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(CallFailed::new(Kind::Unreachable, Ran::No))
        }
    }

    #[test]
    fn reads_that_nobody_waits_for_keep_nothing_alive() {
        let reads = Reads::new(Arc::new(System), Binding::new(Arc::new(Unreachable)), 1);
        let alive = Arc::downgrade(&reads);
        let pending: Vec<_> = (0..10).map(|i| reads.start(i, 1)).collect();
        assert!(lock(&reads.open).is_some(), "the last of them wait for others");
        drop((pending, reads));
        assert!(alive.upgrade().is_none());
    }

    /// An interceptor that starts a read of the same import before the first call leaves, or panics.
    #[derive(Default)]
    struct Intercepted(OnceLock<Weak<Reads>>, Mutex<Option<Pending<Bytes, Refused>>>, Mutex<bool>);

    impl Channel for Intercepted {
        fn call(&self, _: Call<'_>, sink: Sink<'_>) {
            sink(Reply::Failed(CallFailed::new(Kind::Unreachable, Ran::No)));
        }

        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            let Some(reads) = self.0.get().and_then(Weak::upgrade) else { panic!("as the test wants") };
            let first = !std::mem::replace(&mut *lock(&self.2), true);
            if first {
                let started = reads.start(8, 4);
                *lock(&self.1) = Some(started);
            }
            Box::new(CallFailed::new(Kind::Unreachable, Ran::No))
        }
    }

    #[test]
    fn an_interceptor_may_start_a_read_of_the_same_import() {
        let channel = Arc::new(Intercepted::default());
        let reads = Reads::new(Arc::new(System), Binding::new(channel.clone()), 1);
        let _ = channel.0.set(Arc::downgrade(&reads));
        assert!(reads.start(0, 4).wait().is_err());
        assert!(lock(&channel.1).take().is_some());
    }

    #[test]
    fn a_batch_that_panics_when_it_is_started_ends_for_all_its_reads() {
        let reads = Reads::new(Arc::new(System), Binding::new(Arc::new(Intercepted::default())), 1);
        reads.under_way.store(100, Ordering::Relaxed);
        let (first, second) = (reads.start(0, 4), reads.start(4, 4));
        assert!(guard::run(|| first.wait()).is_err(), "the thread that starts the call meets the panic");
        assert!(matches!(second.wait(), Err(Error::CallFailed(why)) if why.ran() == Ran::No));
    }

    #[test]
    fn each_read_of_a_packet_gets_its_failure() {
        let reads = Reads::new(Arc::new(System), Binding::new(Arc::new(Unreachable)), 1);
        let pending: Vec<_> = (0..10).map(|i| reads.start(i, 1)).collect();
        for pending in pending {
            assert!(matches!(pending.wait(), Err(Error::CallFailed(why)) if why.kind() == Kind::Unreachable));
        }
        assert_eq!(reads.under_way.load(Ordering::Relaxed), 0);
    }
}
