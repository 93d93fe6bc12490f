//! The exchanges of a started call, for the thread or task that waits for the call.

use std::sync::Arc;
use std::task::{Wake, Waker};

use farcall_proto::client::{Conversation, Event};
use farcall_proto::{Tail, Time};

use super::caller::{Caller, Tools};
use super::news::CallNews;
use super::own_call::deliver;
use super::peer::PeerState;
use super::result_slot::ResultSlot;
use super::started::Started;
use super::waiter::Watcher;
use super::{Endpoint, Peer};
use crate::env::Env;
use crate::exchange::Exchanges;
use crate::wait::{Parker, SteppedAway, WaitPoint};
use crate::{Bytes, CallFailed, Ran};

/// The caller's end of the exchanges of a started call.
pub(crate) struct CallExchanges {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) peer: Arc<Peer>,
    pub(super) started: Started,
}

impl CallExchanges {
    pub(crate) fn new(endpoint: &Arc<Endpoint>, peer: &Arc<Peer>, started: &Started) -> CallExchanges {
        CallExchanges { endpoint: endpoint.clone(), peer: peer.clone(), started: started.clone() }
    }

    pub(crate) fn env(&self) -> &Arc<dyn Env> {
        &self.endpoint.env
    }

    /// Has the service thread look after this call while this thread, which waits for it, runs the user's code:
    /// what gives the items of an argument, a slow file perhaps.
    pub(crate) fn step_away(&self) -> SteppedAway {
        SteppedAway::from_point(&(self.endpoint.clone() as Arc<dyn WaitPoint>))
    }

    fn news(&self) -> &CallNews {
        self.started.slot.news().expect("the call was started with exchanges")
    }

    /// Has the service thread receive while this thread runs the user's code, a handler or the iterator of a
    /// stream, which may take long.
    fn engage_service(&self) {
        if let Ok(service) = self.endpoint.service() {
            self.endpoint.engage(service);
        }
    }

    /// Acts on the conversation, and sends what is ready then.
    fn act<R>(
        &self,
        act: impl FnOnce(Time, &mut Conversation, &mut dyn FnMut(Event<'_>)) -> Option<R>,
    ) -> Option<R> {
        let CallExchanges { endpoint, peer, .. } = self;
        endpoint.check_process().ok()?;
        let mut caller = Caller::take(&endpoint.env);
        let Tools { wakes, out, .. } = &mut caller.tools;
        let now = endpoint.env.now();
        let mut state = peer.lock();
        let unlisted = !std::mem::replace(&mut state.listed, true);
        let PeerState { conversation, owners, .. } = &mut *state;
        let was_busy = owners.any_started();
        let sink = &mut |event: Event<'_>| deliver(peer, owners, event, (&[], None), None, wakes);
        let done = act(now, conversation, sink);
        endpoint.count_busy(was_busy, owners);
        if unlisted {
            drop(state);
            endpoint.list(peer);
            state = peer.lock();
        }
        let timer = endpoint.flush_locked(now, peer, state, out);
        endpoint.set_timer(timer);
        endpoint.wake(&mut caller.tools);
        caller.keep();
        done
    }
}

impl Exchanges for CallExchanges {
    fn open(&self) -> Option<u32> {
        self.engage_service();
        self.peer.lock().conversation.open_exchange(self.started.id)
    }

    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.act(|_, conversation, _| conversation.send_in(self.started.id, exchange, bytes, tail))
    }

    fn send_long(&self, exchange: u32, bytes: &[u8], long: &Bytes) -> Option<usize> {
        self.act(|_, conversation, _| {
            conversation.send_long_in(self.started.id, exchange, (bytes, long), Tail::More)
        })
    }

    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.act(|_, conversation, sink| conversation.take_from(self.started.id, exchange, into, most, sink))
    }

    fn mutant(&self) -> farcall_core::broken::Mutant {
        farcall_core::env::mutant(|| self.endpoint.env.clone())
    }

    fn stop(&self, exchange: u32) {
        self.act(|_, conversation, sink| {
            conversation.stop_exchange(self.started.id, exchange, 0, sink);
            Some(())
        });
    }

    fn give_up(&self) {
        self.started.cancel(&self.endpoint, &self.peer);
    }

    fn next_opened(&self) -> Option<u32> {
        let opened = self.news().next_opened()?;
        self.engage_service();
        Some(opened)
    }

    fn epoch(&self) -> u64 {
        self.news().epoch()
    }

    fn wait(&self, epoch: u64) -> Result<(), CallFailed> {
        let CallExchanges { endpoint, peer, started } = self;
        endpoint.check_process()?;
        let mut caller = Caller::take_to_wait(&endpoint.env).map_err(|why| why.but_ran(Ran::Maybe))?;
        let Caller { waiter, tools, .. } = &mut *caller;
        let mut attendance = endpoint.attend(waiter);
        if !attendance.leads() {
            self.news().wait(waiter.clone());
        }
        if !started.is_sent(peer) {
            endpoint.send_unsent(tools);
        }
        attendance.until(tools, endpoint.env.now(), &|| self.epoch() != epoch);
        drop(attendance);
        self.news().wait_no_more(&(waiter.clone() as Arc<dyn Parker>));
        caller.keep();
        Ok(())
    }

    fn watch(&self, _exchange: u32, epoch: u64, waker: &Waker) {
        let CallExchanges { endpoint, peer, started } = self;
        // One task waits for the call.
        started.watch(endpoint, peer, Watcher::Task(waker.clone()));
        self.engage_service();
        endpoint.hasten();
        // Something may have changed before the waker was there.
        if self.epoch() != epoch {
            waker.wake_by_ref();
        }
    }

    fn nudge(&self) -> Waker {
        Waker::from(Arc::new(Nudge { endpoint: self.endpoint.clone(), slot: self.started.slot.clone() }))
    }
}

/// Ends the waits of threads in a call's exchanges.
struct Nudge {
    endpoint: Arc<Endpoint>,
    slot: Arc<ResultSlot>,
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        let Some(news) = self.slot.news() else { return };
        news.change().iter().for_each(|waiter| waiter.wake());
        // A thread that leads sleeps in the socket.
        self.endpoint.socket.wake();
    }
}
