//! The stubs' channel to a program at a server.

use std::sync::Arc;

use farcall::env::Env;
use farcall::stub::{Binding, Call, Channel, PendingCall, Reply, Sink};
use farcall::wait::{Parking, WaitPoint};
use farcall::xdr::Decoder;
use farcall::{CallFailed, ServerArguments, serving};

use super::buffers::{self, Buffers};
use super::line::{Line, NoTurn};
use super::outcome::Outcome;
use super::started::StartedCall;
use super::target::{CalledAt, Carrier, Program, Target, waits_for_itself};
use crate::bulk;

/// A program at a server, whose procedures a stub calls.
struct Bound<C: Carrier>(Arc<Target<C>>);

/// Returns a binding by which a program is called. `first` is the first connection.
pub(crate) fn bind<C: Carrier>(carrier: C, program: Program, first: C::Connection) -> Binding {
    let line = Line::new(carrier.env().clone(), first);
    let arguments = ServerArguments::new(carrier.arguments());
    Binding::new(Arc::new(Bound(Arc::new(Target { carrier, program, line, arguments }))))
}

impl<C: Carrier> Bound<C> {
    /// Makes a call in this thread, when it has its turn at the connection.
    fn call_in_turn(&self, call: &Call<'_>, buffers: &mut Buffers) -> Result<Outcome, CallFailed> {
        let target = &self.0;
        let transfer = target.encode(call, buffers)?;
        let mut bulk = bulk::caller::take_for(transfer)?;
        let deadline = target.deadline(call);
        let _waiting = serving::try_wait_guard()?;
        let mut turn = match target.line.take(deadline.until) {
            Ok(turn) => turn,
            Err(NoTurn::Late) => return Ok(Outcome::Failed(target.late(call.procedure, deadline))),
            Err(NoTurn::Own) => return Err(waits_for_itself()),
        };
        let Buffers { xdr, words } = buffers;
        Ok(target.run((call.procedure, words), deadline, &mut turn.connection, None, bulk.as_mut(), xdr))
    }
}

impl<C: Carrier> Channel for Bound<C> {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        buffers::with(|buffers| {
            let outcome = self.call_in_turn(&call, buffers);
            let origin = CalledAt { target: &self.0, procedure: call.procedure };
            sink(match outcome {
                Ok(Outcome::Result) => Reply::ResultOf(Decoder::new(&buffers.xdr), &origin),
                Ok(Outcome::Exception) => Reply::Exception(Decoder::new(&buffers.xdr)),
                Ok(Outcome::Failed(why)) => Reply::Failed(why),
                Err(why) => Reply::Failed(self.0.about(why, call.procedure)),
            });
        });
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let target = &self.0;
        let started = buffers::with(|buffers| {
            let transfer = target.encode(&call, buffers).and_then(bulk::caller::check_none);
            transfer.map_err(|why| target.about(why, call.procedure))?;
            let deadline = target.deadline(&call);
            StartedCall::start(target, *call.procedure, &buffers.words, deadline)
        });
        match started {
            Ok(started) => Box::new(started),
            Err(why) => Box::new(why),
        }
    }

    fn env(&self) -> Arc<dyn Env> {
        self.0.env().clone()
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        Arc::new(Parking::new(self.0.env().clone()))
    }
}

impl<C: Carrier> Drop for Bound<C> {
    fn drop(&mut self) {
        self.0.line.close();
    }
}
