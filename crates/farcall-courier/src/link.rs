//! One connection: sends packets, and waits for those of the peer, until a given time at the latest.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;

use farcall::Time;
use farcall::env::{Alarm, Env, Interest, Stream, Wait, Wanted};

use crate::wire::message::Versions;
use crate::wire::packet::{BadPacket, Datastream, PacketReader, PacketWriter, Received};

/// A connection with its buffers. One thread at a time uses it.
pub(crate) struct Link {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) stream: Arc<dyn Stream>,
    pub(crate) reader: PacketReader,
    writer: PacketWriter,
    /// The packets that are to be sent.
    out: Vec<u8>,
    /// Whether the message that was received last is to be received again.
    is_held: bool,
}

/// What has arrived while data is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Versions(Versions),
    Attention,
    /// A message, which the next [`Link::receive`] returns.
    Message,
}

/// The memory for packets that is kept for the next message.
const KEPT_BYTES: usize = 64 << 10;

/// Why nothing more comes from the peer, or goes there.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The time is over.
    Late,
    /// The peer has ended the connection.
    Ended,
    /// The system reports an error.
    System(io::Error),
    /// The peer sent what is no packet, or too much.
    BadPacket(BadPacket),
    /// The thread that waits was told to stop.
    Stopped,
}

/// What a thread does while it waits at a link, besides waiting.
pub(crate) trait Attendant {
    /// Returns the alarm that wakes the thread.
    fn alarm(&self) -> &dyn Alarm;

    /// Does what the alarm may have rung for. Returns when to do so again even without an alarm.
    ///
    /// # Errors
    /// [`LinkError::Stopped`] if the thread is to wait no longer.
    fn attend(&self) -> Result<Option<Time>, LinkError>;
}

impl Link {
    pub(crate) fn new(env: Arc<dyn Env>, stream: Arc<dyn Stream>, max_message_bytes: usize) -> Link {
        let (reader, writer) = (PacketReader::new(max_message_bytes), PacketWriter::default());
        Link { env, stream, reader, writer, out: Vec::new(), is_held: false }
    }

    /// Adds the packets of some data to those that are to be sent. `ends` says that a message ends here.
    pub(crate) fn put(&mut self, datastream: Datastream, data: &[u8], ends: bool) {
        self.writer.write(datastream, data, ends, &mut self.out);
    }

    /// Adds a packet that aborts the peer's data, or this end's.
    pub(crate) fn attention(&mut self, datastream: Datastream) {
        /// The byte that says so.
        const ABORT: u8 = 1;
        self.writer.attention(datastream, ABORT, &mut self.out);
    }

    /// Looks whether something has arrived, without waiting. Discards bulk data.
    pub(crate) fn look(&mut self) -> Result<Option<Arrival>, LinkError> {
        if self.is_held {
            return Ok(Some(Arrival::Message));
        }
        loop {
            while self.reader.advance().map_err(LinkError::BadPacket)? {
                match self.reader.received() {
                    Some(Received::Versions(versions)) => return Ok(Some(Arrival::Versions(versions))),
                    Some(Received::Attention(_)) => return Ok(Some(Arrival::Attention)),
                    Some(Received::Message(_)) => {
                        self.is_held = true;
                        return Ok(Some(Arrival::Message));
                    }
                    Some(Received::End) => return Err(LinkError::Ended),
                    Some(Received::Bulk(..)) | None => {}
                }
            }
            match self.stream.read(self.reader.space(), Wait::No) {
                Ok(0) => return Err(LinkError::Ended),
                Ok(count) => self.reader.filled(count),
                Err(why) if is_early(why.kind()) => return Ok(None),
                Err(why) => return Err(LinkError::System(why)),
            }
        }
    }

    /// Goes on to the next thing that was received. Returns false if nothing was.
    pub(crate) fn advance(&mut self) -> Result<bool, LinkError> {
        if std::mem::take(&mut self.is_held) {
            return Ok(true);
        }
        self.reader.advance().map_err(LinkError::BadPacket)
    }

    /// Sends what was put. After an error the connection is of no more use. The peer has then not received
    /// the last message whole.
    pub(crate) fn send(&mut self, until: Option<Time>) -> Result<(), LinkError> {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.stream.write(&[IoSlice::new(&self.out[sent..])]) {
                Ok(count) => sent += count,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => self.wait_for(Interest::WRITE, until)?,
                Err(why) => return Err(LinkError::System(why)),
            }
        }
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        Ok(())
    }

    /// Waits for the next thing that the peer sends.
    pub(crate) fn receive(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<Received<'_>, LinkError> {
        // What has arrived when the time is over still counts.
        while !self.advance()? {
            self.read(until, attendant)?;
        }
        self.reader.received().ok_or(LinkError::Ended)
    }

    /// Reads some bytes.
    pub(crate) fn read(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        let wait = match attendant {
            Some(attendant) => {
                self.wait_attending(until, attendant)?;
                Wait::No
            }
            None => until.map_or(Wait::Forever, |until| wait(until, self.env.now())),
        };
        match self.stream.read(self.reader.space(), wait) {
            Ok(0) => Err(LinkError::Ended),
            Ok(count) => {
                self.reader.filled(count);
                Ok(())
            }
            Err(why) if is_early(why.kind()) => match until {
                Some(until) if self.env.now() >= until => Err(LinkError::Late),
                _ => Ok(()),
            },
            Err(why) => Err(LinkError::System(why)),
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
        match self.env.wait_any(&mut wanted, left) {
            Err(why) if why.kind() != ErrorKind::Interrupted => Err(LinkError::System(why)),
            _ => Ok(()),
        }
    }

    /// Waits until the connection has this readiness.
    fn wait_for(&self, interest: Interest, until: Option<Time>) -> Result<(), LinkError> {
        let left = until.map(|until| until.since(self.env.now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(LinkError::Late);
        }
        match self.env.wait_any(&mut [Wanted::new(self.stream.source(), interest)], left) {
            Err(why) if why.kind() != ErrorKind::Interrupted => Err(LinkError::System(why)),
            _ => Ok(()),
        }
    }

    /// Waits until a connection that is being made is made.
    pub(crate) fn settle(&self, until: Option<Time>) -> Result<(), LinkError> {
        self.wait_for(Interest::WRITE, until)?;
        let mut wanted = [Wanted::new(self.stream.source(), Interest::WRITE)];
        self.env.wait_any(&mut wanted, Some(std::time::Duration::ZERO)).map_err(LinkError::System)?;
        match wanted[0].ready.write {
            true => self.stream.take_error().map_err(LinkError::System),
            false => Err(LinkError::Late),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both);
    }
}

/// Returns the wait that ends at `until`.
fn wait(until: Time, now: Time) -> Wait {
    let left = until.since(now);
    if left.is_zero() {
        return Wait::No;
    }
    u64::try_from(left.as_nanos()).map_or(Wait::Forever, Wait::Nanos)
}

/// Returns whether a read has only ended before something arrived. (`TimedOut` says that the system has given
/// the connection up.)
fn is_early(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
