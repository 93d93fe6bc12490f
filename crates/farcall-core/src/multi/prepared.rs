//! The encoded arguments of a group call, and the settings that its caller chose.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farcall_base::MAX_UNCOUNTED_ARGUMENT_BYTES;

use crate::stub::{EncodeArguments, EncodedArguments, InterfaceId, Procedure, SendStream};
use crate::xdr::{self, Encoder};
use crate::{Never, Result, SharedArguments};

/// The settings of a group call.
pub(super) struct Settings<T, E> {
    /// How long the caller waits for replies.
    pub(super) within: Option<Duration>,
    /// What happens to calls that have not ended when the caller stops.
    pub(super) rest: Option<Rest>,
    /// Decides which replies count as successes. By default results count.
    pub(super) counts: Option<Counts<T, E>>,
    /// If set, members are called one after another, not all at once.
    pub(super) hedge: Option<Hedge>,
}

impl<T, E> Default for Settings<T, E> {
    #[inline]
    fn default() -> Self {
        Settings { within: None, rest: None, counts: None, hedge: None }
    }
}

/// Decides whether a reply counts as a success.
pub(super) type Counts<T, E> = Box<dyn Fn(&Result<T, E>) -> bool + Send>;

/// When a hedged call asks another member.
#[derive(Clone, Copy)]
pub(super) struct Hedge {
    /// How long after the call of one member the next member is called.
    pub(super) after: Duration,
    /// The greatest number of members that are called.
    pub(super) at_most: usize,
}

/// Encoded arguments. Long ones are shared by the calls of all members, which keep no copies.
pub(super) enum Encoded {
    Short(Vec<u8>),
    Shared(Arc<SharedArguments>),
}

impl Encoded {
    #[inline]
    fn new(arguments: Vec<u8>) -> Encoded {
        match arguments.len() > MAX_UNCOUNTED_ARGUMENT_BYTES {
            true => Encoded::Shared(SharedArguments::new(arguments)),
            false => Encoded::Short(arguments),
        }
    }

    #[inline]
    pub(super) fn get(&self) -> EncodedArguments<'_> {
        match self {
            Encoded::Short(bytes) => EncodedArguments { bytes, shared: None },
            Encoded::Shared(shared) => EncodedArguments::of(shared),
        }
    }
}

/// A call with its encoded arguments.
pub struct Prepared<T, E = Never> {
    pub(super) procedure: Cow<'static, Procedure>,
    pub(super) arguments: std::result::Result<Encoded, xdr::Error>,
    /// Sends the argument that is a stream, if there is one.
    pub(super) sending: Option<Arc<dyn SendStream>>,
    /// Whether the member is left out: it is not called.
    pub(super) omitted: bool,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<T, E> Prepared<T, E> {
    /// Encodes the arguments of a procedure.
    #[inline]
    pub fn new(procedure: &'static Procedure, encode: EncodeArguments<'_>) -> Self {
        Prepared::of(Cow::Borrowed(procedure), encode)
    }

    /// Encodes the arguments of a procedure that the program learnt of at run time.
    #[inline]
    pub fn of(procedure: Cow<'static, Procedure>, encode: EncodeArguments<'_>) -> Self {
        let mut arguments = Vec::new();
        let encoded = encode(&mut Encoder::new(&mut arguments));
        let arguments = encoded.map(|()| Encoded::new(arguments));
        Prepared { procedure, arguments, sending: None, omitted: false, reply: PhantomData }
    }

    /// Encodes the arguments of a procedure. One of them is a stream. Called by generated code.
    #[doc(hidden)]
    pub fn with_stream(
        procedure: &'static Procedure,
        encode: EncodeArguments<'_>,
        stream: Arc<dyn SendStream>,
    ) -> Self {
        Prepared { sending: Some(stream), ..Prepared::new(procedure, encode) }
    }

    /// Leaves a member out of a group call: the member is not called. Its outcome is
    /// [`Outcome::Abandoned`](super::Outcome::Abandoned), with [`Ran::No`](crate::Ran::No).
    ///
    /// ```
    /// # use farcall::multi::Prepared;
    /// # #[farcall::interface]
    /// # pub trait Files { fn store(&self, name: &str, content: farcall::Bulk) -> farcall::Result<u64>; }
    /// # fn send(group: &farcall::Group<FilesClient>, contents: Vec<Option<Vec<u8>>>) {
    /// let mut contents = contents.into_iter();
    /// let stored = group.multi_each(|_, _, files| match contents.next().flatten() {
    ///     Some(content) => files.store("a", farcall::Bulk::from_bytes(content)),
    ///     None => Prepared::omitted(),
    /// });
    /// println!("{:?}", stored.all());
    /// # }
    /// ```
    pub fn omitted() -> Self {
        static NOTHING: Procedure = Procedure {
            number: 0,
            name: "nothing",
            interface: InterfaceId::NONE,
            idempotent: false,
            blocking: false,
            uncancelled: false,
            exchanges: false,
            deadline: None,
        };
        Prepared { omitted: true, ..Prepared::new(&NOTHING, &|_| Ok(())) }
    }
}

/// What happens to the calls of members that have not replied when the caller stops waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The calls are cancelled: their servers are asked to stop.
    Cancel,
    /// The calls go on. Members that were not called yet are called now. The runtime retransmits each call
    /// until its server has it.
    Finish,
}
