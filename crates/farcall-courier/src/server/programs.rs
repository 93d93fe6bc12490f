//! The programs that a server offers, and how it answers a message. Without sockets and threads.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall::stub::{self, Dispatched, Interface, Program};
use farcall::xdr::{Decoder, Encoder};
use farcall::{context, guard, room};

use crate::codec::{self, Layout, Limits, Procedure, Refusal, Transfer};
use crate::wire::message::{
    Call, Courier, Malformed, Message, Rejection, UNSPECIFIED, USE_A_STREAM, Versions,
};

/// All programs of a server.
#[derive(Default)]
pub(crate) struct Programs {
    offers: Vec<Offer>,
    /// The limits of the XDR bytes of arguments.
    pub(crate) xdr: Limits,
    /// The limits of the words of results.
    pub(crate) words: Limits,
    /// Whether replies are packets, so that a caller whose result is too long is told to use a stream.
    pub(crate) in_packets: bool,
}

/// An interface that a server offers, with its implementation.
pub(crate) struct Offer {
    program: u32,
    version: u16,
    layout: Layout,
    service: Box<dyn Service>,
}

/// The implementation of a program.
pub(crate) trait Service: Send + Sync {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched;
}

/// An implementation of the interface `T`, called through its server-stub.
pub(crate) struct Direct<T: ?Sized>(pub(crate) Arc<T>);

impl<T: ?Sized + Interface> Service for Direct<T> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        self.0.dispatch(procedure, arguments, reply)
    }
}

/// Why an interface cannot be offered.
#[derive(Debug)]
pub(crate) enum NotOffered {
    Refused(Refusal),
    /// The version's number has more than 16 bits.
    Version(&'static str, u32),
}

impl Offer {
    pub(crate) fn new<T: ?Sized + Program>(server: Arc<T>) -> Result<Offer, NotOffered> {
        let version = u16::try_from(T::VERSION).map_err(|_| NotOffered::Version(T::NAME, T::VERSION))?;
        let layout = Layout::new(T::interface()).map_err(NotOffered::Refused)?;
        Ok(Offer { program: T::PROGRAM, version, layout, service: Box::new(Direct(server)) })
    }
}

impl Offer {
    /// Returns whether the callers of a procedure understand [`USE_A_STREAM`]: its error is declared as the
    /// Clearinghouse declares it, or no error with its number is declared.
    fn can_ask_for_stream(&self, procedure: &Procedure, buffer: &mut Vec<u8>) -> bool {
        let [a, b, ..] = USE_A_STREAM;
        let declared = self.layout.error_name(procedure, u16::from_be_bytes([a, b]));
        let (Some(name), Some(errors)) = (declared, procedure.errors()) else { return true };
        buffer.clear();
        let is_call_error = name.replace('_', "").eq_ignore_ascii_case("callerror");
        is_call_error && self.layout.to_xdr(errors, &USE_A_STREAM, buffer, Limits::default()).is_ok()
    }
}

impl std::fmt::Display for NotOffered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotOffered::Refused(why) => why.fmt(f),
            NotOffered::Version(name, version) => {
                write!(f, "version {version} of {name}: versions have 16 bits in Courier")
            }
        }
    }
}

impl std::error::Error for NotOffered {}

/// Buffers of one connection.
#[derive(Default)]
pub(crate) struct Buffers {
    arguments: Vec<u8>,
    result: Vec<u8>,
    /// The message of the reply.
    pub(crate) reply: Vec<u8>,
}

/// The memory that a buffer keeps for the next call.
const KEPT_BYTES: usize = 64 << 10;

impl Buffers {
    /// Frees what a long message took.
    pub(super) fn clear(&mut self) {
        for buffer in [&mut self.arguments, &mut self.result, &mut self.reply] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES);
        }
    }
}

/// What the server does with a message.
pub(crate) enum Verdict<'a> {
    /// It runs a procedure.
    Run(Admitted<'a>),
    /// It sends the reply.
    Reply,
    /// It sends the reply, and ends the connection.
    ReplyAndEnd,
    /// It ends the connection.
    End,
}

/// A call whose procedure is to run. Its arguments are in the buffers.
pub(crate) struct Admitted<'a> {
    id: u16,
    courier: Courier,
    offer: &'a Offer,
    procedure: &'a Procedure,
    /// What the arguments say of bulk data.
    pub(super) transfer: Transfer,
}

/// How a call was answered.
enum Answer {
    /// The words of the result.
    Return,
    /// The words of the error.
    Abort,
    Reject(Rejection),
}

impl Programs {
    /// Adds an offer. It replaces an earlier one with the same program and version number.
    pub(crate) fn add(&mut self, offer: Offer) {
        self.offers.retain(|former| (former.program, former.version) != (offer.program, offer.version));
        self.offers.push(offer);
    }

    /// Returns the program and version numbers of all offers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (u32, u16)> {
        self.offers.iter().map(|offer| (offer.program, offer.version))
    }

    /// Examines a message. Writes the reply if it can be answered without running a procedure.
    pub(crate) fn examine(&self, message: &[u8], courier: Courier, buffers: &mut Buffers) -> Verdict<'_> {
        buffers.clear();
        match Message::parse(message, courier) {
            Ok(Message::Call(call)) => match self.admit(&call, courier, buffers) {
                Ok(admitted) => Verdict::Run(admitted),
                Err(rejection) => {
                    reply(call.id, courier, Answer::Reject(rejection), buffers);
                    Verdict::Reply
                }
            },
            Err(Malformed::Truncated { call: Some(id) }) => {
                // What follows may be out of step, so the connection ends.
                reply(id, courier, Answer::Reject(Rejection::Unspecified(UNSPECIFIED)), buffers);
                Verdict::ReplyAndEnd
            }
            Ok(_) | Err(_) => Verdict::End,
        }
    }

    /// Admits a call whose procedure exists and whose arguments are the procedure's.
    fn admit(
        &self,
        call: &Call<'_>,
        courier: Courier,
        buffers: &mut Buffers,
    ) -> Result<Admitted<'_>, Rejection> {
        let (offer, procedure) = self.find(call)?;
        let arguments = procedure.arguments();
        let decoded = offer.layout.to_xdr(arguments, call.arguments, &mut buffers.arguments, self.xdr);
        decoded.map_err(|why| match why.kind() {
            codec::ErrorKind::NoMemory(_) => Rejection::Unspecified(UNSPECIFIED),
            _ => Rejection::InvalidArguments,
        })?;
        let transfer = offer.layout.transfer(procedure, call.arguments);
        Ok(Admitted { id: call.id, courier, offer, procedure, transfer })
    }

    /// Finds the offer and the procedure that a call names.
    fn find(&self, call: &Call<'_>) -> Result<(&Offer, &Procedure), Rejection> {
        let wanted = |offer: &&Offer| offer.program == call.program && offer.version == call.version;
        let Some(offer) = self.offers.iter().find(wanted) else { return Err(self.mismatch(call.program)) };
        let procedure = offer.layout.procedure(call.procedure).ok_or(Rejection::NoSuchProcedure)?;
        Ok((offer, procedure))
    }

    /// Returns the rejection of a call whose program, or whose version of a program, is not offered.
    #[cold]
    fn mismatch(&self, program: u32) -> Rejection {
        let versions =
            || self.offers.iter().filter(|offer| offer.program == program).map(|offer| offer.version);
        match (versions().min(), versions().max()) {
            (Some(lowest), Some(highest)) => Rejection::NoSuchVersion(Some(Versions { lowest, highest })),
            _ => Rejection::NoSuchProgram,
        }
    }

    /// Runs the procedure of a call, and writes the reply.
    pub(crate) fn run(&self, admitted: Admitted<'_>, from: Option<SocketAddr>, buffers: &mut Buffers) {
        let Admitted { id, courier, offer, procedure, .. } = admitted;
        let answer = self.dispatch(offer, procedure, from, buffers);
        reply(id, courier, answer, buffers);
    }

    /// Runs a procedure. The words of its result or error are in `buffers.arguments` afterwards.
    fn dispatch(
        &self,
        offer: &Offer,
        procedure: &Procedure,
        from: Option<SocketAddr>,
        buffers: &mut Buffers,
    ) -> Answer {
        let Buffers { arguments, result, .. } = buffers;
        let number = procedure.number().into();
        let dispatched = {
            let _serving = from.map(context::enter_elsewhere);
            let mut decoder = Decoder::new(arguments);
            let mut encoder = Encoder::new(result);
            stub::catch(|| offer.service.dispatch(number, &mut decoder, &mut encoder))
        };
        let (values, answer) = match &dispatched {
            Dispatched::Result => (Some(procedure.result()), Answer::Return),
            Dispatched::Exception => (procedure.errors(), Answer::Abort),
            other => {
                let rejection = rejection(other);
                // The error may have a cause of the user's type, whose drop can panic.
                guard::run_alone("the drop of an error", || drop(dispatched));
                return Answer::Reject(rejection);
            }
        };
        arguments.clear();
        // A result that Courier cannot say, such as a string of 70,000 bytes.
        let unspecified = Answer::Reject(Rejection::Unspecified(UNSPECIFIED));
        let Some(values) = values else { return unspecified };
        match offer.layout.to_words(values, result, arguments, self.words) {
            Ok(()) => answer,
            Err(why) if self.in_packets && matches!(why.kind(), codec::ErrorKind::TooLarge { .. }) => {
                arguments.clear();
                match offer.can_ask_for_stream(procedure, result) {
                    true => {
                        arguments.extend(USE_A_STREAM);
                        Answer::Abort
                    }
                    false => unspecified,
                }
            }
            Err(codec::Error { .. }) => unspecified,
        }
    }
}

/// Returns the rejection of a call that has failed.
#[cold]
fn rejection(dispatched: &Dispatched) -> Rejection {
    match dispatched {
        Dispatched::BadArguments(_) => Rejection::InvalidArguments,
        Dispatched::NoSuchProcedure => Rejection::NoSuchProcedure,
        _ => Rejection::Unspecified(UNSPECIFIED),
    }
}

/// Writes the message of a reply.
fn reply(id: u16, courier: Courier, answer: Answer, buffers: &mut Buffers) {
    /// More than the bytes of a reply in front of its words.
    const HEAD_BYTES: usize = 64;
    let Buffers { arguments: words, reply, .. } = buffers;
    let answer = match room::reserve(reply, HEAD_BYTES + words.len()) {
        Ok(()) => answer,
        Err(_) => Answer::Reject(Rejection::Unspecified(UNSPECIFIED)),
    };
    let message = match answer {
        Answer::Return => Message::Return(id, words),
        Answer::Abort => Message::Abort(id, words),
        Answer::Reject(rejection) => Message::Reject(id, rejection),
    };
    message.write(courier, reply);
}
