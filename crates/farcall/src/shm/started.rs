//! A started call: its answer waits in its slot until somebody asks for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall_proto::client::Outcome;
use farcall_proto::{Failure, Ran};
use farcall_shm::{Lane, Ticket};

use super::link::{Claim, Link, Scratch, Stop, give};
use super::long::Kept;
use super::service::Service;
use crate::client::{Outgoing, Taker};
use crate::env::Time;
use crate::stub::bad_arguments;
use crate::xdr::Encoder;
use crate::{CallFailed, runtime};

/// A call that was started.
pub(crate) struct Started {
    link: Arc<Link>,
    pub(super) ticket: Ticket,
    pub(super) deadline: Option<Time>,
    /// As encoded, in case the call fails and is to be made again: the peer may have changed what stands in the slot. Those in
    /// the lane, if it is held, precede the others.
    arguments: Vec<u8>,
    lane: Option<Lane>,
    state: Mutex<State>,
    kept: Condvar,
    /// The service thread knows of it.
    awaited: AtomicBool,
}

/// How long a caller waits for the server's word on its cancel (docs/protocol.md, section 6).
const WORD: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    stage: Stage,
    waker: Option<Waker>,
    /// Until when its caller waits for the server's word on its cancel, if it was cancelled.
    cancelled: Option<Time>,
}

#[derive(Default)]
enum Stage {
    #[default]
    Sent,
    /// The service thread takes the outcome out of the slot.
    Taking,
    /// It has.
    Kept(Result<bool, Failure>, Vec<u8>),
    /// It was given to whoever asked.
    Over,
}

impl Started {
    /// Starts a call. Waits no longer than what empties a lane takes to go on. `None`: a slot, or room for large
    /// arguments, would have to be waited for.
    pub(crate) fn start(link: &Arc<Link>, outgoing: &Outgoing<'_>) -> Result<Option<Arc<Started>>, CallFailed> {
        link.check_process()?;
        let Some(claim) = Claim::new(&link.caller) else { return Ok(None) };
        let mut scratch = Scratch::take();
        let mut kept = Kept::new(link);
        (outgoing.trip.encode)(&mut Encoder::with_spill(&mut scratch.bytes, &mut kept)).map_err(bad_arguments)?;
        let Ok(rest) = kept.finish(&scratch.bytes) else { return Ok(None) };
        let ticket = link.send(claim, outgoing, rest, kept.long.lane.as_mut())?;
        let (lane, arguments) = (kept.held(), kept.bytes);
        scratch.keep();
        let (link, deadline, kept) = (link.clone(), outgoing.trip.deadline, Condvar::new());
        let (awaited, state) = (AtomicBool::new(false), Mutex::default());
        Ok(Some(Arc::new(Started { link, ticket, deadline, arguments, lane, state, kept, awaited })))
    }

    /// Blocks until the outcome has come.
    pub(crate) fn wait(&self, taker: Taker<'_>) -> Result<(), CallFailed> {
        self.link.check_process()?;
        if self.give_kept(taker) {
            return Ok(());
        }
        crate::server::may_wait().map_err(|why| why.but_ran(Ran::Maybe))?;
        let mut scratch = Scratch::take();
        let waiting = crate::server::waiting();
        let (until, stop) = self.until();
        let waited = self.link.wait(self.ticket, until);
        let waited = waited.map_err(|why| if why == Stop::Late { stop } else { why });
        let ended = self.take(waited, &mut scratch.bytes, Stage::Over);
        if ended.is_none() {
            // It was awaited before.
            let taking = |state: &mut State| matches!(state.stage, Stage::Taking);
            drop(self.kept.wait_while(self.lock(), taking).unwrap_or_else(PoisonError::into_inner));
        }
        drop(waiting);
        match ended {
            Some(ended) => give(ended, &mut scratch.bytes, &mut |outcome| self.pass(outcome, taker)),
            None => drop(self.give_kept(taker)),
        }
        scratch.keep();
        Ok(())
    }

    /// The outcome if it has come; else `context` is woken when it does.
    pub(crate) fn poll(self: &Arc<Self>, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<Result<(), CallFailed>> {
        if let Err(why) = self.link.check_process() {
            return Poll::Ready(Err(why));
        }
        if self.give_kept(taker) {
            return Poll::Ready(Ok(()));
        }
        let service = match Service::of(&self.link) {
            Ok(service) => service,
            Err(why) => return Poll::Ready(Err(runtime::local("starting a thread", why).but_ran(Ran::Maybe))),
        };
        let former = {
            let mut state = self.lock();
            state.waker.replace(context.waker().clone())
        };
        let is_new = !self.awaited.swap(true, Ordering::SeqCst);
        // To drop a waker may drop a task, and cancel what that had started.
        drop(former);
        if is_new {
            service.add(self);
        }
        if self.give_kept(taker) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Asks the server to give the call up. Whoever waits hears its word, or after a while that the call was
    /// cancelled.
    pub(crate) fn cancel(&self) {
        if self.link.check_process().is_err() {
            return;
        }
        let now = self.link.env.now();
        {
            let mut state = self.lock();
            if !matches!(state.stage, Stage::Sent) || state.cancelled.is_some() {
                return;
            }
            state.cancelled = Some(now + WORD);
            self.link.caller.give_up(self.ticket);
        }
        if self.awaited.load(Ordering::SeqCst) {
            // The service thread is to know until when.
            self.link.caller.wake();
        }
    }

    /// Nobody waits for the call any more, but it is to go on.
    pub(crate) fn detach(&self) {
        if self.link.check_process().is_ok() {
            self.link.caller.detach(self.ticket);
        }
    }

    /// Until when its answer is waited for, and what it is when none has come.
    pub(super) fn until(&self) -> (Option<Time>, Stop) {
        match (self.deadline, self.lock().cancelled) {
            (Some(deadline), Some(cancelled)) if deadline <= cancelled => (Some(deadline), Stop::Late),
            (_, Some(cancelled)) => (Some(cancelled), Stop::Cancelled),
            (deadline, None) => (deadline, Stop::Late),
        }
    }

    /// Of the service thread: whether the call has ended; then whoever awaits it is to be woken.
    pub(super) fn settle(&self, now: Time) -> Option<Option<Waker>> {
        let (until, stop) = self.until();
        let late = || until.is_some_and(|until| until <= now);
        let waited = match (self.link.caller.is_answered(self.ticket), self.link.watch.broken()) {
            (true, _) => Ok(()),
            (false, Some(broken)) => Err(Stop::Broken(broken)),
            (false, None) if late() => Err(stop),
            (false, None) => return None,
        };
        let mut body = Vec::new();
        let ended = self.take(waited, &mut body, Stage::Taking);
        let mut state = self.lock();
        if let Some(ended) = ended {
            state.stage = Stage::Kept(ended, body);
            self.kept.notify_all();
        }
        Some(state.waker.take())
    }

    /// Takes the outcome out of the slot, which is given back. `None`: somebody has.
    fn take(&self, waited: Result<(), Stop>, body: &mut Vec<u8>, next: Stage) -> Option<Result<bool, Failure>> {
        {
            let mut state = self.lock();
            if !matches!(state.stage, Stage::Sent) {
                return None;
            }
            state.stage = next;
        }
        Some(match waited {
            Ok(()) => self.link.receive(self.ticket, self.deadline, body),
            Err(stop) => Err(self.link.lose(self.ticket, stop)),
        })
    }

    fn give_kept(&self, taker: Taker<'_>) -> bool {
        let stage = {
            let mut state = self.lock();
            match &state.stage {
                Stage::Kept(..) => std::mem::replace(&mut state.stage, Stage::Over),
                _ => return false,
            }
        };
        let Stage::Kept(ended, mut body) = stage else { return false };
        give(ended, &mut body, &mut |outcome| self.pass(outcome, taker));
        true
    }

    /// Gives the outcome, with the arguments if the call failed.
    fn pass(&self, outcome: Outcome<'_>, taker: Taker<'_>) {
        let Outcome::Failed(_) = outcome else { return taker(outcome, &[]) };
        let Some(lane) = &self.lane else { return taker(outcome, &self.arguments) };
        let mut all = Vec::new();
        lane.copy(&mut all);
        all.extend_from_slice(&self.arguments);
        taker(outcome, &all);
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.lock().stage, Stage::Sent)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Nobody asks any more: the slot is used again when the answer has come.
        if !self.link.is_ours() {
            // It is its parent's.
            std::mem::forget(self.lane.take());
        } else if self.is_sent() {
            self.link.caller.abandon(self.ticket);
        }
        self.link.spares.give(std::mem::take(&mut self.arguments));
    }
}
