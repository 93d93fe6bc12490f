//! The fast path for short calls. It is possible if no other thread uses the endpoint, which is the socket,
//! and the conversation with the server has no other work. The thread sends one datagram and receives one,
//! which is usually the result. If anything else arrives, the call continues in the ordinary way. To lead
//! means to receive for all threads that use the endpoint.

use std::io;
use std::sync::Arc;

use farcall_proto::client::{CallId, Outcome};
use farcall_proto::{Failure, Time};

use super::caller::{Caller, Tools};
use super::drive::Reception;
use super::own_call::OwnCall;
use super::owners::Owners;
use super::{Endpoint, Peer};
use crate::env::Received;
use crate::stub::{Reply, Sink};
use crate::sys::fork;
use crate::wait::NEVER;
use crate::xdr::Decoder;

/// The outcome of a call on the fast path: either its reply was given to the caller, or the call failed.
pub(crate) type Ended = Result<(), Failure>;

/// The lead (the right to receive) of a thread that took it while no other thread used the endpoint. Dropping
/// this passes the lead on.
struct Alone<'a>(&'a Endpoint);

impl<'a> Alone<'a> {
    #[inline(always)]
    fn lead(endpoint: &'a Endpoint) -> Option<Alone<'a>> {
        endpoint.lead.try_lead().then(|| Alone(endpoint))
    }
}

impl Drop for Alone<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.end_lead();
    }
}

impl Endpoint {
    /// Calls a procedure of an export, and waits for the outcome. The arguments are short and encoded
    /// already. Returns `None`, with nothing done, if the fast path is not possible. A thread that itself
    /// serves a call must not use this function.
    ///
    /// An encoded result is first offered to `short`. If `short` returns false, `sink` gets the result.
    /// `sink` also gets every other reply.
    #[inline(always)]
    pub(crate) fn call_briefly(
        &self,
        peer: &Arc<Peer>,
        callee: (u64, u32),
        arguments: &[u8],
        short: &mut dyn FnMut(&[u8]) -> bool,
        sink: Sink<'_>,
    ) -> Option<Ended> {
        if self.generation != fork::generation() {
            return None;
        }
        let mut caller = Caller::take(&self.env);
        let ended = match caller.is_nested() {
            true => None,
            false => self.exchange(&mut caller.tools, peer, callee, arguments, short, sink),
        };
        caller.keep();
        ended
    }

    #[inline(always)]
    fn exchange(
        &self,
        tools: &mut Tools,
        peer: &Arc<Peer>,
        callee: (u64, u32),
        arguments: &[u8],
        short: &mut dyn FnMut(&[u8]) -> bool,
        sink: Sink<'_>,
    ) -> Option<Ended> {
        let alone = Alone::lead(self)?;
        let brief = {
            let state = &mut *peer.lock();
            if !state.listed || tools.buffer.is_empty() {
                return None;
            }
            state.conversation.start_lone(callee, arguments, &mut tools.out)?
        };
        // The clock is read before the send: a call must not seem to have been sent later than it was
        // (docs/protocol.md 7.2).
        let sent = if brief.timed || self.timers.any() { Some(self.env.now()) } else { None };
        let left = self.socket.send(peer.address, &tools.out[..brief.bytes]);
        let (wait, mut earliest) = match sent {
            Some(sent) => {
                let mut earliest = self.begin_lead(sent.plus(brief.patience));
                (self.wait(&mut earliest, NEVER, sent), earliest)
            }
            None => (self.nap(brief.patience), NEVER),
        };
        let received = self.socket.receive(&mut tools.buffer, wait);
        self.timers.awake();
        let mut opened = None;
        if let Ok(Received::Datagrams { len, each, .. }) = received
            && len == each
        {
            let datagram = &mut tools.buffer[..len];
            let body = {
                let conversation = &mut peer.lock().conversation;
                opened = conversation.open(datagram);
                conversation.end_lone(|| self.env.now(), &brief, sent, (datagram, opened))
            };
            if let Some(body) = body {
                self.expect(&mut earliest, None, true);
                self.timers.keep(earliest);
                drop(alone);
                if !short(body) {
                    sink(Reply::Result(Decoder::new(body)));
                }
                return Some(Ok(()));
            }
        }
        let now = self.env.now();
        let id = {
            let (state, bytes) = (&mut *peer.lock(), brief.bytes);
            let id = state.conversation.go_on(now, brief, sent, Owners::NOBODY, arguments);
            left.map_or_else(|why| state.not_sent(now, bytes, &why), drop);
            id
        };
        // If the time of sending was not read, the timer counts as due now.
        let earliest = if sent.is_some() { earliest } else { now };
        let mut reception = Reception::new(self, tools, earliest, None);
        self.unseal(&received, &mut reception, Some(peer), opened);
        Some(self.go_on(alone, reception, &received, (peer, id), tools, sink))
    }

    /// Continues in the ordinary way with a call after something else than its result has arrived.
    #[cold]
    fn go_on(
        &self,
        alone: Alone<'_>,
        mut reception: Reception<'_>,
        received: &io::Result<Received>,
        (peer, id): (&Arc<Peer>, CallId),
        tools: &mut Tools,
        sink: Sink<'_>,
    ) -> Ended {
        let mut failed = None;
        let take = &mut |outcome: Outcome<'_>| match outcome {
            Outcome::Result(body) => sink(Reply::Result(Decoder::new(&body))),
            Outcome::Exception(body) => sink(Reply::Exception(Decoder::new(&body))),
            Outcome::Failed(failure) => failed = Some(failure),
        };
        let mut mine = OwnCall::new(peer, take);
        mine.id = Some(id);
        let now: Time = self.env.now();
        self.take_in(now, received, &mut reception, Some(&mut mine), tools);
        if !mine.done {
            self.lead_until(&mut reception, tools, now, Some(&mut mine), &|| false);
        }
        reception.give_back(tools);
        drop(alone);
        mine.finish();
        drop(mine);
        failed.map_or(Ok(()), Err)
    }
}
