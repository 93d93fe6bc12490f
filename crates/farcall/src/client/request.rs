//! Describes a call before it is sent.

use farcall_proto::client::Call;
use farcall_proto::{Time, Trace};

use crate::stub;

/// A call to be made. It can be repeated, at the same export or at another one.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    /// What the caller's stub wants to call. Its `within` is part of `deadline` already.
    pub(crate) call: &'a stub::Call<'a>,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Option<Time>,
    pub(crate) trace: Option<Trace>,
}

impl CallRequest<'_> {
    /// Returns the protocol's form of this call, to this export.
    #[inline]
    pub(super) fn of(&self, export: u64, token: u64) -> Call {
        let CallRequest { call, deadline, trace } = *self;
        Call { export, procedure: call.procedure.number, deadline, trace, token }
    }
}
