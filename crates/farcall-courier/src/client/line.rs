//! The one connection of a binding, of whatever kind, and the calls that wait for their turn at it.
//!
//! A call that blocks is made by its caller's thread when it has its turn. Started calls are made by the
//! *carrier*, a thread that the first started call starts and that ends when there has been none for ten
//! seconds. Both have their turns in the order in which they came.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use farcall::env::{Alarm, Env, Event, Interest, Wanted, thread_event};
use farcall::{CallFailed, Kind, Ran, Time, lock};

use crate::link::{Attendant, LinkError};

/// The most started calls that wait for their turn.
const MAX_STARTED: usize = 1024;
/// After this time without a started call the carrier ends.
const IDLE: Duration = Duration::from_secs(10);

/// A started call.
pub(crate) trait Job<C>: Send + Sync {
    /// Makes the call on the connection, or on a new one. Returns the connection if more calls can be made
    /// on it.
    fn run(&self, connection: Option<C>, attendant: &dyn Attendant) -> Option<C>;

    /// Returns the call's deadline.
    fn until(&self) -> Option<Time>;

    /// Returns whether nobody waits for the call any more.
    fn is_over(&self) -> bool;

    /// Ends the call, whose deadline has passed before its turn came.
    fn end_late(&self);
}

/// The connection of a binding, and the calls that wait for their turn to use it.
pub(crate) struct Line<C> {
    env: Arc<dyn Env>,
    state: Mutex<State<C>>,
    /// Wakes the carrier.
    alarm: OnceLock<Arc<dyn Alarm>>,
}

struct State<C> {
    /// The connection, if there is one and nobody uses it.
    connection: Option<C>,
    /// Whether somebody has the turn. If nobody has it, nobody waits.
    is_taken: bool,
    /// The thread that has the turn, if it is not the carrier's.
    holder: Option<ThreadId>,
    queue: VecDeque<Waiter<C>>,
    /// How many started calls are in the queue.
    started: usize,
    /// The number of the thread in the queue that has the turn now and does not know it yet.
    passed_to: Option<u64>,
    /// The started call whose turn it is.
    for_carrier: Option<Arc<dyn Job<C>>>,
    next: u64,
    has_carrier: bool,
    is_closing: bool,
}

enum Waiter<C> {
    Thread(u64, Arc<dyn Event>),
    Started(Arc<dyn Job<C>>),
}

/// Why a thread has no turn.
pub(crate) enum NoTurn {
    /// Its turn has not come in time.
    Late,
    /// It has the turn already: it makes this call in the source or sink of another call's bulk data.
    Own,
}

/// The turn of a thread. When it is dropped, the next call has its turn, on the connection that is here.
pub(crate) struct Turn<'a, C: Send + 'static> {
    line: &'a Line<C>,
    pub(crate) connection: Option<C>,
}

impl<C: Send + 'static> Drop for Turn<'_, C> {
    fn drop(&mut self) {
        self.line.pass(self.connection.take());
    }
}

impl<C: Send + 'static> Line<C> {
    pub(crate) fn new(env: Arc<dyn Env>, connection: C) -> Arc<Line<C>> {
        let state = State {
            connection: Some(connection),
            is_taken: false,
            holder: None,
            queue: VecDeque::new(),
            started: 0,
            passed_to: None,
            for_carrier: None,
            next: 0,
            has_carrier: false,
            is_closing: false,
        };
        Arc::new(Line { env, state: Mutex::new(state), alarm: OnceLock::new() })
    }

    /// Waits for this thread's turn.
    ///
    /// # Errors
    /// It has not come in time, or could never come.
    pub(crate) fn take(&self, until: Option<Time>) -> Result<Turn<'_, C>, NoTurn> {
        let here = thread::current().id();
        let mut state = lock(&self.state);
        if !state.is_taken {
            (state.is_taken, state.holder) = (true, Some(here));
            return Ok(Turn { line: self, connection: state.connection.take() });
        }
        if state.holder == Some(here) {
            return Err(NoTurn::Own);
        }
        let (ticket, event) = (state.next, thread_event(&self.env));
        state.next += 1;
        state.queue.push_back(Waiter::Thread(ticket, event.clone()));
        drop(state);
        loop {
            let left = until.map(|until| until.since(self.env.now()));
            event.wait(left);
            let mut state = lock(&self.state);
            if state.passed_to == Some(ticket) {
                (state.passed_to, state.holder) = (None, Some(here));
                return Ok(Turn { line: self, connection: state.connection.take() });
            }
            if left.is_some_and(|left| left.is_zero()) {
                state.queue.retain(|waiter| !matches!(waiter, Waiter::Thread(other, _) if *other == ticket));
                return Err(NoTurn::Late);
            }
        }
    }

    /// Returns whether this thread has the turn, so that it must not wait for another.
    pub(crate) fn is_held_here(&self) -> bool {
        lock(&self.state).holder == Some(thread::current().id())
    }

    /// Lets a started call wait for its turn.
    ///
    /// # Errors
    /// Too many wait, or the system cannot start the carrier.
    pub(crate) fn submit(self: &Arc<Self>, job: Arc<dyn Job<C>>) -> Result<(), CallFailed> {
        let alarm = self.alarm()?;
        let mut state = lock(&self.state);
        if state.started >= MAX_STARTED {
            let why = format!("{MAX_STARTED} started calls wait for their turn at the connection");
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
        }
        if !state.has_carrier {
            let (line, alarm) = (self.clone(), alarm.clone());
            let spawned = self.env.spawn("courier-carrier", Box::new(move || line.carry(&*alarm)));
            spawned.map_err(|why| CallFailed::local("starting a thread for started calls", why))?;
            state.has_carrier = true;
        }
        if state.is_taken {
            state.queue.push_back(Waiter::Started(job));
            state.started += 1;
        } else {
            state.is_taken = true;
            state.for_carrier = Some(job);
        }
        drop(state);
        alarm.ring();
        Ok(())
    }

    /// Makes the carrier see that a started call is over. The call is removed if it waits for its turn.
    pub(crate) fn withdraw(&self, job: &dyn Job<C>) {
        let mut state = lock(&self.state);
        let is_it =
            |waiter: &Waiter<C>| matches!(waiter, Waiter::Started(other) if std::ptr::addr_eq(&**other, job));
        let place = state.queue.iter().position(is_it);
        let removed = place.and_then(|place| state.queue.remove(place));
        if removed.is_some() {
            state.started -= 1;
        }
        drop(state);
        if removed.is_none()
            && let Some(alarm) = self.alarm.get()
        {
            alarm.ring();
        }
    }

    /// Ends the connection as soon as no call uses it or waits for it.
    pub(crate) fn close(&self) {
        let connection = {
            let mut state = lock(&self.state);
            state.is_closing = true;
            state.connection.take()
        };
        drop(connection);
        if let Some(alarm) = self.alarm.get() {
            alarm.ring();
        }
    }

    /// Gives the next call its turn.
    fn pass(&self, connection: Option<C>) {
        let mut state = lock(&self.state);
        (state.connection, state.holder) = (connection, None);
        loop {
            match state.queue.pop_front() {
                None => {
                    state.is_taken = false;
                    break;
                }
                Some(Waiter::Thread(ticket, event)) => {
                    state.passed_to = Some(ticket);
                    event.set();
                    break;
                }
                Some(Waiter::Started(job)) => {
                    state.started -= 1;
                    if job.is_over() {
                        continue;
                    }
                    state.for_carrier = Some(job);
                    self.alarm.get().inspect(|alarm| alarm.ring());
                    break;
                }
            }
        }
        // Of the calls that waited, all may have been given up.
        let to_drop = if state.is_closing && !state.is_taken { state.connection.take() } else { None };
        drop(state);
        drop(to_drop);
    }

    fn alarm(&self) -> Result<Arc<dyn Alarm>, CallFailed> {
        if let Some(alarm) = self.alarm.get() {
            return Ok(alarm.clone());
        }
        let alarm = self.env.alarm().map_err(|why| CallFailed::local("making an alarm", why))?;
        Ok(self.alarm.get_or_init(|| alarm).clone())
    }

    /// Makes started calls until there have been none for a while.
    fn carry(&self, alarm: &dyn Alarm) {
        let mut idle_until = self.env.now() + IDLE;
        loop {
            alarm.quiet();
            if let Some(job) = self.next_job() {
                let connection = lock(&self.state).connection.take();
                let connection = match job.is_over() {
                    true => connection,
                    false => job.run(connection, &Attending { line: self, alarm, job: &*job }),
                };
                self.pass(connection);
                idle_until = self.env.now() + IDLE;
                continue;
            }
            let next = self.end_late_jobs();
            let is_idle = self.env.now() >= idle_until;
            if self.leave(is_idle) {
                return;
            }
            let next = next.unwrap_or(idle_until).since(self.env.now());
            let waited = self.env.wait_any(&mut [Wanted::new(alarm.source(), Interest::READ)], Some(next));
            if waited.is_err_and(|why| why.kind() != ErrorKind::Interrupted) {
                // The system refuses to wait. The carrier lets others run, and looks again.
                std::thread::yield_now();
            }
        }
    }

    fn next_job(&self) -> Option<Arc<dyn Job<C>>> {
        lock(&self.state).for_carrier.take()
    }

    /// Ends the carrier if it has nothing to do and `is_idle`, or the line is closing. Returns whether it is
    /// to end.
    fn leave(&self, is_idle: bool) -> bool {
        let mut state = lock(&self.state);
        let has_work = state.for_carrier.is_some() || state.started > 0;
        let leaves = !has_work && (is_idle || state.is_closing);
        state.has_carrier = !leaves;
        leaves
    }

    /// Ends the waiting calls whose deadline has passed, and returns the earliest deadline of the others.
    fn end_late_jobs(&self) -> Option<Time> {
        let mut late = Vec::new();
        let now = self.env.now();
        let mut state = lock(&self.state);
        let mut next: Option<Time> = None;
        state.queue.retain(|waiter| {
            let Waiter::Started(job) = waiter else { return true };
            match job.until() {
                Some(until) if until <= now => {
                    late.push(job.clone());
                    return false;
                }
                Some(until) => next = Some(next.map_or(until, |next| next.min(until))),
                None => {}
            }
            true
        });
        state.started -= late.len();
        drop(state);
        late.iter().for_each(|job| job.end_late());
        next
    }
}

/// What the carrier does while it waits for the reply to a call.
struct Attending<'a, C> {
    line: &'a Line<C>,
    alarm: &'a dyn Alarm,
    job: &'a dyn Job<C>,
}

impl<C: Send + 'static> Attendant for Attending<'_, C> {
    fn alarm(&self) -> &dyn Alarm {
        self.alarm
    }

    fn attend(&self) -> Result<Option<Time>, LinkError> {
        if self.job.is_over() {
            return Err(LinkError::Stopped);
        }
        Ok(self.line.end_late_jobs())
    }
}
