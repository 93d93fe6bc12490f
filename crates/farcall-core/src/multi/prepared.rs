//! A call of members that is to be made: its encoded arguments, and how it is made.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::time::Duration;

use crate::stub::{EncodeArguments, Procedure};
use crate::xdr::{self, Encoder};
use crate::{Never, Result};

/// How a multiple call is made.
pub(super) struct Settings<T, E> {
    /// How long replies are waited for.
    pub(super) within: Option<Duration>,
    pub(super) rest: Option<Rest>,
    pub(super) counts: Option<Counts<T, E>>,
    pub(super) hedge: Option<Hedge>,
}

impl<T, E> Default for Settings<T, E> {
    #[inline]
    fn default() -> Self {
        Settings { within: None, rest: None, counts: None, hedge: None }
    }
}

pub(super) type Counts<T, E> = Box<dyn Fn(&Result<T, E>) -> bool + Send>;

/// Whom to call when nobody has answered.
#[derive(Clone, Copy)]
pub(super) struct Hedge {
    /// After how long another member is called.
    pub(super) after: Duration,
    /// How many are called at most.
    pub(super) at_most: usize,
}

/// A call with its arguments, encoded.
pub struct Prepared<T, E = Never> {
    pub(super) procedure: Cow<'static, Procedure>,
    pub(super) arguments: std::result::Result<Vec<u8>, xdr::Error>,
    reply: PhantomData<fn() -> (T, E)>,
}

impl<T, E> Prepared<T, E> {
    /// Encodes the arguments.
    #[inline]
    pub fn new(procedure: &'static Procedure, encode: EncodeArguments<'_>) -> Self {
        Prepared::of(Cow::Borrowed(procedure), encode)
    }

    /// Encodes the arguments of a procedure that became known at run time.
    #[inline]
    pub fn of(procedure: Cow<'static, Procedure>, encode: EncodeArguments<'_>) -> Self {
        let mut arguments = Vec::new();
        let encoded = encode(&mut Encoder::new(&mut arguments));
        Prepared { procedure, arguments: encoded.map(|()| arguments), reply: PhantomData }
    }
}

/// What becomes of the calls of members that had not answered when the caller stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Their servers are asked to stop.
    Cancel,
    /// They go on, and those that had not been called yet are called now: the runtime sees to it that each server has
    /// its call.
    Finish,
}
