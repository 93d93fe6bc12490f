//! Restores a server's machine from a snapshot. The machine then knows nothing of what happened after the
//! snapshot.
//!
//! The snapshot comes from a second run of the same seed, which is stopped at the moment of the snapshot. The
//! server of the first run cannot be copied, because the type that gives out datagram numbers is deliberately
//! not `Clone`.

use farcall_proto::Rule;

use super::World;
use crate::seals::Watched;

impl World {
    /// Restores a server to its state at an earlier moment, usually a recent one. Does nothing if the server
    /// was not running at that moment.
    pub(super) fn restore_server(&mut self, server: usize) {
        // A run restores a server at most once. Otherwise the second run would repeat the earlier
        // restoration, and need a third run for it.
        self.restored = true;
        let ago = self.g.rng.spread(1, self.steps - 1);
        let mut snapshot = self.at(self.steps - ago);
        if !snapshot.servers[server].runs() {
            return;
        }
        self.g.net.faults.restorations += 1;
        let (now, then) = (self.g.now(), snapshot.g.now());
        self.g.note(&[22, server as u64, then], || {
            format!(
                "server {server} is restored to its state of {} ms ago",
                (now - then) / crate::net::MILLIS
            )
        });
        self.g.oracle.restore(now, server, then, &snapshot.g.oracle);
        // This deliberate fault restores an older snapshot than the oracle was told.
        if self.origin.mutant.breaks(Rule::SnapshotTooOld) {
            snapshot = self.at((self.steps - ago) / 2);
        }
        self.g.server_restored(server, &snapshot.g);
        let node = snapshot.servers.swap_remove(server);
        self.servers[server].restore(&mut self.g, node, then);
    }

    /// Runs this run's seed again for `step` steps, and returns the result.
    fn at(&self, step: u64) -> World {
        // What the second run seals is not sealed twice.
        let _watched = Watched::begin();
        let mut world = World::new(self.origin, false);
        world.run(step);
        world
    }
}
