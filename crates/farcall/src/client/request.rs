//! A call that is to be made.

use farcall_proto::client::Call;
use farcall_proto::{Time, Trace};

use crate::stub::{EncodeArguments, Procedure};

/// A call that is to be made, with what it needs to be repeated.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    pub(crate) procedure: &'a Procedure,
    /// When its caller waits no longer.
    pub(crate) deadline: Option<Time>,
    /// Its trace.
    pub(crate) trace: Option<Trace>,
    /// Writes the arguments.
    pub(crate) encode: EncodeArguments<'a>,
}

/// A call that is to be made of this export.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    /// As it was bound.
    pub(crate) export: u64,
    pub(crate) request: &'a CallRequest<'a>,
}

impl Outgoing<'_> {
    /// As the conversation takes it.
    #[inline]
    pub(super) fn call(&self, token: u64) -> Call {
        let CallRequest { procedure, deadline, trace, .. } = *self.request;
        Call { export: self.export, procedure: procedure.number, deadline, trace, token }
    }
}
