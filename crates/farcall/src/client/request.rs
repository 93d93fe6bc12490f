//! Describes a call before it is sent.

use std::sync::Arc;

use farcall_proto::client::Call;
use farcall_proto::{Time, Trace};

use crate::stub::{EncodeArguments, Procedure};
use crate::stub::{Handlers, SendStream};

/// A call to be made. It can be repeated at the same export or at others.
#[derive(Clone, Copy)]
pub(crate) struct CallRequest<'a> {
    pub(crate) procedure: &'a Procedure,
    /// The time at which the caller stops waiting.
    pub(crate) deadline: Option<Time>,
    pub(crate) trace: Option<Trace>,
    /// The function that writes the arguments.
    pub(crate) encode: EncodeArguments<'a>,
    /// Answers the signals that are raised in the call.
    pub(crate) handlers: &'a Handlers,
    /// Sends the argument that is a stream, if there is one.
    pub(crate) sending: Option<&'a Arc<dyn SendStream>>,
}

impl CallRequest<'_> {
    /// Returns the protocol's form of this call, to this export.
    #[inline]
    pub(super) fn of(&self, export: u64, token: u64) -> Call {
        let CallRequest { procedure, deadline, trace, .. } = *self;
        Call { export, procedure: procedure.number, deadline, trace, token }
    }
}
