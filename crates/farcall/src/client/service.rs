//! The thread that does what nobody else would: receives for calls that were started while no caller
//! does, and sends those of them that were left.
//!
//! Threads that start calls and wait for them in turn lead themselves each time they wait. To pass the
//! lead to this thread in between would cost more than the call. So it lets them: it naps while calls
//! are being started, leads only when nobody has since it last looked, and gives the lead to the next
//! thread that waits. For tasks, which cannot lead, it leads at once, and sends what was left whenever
//! something has come.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::Endpoint;
use super::caller::{Caller, Tools};
use super::drive::Attendance;
use super::waiter::Waiter;
use crate::env::Env;
use crate::lock;
use crate::wait::{Duty, Parker};

/// The longest that a call may be left unsent by others: less than a thread may have to wait for a processor.
const NAP: Duration = Duration::from_micros(100);
/// The longest time between two looks while others send what is left.
const LONGEST_NAP: Duration = Duration::from_micros(300);
/// After so many looks at which nothing was left since the last it naps no more.
const QUIET: u32 = 8;

/// The service thread, seen by those who need it.
pub(super) struct Service {
    waiter: Arc<Waiter>,
    /// The thread was started.
    running: AtomicBool,
    starting: Mutex<()>,
    /// A task has waited for a call since it last led: it leads without a nap.
    ///
    /// SeqCst: a task writes this and then reads whether the service thread watches; the service thread says
    /// that it no longer watches and then reads this (`is_hurried`). At least one of them sees the other.
    polled: AtomicBool,
    stopped: AtomicBool,
}

impl Service {
    pub(super) fn new(env: &dyn Env) -> Arc<Service> {
        let [running, polled, stopped] = [const { AtomicBool::new(false) }; 3];
        Arc::new(Service { waiter: Waiter::new(env), running, starting: Mutex::default(), polled, stopped })
    }

    /// Starts the thread, unless it was started. Where there can be none now, the next call tries again.
    pub(super) fn run(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        if self.running.load(Ordering::Acquire) { Ok(()) } else { self.start(endpoint) }
    }

    #[cold]
    fn start(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        // Nobody counts on a thread that another is still trying to start.
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
        let (mut tools, mut trend) = (Tools::new(), Trend { left: 0, quiet: QUIET });
        while !self.is_stopped() {
            // No reference is kept while there is nothing to do, so the endpoint can go.
            match endpoint.upgrade() {
                Some(endpoint) => self.serve(&endpoint, &mut tools, &mut trend),
                None => return,
            }
            self.waiter.wait(None);
        }
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

    /// Naps, leads, or stands by to lead, while there is anything to do it for.
    fn serve(&self, endpoint: &Endpoint, tools: &mut Tools, trend: &mut Trend) {
        let vigil = &endpoint.flush_signal;
        vigil.watch();
        while !self.is_stopped() {
            if !self.is_hurried(endpoint) {
                self.nap(endpoint, tools);
            }
            endpoint.send_unsent(tools);
            if !endpoint.is_busy() {
                if vigil.rest(|| endpoint.is_busy()) {
                    return;
                }
                vigil.watch();
                continue;
            }
            let mut attendance = endpoint.stand_by(&self.waiter);
            if attendance.leads() {
                self.lead(endpoint, &mut attendance, tools, trend);
            } else if vigil.rest(|| false) {
                self.waiter.wait(None);
            }
            vigil.watch();
            drop(attendance);
        }
    }

    /// Sends what others left, again and again, until nothing is left any more for a while, or somebody must
    /// lead and nobody does. What they left just now they will send themselves, as they did with what was
    /// left before.
    fn nap(&self, endpoint: &Endpoint, tools: &mut Tools) {
        let (mut nap, mut quiet) = (NAP, 0);
        let mut left = endpoint.left.load(Ordering::Relaxed);
        endpoint.led.store(false, Ordering::Relaxed);
        while quiet < QUIET {
            self.waiter.wait(Some(nap));
            let fresh = endpoint.has_fresh(NAP);
            let sent = !fresh && endpoint.send_unsent(tools);
            if self.is_stopped() || self.is_hurried(endpoint) {
                return;
            }
            nap = if sent { NAP } else { (nap * 2).min(LONGEST_NAP) };
            let led = endpoint.led.swap(false, Ordering::Relaxed);
            if !led && endpoint.lead.is_free() && endpoint.is_busy() {
                return;
            }
            let before = std::mem::replace(&mut left, endpoint.left.load(Ordering::Relaxed));
            quiet = if left == before && !fresh { quiet + 1 } else { 0 };
        }
    }

    /// Receives, until a thread comes that can lead. Each time that something has come it sends what was left
    /// meanwhile. As long as calls are left it sleeps a nap at most: nobody else might come to send them.
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

    /// Whether there are tasks to lead for.
    fn is_hurried(&self, endpoint: &Endpoint) -> bool {
        self.polled.load(Ordering::SeqCst) || endpoint.tasks.load(Ordering::SeqCst) > 0
    }
}

/// Whether calls are being left, as far as the service thread has seen.
struct Trend {
    left: u64,
    /// Looks since it saw one.
    quiet: u32,
}

impl Trend {
    /// Whether to look again soon.
    fn naps(&mut self, endpoint: &Endpoint) -> bool {
        let before = std::mem::replace(&mut self.left, endpoint.left.load(Ordering::Relaxed));
        self.quiet = if self.left == before { QUIET.min(self.quiet + 1) } else { 0 };
        self.quiet < QUIET
    }
}

impl Endpoint {
    /// Whether calls that were started are outstanding.
    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    /// A call was started and sent.
    pub(super) fn engage(&self, service: &Service) {
        if self.flush_signal.summon() == Duty::Wake {
            service.wake();
        }
    }

    /// A task waits, perhaps while nobody leads.
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
