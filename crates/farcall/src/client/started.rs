//! A call under way without a thread: its outcome, and whoever asks for it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use farcall_proto::client::{CallId, Outcome};

use super::call::{Outgoing, Refused};
use super::owners::Owner;
use super::service::Service;
use super::waiter::{Caller, Kept, Waiter, Wakes};
use super::{Endpoint, Peer};
use crate::{CallFailed, Ran};

/// A call that was started.
pub(crate) struct Started {
    endpoint: Arc<Endpoint>,
    peer: Arc<Peer>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Not known for the moment in which the call starts.
    id: Option<CallId>,
    kept: Kept,
    ended: bool,
    waiter: Option<Arc<Waiter>>,
    waker: Option<Waker>,
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
    ) -> Result<Arc<Started>, CallFailed> {
        let started = Arc::new(Started { endpoint: endpoint.clone(), peer: peer.clone(), state: Mutex::default() });
        endpoint.check_process()?;
        let service = endpoint.service()?;
        endpoint.started.fetch_add(1, Ordering::SeqCst);
        match endpoint.begin_detached(peer, outgoing, Owner::Started(started.clone())) {
            Ok(id) => started.lock().id = Some(id),
            Err(refused) => {
                endpoint.started.fetch_sub(1, Ordering::SeqCst);
                return Err(match refused {
                    Refused::Arguments(why) => why,
                    Refused::Call(failure) => failure.into(),
                });
            }
        }
        service.engage();
        Ok(started)
    }

    /// The outcome has come.
    pub(super) fn end(&self, outcome: Outcome<'_>, wakes: &mut Wakes) {
        let mut state = self.lock();
        state.kept.put(outcome);
        state.ended = true;
        wakes.waiters.extend(state.waiter.take());
        wakes.wakers.extend(state.waker.take());
        drop(state);
        self.endpoint.started.fetch_sub(1, Ordering::SeqCst);
    }

    /// Blocks until the outcome has come.
    pub(crate) fn wait(&self, sink: &mut dyn FnMut(Outcome<'_>)) -> Result<(), CallFailed> {
        self.endpoint.check_process()?;
        let mut caller = Caller::take_to_wait(&self.endpoint.env).map_err(|why| why.but_ran(Ran::Maybe))?;
        self.lock().waiter = Some(caller.waiter.clone());
        let now = self.endpoint.env.now();
        let Caller { waiter, tools, .. } = &mut *caller;
        self.endpoint.attend(waiter).until(tools, now, None, None, &|| self.lock().ended);
        caller.keep();
        self.fetch(sink);
        Ok(())
    }

    /// The outcome if it has come; else `context` is woken when it does.
    pub(crate) fn poll(&self, context: &mut Context<'_>, sink: &mut dyn FnMut(Outcome<'_>)) -> Poll<()> {
        {
            let mut state = self.lock();
            if !state.ended {
                let former = state.waker.replace(context.waker().clone());
                drop(state);
                // To drop a waker may drop a task, and cancel what that had started.
                drop(former);
                return Poll::Pending;
            }
        }
        self.fetch(sink);
        Poll::Ready(())
    }

    /// Asks the server to give the call up.
    pub(crate) fn cancel(&self) {
        let Some(id) = self.lock().id else { return };
        if self.endpoint.check_process().is_err() {
            return;
        }
        let mut caller = Caller::take(&self.endpoint.env);
        let now = self.endpoint.env.now();
        self.peer.lock().conversation.cancel(now, id);
        let timer = self.endpoint.flush(now, &self.peer, &mut caller.tools.out);
        self.endpoint.set_timer(timer);
        caller.keep();
    }

    fn fetch(&self, sink: &mut dyn FnMut(Outcome<'_>)) {
        let mut kept = std::mem::take(&mut self.lock().kept);
        if let Some(outcome) = kept.take() {
            sink(outcome);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Endpoint {
    /// The service thread, started by the first who needs it.
    fn service(self: &Arc<Self>) -> Result<&Arc<Service>, CallFailed> {
        let service = self.service.get_or_init(|| Service::new(&*self.env));
        service.run(self).map_err(|why| crate::runtime::local("starting a thread", why))?;
        Ok(service)
    }
}
