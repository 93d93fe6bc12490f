//! The thread that leads while started calls are outstanding and no caller receives.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use super::Endpoint;
use super::lead::Seat;
use super::waiter::{Tools, Waiter};
use crate::env::Env;

/// The service thread, seen by those who need it.
pub(super) struct Service {
    waiter: Arc<Waiter>,
    /// The thread was started.
    running: AtomicBool,
    /// It is up, and will see calls that were started before it looks next.
    engaged: AtomicBool,
    stopped: AtomicBool,
}

impl Service {
    pub(super) fn new(env: &dyn Env) -> Arc<Service> {
        let [running, engaged, stopped] = [const { AtomicBool::new(false) }; 3];
        Arc::new(Service { waiter: Waiter::new(env), running, engaged, stopped })
    }

    /// Starts the thread, unless it was started. Where there can be none now, the next call tries again.
    pub(super) fn run(self: &Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        if self.running.load(Ordering::SeqCst) || self.running.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let (service, weak) = (self.clone(), Arc::downgrade(endpoint));
        let started = endpoint.env.spawn("farcall-service", Box::new(move || service.live(&weak)));
        started.inspect_err(|_| self.running.store(false, Ordering::SeqCst))
    }

    fn live(&self, endpoint: &Weak<Endpoint>) {
        let mut tools = Tools::new();
        while !self.stopped.load(Ordering::SeqCst) {
            // No reference is kept while there is nothing to do, so the endpoint can go.
            match endpoint.upgrade() {
                Some(endpoint) => self.serve(&endpoint, &mut tools),
                None => return,
            }
            self.waiter.wait(None);
        }
    }

    /// A call was started.
    pub(super) fn engage(&self) {
        if !self.engaged.swap(true, Ordering::SeqCst) {
            self.waiter.wake();
        }
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.waiter.wake();
    }

    /// Leads, or stands by to lead, while there is anything to lead for.
    fn serve(&self, endpoint: &Endpoint, tools: &mut Tools) {
        let idle = || endpoint.busy.load(Ordering::SeqCst) == 0 || self.stopped.load(Ordering::SeqCst);
        loop {
            while !idle() {
                let mut attendance = endpoint.stand_by(&self.waiter);
                if attendance.leads() {
                    attendance.until(tools, endpoint.env.now(), None, None, &idle);
                }
            }
            // Whoever starts a call now either sees that we are not engaged, or is seen by us.
            self.engaged.store(false, Ordering::SeqCst);
            if idle() {
                return;
            }
            self.engaged.store(true, Ordering::SeqCst);
        }
    }
}
