//! The serving end: every conversation of one socket.
//!
//! | file | job |
//! |---|---|
//! | `table.rs` | the conversations, 64 bytes for each that is idle |
//! | `activities.rs` | the activities of a conversation, as many as were used |
//! | `work.rs` | a call that is not over: arguments, phase, held result |
//! | `more.rs` | what a conversation has besides while it is not idle |
//! | `exports.rs` | what is offered, by identifier and by name |
//! | `admit.rs` | tickets, challenges, binding: who may call at all |
//! | `handshake.rs` | how it comes to a conversation's key |
//! | `receive.rs` | what each frame from a caller means |
//! | `arguments.rs` | arguments that arrive in fragments |
//! | `reading.rs` | calls that change nothing |
//! | `send.rs` | results, their fragments, short answers |
//! | `hosts.rs` | what peers make it keep, by host |
//! | `counts.rs` | how many conversations, and answers that wait, each host has |
//! | `audit.rs` | what is kept, for tests |
//! | `share.rs` | which calls wait until their clients have fetched other results |
//! | `silence.rs` | whose callers are not heard any more |
//! | `inquiries.rs` | how many questions an unproven address may ask |
//! | `memory.rs` | the memory of calls: taken when one begins, freed in time |

mod activities;
mod admit;
mod arguments;
mod audit;
mod counts;
mod exports;
mod handshake;
mod hosts;
mod inquiries;
mod memory;
mod more;
mod reading;
mod receive;
mod send;
mod share;
mod silence;
mod table;
mod work;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::net::SocketAddr;

use bytes::Bytes;

use crate::scheme::Key;
use crate::ticket::{Holder, Issuer};
use crate::wire::{Numbers, Position};
use crate::{Failure, Fingerprint, ServerConfig, Spares, Time, Trace};
pub use audit::KeptForHost;
use counts::Counts;
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

/// The name of a call, for the user.
fn key(conversation: u64, position: Position) -> CallKey {
    CallKey { conversation, activity: position.activity, sequence: position.sequence }
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
    /// What a binding compares of its procedures.
    pub procedures: Vec<Fingerprint>,
}

/// A call to execute.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// To be given to [`Server::finish`], whatever happens.
    pub key: CallKey,
    /// The export that it names, which exists.
    pub export: u64,
    /// The procedure's number, not checked.
    pub procedure: u32,
    /// When the caller stops waiting.
    pub deadline: Option<Time>,
    /// Trace context.
    pub trace: Option<Trace>,
    /// It reads, and was executed before: to say now that it did not run would be wrong.
    pub again: bool,
    /// The arguments, borrowed from the datagram when they came in one.
    pub args: Cow<'a, [u8]>,
}

impl Incoming<'_> {
    /// Copies the arguments, so that the call may outlive its datagram.
    pub fn into_owned(self) -> Incoming<'static> {
        Incoming { args: Cow::Owned(self.args.into_owned()), ..self }
    }
}

/// What the server's user must do.
#[derive(Debug)]
pub enum Request<'a> {
    /// Execute this call, or refuse it, and [`Server::finish`] it.
    Call(Incoming<'a>),
    /// These bytes are for that export, which exists. They are of no call: they may have come before, or not
    /// in the order in which they were sent, and nobody waits for an answer.
    Post(u64, &'a [u8]),
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
    /// It failed; the payload is not sent. Apart, so that the others are a word.
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
    /// Where to.
    pub to: SocketAddr,
    /// The length of what was written.
    pub len: usize,
    /// What is to be inserted there: only for clients on this machine, and only of results of
    /// [`Server::finish_around`].
    pub insert: Option<Insert>,
}

impl Transmit {
    /// The datagram, of which `out` has what was written, in one piece.
    pub fn gather(&self, out: &[u8]) -> Vec<u8> {
        let mut datagram = out[..self.len].to_vec();
        if let Some(Insert { at, bytes }) = &self.insert {
            datagram.splice(at..at, bytes.iter().copied());
        }
        datagram
    }
}

/// Counts of what a server did, ever growing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Calls given to the user.
    pub calls: u64,
    /// Datagrams made.
    pub sent: u64,
    /// Datagrams accepted.
    pub received: u64,
    /// Datagrams dropped as malformed or corrupted.
    pub dropped: u64,
    /// Bytes of the datagrams made.
    pub bytes_sent: u64,
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
    /// Calls refused because there was no room for their arguments, and whose the last of them was.
    pub evicted_calls: u64,
    /// See `evicted_calls`.
    pub paid: Option<SocketAddr>,
    /// Calls refused by the protocol, by [`crate::Kind`] code.
    pub refused: [u64; 24],
}

/// Bytes that belong into a result, or a datagram, and are sent from where they stand.
#[derive(Clone, Debug)]
pub struct Insert {
    /// How much of the rest comes before them.
    pub at: usize,
    /// They.
    pub bytes: Bytes,
}

/// The serving end of every conversation of one socket.
pub struct Server {
    config: ServerConfig,
    table: Table,
    exports: Exports,
    admission: Admission,
    #[cfg(feature = "test-scheme")]
    handshakes: handshake::Handshakes,
    answers: ShortAnswers,
    sending: Sending,
    /// What is kept for each host, and the calls that have [`Work`].
    hosts: Hosts,
    sweep: Sweep,
    spare: Spare,
    /// Whether every new call is refused.
    draining: bool,
    /// Calls given to the user and not finished.
    unfinished: usize,
    numbers: Numbers,
    stats: Stats,
}

/// Decides who may begin a conversation.
struct Admission {
    issuer: Issuer,
    /// The number of conversations of each host.
    per_host: Counts,
    /// No ticket of this date or an earlier one is accepted. It may be later than `forgotten`, when a full
    /// server has refused newer tickets; nothing ever ran under those.
    horizon: u64,
    /// The newest date among the tickets of forgotten conversations, and when a conversation was last
    /// forgotten.
    forgotten: u64,
    forgot_at: Time,
}

/// Short answers that wait to be sent, and what bounds them.
struct ShortAnswers {
    queue: VecDeque<send::Reply>,
    /// The number of queued answers to each host.
    per_host: Counts,
    inquiries: Inquiries,
    /// The bytes by which the datagram that is being read may still be answered.
    answer_bytes: usize,
    /// The bytes of results that may still be sent again for that datagram.
    resend_bytes: usize,
}

/// Results that are being sent.
#[derive(Default)]
struct Sending {
    /// Calls whose results have something to send, in turn: their conversations and activities.
    queue: VecDeque<(u64, u32)>,
    /// Whether an access waits until fewer bytes of accesses' results are being sent in fragments.
    crowded: bool,
    /// Conversations of which calls waited for their share, and which have been sent less since.
    roomy: Vec<u64>,
    /// Inserts of results that are not held any more.
    loose: Vec<Bytes>,
}

/// The periodic work: it frees memory and looks for silent clients.
struct Sweep {
    /// When it is next done.
    due: Option<Time>,
    /// When it last looked for results that make no progress.
    looked: Time,
    /// The server may not have heard what it was sent before this time.
    awake: Time,
    /// Calls that were given up because their clients were silent, and that the user has not been told of.
    forsaken: Vec<CallKey>,
}

/// Memory that is used again.
#[derive(Default)]
struct Spare {
    /// Boxed, because they go back into a conversation without being moved.
    #[allow(clippy::vec_box)]
    works: Vec<Box<Work>>,
    buffers: Vec<Vec<u8>>,
    long: Spares,
    /// The number of calls whose arguments are arriving in fragments, and the bytes of used buffers that
    /// those were given in advance.
    receiving: usize,
    lent: usize,
}

impl Server {
    /// A server that knows nobody. `secret` is fresh entropy: a new one is a new incarnation. `now` must
    /// not be before the socket is its alone: a call sent later is said not to have run elsewhere.
    pub fn new(config: ServerConfig, now: Time, secret: [u8; 32]) -> Server {
        let issuer = Issuer::new(now, &secret);
        let hosts = Hosts::new(memory::budgets(&config));
        Server {
            config,
            table: Table::default(),
            exports: Exports::default(),
            answers: ShortAnswers {
                queue: VecDeque::new(),
                per_host: Counts::new(issuer.key_for(b"replying")),
                inquiries: Inquiries::new(issuer.key_for(b"inquiries")),
                answer_bytes: 0,
                resend_bytes: 0,
            },
            admission: Admission {
                per_host: Counts::new(issuer.key_for(b"conversing")),
                issuer,
                horizon: 0,
                forgotten: 0,
                forgot_at: now,
            },
            #[cfg(feature = "test-scheme")]
            handshakes: Default::default(),
            sending: Sending::default(),
            hosts,
            sweep: Sweep { due: None, looked: now, awake: now, forsaken: Vec::new() },
            spare: Spare::default(),
            draining: false,
            unfinished: 0,
            numbers: Numbers::from(1),
            stats: Stats::default(),
        }
    }

    /// Offers an interface.
    pub fn export(&mut self, export: Export) {
        debug_assert_ne!(export.id, 0);
        self.exports.add(export);
    }

    /// What is offered as that, if it is.
    pub fn exported(&self, id: u64) -> Option<&Export> {
        self.exports.get(id)
    }

    /// Offers it no longer: calls of it are refused, `Ran::No`.
    pub fn withdraw(&mut self, id: u64) {
        self.exports.remove(id);
    }

    /// Refuses every new call from now on; those that were begun are finished.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// What was inserted into results that are not held any more: to be dropped where that may take its time.
    #[inline]
    pub fn take_loose(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.sending.loose)
    }

    /// Whether there is any of that.
    #[inline]
    pub fn has_loose(&self) -> bool {
        !self.sending.loose.is_empty()
    }

    /// Answers a question of the holder of one of its tickets. Besides that holder, only this incarnation can
    /// compute the answer.
    pub fn prove(&self, holder: &Holder, question: &[u8]) -> [u8; 16] {
        self.admission.issuer.prove(holder, question)
    }

    /// When [`Server::handle_timeout`] wants to be called; `None` when nothing is held.
    pub fn timeout(&self) -> Option<Time> {
        self.sweep.due
    }

    /// Conversations remembered.
    pub fn conversations(&self) -> usize {
        self.table.len()
    }

    /// Bytes of results held and of arguments being reassembled.
    pub fn held_bytes(&self) -> usize {
        [Kept::Results, Kept::Sending, Kept::Arguments].map(|kind| self.hosts.total(kind)).iter().sum()
    }

    /// Whether the caller of a call that the user has, and has not finished, has given it up.
    pub fn is_given_up(&self, key: CallKey) -> bool {
        let CallKey { conversation, activity, sequence } = key;
        let Some(entry) = self.table.find(conversation).map(|place| self.table.at(place)) else {
            return false;
        };
        let marked = |work: &Work| work.marks & GIVEN_UP != 0 && work.position.sequence == sequence;
        entry.last(activity).sequence() > sequence || entry.work(activity).is_some_and(marked)
    }

    /// Calls given to the user and not finished.
    pub fn unfinished(&self) -> usize {
        self.unfinished
    }

    /// What it did so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The key of a conversation, if the conversation is known.
    #[inline(always)]
    fn key_of(&self, conversation: u64) -> Option<Key> {
        self.table.find(conversation).map(|place| self.table.at(place).key)
    }
}
