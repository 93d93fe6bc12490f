//! What a server offers, and what becomes of a message: no sockets, no threads.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use farcall::Bytes;
use farcall::stub::{self, Dispatched, Interface, Procedure, Program};
use farcall::xdr::{Decoder, Encoder, Limits};

use super::caller::{self, Caller, Peer};
use super::duplicates::{Duplicates, Key, Seen};
use super::outgoing::Outgoing;
use crate::wire::auth::{AuthStat, Credential, Flavor};
use crate::wire::message::{Accepted, BadCall, Call, Rejected};

/// Decides whether a caller is served.
pub(crate) type Allow = Box<dyn Fn(&Caller) -> Result<(), AuthStat> + Send + Sync>;

/// All that is offered at one place, and on which terms.
#[derive(Default)]
pub(crate) struct Programs {
    offers: Vec<Offer>,
    pub(crate) duplicates: Option<Duplicates>,
    pub(crate) flavours: Vec<(Flavor, Arc<dyn Flavour>)>,
    pub(crate) allow: Option<Allow>,
    pub(crate) lenient: bool,
    pub(crate) limits: Limits,
}

/// A flavour of authentication that has more to say than that a credential is well-formed, like RPCSEC_GSS (RFC 2203):
/// it may refuse a call, answer it itself, or have its arguments and its result in a form of its own.
pub trait Flavour: Send + Sync {
    /// Looks at a call before anything else does. `header` is what stands before the credential's verifier.
    fn admit<'a>(&self, call: &Call<'a>, header: &'a [u8], arguments: &'a [u8]) -> Admission<'a>;
}

/// What a [`Flavour`] says of a call.
pub enum Admission<'a> {
    /// It is served: with these arguments, and a result that may be changed on its way.
    Serve {
        /// The arguments, as the procedure's stub reads them.
        arguments: Cow<'a, [u8]>,
        /// The reply's verifier: its flavour and its body, of 400 bytes at most.
        verifier: (Flavor, Vec<u8>),
        /// What is done to the result.
        seal: Option<Box<dyn Seal>>,
    },
    /// The flavour has answered it: with this verifier and this result.
    Answer {
        /// The reply's verifier.
        verifier: (Flavor, Vec<u8>),
        /// The reply's result.
        result: Vec<u8>,
    },
    /// It is refused.
    Refuse(AuthStat),
    /// Nothing is said.
    Drop,
}

/// Puts a result into the form that a flavour gives it.
pub trait Seal: Send {
    /// Changes what stands in `reply` from the byte `at` on.
    fn seal(self: Box<Self>, reply: &mut Vec<u8>, at: usize);
}

/// An interface, as its server offers it.
pub struct Offer {
    program: u32,
    version: u32,
    service: Box<dyn Service>,
    procedures: Box<[Known]>,
}

/// What is known of a procedure.
struct Known {
    number: u32,
    idempotent: bool,
    one_way: bool,
    pace: Pace,
}

/// What executes a program's calls.
trait Service: Send + Sync {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

struct Direct<T: ?Sized>(Arc<T>);

impl<T: ?Sized + Interface> Service for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

impl Offer {
    /// The interface `T` under its numbers. Procedures of numbers in `one_way` give no reply when all is well.
    pub fn new<T: ?Sized + Program>(server: Arc<T>, one_way: &[u32]) -> Offer {
        let known = |procedure: &Procedure| Known {
            number: procedure.number,
            idempotent: procedure.idempotent || procedure.number == 0,
            one_way: one_way.contains(&procedure.number),
            pace: Pace::new(procedure.blocking),
        };
        Offer {
            program: T::PROGRAM,
            version: T::VERSION,
            service: Box::new(Direct(server)),
            procedures: T::PROCEDURES.iter().map(known).collect(),
        }
    }
}

/// What a flavour made of a call: arguments, the reply's verifier, what is done to the result.
type Stands<'a> = (Cow<'a, [u8]>, (Flavor, Vec<u8>), Option<Box<dyn Seal>>);

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer").field("program", &self.program).field("version", &self.version).finish_non_exhaustive()
    }
}

/// What becomes of a message.
pub(crate) enum Verdict<'a> {
    /// It is no call.
    Unreadable,
    /// Nothing is said to it.
    Drop,
    /// The reply is written.
    Answered,
    /// Its procedure has to run.
    Run(Admitted<'a>),
}

/// A call whose procedure has to run.
pub(crate) struct Admitted<'a> {
    call: Call<'a>,
    offer: &'a Offer,
    known: &'a Known,
    arguments: Cow<'a, [u8]>,
    verifier: Option<(Flavor, Vec<u8>)>,
    seal: Option<Box<dyn Seal>>,
    key: Option<Key>,
}

impl Programs {
    /// Offers one more. Of two of the same numbers the later counts.
    pub(crate) fn add(&mut self, offer: Offer) {
        self.offers.retain(|former| (former.program, former.version) != (offer.program, offer.version));
        self.offers.push(offer);
    }

    /// The numbers of all that is offered.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.offers.iter().map(|offer| (offer.program, offer.version))
    }

    /// Looks at a message: what can be said at once is appended to `reply`.
    #[inline]
    pub(crate) fn examine<'a>(&'a self, message: &'a [u8], peer: &Peer, reply: &mut Outgoing) -> Verdict<'a> {
        let (call, arguments) = match Call::parse(message) {
            Ok(parsed) => parsed,
            Err(BadCall::Refused { xid, why }) => return reply.rejected(xid, why),
            Err(BadCall::Unreadable(_)) => return Verdict::Unreadable,
        };
        let stands = match self.authenticate(&call, message, arguments) {
            Admission::Serve { arguments, verifier, seal } => (arguments, verifier, seal),
            Admission::Answer { verifier, result } => return reply.verified(call.xid, &verifier, &result),
            Admission::Refuse(stat) => return reply.rejected(call.xid, Rejected::AuthError(stat)),
            Admission::Drop => return Verdict::Drop,
        };
        if let Some(allow) = &self.allow
            && let Err(stat) = allow(&Caller::new(peer, &call))
        {
            return reply.rejected(call.xid, Rejected::AuthError(stat));
        }
        match self.find(&call) {
            Ok((offer, Some(known))) => self.admit(call, offer, known, stands, peer, reply),
            Ok((_, None)) => reply.accepted(call.xid, Accepted::Success(&[])),
            Err(outcome) => reply.accepted(call.xid, outcome),
        }
    }

    #[inline]
    fn authenticate<'a>(&self, call: &Call<'a>, message: &'a [u8], arguments: &'a [u8]) -> Admission<'a> {
        let flavor = call.credential.flavor();
        if let Some((_, flavour)) = self.flavours.iter().find(|(known, _)| *known == flavor) {
            // The header as far as its credential: 24 bytes, then the credential's flavour, length and padded body.
            let header = 32 + call.credential.body().len().next_multiple_of(4);
            return flavour.admit(call, message.get(..header).unwrap_or(message), arguments);
        }
        let serve =
            || Admission::Serve { arguments: arguments.into(), verifier: (Flavor::NONE, Vec::new()), seal: None };
        match call.credential.credential() {
            Ok(Credential::None | Credential::Sys(_)) => serve(),
            // We gave nobody an AUTH_SHORT, and go on inside TLS with nobody (RFC 9289 section 4.1).
            Ok(Credential::Short(_) | Credential::Other(_)) => Admission::Refuse(AuthStat::REJECTEDCRED),
            Err(stat) => Admission::Refuse(stat),
        }
    }

    /// What a call calls; no procedure if it is the one that every program has.
    #[inline]
    fn find(&self, call: &Call<'_>) -> Result<(&Offer, Option<&Known>), Accepted<'static>> {
        let wanted = |offer: &&Offer| offer.program == call.program && offer.version == call.version;
        let Some(offer) = self.offers.iter().find(wanted) else { return Err(self.mismatch(call.program)) };
        let known = offer.procedures.iter().find(|known| known.number == call.procedure);
        if known.is_none() && call.procedure != 0 {
            return Err(Accepted::ProcUnavail);
        }
        Ok((offer, known))
    }

    #[cold]
    fn mismatch(&self, program: u32) -> Accepted<'static> {
        let versions = || self.offers.iter().filter(|offer| offer.program == program).map(|offer| offer.version);
        match (versions().min(), versions().max()) {
            (Some(low), Some(high)) => Accepted::ProgMismatch { low, high },
            _ => Accepted::ProgUnavail,
        }
    }

    #[inline]
    fn admit<'a>(
        &'a self,
        call: Call<'a>,
        offer: &'a Offer,
        known: &'a Known,
        (arguments, verifier, seal): Stands<'a>,
        peer: &Peer,
        reply: &mut Outgoing,
    ) -> Verdict<'a> {
        let mut key = None;
        if !known.idempotent
            && let Some(duplicates) = &self.duplicates
        {
            key = duplicates.key(peer, &call, &arguments);
            match key.as_ref().map(|key| duplicates.begin(key, peer)) {
                None | Some(Seen::Never) => {}
                Some(Seen::Running) => return Verdict::Drop,
                Some(Seen::Answered(answer)) => return reply.again(&answer),
            }
        }
        let verifier = (verifier.0 != Flavor::NONE).then_some(verifier);
        Verdict::Run(Admitted { call, offer, known, arguments, verifier, seal, key })
    }

    /// Runs the procedure and appends the reply. True: it is to be sent.
    #[inline]
    pub(crate) fn run(
        &self,
        admitted: Admitted<'_>,
        peer: &Peer,
        packet: Option<&Bytes>,
        reply: &mut Outgoing,
    ) -> bool {
        let Admitted { call, offer, known, arguments, verifier, seal, key } = admitted;
        match &verifier {
            None => reply.accepted(call.xid, Accepted::Success(&[])),
            Some(verifier) => reply.verified(call.xid, verifier, &[]),
        };
        let shared = match (&arguments, packet) {
            (Cow::Borrowed(arguments), Some(packet)) => Some(packet.slice_ref(arguments)),
            _ => None,
        };
        let mut decoder = shared.as_ref().map_or_else(|| Decoder::new(&arguments), Decoder::with_packet);
        decoder = decoder.limits(self.limits);
        if self.lenient {
            decoder = decoder.lenient();
        }
        let begun = known.pace.begin();
        let result_at = reply.result_at();
        let (dispatched, silent) = {
            let serving = caller::enter(peer, &call);
            let dispatched = reply.encode(seal.is_some(), |encoder| {
                stub::catch(|| offer.service.dispatch(call.procedure, &mut decoder, encoder))
            });
            (dispatched, serving.is_silent())
        };
        known.pace.end(begun);
        let succeeded = matches!(dispatched, Dispatched::Result);
        match dispatched {
            Dispatched::Result => seal.into_iter().for_each(|seal| reply.seal(seal, result_at)),
            other => reply.failed(call.xid, &other),
        }
        if let (Some(key), Some(duplicates)) = (key, &self.duplicates) {
            duplicates.end(&key, reply);
        }
        !(silent || (succeeded && known.one_way))
    }
}

impl<'a> Admitted<'a> {
    /// The receiver must not wait for it.
    #[inline]
    pub(crate) fn is_slow(&self) -> bool {
        self.known.pace.is_slow()
    }

    /// How fast its procedure is.
    pub(crate) fn pace(&self) -> &'a Pace {
        &self.known.pace
    }
}

/// How fast a procedure is, as far as that was seen.
pub(crate) struct Pace {
    /// It is slow whatever was seen.
    blocking: bool,
    slow: AtomicBool,
    /// How often it was quick since it was slow.
    quick: AtomicU32,
    /// Counts runs, roughly.
    runs: AtomicU32,
}

/// A procedure that takes longer is slow. To give the socket to another thread costs a tenth of that.
const LONG: Duration = Duration::from_micros(100);
/// A slow one that was quick so many times in a row is quick again.
const PROBATION: u32 = 16;

impl Pace {
    fn new(blocking: bool) -> Pace {
        Pace { blocking, slow: AtomicBool::new(blocking), quick: AtomicU32::new(0), runs: AtomicU32::new(0) }
    }

    #[inline]
    fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// When it begins, if this run is timed: to look at the clock costs as much as a quick procedure.
    #[inline]
    fn begin(&self) -> Option<Instant> {
        const ONE_IN: u32 = 16;
        let runs = self.runs.load(Ordering::Relaxed);
        self.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        (runs.is_multiple_of(ONE_IN) || self.is_slow()).then(Instant::now)
    }

    #[inline]
    fn end(&self, begun: Option<Instant>) {
        if let Some(begun) = begun {
            self.ran(begun.elapsed());
        }
    }

    fn ran(&self, time: Duration) {
        if time > LONG {
            return self.overdue();
        }
        if self.is_slow() && self.quick.fetch_add(1, Ordering::Relaxed) + 1 >= PROBATION {
            self.slow.store(self.blocking, Ordering::Relaxed);
        }
    }

    /// It was found to be slow.
    pub(crate) fn overdue(&self) {
        self.quick.store(0, Ordering::Relaxed);
        self.slow.store(true, Ordering::Relaxed);
    }
}
