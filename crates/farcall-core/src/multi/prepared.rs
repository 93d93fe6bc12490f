//! The encoded arguments of a group call, and the settings that its caller chose.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use crate::stub::{EncodeArguments, Procedure};
use crate::xdr::{self, Encoder};
use crate::{Never, Result};

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

/// A call with its encoded arguments.
pub struct Prepared<T, E = Never> {
    pub(super) procedure: Cow<'static, Procedure>,
    pub(super) arguments: std::result::Result<Vec<u8>, xdr::Error>,
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
        Prepared { procedure, arguments: encoded.map(|()| arguments), reply: PhantomData }
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
