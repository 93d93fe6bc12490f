//! Started calls: calls that run while no thread waits for them. The endpoint is the client's socket, and a
//! peer is a server.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use farcall_proto::client::{CallId, CallProgress, Conversation, Outcome};
use farcall_proto::{ArgumentBudget, Failure};

use super::caller::{Caller, Tools};
use super::news::CallNews;
use super::own_call::decline_all;
use super::owners::{Owner, Owners};
use super::request::CallRequest;
use super::result_slot::{ResultSlot, Taker};
use super::service::Service;
use super::waiter::Watcher;
use super::{Endpoint, Peer};
use crate::stub::SendStream;
use crate::wait::{Duty, ReadyToken};
use crate::{CallFailed, Kind, Ran, lock};

/// A started call. Its holder also keeps the endpoint and the peer of the call.
#[derive(Clone)]
pub(crate) struct Started {
    pub(super) id: CallId,
    token: u64,
    pub(super) slot: Arc<ResultSlot>,
}

impl Started {
    /// Starts a call without waiting. A thread that waits for several calls at this endpoint passes a token,
    /// which is marked when the call ends.
    ///
    /// # Errors
    /// When the call fails at once. Then nothing was sent.
    pub(crate) fn start(
        endpoint: &Arc<Endpoint>,
        peer: &Arc<Peer>,
        call: (u64, &CallRequest<'_>),
        gatherer: Option<ReadyToken>,
    ) -> Result<Started, CallFailed> {
        endpoint.check_process()?;
        let (service, watcher) = match gatherer {
            Some(token) => (None, Watcher::Gatherer(token)),
            None => (Some(&**endpoint.service()?), Watcher::Nobody),
        };
        let mut caller = Caller::take(&endpoint.env);
        let begun = endpoint.begin_started(service, peer, call, watcher, &mut caller.tools);
        caller.keep();
        begun
    }

    /// Starts a call whose thread waits for it at once. No other thread looks after the call meanwhile.
    ///
    /// # Errors
    /// When the call fails at once. Then nothing was sent.
    #[cold]
    pub(crate) fn start_to_wait(
        endpoint: &Arc<Endpoint>,
        peer: &Arc<Peer>,
        call: (u64, &CallRequest<'_>),
    ) -> Result<Started, CallFailed> {
        endpoint.check_process()?;
        let mut caller = Caller::take_to_wait(&endpoint.env)?;
        let begun = endpoint.begin_started(None, peer, call, Watcher::Nobody, &mut caller.tools);
        caller.keep();
        begun
    }

    /// Returns a call that has failed before it was sent, because its binding is broken. It fails as
    /// an attempt does that was sent, so the thread that waits for the call binds again. Its arguments are in
    /// `tools`.
    #[cold]
    fn ended(
        slot: Arc<ResultSlot>,
        why: &CallFailed,
        request: &CallRequest<'_>,
        tools: &mut Tools,
    ) -> Started {
        let failure = Failure::new(why.kind(), why.ran()).with_detail(why.detail());
        slot.end(Outcome::Failed(failure), (&mut tools.arguments, request.call.shared.cloned()), None);
        // No call has this number.
        Started { id: CallId { activity: 0, sequence: 0 }, token: Owners::NOBODY, slot }
    }

    /// Returns whether the call has been sent.
    pub(super) fn is_sent(&self, peer: &Peer) -> bool {
        peer.lock().conversation.progress(self.id) != CallProgress::Unsent
    }

    /// Blocks until the outcome has come, and gives it to `taker`.
    pub(crate) fn wait(&self, endpoint: &Endpoint, peer: &Peer, taker: Taker<'_>) -> Result<(), CallFailed> {
        if !self.slot.is_over() {
            self.wait_for_it(endpoint, peer)?;
        }
        self.slot.give(taker);
        Ok(())
    }

    #[inline(never)]
    fn wait_for_it(&self, endpoint: &Endpoint, peer: &Peer) -> Result<(), CallFailed> {
        endpoint.check_process()?;
        let mut caller = Caller::take_to_wait(&endpoint.env).map_err(|why| why.but_ran(Ran::Maybe))?;
        let Caller { waiter, tools, .. } = &mut *caller;
        let mut attendance = endpoint.attend(waiter);
        let watcher = if attendance.leads() { Watcher::Nobody } else { Watcher::Thread(waiter.clone()) };
        let sent = self.watch(endpoint, peer, watcher).is_none_or(|sent| sent);
        if !sent {
            endpoint.send_unsent(tools);
        }
        attendance.until(tools, endpoint.env.now(), &|| self.slot.is_over());
        drop(attendance);
        caller.keep();
        Ok(())
    }

    /// Returns whether the outcome has come.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.slot.is_over()
    }

    /// Gives the outcome to `taker`. It has come, as [`Started::is_over`] said.
    #[inline]
    pub(crate) fn give(&self, taker: Taker<'_>) {
        self.slot.give(taker);
    }

    /// Gives the outcome to `taker` if it has come. Otherwise `context` is woken when it comes.
    pub(crate) fn poll(
        &self,
        endpoint: &Endpoint,
        peer: &Peer,
        context: &mut Context<'_>,
        taker: Taker<'_>,
    ) -> Poll<()> {
        if !self.slot.is_over()
            && self.watch(endpoint, peer, Watcher::Task(context.waker().clone())).is_some()
        {
            // The call may still be queued. The service thread sends it.
            endpoint.hasten();
            return Poll::Pending;
        }
        self.slot.give(taker);
        Poll::Ready(())
    }

    /// Replaces the watcher that is woken when the call ends. Returns whether the call was sent, or `None` if
    /// it has ended.
    pub(super) fn watch(&self, endpoint: &Endpoint, peer: &Peer, watcher: Watcher) -> Option<bool> {
        endpoint.watch(peer, (self.id, self.token), watcher)
    }

    /// Lets the call run on although no caller waits for it any more. The server is told now or, with
    /// `later`, only if the call takes long.
    pub(crate) fn detach(&self, endpoint: &Arc<Endpoint>, peer: &Peer, later: bool) {
        if self.slot.is_over() || endpoint.check_process().is_err() {
            return;
        }
        if let Some(news) = self.slot.news() {
            self.decline_exchanges(endpoint, peer, news);
        }
        peer.lock().conversation.detach(self.id, later);
        if !later || self.slot.news().is_some() {
            let mut caller = Caller::take(&endpoint.env);
            let timer = endpoint.flush(endpoint.env.now(), peer, &mut caller.tools.out);
            endpoint.set_timer(timer);
            caller.keep();
        }
        // Perhaps no thread waits at the endpoint any more. If the service thread cannot be started, the next
        // thread that waits there carries the call on.
        if let Ok(service) = endpoint.service() {
            endpoint.engage(service);
        }
    }

    /// Makes the server's signals in this call find no handler from now on.
    #[cold]
    fn decline_exchanges(&self, endpoint: &Endpoint, peer: &Peer, news: &CallNews) {
        let mut caller = Caller::take(&endpoint.env);
        {
            let state = &mut *peer.lock();
            let was_busy = state.owners.any_started();
            decline_all(peer, state, (self.id, news), &mut caller.tools.wakes);
            endpoint.count_busy(was_busy, &state.owners);
        }
        endpoint.wake(&mut caller.tools);
        caller.keep();
    }

    /// Asks the server to give the call up.
    pub(crate) fn cancel(&self, endpoint: &Endpoint, peer: &Peer) {
        if self.slot.is_over() || endpoint.check_process().is_err() {
            return;
        }
        let mut caller = Caller::take(&endpoint.env);
        let now = endpoint.env.now();
        peer.lock().conversation.cancel(now, self.id);
        let timer = endpoint.flush(now, peer, &mut caller.tools.out);
        endpoint.set_timer(timer);
        caller.keep();
    }
}

impl Endpoint {
    /// Starts a call without waiting. The call is sent at once, or queued so that further calls can share its
    /// datagram. It is queued only if there is a service thread, which sends it in time.
    #[inline(always)]
    pub(super) fn begin_started(
        &self,
        service: Option<&Service>,
        peer: &Arc<Peer>,
        call: (u64, &CallRequest<'_>),
        watcher: Watcher,
        tools: &mut Tools,
    ) -> Result<Started, CallFailed> {
        let mut slot = Arc::new(ResultSlot::default());
        if call.1.call.procedure.exchanges
            && let Some(slot) = Arc::get_mut(&mut slot)
        {
            slot.expect_news();
        }
        match self.begin_owned(service, peer, call, Owner::Started(slot.clone(), watcher), tools) {
            Ok((id, token)) => Ok(Started { id, token, slot }),
            Err(why) if breaks_binding(&why) => Ok(Started::ended(slot, &why, call.1, tools)),
            Err(why) => Err(why),
        }
    }

    /// Starts a call of which `owner` gets the outcome, as [`Endpoint::begin_started`] does. Returns the
    /// call's identifier, and the token of its owner.
    ///
    /// # Errors
    /// When the call cannot be started. Then the encoded arguments are still in `tools`.
    #[inline(always)]
    pub(super) fn begin_owned(
        &self,
        service: Option<&Service>,
        peer: &Arc<Peer>,
        (export, request): (u64, &CallRequest<'_>),
        owner: Owner,
        tools: &mut Tools,
    ) -> Result<(CallId, u64), CallFailed> {
        let shared = request.call.shared;
        let len = match shared {
            None => self.encode(request, tools).map(|()| tools.arguments.len())?,
            Some(shared) => shared.bytes().len(),
        };
        // The items of a stream argument that are ready are sent together with the call. The user's code
        // makes them, so no lock is held.
        let first = request.call.sending.filter(|sending| sending.gather());
        let mut state = peer.lock();
        if !state.conversation.has_room(len, shared.map(|shared| &**shared)) {
            return Err(self.too_many_bytes(state.conversation.argument_bytes()));
        }
        let was_busy = state.owners.any_started();
        let token = state.owners.add(owner);
        let now = OnceCell::new();
        let clock = || *now.get_or_init(|| self.env.now());
        // While tasks wait, the service thread receives, and each arriving datagram makes it send the queued
        // calls.
        let clocked = self.tasks.load(Ordering::Relaxed) > 0;
        let call = request.of(export, token);
        let begun = match shared {
            None => state.conversation.start(clock, &call, &mut tools.arguments),
            Some(shared) => state.conversation.start_shared(clock, &call, shared),
        };
        let id = match begun {
            Ok(id) => id,
            Err(failure) => {
                state.owners.take(token);
                return Err(failure.into());
            }
        };
        if !request.call.carries.is_empty() {
            // One-way calls go on even if this process ends.
            state.conversation.detach(id, true);
        }
        if let Some(margin) = request.margin() {
            state.conversation.hurry(id, margin);
        }
        self.count_busy(was_busy, &state.owners);
        if let Some(first) = first {
            send_first(&mut state.conversation, id, &**first);
        }
        if let Some(service) = service.filter(|_| state.conversation.may_wait(clock, id, clocked)) {
            let first = !std::mem::replace(&mut state.left, true);
            drop(state);
            if first {
                self.leave(service, peer, tools);
            }
            if request.deadline.is_some() {
                self.set_timer(request.begin_by.or(request.deadline));
            }
        } else {
            if !std::mem::replace(&mut state.listed, true) {
                drop(state);
                self.list(peer);
                state = peer.lock();
            }
            let timer = self.flush_locked(clock(), peer, state, &mut tools.out);
            self.set_timer(timer);
            if let Some(service) = service.filter(|_| !was_busy) {
                self.engage(service);
            }
        }
        Ok((id, token))
    }

    /// Replaces the watcher that is woken when a started call ends. Returns whether the call was sent, or
    /// `None` if it has ended. A queued call must be sent before a thread waits for it.
    pub(super) fn watch(&self, peer: &Peer, (id, token): (CallId, u64), watcher: Watcher) -> Option<bool> {
        let task = watcher.is_task();
        // Dropping a waker may drop a task, and so cancel the calls that the task had started. It must happen
        // without the lock.
        let (former, sent) = {
            let mut state = peer.lock();
            let former = state.owners.watch(token, watcher);
            if let Ok(former) = &former {
                match (former.is_task(), task) {
                    (false, true) => self.tasks.fetch_add(1, Ordering::SeqCst),
                    (true, false) => self.tasks.fetch_sub(1, Ordering::SeqCst),
                    _ => 0,
                };
            }
            (former, state.conversation.progress(id) != CallProgress::Unsent)
        };
        former.ok().map(|_| sent)
    }

    /// Leaves a call queued: adds its peer to the list of peers with queued calls.
    #[inline(never)]
    fn leave(&self, service: &Service, peer: &Arc<Peer>, tools: &mut Tools) {
        lock(&self.unsent).push(peer.clone());
        self.left.fetch_add(1, Ordering::Relaxed);
        match self.flush_signal.note_queued() {
            Duty::Nothing => {}
            Duty::Wake => service.wake(),
            Duty::Send => drop(self.send_unsent(tools)),
        }
    }

    /// Returns the failure of a call whose arguments are not kept, because calls to its server keep `held`
    /// bytes already.
    #[cold]
    fn too_many_bytes(&self, held: usize) -> CallFailed {
        over_budget(&self.config.arguments, held)
    }

    /// Returns the service thread. The first call that needs it starts it.
    pub(super) fn service(self: &Arc<Self>) -> Result<&Arc<Service>, CallFailed> {
        let service = self.service.get_or_init(|| Service::new(&*self.env));
        service.run(self).map_err(|why| CallFailed::local("starting a thread", why))?;
        Ok(service)
    }
}

/// Returns the failure of a call whose arguments have no room in the budget, because unfinished calls to its
/// server keep `held` bytes of it.
#[cold]
pub(crate) fn over_budget(budget: &ArgumentBudget, held: usize) -> CallFailed {
    let why = format!(
        "unfinished calls to this server keep {held} bytes of arguments, and those to all servers {} bytes; \
         a server's calls may keep as much as is left of {} bytes: wait for some of them, or cancel them",
        budget.used(),
        budget.limit()
    );
    CallFailed::new(Kind::Overloaded, Ran::No).because(why)
}

/// Returns whether a call could not be started because its binding is broken: the server takes no more calls
/// of the export, or may not answer for its name any more. Another binding helps.
#[cold]
pub(crate) fn breaks_binding(why: &CallFailed) -> bool {
    matches!(why.kind(), Kind::Draining | Kind::ServerRestarted) && why.ran() == Ran::No
}

/// Sends the beginning of an argument that is a stream together with its call.
#[cold]
fn send_first(conversation: &mut Conversation, id: CallId, first: &dyn SendStream) {
    let opened = conversation.open_exchange(id);
    first.send_first(&mut |bytes, tail| conversation.send_in(id, opened?, bytes, tail));
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::System;
    use crate::env::{Env, SocketOptions};
    use crate::stub::NO_HANDLERS;
    use crate::stub::{Call, InterfaceId, Procedure};
    use crate::xdr::Encoder;

    #[test]
    fn who_is_silent_keeps_as_many_bytes_of_arguments_as_are_free_and_any_short_ones() {
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let options = SocketOptions { spin: Duration::ZERO, buffer: 1 << 16, ..SocketOptions::default() };
        let socket = System.bind((Ipv4Addr::LOCALHOST, 0).into(), &options).unwrap();
        const BYTES: usize = 1 << 20;
        let arguments = Arc::new(ArgumentBudget::new(BYTES));
        let config = farcall_proto::ClientConfig { arguments: arguments.clone(), ..Default::default() };
        let endpoint = Endpoint::new(Arc::new(System), socket, config);
        let peer = endpoint.peer(silent.local_addr().unwrap(), "");
        let start = |len: usize| {
            let procedure = Procedure {
                number: 1,
                name: "put",
                interface: InterfaceId::NONE,
                idempotent: false,
                blocking: false,
                uncancelled: false,
                exchanges: false,
                deadline: None,
            };
            let encode = |e: &mut Encoder<'_>| e.opaque(&vec![0; len]);
            let (procedure, handlers) = (&procedure, &NO_HANDLERS);
            let call = Call {
                procedure,
                within: None,
                encode: &encode,
                shared: None,
                handlers,
                sending: None,
                carries: &[],
                hurries: false,
            };
            let request = CallRequest { call: &call, deadline: None, begin_by: None, trace: None };
            Started::start(&endpoint, &peer, (1, &request), None)
        };
        let half = start(BYTES / 4).unwrap();
        let _other = start(BYTES / 4).unwrap();
        let why = start(BYTES / 8).err().expect("no more than that");
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
        assert!(start(4).is_ok());
        // The call was not sent, because there is no conversation yet.
        half.cancel(&endpoint, &peer);
        let mut ended = false;
        half.wait(&endpoint, &peer, &mut |_, _| ended = true).unwrap();
        assert!(ended && arguments.used() == BYTES / 4 && start(BYTES / 8).is_ok());
        endpoint.stop();
    }
}
