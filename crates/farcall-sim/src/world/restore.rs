//! Restores a server's machine from a snapshot, as if the machine had done nothing since.
//!
//! The snapshot comes from a second run of the same seed, which is stopped at the moment of the snapshot. A
//! server cannot be copied: the type that gives out datagram numbers is deliberately not `Clone`.

use farcall_proto::Rule;

use super::World;

impl World {
    /// Restores a server to an earlier, usually recent, moment. Does nothing if it was not running then.
    pub(super) fn restore_server(&mut self, server: usize) {
        // At most once in a run: otherwise the second run would meet the earlier restoration and need a
        // third.
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
        // A mutant breaks the simulation on purpose: this one restores a snapshot that is too old.
        if self.origin.mutant.breaks(Rule::SnapshotTooOld) {
            snapshot = self.at((self.steps - ago) / 2);
        }
        self.g.server_restored(server, &snapshot.g);
        let node = snapshot.servers.swap_remove(server);
        self.servers[server].restore(&mut self.g, node, then);
    }

    /// Returns this run as it was after this many events.
    fn at(&self, step: u64) -> World {
        let mut world = World::new(self.origin, false);
        world.run(step);
        world
    }
}
