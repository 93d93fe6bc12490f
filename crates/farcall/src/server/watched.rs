//! Runs the user's interceptors around the executor of an export. Without interceptors the executor stays as
//! it is.

use std::sync::Arc;

use super::executor::{Dispatch, Executor, Spawn, Task};
use crate::env::{Env, Time};
use crate::intercept::{Call, Interceptors, Outcome};
use crate::stub::{AsyncDispatched, Dispatched, Procedure, before_the_procedure, catch};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Ran, context};

/// The interceptors of one export, with the facts about the export that they are told at each call.
#[derive(Clone)]
struct Watch {
    interceptors: Interceptors,
    interface: &'static str,
    procedures: &'static [Procedure],
    env: Arc<dyn Env>,
}

/// Puts the interceptors around an executor. Returns the executor itself if there are no interceptors.
pub(crate) fn watched(
    interceptors: &Interceptors,
    interface: &'static str,
    procedures: &'static [Procedure],
    env: &Arc<dyn Env>,
    executor: Executor,
) -> Executor {
    if interceptors.is_empty() {
        return executor;
    }
    let watch = Watch { interceptors: interceptors.clone(), interface, procedures, env: env.clone() };
    match executor {
        Executor::Here(dispatch) => Executor::Here(Box::new(Watched(watch, dispatch))),
        Executor::Elsewhere(spawn) => Executor::Elsewhere(Box::new(Watched(watch, spawn))),
        Executor::Gone => Executor::Gone,
    }
}

struct Watched<T>(Watch, T);

impl Watch {
    fn call(&self, procedure: u32) -> Call<'static> {
        let known = self.procedures.iter().find(|known| known.number == procedure);
        let context = context::context();
        Call::new(self.interface, known.map_or("", |known| known.name), context.caller(), context.trace())
    }

    fn before(&self, call: &Call<'_>) -> Result<Time, CallFailed> {
        before_the_procedure(|| self.interceptors.before(call))?;
        Ok(self.env.now())
    }

    fn after(&self, call: &Call<'_>, since: Time, dispatched: Dispatched) -> Dispatched {
        let time = self.env.now().since(since);
        let dispatched = match dispatched {
            Dispatched::Result | Dispatched::Exception => dispatched,
            // `failure` returns `None` only for the outcomes that are matched above.
            other => other.failure().map_or(Dispatched::NoSuchProcedure, Dispatched::Failed),
        };
        let outcome = match &dispatched {
            Dispatched::Failed(why) => Outcome::Failed(why),
            Dispatched::Exception => Outcome::Exception,
            _ => Outcome::Result,
        };
        self.interceptors.after(call, outcome, time);
        dispatched
    }
}

impl Dispatch for Watched<Box<dyn Dispatch>> {
    fn dispatch(&self, procedure: u32, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Dispatched {
        let Watched(watch, server) = self;
        let call = watch.call(procedure);
        let since = match watch.before(&call) {
            Ok(since) => since,
            Err(why) => return Dispatched::Failed(why),
        };
        watch.after(&call, since, catch(|| server.dispatch(procedure, arguments, reply)))
    }
}

impl Spawn for Watched<Box<dyn Spawn>> {
    fn begin(&self, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched {
        let Watched(watch, server) = self;
        let (watch, future) = (watch.clone(), server.begin(procedure, arguments));
        Box::pin(async move {
            let call = watch.call(procedure);
            let since = match watch.before(&call) {
                Ok(since) => since,
                Err(why) => return (Dispatched::Failed(why), Vec::new()),
            };
            let mut unended = Unended(Some((&watch, &call, since)));
            let (dispatched, reply) = future.await;
            unended.0 = None;
            (watch.after(&call, since, dispatched), reply)
        })
    }

    fn spawn(&self, task: Task) {
        self.1.spawn(task);
    }
}

/// A call whose future has not ended. Dropping it tells the interceptors that the call was given up.
struct Unended<'w, 'c>(Option<(&'w Watch, &'c Call<'c>, Time)>);

impl Drop for Unended<'_, '_> {
    fn drop(&mut self) {
        if let Some((watch, call, since)) = self.0.take() {
            watch.after(call, since, Dispatched::Failed(CallFailed::new(Kind::Cancelled, Ran::Maybe)));
        }
    }
}
