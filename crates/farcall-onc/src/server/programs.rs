//! The programs that a server offers, and how the server answers a message. This module uses no sockets and
//! no threads.

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

/// The user's function that decides whether a caller is served.
pub(crate) type Allow = Box<dyn Fn(&Caller) -> Result<(), AuthStat> + Send + Sync>;

/// All programs of a server, with the options for serving them.
pub(crate) struct Programs {
    env: Arc<dyn Env>,
    offers: Vec<Offer>,
    /// The memory of earlier calls; `None` if the server keeps no replies.
    pub(crate) duplicates: Option<Duplicates>,
    /// The user's flavours of authentication.
    pub(crate) flavours: Vec<(Flavor, Arc<dyn Flavour>)>,
    /// The AUTH_SHORT credentials that were given; `None` if the server gives none.
    pub(crate) shorts: Option<ShortCredentials>,
    pub(crate) allow: Option<Allow>,
    /// Whether arguments are decoded leniently ([`Decoder::lenient`]).
    pub(crate) lenient: bool,
    /// The limits on decoded arguments.
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

/// An interface that a server offers, with its implementation and options.
pub struct Offer {
    program: u32,
    version: u32,
    service: Box<dyn Service>,
    procedures: Box<[Known]>,
}

/// What the server knows about a procedure.
pub(crate) struct Known {
    number: u32,
    /// Whether the server keeps the procedure's replies, so that a call that is sent again does not run
    /// again.
    kept: bool,
    /// Whether the procedure sends no reply if it succeeds.
    one_way: bool,
    /// Whether the interface declares the procedure `#[blocking]`.
    blocking: bool,
    /// The approximate number of runs. Threads that count at once may lose a run.
    runs: AtomicU32,
    usual_time: UsualTime,
}

/// The implementation of a program.
trait Service: Send + Sync {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// An implementation of the interface `T`, called through its server-stub.
struct Direct<T: ?Sized>(Arc<T>);

impl<T: ?Sized + Interface> Service for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

impl Offer {
    /// Offers the interface `T` under its program and version number. The procedures with the numbers in
    /// `one_way` send no reply if they succeed.
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

    /// Keeps no replies of the procedures with these numbers, although they are not `#[idempotent]`. If a
    /// client sends such a call again, the call runs again. This is for a procedure that must see each
    /// repetition, to count it or to leave it unanswered.
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

/// What the server does next with a message that was examined.
pub(crate) enum Verdict<'a> {
    /// The message is no call. A datagram is ignored. On a connection, the message can be the reply to a call
    /// that the server made of its client.
    Unreadable,
    /// The call gets no reply.
    Drop,
    /// The reply has been written, and is to be sent.
    Answered,
    /// The call's procedure is to run.
    Run(Admitted<'a>),
}

/// A call whose procedure is to run.
pub(crate) struct Admitted<'a> {
    call: Call<'a>,
    offer: &'a Offer,
    known: &'a Known,
    authenticated: Authenticated<'a>,
    ticket: Option<Ticket>,
}

impl Programs {
    /// Adds an offer. It replaces an earlier one with the same program and version number.
    pub(crate) fn add(&mut self, offer: Offer) {
        self.offers.retain(|former| (former.program, former.version) != (offer.program, offer.version));
        self.offers.push(offer);
    }

    /// Returns the program and version numbers of all offers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.offers.iter().map(|offer| (offer.program, offer.version))
    }

    /// Forgets kept replies that are older, or take more bytes, than the server's retention allows. To be
    /// called after a reply was sent.
    #[inline]
    pub(crate) fn forget(&self) {
        self.duplicates.as_ref().inspect(|duplicates| duplicates.forget());
    }

    /// Answers a message. If it is a call, runs the procedure in this thread. Returns whether `reply` is to
    /// be sent.
    pub(crate) fn answer(&self, message: &[u8], peer: &Peer, reply: &mut Outgoing) -> bool {
        match self.examine(message, peer, reply) {
            Verdict::Unreadable | Verdict::Drop => false,
            Verdict::Answered => true,
            Verdict::Run(admitted) => self.run(admitted, peer, None, reply),
        }
    }

    /// Examines a message. If it can be answered without running a procedure, appends the answer to `reply`.
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
            Ok((_, None)) => answer_with(&EMPTY_RESULT, call.xid, authenticated, reply),
            Err(outcome) => answer_with(&Outcome::Failed(outcome), call.xid, authenticated, reply),
        }
    }

    /// Authenticates a call. If the call is not to be served, the error says what to do instead.
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
            // The server gives no AUTH_SHORT, or does not know the flavour. AUTH_TLS (RFC 9289 section 4.1)
            // is such a flavour: the server does not offer TLS.
            (Ok(Credential::Short(_) | Credential::Other(_)), _) => refuse(AuthStat::REJECTEDCRED),
            (Err(stat), _) => refuse(stat),
        }
    }

    /// Finds the offer and the procedure that a call names. Every program has a procedure 0. If the interface
    /// does not define that procedure, returns the offer with `None`.
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

    /// Returns the status of a reply to a call whose program, or whose version of a program, the server does
    /// not offer.
    #[cold]
    fn mismatch(&self, program: u32) -> Accepted<'static> {
        let versions =
            || self.offers.iter().filter(|offer| offer.program == program).map(|offer| offer.version);
        match (versions().min(), versions().max()) {
            (Some(low), Some(high)) => Accepted::ProgMismatch { low, high },
            _ => Accepted::ProgUnavail,
        }
    }

    /// Admits a call, so that its procedure runs. Answers or drops the call if it is a repetition of a call
    /// that the server remembers.
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
                Seen::Answered(outcome) => return answer_with(&outcome, call.xid, authenticated, reply),
            }
        }
        Verdict::Run(Admitted { call, offer, known, authenticated, ticket })
    }

    /// Runs the procedure and appends the reply. Returns whether the reply is to be sent.
    ///
    /// `packet` is the message as shared bytes, if there is one. The decoder can keep parts of the message.
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
            // The error may have a cause of the user's type, whose drop can panic.
            guard::run_alone("the drop of an error", || drop((dispatched, authenticated)));
        }
        !silent
    }
}

/// The outcome of a call of a procedure 0 that the interface does not define: an empty result.
const EMPTY_RESULT: Outcome = Outcome::Result(Bytes::new(), None);

/// Appends the reply to a call whose outcome is known without a run of its procedure. Seals the result if the
/// call's flavour of authentication requires that.
fn answer_with(
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
    if reply.append(result, kept, authenticated.is_sealed()).is_err() {
        reply.failed(xid, authenticated.verifier(), Accepted::SystemErr);
        return Verdict::Answered;
    }
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

/// Authenticates a call by a flavour of the user's.
fn by_flavour<'a>(
    flavour: &dyn Flavour,
    call: &Call<'a>,
    message: &'a [u8],
    arguments: &'a [u8],
) -> Result<Authenticated<'a>, Admission<'a>> {
    // The header up to the end of the credential: 24 bytes, then the credential's flavour, length and padded
    // body.
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

/// Returns the outcome of authentication for a call to which a flavour or AUTH_SHORT adds something. Refuses
/// the call if the caller's identity is too long.
fn special<'a>(arguments: Cow<'a, [u8]>, special: Special) -> Result<Authenticated<'a>, Admission<'a>> {
    Authenticated::special(arguments, special).ok_or(Admission::Refuse(AuthStat::FAILED))
}

/// Returns the status by which a reply reports a failed call, or `None` if the call has a result. ONC RPC has
/// no exceptions, so every failure other than bad arguments and an unknown procedure becomes SYSTEM_ERR.
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
    /// Returns whether the procedure is likely to take long, so that another thread should receive meanwhile.
    #[inline]
    pub(crate) fn is_slow(&self) -> bool {
        self.known.blocking || !self.known.usual_time.is_quick()
    }

    /// Returns what the server knows about the procedure.
    pub(crate) fn known(&self) -> &'a Known {
        self.known
    }
}

impl Known {
    /// Counts a run. Returns the time if the run is to be timed.
    #[inline]
    fn begin(&self, env: &dyn Env) -> Option<Time> {
        let runs = self.runs.load(Ordering::Relaxed);
        self.runs.store(runs.wrapping_add(1), Ordering::Relaxed);
        self.usual_time.is_timed(u64::from(runs)).then(|| env.now())
    }

    /// Adds a run that began at `begun` to the usual time. Does nothing if the run was not timed.
    #[inline]
    fn end(&self, begun: Option<Time>, env: &dyn Env) {
        if let Some(begun) = begun {
            self.usual_time.ran(env.now().since(begun));
        }
    }

    /// Notes that the watchdog has found that a run takes long.
    pub(crate) fn overdue(&self) {
        self.usual_time.ran(Duration::MAX);
    }
}

/// A procedure that usually takes less than this is quick: the receiving thread runs it, and no other thread
/// receives meanwhile. To let another thread receive would cost about a tenth of this time.
const QUICK: Duration = Duration::from_micros(100);
