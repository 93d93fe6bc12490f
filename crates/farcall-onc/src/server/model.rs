//! A server's memory of earlier calls, without sockets, threads and a clock. A simulation passes calls to it,
//! and says when they end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Retention;
use super::duplicates::{Duplicates, Seen as Known, Ticket};
use super::fate::{Lasting, PeerFate};
use super::outgoing::Outcome;
use super::peer::{Peer, Transport};
use crate::wire::message::Call;

/// A server's memory of the calls that it serves or has answered.
pub struct Remembered(Duplicates);

/// A connection, as the server's memory of calls sees it.
#[derive(Default)]
pub struct Line {
    fate: Arc<PeerFate>,
    wire: Arc<Wire>,
}

/// Whether the client's end of a connection is gone before the client has received all its replies.
#[derive(Default)]
struct Wire(AtomicBool);

impl Lasting for Wire {
    fn is_broken_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the memory knows about a call that has arrived.
pub enum Seen {
    /// The call is new. It is to be executed and then [ended](Remembered::end).
    New(Running),
    /// The call is a repetition of a call that is being executed.
    Running,
    /// The call is a repetition of a call that was executed, with this result.
    Answered(Vec<u8>),
}

/// A call that is being executed.
pub struct Running(Option<Ticket>);

impl Remembered {
    /// Makes an empty memory that uses `clock`.
    pub fn new(retention: Retention, clock: fn() -> Duration) -> Remembered {
        Remembered(Duplicates::with_clock(
            retention,
            Box::new(clock),
            RandomState::new().build_hasher().finish(),
        ))
    }

    /// Enters a call that came by a connection (`line`), or as a datagram if `line` is `None`. Returns `None`
    /// if the message is no call.
    pub fn begin(&self, from: SocketAddr, line: Option<&Line>, message: &[u8]) -> Option<Seen> {
        let (call, arguments) = Call::parse(message).ok()?;
        let transport = if line.is_some() { Transport::Tcp } else { Transport::Udp };
        let peer = Peer::at(transport, Some(from));
        let seen = self.0.begin_by(&peer, &call, call.credential, arguments, line.map(|line| &line.fate));
        Some(match seen {
            Known::Never(ticket) => Seen::New(Running(ticket)),
            Known::Running => Seen::Running,
            Known::Answered(Outcome::Result(result, _)) => Seen::Answered(result.to_vec()),
            Known::Answered(Outcome::Failed(_) | Outcome::Silence) => Seen::Running,
        })
    }

    /// Notes that a call was executed, with this result.
    pub fn end(&self, running: Running, result: &[u8]) {
        if let Some(ticket) = running.0 {
            self.0.end(ticket, Outcome::Result(result.to_vec().into(), None));
        }
    }

    /// Forgets calls that are too old or too many.
    pub fn forget(&self) {
        self.0.forget();
    }
}

impl Line {
    /// Makes a connection, which lasts until it is [broken off](Line::break_off) or [ended](Line::end).
    pub fn open() -> Line {
        let line = Line::default();
        line.fate.begin(&line.wire);
        line
    }

    /// Notes that the client's end is gone before the client has received all its replies. The server notices
    /// this only when it asks the system.
    pub fn break_off(&self) {
        self.wire.0.store(true, Ordering::Relaxed);
    }

    /// Notes that the server has seen the connection end. `in_order` says whether the client had received all
    /// its replies.
    pub fn end(&self, in_order: bool) {
        match in_order {
            true => self.fate.end_in_order(),
            false => self.fate.end(),
        }
    }
}
