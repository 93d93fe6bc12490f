//! The calling end: one conversation of one client endpoint with one server endpoint.
//!
//! | file | job |
//! |---|---|
//! | `slots.rs` | the pool of activities, the order in which their calls began |
//! | `session.rs` | tickets and binding |
//! | `handshake.rs` | how it comes to a conversation's key |
//! | `evidence.rs` | what a refusal of the ticket proves about calls |
//! | `receive.rs` | what each frame from the server means |
//! | `send.rs` | what goes into the next datagram |
//! | `timers.rs` | retransmission, probes, deadlines, giving up |
//! | `refusals.rs` | what the network says of a port at which nobody listens |
//! | `usual.rs` | what slow procedures usually take |
//! | `lone.rs` | the fast path of a call that has its conversation to itself |

mod evidence;
#[cfg(feature = "test-scheme")]
mod handshake;
mod lone;
mod receive;
mod refusals;
mod send;
mod session;
mod slots;
mod timers;
mod usual;

use std::borrow::Cow;
use std::time::Duration;

use crate::path::{Mtu, Path};
use crate::scheme::{Direction, Scheme, Seal};
use crate::wire::{self, Numbers};
use crate::{ClientConfig, Failure, Fingerprint, Kind, Ran, Rule, Time, Trace, nanos};
pub use lone::Lone;
use refusals::Refusals;
use session::Session;
use slots::{Slot, Slots, Stage, Want};
use usual::{Callee, Usual};

/// A call that was started: its activity and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The activity, a slot of the conversation's pool.
    pub activity: u32,
    /// The call's number, never used twice in a conversation.
    pub sequence: u64,
}

/// What a caller says of a call besides its arguments.
#[derive(Clone, Copy, Debug, Default)]
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

impl Call {
    /// Whom it calls.
    #[inline(always)]
    fn callee(&self) -> Callee {
        (self.export, self.procedure)
    }
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
    /// What a binding compares of the exported procedures.
    pub procedures: Vec<Fingerprint>,
    /// How long the answer took.
    pub round_trip: Duration,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// Nothing of it was sent.
    Unsent,
    /// Something of it was sent.
    Sent,
    /// It has ended.
    Ended,
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
        /// Its arguments, if nobody needs them any more here: who makes the call again may take them.
        arguments: &'a mut Vec<u8>,
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
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped: malformed, corrupted, or not of this conversation.
    pub dropped: u64,
    /// Bytes of the datagrams made.
    pub bytes_sent: u64,
    /// Calls, binds and fragments sent again.
    pub retransmitted: u64,
    /// Probes sent.
    pub probes: u64,
    /// Results that came again, or for calls that had ended.
    pub duplicates: u64,
    /// Calls that have not ended. (The fields from here on are of now.)
    pub outstanding: usize,
    /// Bytes of arguments in fragments that are under way.
    pub in_flight: u32,
    /// The smoothed round-trip time, once one was measured.
    pub round_trip: Option<Duration>,
    /// The largest datagram that is known to pass, in bytes.
    pub datagram: usize,
}

/// One conversation, seen from its caller.
pub struct Conversation {
    config: ClientConfig,
    /// Our identifier, in the header of what the server sends.
    id: u64,
    session: Session,
    slots: Slots,
    numbers: Numbers,
    /// The seal of the datagrams that we send.
    seal: Seal,
    /// The key that a handshake has led to, while the WELCOME that completed it is being handled.
    #[cfg(feature = "test-scheme")]
    agreed: Option<crate::scheme::Key>,
    timers: Timers,
    refusals: Refusals,
    path: Path,
    mtu: Mtu,
    usual: Usual,
    transfers: Transfers,
    keep_alive: KeepAlive,
    stats: Stats,
}

/// When calls are looked at.
struct Timers {
    /// Not later than the earliest moment at which a call wants [`Conversation::handle_timeout`].
    check: Time,
    /// Before this time, a further word that the server cannot be reached changes nothing.
    unreachable_until: Time,
    /// The bounds of the time between two tries of a call, in nanoseconds: those of the configuration, which
    /// divides.
    least_interval: u64,
    most_interval: u64,
}

/// What is known of long arguments and results.
#[derive(Default)]
struct Transfers {
    /// Whether fragments have come or gone since there was no call.
    fragments: bool,
    /// When a short call was last made beside a long message.
    short_call_at: Option<Time>,
    /// The length of the last result that came in fragments.
    usual_result: usize,
    /// Bytes of the long arguments of calls that have not ended.
    long_arguments: usize,
    /// Long results that have arrived, and their lengths: the server is told, even if nothing else is sent.
    completed: Vec<(CallId, u32)>,
}

/// How the server learns that calls are still waited for.
#[derive(Default)]
struct KeepAlive {
    /// When the last datagram left that was not just a call.
    spoke: Time,
    /// Whether the server is to hear that calls are waited for.
    wanted: bool,
    /// Our patience in nanoseconds, if each call is to tell it.
    told_patience: Option<u64>,
}

/// The room of their arguments activities keep for their next calls if it is no larger than that, and of so
/// many together if all had as much as this one: the more there are, the less each.
const SPARE_BYTES: usize = crate::spares::SHORTEST;
const ALL_SPARE_BYTES: usize = 64 * SPARE_BYTES;

/// Room as small as that all keep.
const SHORT_BUFFER: usize = 256;

/// Arguments longer than that are counted as long. No datagram holds them.
const LONG: usize = 64 << 10;

/// No timer.
const NEVER: Time = Time::from_nanos(u64::MAX);

impl Conversation {
    /// A conversation that has exchanged nothing yet. `id` is chosen at random by the caller, not
    /// zero, and unlike any other of its endpoint.
    pub fn new(config: ClientConfig, id: u64) -> Conversation {
        debug_assert_ne!(id, 0);
        let usual = Usual::new(nanos(config.min_retransmit) / 2, nanos(config.max_retransmit));
        let told_patience = (config.patience != crate::config::PATIENCE).then(|| nanos(config.patience));
        Conversation {
            id,
            session: Session::new(id),
            slots: Slots::default(),
            numbers: Numbers::from(1),
            seal: Seal::without_key(Scheme::Open, Direction::ToServer),
            #[cfg(feature = "test-scheme")]
            agreed: None,
            timers: Timers {
                check: Time::default(),
                unreachable_until: Time::default(),
                least_interval: nanos(config.min_retransmit),
                most_interval: nanos(config.max_retransmit),
            },
            refusals: Refusals::default(),
            path: Path::default(),
            mtu: Mtu::new(config.max_datagram),
            usual,
            transfers: Transfers::default(),
            keep_alive: KeepAlive { told_patience, ..KeepAlive::default() },
            stats: Stats::default(),
            config,
        }
    }

    /// The identifier that the server's datagrams to us bear.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// An empty buffer for the arguments of the next call, used before if there is one.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.slots.room().map(std::mem::take).unwrap_or_default()
    }

    /// Asks the server which export answers to `name` (`Type` or `Type/instance`; empty asks only
    /// whether it is there). Ends with [`Event::Bound`]. Leaves no state at the server.
    pub fn bind(&mut self, now: Time, name: &str, token: u64) {
        self.session.bind(now, name, token, self.config.min_retransmit);
    }

    /// Asks no longer what [`Conversation::bind`] asked with this token, and gives no answer.
    pub fn forget_bind(&mut self, token: u64) {
        self.session.forget_bind(token);
    }

    /// Starts a call; what it must send is ready for [`Conversation::transmit`]. The clock is read only if
    /// the time matters. The arguments are taken, and an empty buffer left in their place, which was used
    /// before.
    ///
    /// # Errors
    /// The arguments stay where they are when the bound of outstanding calls is reached, they are
    /// too large, or they are not XDR (a multiple of four bytes): the call did not run.
    #[inline(always)]
    pub fn start(
        &mut self,
        clock: impl Fn() -> Time,
        call: &Call,
        args: &mut Vec<u8>,
    ) -> Result<CallId, Failure> {
        let many = self.slots.outstanding >= self.config.max_outstanding as usize;
        if many || !is_encodable(args.len()) {
            return Err(self.objection(args));
        }
        if self.slots.outstanding == 0 {
            self.timers.check = clock().plus(self.timers.least_interval);
            self.transfers.fragments = false;
        }
        let sequence = self.slots.next_sequence;
        self.slots.next_sequence += 1;
        if args.len() > LONG {
            self.transfers.long_arguments += args.len();
        }
        let activity = self.slots.open(sequence, call, args);
        self.stats.calls += 1;
        if let Some(deadline) = call.deadline {
            self.timers.check = self.timers.check.min(deadline);
        }
        if self.session.granted.is_none() {
            self.session.greet(clock(), self.config.min_retransmit);
        }
        Ok(CallId { activity, sequence })
    }

    /// How far a call has come.
    pub fn progress(&mut self, id: CallId) -> CallProgress {
        match self.slots.find(id) {
            None => CallProgress::Ended,
            Some(slot) if slot.timing.first_sent.is_none() => CallProgress::Unsent,
            Some(_) => CallProgress::Sent,
        }
    }

    /// Whether a call that was started just now may be left for others to share its datagram, no more of them
    /// than fill it: a quarter of the calls whose results are expected may, so that both ends always have
    /// something to do. If the next result that comes makes them leave (`clocked`), they may while any is
    /// expected (Nagle's rule, RFC 896). One that is alone, or among slow ones, waits for nothing.
    #[inline]
    pub fn may_wait(&self, id: CallId, clocked: bool) -> bool {
        let queued = self.slots.queued as u64;
        let expected = self.slots.next_sequence - 1 - self.slots.newest_ended;
        // One more would have to fit: else one datagram would be full, and the call that is left over alone
        // in the next.
        let overhead = wire::call_overhead(self.seal.scheme);
        let bytes = |slot: &Slot| (self.slots.queued + 1) * (slot.args.len() + overhead);
        (if clocked { queued < expected } else { queued * 4 < expected })
            && self.session.granted.is_some()
            && self.slots.get(id.activity).is_some_and(|slot| bytes(slot) < self.mtu.datagram)
    }

    /// Why a call is not begun.
    #[cold]
    fn objection(&self, args: &[u8]) -> Failure {
        if self.slots.outstanding >= self.config.max_outstanding as usize {
            let detail = format!("{} calls are outstanding", self.slots.outstanding);
            return Failure::new(Kind::Overloaded, Ran::No).with_detail(detail);
        }
        Failure::new(Kind::TooLarge, Ran::No).with_detail(format!("arguments of {} bytes", args.len()))
    }

    /// Asks the server to give the call up. The call still ends by an [`Event::Ended`]. If it was not sent,
    /// it ends at once. Otherwise it ends with the server's answer, or with its outcome if that was on its
    /// way; and after 3 round trips or `min_retransmit`, whichever is longer, as cancelled, `Ran::Maybe`.
    /// Nothing happens if the call has ended.
    pub fn cancel(&mut self, now: Time, id: CallId) {
        let Some(slot) = self.slots.find(id) else { return };
        // It was asked already, or its deadline has ended it for its caller.
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            return;
        }
        self.begin_to_cancel(now, id.activity, false);
        if self.slots.at(id.activity).timing.first_sent.is_none() {
            self.timers.check = now;
            return;
        }
        self.want(id.activity, Want::CANCEL);
    }

    /// Lets the call go on though its end is not waited for, even when this client is gone. The server is
    /// told at once, or, if `later`, with the first probe.
    pub fn detach(&mut self, id: CallId, later: bool) {
        let Some(slot) = self.slots.find(id) else { return };
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            return;
        }
        slot.detached = true;
        if slot.timing.first_sent.is_some() && !later {
            self.want(id.activity, Want::PROBE);
        }
    }

    /// The network or the local system refused a datagram to the server: brings the next probes forward, and
    /// decides nothing.
    pub fn handle_unreachable(&mut self, now: Time) {
        // Every call to a server that is gone may have its error, and each would be one for all.
        if now < self.timers.unreachable_until {
            return;
        }
        self.timers.unreachable_until = now + self.look_takes();
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_some() && slot.timing.unanswered == 0 {
                slot.timing.due = slot.timing.due.min(now + self.config.min_retransmit / 4);
                self.timers.check = self.timers.check.min(slot.timing.due);
            }
        }
    }

    /// When [`Conversation::handle_timeout`] wants to be called; `None` when nothing is waited for.
    #[inline(always)]
    pub fn timeout(&self) -> Option<Time> {
        let probes = self.config.mutant.breaks(Rule::IdleProbes) && self.session.granted.is_some();
        let calls = (self.slots.outstanding > 0 || probes).then_some(self.timers.check);
        match (calls, self.session.due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether there is room for arguments of that length where calls that have not ended may have so many
    /// bytes of long ones, of more than 64 KiB: they are kept until then. Short ones there are no more of
    /// than calls may be outstanding, and one call may have any.
    #[inline]
    pub fn has_room(&self, len: usize, most: usize) -> bool {
        len <= LONG
            || self.transfers.long_arguments == 0
            || self.transfers.long_arguments.saturating_add(len) <= most
    }

    /// What it did so far, and how it stands.
    pub fn stats(&self) -> Stats {
        Stats {
            outstanding: self.slots.outstanding,
            in_flight: self.path.in_flight,
            round_trip: self.path.round_trip.smoothed(),
            datagram: self.mtu.datagram,
            ..self.stats
        }
    }

    /// How far a sender may be ahead of its receiver.
    fn window(&self, now: Time) -> u32 {
        let most = self.widest_window();
        match self.keeps_local_window() && self.has_company(now) {
            true => most.min(self.config.shared_local_window),
            false => most,
        }
    }

    /// How far a sender may be ahead of its receiver while nothing is called beside a long message.
    fn widest_window(&self) -> u32 {
        let most = self.config.window;
        if self.keeps_local_window() { most.min(self.config.local_window) } else { most }
    }

    /// Whether each end sees that the other is on its own machine, so that the local window holds.
    #[inline]
    fn keeps_local_window(&self) -> bool {
        self.seal.scheme == Scheme::Local && !self.config.mutant.breaks(Rule::LocalWindowIgnored)
    }

    /// Whether other calls were made beside a long message lately: then more of them are expected.
    pub fn has_company(&self, now: Time) -> bool {
        const LASTS: Duration = Duration::from_millis(100);
        self.transfers.short_call_at.is_some_and(|company| now.since(company) < LASTS)
    }

    /// Marks that an activity has something to send.
    #[inline]
    fn want(&mut self, activity: u32, want: Want) {
        self.slots.at_mut(activity).wants.add(want);
        self.slots.enqueue(activity);
    }

    /// Ends, as failed of that kind, the calls of which `ran` says whether they ran.
    fn end_calls(
        &mut self,
        kind: Kind,
        sink: &mut dyn FnMut(Event<'_>),
        mut ran: impl FnMut(&mut Slot) -> Option<Ran>,
    ) {
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            if let Some(ran) = ran(self.slots.at_mut(activity)) {
                self.end(activity, Outcome::Failed(Failure::new(kind, ran)), sink);
            }
        }
    }

    /// Ends a call: frees its activity, and tells its caller unless it has been told.
    #[inline]
    fn end(&mut self, activity: u32, outcome: Outcome<'_>, sink: &mut (impl FnMut(Event<'_>) + ?Sized)) {
        let slot = self.slots.at(activity);
        let (id, token) = (CallId { activity, sequence: slot.sequence }, slot.call.token);
        // (Shorter ones may also end as just one result.)
        if slot.args.len() > LONG {
            self.transfers.long_arguments -= slot.args.len();
        }
        let told = slot.stage == (Stage::Cancelling { silent: true });
        self.slots.newest_ended = self.slots.newest_ended.max(slot.sequence);
        if let Some(sending) = self.slots.close(activity) {
            self.path.in_flight -= sending.in_flight;
            self.wake_next();
        }
        let arguments = &mut self.slots.at_mut(activity).args;
        if !told {
            sink(Event::Ended { id, token, outcome, arguments });
        }
        // The buffer stays for the activity's next call, if it is short enough.
        arguments.clear();
        let room = arguments.capacity();
        if room > SHORT_BUFFER && (room > SPARE_BYTES || room * (activity as usize + 1) > ALL_SPARE_BYTES) {
            self.config.spares.give(std::mem::take(arguments));
        }
    }
}

/// Returns whether arguments can have this length: it is 32 bits on the wire, and a multiple of four (XDR).
#[inline(always)]
fn is_encodable(len: usize) -> bool {
    u32::try_from(len).is_ok() && len.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_arguments_are_counted_until_their_calls_have_ended() {
        let now = Time::from_nanos(1);
        let mut conversation = Conversation::new(ClientConfig::default(), 7);
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
        let lengths = [4, LONG, LONG + 4, 2 * LONG];
        let calls =
            lengths.map(|len| conversation.start(|| now, &call, &mut vec![0; len]).expect("room for it"));
        assert_eq!(conversation.transfers.long_arguments, 3 * LONG + 4);
        for (len, most, room) in [
            (LONG, 0, true),
            (LONG + 4, 4 * LONG + 8, true),
            (LONG + 4, 4 * LONG + 4, false),
            (usize::MAX, 1 << 30, false),
        ] {
            assert_eq!(conversation.has_room(len, most), room, "{len} of {most}");
        }
        conversation.cancel(now, calls[2]);
        conversation.handle_timeout(now, &mut |_| {});
        assert_eq!((conversation.transfers.long_arguments, conversation.stats().outstanding), (2 * LONG, 3));
        calls.iter().for_each(|call| conversation.cancel(now, *call));
        conversation.handle_timeout(now, &mut |_| {});
        assert_eq!((conversation.transfers.long_arguments, conversation.stats().outstanding), (0, 0));
        assert!(conversation.has_room(1 << 30, 0), "the first call may have arguments of any length");
    }

    #[test]
    fn a_call_that_is_not_started_returns_its_arguments_and_the_reason() {
        let config = ClientConfig { max_outstanding: 1, ..ClientConfig::default() };
        let mut conversation = Conversation::new(config, 7);
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
        let mut start = |len: usize| {
            let mut args = vec![0; len];
            let started = conversation.start(|| Time::from_nanos(1), &call, &mut args);
            started.map_err(|failure| (failure.kind, failure.ran, args.len() == len)).map(|_| ())
        };
        assert_eq!(start(3), Err((Kind::TooLarge, Ran::No, true)));
        assert_eq!([8, 8].map(&mut start), [Ok(()), Err((Kind::Overloaded, Ran::No, true))]);
        assert_eq!(conversation.stats().calls, 1);
        let longest = u32::MAX as usize - 3;
        assert_eq!([0, 2, longest, longest + 4].map(is_encodable), [true, false, true, false]);
    }

    /// Starts and cancels `calls` calls with arguments of `len` bytes. Returns the capacity of the argument
    /// buffer that each activity keeps.
    fn kept(calls: usize, len: usize) -> Vec<usize> {
        let now = Time::from_nanos(1);
        let mut conversation = Conversation::new(ClientConfig::default(), 7);
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
        for _ in 0..calls {
            let id = conversation.start(|| now, &call, &mut vec![0; len]).expect("room for it");
            conversation.cancel(now, id);
        }
        let mut ended = 0;
        conversation.handle_timeout(now, &mut |_| ended += 1);
        assert_eq!(ended, calls);
        assert!(conversation.buffer().is_empty());
        (0..calls).map(|activity| conversation.slots.at(activity as u32).args.capacity()).collect()
    }

    #[test]
    fn the_more_calls_there_were_the_less_room_for_arguments_is_kept() {
        const LEN: usize = 8 << 10;
        let long = kept(2000, LEN);
        assert!(long[..128].iter().all(|room| *room >= LEN), "each keeps its buffer for the next call");
        assert!(long.iter().sum::<usize>() <= ALL_SPARE_BYTES, "{}", long.iter().sum::<usize>());
        let short = kept(5000, SHORT_BUFFER);
        assert!(short[..4999].iter().all(|room| *room == SHORT_BUFFER), "short buffers are kept");
        assert_eq!([SPARE_BYTES, SPARE_BYTES + 4].map(|len| kept(2, len)[0]), [SPARE_BYTES, 0]);
    }
}
