//! The calling end: one conversation of one client endpoint with one server endpoint.
//!
//! | file | job |
//! |---|---|
//! | `admission.rs` | which calls are begun |
//! | `slots.rs` | the pool of activities, the order in which their calls began |
//! | `session.rs` | tickets and binding |
//! | `handshake.rs` | how both ends agree on a conversation's secrets |
//! | `agreement.rs` | how far such a handshake has come |
//! | `names.rs` | for which names the server was accepted, and why |
//! | `meeting.rs` | proves those secrets outside UDP |
//! | `evidence.rs` | what a refusal of the ticket proves about calls |
//! | `receive.rs` | acting on each frame from the server |
//! | `send.rs` | what goes into the next datagram |
//! | `short_calls.rs` | calls that fit a datagram, in the congestion window |
//! | `timers.rs` | retransmission, probes, deadlines, giving up |
//! | `drain.rs` | what the server takes no more calls of |
//! | `closing.rs` | what the server is told of calls that have ended here |
//! | `obstacles.rs` | why the server may be silent, for people |
//! | `refusals.rs` | ICMP errors of a port at which nobody listens |
//! | `usual.rs` | how long slow procedures usually take |
//! | `audit.rs` | checks all counts, for tests |
//! | `exchanges.rs` | calls with exchanges (signals, streams); `inside.rs` holds their state |
//! | `lone.rs` | the fast path of a call that has its conversation to itself |

mod admission;
#[cfg(feature = "secure")]
mod agreement;
mod audit;
mod closing;
mod drain;
mod evidence;
mod exchanges;
#[cfg(feature = "secure")]
mod handshake;
mod inside;
mod kept_arguments;
mod lone;
#[cfg(feature = "secure")]
mod meeting;
#[cfg(feature = "secure")]
mod names;
mod obstacles;
mod receive;
mod refusals;
mod send;
mod session;
mod short_calls;
mod slots;
mod spread;
mod timers;
#[cfg(not(feature = "secure"))]
mod unkeyed;
mod usual;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::{MAX_UNCOUNTED_ARGUMENT_BYTES, SharedArguments};

use crate::config::{PATIENCE, silence_of};
use crate::path::{Counted, Mtu, Path};
use crate::scheme::Scheme;
use crate::wire::{self, Numbers, Position};
use crate::{ClientConfig, Failure, Fingerprint, Kind, News, Ran, Rule, Spares, Time, Trace, nanos};
use closing::ClosingNotice;
use drain::Drained;
use kept_arguments::KeptArguments;
pub use lone::Lone;
use refusals::Refusals;
use session::Session;
use slots::{Slot, Slots, Stage, Want};
use spread::Spread;
use usual::{Callee, Usual};

/// A call that was started: its activity and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    /// The activity, a slot of the conversation's pool.
    pub activity: u32,
    /// The call's number, never used twice in a conversation.
    pub sequence: u64,
}

/// The caller's description of a call, without its arguments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// The export's identifier, from [`Event::Bound`].
    pub export: u64,
    /// The procedure's number.
    pub procedure: u32,
    /// When the caller stops waiting. It travels with the call as a duration.
    pub deadline: Option<Time>,
    /// The trace context.
    pub trace: Option<Trace>,
    /// A number of the caller's choice, which is returned with the outcome.
    pub token: u64,
}

impl Call {
    /// Returns the export and the procedure that are called.
    #[inline(always)]
    fn callee(&self) -> Callee {
        (self.export, self.procedure)
    }
}

/// How long before its deadline a call must have begun at the server, so that its caller can try another
/// server in the time that is left. A call that has not begun by then fails with [`Kind::Deadline`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Margin(u32);

impl Margin {
    /// The bit of a margin that also applies to calls that were sent.
    const SENT: u32 = 1 << 31;

    /// Returns a margin. Without `sent` it applies only to a call of which nothing was sent, because one that
    /// was sent may run. With `sent` it also applies to a call of which the server says nothing, or no more,
    /// although it was reminded.
    pub fn new(time: Duration, sent: bool) -> Margin {
        let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX).clamp(1, Margin::SENT - 1);
        Margin(millis | if sent { Margin::SENT } else { 0 })
    }

    /// Returns when a call with this deadline must have begun; `None` if it may begin at any time.
    fn begin_by(self, deadline: Option<Time>) -> Option<Time> {
        let millis = self.0 & !Margin::SENT;
        let margin = Duration::from_millis(millis.into()).as_nanos() as u64;
        deadline.filter(|_| millis > 0).map(|by| Time::from_nanos(by.as_nanos().saturating_sub(margin)))
    }

    fn applies_to_sent(self) -> bool {
        self.0 & Margin::SENT != 0
    }
}

/// How a call ended. A body is XDR, borrowed from the datagram if it came in one.
#[derive(Debug)]
pub enum Outcome<'a> {
    /// The procedure's result.
    Result(Cow<'a, [u8]>),
    /// An exception that the interface declares.
    Exception(Cow<'a, [u8]>),
    /// The call failed.
    Failed(Failure),
}

impl Outcome<'_> {
    /// Copies the body, so that the outcome may outlive its datagram.
    pub fn into_owned(self) -> Outcome<'static> {
        match self {
            Outcome::Result(body) => Outcome::Result(Cow::Owned(body.into_owned())),
            Outcome::Exception(body) => Outcome::Exception(Cow::Owned(body.into_owned())),
            Outcome::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

/// A server's answer about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The export's identifier: random, valid for one incarnation of the server.
    pub export: u64,
    /// The fingerprints of the exported procedures, which a binding compares.
    pub procedures: Vec<Fingerprint>,
    /// How long the answer took.
    pub round_trip: Duration,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallProgress {
    /// No part of the call was sent.
    Unsent,
    /// Some part of the call was sent.
    Sent,
    /// The call has ended.
    Ended,
}

/// An event for the user of a conversation.
#[derive(Debug)]
pub enum Event<'a> {
    /// A call ended; its activity is free again.
    Ended {
        /// The call that ended.
        id: CallId,
        /// The token from the [`Call`].
        token: u64,
        /// How it ended.
        outcome: Outcome<'a>,
        /// The arguments, if the conversation no longer needs them, or else an empty buffer. To make the call
        /// again, take them.
        arguments: &'a mut Vec<u8>,
        /// The arguments instead, if other calls share them.
        shared: Option<Arc<SharedArguments>>,
    },
    /// A [`Conversation::bind`] ended.
    Bound {
        /// The token that was given to `bind`.
        token: u64,
        /// The server's answer.
        answer: Result<Bound, Failure>,
    },
}

/// Counts of what a conversation did. The last fields say its present state instead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Calls started.
    pub calls: u64,
    /// Datagrams written.
    pub sent: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped: malformed, corrupted, or not of this conversation.
    pub dropped: u64,
    /// Bytes of the datagrams written.
    pub bytes_sent: u64,
    /// Calls, binds and fragments sent again.
    pub retransmitted: u64,
    /// Probes sent.
    pub probes: u64,
    /// Results that came again, or for calls that had ended.
    pub duplicates: u64,
    /// Calls that have not ended. (This field and those below say the present state.)
    pub outstanding: usize,
    /// Bytes of arguments, and of many short calls, that were sent and are not yet acknowledged or lost.
    pub in_flight: u32,
    /// The smoothed round-trip time, once one was measured.
    pub round_trip: Option<Duration>,
    /// The largest datagram that is known to pass, in bytes.
    pub datagram: usize,
}

/// One conversation, seen from its caller.
pub struct Conversation {
    config: ClientConfig,
    /// The client's identifier of the conversation, which is in the header of the datagrams that the server
    /// sends.
    id: u64,
    session: Session,
    slots: Slots,
    numbers: Numbers,
    /// The scheme of the datagrams that the client sends.
    scheme: Scheme,
    /// The secrets, in a scheme that has any.
    #[cfg(feature = "secure")]
    kept: Option<Box<handshake::Kept>>,
    /// Whether the conversation is about to end, because no more may be sealed by its keys.
    #[cfg(feature = "secure")]
    is_spent: bool,
    /// The secrets that a handshake has led to, while the WELCOME that completed it is being handled.
    #[cfg(feature = "secure")]
    agreed: Option<handshake::Outcome>,
    /// After a server with another key has taken the address over, or the server was no longer accepted for a
    /// name: the exports that it may still answer for. Calls of others are not for this server.
    #[cfg(feature = "secure")]
    permitted: Option<std::collections::BTreeSet<u64>>,
    /// Whether outstanding calls that are not `permitted` have to end.
    #[cfg(feature = "secure")]
    is_distrusted: bool,
    timers: Timers,
    spread: Spread,
    /// (These two are seldom there.)
    refusals: Option<Box<Refusals>>,
    drained: Option<Box<Drained>>,
    path: Path,
    mtu: Mtu,
    usual: Usual,
    transfers: Transfers,
    arguments: KeptArguments,
    keep_alive: KeepAlive,
    /// News about exchanges, for the user.
    news: VecDeque<(CallId, u32, News)>,
    stats: Stats,
}

/// When the client next looks at its calls for retransmission, probes and deadlines.
struct Timers {
    /// A time no later than the earliest at which a call wants [`Conversation::handle_timeout`].
    check: Time,
    /// Until this time, the pause after the last look at all calls lasts.
    rests_until: Time,
    /// Until this time, a further error that says that the server is unreachable changes nothing.
    unreachable_until: Time,
    /// The bounds of the time between two tries of a call, in nanoseconds. They are copied from the
    /// configuration, because converting a `Duration` each time takes long.
    least_interval: u64,
    most_interval: u64,
    /// A call whose first answer came only after the call was sent again.
    doubtful: Option<Box<Doubtful>>,
}

impl Timers {
    /// Has the calls looked at when one is `due`, but not before the pause after the last look is over. The
    /// call may have been due within that pause.
    #[inline(always)]
    fn look_by(&mut self, due: Time) {
        self.check = self.check.min(due.max(self.rests_until));
    }

    /// Forgets the doubt about a call, because a second answer no longer tells anything.
    fn forget_doubt(&mut self, position: Position) {
        self.doubtful.take_if(|call| call.position == position);
    }
}

/// A call whose first answer came only after the call was sent again. It is not known which of its datagrams
/// that answers (Karn & Partridge 1987). If a second answer comes, no datagram was lost.
struct Doubtful {
    position: Position,
    first_sent: Time,
    /// When a second answer would have come. It follows the first by as long as the retry followed the call,
    /// which is no longer than the call took, and than the longest wait. Until then no other call is doubted:
    /// of many calls under way, each would displace the one before.
    until: Time,
}

/// Facts about long arguments and results.
#[derive(Default)]
struct Transfers {
    /// When a short call was last made while a long message was being sent.
    short_call_at: Time,
    /// The length of the last result that came in fragments.
    usual_result: u32,
    /// The length of the last result that came in one datagram while anything counted as under way.
    short_result: u32,
    /// The question which short calls have left the path, while calls wait for room.
    question: Option<Box<short_calls::RoomQuestion>>,
    /// What the server is to be told of calls that have ended, even if nothing else is sent: the lengths of
    /// long results that have arrived, and of what the server sent in exchanges that need nothing more; and
    /// calls for which no caller waits, if the server has asked.
    notices: Vec<ClosingNotice>,
}

/// When to tell the server that callers still wait for their calls.
#[derive(Default)]
struct KeepAlive {
    /// When the last datagram was sent that was not just a call.
    spoke: Time,
    /// Whether the server must be told that callers still wait.
    wanted: bool,
    /// Whether each call must say the client's patience, or how long the server is to wait for it.
    tells: bool,
}

/// The largest argument buffer that an activity keeps for its next call, and the bound for all activities
/// together if each kept one of that size. The more activities there are, the less each keeps.
const SPARE_BYTES: usize = crate::spares::SHORTEST;
const ALL_SPARE_BYTES: usize = 64 * SPARE_BYTES;

/// Every activity keeps an argument buffer of at most this many bytes.
const SHORT_BUFFER: usize = 256;

/// The time of a timer that is not set.
const NEVER: Time = Time::from_nanos(u64::MAX);

impl Conversation {
    /// Makes a conversation that has sent and received nothing yet. The caller chooses `id` at random, not
    /// zero, and different from the identifiers of its endpoint's other conversations.
    pub fn new(config: ClientConfig, id: u64) -> Conversation {
        debug_assert_ne!(id, 0);
        let usual = Usual::new(nanos(config.min_retransmit) / 2, nanos(config.max_retransmit));
        let tells = told(&config) != (None, None);
        Conversation {
            id,
            session: Session::new(id, config.has_keys()),
            slots: Slots::default(),
            numbers: Numbers::from(1),
            scheme: Scheme::Open,
            #[cfg(feature = "secure")]
            kept: None,
            #[cfg(feature = "secure")]
            is_spent: false,
            #[cfg(feature = "secure")]
            agreed: None,
            #[cfg(feature = "secure")]
            permitted: None,
            #[cfg(feature = "secure")]
            is_distrusted: false,
            timers: Timers {
                check: Time::default(),
                rests_until: Time::default(),
                unreachable_until: Time::default(),
                least_interval: nanos(config.min_retransmit),
                most_interval: nanos(config.max_retransmit),
                doubtful: None,
            },
            spread: Spread::new(id),
            refusals: None,
            drained: None,
            path: Path::new(config.mutant),
            mtu: Mtu::new(config.max_datagram, config.loopback),
            usual,
            transfers: Transfers { short_call_at: NEVER, ..Transfers::default() },
            arguments: KeptArguments::new(&config.arguments),
            keep_alive: KeepAlive { tells, ..KeepAlive::default() },
            news: VecDeque::new(),
            stats: Stats::default(),
            config,
        }
    }

    /// Returns the client's identifier, which is in the header of the server's datagrams.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns an empty buffer for the arguments of the next call. Reuses that of an earlier call if there is
    /// one.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.slots.room().map(std::mem::take).unwrap_or_default()
    }

    /// Starts a call. [`Conversation::transmit`] then writes its datagrams. The clock is read only if the
    /// time matters. Takes the arguments, and leaves an empty buffer for reuse in their place.
    ///
    /// # Errors
    /// The arguments stay where they are, and the call did not run, if too many calls are outstanding, or if
    /// the arguments are too large or are not XDR (a multiple of four bytes).
    #[inline(always)]
    pub fn start(
        &mut self,
        clock: impl Fn() -> Time,
        call: &Call,
        args: &mut Vec<u8>,
    ) -> Result<CallId, Failure> {
        self.start_with(clock, call, args, None)
    }

    /// Starts a call as [`Conversation::start`] does, with arguments that other calls share.
    ///
    /// # Errors
    /// Those of [`Conversation::start`].
    pub fn start_shared(
        &mut self,
        clock: impl Fn() -> Time,
        call: &Call,
        shared: &Arc<SharedArguments>,
    ) -> Result<CallId, Failure> {
        let mut buffer = self.buffer();
        self.start_with(clock, call, &mut buffer, Some(shared))
    }

    #[inline(always)]
    fn start_with(
        &mut self,
        clock: impl Fn() -> Time,
        call: &Call,
        args: &mut Vec<u8>,
        shared: Option<&Arc<SharedArguments>>,
    ) -> Result<CallId, Failure> {
        let len = shared.map_or(args.len(), |shared| shared.bytes().len());
        let many = self.slots.outstanding >= self.config.max_outstanding as usize;
        let late = call.deadline.is_some_and(|deadline| self.is_too_late(deadline, clock()));
        if many || late || !is_encodable(len) {
            return Err(self.objection(len, late));
        }
        if !self.permits(call.export) {
            let why = "the server at the address may not answer for the name any more; bind it again";
            return Err(Failure::new(Kind::ServerRestarted, Ran::No).with_detail(why));
        }
        if self.is_drained(call.export) {
            let why = "the server has said that it takes no more calls";
            return Err(Failure::new(Kind::Draining, Ran::No).with_detail(why));
        }
        if self.slots.outstanding == 0 {
            self.timers.check = clock().plus(self.timers.least_interval);
            self.path.fragments = false;
        }
        let sequence = self.slots.next_sequence;
        self.slots.next_sequence += 1;
        if len > MAX_UNCOUNTED_ARGUMENT_BYTES {
            self.arguments.add(len, shared.map(|shared| &**shared));
        }
        let activity = self.slots.open(sequence, call, args);
        if shared.is_some() {
            let slot = self.slots.at_mut(activity);
            (slot.shared, slot.argument_bytes) = (shared.cloned(), len as u32);
        }
        self.stats.calls += 1;
        if let Some(deadline) = call.deadline {
            self.timers.check = self.timers.check.min(deadline);
        }
        if self.session.granted.is_none() {
            self.session.greet(clock(), self.config.min_retransmit);
        }
        Ok(CallId { activity, sequence })
    }

    /// Returns how far a call has come.
    pub fn progress(&mut self, id: CallId) -> CallProgress {
        match self.slots.find(id) {
            None => CallProgress::Ended,
            Some(slot) if slot.timing.first_sent.is_none() => CallProgress::Unsent,
            Some(_) => CallProgress::Sent,
        }
    }

    /// Returns whether a call that was just started may wait, so that further calls share its datagram. At
    /// most as many wait as fill a datagram, and at most a quarter of the calls whose results are expected,
    /// so that both ends always have something to do. If the caller sends the waiting calls when the next
    /// result arrives (`clocked`), calls may wait while any result is expected (Nagle's algorithm, RFC 896).
    /// A call that is alone, or that is among slow calls, does not wait. If only the size of datagrams keeps
    /// a call from waiting, larger datagrams are tried.
    #[inline]
    pub fn may_wait(&mut self, clock: impl FnOnce() -> Time, id: CallId, clocked: bool) -> bool {
        let queued = self.slots.queued as u64;
        let expected = self.slots.next_sequence - 1 - self.slots.newest_ended;
        let among_others = if clocked { queued < expected } else { queued * 4 < expected };
        if !among_others || self.session.granted.is_none() {
            return false;
        }
        let Some(slot) = self.slots.get(id.activity) else { return false };
        // A call waits only if one more call of its length would fit the datagram. Otherwise the last call
        // would travel alone in a datagram of its own.
        let bytes = slot.argument_bytes as usize + wire::call_overhead(self.scheme);
        let fits = (self.slots.queued + 1) * bytes < self.mtu.datagram;
        if !fits {
            self.mtu.want(clock());
        }
        fits
    }

    /// Asks the server to give the call up. The call still ends by an [`Event::Ended`]. A call that was not
    /// sent ends at once. Any other ends with the server's answer, or with its outcome if that was on its
    /// way. If neither comes within 3 round trips or `min_retransmit`, whichever is longer, the call ends as
    /// cancelled, `Ran::Maybe`. Nothing happens if the call has ended.
    pub fn cancel(&mut self, now: Time, id: CallId) {
        let Some(slot) = self.slots.find(id) else { return };
        // The call was cancelled before, or has ended for its caller at its deadline.
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

    /// Makes a call that was just started fail this long before its deadline, unless it has begun by then.
    #[cold]
    pub fn hurry(&mut self, id: CallId, margin: Margin) {
        let Some(slot) = self.slots.find(id) else { return };
        slot.timing.margin = margin;
        if let Some(by) = margin.begin_by(slot.call.deadline) {
            self.timers.check = self.timers.check.min(by);
        }
    }

    /// Lets the call go on although no caller waits for its end, and even if this client ends. Tells the
    /// server at once or, if `later`, with the first probe.
    pub fn detach(&mut self, id: CallId, later: bool) {
        let Some(slot) = self.slots.find(id) else { return };
        if matches!(slot.stage, Stage::Cancelling { .. }) {
            return;
        }
        slot.detached = true;
        // Nobody tries it elsewhere.
        slot.timing.margin = Margin::default();
        if slot.timing.first_sent.is_some() && !later {
            self.timers.forget_doubt(Position::of_call(id.activity, id.sequence));
            self.want(id.activity, Want::PROBE);
        }
    }

    /// Brings the next probes forward, because the network or the local system refused a datagram to the
    /// server. No call fails because of this.
    pub fn handle_unreachable(&mut self, now: Time) {
        // Every datagram to a server that is gone can cause such an error, and each error needs a look at all
        // calls. The pause bounds the work.
        if now < self.timers.unreachable_until {
            return;
        }
        self.timers.unreachable_until = now + self.pause_after_look();
        let mut next = self.slots.first();
        while let Some(activity) = next {
            next = self.slots.after(activity);
            let slot = self.slots.at_mut(activity);
            if slot.timing.first_sent.is_some() && slot.timing.unanswered == 0 {
                slot.timing.due = slot.timing.due.min(now + self.config.min_retransmit / 4);
                self.timers.look_by(slot.timing.due);
            }
        }
    }

    /// Returns when to call [`Conversation::handle_timeout`], or `None` if no timer runs.
    #[inline(always)]
    pub fn timeout(&self) -> Option<Time> {
        let probes = self.config.mutant.breaks(Rule::IdleProbes) && self.session.granted.is_some();
        let calls = (self.slots.outstanding > 0 || probes).then_some(self.timers.check);
        match (calls, self.session.due()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns whether the budget of arguments has room for a call with arguments of `len` bytes, which are
    /// `shared` if other calls may have them too. Arguments are kept until their calls end.
    #[inline]
    pub fn has_room(&self, len: usize, shared: Option<&SharedArguments>) -> bool {
        len <= MAX_UNCOUNTED_ARGUMENT_BYTES || self.arguments.admits(len, shared)
    }

    /// Returns how many bytes of arguments the outstanding calls keep. Short arguments are not counted.
    pub fn argument_bytes(&self) -> usize {
        self.arguments.bytes
    }

    /// Returns counts of what the conversation did, and its present state.
    pub fn stats(&self) -> Stats {
        Stats {
            outstanding: self.slots.outstanding,
            in_flight: self.path.in_flight,
            round_trip: self.path.round_trip.smoothed(),
            datagram: self.mtu.datagram,
            ..self.stats
        }
    }

    /// Returns the window: how many bytes of a message may be sent before they are acknowledged.
    fn window(&self, now: Time) -> u32 {
        let most = self.widest_window();
        match self.keeps_local_window() && self.has_company(now) {
            true => most.min(self.config.shared_local_window),
            false => most,
        }
    }

    /// Returns the window for the case that no short calls are made while a long message is being sent.
    fn widest_window(&self) -> u32 {
        let most = self.config.window;
        if self.keeps_local_window() { most.min(self.config.local_window) } else { self.path.widen(most) }
    }

    /// Returns whether each end sees that the other is on its own machine, so that the local window applies.
    #[inline]
    fn keeps_local_window(&self) -> bool {
        self.scheme == Scheme::Local && !self.config.mutant.breaks(Rule::LocalWindowIgnored)
    }

    /// Returns whether short calls were made lately while a long message was being sent. More of them are
    /// expected then.
    pub fn has_company(&self, now: Time) -> bool {
        const LASTS: Duration = Duration::from_millis(100);
        let company = self.transfers.short_call_at;
        company != NEVER && now.since(company) < LASTS
    }

    /// Notes that an activity has something to send.
    #[inline]
    fn want(&mut self, activity: u32, want: Want) {
        self.slots.at_mut(activity).wants.add(want);
        self.slots.enqueue(activity);
    }

    /// Ends calls as failed with `kind`. `ran` chooses the calls: it returns whether the call ran, or `None`
    /// to leave it.
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
                let outcome = match kind {
                    Kind::Unreachable => self.failed_in_silence(kind, ran),
                    _ => Outcome::Failed(Failure::new(kind, ran)),
                };
                self.end(activity, outcome, sink);
            }
        }
    }

    /// Ends a call: frees its activity, and tells its caller the outcome unless the caller was told before.
    #[inline]
    fn end(&mut self, activity: u32, outcome: Outcome<'_>, sink: &mut (impl FnMut(Event<'_>) + ?Sized)) {
        let slot = self.slots.at(activity);
        let (id, token) = (CallId { activity, sequence: slot.sequence }, slot.call.token);
        let len = slot.argument_bytes as usize;
        if len > MAX_UNCOUNTED_ARGUMENT_BYTES {
            self.arguments.remove(len, slot.shared.is_some());
        }
        let told = slot.stage == (Stage::Cancelling { told: true });
        self.slots.newest_ended = self.slots.newest_ended.max(slot.sequence);
        if self.slots.close(activity) {
            self.drop_parts(activity);
        }
        let slot = self.slots.at_mut(activity);
        let shared = slot.shared.take();
        let arguments = &mut slot.args;
        if !told {
            sink(Event::Ended { id, token, outcome, arguments, shared });
        }
        clear_buffer(arguments, activity, &self.config.spares);
    }
}

impl Conversation {
    /// Frees the arguments of a call that is cancelled, and what it had to send of them.
    pub(crate) fn free_arguments(&mut self, activity: u32) {
        let slot = self.slots.at_mut(activity);
        let len = slot.argument_bytes as usize;
        if len > MAX_UNCOUNTED_ARGUMENT_BYTES {
            self.arguments.remove(len, slot.shared.is_some());
        }
        (slot.shared, slot.argument_bytes) = (None, 0);
        clear_buffer(&mut slot.args, activity, &self.config.spares);
        if let Some(sending) = slot.sending.take() {
            self.path.in_flight -= sending.in_flight;
            self.wake_next();
        }
    }

    /// Drops the fragments and the exchanges of a call that has ended, and its place in the congestion window.
    #[cold]
    fn drop_parts(&mut self, activity: u32) {
        if self.config.mutant.breaks(Rule::ShortCallsKept) {
            self.slots.at_mut(activity).counted = Counted::default();
        }
        self.uncount(activity);
        let slot = self.slots.at_mut(activity);
        slot.doubted = 0;
        if let Some(sending) = slot.sending.take() {
            self.path.in_flight -= sending.in_flight;
        }
        self.end_inside(activity);
        // The ended call may wait for room itself. It must not be woken, so it has no parts any more.
        self.wake_next();
    }
}

/// Returns what each call must say of the client, in nanoseconds: its patience with a silent server, if that
/// differs from the default; and how long the server is to wait for it when it is silent, if that does not
/// follow from the patience.
#[cold]
fn told(config: &ClientConfig) -> (Option<u64>, Option<u64>) {
    let patience = Some(config.patience).filter(|patience| *patience != PATIENCE);
    // No shorter than a server waits anyway, which leaves room for keep-alives that are lost.
    let silence = config.server_patience.filter(|silence| *silence > silence_of(config.patience));
    (patience.map(nanos), silence.map(nanos))
}

/// Empties an activity's buffer of arguments. Its next call uses the buffer again, if the buffer is short
/// enough.
#[inline(always)]
fn clear_buffer(arguments: &mut Vec<u8>, activity: u32, spares: &Spares) {
    arguments.clear();
    let room = arguments.capacity();
    if room > SHORT_BUFFER && (room > SPARE_BYTES || room * (activity as usize + 1) > ALL_SPARE_BYTES) {
        spares.give(std::mem::take(arguments));
    }
}

/// Returns whether arguments can have this length: it is 32 bits on the wire, and a multiple of four (XDR).
#[inline(always)]
fn is_encodable(len: usize) -> bool {
    u32::try_from(len).is_ok() && len.is_multiple_of(4)
}

#[cfg(test)]
mod tests;
