//! Started calls through shared memory. The answer stays in the call's slot, a place in the shared memory,
//! until the caller asks for it. Long arguments pass through a ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcall_proto::client::Outcome;
use farcall_proto::{Failure, Ran, SharedArguments};
use farcall_shm::{ArgumentRing, RequestId};

use super::handover::Handover;
use super::link::{Claim, Link, Scratch, Stop, give};
use super::long::{Kept, KeptBytes, Long};
use super::service::{AwaitedCall, Service};
use crate::CallFailed;
use crate::client::{CallRequest, Hurry, Taker};
use crate::env::Time;
use crate::stub::{EncodedArguments, bad_arguments};
use crate::xdr::Encoder;

/// A call that was started.
pub(crate) struct Started {
    link: Arc<Link>,
    id: RequestId,
    deadline: Option<Time>,
    hurry: Option<Hurry>,
    /// Whether nobody waits for the call any more. Then it has all of its time at this server.
    is_detached: AtomicBool,
    /// The encoded arguments, in case the call fails and is made again. The copy in the slot is of no use
    /// then, because the server can change it. If `ring` holds arguments, they come before these.
    arguments: Vec<u8>,
    /// The arguments instead, if other calls share them.
    shared: Option<Arc<SharedArguments>>,
    /// What the arguments take of the budget of the runtime, if they are kept in a copy.
    _counted: Option<KeptBytes>,
    ring: Option<ArgumentRing>,
    handover: Handover<(Result<bool, Failure>, Vec<u8>)>,
}

/// How long a caller waits for the server's answer to its cancel (docs/protocol.md, section 6).
const CANCEL_ANSWER_TIME: Duration = Duration::from_millis(20);

impl Started {
    /// Starts a call. This waits at most for the short time in which the server empties a part of a ring.
    /// Returns `None` if it would have to wait for a slot, or longer for room for long arguments.
    pub(crate) fn start(
        link: &Arc<Link>,
        (export, request): (u64, &CallRequest<'_>),
    ) -> Result<Option<Arc<Started>>, CallFailed> {
        link.check_process()?;
        if link.is_distrusted() {
            return Ok(None);
        }
        let Some(claim) = Claim::new(&link.caller) else { return Ok(None) };
        let mut kept = Kept::new(link);
        if let Some(shared) = request.call.shared {
            return Started::start_shared((link, claim), (export, request), shared, kept.long);
        }
        let mut scratch = Scratch::take();
        (request.call.encode)(&mut Encoder::with_spill(&mut scratch.bytes, &mut kept))
            .map_err(bad_arguments)?;
        let Ok(rest) = kept.finish(&scratch.bytes) else { return Ok(None) };
        // If the budget has no room for a copy, the same call by UDP fails, and says why.
        let Ok(counted) = KeptBytes::of(link, kept.bytes.len(), None) else { return Ok(None) };
        let id = link.send(claim, (export, request), rest, kept.long.ring.as_mut())?;
        let (ring, arguments) = (kept.held(), kept.bytes);
        scratch.keep();
        Ok(Some(Started::of((link, id), request, (arguments, None, ring), counted)))
    }

    /// Starts a call as [`Started::start`] does. Other calls share the arguments, so no copy is kept.
    fn start_shared(
        (link, claim): (&Arc<Link>, Claim<'_>),
        (export, request): (u64, &CallRequest<'_>),
        shared: &Arc<SharedArguments>,
        mut long: Long<'_>,
    ) -> Result<Option<Arc<Started>>, CallFailed> {
        let Ok(counted) = KeptBytes::of(link, shared.bytes().len(), Some(shared)) else { return Ok(None) };
        let Ok(rest) = long.finish(shared.bytes()) else { return Ok(None) };
        let id = link.send(claim, (export, request), rest, long.ring.as_mut())?;
        let arguments = (Vec::new(), Some(shared.clone()), None);
        Ok(Some(Started::of((link, id), request, arguments, counted)))
    }

    /// Returns a call that was sent.
    fn of(
        (link, id): (&Arc<Link>, RequestId),
        request: &CallRequest<'_>,
        (arguments, shared, ring): (Vec<u8>, Option<Arc<SharedArguments>>, Option<ArgumentRing>),
        counted: Option<KeptBytes>,
    ) -> Arc<Started> {
        let (link, deadline, hurry) = (link.clone(), request.deadline, request.hurry());
        let (is_detached, handover, _counted) = (AtomicBool::new(false), Handover::new(), counted);
        Arc::new(Started {
            link,
            id,
            deadline,
            hurry,
            is_detached,
            arguments,
            shared,
            _counted,
            ring,
            handover,
        })
    }

    /// Blocks until the outcome has come, and gives it to `taker`.
    pub(crate) fn wait(&self, taker: Taker<'_>) -> Result<(), CallFailed> {
        self.link.check_process()?;
        if self.give_kept(taker) {
            return Ok(());
        }
        crate::serving::may_wait().map_err(|why| why.but_ran(Ran::Maybe))?;
        let mut scratch = Scratch::take();
        let waiting = crate::serving::wait_guard();
        let (until, stop) = self.end_of_waiting();
        let hurry = self.hurry.filter(|_| stop == Stop::Late);
        let waited = self.link.wait(self.id, until, hurry, || self.withdraw(false));
        let waited = waited.map_err(|why| if why == Stop::Late { stop } else { why });
        let is_ours = waited == Err(Stop::Withdrawn) || self.handover.take();
        let ended = is_ours.then(|| self.receive(waited, &mut scratch.bytes));
        if ended.is_none() {
            // A task waited for the call before, so the service thread may be taking the outcome.
            self.handover.wait_while_taken();
        }
        drop(waiting);
        match ended {
            Some(ended) => give(ended, &mut scratch.bytes, &mut |outcome| self.pass(outcome, taker)),
            None => drop(self.give_kept(taker)),
        }
        scratch.keep();
        Ok(())
    }

    /// Gives the outcome to `taker` if it has come. Otherwise `context` is woken when it comes.
    pub(crate) fn poll(
        self: &Arc<Self>,
        context: &mut Context<'_>,
        taker: Taker<'_>,
    ) -> Poll<Result<(), CallFailed>> {
        if let Err(why) = self.link.check_process() {
            return Poll::Ready(Err(why));
        }
        if self.give_kept(taker) {
            return Poll::Ready(Ok(()));
        }
        let service = match Service::of(&self.link) {
            Ok(service) => service,
            Err(why) => {
                return Poll::Ready(Err(CallFailed::local("starting a thread", why).but_ran(Ran::Maybe)));
            }
        };
        let (former, is_new) = self.handover.listen(context.waker());
        // Dropping a waker may drop a task, and so cancel the calls that the task had started.
        drop(former);
        if is_new {
            service.add(self.clone(), self.deadline.is_some());
        }
        if self.give_kept(taker) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Asks the server to give the call up. The caller gets the server's answer or, if none comes within
    /// [`CANCEL_ANSWER_TIME`], the failure that the call was cancelled.
    pub(crate) fn cancel(&self) {
        if self.link.check_process().is_err() {
            return;
        }
        let until = self.link.env.now() + CANCEL_ANSWER_TIME;
        if self.handover.cancel(until, || self.link.caller.give_up(self.id)) && self.handover.is_awaited() {
            // The service thread must learn until when to wait.
            self.link.caller.wake();
        }
    }

    /// Lets the call go on, although no thread waits for it any more.
    pub(crate) fn detach(&self) {
        self.is_detached.store(true, Relaxed);
        if self.link.check_process().is_ok() {
            self.link.caller.detach(self.id);
        }
    }

    /// Returns the time until which to wait for the answer, and the reason for the failure if none has come
    /// by then.
    fn end_of_waiting(&self) -> (Option<Time>, Stop) {
        match (self.deadline, self.handover.cancelled()) {
            (Some(deadline), Some(cancelled)) if deadline <= cancelled => (Some(deadline), Stop::Late),
            (_, Some(cancelled)) => (Some(cancelled), Stop::Cancelled),
            (deadline, None) => (deadline, Stop::Late),
        }
    }

    /// Withdraws the call, if the server has not taken it. The calling thread then has the outcome.
    fn withdraw(&self, keeps: bool) -> bool {
        self.handover.withdraw(keeps, || self.link.caller.withdraw(self.id))
    }

    /// Returns why the call ends at half of its time, if it does.
    fn goes_elsewhere(&self, now: Time) -> Option<Stop> {
        let hurry = self.hurry.filter(|hurry| hurry.by <= now && !self.is_detached.load(Relaxed));
        let hurry = hurry.filter(|_| self.handover.cancelled().is_none())?;
        self.link.goes_elsewhere(now, hurry, || self.withdraw(true))
    }

    /// Takes the outcome out of the slot, and gives the slot back.
    fn receive(&self, waited: Result<(), Stop>, body: &mut Vec<u8>) -> Result<bool, Failure> {
        match waited {
            Ok(()) => self.link.receive(self.id, self.deadline, body).map_err(|why| {
                // The server's answer to a cancel is the cancel's.
                let deadline = self.deadline.filter(|_| self.handover.cancelled().is_none());
                self.link.explain(why, deadline)
            }),
            Err(stop) => Err(self.link.lose(self.id, stop)),
        }
    }

    fn give_kept(&self, taker: Taker<'_>) -> bool {
        let Some((ended, mut body)) = self.handover.give() else { return false };
        give(ended, &mut body, &mut |outcome| self.pass(outcome, taker));
        true
    }

    /// Gives the outcome to `taker`, with the arguments if the call failed.
    fn pass(&self, outcome: Outcome<'_>, taker: Taker<'_>) {
        let own = |bytes| EncodedArguments { bytes, shared: None };
        let Outcome::Failed(_) = outcome else { return taker(outcome, own(&[])) };
        if let Some(shared) = &self.shared {
            return taker(outcome, EncodedArguments::of(shared));
        }
        let Some(ring) = &self.ring else { return taker(outcome, own(&self.arguments)) };
        let mut all = Vec::new();
        ring.copy(&mut all);
        all.extend_from_slice(&self.arguments);
        taker(outcome, own(&all));
    }
}

impl AwaitedCall for Started {
    fn watch(&self) -> bool {
        self.link.caller.watch(self.id)
    }

    fn until(&self, now: Time) -> Option<Time> {
        let (until, _) = self.end_of_waiting();
        // After that time the service thread looks at the call whenever it looks whether the server is there.
        let begin_by = self.hurry.map(|hurry| hurry.by).filter(|by| *by > now);
        until.into_iter().chain(begin_by).min()
    }

    fn settle(&self, now: Time) -> Option<Option<Waker>> {
        let (until, stop) = self.end_of_waiting();
        let late = || until.is_some_and(|until| until <= now);
        let waited = match (self.link.caller.is_answered(self.id), self.link.watch.broken()) {
            (true, _) => Ok(()),
            (false, Some(broken)) => Err(Stop::Broken(broken)),
            (false, None) if late() => Err(stop),
            (false, None) if self.handover.is_sent() => match self.goes_elsewhere(now) {
                Some(stop) => Err(stop),
                None => return None,
            },
            (false, None) => return Some(self.handover.waker()),
        };
        if waited != Err(Stop::Withdrawn) && !self.handover.take_to_keep() {
            return Some(self.handover.waker());
        }
        let mut body = Vec::new();
        let ended = self.receive(waited, &mut body);
        Some(self.handover.keep((ended, body)))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // No thread asks for the answer any more. The slot is used again once the answer has come.
        if !self.link.is_ours() {
            // This is a forked child process, and the ring belongs to its parent.
            std::mem::forget(self.ring.take());
        } else if self.handover.is_sent() {
            self.link.caller.abandon(self.id);
        }
        self.link.spares.give(std::mem::take(&mut self.arguments));
    }
}
