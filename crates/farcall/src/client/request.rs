//! A call that is to be made.

use farcall_proto::client::Call;
use farcall_proto::{Time, Trace};

use crate::stub::{EncodeArguments, Procedure};

/// A call that is to be made, with what it needs to be repeated. It may be made of one export after another.
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

impl CallRequest<'_> {
    /// The call of this export, as the conversation takes it.
    #[inline]
    pub(super) fn of(&self, export: u64, token: u64) -> Call {
        let CallRequest { procedure, deadline, trace, .. } = *self;
        Call { export, procedure: procedure.number, deadline, trace, token }
    }
}
