//! Started accesses whose results are deposited in segments of this process.
//!
//! Reads join a batch, which is sent as one call, by the rule of [`reads`](super::reads): when it has at
//! least half as many reads as are under way, when it fills a packet, or when the caller waits for one of its
//! reads. A batch is also sent when nothing is under way any more, because perhaps nobody waits.
//!
//! The thread that receives the result of a batch deposits it. Where the channel can, a batch is the
//! [recipient](Recipient) of its reply, and allocates nothing: batches are used again. Otherwise the batch
//! wakes itself, as the waker of its call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use super::{no_result, other_length};
use crate::Result;
use crate::access::{COMPARE_AND_SWAP, READ, Refused};
use crate::deposit::{Deposit, DepositTarget, StartedDeposits, dropped};
use farcall_core::context::Set;
use farcall_core::env::Env;
use farcall_core::stub::{
    Arrivals, Arrived, Binding, CallKey, CarriedBy, PendingCall, Procedure, Recipient, Reply, decode_reply,
    no_reply,
};
use farcall_core::xdr::Decoder;
use farcall_core::{CallFailed, Kind, Ran, guard, lock};

/// The deposits of one import.
pub(super) struct Deposits {
    env: Arc<dyn Env>,
    binding: Binding,
    /// Whether the binding has a deadline.
    timed: bool,
    generation: u64,
    batches: Mutex<Batches>,
    /// How many reads were sent and have no outcome yet.
    under_way: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Batches {
    /// The batch to which reads may be added.
    open: Option<Arc<Batch>>,
    /// Batches that were sent, the latest last. One that nothing refers to any more is used again.
    sent: VecDeque<Arc<Batch>>,
}

/// The most batches that are kept to be used again.
const MAX_KEPT_BATCHES: usize = 128;
/// The most reads of a batch.
const MAX_BATCH_READS: usize = 64;
/// The most bytes of a batch of several reads. They fit the smallest datagram.
const MAX_BATCH_BYTES: usize = 1_000;

/// Accesses that are sent together.
struct Batch {
    state: Mutex<BatchState>,
    binding: Binding,
    timed: bool,
    env: Arc<dyn Env>,
    /// The import's deposits. An import that was dropped needs no further batches.
    deposits: Weak<Deposits>,
    under_way: Arc<AtomicUsize>,
}

struct BatchState {
    stage: Stage,
    procedure: &'static Procedure,
    /// The encoded arguments.
    arguments: Vec<u8>,
    /// The accesses, until the result was deposited.
    parts: Vec<Part>,
    /// The accesses whose result was dropped, a bit each.
    dropped: u64,
    /// The number of accesses that were sent.
    sent: usize,
    /// The length of the result, without what encodes it.
    bytes: usize,
    /// Wakers of the tasks and threads that wait for the batch.
    wakers: Vec<Waker>,
}

/// One access of a batch.
struct Part {
    at: usize,
    len: usize,
    target: DepositTarget,
}

enum Stage {
    /// Reads may be added.
    Open,
    /// A thread starts the call or polls it. `again` says whether it must be polled once more.
    Busy {
        again: bool,
    },
    /// The batch is the recipient of its reply. `waited` says whether a thread waits at the channel.
    Arriving {
        at: Arc<dyn Arrivals>,
        call: CallKey,
        waited: bool,
    },
    /// The call was started in the ordinary way.
    Called(Box<dyn PendingCall>),
    /// The reply was a failure. The call is to be started in the ordinary way.
    Lost,
    Over(Result<()>),
}

impl Deposits {
    /// Returns the deposits by a binding. `timed` says whether the binding has a deadline.
    pub(super) fn new(
        env: Arc<dyn Env>,
        (binding, timed): (Binding, bool),
        generation: u64,
    ) -> Arc<Deposits> {
        let (batches, under_way) = Default::default();
        Arc::new(Deposits { env, binding, timed, generation, batches, under_way })
    }

    /// Starts a read.
    pub(super) fn start_read(self: &Arc<Self>, offset: u64, len: usize, target: DepositTarget) -> Deposit {
        let (mut filled, mut due) = (None, None);
        let (batch, which) = {
            let batches = &mut *lock(&self.batches);
            if batches.open.as_ref().is_some_and(|open| !open.has_room(len)) {
                filled = batches.open.take();
            }
            let batch = match &batches.open {
                Some(open) => open.clone(),
                None => batches.open.insert(self.new_batch(&mut batches.sent)).clone(),
            };
            let (which, full) = batch.add(offset, len, target);
            if full || (which + 1) * 2 >= self.under_way.load(Ordering::Relaxed) {
                due = batches.open.take();
            }
            (batch, which)
        };
        // Batches are sent with nothing locked, because interceptors may start reads of this import.
        filled.into_iter().chain(due).for_each(|batch| self.send(&batch));
        Deposit::started(batch, which)
    }

    /// Starts a compare and swap, in a call of its own.
    pub(super) fn start_swap(
        self: &Arc<Self>,
        offset: u64,
        (old, new): (u64, u64),
        target: DepositTarget,
    ) -> Deposit {
        let batch = self.new_batch(&mut lock(&self.batches).sent);
        {
            let mut state = lock(&batch.state);
            state.procedure = &COMPARE_AND_SWAP;
            let words = [offset, old, new];
            words.iter().for_each(|word| state.arguments.extend_from_slice(&word.to_be_bytes()));
            state.parts.push(Part { at: 0, len: size_of::<u64>(), target });
            state.bytes = size_of::<u64>();
        }
        self.send(&batch);
        Deposit::started(batch, 0)
    }

    /// Returns an empty batch.
    fn new_batch(self: &Arc<Self>, sent: &mut VecDeque<Arc<Batch>>) -> Arc<Batch> {
        if let Some(mut oldest) = sent.pop_front() {
            if let Some(batch) = Arc::get_mut(&mut oldest) {
                batch.renew(self.generation);
                return oldest;
            }
            if sent.len() < MAX_KEPT_BATCHES {
                sent.push_back(oldest);
            }
        }
        let state = Mutex::new(BatchState {
            stage: Stage::Open,
            procedure: &READ,
            arguments: Vec::new(),
            parts: Vec::new(),
            dropped: 0,
            sent: 0,
            bytes: 0,
            wakers: Vec::new(),
        });
        let (binding, deposits) = (self.binding.clone(), Arc::downgrade(self));
        let (env, under_way) = (self.env.clone(), self.under_way.clone());
        let mut batch = Batch { state, binding, timed: self.timed, env, deposits, under_way };
        batch.renew(self.generation);
        Arc::new(batch)
    }

    /// Sends a batch, and keeps it to be used again.
    fn send(&self, batch: &Arc<Batch>) {
        batch.send();
        lock(&self.batches).sent.push_back(batch.clone());
    }

    /// Sends the batch if it is the open one.
    fn send_if_open(&self, batch: &Arc<Batch>) {
        let unsent = lock(&self.batches).open.take_if(|open| Arc::ptr_eq(open, batch));
        unsent.inspect(|batch| self.send(batch));
    }
}

/// Sends the reads that nobody waited for.
impl Drop for Deposits {
    fn drop(&mut self) {
        let open = lock(&self.batches).open.take();
        open.inspect(Batch::send);
    }
}

/// Sends the open batch, because nothing is under way whose end would send it.
impl Wake for Deposits {
    fn wake(self: Arc<Self>) {
        let open = lock(&self.batches).open.take();
        open.inspect(|batch| self.send(batch));
    }
}

impl BatchState {
    /// Returns the outcome of an access, if the batch is over.
    fn outcome(&self, which: usize) -> Option<Result<()>> {
        let Stage::Over(outcome) = &self.stage else { return None };
        Some(if self.dropped & 1 << which == 0 { outcome.clone() } else { Err(dropped().into()) })
    }
}

impl Batch {
    /// Makes the batch empty.
    fn renew(&mut self, generation: u64) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        (state.stage, state.procedure) = (Stage::Open, &READ);
        (state.dropped, state.bytes) = (0, 0);
        state.arguments.clear();
        state.arguments.extend_from_slice(&generation.to_be_bytes());
        state.parts.clear();
        state.wakers.clear();
    }

    /// Returns whether a read can be added.
    fn has_room(&self, len: usize) -> bool {
        let state = lock(&self.state);
        state.parts.is_empty() || state.bytes + len <= MAX_BATCH_BYTES
    }

    /// Adds a read. Returns its index, and whether the batch is full.
    fn add(&self, offset: u64, len: usize, target: DepositTarget) -> (usize, bool) {
        let state = &mut *lock(&self.state);
        state.arguments.extend_from_slice(&offset.to_be_bytes());
        state.arguments.extend_from_slice(&(len as u32).to_be_bytes());
        state.parts.push(Part { at: state.bytes, len, target });
        state.bytes += len;
        let reads = state.parts.len();
        (reads - 1, reads >= MAX_BATCH_READS || state.bytes >= MAX_BATCH_BYTES)
    }

    /// Sends the batch.
    fn send(self: &Arc<Self>) {
        let (procedure, arguments, parts) = {
            let mut state = lock(&self.state);
            state.stage = Stage::Busy { again: false };
            state.sent = state.parts.len();
            (state.procedure, std::mem::take(&mut state.arguments), state.sent)
        };
        self.under_way.fetch_add(parts, Ordering::Relaxed);
        let unstarted = Unstarted(self);
        // A recipient's call has no deadline.
        let arriving = match procedure.idempotent && !self.timed {
            true => self.binding.channel().start_for(procedure, &arguments, self.clone()),
            // Only a read may be made again when its reply is a failure.
            false => None,
        };
        let stage = match arriving {
            Some((at, call)) => Stage::Arriving { at, call, waited: false },
            None => self.start_call(procedure, &arguments),
        };
        std::mem::forget(unstarted);
        let (is_called, wakers) = {
            let state = &mut *lock(&self.state);
            state.arguments = arguments;
            // The reply may have come already.
            let is_called = matches!(stage, Stage::Called(_)) || matches!(state.stage, Stage::Lost);
            if let Stage::Busy { .. } = state.stage {
                state.stage = stage;
            }
            (is_called, std::mem::take(&mut state.wakers))
        };
        // Threads and tasks that began to wait while the call was being started had no call to wait for.
        wake_all(wakers);
        if is_called {
            self.progress();
        }
    }

    /// Starts the call in the ordinary way.
    fn start_call(&self, procedure: &Procedure, arguments: &[u8]) -> Stage {
        // The length of the arguments is a multiple of four, so `opaque` adds no padding to them.
        let pending = self.binding.start::<(), Refused>(procedure, &|e| e.opaque(arguments));
        match pending.into_call() {
            Some(call) => Stage::Called(call),
            None => Stage::Over(Err(no_reply().into())),
        }
    }

    /// Polls a call that was started in the ordinary way, and starts it first if its reply as a recipient was
    /// a failure. If the call is not over, this batch will be woken.
    fn progress(self: &Arc<Self>) {
        loop {
            let (stage, procedure, arguments) = {
                let state = &mut *lock(&self.state);
                let arguments = match &mut state.stage {
                    Stage::Called(_) => Vec::new(),
                    Stage::Lost if !state.arguments.is_empty() => std::mem::take(&mut state.arguments),
                    Stage::Busy { again } => {
                        *again = true;
                        return;
                    }
                    _ => return,
                };
                let stage = std::mem::replace(&mut state.stage, Stage::Busy { again: false });
                (stage, state.procedure, arguments)
            };
            let unstarted = Unstarted(self);
            let stage = match stage {
                Stage::Lost => self.start_call(procedure, &arguments),
                called => called,
            };
            std::mem::forget(unstarted);
            let Stage::Called(mut call) = stage else { return self.end(Err(no_reply().into())) };
            let (waker, mut ended) = (Waker::from(self.clone()), None);
            let (mut context, mut woken) = (Context::from_waker(&waker), Vec::new());
            let polled =
                call.poll(&mut context, &mut |reply| ended = Some(self.deposit_reply(reply, &mut woken)));
            wake_all(woken);
            if polled.is_ready() {
                return self.end(ended.unwrap_or_else(|| Err(no_reply().into())));
            }
            let mut state = lock(&self.state);
            let former = std::mem::replace(&mut state.stage, Stage::Called(call));
            if !matches!(former, Stage::Busy { again: true }) {
                return;
            }
        }
    }

    /// Goes on with the call: in this thread, which receives for others, unless that may run code of the
    /// user's.
    fn go_on(self: &Arc<Self>) {
        let channel = self.binding.channel();
        if channel.carried_by() == CarriedBy::Any {
            return self.progress();
        }
        if self.ended() {
            return;
        }
        let batch = self.clone();
        // If no thread can be started, the result is deposited when a thread or a task waits for it.
        let _ = channel.env().spawn("farcall-deposit", Box::new(move || batch.progress()));
    }

    /// Deposits a result. Returns how the accesses ended.
    fn deposit_reply(&self, reply: Reply<'_>, woken: &mut Vec<Waker>) -> Result<()> {
        let mut result = match reply {
            Reply::Result(result) | Reply::ResultOf(result, _) => result,
            reply => return decode_reply::<(), Refused>(reply),
        };
        let state = &mut *lock(&self.state);
        let former;
        let bytes = match state.procedure.number == READ.number {
            true => result.bytes().map_err(no_result)?,
            false => {
                // Words are little-endian in memory.
                former = result.u64().map_err(no_result)?.to_le_bytes();
                &former
            }
        };
        if bytes.len() != state.bytes {
            return Err(other_length(state.bytes, bytes.len()).into());
        }
        for (which, Part { at, len, target }) in state.parts.drain(..).enumerate() {
            match target.deposit(0, &bytes[at..at + len]) {
                Ok(()) => target.notify(len, woken),
                Err(_) => state.dropped |= 1 << which,
            }
        }
        Ok(())
    }

    /// Ends the batch, and wakes all that wait for it. Holds no lock.
    fn end(&self, outcome: Result<()>) {
        let (mut wakers, deposits) = self.finish(outcome);
        wake_all(std::mem::take(&mut wakers));
        if let Some(deposits) = deposits {
            deposits.wake();
        }
    }

    /// Ends the batch. Returns the wakers of all that wait for it, and the import's deposits if its open
    /// batch is to be sent.
    fn finish(&self, outcome: Result<()>) -> (Vec<Waker>, Option<Arc<Deposits>>) {
        let (wakers, ended) = {
            let state = &mut *lock(&self.state);
            if let Stage::Over(_) = state.stage {
                return (Vec::new(), None);
            }
            state.stage = Stage::Over(outcome);
            state.parts.clear();
            (std::mem::take(&mut state.wakers), state.sent)
        };
        let left = self.under_way.fetch_sub(ended, Ordering::Relaxed) - ended;
        let deposits = if left == 0 { self.deposits.upgrade() } else { None };
        (wakers, deposits.filter(|deposits| lock(&deposits.batches).open.is_some()))
    }

    fn add_waker(&self, waker: &Waker) {
        let wakers = &mut lock(&self.state).wakers;
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn ended(&self) -> bool {
        matches!(lock(&self.state).stage, Stage::Over(_))
    }

    /// Returns whether a waiting thread can go on: the batch is over, or no thread waits at the channel.
    fn can_proceed(&self) -> bool {
        let stage = &lock(&self.state).stage;
        matches!(stage, Stage::Over(_) | Stage::Arriving { waited: false, .. })
    }
}

impl Recipient for Batch {
    fn arrived(self: Arc<Self>, reply: Arrived<'_>, wake: &mut dyn FnMut(Waker)) {
        let reply = match reply {
            Arrived::Result(result) => Reply::Result(Decoder::new(result)),
            Arrived::Exception(exception) => Reply::Exception(Decoder::new(exception)),
            Arrived::Failed => {
                lock(&self.state).stage = Stage::Lost;
                return wake(Waker::from(self));
            }
        };
        let mut woken = Vec::new();
        let outcome = self.deposit_reply(reply, &mut woken);
        let (wakers, deposits) = self.finish(outcome);
        let deposits = deposits.map(Waker::from);
        woken.into_iter().chain(wakers).chain(deposits).for_each(wake);
    }
}

/// Goes on with the call, because it may be over, and wakes all tasks and threads that wait for the batch.
impl Wake for Batch {
    fn wake(self: Arc<Self>) {
        self.go_on();
        let wakers = std::mem::take(&mut lock(&self.state).wakers);
        wake_all(wakers);
    }
}

/// Ends a batch whose call could not be started, because an interceptor panicked.
struct Unstarted<'a>(&'a Batch);

impl Drop for Unstarted<'_> {
    fn drop(&mut self) {
        let why =
            CallFailed::new(Kind::Other, Ran::No).because("the call of a batch of deposits was not started");
        self.0.end(Err(why.into()));
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        guard::run_alone("a waker", || waker.wake());
    }
}

/// What a thread does to wait for a batch.
enum Turn {
    /// Nothing more: the access has ended so.
    Over(Result<()>),
    /// It waits at the channel.
    Channel(Arc<dyn Arrivals>, CallKey),
    /// It waits until the batch wakes it.
    Event,
}

impl StartedDeposits for Batch {
    fn is_over(&self) -> bool {
        self.ended()
    }

    fn wait(self: Arc<Self>, which: usize) -> Result<()> {
        self.send_if_open();
        loop {
            match self.turn(which) {
                Turn::Over(outcome) => return outcome,
                Turn::Channel(at, call) => self.wait_at(&*at, call)?,
                Turn::Event => {
                    let event = self.env.event();
                    self.add_waker(&Waker::from(Arc::new(Set(event.clone()))));
                    // Perhaps no other thread could go on with the call.
                    self.progress();
                    if !self.can_proceed() {
                        event.wait(None);
                    }
                }
            }
        }
    }

    fn poll(self: Arc<Self>, which: usize, context: &Context<'_>) -> Poll<Result<()>> {
        self.send_if_open();
        self.add_waker(context.waker());
        let (at, call) = {
            let state = lock(&self.state);
            if let Some(outcome) = state.outcome(which) {
                return Poll::Ready(outcome);
            }
            let Stage::Arriving { at, call, waited: false } = &state.stage else { return Poll::Pending };
            (at.clone(), *call)
        };
        at.watch(call, Waker::from(self.clone()));
        Poll::Pending
    }
}

impl Batch {
    /// Sends the batch if it is the open one of its import.
    fn send_if_open(self: &Arc<Self>) {
        if let Some(deposits) = self.deposits.upgrade() {
            deposits.send_if_open(self);
        }
    }

    /// Returns what this thread does to wait.
    fn turn(&self, which: usize) -> Turn {
        let state = &mut *lock(&self.state);
        match &mut state.stage {
            Stage::Arriving { at, call, waited } if !*waited => {
                *waited = true;
                Turn::Channel(at.clone(), *call)
            }
            _ => state.outcome(which).map_or(Turn::Event, Turn::Over),
        }
    }

    /// Waits at the channel of which the batch is a recipient.
    fn wait_at(&self, at: &dyn Arrivals, call: CallKey) -> Result<()> {
        let arrived = || !matches!(lock(&self.state).stage, Stage::Arriving { .. });
        let waited = at.wait_for(call, &arrived);
        if waited.is_err() {
            let mut state = lock(&self.state);
            if let Stage::Arriving { waited, .. } = &mut state.stage {
                *waited = false;
            }
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            // Another thread can wait at the channel now.
            wake_all(wakers);
        }
        Ok(waited?)
    }
}

#[cfg(test)]
mod tests;
