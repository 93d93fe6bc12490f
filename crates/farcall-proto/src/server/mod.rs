//! The serving end: every conversation of one socket.
//!
//! | file | job |
//! |---|---|
//! | `table.rs` | the conversations, 64 bytes for each that is idle |
//! | `activities.rs` | the activities of a conversation, as many as were used |
//! | `work.rs` | a call that is not over: arguments, phase, held result |
//! | `more.rs` | the further state of a conversation that is not idle |
//! | `exports.rs` | the exports, by identifier and by name |
//! | `admit.rs` | tickets, challenges, binding: who may call at all |
//! | `users.rs` | proofs that clients are processes of the server's user |
//! | `handshake.rs` | how both ends agree on a conversation's secrets; `secrets.rs` keeps them |
//! | `asymmetric.rs` | the part of a handshake that takes long, which is computed without a lock |
//! | `turns.rs` | which handshake is computed next: networks take turns, and their hosts |
//! | `proofs.rs` | which handshakes were computed, and their answers |
//! | `meeting.rs` | clients that are met outside UDP |
//! | `receive.rs` | acting on each frame from a client |
//! | `arguments.rs` | arguments that arrive in fragments |
//! | `exchanges.rs` | calls with exchanges (signals, streams); `inside.rs` holds their state |
//! | `reading.rs` | calls that change nothing |
//! | `send.rs` | results, their fragments, short answers |
//! | `hosts.rs` | what peers make the server keep, counted by network and by host |
//! | `counts.rs` | counters for each host and for each network |
//! | `conversations.rs` | what is told of single conversations |
//! | `audit.rs` | checks of what is kept, for tests |
//! | `share.rs` | which calls wait until their clients have fetched other results |
//! | `silence.rs` | calls of clients that are silent for too long |
//! | `inquiries.rs` | how many frames about earlier calls of one host, and of one network, are acted on |
//! | `memory.rs` | frees what is kept of calls, in time and within budgets |

mod activities;
mod admit;
mod arguments;
#[cfg(feature = "secure")]
mod asymmetric;
mod audit;
#[cfg(feature = "secure")]
mod conversations;
mod counts;
mod drain;
mod exchanges;
mod exports;
#[cfg(feature = "secure")]
mod handshake;
mod hosts;
mod inquiries;
mod inside;
#[cfg(feature = "secure")]
mod meeting;
mod memory;
mod more;
mod moves;
#[cfg(feature = "secure")]
mod proofs;
mod reading;
mod receive;
#[cfg(feature = "secure")]
mod secrets;
mod send;
mod share;
mod shed;
mod silence;
mod table;
#[cfg(feature = "secure")]
mod turns;
mod uncalled;
#[cfg(not(feature = "secure"))]
mod unkeyed;
mod users;
mod work;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use farcall_base::Principal;

pub use crate::insert::Insert;
use crate::scheme::Scheme;
use crate::secure::Cipher;
use crate::ticket::{Holder, Issuer};
use crate::wire::{Number, Numbers, Position, Target};
use crate::{Failure, Fingerprint, Mutant, ServerConfig, Spares, Time, Trace};
#[cfg(feature = "secure")]
pub use asymmetric::{Computed, Handshake};
pub use audit::KeptForHost;
#[cfg(feature = "secure")]
pub use conversations::{Busiest, Conversation};
use counts::Counts;
use exchanges::AllInside;
use exports::Exports;
#[doc(hidden)]
pub use farcall_base::CallKey;
pub use hosts::HostName;
use hosts::{Hosts, Kept};
use inquiries::Inquiries;
pub use reading::Reading;
pub use send::SHORT;
use table::Table;
use work::{GIVEN_UP, Work};

/// Returns the key by which the server's user names a call.
fn key(conversation: u64, position: Position) -> CallKey {
    CallKey { conversation, activity: position.activity, sequence: position.sequence }
}

/// An interface that the server offers.
#[derive(Clone, Debug)]
pub struct Export {
    /// The export's identifier: random, 64 bits, new at each export, not zero.
    pub id: u64,
    /// The type of the interface.
    pub type_name: String,
    /// The name of this instance of the interface.
    pub instance: String,
    /// The fingerprints of the procedures, which a binding compares.
    pub procedures: Vec<Fingerprint>,
}

/// A call to execute.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The key that names the call. Give it to [`Server::finish`] when the call has ended.
    pub key: CallKey,
    /// The export that the call names, which exists.
    pub export: u64,
    /// The procedure's number, which is not checked.
    pub procedure: u32,
    /// When the caller stops waiting.
    pub deadline: Option<Time>,
    /// The trace context.
    pub trace: Option<Trace>,
    /// Who calls, in a scheme with secrets.
    pub principal: Option<Arc<Principal>>,
    /// Whether this is a reading (a call that changes nothing) that was executed before. Then a failure must
    /// not say that the call did not run.
    pub again: bool,
    /// The arguments, borrowed from the datagram if they came in one.
    pub args: Cow<'a, [u8]>,
}

impl Incoming<'_> {
    /// Copies the arguments if they are borrowed, so that the call can outlive its datagram.
    pub fn into_owned(self) -> Incoming<'static> {
        Incoming { args: Cow::Owned(self.args.into_owned()), ..self }
    }
}

/// What the server's user must do.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this call, or refuse it, and then call [`Server::finish`].
    Call(Incoming<'a>),
    /// Give these bytes to that export, which exists. They belong to no call. They can come twice or out of
    /// order, and nobody waits for an answer. The last field says who sends them, in a scheme with secrets.
    Post(u64, &'a [u8], Option<Arc<Principal>>),
    /// The caller of this unfinished call has given it up. [`Server::finish`] must still be called for it.
    Cancel(CallKey),
}

/// How a call was finished. A failure with `Ran::No` refuses the call: it will never be executed.
#[derive(Clone, Debug)]
pub enum Finish {
    /// The payload is the procedure's result.
    Result,
    /// The payload is a declared exception.
    Exception,
    /// The call failed, and the payload is not sent. (The failure is boxed to keep this type small.)
    Failed(Box<Failure>),
}

impl From<Failure> for Finish {
    fn from(failure: Failure) -> Finish {
        Finish::Failed(Box::new(failure))
    }
}

/// A datagram to send.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// The destination.
    pub to: SocketAddr,
    /// The number of bytes that were written.
    pub len: usize,
    /// Bytes to insert into what was written. Only datagrams to clients on this machine have them, and only
    /// for results of [`Server::finish_around`] and bytes of [`Server::send_long_in`].
    pub insert: Option<Box<Insert>>,
    /// What the datagram must be [sealed](crate::secure::seal) by before it is sent.
    pub cipher: Option<Arc<Cipher>>,
}

impl Transmit {
    /// Returns the datagram in one piece, sealed. `out` is the buffer that was written.
    pub fn gather(&self, out: &[u8]) -> Vec<u8> {
        let mut datagram = out[..self.len].to_vec();
        crate::secure::seal_by(&self.cipher, &mut datagram);
        if let Some(Insert { at, bytes }) = self.insert.as_deref() {
            datagram.splice(at..at, bytes.iter().copied());
        }
        datagram
    }
}

/// Counts of what a server did. They only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Calls given to the user.
    pub calls: u64,
    /// Datagrams written.
    pub sent: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped as malformed or corrupted.
    pub dropped: u64,
    /// Bytes of the datagrams written.
    pub bytes_sent: u64,
    /// Repeated calls that were not executed again.
    pub duplicates: u64,
    /// Results and fragments of results that were sent again.
    pub retransmitted: u64,
    /// Challenges sent.
    pub challenges: u64,
    /// Tickets refused.
    pub stale: u64,
    /// Conversations forgotten.
    pub evicted: u64,
    /// Calls refused because there was no room for their arguments.
    pub evicted_calls: u64,
    /// The client's address of the last call that was refused because there was no room for its arguments.
    pub paid: Option<SocketAddr>,
    /// The number of calls that the protocol refused, by the code of the failure's [`crate::Kind`].
    pub refused: [u64; 24],
}

/// The serving end of every conversation of one socket.
pub struct Server {
    config: ServerConfig,
    table: Table,
    exports: Exports,
    admission: Admission,
    /// Which user's processes may bind, if not everybody may.
    users: Option<users::Users>,
    #[cfg(feature = "secure")]
    handshakes: handshake::Handshakes,
    answers: ShortAnswers,
    sending: Sending,
    /// What is kept for each host, and the calls that have [`Work`].
    hosts: Hosts,
    sweep: Sweep,
    /// When [`Server::handle_timeout`] is next to be called.
    timer: Option<Time>,
    all_inside: AllInside,
    spare: Spare,
    shedding: shed::Shedding,
    draining: drain::Draining,
    uncalled: uncalled::Uncalled,
    /// The number of calls given to the user and not finished.
    unfinished: usize,
    seals: Seals,
    stats: Stats,
}

/// The numbers of datagrams, and the secrets with which they are sealed.
struct Seals {
    /// The numbers of datagrams in schemes without secrets, and of answers to questions.
    numbers: Numbers,
    #[cfg(feature = "secure")]
    secrets: secrets::AllSecrets,
}

impl Default for Seals {
    fn default() -> Seals {
        Seals {
            numbers: Numbers::from(1),
            #[cfg(feature = "secure")]
            secrets: secrets::AllSecrets::default(),
        }
    }
}

impl Seals {
    /// Returns whether a conversation does not give way to others, because what was made at a meeting with
    /// its client lasts.
    #[cfg_attr(not(feature = "secure"), expect(unused_variables))]
    fn stays(&self, conversation: u64, mutant: Mutant) -> bool {
        #[cfg(feature = "secure")]
        let stays = self.secrets.has_met(conversation) && !mutant.breaks(crate::Rule::MeetingGivesWay);
        #[cfg(not(feature = "secure"))]
        let stays = false;
        stays
    }

    /// Returns the right to write the next datagram to a target, and what seals it. In a scheme with secrets
    /// each conversation has numbers of its own, so that its client can tell late datagrams from repeated
    /// ones.
    #[inline(always)]
    fn take(&mut self, target: Target, mutant: Mutant) -> (Number, Option<Arc<Cipher>>) {
        #[cfg(feature = "secure")]
        if target.scheme.has_secrets()
            && let Some((number, cipher)) = self.secrets.take_number(target.sealed_for, mutant)
        {
            return (number, Some(cipher));
        }
        let _ = (target, mutant);
        (self.numbers.take(), None)
    }

    /// Returns whether what is sent to a target is sealed if it has to be: the conversation may have been
    /// forgotten since a short answer was queued.
    fn may_seal(&self, target: Target) -> bool {
        #[cfg(feature = "secure")]
        if target.scheme.has_secrets() {
            return self.secrets.secrets(target.sealed_for).is_some();
        }
        let _ = target;
        true
    }

    /// Returns the number that the next datagram to a target will have.
    #[inline(always)]
    fn next(&mut self, target: Target) -> u64 {
        #[cfg(feature = "secure")]
        if target.scheme.has_secrets()
            && let Some(number) = self.secrets.next_number(target.sealed_for)
        {
            return number;
        }
        let _ = target;
        self.numbers.next()
    }
}

/// Decides who may begin a conversation.
struct Admission {
    issuer: Issuer,
    /// The number of conversations of each host and network.
    conversing: Counts,
    /// Tickets of this date or an earlier one are refused. The date is later than `forgotten` after a full
    /// server has refused newer tickets, under which no call ever ran.
    horizon: u64,
    /// The newest date among the tickets of forgotten conversations, and when a conversation was last
    /// forgotten.
    forgotten: u64,
    forgot_at: Time,
}

/// Short answers that wait to be sent, and what bounds them.
struct ShortAnswers {
    queue: VecDeque<send::Reply>,
    /// The number of queued answers to each host and network.
    counts: Counts,
    inquiries: Inquiries,
    /// How many bytes of short answers may still be sent for the datagram that is being read.
    answer_bytes: usize,
    /// How many bytes of results may still be sent again for that datagram.
    resend_bytes: usize,
}

/// Results that are being sent.
#[derive(Default)]
struct Sending {
    /// Calls whose results have something to send, in turn: their conversations and activities.
    queue: VecDeque<(u64, u32)>,
    /// Whether an access to memory waits until fewer bytes of accesses' results are being sent.
    crowded: bool,
    /// Conversations that had calls waiting for their share of memory, and that have fewer bytes to be sent
    /// since.
    roomy: Vec<u64>,
    /// Inserts of results that are no longer held. [`Server::take_loose`] hands them out to be dropped.
    loose: Vec<Bytes>,
}

/// The periodic work: it frees memory and looks for silent clients.
struct Sweep {
    /// When the next sweep is due.
    due: Option<Time>,
    /// When the server last looked for results that make no progress.
    looked: Time,
    /// When the server last came back from being stopped or asleep. Datagrams sent to it before can still be
    /// unread.
    awake: Time,
    /// Calls that were given up because their clients were silent. The user is still to be told.
    forsaken: Vec<CallKey>,
}

/// Empty buffers for reuse.
#[derive(Default)]
struct Spare {
    /// Buffers that a call may keep after a short result.
    short: Vec<Vec<u8>>,
    buffers: Vec<Vec<u8>>,
    long: Spares,
    /// The number of calls whose arguments are arriving in fragments.
    receiving: usize,
    /// The bytes of reused buffers that these calls were given before their arguments had arrived.
    lent: usize,
}

impl Server {
    /// Makes a server without conversations. `secret` is fresh entropy; each server with a new secret is a
    /// new incarnation. The socket must belong to this server by the time `now`: clients conclude that calls
    /// which were sent after it did not run at an earlier server.
    pub fn new(config: ServerConfig, now: Time, secret: [u8; 32]) -> Server {
        let issuer = Issuer::new(now, &secret);
        let mutant = config.mutant;
        let hosts = Hosts::new(memory::budgets(&config), mutant);
        let users = config.same_user.clone().map(users::Users::new);
        Server {
            config,
            table: Table::new(issuer.secret_for(b"table")),
            exports: Exports::default(),
            answers: ShortAnswers {
                queue: VecDeque::new(),
                counts: Counts::new(issuer.key_for(b"replying"), mutant),
                inquiries: Inquiries::new(issuer.key_for(b"inquiries"), mutant),
                answer_bytes: 0,
                resend_bytes: 0,
            },
            uncalled: uncalled::Uncalled::default(),
            #[cfg(feature = "secure")]
            handshakes: handshake::Handshakes::new(now, issuer.key_for(b"handshakes")),
            admission: Admission {
                conversing: Counts::new(issuer.key_for(b"conversing"), mutant),
                issuer,
                horizon: 0,
                forgotten: 0,
                forgot_at: now,
            },
            users,
            sending: Sending::default(),
            hosts,
            sweep: Sweep { due: None, looked: now, awake: now, forsaken: Vec::new() },
            timer: None,
            all_inside: AllInside::default(),
            spare: Spare::default(),
            shedding: shed::Shedding::default(),
            draining: drain::Draining::default(),
            unfinished: 0,
            seals: Seals::default(),
            stats: Stats::default(),
        }
    }

    /// Exports an interface.
    pub fn export(&mut self, export: Export) {
        debug_assert_ne!(export.id, 0);
        self.draining.forget_names(&export);
        self.exports.add(export);
    }

    /// Returns the export of an identifier.
    pub fn exported(&self, id: u64) -> Option<&Export> {
        self.exports.get(id)
    }

    /// Withdraws an export: further calls of it are refused, `Ran::No`.
    pub fn withdraw(&mut self, id: u64) {
        self.exports.remove(id);
    }

    /// Takes the inserts of results that are no longer held. The caller drops them where a slow drop does no
    /// harm.
    #[inline]
    pub fn take_loose(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.sending.loose)
    }

    /// Returns whether [`Server::take_loose`] would return any inserts.
    #[inline]
    pub fn has_loose(&self) -> bool {
        !self.sending.loose.is_empty()
    }

    /// Answers a question of a client that holds one of the server's tickets. Besides that client, only this
    /// incarnation of the server can compute the answer, which proves that it is the same one.
    pub fn prove(&self, holder: &Holder, question: &[u8]) -> [u8; 16] {
        self.admission.issuer.prove(holder, question)
    }

    /// Returns when to call [`Server::handle_timeout`], or `None` if no timer runs.
    pub fn timeout(&self) -> Option<Time> {
        self.timer
    }

    /// Notes that the time of the next sweep, or of exchanges, has changed.
    fn set_timer(&mut self) {
        let first = self.all_inside.timers.first().map(|(due, ..)| *due);
        #[cfg(feature = "secure")]
        let first = first.into_iter().chain(self.handshakes.due()).min();
        self.timer = self.sweep.due.into_iter().chain(first).min();
    }

    fn set_sweep(&mut self, due: Option<Time>) {
        self.sweep.due = due;
        self.set_timer();
    }

    /// Returns the number of conversations.
    pub fn conversations(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of bytes of held results longer than 64 bytes, and of arguments that are arriving in
    /// fragments.
    pub fn held_bytes(&self) -> usize {
        [Kept::Results, Kept::Sending, Kept::Arguments].map(|kind| self.hosts.total(kind)).iter().sum()
    }

    /// Returns the bytes of memory that exchanges hold.
    pub fn exchange_bytes(&self) -> usize {
        self.hosts.total(Kept::Exchanges)
    }

    /// Returns whether the caller of an unfinished call has given it up.
    pub fn is_given_up(&self, key: CallKey) -> bool {
        let CallKey { conversation, activity, sequence } = key;
        let Some(entry) = self.table.find(conversation).map(|place| self.table.at(place)) else {
            return false;
        };
        let marked = |work: &Work| work.marks & GIVEN_UP != 0 && work.position.sequence == sequence;
        entry.last(activity).sequence() > sequence || entry.work(activity).is_some_and(marked)
    }

    /// Returns the number of calls given to the user and not finished.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// Returns counts of what the server did.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns who the client of a conversation is, in a scheme with secrets.
    #[inline(always)]
    fn principal(&self, conversation: u64, scheme: Scheme) -> Option<Arc<Principal>> {
        #[cfg(feature = "secure")]
        if scheme.has_secrets() {
            return self.seals.secrets.principal(conversation);
        }
        let _ = (conversation, scheme);
        None
    }
}
