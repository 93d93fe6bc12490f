//! Makes a call through shared memory and waits for its outcome. The call takes one of the memory's slots,
//! small places for one call each; long arguments and results pass through rings.

use farcall_proto::client::Outcome;

use super::link::{Claim, Link, Scratch, give};
use super::long::Long;
use crate::CallFailed;
use crate::client::CallRequest;
use crate::stub::bad_arguments;
use crate::xdr::Encoder;

impl Link {
    /// Makes a call and waits. `sink` gets the outcome. Returns false if no slot is free. Returns an error if
    /// the call failed before anything was sent. In both cases `sink` gets nothing.
    pub(crate) fn call(
        &self,
        (export, request): (u64, &CallRequest<'_>),
        sink: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<bool, CallFailed> {
        self.check_process()?;
        crate::serving::may_wait()?;
        if self.is_distrusted() {
            return Ok(false);
        }
        let Some(claim) = Claim::new(&self.caller) else { return Ok(false) };
        let mut scratch = Scratch::take();
        let mut long = Long::new(self, request.bind_by());
        (request.call.encode)(&mut Encoder::with_spill(&mut scratch.bytes, &mut long))
            .map_err(bad_arguments)?;
        let sent = long
            .finish(&scratch.bytes)
            .and_then(|rest| self.send(claim, (export, request), rest, long.ring.as_mut()));
        let waiting = crate::serving::wait_guard();
        let ended = match sent {
            Ok(id) => match self.wait(id, request.deadline, request.hurry(), || self.caller.withdraw(id)) {
                Ok(()) => self
                    .receive(id, request.deadline, &mut scratch.bytes)
                    .map_err(|why| self.explain(why, request.deadline)),
                Err(stop) => Err(self.lose(id, stop)),
            },
            Err(failure) => Err(failure),
        };
        drop(waiting);
        drop(long);
        give(ended, &mut scratch.bytes, sink);
        scratch.keep();
        Ok(true)
    }
}
