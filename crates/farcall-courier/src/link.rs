//! One connection: sends packets, and waits for those of the peer, until a given time at the latest.

use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use farcall::Time;
use farcall::env::{Address, Alarm, ConnectOptions, Env, Interest, Stream, Wait, Wanted};
use farcall::room::{self, NoMemory};

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
    /// Why some of them are not there.
    lacks: Option<NoMemory>,
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

/// When to stop waiting, and what to do meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) until: Option<Time>,
    pub(crate) attendant: Option<&'a dyn Attendant>,
}

impl Patience<'static> {
    /// Waits until this time, or for ever if there is none.
    pub(crate) fn until(until: impl Into<Option<Time>>) -> Patience<'static> {
        Patience { until: until.into(), attendant: None }
    }
}

/// Returns whether a thread was told to wait no longer.
pub(crate) fn is_stopped(attendant: Option<&dyn Attendant>) -> bool {
    attendant.is_some_and(|attendant| attendant.attend().is_err())
}

impl Link {
    pub(crate) fn new(env: Arc<dyn Env>, stream: Arc<dyn Stream>, max_message_bytes: usize) -> Link {
        let (reader, writer) = (PacketReader::new(max_message_bytes), PacketWriter::default());
        Link { env, stream, reader, writer, out: Vec::new(), lacks: None, is_held: false }
    }

    /// Adds the packets of some data to those that are to be sent. `ends` says that a message ends here.
    /// If this process has no memory for them, sending them fails.
    pub(crate) fn put(&mut self, datastream: Datastream, data: &[u8], ends: bool) {
        match room::reserve(&mut self.out, PacketWriter::packet_bytes(data.len())) {
            Ok(()) => self.writer.write(datastream, data, ends, &mut self.out),
            Err(why) => self.lacks = Some(why),
        }
    }

    /// Adds a packet that aborts the peer's data, or this end's.
    pub(crate) fn attention(&mut self, datastream: Datastream) {
        /// The byte that says so.
        const ABORT: u8 = 1;
        self.writer.attention(datastream, ABORT, &mut self.out);
    }

    /// Looks whether something has arrived, without waiting. Discards bulk data, but not for longer than it
    /// takes to read a few times: the peer may send all the time.
    pub(crate) fn look(&mut self) -> Result<Option<Arrival>, LinkError> {
        const MAX_READS: usize = 8;
        if self.is_held {
            return Ok(Some(Arrival::Message));
        }
        for _ in 0..MAX_READS {
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
        Ok(None)
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
    pub(crate) fn send(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        if let Some(why) = self.lacks.take() {
            return Err(LinkError::System(why.into()));
        }
        send(&*self.env, &*self.stream, &self.out, until, attendant)?;
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
        let (mut is_first, mut is_over) = (true, false);
        while !self.advance()? {
            if is_over {
                return Err(LinkError::Late);
            }
            if self.reader.is_partial() {
                self.stream.acknowledge();
            }
            // What has arrived when the time is over still counts, but a peer that sends all the time does
            // not extend it. Most messages come with the first read, which needs no look at the clock.
            is_over = !is_first && self.check(until).is_err();
            is_first = false;
            self.read(until, attendant)?;
        }
        self.reader.received().ok_or(LinkError::Ended)
    }

    /// # Errors
    /// [`LinkError::Late`] if the time is over.
    pub(crate) fn check(&self, until: Option<Time>) -> Result<(), LinkError> {
        match until.is_some_and(|until| self.env.now() >= until) {
            true => Err(LinkError::Late),
            false => Ok(()),
        }
    }

    /// Waits for some bytes, or for less.
    pub(crate) fn read(
        &mut self,
        until: Option<Time>,
        attendant: Option<&dyn Attendant>,
    ) -> Result<(), LinkError> {
        match read(&*self.env, &*self.stream, self.reader.space(), until, attendant)? {
            Some(0) => Err(LinkError::Ended),
            Some(count) => {
                self.reader.filled(count);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both);
    }
}

/// Sends bytes. After an error the peer has not received all of them.
pub(crate) fn send(
    env: &dyn Env,
    stream: &dyn Stream,
    bytes: &[u8],
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<(), LinkError> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&[IoSlice::new(&bytes[sent..])]) {
            Ok(count) => sent += count,
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) if why.kind() == ErrorKind::WouldBlock => wait_to_send(env, stream, until, attendant)?,
            Err(why) => return Err(LinkError::System(why)),
        }
    }
    Ok(())
}

/// Waits for bytes or a datagram, and returns their number; 0 at the end of a connection. Returns `None` if
/// the wait has only ended early. What has arrived when the time is over still counts.
pub(crate) fn read(
    env: &dyn Env,
    stream: &dyn Stream,
    buffer: &mut [u8],
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<Option<usize>, LinkError> {
    let wait = match attendant {
        Some(attendant) => {
            wait_for(env, stream, Interest::READ, until, Some(attendant))?;
            Wait::No
        }
        None => until.map_or(Wait::Forever, |until| wait(until, env.now())),
    };
    match stream.read(buffer, wait) {
        Ok(count) => Ok(Some(count)),
        Err(why) if is_early(why.kind()) => match until {
            Some(until) if env.now() >= until => Err(LinkError::Late),
            _ => Ok(None),
        },
        Err(why) => Err(LinkError::System(why)),
    }
}

/// Connects to a server.
///
/// # Errors
/// No server accepts connections there, or the time is over.
pub(crate) fn connect(
    env: &dyn Env,
    to: &Address,
    options: ConnectOptions,
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<Arc<dyn Stream>, LinkError> {
    let within = until.map(|until| until.since(env.now()));
    if within.is_some_and(|within| within.is_zero()) {
        return Err(LinkError::Late);
    }
    let stream = env.connect(to, &ConnectOptions { within, ..options }).map_err(|why| match why.kind() {
        ErrorKind::TimedOut => LinkError::Late,
        _ => LinkError::System(why),
    })?;
    settle(env, &*stream, until, attendant)?;
    Ok(stream)
}

/// Waits until a connection that is being made is made.
fn settle(
    env: &dyn Env,
    stream: &dyn Stream,
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<(), LinkError> {
    loop {
        let mut wanted = [Wanted::new(stream.source(), Interest::WRITE)];
        env.wait_any(&mut wanted, Some(Duration::ZERO)).map_err(LinkError::System)?;
        if wanted[0].ready.write {
            return stream.take_error().map_err(LinkError::System);
        }
        wait_to_send(env, stream, until, attendant)?;
    }
}

/// Waits as [`wait_for`] does, unless the time is over.
fn wait_to_send(
    env: &dyn Env,
    stream: &dyn Stream,
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<(), LinkError> {
    if until.is_some_and(|until| env.now() >= until) {
        return Err(LinkError::Late);
    }
    wait_for(env, stream, Interest::WRITE, until, attendant)
}

/// Waits until a stream has this readiness, the attendant's alarm rings, or the time is over. It may also end
/// for no reason.
fn wait_for(
    env: &dyn Env,
    stream: &dyn Stream,
    interest: Interest,
    until: Option<Time>,
    attendant: Option<&dyn Attendant>,
) -> Result<(), LinkError> {
    let ready = Wanted::new(stream.source(), interest);
    let left = |until: Option<Time>| until.map(|until| until.since(env.now()));
    let waited = match attendant {
        Some(attendant) => {
            attendant.alarm().quiet();
            let next = attendant.attend()?;
            let left = left([until, next].into_iter().flatten().min());
            env.wait_any(&mut [ready, Wanted::new(attendant.alarm().source(), Interest::READ)], left)
        }
        None => env.wait_any(&mut [ready], left(until)),
    };
    match waited {
        Err(why) if why.kind() != ErrorKind::Interrupted => Err(LinkError::System(why)),
        _ => Ok(()),
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
