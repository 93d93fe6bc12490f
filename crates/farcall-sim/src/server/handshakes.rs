//! Handshakes at a simulated server. As in a driver, one thread computes them, one after another: each waits,
//! is taken out and computed, and is handed in some time later. The server goes on meanwhile.

use farcall_proto::server::{Computed, Server};

use super::ServerNode;
use crate::ground::{Event, Ground};
use crate::net::{MICROS, MILLIS, Nanos};

/// The thread that computes handshakes.
#[derive(Default)]
pub(super) struct Handshakes {
    /// The handshake that is being computed. In fact it is computed already.
    computed: Option<Computed>,
    /// Whether an event will make the thread go on.
    armed: bool,
}

impl ServerNode {
    /// Makes the thread go on after a while, if there is something to do.
    pub(super) fn arm_handshakes(&mut self, g: &mut Ground) {
        let waits = self.core.as_ref().is_some_and(Server::has_handshakes);
        if !self.handshakes.armed && (waits || self.handshakes.computed.is_some()) {
            self.handshakes.armed = true;
            let takes = takes(g);
            g.net.after(takes, Event::Compute(self.index));
        }
    }

    /// Notes that the event which was to make the thread go on will not come.
    pub(super) fn disarm_handshakes(&mut self) {
        self.handshakes.armed = false;
    }

    /// Forgets the handshake that is being computed, because the process has died.
    pub(super) fn forget_handshake(&mut self) {
        self.handshakes.computed = None;
    }

    /// Ends the handshake that is being computed, or begins the next one.
    pub fn compute(&mut self, g: &mut Ground) {
        if self.stopped {
            let takes = takes(g);
            return g.net.after(MILLIS + takes, Event::Compute(self.index));
        }
        self.handshakes.armed = false;
        let now = self.clock.read(g.now());
        let Some(core) = &mut self.core else { return };
        match self.handshakes.computed.take() {
            None => self.handshakes.computed = core.next_handshake(now).map(|handshake| handshake.compute()),
            Some(computed) => {
                g.note(&[23, self.index as u64], || format!("server {} ends a handshake", self.index));
                if let Some(t) = core.finish_handshake(now, computed, &mut g.scratch) {
                    self.send(g, &t);
                }
            }
        }
        self.settle(g);
    }
}

/// Returns how long a thread takes for a step: seldom so long that anything may happen meanwhile.
fn takes(g: &mut Ground) -> Nanos {
    let seldom = !g.plan.calm && g.rng.chance(100_000);
    g.rng.spread(100 * MICROS, if seldom { 90_000 * MILLIS } else { MILLIS })
}
