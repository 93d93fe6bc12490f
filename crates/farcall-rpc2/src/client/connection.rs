//! One connection to a server: binds, and exchanges a request for its reply, again and again until it comes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Env, Received, Socket, SocketOptions, Wait};
use farcall::{CallFailed, Kind, Ran, Time};

use crate::packet::{self, Header, MAX_PACKET_BYTES};

/// The size to request for the socket's buffers, in bytes.
const SOCKET_BUFFER_BYTES: usize = 1 << 16;
/// The shortest time after which a packet is sent again, and the time before anything is known of the
/// network.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two such packets.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// The shortest time after a server has said that it is executing the call.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
/// The number of a reply to a bind that says BUSY.
const BUSY_BIND: u32 = u32::MAX;

/// How long a call may wait.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// The call's deadline.
    pub until: Option<Time>,
    /// How long a server may be silent.
    pub patience: Duration,
    pub attendant: &'a dyn Attendant,
}

/// What concerns a waiting thread beside the reply.
pub(super) trait Attendant {
    /// Returns whether nobody waits for the call any more.
    fn is_over(&self) -> bool;

    /// Ends the started calls whose deadline has passed before their turn came, and returns the earliest
    /// deadline of the others.
    fn end_late_calls(&self) -> Option<Time>;
}

/// The attendant of a call that its caller's thread makes.
pub(super) struct Alone;

impl Attendant for Alone {
    fn is_over(&self) -> bool {
        false
    }

    fn end_late_calls(&self) -> Option<Time> {
        None
    }
}

impl Limits<'_> {
    /// Checks that somebody waits for the call, and that its deadline has not passed.
    ///
    /// # Errors
    /// The failure of the call, with `ran`.
    pub fn check(&self, now: Time, ran: Ran) -> Result<(), CallFailed> {
        if self.attendant.is_over() {
            return Err(CallFailed::new(Kind::Cancelled, ran));
        }
        if self.until.is_some_and(|until| until <= now) {
            let why = if ran == Ran::No { "no request was sent in time" } else { "no reply in time" };
            return Err(CallFailed::new(Kind::Deadline, ran).because(why));
        }
        Ok(())
    }
}

pub(super) struct Connection {
    env: Arc<dyn Env>,
    socket: Arc<dyn Socket>,
    to: SocketAddr,
    subsystem: u32,
    uniquefier: u32,
    /// The handles of this end and of the server's.
    local: u32,
    remote: u32,
    /// The number of the next request.
    sequence: u32,
    lamport: u32,
    /// A smoothed round trip, once there was one.
    round_trip: Option<Duration>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    /// Binds to a subsystem.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn bind(
        env: &Arc<dyn Env>,
        to: SocketAddr,
        subsystem: u32,
        identity: &[u8],
        limits: Limits<'_>,
    ) -> Result<Connection, CallFailed> {
        let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let options =
            SocketOptions { buffer: SOCKET_BUFFER_BYTES, divisible: true, ..SocketOptions::default() };
        let socket = env
            .bind(SocketAddr::new(any, 0), &options)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
        let mut random = [0; 8];
        env.entropy(&mut random);
        let [a, b, c, d, e, f, g, h] = random;
        let mut connection = Connection {
            env: env.clone(),
            socket,
            to,
            subsystem,
            uniquefier: u32::from_be_bytes([a, b, c, d]),
            // Neither 0 nor all ones, which mean that there is no connection.
            local: u32::from_be_bytes([e, f, g, h]) & 0x7fff_ffff | 1,
            remote: 0,
            sequence: 0,
            lamport: 0,
            round_trip: None,
            sent: Vec::new(),
            received: vec![0; MAX_PACKET_BYTES + 1],
        };
        let body = packet::bind_body(identity);
        let (header, _) = connection
            .exchange(packet::INIT1_OPEN, packet::INIT2, &body, limits)
            .map_err(|why| CallFailed::new(why.kind(), Ran::No).because(why.detail().to_owned()))?;
        if header.return_code != 0 {
            let why = format!("the server refuses the bind ({})", header.return_code);
            return Err(CallFailed::new(Kind::NotExported, Ran::No).because(why));
        }
        connection.remote = header.local;
        Ok(connection)
    }

    /// Makes a call. Returns its return code and the packed results.
    ///
    /// # Errors
    /// No reply has come. The connection is then of no more use.
    pub fn call(&mut self, opcode: i32, body: &[u8], limits: Limits<'_>) -> Result<(i32, &[u8]), CallFailed> {
        let (header, count) = self.exchange(opcode, packet::REPLY, body, limits)?;
        self.sequence = self.sequence.wrapping_add(2);
        let body = Header::parse(&self.received[..count]).map_or(&[][..], |(_, body)| body);
        Ok((header.return_code, body))
    }

    /// Sends a packet until its answer has come. Returns the answer's header and its length.
    fn exchange(
        &mut self,
        opcode: i32,
        wanted: i32,
        body: &[u8],
        limits: Limits<'_>,
    ) -> Result<(Header, usize), CallFailed> {
        self.lamport = self.lamport.wrapping_add(1);
        let mut header = Header {
            remote: self.remote,
            local: self.local,
            sequence: self.sequence,
            opcode,
            subsystem: self.subsystem,
            lamport: self.lamport,
            uniquefier: self.uniquefier,
            ..Header::default()
        };
        let mut silent_until = self.env.now() + limits.patience;
        let mut pause = self.round_trip.map_or(FIRST_PAUSE, |time| (time * 4).clamp(MIN_PAUSE, MAX_PAUSE));
        let mut is_first = true;
        loop {
            let sent_at = self.env.now();
            header.timestamp = micros(sent_at);
            header.flags = if is_first { 0 } else { packet::RETRY };
            self.sent.clear();
            header.write(body, &mut self.sent);
            if let Err(why) = self.socket.send(self.to, &self.sent) {
                let ran = if is_first { Ran::No } else { Ran::Maybe };
                return Err(CallFailed::new(Kind::Unreachable, ran).because(why.to_string()));
            }
            let next = sent_at + pause;
            let end = [Some(next), Some(silent_until), limits.until].into_iter().flatten().min();
            match self.await_answer(&header, wanted, end.unwrap_or(next), limits.attendant)? {
                Answer::Wanted(answer, count) => {
                    if is_first {
                        self.note(self.env.now().since(sent_at));
                    }
                    self.lamport = self.lamport.max(answer.lamport);
                    return Ok((answer, count));
                }
                Answer::Busy => {
                    silent_until = self.env.now() + limits.patience;
                    pause = pause.max(BUSY_PAUSE);
                }
                Answer::None => pause = (pause * 2).min(MAX_PAUSE),
            }
            is_first = false;
            let now = self.env.now();
            limits.check(now, Ran::Maybe)?;
            if silent_until <= now {
                let why = format!("nothing was heard for {:?}", limits.patience);
                return Err(CallFailed::new(Kind::Unreachable, Ran::Maybe).because(why));
            }
        }
    }

    /// Receives until the answer has come, or the time has.
    fn await_answer(
        &mut self,
        sent: &Header,
        wanted: i32,
        until: Time,
        attendant: &dyn Attendant,
    ) -> Result<Answer, CallFailed> {
        let mut is_busy = false;
        loop {
            let late = attendant.end_late_calls();
            let now = self.env.now();
            if until <= now {
                return Ok(if is_busy { Answer::Busy } else { Answer::None });
            }
            let left = late.map_or(until, |late| late.min(until)).since(now);
            let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
            let received = self.socket.receive(&mut self.received, Wait::Nanos(nanos));
            let Ok(Received::Datagrams { from, len, .. }) = received else { continue };
            let Some((header, _)) = self.received.get(..len).and_then(Header::parse) else { continue };
            if from != self.to || header.remote != self.local {
                continue;
            }
            let is_bind = wanted == packet::INIT2;
            let answers =
                if is_bind { header.sequence == 0 } else { header.sequence == sent.sequence.wrapping_add(1) };
            let is_peer = is_bind || header.local == self.remote;
            match header.opcode {
                packet::NAK if header.local == packet::NO_CONNECTION => {
                    // The network can double a packet. The server may have executed one copy, lost the
                    // connection, and refused the other, so even the first request may have run.
                    let ran = if is_bind { Ran::No } else { Ran::Maybe };
                    let why = "the server does not know the connection any more";
                    return Err(CallFailed::new(Kind::Unreachable, ran).because(why));
                }
                opcode if opcode == wanted && answers && is_peer => return Ok(Answer::Wanted(header, len)),
                // Not a reason to send the request again at once.
                packet::BUSY if is_peer && (answers || is_bind && header.sequence == BUSY_BIND) => {
                    is_busy = true
                }
                _ => {}
            }
        }
    }

    /// Notes a round trip (Jacobson 1988, without the deviation).
    fn note(&mut self, time: Duration) {
        self.round_trip = Some(self.round_trip.map_or(time, |known| known * 7 / 8 + time / 8));
    }
}

enum Answer {
    /// The header of the answer, and the packet's length.
    Wanted(Header, usize),
    Busy,
    None,
}

/// Returns the microseconds of a time, of which RPC2 has 32 bits.
fn micros(time: Time) -> u32 {
    (time.as_nanos() / 1000) as u32
}
