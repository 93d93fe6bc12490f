//! Bytes to and from a peer: waits until a given time at the latest.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use farcall::Time;
use farcall::env::{Env, Interest, Stream, Wait, Wanted};

use crate::link::{Attendant, LinkError};

/// A connection, or a socket that is connected to one peer. One thread at a time uses it.
pub(crate) struct Wire {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) stream: Arc<dyn Stream>,
}

impl Wire {
    /// Sends bytes. After an error the peer has not received all of them.
    pub(crate) fn send(&self, bytes: &[u8], until: Option<Time>) -> Result<(), LinkError> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.stream.write(&[IoSlice::new(&bytes[sent..])]) {
                Ok(count) => sent += count,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => self.wait_for(Interest::WRITE, until)?,
                Err(why) => return Err(LinkError::System(why)),
            }
        }
        Ok(())
    }

    /// Sends a datagram, which goes whole or not at all.
    pub(crate) fn send_datagram(&self, message: &[u8], until: Option<Time>) -> Result<(), LinkError> {
        match self.stream.write(&[IoSlice::new(message)]) {
            Ok(_) => Ok(()),
            // The refusal of an earlier packet was reported instead.
            Err(why) if why.kind() == ErrorKind::ConnectionRefused => self.send(message, until),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.send(message, until)
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
                    self.wait_attending(until, attendant)?;
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
    pub(crate) fn settle(&self, until: Option<Time>) -> Result<(), LinkError> {
        self.wait_for(Interest::WRITE, until)?;
        let mut wanted = [Wanted::new(self.stream.source(), Interest::WRITE)];
        self.env.wait_any(&mut wanted, Some(Duration::ZERO)).map_err(LinkError::System)?;
        match wanted[0].ready.write {
            true => self.stream.take_error().map_err(LinkError::System),
            false => Err(LinkError::Late),
        }
    }

    /// Waits until bytes have arrived, the alarm rings, or the time is over.
    fn wait_attending(&self, until: Option<Time>, attendant: &dyn Attendant) -> Result<(), LinkError> {
        attendant.alarm().quiet();
        let next = attendant.attend()?;
        let until = [until, next].into_iter().flatten().min();
        let left = until.map(|until| until.since(self.env.now()));
        let mut wanted = [
            Wanted::new(self.stream.source(), Interest::READ),
            Wanted::new(attendant.alarm().source(), Interest::READ),
        ];
        succeeded(self.env.wait_any(&mut wanted, left))
    }

    /// Waits until the connection has this readiness.
    fn wait_for(&self, interest: Interest, until: Option<Time>) -> Result<(), LinkError> {
        let left = until.map(|until| until.since(self.env.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(LinkError::Late);
        }
        succeeded(self.env.wait_any(&mut [Wanted::new(self.stream.source(), interest)], left))
    }
}

fn succeeded(waited: io::Result<()>) -> Result<(), LinkError> {
    match waited {
        Err(why) if why.kind() != ErrorKind::Interrupted => Err(LinkError::System(why)),
        _ => Ok(()),
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
