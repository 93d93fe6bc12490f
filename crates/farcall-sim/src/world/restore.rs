//! A server's machine is restored from a snapshot: it has not done what it did since.
//!
//! The snapshot comes from a second run of the same seed, which is stopped at the moment of the snapshot. The
//! state of a server cannot be copied, because the type of the next datagram's number is not `Clone` on
//! purpose.

use farcall_proto::Rule;

use super::World;

impl World {
    /// A server is as it was at some moment, mostly not long ago; unless it was not running then.
    pub(super) fn restore_server(&mut self, server: usize) {
        // Once in a run, or a second run of it would need a third one.
        self.restored = true;
        let ago = self.g.rng.spread(1, self.steps - 1);
        let mut snapshot = self.at(self.steps - ago);
        if !snapshot.servers[server].runs() {
            return;
        }
        self.g.net.faults.restorations += 1;
        let (now, then) = (self.g.now(), snapshot.g.now());
        self.g.note(&[22, server as u64, then], || {
            format!("server {server} is restored as it was {} ms ago", (now - then) / crate::net::MILLIS)
        });
        self.g.oracle.restore(now, server, then, &snapshot.g.oracle);
        if self.origin.mutant.breaks(Rule::SnapshotTooOld) {
            snapshot = self.at((self.steps - ago) / 2);
        }
        self.g.server_restored(server, &snapshot.g);
        let node = snapshot.servers.swap_remove(server);
        self.servers[server].restore(&mut self.g, node, then);
    }

    /// This run when no more than that had happened.
    fn at(&self, step: u64) -> World {
        let mut world = World::new(self.origin, false);
        world.run(step);
        world
    }
}
