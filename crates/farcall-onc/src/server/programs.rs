//! What a server offers, and what becomes of a message: no sockets, no threads.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use farcall::env::{Env, Time};
use farcall::stub::{self, Dispatched, Interface, Procedure, Program};
use farcall::workers::UsualTime;
use farcall::xdr::{Decoder, Encoder, Limits};
use farcall::{Bytes, System, guard};

use super::caller::{self, Caller};
use super::duplicates::{Duplicates, Seen, Ticket};
use super::flavour::{Admission, Authenticated, Flavour, Special, guarded};
use super::outgoing::{Outcome, Outgoing};
use super::peer::Peer;
use super::shorts::ShortCredentials;
use crate::wire::auth::{AuthStat, Credential, Flavor};
use crate::wire::message::{Accepted, BadCall, Call, Rejected};

/// Decides whether a caller is served.
pub(crate) type Allow = Box<dyn Fn(&Caller) -> Result<(), AuthStat> + Send + Sync>;

/// All that is offered at one place, and on which terms.
pub(crate) struct Programs {
    env: Arc<dyn Env>,
    offers: Vec<Offer>,
    pub(crate) duplicates: Option<Duplicates>,
    pub(crate) flavours: Vec<(Flavor, Arc<dyn Flavour>)>,
    pub(crate) shorts: Option<ShortCredentials>,
    pub(crate) allow: Option<Allow>,
    pub(crate) lenient: bool,
    pub(crate) limits: Limits,
}

impl Default for Programs {
    fn default() -> Programs {
        Programs {
            env: System::current(),
            offers: Vec::new(),
            duplicates: None,
            flavours: Vec::new(),
            shorts: None,
            allow: None,
            lenient: false,
            limits: Limits::default(),
        }
    }
}

/// An interface, as its server offers it.
pub struct Offer {
    program: u32,
    version: u32,
    service: Box<dyn Service>,
    procedures: Box<[Known]>,
}

/// What is known of a procedure.
pub(crate) struct Known {
    number: u32,
    /// Its replies are kept: it must not run twice.
    kept: bool,
    one_way: bool,
    blocking: bool,
    /// Counts runs, roughly.
    runs: AtomicU32,
    usual_time: UsualTime,
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
    /// The interface `T` under its numbers. Procedures of numbers in `one_way` give no reply when all is
    /// well.
    pub fn new<T: ?Sized + Program>(server: Arc<T>, one_way: &[u32]) -> Offer {
        let known = |procedure: &Procedure| Known {
            number: procedure.number,
            kept: !procedure.idempotent && procedure.number != 0,
            one_way: one_way.contains(&procedure.number),
            blocking: procedure.blocking,
            runs: AtomicU32::new(0),
            usual_time: UsualTime::presumed_quick(QUICK),
        };
        Offer {
            program: T::PROGRAM,
            version: T::VERSION,
            service: Box::new(Direct(server)),
            procedures: T::PROCEDURES.iter().map(known).collect(),
        }
    }

    /// Replies of procedures of these numbers are not kept, though they are not `#[idempotent]`: a call that
    /// is sent again runs again, where the procedure itself must know of it (to count it, or to say nothing).
    #[must_use]
    pub fn not_kept(mut self, procedures: &[u32]) -> Offer {
        self.procedures.iter_mut().for_each(|known| known.kept &= !procedures.contains(&known.number));
        self
    }
}

impl std::fmt::Debug for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Offer")
            .field("program", &self.program)
            .field("version", &self.version)
            .finish_non_exhaustive()
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
    authenticated: Authenticated<'a>,
    ticket: Option<Ticket>,
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

    /// A reply has left, or will: the time to forget older ones.
    #[inline]
    pub(crate) fn forget(&self) {
        self.duplicates.as_ref().inspect(|duplicates| duplicates.forget());
    }

    /// Answers a message, in this thread. True: `reply` is to be sent.
    pub(crate) fn answer(&self, message: &[u8], peer: &Peer, reply: &mut Outgoing) -> bool {
        match self.examine(message, peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => self.run(admitted, peer, None, reply),
        }
    }

    /// Looks at a message: what can be said at once is appended to `reply`.
    #[inline]
    pub(crate) fn examine<'a>(&'a self, message: &'a [u8], peer: &Peer, reply: &mut Outgoing) -> Verdict<'a> {
        let (call, arguments) = match Call::parse(message) {
            Ok(parsed) => parsed,
            Err(BadCall::Refused { xid, why }) => return rejected(xid, why, reply),
            Err(BadCall::Unreadable(_)) => return Verdict::Unreadable,
        };
        let authenticated = match self.authenticate(&call, message, arguments) {
            Ok(authenticated) => authenticated,
            Err(Admission::Answer { verifier, result }) => {
                reply.accepted(call.xid, Some(&verifier), Accepted::Success(&result));
                return Verdict::Answered;
            }
            Err(Admission::Refuse(stat)) => return rejected(call.xid, Rejected::AuthError(stat), reply),
            Err(Admission::Drop | Admission::Serve { .. }) => return Verdict::Drop,
        };
        if let Some(allow) = &self.allow {
            let caller = Caller::new(peer, &call, authenticated.credential(&call));
            if let Err(stat) = guarded(|| allow(&caller)).unwrap_or(Err(AuthStat::FAILED)) {
                return rejected(call.xid, Rejected::AuthError(stat), reply);
            }
        }
        match self.find(&call) {
            Ok((offer, Some(known))) => self.admit(call, offer, known, authenticated, peer, reply),
            Ok((_, None)) => say(&NOTHING, call.xid, authenticated, reply),
            Err(outcome) => say(&Outcome::Failed(outcome), call.xid, authenticated, reply),
        }
    }

    /// Who calls. What is not served is an error here.
    #[inline]
    fn authenticate<'a>(
        &self,
        call: &Call<'a>,
        message: &'a [u8],
        arguments: &'a [u8],
    ) -> Result<Authenticated<'a>, Admission<'a>> {
        let flavor = call.credential.flavor();
        if let Some((_, flavour)) = self.flavours.iter().find(|(known, _)| *known == flavor) {
            return by_flavour(&**flavour, call, message, arguments);
        }
        let refuse = |stat| Err(Admission::Refuse(stat));
        match (call.credential.credential(), &self.shorts) {
            (Ok(Credential::None), _) | (Ok(Credential::Sys(_)), None) => Ok(Authenticated::plain(arguments)),
            (Ok(Credential::Sys(_)), Some(shorts)) => {
                let verifier = Some((Flavor::SHORT, shorts.give(call.credential.body())));
                special(arguments.into(), Special { verifier, ..Special::default() })
            }
            (Ok(Credential::Short(short)), Some(shorts)) => {
                let Some(credential) = shorts.find(short) else { return refuse(AuthStat::REJECTEDCRED) };
                let caller = Some((Flavor::SYS, credential));
                special(arguments.into(), Special { caller, ..Special::default() })
            }
            // We gave nobody an AUTH_SHORT, and go on inside TLS with nobody (RFC 9289 section 4.1).
            (Ok(Credential::Short(_) | Credential::Other(_)), _) => refuse(AuthStat::REJECTEDCRED),
            (Err(stat), _) => refuse(stat),
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
        let versions =
            || self.offers.iter().filter(|offer| offer.program == program).map(|offer| offer.version);
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
        authenticated: Authenticated<'a>,
        peer: &Peer,
        reply: &mut Outgoing,
    ) -> Verdict<'a> {
        let mut ticket = None;
        if known.kept
            && let Some(duplicates) = &self.duplicates
        {
            match duplicates.begin(peer, &call, authenticated.credential(&call), &authenticated.arguments) {
                Seen::Never(new) => ticket = new,
                Seen::Running => return Verdict::Drop,
                Seen::Answered(outcome) => return say(&outcome, call.xid, authenticated, reply),
            }
        }
        Verdict::Run(Admitted { call, offer, known, authenticated, ticket })
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
        let Admitted { call, offer, known, mut authenticated, ticket } = admitted;
        reply.accepted(call.xid, authenticated.verifier(), Accepted::Success(&[]));
        let shared = match (&authenticated.arguments, packet) {
            (Cow::Borrowed(arguments), Some(packet)) => Some(packet.slice_ref(arguments)),
            _ => None,
        };
        let mut decoder =
            shared.as_ref().map_or_else(|| Decoder::new(&authenticated.arguments), Decoder::with_packet);
        decoder = decoder.limits(self.limits);
        if self.lenient {
            decoder = decoder.lenient();
        }
        let begun = known.begin(&*self.env);
        let result_at = reply.result_at();
        let (dispatched, silent) = {
            let serving = caller::enter(peer, &call, authenticated.credential(&call));
            let dispatched = reply.encode(authenticated.is_sealed(), |encoder| {
                stub::catch(|| offer.service.dispatch(call.procedure, &mut decoder, encoder))
            });
            (dispatched, serving.is_silent())
        };
        known.end(begun, &*self.env);
        let failure = failure(&dispatched);
        let silent = silent || (failure.is_none() && known.one_way);
        if let (Some(ticket), Some(duplicates)) = (ticket, &self.duplicates) {
            let outcome = match failure {
                _ if silent => Outcome::Silence,
                Some(how) => Outcome::Failed(how),
                None => reply.outcome(result_at),
            };
            duplicates.end(ticket, outcome);
        }
        let failure = match (failure, authenticated.take_seal()) {
            (None, Some(seal)) if !silent => (!reply.seal(seal, result_at)).then_some(Accepted::SystemErr),
            (failure, _) => failure,
        };
        if let Some(how) = failure {
            reply.failed(call.xid, authenticated.verifier(), how);
            // Its cause may be of the user's making.
            guard::run_alone("the drop of an error", || drop((dispatched, authenticated)));
        }
        !silent
    }
}

/// What a call that asks for nothing is answered with.
const NOTHING: Outcome = Outcome::Result(Bytes::new(), None);

/// Answers a call with what was said before, in the form that this call's flavour gives it.
fn say(
    outcome: &Outcome,
    xid: u32,
    mut authenticated: Authenticated<'_>,
    reply: &mut Outgoing,
) -> Verdict<'static> {
    let (result, kept) = match outcome {
        Outcome::Silence => return Verdict::Drop,
        Outcome::Failed(how) => {
            reply.accepted(xid, authenticated.verifier(), *how);
            return Verdict::Answered;
        }
        Outcome::Result(result, kept) => (result, kept.as_ref()),
    };
    reply.accepted(xid, authenticated.verifier(), Accepted::Success(&[]));
    let at = reply.result_at();
    reply.append(result, kept, authenticated.is_sealed());
    if let Some(seal) = authenticated.take_seal()
        && !reply.seal(seal, at)
    {
        reply.failed(xid, authenticated.verifier(), Accepted::SystemErr);
    }
    Verdict::Answered
}

/// Rejects a call.
#[cold]
fn rejected(xid: u32, why: Rejected, reply: &mut Outgoing) -> Verdict<'static> {
    reply.rejected(xid, why);
    Verdict::Answered
}

/// What a flavour says of a call.
fn by_flavour<'a>(
    flavour: &dyn Flavour,
    call: &Call<'a>,
    message: &'a [u8],
    arguments: &'a [u8],
) -> Result<Authenticated<'a>, Admission<'a>> {
    // The header as far as its credential: 24 bytes, then the credential's flavour, length and padded body.
    let header = 32 + call.credential.body().len().next_multiple_of(4);
    let header = message.get(..header).unwrap_or(message);
    match guarded(|| flavour.admit(call, header, arguments)) {
        Some(Admission::Serve { arguments, verifier, seal, caller }) => {
            let verifier = (verifier.0 != Flavor::NONE).then_some(verifier);
            special(arguments, Special { verifier, seal, caller })
        }
        Some(other) => Err(other),
        None => Err(Admission::Refuse(AuthStat::FAILED)),
    }
}

fn special<'a>(arguments: Cow<'a, [u8]>, special: Special) -> Result<Authenticated<'a>, Admission<'a>> {
    Authenticated::special(arguments, special).ok_or(Admission::Refuse(AuthStat::FAILED))
}

/// Why a call has no result. ONC RPC has no exceptions: whatever is not bad arguments is an error of the
/// system.
#[inline]
fn failure(dispatched: &Dispatched) -> Option<Accepted<'static>> {
    match dispatched {
        Dispatched::Result => None,
        Dispatched::BadArguments(_) => Some(Accepted::GarbageArgs),
        Dispatched::NoSuchProcedure => Some(Accepted::ProcUnavail),
        Dispatched::Exception | Dispatched::BadResult(_) | Dispatched::Failed(_) => Some(Accepted::SystemErr),
    }
}

impl<'a> Admitted<'a> {
    /// The receiver must not wait for it.
    #[inline]
    pub(crate) fn is_slow(&self) -> bool {
        self.known.blocking || !self.known.usual_time.is_quick()
    }

    /// What is known of its procedure.
    pub(crate) fn known(&self) -> &'a Known {
        self.known
    }
}

impl Known {
    /// When a run begins, if it is timed.
    #[inline]
    fn begin(&self, env: &dyn Env) -> Option<Time> {
        let runs = self.runs.load(Ordering::Relaxed);
        self.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        self.usual_time.is_timed(u64::from(runs)).then(|| env.now())
    }

    #[inline]
    fn end(&self, begun: Option<Time>, env: &dyn Env) {
        if let Some(begun) = begun {
            self.usual_time.ran(env.now().since(begun));
        }
    }

    /// Notes that the watchdog has found a run to be long.
    pub(crate) fn overdue(&self) {
        self.usual_time.ran(Duration::MAX);
    }
}

/// A procedure that usually takes longer is slow. To give the socket to another thread costs a tenth of that.
const QUICK: Duration = Duration::from_micros(100);
