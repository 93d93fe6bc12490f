//! The service thread: receives for started calls while no caller receives, and sends queued calls.
//!
//! The thread that leads receives for all. A thread that starts calls and waits for each in turn leads
//! whenever it waits. To pass the lead to the service thread in between would cost more than the call. So the
//! service thread naps while calls are being started. It leads only if no other thread has led since its last
//! look, and passes the lead to the next thread that waits. Tasks cannot lead, so for them it leads at once,
//! and sends queued calls after each arriving datagram.
//!
//! A thread that waits for a group call runs the user's code between two replies. If that takes long, the
//! service thread receives meanwhile, or the servers would take the client for dead.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::Endpoint;
use super::caller::{Caller, Tools};
use super::drive::Attendance;
use super::waiter::Waiter;
use crate::env::Env;
use crate::lock;
use crate::wait::{Duty, Parker};

/// How long a started call may stay queued before the service thread sends it.
const NAP: Duration = Duration::from_micros(100);
/// The longest nap, while other threads send the queued calls.
const MAX_NAP: Duration = Duration::from_micros(300);
/// While threads run the user's code that wait for calls, the service thread looks this often whether another
/// thread receives, or this many times within the patience of the endpoint's servers, if that is more often.
const AWAY_LOOK: Duration = Duration::from_millis(100);
const AWAY_LOOKS_PER_PATIENCE: u32 = 20;
/// The service thread looks no more after this many looks in a row at which no thread was away.
const IDLE_AWAY_LOOKS: u32 = 10;

/// The service thread naps no more after this many looks in a row at which no call had been queued.
const QUIET_LOOKS: u32 = 8;

/// The service thread's state that other threads see.
pub(super) struct Service {
    waiter: Arc<Waiter>,
    /// Whether the thread was started.
    running: AtomicBool,
    starting: Mutex<()>,
    /// Whether a task has waited for a call since the service thread last led. Then the service thread leads
    /// without a nap.
    ///
    /// SeqCst: a task writes this and then reads whether the service thread watches. The service thread
    /// writes that it no longer watches and then reads this (`must_lead_now`). At least one of them sees what
    /// the other wrote.
    polled: AtomicBool,
    stopped: AtomicBool,
    /// How many threads run the user's code while calls that they wait for are outstanding.
    ///
    /// SeqCst, here and in `looks`: a thread that steps away writes `away` and then reads `looks`. The
    /// service thread writes that it looks no more and then reads `away`. At least one sees what the other
    /// wrote.
    away: AtomicUsize,
    /// Whether the service thread looks now and then whether it must receive for threads that are away.
    looks: AtomicBool,
}

impl Service {
    pub(super) fn new(env: &dyn Env) -> Arc<Service> {
        let [running, polled, stopped, looks] = [const { AtomicBool::new(false) }; 4];
        let (waiter, starting, away) = (Waiter::new(env), Mutex::default(), AtomicUsize::new(0));
        Arc::new(Service { waiter, running, starting, polled, stopped, away, looks })
    }

    /// Starts the thread, unless it was started. If no thread can be started now, the next call tries again.
    pub(super) fn run(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        if self.running.load(Ordering::Acquire) { Ok(()) } else { self.start(endpoint) }
    }

    #[cold]
    fn start(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        // Other threads that start it wait here, because none may rely on the service thread before it has
        // started.
        let _one = lock(&self.starting);
        if self.running.load(Ordering::Acquire) {
            return Ok(());
        }
        let (service, weak) = (self.clone(), Arc::downgrade(endpoint));
        endpoint.env.spawn("farcall-service", Box::new(move || service.live(&weak)))?;
        self.running.store(true, Ordering::Release);
        Ok(())
    }

    fn live(&self, endpoint: &Weak<Endpoint>) {
        Caller::never_waits();
        let (mut tools, mut trend) = (Tools::new(), Trend { left: 0, quiet: QUIET_LOOKS });
        let mut idle_looks = 0;
        while !self.is_stopped() {
            // An idle service thread keeps no reference, so that the endpoint can be dropped.
            let most = match endpoint.upgrade() {
                Some(endpoint) => {
                    if endpoint.flush_signal.is_watched() || self.must_stand_in(&endpoint) {
                        self.serve(&endpoint, &mut tools, &mut trend);
                    }
                    self.next_look(&endpoint, &mut idle_looks)
                }
                None => return,
            };
            self.waiter.wait(most);
        }
    }

    /// Returns whether nobody has received since the last look, although a thread that waits for calls is
    /// away.
    fn must_stand_in(&self, endpoint: &Endpoint) -> bool {
        self.away.load(Ordering::SeqCst) > 0
            && !endpoint.led.swap(false, Ordering::Relaxed)
            && endpoint.lead.is_free()
            && endpoint.is_busy()
    }

    /// Returns how long the idle service thread may sleep before it looks whether a thread that is away has
    /// calls after which nobody looks; `None` if no thread was away for long.
    fn next_look(&self, endpoint: &Endpoint, idle_looks: &mut u32) -> Option<Duration> {
        if !self.looks.load(Ordering::SeqCst) {
            *idle_looks = 0;
            return None;
        }
        let is_away = || self.away.load(Ordering::SeqCst) > 0;
        *idle_looks = if is_away() { 0 } else { *idle_looks + 1 };
        if *idle_looks > IDLE_AWAY_LOOKS {
            self.looks.store(false, Ordering::SeqCst);
            if !is_away() {
                return None;
            }
            self.looks.store(true, Ordering::SeqCst);
        }
        let often = endpoint.config.patience / AWAY_LOOKS_PER_PATIENCE;
        Some(often.clamp(NAP, AWAY_LOOK))
    }

    /// Notes that a thread runs the user's code while calls that it waits for are outstanding. If that takes
    /// long, the service thread receives for them.
    pub(super) fn note_away(&self) {
        self.away.fetch_add(1, Ordering::SeqCst);
        if !self.looks.load(Ordering::SeqCst) && !self.looks.swap(true, Ordering::SeqCst) {
            self.waiter.wake();
        }
    }

    /// Notes that such a thread waits again.
    pub(super) fn note_back(&self) {
        self.away.fetch_sub(1, Ordering::SeqCst);
    }

    pub(super) fn wake(&self) {
        self.waiter.wake();
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.waiter.wake();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Naps and leads as long as started calls are outstanding.
    fn serve(&self, endpoint: &Endpoint, tools: &mut Tools, trend: &mut Trend) {
        let flush_signal = &endpoint.flush_signal;
        flush_signal.watch();
        while !self.is_stopped() {
            if !self.must_lead_now(endpoint) {
                self.nap(endpoint, tools);
            }
            endpoint.send_unsent(tools);
            if !endpoint.is_busy() {
                if flush_signal.rest(|| endpoint.is_busy()) {
                    return;
                }
                flush_signal.watch();
                continue;
            }
            let mut attendance = endpoint.stand_by(&self.waiter);
            if attendance.leads() {
                self.lead(endpoint, &mut attendance, tools, trend);
            } else if flush_signal.rest(|| false) {
                self.waiter.wait(None);
            }
            flush_signal.watch();
            drop(attendance);
        }
    }

    /// Naps and sends queued calls in turn. Returns when no call has been queued for a while, or when calls
    /// are outstanding and no thread leads. Calls that were queued during the last nap are not sent, because
    /// their own threads usually send them soon.
    fn nap(&self, endpoint: &Endpoint, tools: &mut Tools) {
        let (mut nap, mut quiet) = (NAP, 0);
        let mut left = endpoint.left.load(Ordering::Relaxed);
        endpoint.led.store(false, Ordering::Relaxed);
        while quiet < QUIET_LOOKS {
            self.waiter.wait(Some(nap));
            let fresh = endpoint.has_fresh(NAP);
            let sent = !fresh && endpoint.send_unsent(tools);
            if self.is_stopped() || self.must_lead_now(endpoint) {
                return;
            }
            nap = if sent { NAP } else { (nap * 2).min(MAX_NAP) };
            let led = endpoint.led.swap(false, Ordering::Relaxed);
            if !led && endpoint.lead.is_free() && endpoint.is_busy() {
                return;
            }
            let before = std::mem::replace(&mut left, endpoint.left.load(Ordering::Relaxed));
            quiet = if left == before && !fresh { quiet + 1 } else { 0 };
        }
    }

    /// Receives until another thread can lead, and sends queued calls after each arriving datagram. While
    /// calls are being queued it sleeps at most [`NAP`], because no other thread may come to send them.
    fn lead(
        &self,
        endpoint: &Endpoint,
        attendance: &mut Attendance<'_>,
        tools: &mut Tools,
        trend: &mut Trend,
    ) {
        self.polled.store(false, Ordering::SeqCst);
        let mut naps = trend.naps(endpoint);
        let over =
            |naps: bool| !naps && !endpoint.is_busy() || self.is_stopped() || endpoint.lead.is_followed();
        while !over(naps) {
            match naps {
                true => endpoint.flush_signal.watch(),
                false => endpoint.flush_signal.will_receive(),
            }
            endpoint.send_unsent(tools);
            let now = endpoint.env.now();
            let received = Cell::new(false);
            let over = || received.replace(true) || over(naps);
            attendance.by(naps.then(|| now + NAP)).until(tools, now, &over);
            naps = trend.naps(endpoint);
        }
    }

    /// Returns whether to lead without a nap, because tasks wait for calls.
    fn must_lead_now(&self, endpoint: &Endpoint) -> bool {
        self.polled.load(Ordering::SeqCst) || endpoint.tasks.load(Ordering::SeqCst) > 0
    }
}

/// Tracks whether threads still queue calls.
struct Trend {
    /// The number of calls that had been queued, in total, at the last look.
    left: u64,
    /// The number of looks since that number last grew.
    quiet: u32,
}

impl Trend {
    /// Returns whether to look again soon, because calls were queued recently.
    fn naps(&mut self, endpoint: &Endpoint) -> bool {
        let before = std::mem::replace(&mut self.left, endpoint.left.load(Ordering::Relaxed));
        self.quiet = if self.left == before { QUIET_LOOKS.min(self.quiet + 1) } else { 0 };
        self.quiet < QUIET_LOOKS
    }
}

impl Endpoint {
    /// Returns whether started calls are outstanding.
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// Tells the service thread that a call was started and sent.
    pub(super) fn engage(&self, service: &Service) {
        if self.flush_signal.summon() == Duty::Wake {
            service.wake();
        }
    }

    /// Makes the service thread lead soon, because a task waits and perhaps no thread leads.
    pub(super) fn hasten(&self) {
        let Some(service) = self.service.get() else { return };
        if !service.polled.load(Ordering::SeqCst)
            && !service.polled.swap(true, Ordering::SeqCst)
            && self.flush_signal.is_watched()
        {
            service.waiter.wake();
        }
    }
}
