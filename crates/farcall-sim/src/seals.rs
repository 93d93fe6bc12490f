//! Watches the seals of a run with keys.

#[cfg(feature = "soak")]
use farcall_proto::secure::audit;

use crate::counts::counts;
use crate::plan::Plan;

counts! {
    /// What happened to seals and keys.
    Seals {
        /// Datagrams, answers and tickets that were sealed.
        sealed,
        /// Seals that opened.
        opened,
        /// Seals that did not open.
        refused,
        /// Seals with a number that the key had used before. Only restored servers may make some.
        reused,
        /// Handshakes that clients completed.
        handshakes,
        /// How often an end made the secrets of a resumed conversation.
        resumptions,
        /// How often an end went on to the next phase.
        phases,
    }
}

/// Watches the seals of this thread from now on, and those that were watched before again when it is dropped.
pub struct Watched {
    #[cfg(feature = "soak")]
    before: Option<audit::Audit>,
}

impl Watched {
    /// Begins to watch.
    pub fn begin() -> Watched {
        Watched {
            #[cfg(feature = "soak")]
            before: audit::exchange(None),
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        #[cfg(feature = "soak")]
        audit::exchange(self.before.take());
    }
}

/// Begins to watch the seals of a run, whose phases are as short as its plan says.
pub fn begin(plan: &Plan) {
    #[cfg(feature = "soak")]
    audit::exchange(plan.secret.as_ref().map(|keys| audit::Audit::new(keys.max_per_phase)));
    #[cfg(not(feature = "soak"))]
    let _ = plan;
}

/// Returns what has happened to the seals of the run.
pub fn seen() -> Seals {
    #[cfg(feature = "soak")]
    {
        let audit::Counts { sealed, opened, refused, reused, handshakes, resumptions, phases, .. } =
            audit::counts();
        Seals { sealed, opened, refused, reused, handshakes, resumptions, phases }
    }
    #[cfg(not(feature = "soak"))]
    Seals::default()
}
