//! Bytes to and from a peer: waits until a given time at the latest.

use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use farcall::Time;
use farcall::env::{Env, Interest, Stream, Wait};

use crate::link::{self, Attendant, LinkError};

/// A connection, or a socket that is connected to one peer. One thread at a time uses it.
pub(crate) struct Wire {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) stream: Arc<dyn Stream>,
}

impl Wire {
    /// Sends bytes. After an error the peer has not received all of them.
    pub(crate) fn send(
        &self,
        bytes: &[u8],
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        link::send(&*self.env, &*self.stream, bytes, until, attendant)
    }

    /// Sends a datagram, which goes whole or not at all.
    pub(crate) fn send_datagram(
        &self,
        message: &[u8],
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        match self.stream.write(&[IoSlice::new(message)]) {
            Ok(_) => Ok(()),
            // The refusal of an earlier packet was reported instead.
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => self.send(message, until, attendant),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.send(message, until, attendant)
            }
            Err(why) => Err(LinkError::System(why)),
        }
    }

    /// Waits for bytes, or for a datagram, and returns their number: at least 1 for a connection. What has
    /// arrived when the time is over still counts.
    pub(crate) fn receive(
        &self,
        buffer: &mut [u8],
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<usize, LinkError> {
        loop {
            let wait = match attendant {
                Some(attendant) => {
                    link::wait_for(&*self.env, &*self.stream, Interest::READ, until, Some(attendant))?;
                    Wait::No
                }
                None => until.map_or(Wait::Forever, |until| wait(until.since(self.env.now()))),
            };
            match self.stream.read(buffer, wait) {
                Ok(count) => return Ok(count),
                Err(why) if is_early(why.kind()) => {
                    if until.is_some_and(|until| self.env.now() >= until) {
                        return Err(LinkError::Late);
                    }
                }
                Err(why) => return Err(LinkError::System(why)),
            }
        }
    }

    /// Waits until a connection that is being made is made.
    pub(crate) fn settle(
        &self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        link::settle(&*self.env, &*self.stream, until, attendant)
    }
}

fn wait(left: Duration) -> Wait {
    if left.is_zero() {
        return Wait::No;
    }
    u64::try_from(left.as_nanos()).map_or(Wait::Forever, Wait::Nanos)
}

/// Returns whether a read has only ended before something arrived.
fn is_early(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}
