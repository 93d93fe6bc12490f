//! The settings of a binding.

use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Address, ConnectOptions, Env};
use farcall::{ArgumentBudget, System};

use super::connection::Connection;
use crate::link::{LinkError, Patience};
use crate::wire::message::Versions;

/// The settings of a binding.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) env: Arc<dyn Env>,
    pub(super) patience: Option<Duration>,
    pub(super) connecting: Duration,
    pub(super) versions: Versions,
    pub(super) max_message_bytes: usize,
    pub(super) socket: ConnectOptions,
    pub(super) arguments: Arc<ArgumentBudget>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            env: System::current(),
            patience: Some(Duration::from_secs(25)),
            connecting: Duration::from_secs(10),
            versions: Versions::THREE,
            max_message_bytes: 16 << 20,
            socket: ConnectOptions::default(),
            arguments: ArgumentBudget::of_process(),
        }
    }
}

impl Settings {
    /// Connects to a server.
    pub(super) fn open(&self, to: &Address, patience: Patience<'_>) -> Result<Connection, LinkError> {
        Connection::open(&self.env, to, self.socket, (self.versions, self.max_message_bytes), patience)
    }
}
