//! When a call ends at the latest, and how it ended.

use std::time::Duration;

use farcall::env::Env;
use farcall::{CallFailed, Time};

/// How a call ended. The bytes of a result or exception are in the buffer that was passed along.
#[derive(Debug)]
pub(crate) enum Outcome {
    Result,
    Exception,
    Failed(CallFailed),
}

/// When a call ends at the latest.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    pub(crate) until: Option<Time>,
    /// The time limit, if the caller has set none and the client's own holds.
    pub(crate) patience: Option<Duration>,
}

impl Deadline {
    pub(crate) fn is_over(&self, env: &dyn Env) -> bool {
        self.until.is_some_and(|until| env.now() >= until)
    }
}
