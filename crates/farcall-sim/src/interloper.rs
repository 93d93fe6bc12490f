//! A member with a genuine key that is granted for another name. It sits on the path to the servers, and
//! answers in their place.
//!
//! It runs the protocol's own server. It may be bound to by its own name, but no call may ever reach it,
//! because the clients call what they bound by the servers' name.

use std::net::SocketAddr;

use farcall_proto::server::{Export, Request, Server};
use farcall_proto::{Fingerprint, Time};

use crate::ground::Ground;
use crate::keys;
use crate::names::{NAME, OTHER};

/// The interloper.
pub struct Interloper {
    core: Server,
}

impl Interloper {
    /// Makes the interloper of a run that has one.
    pub fn new(g: &Ground) -> Option<Interloper> {
        let keys = g.plan.secret.as_ref().filter(|keys| keys.intrusion > 0)?;
        let config = keys::server_config(&g.plan.server, Some(keys), g.hostile(), 1);
        let mut core = Server::new(config, Time::from_nanos(1), [0x17; 32]);
        for (id, name) in [(1, NAME), (2, OTHER)] {
            let procedures = [1, 2].map(|n| Fingerprint { number: n, types: n.into(), name: n.into() });
            let (type_name, instance) = (name.into(), String::new());
            core.export(Export { id, type_name, instance, procedures: procedures.into() });
        }
        Some(Interloper { core })
    }

    /// Sees a datagram on its way to a server, and perhaps answers it in the server's place. Returns whether
    /// the datagram goes on to the server.
    pub fn see(&mut self, g: &mut Ground, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        let chance = g.plan.secret.as_ref().map_or(0, |keys| keys.intrusion);
        // Once it has a client's attention, it goes on to answer in the server's place.
        let knows = self.core.conversations() > 0 && g.rng.chance(200_000);
        if g.healed || !knows && !g.rng.chance(chance) {
            return true;
        }
        g.net.faults.intrusions += 1;
        let now = Time::from_nanos(g.now() + 1);
        let mut called = None;
        let seen = g.seen(from);
        self.core.receive_any(now, seen, &mut datagram.to_vec(), &mut |request| {
            called = match request {
                Request::Call(call) => Some(call.export),
                Request::Post(export, ..) => Some(export),
                Request::Cancel(_) => called,
            };
        });
        if let Some(export) = called {
            g.oracle.violate("calls-go-where-they-are-bound", g.net.now(), || {
                format!("a call of {export:016x} came to a server whose key is granted for another name")
            });
        }
        self.core.handle_timeout(now);
        while let Some(t) = self.core.transmit(now, &mut g.scratch) {
            let datagram = t.gather(&g.scratch);
            g.inject(to, t.to, &datagram);
        }
        g.rng.chance(300_000)
    }
}
