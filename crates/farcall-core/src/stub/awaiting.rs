//! Carries the calls of a stub that waits for a server: a call that no server takes is made again until one
//! does, or until its deadline.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::alarm::{Alarm, Timer};
use super::channel::{Call, CarriedBy, Channel, PendingCall, Reply, Sink};
use super::kept_call::KeptCall;
use super::restart::RestartHook;
use crate::env::{Env, Time};
use crate::wait::WaitPoint;
use crate::{CallFailed, Kind, Ran, context};

/// The first pause before a call is made again, and the longest. Each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A channel whose calls wait for a server.
pub(super) struct Awaiting {
    channel: Arc<dyn Channel>,
    alarm: Arc<Alarm>,
}

/// Until when a call may wait, and how long it pauses next.
struct Patience {
    deadline: Option<Time>,
    pause: Duration,
}

impl Awaiting {
    pub(super) fn new(channel: Arc<dyn Channel>) -> Awaiting {
        let alarm = Alarm::new(channel.env());
        Awaiting { channel, alarm }
    }
}

impl Patience {
    /// Returns the patience of a call that is made now.
    fn of(call: &Call<'_>, env: &dyn Env) -> Patience {
        let own = call.within.map(|within| env.now() + within);
        let deadline = [own, context::inherited().0].into_iter().flatten().min();
        Patience { deadline, pause: FIRST_PAUSE }
    }

    /// Returns how long an attempt that begins now may take.
    fn within(&self, env: &dyn Env) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.since(env.now()))
    }

    /// Returns until when to pause after a failure.
    ///
    /// # Errors
    /// The failure of the call, if it is not to be made again.
    fn next(&mut self, why: CallFailed, env: &dyn Env) -> Result<Time, CallFailed> {
        if !lacks_server(&why) {
            return Err(why);
        }
        let until = env.now() + self.pause;
        if self.deadline.is_some_and(|deadline| deadline <= until) {
            let detail = format!("no server has taken the call: {why}");
            return Err(CallFailed::new(Kind::Deadline, Ran::No).because(detail));
        }
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Ok(until)
    }
}

/// Returns whether a call failed because there is no server now, and one may come.
fn lacks_server(why: &CallFailed) -> bool {
    let may_come =
        matches!(why.kind(), Kind::Draining | Kind::NotExported | Kind::NoSuchName | Kind::Unreachable);
    may_come && why.ran() == Ran::No
}

/// Passes replies on, except failures.
fn but_failures<'a>(failed: &'a mut Option<CallFailed>, sink: Sink<'a>) -> impl FnMut(Reply<'_>) + 'a {
    move |reply| match reply {
        Reply::Failed(why) => *failed = Some(why),
        reply => sink(reply),
    }
}

impl Channel for Awaiting {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let env = &**self.alarm.env();
        let mut patience = Patience::of(&call, env);
        loop {
            let mut failed = None;
            let within = patience.within(env);
            self.channel.call(Call { within, ..call }, &mut but_failures(&mut failed, sink));
            let Some(why) = failed else { return };
            // The items of a stream are sent once.
            if call.sending.is_some() {
                return sink(Reply::Failed(why));
            }
            match patience.next(why, env) {
                Ok(until) => pause(env, until),
                Err(why) => return sink(Reply::Failed(why)),
            }
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let Some(kept) = KeptCall::of(&call) else { return self.channel.start(call) };
        let patience = Patience::of(&call, &**self.alarm.env());
        let pending = kept.start((call.within, call.hurries), |call| self.channel.start(call));
        let (channel, env, timer) = (self.channel.clone(), self.alarm.env().clone(), self.alarm.timer());
        let (stage, cancelled) = (Stage::Started(pending), false);
        Box::new(AwaitingCall { channel, env, timer, kept, patience, stage, cancelled })
    }

    fn silence(&self) -> Option<CallFailed> {
        self.channel.silence()
    }

    fn is_asked(&self) -> bool {
        self.channel.is_asked()
    }

    fn wake_at(&self, time: Time, waker: &Waker) -> bool {
        self.channel.wake_at(time, waker)
    }

    fn suspect(&self) {
        self.channel.suspect();
    }

    fn on_restart(&self, hook: RestartHook) -> Result<(), CallFailed> {
        self.channel.on_restart(hook)
    }

    fn post(&self, bytes: &[u8]) -> bool {
        self.channel.post(bytes)
    }

    fn lacks(&self, procedure: u32) -> bool {
        self.channel.lacks(procedure)
    }

    fn env(&self) -> Arc<dyn Env> {
        self.alarm.env().clone()
    }

    fn may_wait(&self) -> Result<(), CallFailed> {
        self.channel.may_wait()
    }

    fn carried_by(&self) -> CarriedBy {
        self.channel.carried_by()
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        self.channel.wait_point()
    }
}

/// Blocks until a time.
fn pause(env: &dyn Env, until: Time) {
    let _waiting = crate::serving::wait_guard();
    let event = env.event();
    loop {
        let left = until.since(env.now());
        if left.is_zero() {
            return;
        }
        event.wait(Some(left));
    }
}

/// A started call.
struct AwaitingCall {
    channel: Arc<dyn Channel>,
    env: Arc<dyn Env>,
    /// Ends a pause of a call that is awaited.
    timer: Timer,
    kept: KeptCall,
    patience: Patience,
    stage: Stage,
    /// An attempt may have failed before it was told, so that another one would follow.
    cancelled: bool,
}

enum Stage {
    Started(Box<dyn PendingCall>),
    /// No server has taken the call. It is started again at this time.
    Pausing(Time),
    Over,
}

impl AwaitingCall {
    fn start_again(&mut self) {
        let within = self.patience.within(&*self.env);
        let pending = self.kept.start_again((within, false), |call| self.channel.start(call));
        self.stage = Stage::Started(pending);
    }

    /// Begins a pause after a failure, or passes the failure to the sink. Returns whether the call is over.
    fn fail(&mut self, why: CallFailed, sink: Sink<'_>) -> bool {
        match self.patience.next(why, &*self.env) {
            Ok(_) if self.cancelled => {
                sink(Reply::Failed(cancelled()));
                true
            }
            Ok(until) => {
                self.stage = Stage::Pausing(until);
                false
            }
            Err(why) => {
                sink(Reply::Failed(why));
                true
            }
        }
    }
}

fn cancelled() -> CallFailed {
    CallFailed::new(Kind::Cancelled, Ran::No)
}

impl PendingCall for AwaitingCall {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        loop {
            match mem::replace(&mut self.stage, Stage::Over) {
                Stage::Started(pending) => {
                    let mut failed = None;
                    pending.wait(&mut but_failures(&mut failed, sink));
                    let Some(why) = failed else { return };
                    if self.fail(why, sink) {
                        return;
                    }
                }
                Stage::Pausing(_) if self.cancelled => return sink(Reply::Failed(cancelled())),
                Stage::Pausing(until) => {
                    pause(&*self.env, until);
                    self.start_again();
                }
                Stage::Over => return,
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Started(pending) => {
                    let mut failed = None;
                    if pending.poll(context, &mut but_failures(&mut failed, sink)).is_pending() {
                        return Poll::Pending;
                    }
                    self.stage = Stage::Over;
                    let Some(why) = failed else { return Poll::Ready(()) };
                    if self.fail(why, sink) {
                        return Poll::Ready(());
                    }
                }
                Stage::Pausing(_) if self.cancelled => {
                    self.stage = Stage::Over;
                    sink(Reply::Failed(cancelled()));
                    return Poll::Ready(());
                }
                Stage::Pausing(until) if *until > self.env.now() => {
                    return match self.timer.set(*until, context.waker()) {
                        Ok(()) => Poll::Pending,
                        Err(why) => {
                            sink(Reply::Failed(why));
                            Poll::Ready(())
                        }
                    };
                }
                Stage::Pausing(_) => self.start_again(),
                Stage::Over => return Poll::Ready(()),
            }
        }
    }

    fn waits_for_itself(&self) -> bool {
        matches!(&self.stage, Stage::Started(pending) if pending.waits_for_itself())
    }

    fn cancel(&mut self) {
        self.cancelled = true;
        match &mut self.stage {
            Stage::Started(pending) => pending.cancel(),
            Stage::Pausing(_) => self.timer.end(),
            Stage::Over => {}
        }
    }

    fn detach(mut self: Box<Self>) {
        if let Stage::Pausing(_) = self.stage {
            self.start_again();
        }
        if let Stage::Started(pending) = mem::replace(&mut self.stage, Stage::Over) {
            pending.detach();
        }
    }
}
