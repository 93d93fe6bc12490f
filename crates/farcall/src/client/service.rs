//! The thread that leads while started calls are outstanding and no caller receives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Endpoint;
use super::lead::Seat;
use super::waiter::{Tools, Waiter};
use crate::env::Env;

/// The service thread, seen by those who need it.
pub(super) struct Service {
    waiter: Arc<Waiter>,
    /// It is up, and will see calls that were started before it looks next.
    engaged: AtomicBool,
    stopped: AtomicBool,
}

impl Service {
    pub(super) fn new(env: &dyn Env) -> Arc<Service> {
        Arc::new(Service { waiter: Waiter::new(env), engaged: AtomicBool::new(false), stopped: AtomicBool::new(false) })
    }

    /// Starts the thread.
    pub(super) fn run(self: Arc<Self>, endpoint: &Arc<Endpoint>) -> io::Result<()> {
        let endpoint = Arc::downgrade(endpoint);
        let env = endpoint.upgrade().map(|endpoint| endpoint.env.clone());
        let Some(env) = env else { return Ok(()) };
        env.spawn(
            "farcall-service",
            Box::new(move || {
                let mut tools = Tools::new();
                while !self.stopped.load(Ordering::SeqCst) {
                    // No reference is kept while there is nothing to do, so the endpoint can go.
                    match endpoint.upgrade() {
                        Some(endpoint) => self.serve(&endpoint, &mut tools),
                        None => return,
                    }
                    self.waiter.wait(None);
                }
            }),
        )
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
        let idle = || endpoint.started.load(Ordering::SeqCst) == 0 || self.stopped.load(Ordering::SeqCst);
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
