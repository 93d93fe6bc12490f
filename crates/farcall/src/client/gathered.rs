//! Lets one thread wait for several started calls. While it waits, the thread either leads, which means that
//! it receives from the socket for all threads that wait, or follows the thread that leads.

use std::sync::Arc;
use std::time::Duration;

use farcall_proto::SharedPath;

use super::caller::Caller;
use super::service::Service;
use super::waiter::{Waiter, Watcher};
use super::{Endpoint, Peer, Started};
use crate::CallFailed;
use crate::env::{Socket, Time};
use crate::wait::{Interrupt, Parker, ReadyList, ReadyToken, WaitPoint};

/// If replies follow each other within this time, the thread polls for the next one instead of sleeping.
const CLOSE: Duration = Duration::from_micros(50);

impl Started {
    /// Makes the call mark `token` when it ends. Returns false if the call has ended already.
    pub(crate) fn poll_at(&self, endpoint: &Endpoint, peer: &Peer, token: ReadyToken) -> bool {
        self.watch(endpoint, peer, Watcher::Gatherer(token)).is_some()
    }
}

impl WaitPoint for Endpoint {
    fn now(&self) -> Time {
        self.env.now()
    }

    fn wait(&self, ready: &ReadyList, enough: usize, until: Option<Time>) -> Result<(), CallFailed> {
        self.check_process()?;
        let mut caller = Caller::take_to_wait(&self.env)?;
        let Caller { waiter, tools, .. } = &mut *caller;
        // Queued calls are not sent now. Usually arriving results lead to further calls, which can go in the
        // same datagram. If not, the service thread sends the queued calls.
        let over = || ready.count() >= enough || self.is_past(until);
        ready.wait_with(
            Arc::as_ptr(waiter).addr(),
            || Arc::new(WaitingThread { socket: self.socket.clone(), waiter: waiter.clone() }),
            || {
                let (mut attendance, mut now) = (self.attend(waiter), self.env.now());
                let mut heard = 0;
                while !over() {
                    let before = now;
                    now = attendance.by(until).until(tools, now, &|| ready.count() > heard || over());
                    if now.since(before) < CLOSE {
                        now = attendance.look_on(tools, now, &over);
                    }
                    heard = ready.count();
                }
            },
        );
        caller.keep();
        Ok(())
    }

    fn look(&self) -> Result<(), CallFailed> {
        self.check_process()?;
        let mut caller = Caller::take_to_wait(&self.env)?;
        let Caller { waiter, tools, .. } = &mut *caller;
        self.send_unsent(tools);
        self.attend(waiter).look(tools);
        caller.keep();
        Ok(())
    }

    fn room(&self) -> usize {
        self.socket.receive_buffer()
    }

    fn shared_path(&self) -> Option<Arc<SharedPath>> {
        self.path.clone()
    }

    fn step_away(self: Arc<Self>) {
        if self.check_process().is_ok() {
            let service = self.service.get_or_init(|| Service::new(&*self.env));
            service.note_away();
            // If no thread can be started, the calls wait until their own thread comes back.
            let _ = service.run(&self);
        }
    }

    fn come_back(&self) {
        // A child that the user's code has forked has not stepped away.
        if let Some(service) = self.service.get().filter(|_| self.check_process().is_ok()) {
            service.note_back();
        }
    }
}

/// A thread that waits at an endpoint for several calls.
struct WaitingThread {
    socket: Arc<dyn Socket>,
    waiter: Arc<Waiter>,
}

impl Interrupt for WaitingThread {
    fn interrupt(&self, serving: bool) {
        self.waiter.wake();
        // If the thread leads, it sleeps in the socket.
        if !serving {
            self.socket.wake();
        }
    }
}
