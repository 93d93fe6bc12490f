//! The serving end: every conversation of one socket.

use std::borrow::Cow;
use std::net::SocketAddr;

use crate::{Failure, ServerConfig, Time, Trace};

/// A call that is to be executed, exactly once: the name under which its outcome is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The conversation, by the server's identifier.
    pub conversation: u64,
    /// The caller's activity.
    pub activity: u32,
    /// The call's number.
    pub sequence: u64,
}

/// An interface that the server offers.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its identifier: random, 64 bits, new at each export, not zero.
    pub id: u64,
    /// The interface's type.
    pub type_name: String,
    /// This instance of it.
    pub instance: String,
    /// Its procedures: number and fingerprint.
    pub procedures: Vec<(u32, u64)>,
}

/// A call to execute.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// To be given to [`Server::finish`], whatever happens.
    pub key: CallKey,
    /// Who calls.
    pub from: SocketAddr,
    /// The export that it names, which exists.
    pub export: u64,
    /// The procedure's number, not checked.
    pub procedure: u32,
    /// When the caller stops waiting.
    pub deadline: Option<Time>,
    /// Trace context.
    pub trace: Option<Trace>,
    /// The arguments, borrowed from the datagram when they came in one.
    pub args: Cow<'a, [u8]>,
}

/// What the server's user must do.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this call, or refuse it, and [`Server::finish`] it.
    Call(Incoming<'a>),
    /// The caller of this unfinished call has given it up. It is still to be finished, if only to
    /// say that it is over.
    Cancel(CallKey),
}

/// How a call was finished. A failure with `Ran::No` refuses it: it will never be executed.
#[derive(Clone, Debug)]
pub enum Finish {
    /// The payload is the procedure's result.
    Result,
    /// The payload is a declared exception.
    Exception,
    /// It failed; the payload is not sent.
    Failed(Failure),
}

/// A datagram to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// Its length.
    pub len: usize,
}

/// Counts of what a server did, ever growing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Calls given to the user.
    pub calls: u64,
    /// Datagrams made.
    pub sent: u64,
    /// Bytes of those datagrams.
    pub bytes_sent: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped as malformed or corrupted.
    pub dropped: u64,
    /// Calls that came again and were not executed again.
    pub duplicates: u64,
    /// Results sent again.
    pub retransmitted: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// Tickets refused.
    pub stale: u64,
    /// Conversations forgotten.
    pub evicted: u64,
    /// Calls refused by the protocol, by [`crate::Kind`] code.
    pub refused: [u64; 24],
}

/// The serving end of every conversation of one socket.
pub struct Server {}

impl Server {
    /// A server that knows nobody. `secret` is fresh entropy: a new one is a new incarnation.
    pub fn new(config: ServerConfig, now: Time, secret: [u8; 32]) -> Server {
        let _ = (config, now, secret);
        Server {}
    }

    /// Offers an interface.
    pub fn export(&mut self, export: Export) {
        let _ = export;
        todo!()
    }

    /// Offers it no longer: calls of it are refused, `Ran::No`.
    pub fn withdraw(&mut self, id: u64) {
        let _ = id;
        todo!()
    }

    /// Refuses every new call from now on; those that were begun are finished.
    pub fn drain(&mut self) {
        todo!()
    }

    /// An empty buffer for a result, used before if there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        todo!()
    }

    /// Takes in a datagram.
    pub fn handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
        sink: &mut dyn FnMut(Request<'_>),
    ) {
        let _ = (now, from, datagram, sink);
        todo!()
    }

    /// Gives back a call's outcome. When it fits one datagram that is written into `out` and
    /// returned; else [`Server::transmit`] has the fragments. Ignored if the call is no longer the
    /// last of its activity.
    pub fn finish(
        &mut self,
        now: Time,
        key: CallKey,
        finish: Finish,
        payload: Vec<u8>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let _ = (now, key, finish, payload, out);
        todo!()
    }

    /// Writes the next datagram that is ready into `out` (at least as long as
    /// [`ServerConfig::max_datagram`]).
    pub fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let _ = (now, out);
        todo!()
    }

    /// When [`Server::handle_timeout`] wants to be called; `None` when nothing is held.
    pub fn timeout(&self) -> Option<Time> {
        todo!()
    }

    /// Lets go of what was held long enough.
    pub fn handle_timeout(&mut self, now: Time) {
        let _ = now;
        todo!()
    }

    /// Conversations remembered.
    pub fn conversations(&self) -> usize {
        todo!()
    }

    /// Bytes of results held and of arguments being reassembled.
    pub fn held_bytes(&self) -> usize {
        todo!()
    }

    /// Calls given to the user and not finished.
    pub fn unfinished(&self) -> usize {
        todo!()
    }

    /// What it did so far.
    pub fn stats(&self) -> &Stats {
        todo!()
    }
}
