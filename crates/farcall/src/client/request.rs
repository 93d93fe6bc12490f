//! Describes a call before it is sent.

use std::time::Duration;

use farcall_proto::client::{Call, Margin};
use farcall_proto::{Time, Trace};

use crate::stub;

/// A call to be made. It can be repeated, at the same export or at another one.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    /// What the caller's stub wants to call. Its `within` is part of `deadline` already.
    pub(crate) call: &'a stub::Call<'a>,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Option<Time>,
    /// When the call must have begun if its caller wants to try another server in the rest of the time.
    pub(crate) begin_by: Option<Time>,
    pub(crate) trace: Option<Trace>,
}

/// When a call must have begun, so that its caller can try another server in the rest of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hurry {
    pub(crate) by: Time,
    /// A server that has not answered a probe for so long counts as silent.
    pub(crate) silence: Duration,
    /// Whether another server may execute the call although this one may have begun.
    pub(crate) may_run_twice: bool,
}

impl CallRequest<'_> {
    /// Returns the protocol's form of this call, to this export.
    #[inline]
    pub(super) fn of(&self, export: u64, token: u64) -> Call {
        let CallRequest { call, deadline, trace, .. } = *self;
        Call { export, procedure: call.procedure.number, deadline, trace, token }
    }

    /// Returns how long before its deadline the call must have begun, if it is to.
    #[inline]
    pub(super) fn margin(&self) -> Option<Margin> {
        let (begin_by, deadline) = (self.begin_by?, self.deadline?);
        Some(Margin::new(deadline.since(begin_by), self.call.procedure.idempotent))
    }

    /// Returns when a call through shared memory must have begun, if it is to.
    #[inline]
    pub(crate) fn hurry(&self) -> Option<Hurry> {
        let (deadline, by) = self.deadline.zip(self.begin_by)?;
        let silence = deadline.since(by) / 2;
        Some(Hurry { by, silence, may_run_twice: self.call.procedure.idempotent })
    }

    /// Returns until when to wait for a server that executes the call.
    pub(crate) fn bind_by(&self) -> Option<Time> {
        self.begin_by.or(self.deadline)
    }
}
