//! A started call that begins when the one-way calls before it have ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use super::alarm::Timer;
use super::channel::{Call, Channel, PendingCall, Procedure, Reply, Sink};
use super::dispatch::panicked;
use super::handlers::Handlers;
use super::sending::SendStream;
use crate::context::{self, context, outside};
use crate::env::{Condition, Env, Time};
use crate::self_wait::{self, GRACE};
use crate::sys::fork;
use crate::wait::{Parking, WaitPoint};
use crate::xdr::Encoder;
use crate::{CallFailed, Kind, Ran, guard, lock, serving};

/// The most started calls that wait for one-way calls of one stub, and the most bytes of their arguments.
const MAX_CALLS: usize = 65_536;
const MAX_BYTES: usize = 64 << 20;
/// Calls that were given up are looked for when this many wait.
const FIRST_SWEEP: usize = 1_024;

/// A started call, which has begun or not.
pub(super) struct Behind {
    channel: Arc<dyn Channel>,
    handlers: Handlers,
    procedure: Procedure,
    /// Sends the argument that is a stream, if there is one.
    sending: Option<Arc<dyn SendStream>>,
    until: Option<Time>,
    /// Wakes the task that awaits the call at that time.
    timer: Option<Timer>,
    /// The call that the caller's thread serves, from which this one inherits.
    context: context::Context,
    env: Arc<dyn Env>,
    generation: u64,
    state: Mutex<State>,
    /// Notified when the call has begun.
    begun: Condition,
}

enum State {
    /// It has not begun. The arguments are encoded.
    Waiting(Vec<u8>, Option<Waker>),
    /// A thread starts it.
    Starting(Option<Waker>, Wish),
    Begun(Box<dyn PendingCall>),
    /// It was detached before it began.
    Detached(Vec<u8>),
    /// It was given up before it began, or its caller has the reply.
    Over,
}

/// What the caller has decided while another thread starts the call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Wait,
    Cancel,
    /// Nobody takes the reply. The call is cancelled.
    Drop,
    Detach,
}

impl Behind {
    pub(super) fn new(
        (channel, handlers): (&Arc<dyn Channel>, &Handlers),
        (procedure, arguments, sending): (Procedure, Vec<u8>, Option<Arc<dyn SendStream>>),
        deadline: Option<(Time, Timer)>,
    ) -> Arc<Behind> {
        let (until, timer) = deadline.unzip();
        Arc::new(Behind {
            channel: channel.clone(),
            handlers: handlers.clone(),
            procedure,
            sending,
            until,
            timer,
            context: context(),
            env: channel.env(),
            generation: fork::generation(),
            state: Mutex::new(State::Waiting(arguments, None)),
            begun: Condition::default(),
        })
    }

    /// Begins the call in a thread that has nothing to do with its caller, unless the call was given up.
    pub(super) fn begin(&self) {
        self.begin_by(|call| {
            let _outside = outside();
            let _inherits = self.context.enter();
            self.channel.start(call)
        });
    }

    /// Begins the call in its caller's thread.
    pub(super) fn begin_here(&self) {
        self.begin_by(|call| self.channel.start(call));
    }

    fn begin_by(&self, start: impl FnOnce(Call<'_>) -> Box<dyn PendingCall>) {
        let arguments = {
            let mut state = lock(&self.state);
            let (next, arguments) = match std::mem::replace(&mut *state, State::Over) {
                State::Waiting(arguments, waker) => (State::Starting(waker, Wish::Wait), arguments),
                State::Detached(arguments) => (State::Starting(None, Wish::Detach), arguments),
                other => {
                    *state = other;
                    return;
                }
            };
            *state = next;
            arguments
        };
        let mut call = self.started(&arguments, start);
        let mut state = lock(&self.state);
        let State::Starting(waker, wish) = std::mem::replace(&mut *state, State::Over) else { return };
        match wish {
            Wish::Wait | Wish::Cancel => {
                if wish == Wish::Cancel {
                    call.cancel();
                }
                *state = State::Begun(call);
                drop(state);
                self.begun.notify_all();
                if let Some(waker) = waker {
                    guard::run_alone("a waker", || waker.wake());
                }
            }
            Wish::Detach => {
                drop(state);
                call.detach();
            }
            Wish::Drop => drop(state),
        }
    }

    fn started(
        &self,
        arguments: &[u8],
        start: impl FnOnce(Call<'_>) -> Box<dyn PendingCall>,
    ) -> Box<dyn PendingCall> {
        let within = self.until.map(|until| until.since(self.env.now()));
        if within.is_some_and(|left| left.is_zero()) {
            return Box::new(too_late());
        }
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let (procedure, handlers) = (&self.procedure, &self.handlers);
        let sending = self.sending.as_ref();
        let call = Call {
            procedure,
            within,
            encode: &encode,
            shared: None,
            handlers,
            sending,
            carries: &[],
            hurries: false,
        };
        // Interceptors are the user's code.
        guard::run(|| start(call)).unwrap_or_else(|panic| Box::new(panicked(panic).but_ran(Ran::No)))
    }

    /// Takes the call if it has begun.
    fn take(&self) -> Option<Box<dyn PendingCall>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Over) {
            State::Begun(call) => Some(call),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Notes a wish of the caller. Returns what is to be dropped, or done, without the lock: the former
    /// waker, and the call if it has begun.
    fn wish(&self, wish: Wish) -> (Option<Waker>, Option<Box<dyn PendingCall>>) {
        let mut state = lock(&self.state);
        let (next, waker, begun) = match std::mem::replace(&mut *state, State::Over) {
            State::Waiting(arguments, waker) if wish == Wish::Detach => {
                (State::Detached(arguments), waker, None)
            }
            State::Waiting(_, waker) => (State::Over, waker, None),
            State::Starting(waker, Wish::Wait) if wish == Wish::Cancel => {
                (State::Starting(waker, wish), None, None)
            }
            State::Starting(waker, Wish::Wait | Wish::Cancel) => (State::Starting(None, wish), waker, None),
            State::Begun(call) => (State::Over, None, Some(call)),
            other => (other, None, None),
        };
        *state = next;
        (waker, begun)
    }

    /// Ends the call if its deadline has passed before it has begun. Returns whether it has.
    fn end_if_late(&self) -> bool {
        if self.until.is_none_or(|until| self.env.now() < until) {
            return false;
        }
        let mut state = lock(&self.state);
        let is_waiting = matches!(*state, State::Waiting(..));
        let former = is_waiting.then(|| std::mem::replace(&mut *state, State::Over));
        drop(state);
        // The waker in it is the user's code.
        drop(former);
        is_waiting
    }

    /// Has the task that awaits the call woken at the deadline.
    fn set_timer(&self, waker: &Waker) -> Result<(), CallFailed> {
        let Some((until, timer)) = self.until.zip(self.timer.as_ref()) else { return Ok(()) };
        timer.set(until, waker)
    }

    /// Returns how many bytes of arguments wait.
    fn bytes(&self) -> usize {
        match &*lock(&self.state) {
            State::Waiting(arguments, _) | State::Detached(arguments) => arguments.len(),
            _ => 0,
        }
    }

    /// Blocks until the call has begun or is over.
    fn wait(&self) -> Result<(), CallFailed> {
        if self.generation != fork::generation() {
            return Err(CallFailed::forked());
        }
        let waits = |state: &State| matches!(state, State::Waiting(..) | State::Starting(..));
        if !waits(&lock(&self.state)) {
            return Ok(());
        }
        self.channel.may_wait()?;
        let _waiting = serving::try_wait_guard()?;
        // The server may run in the runtime that this thread drives.
        let drives = self_wait::drives_tokio();
        let mut state = lock(&self.state);
        while waits(&state) {
            let left = self.until.map(|until| until.since(self.env.now()));
            if left.is_some_and(|left| left.is_zero()) && matches!(*state, State::Waiting(..)) {
                return Err(too_late());
            }
            // A call that is being started obeys its deadline itself.
            let left = left.filter(|left| !left.is_zero());
            let most = if drives { left.min(Some(GRACE)).or(Some(GRACE)) } else { left };
            let notified;
            (state, notified) = self.begun.wait(&self.env, &self.state, state, most);
            if drives && !notified && most == Some(GRACE) && matches!(*state, State::Waiting(..)) {
                return Err(self_wait::refusal(Ran::No));
            }
        }
        Ok(())
    }
}

/// The failure of a call whose deadline passes before it has begun.
fn too_late() -> CallFailed {
    let why = "one-way calls that were made earlier have not ended";
    CallFailed::new(Kind::Deadline, Ran::No).because(why)
}

/// The caller's handle of a call that waits for earlier ones. Dropping it cancels the call.
pub(super) struct BehindCall(pub(super) Arc<Behind>);

impl PendingCall for BehindCall {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        if let Err(why) = self.0.wait() {
            return sink(Reply::Failed(why));
        }
        match self.0.take() {
            Some(call) => call.wait(sink),
            None => sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::No))),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        if self.0.generation != fork::generation() {
            sink(Reply::Failed(CallFailed::forked()));
            return Poll::Ready(());
        }
        if self.0.end_if_late() {
            sink(Reply::Failed(too_late()));
            return Poll::Ready(());
        }
        // Cloning and dropping a waker are the user's code, so no lock is held.
        let waker = context.waker().clone();
        let former = match &mut *lock(&self.0.state) {
            State::Waiting(_, place) | State::Starting(place, _) => Some(place.replace(waker)),
            _ => None,
        };
        if former.is_some() {
            let Err(why) = self.0.set_timer(context.waker()) else { return Poll::Pending };
            drop(self.0.wish(Wish::Drop));
            sink(Reply::Failed(why));
            return Poll::Ready(());
        }
        let Some(mut call) = self.0.take() else {
            sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::No)));
            return Poll::Ready(());
        };
        let polled = call.poll(context, sink);
        if polled.is_pending() {
            *lock(&self.0.state) = State::Begun(call);
        }
        polled
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        // The wait must use the environment's time, which need not be the system's.
        Some(Arc::new(Parking::new(self.0.env.clone())))
    }

    fn waits_for_itself(&self) -> bool {
        match &*lock(&self.0.state) {
            State::Begun(call) => call.waits_for_itself(),
            _ => self_wait::is_possible(),
        }
    }

    fn cancel(&mut self) {
        let (waker, begun) = self.0.wish(Wish::Cancel);
        if let Some(mut call) = begun {
            call.cancel();
            *lock(&self.0.state) = State::Begun(call);
        }
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }

    fn detach(self: Box<Self>) {
        let (waker, begun) = self.0.wish(Wish::Detach);
        drop(waker);
        if let Some(call) = begun {
            call.detach();
        }
    }
}

impl Drop for BehindCall {
    fn drop(&mut self) {
        // `detach` consumes the handle, and so drops it. That must not give the call up.
        let is_detached =
            matches!(&*lock(&self.0.state), State::Detached(_) | State::Starting(_, Wish::Detach));
        if !is_detached {
            drop(self.0.wish(Wish::Drop));
        }
    }
}

/// The started calls that wait for one-way calls of one stub.
#[derive(Default)]
pub(super) struct Waiting {
    /// Each with the number of one-way calls that must have ended.
    calls: VecDeque<(u64, Arc<Behind>)>,
    /// The bytes of arguments of all calls when they were counted last, and of those that were added since.
    bytes: usize,
    /// At this many calls, those that were given up are removed.
    sweep_at: usize,
}

impl Waiting {
    /// Adds a call that begins when `place` one-way calls have ended.
    ///
    /// # Errors
    /// When too many calls wait, or too many bytes.
    pub(super) fn add(&mut self, place: u64, call: &Arc<Behind>) -> Result<(), CallFailed> {
        let bytes = call.bytes();
        if self.calls.len() >= self.sweep_at.max(FIRST_SWEEP) || self.bytes + bytes > MAX_BYTES {
            self.calls.retain(|(_, call)| !matches!(*lock(&call.state), State::Over));
            self.bytes = self.calls.iter().map(|(_, call)| call.bytes()).sum();
            self.sweep_at = 2 * self.calls.len();
        }
        if self.calls.len() >= MAX_CALLS || self.bytes + bytes > MAX_BYTES {
            let why = "too many started calls wait for one-way calls that were made earlier";
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
        }
        self.bytes += bytes;
        self.calls.push_back((place, call.clone()));
        Ok(())
    }

    /// Removes and returns the calls that may begin, now that this many one-way calls have ended.
    pub(super) fn take_due(&mut self, ended: u64) -> Vec<Arc<Behind>> {
        let due = self.calls.iter().take_while(|(place, _)| *place <= ended).count();
        let due: Vec<Arc<Behind>> = self.calls.drain(..due).map(|(_, call)| call).collect();
        if self.calls.is_empty() {
            self.bytes = 0;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, OnceLock};

    use super::super::handlers::NO_HANDLERS;
    use super::*;

    static PROCEDURE: Procedure = Procedure { number: 1, name: "one", ..super::super::batch::BATCH };

    /// Starts calls that never end, and counts what becomes of them.
    #[derive(Default)]
    struct Fake {
        /// Where a thread that starts a call waits for the test, twice.
        barrier: OnceLock<Arc<Barrier>>,
        inherited: Mutex<Vec<Option<Time>>>,
        cancelled: Arc<AtomicUsize>,
        detached: Arc<AtomicUsize>,
    }

    struct Endless(Arc<AtomicUsize>, Arc<AtomicUsize>);

    impl Channel for Fake {
        fn call(&self, _: Call<'_>, _: Sink<'_>) {}

        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            lock(&self.inherited).push(context::inherited().0);
            if let Some(barrier) = self.barrier.get() {
                barrier.wait();
                barrier.wait();
            }
            Box::new(Endless(self.cancelled.clone(), self.detached.clone()))
        }
    }

    impl PendingCall for Endless {
        fn wait(self: Box<Self>, sink: Sink<'_>) {
            sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::Maybe)));
        }

        fn poll(&mut self, _: &mut Context<'_>, _: Sink<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn cancel(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn detach(self: Box<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn behind(fake: &Arc<Fake>) -> (Arc<Behind>, Box<BehindCall>) {
        let channel: Arc<dyn Channel> = fake.clone();
        let behind = Behind::new((&channel, &NO_HANDLERS), (PROCEDURE, vec![0; 8], None), None);
        (behind.clone(), Box::new(BehindCall(behind)))
    }

    fn ran(call: Box<BehindCall>) -> Ran {
        let mut ran = None;
        call.wait(&mut |reply| {
            if let Reply::Failed(why) = reply {
                ran = Some(why.ran());
            }
        });
        ran.expect("a failure")
    }

    #[test]
    fn a_call_that_is_cancelled_while_it_is_started_may_have_run() {
        let fake = Arc::new(Fake::default());
        let barrier = fake.barrier.get_or_init(|| Arc::new(Barrier::new(2))).clone();
        let (behind, mut call) = behind(&fake);
        let starts = std::thread::spawn(move || behind.begin());
        barrier.wait();
        call.cancel();
        barrier.wait();
        starts.join().unwrap();
        assert_eq!(fake.cancelled.load(Ordering::SeqCst), 1);
        assert_eq!(ran(call), Ran::Maybe);
    }

    #[test]
    fn a_call_that_was_given_up_before_never_begins() {
        let fake = Arc::new(Fake::default());
        let (behind, mut call) = behind(&fake);
        call.cancel();
        behind.begin();
        assert_eq!(ran(call), Ran::No);
        assert!(lock(&fake.inherited).is_empty());
    }

    #[test]
    fn a_detached_call_begins_and_is_detached() {
        let fake = Arc::new(Fake::default());
        let (behind, call) = behind(&fake);
        call.detach();
        behind.begin();
        let (cancelled, detached) = (&fake.cancelled, &fake.detached);
        assert_eq!((cancelled.load(Ordering::SeqCst), detached.load(Ordering::SeqCst)), (0, 1));
    }

    /// The thread that begins a call may serve another one.
    #[test]
    fn a_call_inherits_nothing_from_the_thread_that_begins_it() {
        let fake = Arc::new(Fake::default());
        let (behind, _call) = behind(&fake);
        let deadline = Some(Time::from_nanos(7));
        let foreign = context::Incoming {
            key: crate::CallKey { conversation: 1, activity: 0, sequence: 1 },
            export: 1,
            from: ([127, 0, 0, 1], 9).into(),
            deadline,
            trace: None,
            same_user: false,
            fence: 0,
        };
        let _serves = context::enter(foreign, None);
        assert_eq!(context::inherited().0, deadline);
        behind.begin();
        assert_eq!(context::inherited().0, deadline);
        assert_eq!(*lock(&fake.inherited), [None]);
    }

    #[test]
    fn calls_that_were_given_up_are_not_kept() {
        let (fake, mut waiting) = (Arc::new(Fake::default()), Waiting::default());
        for _ in 0..10 * FIRST_SWEEP {
            let (behind, call) = behind(&fake);
            waiting.add(1, &behind).unwrap();
            drop(call);
        }
        assert!(waiting.calls.len() <= 2 * FIRST_SWEEP && waiting.bytes <= 8 * 2 * FIRST_SWEEP);
        let kept: Vec<_> = (0..=MAX_CALLS).map(|_| behind(&fake)).collect();
        let refused = kept.iter().find_map(|(behind, _)| waiting.add(1, behind).err());
        assert_eq!(refused.expect("too many").kind(), Kind::Overloaded);
        assert_eq!(waiting.take_due(0).len(), 0);
        assert!(waiting.take_due(1).len() >= MAX_CALLS);
    }
}
