//! Keeps a started call, so that it can be started again.

use std::sync::Arc;
use std::time::Duration;

use farcall_base::{MAX_UNCOUNTED_ARGUMENT_BYTES, SharedArguments};

use super::channel::{Call, PendingCall, Procedure};
use super::handlers::Handlers;
use crate::context::{self, context, outside};
use crate::xdr::Encoder;

/// Room for the arguments of most calls, in bytes, so that encoding them seldom moves them.
const USUAL_BYTES: usize = 128;

/// What is kept of a call.
pub(crate) struct KeptCall {
    pub(crate) procedure: Procedure,
    pub(crate) within: Option<Duration>,
    arguments: Arc<SharedArguments>,
    handlers: Handlers,
    carries: Vec<u32>,
    /// The call that the caller's thread serves, from which this one inherits.
    context: context::Context,
}

impl KeptCall {
    /// Returns a copy of a call; `None` if its arguments cannot be encoded, or if it sends a stream, whose
    /// items are sent once. The channel that carries the call shares long arguments with the copy, so they
    /// are kept once.
    pub(crate) fn of(call: &Call<'_>) -> Option<KeptCall> {
        if call.sending.is_some() {
            return None;
        }
        let arguments = match call.shared {
            Some(shared) => shared.clone(),
            None => {
                let mut arguments = Vec::with_capacity(USUAL_BYTES);
                (call.encode)(&mut Encoder::new(&mut arguments)).ok()?;
                SharedArguments::new(arguments)
            }
        };
        Some(KeptCall {
            procedure: *call.procedure,
            within: call.within,
            arguments,
            handlers: call.handlers.clone(),
            carries: call.carries.to_vec(),
            context: context(),
        })
    }

    /// Starts the call. `hurries` is that of [`Call`].
    pub(crate) fn start(
        &self,
        (within, hurries): (Option<Duration>, bool),
        start: impl FnOnce(Call<'_>) -> Box<dyn PendingCall>,
    ) -> Box<dyn PendingCall> {
        // The length of encoded arguments is a multiple of four, so `opaque` adds no padding to them.
        let encode = |e: &mut Encoder<'_>| e.opaque(self.arguments.bytes());
        let KeptCall { procedure, handlers, carries, .. } = self;
        let is_long = self.arguments.bytes().len() > MAX_UNCOUNTED_ARGUMENT_BYTES;
        let shared = is_long.then_some(&self.arguments);
        start(Call { procedure, within, encode: &encode, shared, handlers, sending: None, carries, hurries })
    }

    /// Starts the call again, on whatever thread polls it.
    pub(crate) fn start_again(
        &self,
        (within, hurries): (Option<Duration>, bool),
        start: impl FnOnce(Call<'_>) -> Box<dyn PendingCall>,
    ) -> Box<dyn PendingCall> {
        // The thread that polls the call may serve another one, or none.
        let _outside = outside();
        let _inherits = self.context.enter();
        self.start((within, hurries), start)
    }
}
