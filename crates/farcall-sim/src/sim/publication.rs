//! An entry of the simulated registry, and who has published it.

use std::sync::{Arc, Mutex};

use farcall::names::{Entry, Registration};

/// An entry that a process has published.
pub(super) struct Publication {
    /// The life of the process.
    pub publisher: u32,
    pub entry: Entry,
    /// Withdraws the entry. Nobody has this once the entry is withdrawn. While the registry has lost the
    /// entry, it has no effect.
    pub registration: Held,
}

pub(super) type Held = Arc<Mutex<Option<Registration>>>;
