//! The calling end: one conversation of one client endpoint with one server endpoint.

use std::borrow::Cow;
use std::time::Duration;

use crate::{ClientConfig, Failure, Time, Trace};

/// A call that was started: its activity and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The activity, a slot of the conversation's pool.
    pub activity: u32,
    /// The call's number, never used twice in a conversation.
    pub sequence: u64,
}

/// What a caller says of a call besides its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The export's identifier, from [`Event::Bound`].
    pub export: u64,
    /// The procedure's number.
    pub procedure: u32,
    /// When the caller stops waiting; travels with the call as a duration.
    pub deadline: Option<Time>,
    /// Trace context.
    pub trace: Option<Trace>,
    /// The caller's own mark, returned with the outcome.
    pub token: u64,
}

/// How a call ended. A body is XDR, borrowed from the datagram when it came in one.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// The procedure's result.
    Result(Cow<'a, [u8]>),
    /// An exception that the interface declares.
    Exception(Cow<'a, [u8]>),
    /// The call failed.
    Failed(Failure),
}

/// What a server told us about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The export's identifier: random, good for one incarnation.
    pub export: u64,
    /// The exported procedures: number and fingerprint.
    pub procedures: Vec<(u32, u64)>,
    /// How long the answer took.
    pub round_trip: Duration,
}

/// What happened, for whoever drives the conversation.
#[derive(Debug)]
pub enum Event<'a> {
    /// A call ended; its activity is free again.
    Ended {
        /// Which call.
        id: CallId,
        /// Its caller's mark.
        token: u64,
        /// How it ended.
        outcome: Outcome<'a>,
    },
    /// A [`Conversation::bind`] ended.
    Bound {
        /// The mark given to `bind`.
        token: u64,
        /// What the server said.
        answer: Result<Bound, Failure>,
    },
}

/// Counts of what a conversation did, ever growing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Calls started.
    pub calls: u64,
    /// Datagrams made.
    pub sent: u64,
    /// Bytes of those datagrams.
    pub bytes_sent: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped: malformed, corrupted, or not of this conversation.
    pub dropped: u64,
    /// Calls, binds and fragments sent again.
    pub retransmitted: u64,
    /// Probes sent.
    pub probes: u64,
    /// Results that came again, or for calls that had ended.
    pub duplicates: u64,
}

/// One conversation, seen from its caller.
pub struct Conversation {
    id: u64,
}

impl Conversation {
    /// A conversation that has exchanged nothing yet. `id` is chosen at random by the caller, not
    /// zero, and unlike any other of its endpoint.
    pub fn new(config: ClientConfig, id: u64) -> Conversation {
        let _ = config;
        Conversation { id }
    }

    /// The identifier that the server's datagrams to us bear.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// An empty buffer for a call's arguments, used before if there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        todo!()
    }

    /// Asks the server which export answers to `name` (`Type` or `Type/instance`; empty asks only
    /// whether it is there). Ends with [`Event::Bound`]. Leaves no state at the server.
    pub fn bind(&mut self, now: Time, name: &str, token: u64) {
        let _ = (now, name, token);
        todo!()
    }

    /// Starts a call; what it must send is ready for [`Conversation::transmit`].
    ///
    /// # Errors
    /// The arguments come back, with why, when the bound of outstanding calls is reached or they
    /// are too large: the call did not run.
    pub fn start(
        &mut self,
        now: Time,
        call: &Call,
        args: Vec<u8>,
    ) -> Result<CallId, (Failure, Vec<u8>)> {
        let _ = (now, call, args);
        todo!()
    }

    /// Asks the server to give the call up. It still ends by an [`Event::Ended`]: with its outcome
    /// when that was on its way, else cancelled, saying whether it ran. Nothing if it had ended.
    pub fn cancel(&mut self, now: Time, id: CallId) {
        let _ = (now, id);
        todo!()
    }

    /// Takes in a datagram whose [`crate::route`] is this conversation.
    pub fn handle(&mut self, now: Time, datagram: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let _ = (now, datagram, sink);
        todo!()
    }

    /// An ICMP error spoke of the server's address: hastens a probe, decides nothing.
    pub fn handle_unreachable(&mut self, now: Time) {
        let _ = now;
        todo!()
    }

    /// When [`Conversation::handle_timeout`] wants to be called; `None` when nothing is waited for.
    pub fn timeout(&self) -> Option<Time> {
        todo!()
    }

    /// Acts on the timers that are due.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut dyn FnMut(Event<'_>)) {
        let _ = (now, sink);
        todo!()
    }

    /// Writes the next datagram that is ready into `out` (at least as long as
    /// [`ClientConfig::max_datagram`]) and returns its length.
    pub fn transmit(&mut self, now: Time, out: &mut [u8]) -> Option<usize> {
        let _ = (now, out);
        todo!()
    }

    /// Calls that have not ended.
    pub fn outstanding(&self) -> usize {
        todo!()
    }

    /// The smoothed round-trip time, once one was measured.
    pub fn round_trip(&self) -> Option<Duration> {
        todo!()
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        todo!()
    }
}
