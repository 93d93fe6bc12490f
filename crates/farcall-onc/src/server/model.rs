//! What a server remembers of calls without its sockets, its threads and a clock: a simulator gives it calls,
//! and ends them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Retention;
use super::caller::{Peer, Transport};
use super::duplicates::{Duplicates, Fate, Lasting, Seen as Known, Ticket};
use super::outgoing::Outcome;
use crate::wire::message::Call;

/// A server's memory of calls.
pub struct Remembered(Duplicates);

/// A connection, as a server sees it.
#[derive(Default)]
pub struct Line {
    fate: Arc<Fate>,
    wire: Arc<Wire>,
}

#[derive(Default)]
struct Wire(AtomicBool);

impl Lasting for Wire {
    fn is_broken_off(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is known of a call that came.
pub enum Seen {
    /// It is to be executed, and then [ended](Remembered::end).
    New(Running),
    /// It is being executed.
    Running,
    /// It had this result.
    Answered(Vec<u8>),
}

/// A call that is being executed.
pub struct Running(Option<Ticket>);

impl Remembered {
    /// Nothing yet, and by this clock.
    pub fn new(retention: Retention, clock: fn() -> Duration) -> Remembered {
        Remembered(Duplicates::with_clock(retention, clock))
    }

    /// A call has come, by a connection or as a datagram; none if it is no call.
    pub fn begin(&self, from: SocketAddr, line: Option<&Line>, message: &[u8]) -> Option<Seen> {
        let (call, arguments) = Call::parse(message).ok()?;
        let transport = if line.is_some() { Transport::Tcp } else { Transport::Udp };
        let peer = Peer { transport, address: Some(from), user: None, connection: None };
        let seen = self.0.begin_by(&peer, &call, call.credential, arguments, line.map(|line| &line.fate));
        Some(match seen {
            Known::Never(ticket) => Seen::New(Running(ticket)),
            Known::Running => Seen::Running,
            Known::Answered(Outcome::Result(result, _)) => Seen::Answered(result.to_vec()),
            Known::Answered(Outcome::Failed(_) | Outcome::Silence) => Seen::Running,
        })
    }

    /// It was executed.
    pub fn end(&self, running: Running, result: &[u8]) {
        if let Some(ticket) = running.0 {
            self.0.end(ticket, Outcome::Result(result.to_vec().into(), None));
        }
    }

    /// Forgets what is too old or too much.
    pub fn forget(&self) {
        self.0.forget();
    }
}

impl Line {
    /// A connection that lasts.
    pub fn open() -> Line {
        let line = Line::default();
        line.fate.begin(&line.wire);
        line
    }

    /// The client's end of it is gone, without all its replies. The server sees that when it looks.
    pub fn break_off(&self) {
        self.wire.0.store(true, Ordering::Relaxed);
    }

    /// The server has seen it end, with all its replies or without.
    pub fn end(&self, in_order: bool) {
        match in_order {
            true => self.fate.end_in_order(),
            false => self.fate.end(),
        }
    }
}
