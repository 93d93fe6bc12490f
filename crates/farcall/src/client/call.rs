//! A call that its thread waits for, and how any thread waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farcall_proto::Time;

use super::caller::{Caller, Tools};
use super::own_call::{OwnCall, Taker};
use super::owners::{Owner, Owners};
use super::request::CallRequest;
use super::waiter::Waiter;
use super::{Endpoint, Peer};
use crate::stub::bad_arguments;
use crate::wait::NEVER;
use crate::xdr::Encoder;
use crate::{CallFailed, lock};

/// The room of arguments longer than that is used again by other calls.
const LONG: usize = 16 << 10;

impl Endpoint {
    /// Calls and waits. `sink` takes the outcome, unless this fails before anything was sent.
    pub(crate) fn call(
        &self,
        peer: &Arc<Peer>,
        export: u64,
        request: &CallRequest<'_>,
        sink: Taker<'_>,
    ) -> Result<(), CallFailed> {
        self.check_process()?;
        let mut caller = Caller::take_to_wait(&self.env)?;
        let Caller { waiter, tools, .. } = &mut *caller;
        // It may take long, and who does it must not lead.
        self.encode(request, tools)?;
        let mut attendance = self.attend(waiter);
        let mut mine = OwnCall::new(peer, sink);
        // The leader takes its own outcome in, and nobody else needs to know whose it is.
        let begun = match attendance.leads() {
            true => self
                .begin_usual(&mut mine, (export, request), tools)
                .or_else(|| self.begin(&mut mine, (export, request), None, tools)),
            false => self.begin(&mut mine, (export, request), Some(waiter), tools),
        };
        if let Some((now, timer)) = begun {
            attendance.until_either(tools, now, timer, Some(&mut mine), &|| waiter.slot.is_over());
        }
        // What follows may take long, and somebody else is to lead meanwhile.
        drop(attendance);
        match mine.done {
            true => mine.finish(),
            false => {
                waiter.slot.give(&mut |outcome, _| (mine.sink)(outcome));
                waiter.slot.renew();
            }
        }
        caller.keep();
        Ok(())
    }

    /// Starts the usual call of a leader, whose arguments are encoded, and sends it. The clock is read before
    /// that: a call that seemed to have left later than it did might be said not to have run when a server
    /// that was started anew meanwhile has forgotten it (docs/protocol.md 7.2). The time, and the call's
    /// timer; nothing if it is to [begin](Endpoint::begin) as any other.
    #[inline(always)]
    fn begin_usual(
        &self,
        mine: &mut OwnCall<'_>,
        (export, request): (u64, &CallRequest<'_>),
        tools: &mut Tools,
    ) -> Option<(Time, Time)> {
        let CallRequest { procedure, deadline: None, trace: None, .. } = *request else {
            return None;
        };
        let Tools { arguments, out, .. } = tools;
        let (lone, unlisted) = {
            let state = &mut *mine.peer.lock();
            let lone = state.conversation.start_lone((export, procedure.number), arguments, out)?;
            (lone, !std::mem::replace(&mut state.listed, true))
        };
        if unlisted {
            self.list(mine.peer);
        }
        let now = self.env.now();
        let sent = self.socket.send(mine.peer.address, &out[..lone.bytes]);
        mine.lone = Some((lone, now));
        if sent.is_err() {
            mine.go_on(now, arguments);
            mine.peer.lock().conversation.handle_unreachable(now);
        }
        Some((now, now.plus(lone.patience)))
    }

    /// Starts a call whose arguments are encoded, and sends its first datagrams. The time, and the
    /// conversation's next timer; nothing if it failed.
    #[inline(never)]
    fn begin(
        &self,
        mine: &mut OwnCall<'_>,
        (export, request): (u64, &CallRequest<'_>),
        owner: Option<&Arc<Waiter>>,
        tools: &mut Tools,
    ) -> Option<(Time, Time)> {
        let (now, peer) = (self.env.now(), mine.peer);
        let (timer, sent, unlisted) = {
            let state = &mut *peer.lock();
            mine.owned = owner.is_some();
            let token =
                owner.map_or(Owners::NOBODY, |waiter| state.owners.add(Owner::Thread(waiter.clone())));
            match state.conversation.start(|| now, &request.of(export, token), &mut tools.arguments) {
                Ok(id) => mine.id = Some(id),
                Err(failure) => {
                    state.owners.take(token);
                    mine.fail(failure);
                    return None;
                }
            }
            let sent = state.conversation.transmit(now, &mut tools.out);
            let unlisted = !std::mem::replace(&mut state.listed, true);
            (state.conversation.timeout().unwrap_or(NEVER), sent, unlisted)
        };
        if unlisted {
            self.list(peer);
        }
        let Some(len) = sent else { return Some((now, timer)) };
        self.send(now, peer, &tools.out[..len]);
        // A call that left whole in its first datagram has nothing more to say.
        if len >= farcall_proto::BASE_DATAGRAM / 2 {
            self.flush(now, peer, &mut tools.out);
        }
        Some((now, timer))
    }

    /// Sends bytes of no call to an export, once. False if they cannot be: there is no conversation yet, or
    /// they are too many.
    pub(crate) fn post(&self, peer: &Peer, export: u64, bytes: &[u8]) -> bool {
        let mut out = [0; farcall_proto::BASE_DATAGRAM];
        if self.check_process().is_err() {
            return false;
        }
        let Some(len) = peer.lock().conversation.post(export, bytes, &mut out) else { return false };
        // What the system refuses is lost, like any datagram.
        let _ = self.socket.send(peer.address, &out[..len]);
        true
    }

    /// Encodes the arguments into `tools`, while no lock is held.
    #[inline(always)]
    pub(super) fn encode(&self, request: &CallRequest<'_>, tools: &mut Tools) -> Result<(), CallFailed> {
        let Tools { arguments, usual_arguments, .. } = tools;
        // They are expected to be as long as the last.
        if *usual_arguments > LONG
            && let Some(room) = self.config.spares.take(self.env.now(), *usual_arguments)
        {
            *arguments = room;
        }
        arguments.clear();
        arguments.reserve((*usual_arguments).min(LONG));
        (request.encode)(&mut Encoder::new(arguments)).map_err(bad_arguments)?;
        *usual_arguments = arguments.len();
        Ok(())
    }

    /// Adds a peer to those that may have timers.
    pub(super) fn list(&self, peer: &Arc<Peer>) {
        let mut active = lock(&self.active);
        active.push(peer.clone());
        self.active_count.store(active.len(), Ordering::Relaxed);
    }

    /// Whether a deadline has passed. If not, whoever leads shall look again when it has: it forgets
    /// what is no conversation's timer each time it has looked at those.
    pub(super) fn is_past(&self, deadline: Option<Time>) -> bool {
        let Some(deadline) = deadline else { return false };
        if deadline <= self.env.now() {
            return true;
        }
        self.set_timer(Some(deadline));
        false
    }
}
