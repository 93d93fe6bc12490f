//! Makes a call and waits for its outcome. Of all threads that wait at a socket, one is the leader: it
//! receives for all.

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
use crate::{CallFailed, Kind, lock};

/// Buffers for arguments longer than this come from the pool that all calls share.
const LONG_ARGUMENT_BYTES: usize = 16 << 10;

impl Endpoint {
    /// Makes a call and waits for its outcome, which goes to `sink`.
    ///
    /// # Errors
    /// When the call fails before anything was sent. Then `sink` gets nothing.
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
        // Encoding may take long, so it is done before this thread can become the leader.
        self.encode(request, tools)?;
        let mut attendance = self.attend(waiter);
        let mut mine = OwnCall::new(peer, sink);
        // The leader receives its own outcome, so its call is not entered among the calls to which other
        // threads deliver outcomes.
        let begun = match attendance.leads() {
            true => match self.begin_usual(&mut mine, (export, request), tools) {
                None => self.begin(&mut mine, (export, request), None, tools)?,
                usual => usual,
            },
            false => self.begin(&mut mine, (export, request), Some(waiter), tools)?,
        };
        if let Some((now, timer)) = begun {
            attendance.until_either(tools, now, timer, Some(&mut mine), &|| waiter.slot.is_over());
        }
        // Decoding may take long, so another thread may lead meanwhile.
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

    /// Starts and sends a leader's call, whose arguments are encoded, on the fast path (for calls that fit
    /// one datagram). Returns the time of sending and the call's timer. Returns `None` if the fast path is
    /// not possible; the call must then [begin](Endpoint::begin) in the ordinary way.
    ///
    /// The clock is read before the send. With a later time, a call that a restarted server has forgotten
    /// might be reported as not run although it ran (docs/protocol.md 7.2).
    #[inline(always)]
    fn begin_usual(
        &self,
        mine: &mut OwnCall<'_>,
        (export, request): (u64, &CallRequest<'_>),
        tools: &mut Tools,
    ) -> Option<(Time, Time)> {
        let CallRequest { call, deadline: None, trace: None, .. } = *request else {
            return None;
        };
        let Tools { arguments, out, .. } = tools;
        let (lone, unlisted) = {
            let state = &mut *mine.peer.lock();
            let lone = state.conversation.start_lone((export, call.procedure.number), arguments, out)?;
            (lone, !std::mem::replace(&mut state.listed, true))
        };
        if unlisted {
            self.list(mine.peer);
        }
        let now = self.env.now();
        let sent = self.socket.send(mine.peer.address, &out[..lone.bytes]);
        mine.lone = Some((lone, now));
        if let Err(why) = sent {
            mine.go_on(now, arguments);
            mine.peer.lock().not_sent(now, lone.bytes, &why);
        }
        Some((now, now.plus(lone.patience)))
    }

    /// Starts a call whose arguments are encoded, and sends its first datagrams. Returns the time and the
    /// conversation's next timer, or `None` if the call failed.
    ///
    /// # Errors
    /// When the call's deadline has passed. The server is not to blame, so this is no outcome of an attempt.
    #[inline(never)]
    fn begin(
        &self,
        mine: &mut OwnCall<'_>,
        (export, request): (u64, &CallRequest<'_>),
        owner: Option<&Arc<Waiter>>,
        tools: &mut Tools,
    ) -> Result<Option<(Time, Time)>, CallFailed> {
        let (now, peer) = (self.env.now(), mine.peer);
        let (timer, sent, unlisted) = {
            let state = &mut *peer.lock();
            mine.owned = owner.is_some();
            let token =
                owner.map_or(Owners::NOBODY, |waiter| state.owners.add(Owner::Thread(waiter.clone())));
            match state.conversation.start(|| now, &request.of(export, token), &mut tools.arguments) {
                Ok(id) => {
                    mine.id = Some(id);
                    if let Some(margin) = request.margin() {
                        state.conversation.hurry(id, margin);
                    }
                }
                Err(failure) => {
                    state.owners.take(token);
                    if failure.kind == Kind::Deadline {
                        return Err(failure.into());
                    }
                    mine.fail(failure);
                    return Ok(None);
                }
            }
            let sent = state.conversation.transmit(now, &mut tools.out);
            let unlisted = !std::mem::replace(&mut state.listed, true);
            (state.conversation.timeout().unwrap_or(NEVER), sent, unlisted)
        };
        if unlisted {
            self.list(peer);
        }
        let Some(len) = sent else { return Ok(Some((now, timer))) };
        self.send(now, peer, &tools.out[..len]);
        // If the first datagram is shorter, it holds the whole call, and there is nothing more to send.
        if len >= farcall_proto::BASE_DATAGRAM / 2 {
            self.flush(now, peer, &mut tools.out);
        }
        Ok(Some((now, timer)))
    }

    /// Sends bytes to an export, outside of any call, once and without acknowledgement. Returns false if the
    /// bytes cannot be sent: there is no conversation yet, or they do not fit a datagram.
    pub(crate) fn post(&self, peer: &Peer, export: u64, bytes: &[u8]) -> bool {
        let mut out = [0; farcall_proto::BASE_DATAGRAM];
        if self.check_process().is_err() {
            return false;
        }
        let Some(len) = peer.lock().conversation.post(export, bytes, &mut out) else { return false };
        // A datagram that the system refuses is lost, as it may be in a network.
        let _ = self.socket.send(peer.address, &out[..len]);
        true
    }

    /// Encodes the arguments into `tools`, while no lock is held.
    #[inline(always)]
    pub(super) fn encode(&self, request: &CallRequest<'_>, tools: &mut Tools) -> Result<(), CallFailed> {
        let Tools { arguments, usual_arguments, .. } = tools;
        // The arguments are expected to be as long as the last ones.
        if *usual_arguments > LONG_ARGUMENT_BYTES
            && let Some(room) = self.config.spares.take(self.env.now(), *usual_arguments)
        {
            *arguments = room;
        }
        arguments.clear();
        arguments.reserve((*usual_arguments).min(LONG_ARGUMENT_BYTES));
        (request.call.encode)(&mut Encoder::new(arguments)).map_err(bad_arguments)?;
        *usual_arguments = arguments.len();
        Ok(())
    }

    /// Adds a peer to the list of peers that may have timers.
    pub(super) fn list(&self, peer: &Arc<Peer>) {
        let mut active = lock(&self.active);
        active.push(peer.clone());
        self.active_count.store(active.len(), Ordering::Relaxed);
    }

    /// Returns whether a deadline has passed. If not, sets the leader's timer to the deadline. The leader
    /// forgets this timer whenever it has looked at the conversations' timers, so waiting threads call this
    /// again and again.
    pub(super) fn is_past(&self, deadline: Option<Time>) -> bool {
        let Some(deadline) = deadline else { return false };
        if deadline <= self.env.now() {
            return true;
        }
        self.set_timer(Some(deadline));
        false
    }
}
