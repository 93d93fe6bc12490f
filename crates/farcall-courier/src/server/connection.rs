//! One connection of a client, which one thread serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::Time;
use farcall::env::{Env, Stream};

use super::programs::{Buffers, Programs, Verdict};
use crate::link::{Link, LinkError};
use crate::wire::message::{Courier, Versions};
use crate::wire::packet::{Datastream, Received};

/// The limits of each connection.
#[derive(Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// After this time without a call the connection ends.
    pub(super) idle: Duration,
    /// How long a message may take from its first byte to its last, sent or received.
    pub(super) message_time: Duration,
    /// The most bytes of a message.
    pub(super) message_bytes: usize,
    pub(super) versions: Versions,
}

/// A connection of a client.
pub(super) struct Connection {
    link: Link,
    programs: Arc<Programs>,
    limits: ConnectionLimits,
    from: Option<SocketAddr>,
    silence: Arc<Silence>,
    /// When the last call ended, or the connection began.
    idle_from: Time,
    /// When the message began that is received in part.
    begun: Option<Time>,
    courier: Option<Courier>,
    buffers: Buffers,
}

/// Since when a connection waits for a call, for the thread that may end it to make room for another.
#[derive(Debug, Default)]
pub(super) struct Silence(AtomicU64);

impl Silence {
    /// Returns since when the connection waits for a call, or `None` if it does not.
    pub(super) fn since(&self) -> Option<Time> {
        Some(self.0.load(Ordering::Relaxed)).filter(|nanos| *nanos != BUSY).map(Time::from_nanos)
    }

    fn begin(&self, now: Time) {
        self.0.store(now.as_nanos().min(BUSY - 1), Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }
}

/// The state of [`Silence`] while a call is received, executed or answered.
const BUSY: u64 = u64::MAX;

impl Connection {
    pub(super) fn new(
        env: &Arc<dyn Env>,
        stream: Arc<dyn Stream>,
        from: Option<SocketAddr>,
        programs: Arc<Programs>,
        limits: ConnectionLimits,
        silence: Arc<Silence>,
    ) -> Connection {
        let idle_from = env.now();
        silence.begin(idle_from);
        let link = Link::new(env.clone(), stream, limits.message_bytes);
        let (begun, courier, buffers) = Default::default();
        Connection { link, programs, limits, from, silence, idle_from, begun, courier, buffers }
    }

    /// Serves the connection until it ends.
    pub(super) fn serve(mut self) {
        // An error means that the client has gone, or that it is not to be served any more. Nobody is there
        // to be told.
        let _ = self.answer_calls();
    }

    fn answer_calls(&mut self) -> Result<(), LinkError> {
        self.link.put(Datastream::Messages, &self.limits.versions.to_bytes(), false);
        self.send()?;
        loop {
            self.wait()?;
            let Some(received) = self.link.reader.received() else { return Ok(()) };
            match received {
                Received::Versions(theirs) => {
                    self.courier = self.limits.versions.common(theirs);
                    if self.courier.is_none() {
                        return Ok(());
                    }
                }
                Received::Message(message) => {
                    let Some(courier) = self.courier else { return Ok(()) };
                    self.silence.end();
                    let verdict = self.programs.answer(message, courier, self.from, &mut self.buffers);
                    if verdict == Verdict::End {
                        return Ok(());
                    }
                    self.link.put(Datastream::Messages, &self.buffers.reply, true);
                    self.send()?;
                    if verdict == Verdict::ReplyAndEnd {
                        return Ok(());
                    }
                    (self.idle_from, self.begun) = (self.link.env.now(), None);
                    self.silence.begin(self.idle_from);
                }
                Received::End => {
                    self.link.put(Datastream::EndReply, &[], true);
                    return self.send();
                }
                // An abort of bulk data that has ended already.
                Received::Attention(_) => {}
                // No call is under way that has bulk data.
                Received::Bulk(..) => return Ok(()),
            }
        }
    }

    fn send(&mut self) -> Result<(), LinkError> {
        let until = self.link.env.now() + self.limits.message_time;
        self.link.send(Some(until))
    }

    /// Waits until something was received.
    fn wait(&mut self) -> Result<(), LinkError> {
        while !self.link.reader.advance().map_err(LinkError::BadPacket)? {
            let until = match self.link.reader.is_partial() {
                true => {
                    self.silence.end();
                    *self.begun.get_or_insert_with(|| self.link.env.now()) + self.limits.message_time
                }
                false => self.idle_from + self.limits.idle,
            };
            self.link.read(Some(until), None)?;
            if self.link.env.now() >= until {
                // Bytes that come all the time do not extend a limit.
                return Err(LinkError::Late);
            }
        }
        Ok(())
    }
}
