//! A call under way without a thread: its outcome, and whoever asks for it.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use farcall_proto::client::{Call, CallId, Outcome};

use super::call::{Outgoing, Refused};
use super::owners::{Owner, Watcher};
use super::service::Service;
use super::waiter::{Caller, Kept, Tools};
use super::{Endpoint, Peer};
use crate::stub::bad_arguments;
use crate::xdr::Encoder;
use crate::{CallFailed, Ran};

/// A call that was started. Whoever has it knows by which endpoint, and which peer it is made to.
#[derive(Clone)]
pub(crate) struct Started {
    id: CallId,
    token: u64,
    landing: Arc<Landing>,
}

/// Where the outcome of a call that was started comes to.
#[derive(Default)]
pub(super) struct Landing {
    landed: OnceLock<Landed>,
}

struct Landed {
    outcome: Kept,
    /// The encoded arguments of a call that failed, perhaps to be made again.
    arguments: Vec<u8>,
}

/// Takes an outcome and, with a failure that may be repaired, the encoded arguments.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(Outcome<'_>, &[u8]);

impl Landing {
    /// The outcome has come.
    pub(super) fn end(&self, outcome: Outcome<'_>, arguments: &mut Vec<u8>) {
        let arguments = match &outcome {
            Outcome::Failed(_) => std::mem::take(arguments),
            _ => Vec::new(),
        };
        let landed = self.landed.set(Landed { outcome: Kept::new(outcome), arguments });
        debug_assert!(landed.is_ok(), "a call ends once");
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.landed.get().is_some()
    }
}

impl Started {
    /// Starts a call. Never blocks.
    ///
    /// # Errors
    /// What is known at once; nothing was sent.
    pub(crate) fn start(
        endpoint: &Arc<Endpoint>,
        peer: &Arc<Peer>,
        outgoing: &Outgoing<'_>,
    ) -> Result<Started, CallFailed> {
        endpoint.check_process()?;
        let service = endpoint.service()?;
        let mut caller = Caller::take(&endpoint.env);
        let begun = endpoint.begin_started(peer, outgoing, &mut caller.tools);
        caller.keep();
        let started = begun.map_err(|refused| match refused {
            Refused::Arguments(why) => why,
            Refused::Call(failure) => failure.into(),
        })?;
        service.engage();
        Ok(started)
    }

    /// Blocks until the outcome has come.
    pub(crate) fn wait(&self, endpoint: &Endpoint, peer: &Peer, taker: Taker<'_>) -> Result<(), CallFailed> {
        if !self.landing.is_over() {
            self.wait_for_it(endpoint, peer)?;
        }
        self.fetch(taker);
        Ok(())
    }

    #[inline(never)]
    fn wait_for_it(&self, endpoint: &Endpoint, peer: &Peer) -> Result<(), CallFailed> {
        endpoint.check_process()?;
        let mut caller = Caller::take_to_wait(&endpoint.env).map_err(|why| why.but_ran(Ran::Maybe))?;
        let Caller { waiter, tools, .. } = &mut *caller;
        let mut attendance = endpoint.attend(waiter);
        if !attendance.leads() {
            let former = peer.lock().owners.watch(self.token, Watcher::Thread(waiter.clone()));
            drop(former);
        }
        attendance.until(tools, endpoint.env.now(), None, None, &|| self.landing.is_over());
        drop(attendance);
        caller.keep();
        Ok(())
    }

    /// The outcome if it has come; else `context` is woken when it does.
    pub(crate) fn poll(&self, peer: &Peer, context: &mut Context<'_>, taker: Taker<'_>) -> Poll<()> {
        if !self.landing.is_over() {
            // To drop a waker may drop a task, and cancel what that had started: not under the lock.
            let watched = peer.lock().owners.watch(self.token, Watcher::Task(context.waker().clone()));
            if watched.is_ok() {
                return Poll::Pending;
            }
        }
        self.fetch(taker);
        Poll::Ready(())
    }

    /// Asks the server to give the call up.
    pub(crate) fn cancel(&self, endpoint: &Endpoint, peer: &Peer) {
        if self.landing.is_over() || endpoint.check_process().is_err() {
            return;
        }
        let mut caller = Caller::take(&endpoint.env);
        let now = endpoint.env.now();
        peer.lock().conversation.cancel(now, self.id);
        let timer = endpoint.flush(now, peer, &mut caller.tools.out);
        endpoint.set_timer(timer);
        caller.keep();
    }

    fn fetch(&self, taker: Taker<'_>) {
        let Some(landed) = self.landing.landed.get() else { return };
        if let Some(outcome) = landed.outcome.see() {
            taker(outcome, &landed.arguments);
        }
    }
}

impl Endpoint {
    /// Starts a call that no thread waits for, and sends its first datagrams.
    fn begin_started(&self, peer: &Arc<Peer>, outgoing: &Outgoing<'_>, tools: &mut Tools) -> Result<Started, Refused> {
        let Outgoing { export, procedure, deadline, trace, encode } = *outgoing;
        tools.arguments.clear();
        encode(&mut Encoder::new(&mut tools.arguments)).map_err(|why| Refused::Arguments(bad_arguments(why)))?;
        let landing = Arc::new(Landing::default());
        let now = self.env.now();
        let (started, sent, timer, unlisted) = {
            let mut state = peer.lock();
            let state = &mut *state;
            let busy = state.owners.any_started();
            let token = state.owners.add(Owner::Started(landing.clone(), Watcher::Nobody));
            let call = Call { export, procedure, deadline, trace, token };
            let id = match state.conversation.start(now, &call, std::mem::take(&mut tools.arguments)) {
                Ok(id) => id,
                Err((failure, arguments)) => {
                    tools.arguments = arguments;
                    state.owners.take(token);
                    return Err(Refused::Call(failure));
                }
            };
            tools.arguments = state.conversation.buffer(now);
            self.count_busy(busy, &state.owners);
            let sent = state.conversation.transmit(now, &mut tools.out);
            let unlisted = !std::mem::replace(&mut state.listed, true);
            (Started { id, token, landing }, sent, state.conversation.timeout(), unlisted)
        };
        if unlisted {
            self.list(peer);
        }
        if let Some(len) = sent {
            self.send(now, peer, &tools.out[..len]);
            // A call that left whole in its first datagram has nothing more to say.
            if len >= farcall_proto::BASE_DATAGRAM / 2 {
                self.flush(now, peer, &mut tools.out);
            }
        }
        self.set_timer(timer);
        Ok(started)
    }

    /// The service thread, started by the first who needs it.
    fn service(self: &Arc<Self>) -> Result<&Arc<Service>, CallFailed> {
        let service = self.service.get_or_init(|| Service::new(&*self.env));
        service.run(self).map_err(|why| crate::runtime::local("starting a thread", why))?;
        Ok(service)
    }
}
