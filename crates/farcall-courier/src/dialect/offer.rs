//! A program that a server offers, and how its calls are answered. Without sockets and threads.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall::stub::{self, Dispatched, Interface};
use farcall::xdr::{Decoder, Encoder};
use farcall::{context, guard};

use super::message::{MAX_DATA_BYTES, REPLY_HEADER_BYTES, reply_header};
use super::program::{Program, Refusal};
use crate::codec::Limits;
use crate::server::programs::{Direct, Service};

/// An interface that a server offers, with its implementation.
pub(crate) struct Offer {
    program: Program,
    service: Box<dyn Service>,
}

/// Buffers of one thread that serves.
#[derive(Default)]
pub(crate) struct Buffers {
    arguments: Vec<u8>,
    result: Vec<u8>,
    /// The message of the reply.
    pub(crate) reply: Vec<u8>,
}

/// The memory that a buffer keeps for the next call.
const KEPT_BYTES: usize = 64 << 10;

/// What the server does after a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It sends the reply.
    Reply,
    /// The call has ended well, and has no reply.
    Silence,
    /// The call did not run, or failed. There is no message by which to say so.
    Failed(Failure),
}

/// A call that has failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) why: String,
    /// Whether a caller waits for the reply, or what follows the call may be out of step.
    pub(crate) is_fatal: bool,
}

impl Offer {
    /// # Errors
    /// Cooper's dialect cannot say the interface.
    pub(crate) fn new<T: ?Sized + Interface>(server: Arc<T>) -> Result<Offer, Refusal> {
        Ok(Offer { program: Program::new(T::interface())?, service: Box::new(Direct(server)) })
    }

    /// Returns the name of the interface.
    pub(crate) fn name(&self) -> &str {
        &self.program.name
    }

    /// Runs a procedure in this thread. If the call has a reply, leaves its message in `buffers.reply`.
    pub(crate) fn answer(
        &self,
        number: u16,
        words: &[u8],
        from: Option<SocketAddr>,
        buffers: &mut Buffers,
    ) -> Verdict {
        let Buffers { arguments, result, reply } = buffers;
        for buffer in [&mut *arguments, &mut *result, &mut *reply] {
            buffer.clear();
            buffer.shrink_to(KEPT_BYTES);
        }
        let name = &self.program.name;
        let fatal = |why: String| Verdict::Failed(Failure { why, is_fatal: true });
        let layout = &self.program.layout;
        let Some(procedure) = layout.procedure(number) else {
            return fatal(format!("{name} has no procedure {number}"));
        };
        let about = |why: &dyn fmt::Display| format!("{name}.{}: {why}", procedure.name());
        let limits = Limits { bytes: 2 * MAX_DATA_BYTES, ..Limits::default() };
        if let Err(why) = layout.to_xdr(procedure.arguments(), words, arguments, limits) {
            return fatal(about(&why));
        }
        let dispatched = {
            let _serving = from.map(context::enter_elsewhere);
            let mut decoder = Decoder::new(arguments);
            let mut encoder = Encoder::new(result);
            stub::catch(|| self.service.dispatch(number.into(), &mut decoder, &mut encoder))
        };
        let has_reply = self.program.replies.has(number);
        if !matches!(dispatched, Dispatched::Result) {
            let is_fatal = has_reply || matches!(dispatched, Dispatched::BadArguments(_));
            let mut why = String::new();
            // The error may have a cause of the user's type, whose text and drop can panic.
            guard::run_alone("the text of an error", || {
                why = dispatched
                    .failure()
                    .map_or_else(|| "it raised an exception".into(), |why| why.to_string());
            });
            return Verdict::Failed(Failure { why: about(&why), is_fatal });
        }
        if !has_reply {
            return Verdict::Silence;
        }
        reply.extend([0; REPLY_HEADER_BYTES]);
        let limits = Limits { bytes: MAX_DATA_BYTES, ..Limits::default() };
        if let Err(why) = layout.to_words(procedure.result(), result, reply, limits) {
            return fatal(about(&why));
        }
        let header = reply_header(reply.len() - REPLY_HEADER_BYTES);
        reply[..REPLY_HEADER_BYTES].copy_from_slice(&header);
        Verdict::Reply
    }
}
