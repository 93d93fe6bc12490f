//! What a user-stub holds: a channel, and the settings of its import.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::channel::{Call, Channel, EncodeArguments, PendingCall, Procedure, Reply, decode_reply, no_reply};
use super::pending::Pending;
use crate::Result;
use crate::wait::{ReadyList, WaitPoint};
use crate::xdr::{Decode, Encoder};

/// What a user-stub holds: a channel, and the settings of this import. Clones share the channel.
#[derive(Clone)]
pub struct Binding {
    channel: Arc<dyn Channel>,
    within: Option<Duration>,
}

impl Binding {
    /// A binding over `channel`, without a deadline.
    pub fn new(channel: Arc<dyn Channel>) -> Binding {
        Binding { channel, within: None }
    }

    /// The same binding with a deadline on each call. The procedure's own counts too: the earliest wins.
    #[must_use]
    pub fn within(&self, deadline: Duration) -> Binding {
        Binding { channel: self.channel.clone(), within: Some(deadline) }
    }

    /// What carries the calls.
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// Calls, and blocks until the call has ended. In line, where the procedure is known.
    #[inline(always)]
    pub fn call<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        encode: EncodeArguments<'_>,
    ) -> Result<T, E> {
        let mut outcome = None;
        self.channel.call(self.prepare(procedure, encode), &mut |reply| outcome = Some(decode_reply(reply)));
        outcome.unwrap_or_else(|| Err(no_reply().into()))
    }

    /// Starts a call.
    pub fn start<T, E>(&self, procedure: &Procedure, encode: EncodeArguments<'_>) -> Pending<T, E> {
        Pending::new(self.channel.start(self.prepare(procedure, encode)))
    }

    /// As [`Binding::call`], with encoded arguments: briefly where it can be.
    #[inline(always)]
    pub fn call_encoded<T: for<'a> Decode<'a>, E: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
    ) -> Result<T, E> {
        // Encoded arguments are a multiple of four bytes: opaque data of that length is just them.
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let call = self.prepare(procedure, &encode);
        let mut outcome = None;
        let sink = &mut |reply: Reply<'_>| outcome = Some(decode_reply(reply));
        if call.within.is_some() || !self.channel.call_briefly(procedure, arguments, &mut |_| false, sink) {
            self.channel.call(call, sink);
        }
        outcome.unwrap_or_else(|| Err(no_reply().into()))
    }

    /// Starts a call with encoded arguments, for a thread that gathers the ends of several at `wait_point`.
    pub fn gather(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        self.channel.start_at(self.prepare(procedure, &encode), wait_point, ready, member)
    }

    /// Starts a call with encoded arguments and perhaps one more deadline.
    pub fn start_encoded(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        within: Option<Duration>,
    ) -> Box<dyn PendingCall> {
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let mut call = self.prepare(procedure, &encode);
        call.within = [call.within, within].into_iter().flatten().min();
        self.channel.start(call)
    }

    #[inline]
    fn prepare<'a>(&self, procedure: &'a Procedure, encode: EncodeArguments<'a>) -> Call<'a> {
        let within = match (procedure.deadline, self.within) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Call { procedure, within, encode }
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("within", &self.within).finish_non_exhaustive()
    }
}
