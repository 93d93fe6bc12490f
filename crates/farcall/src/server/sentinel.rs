//! Looks after a receiver that executes a procedure which is known to be quick, in case it is not.
//!
//! It is woken by the first such call after a quiet time, and then naps while calls keep coming.
//! The receiver pays no system call for it, only a count under a lock that it holds anyway.

use std::sync::Arc;
use std::time::Duration;

use super::crew::Relief;
use super::{LONGEST_NAP, NAP, Server};

/// After so many looks at which nothing had moved the sentinel sleeps.
const QUIET: u32 = 64;

/// What the sentinel remembers from one look to the next.
struct Watch {
    progress: u64,
    /// Whether a lone receiver was executing at the last look.
    alone: bool,
    quiet: u32,
    nap: Duration,
}

impl Server {
    pub(super) fn spawn_sentinel(self: Arc<Self>) -> std::io::Result<()> {
        let env = self.env.clone();
        env.spawn(
            "farcall-sentinel",
            Box::new(move || {
                loop {
                    self.sentinel.wait(None);
                    if self.is_stopped() {
                        return;
                    }
                    self.watch();
                }
            }),
        )
    }

    /// Watches until nothing has moved for a while.
    fn watch(self: &Arc<Self>) {
        let mut watch = Watch { progress: self.lock().crew.progress, alone: true, quiet: 0, nap: NAP };
        while watch.quiet < QUIET {
            self.sentinel.wait(Some(watch.nap));
            if self.is_stopped() {
                return;
            }
            let relief = self.look(&mut watch);
            if let Some(relief) = relief {
                self.relieve(relief);
            }
        }
    }

    fn look(&self, watch: &mut Watch) -> Option<Relief> {
        let crew = &mut self.lock().crew;
        let alone = crew.receiving() == 0;
        let moved = crew.progress != watch.progress;
        let stuck = alone && watch.alone && !moved;
        watch.quiet = if moved || alone { 0 } else { watch.quiet + 1 };
        watch.nap = if alone { NAP } else { (watch.nap * 2).min(LONGEST_NAP) };
        (watch.progress, watch.alone) = (crew.progress, alone);
        if watch.quiet >= QUIET {
            crew.guarded = false;
        }
        if stuck { crew.relieve_if_alone() } else { None }
    }
}
