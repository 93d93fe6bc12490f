//! Holds a call that a server is to execute: its procedure and its arguments. Runs it.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::server::{self as proto, Finish, HostName, Incoming};
use farcall_proto::{ACCESSES, Failure, Kind, Ran, Time};

use super::Server;
use super::executor::Spawn;
use super::exported::{Exported, Known, not_owned};
use super::finish::{finish, unless_late};
use super::reply_to::{Back, Outlet};
use super::task::{Serving, Teller};
use crate::Principal;
use crate::builtin;
use crate::context;
use crate::env::place;
use crate::fair::Waits;
use crate::guard;
use crate::receive_buffers::SharedBuffer;
use crate::stub::{BATCH, Dispatched, catch, panicked};
use crate::workers::Pace;
use crate::xdr::{Decoder, Encoder};
use farcall_core::messages::say;

/// A call that a server must execute.
pub(crate) struct Work {
    pub(crate) call: context::Incoming,
    pub(crate) exported: Arc<Exported>,
    procedure: u32,
    /// The index of the procedure, if the interface has one of this number.
    which: Option<usize>,
    arguments: Arguments,
    /// When the call came, or began to wait for a worker.
    pub(super) arrived: Time,
    /// Where the outcome goes, if the call did not come by the socket.
    pub(crate) back: Option<Arc<dyn Back>>,
    /// Who calls, if the caller has proven that.
    pub(crate) principal: Option<Arc<Principal>>,
}

enum Arguments {
    /// A range of the buffer of the worker that received the arguments.
    Received(Range<usize>),
    /// A range of received bytes that several calls share: the worker's former buffer, or a copy of it.
    Shared(SharedBuffer, Range<usize>),
    Kept(Vec<u8>),
}

impl Arguments {
    /// Takes the arguments out of what keeps them, or copies them out of a buffer that has others too.
    /// `buffer` is that of the worker.
    fn take(&mut self, buffer: &[u8]) -> Vec<u8> {
        match self {
            Arguments::Received(range) => buffer[range.clone()].to_vec(),
            Arguments::Shared(buffer, range) => buffer[range.clone()].to_vec(),
            Arguments::Kept(bytes) => std::mem::take(bytes),
        }
    }
}

/// The origin of a call.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) now: Time,
    pub(super) from: &'a SocketAddr,
    pub(super) datagram: &'a [u8],
    /// Where the datagram begins in the worker's buffer.
    pub(super) start: usize,
}

impl Work {
    /// Returns the work for a call that came in a datagram.
    #[inline(always)]
    pub(super) fn new(incoming: Incoming<'_>, exported: &Arc<Exported>, origin: Origin<'_>) -> Work {
        exported.begin();
        let Origin { now, from, datagram, start } = origin;
        let arguments = match place(datagram, &incoming.args) {
            Some(place) => Arguments::Received(start + place.start..start + place.end),
            None => Arguments::Kept(incoming.args.into_owned()),
        };
        let Incoming { key, deadline, trace, principal, .. } = incoming;
        Work {
            call: context::Incoming {
                key,
                export: exported.id,
                from: *from,
                deadline,
                trace,
                same_user: false,
                fence: 0,
            },
            which: exported.procedure(incoming.procedure),
            exported: exported.clone(),
            procedure: incoming.procedure,
            arguments,
            arrived: now,
            back: None,
            principal,
        }
    }

    /// Returns whether the receiving worker may execute the call itself. A call of an unknown procedure
    /// counts as quick, because the worker only sends a refusal. A call for an executor counts as quick too.
    pub(crate) fn is_quick(&self) -> bool {
        self.pace() == Pace::Quick
    }

    /// Returns whether the call is an access to memory.
    #[inline]
    pub(crate) fn is_access(&self) -> bool {
        self.procedure >= ACCESSES
    }

    /// Returns the number by which the worker pool tells callers' hosts apart, of a call that has come by the
    /// socket.
    #[inline(always)]
    pub(super) fn host(&self) -> u64 {
        HostName::at(&self.call.from).number()
    }

    /// Returns the same number of a queued call, which may have come through shared memory.
    pub(super) fn queued_host(&self) -> u64 {
        self.payer().number().get()
    }

    /// Returns how long the call is expected to take.
    #[inline(always)]
    pub(crate) fn pace(&self) -> Pace {
        if self.exported.elsewhere().is_some() {
            return Pace::Quick;
        }
        match self.which {
            Some(which) => self.exported.known(which).pace(),
            // It looks at all conversations, so the receiving worker must not execute it.
            None if self.procedure == builtin::CONVERSATIONS.number => Pace::Any,
            None => Pace::Quick,
        }
    }

    /// Returns the call's expected pace, and the usual length of its result in bytes, or 0 if results are not
    /// long.
    #[inline(always)]
    pub(super) fn outlook(&self) -> (Pace, usize) {
        (self.pace(), self.usual_result())
    }

    /// Returns whether the call is quick and its result is not long.
    pub(super) fn is_light(&self) -> bool {
        self.outlook() == (Pace::Quick, 0)
    }

    /// Returns the usual length of the call's result in bytes, or 0 if results are not long.
    #[inline]
    pub(super) fn usual_result(&self) -> usize {
        self.which.map_or(0, |which| self.exported.known(which).usual_result())
    }

    /// Returns whether signals or streams may pass inside the call.
    #[inline]
    pub(super) fn has_exchanges(&self) -> bool {
        self.which.is_some_and(|which| self.exported.known(which).facts.exchanges)
    }

    /// Gives the buffer of an executed call's arguments back to the protocol.
    #[inline]
    pub(super) fn give_room_back(&mut self, protocol: &mut proto::Server) {
        if let Arguments::Kept(bytes) = &mut self.arguments {
            protocol.recycle(std::mem::take(bytes));
        }
    }

    /// Copies the arguments out of the worker's buffer, which will be used again, or out of a buffer that the
    /// call shares, because that has many more bytes.
    pub(super) fn keep_arguments(&mut self, buffer: &[u8]) {
        self.arguments = Arguments::Kept(self.arguments.take(buffer));
    }

    /// Keeps the arguments by taking over the buffer, which holds nothing else.
    pub(crate) fn keep_all(&mut self, buffer: &mut Vec<u8>) {
        self.arguments = Arguments::Kept(std::mem::take(buffer));
    }

    /// Returns whether the arguments are still in the buffer of the worker that received them.
    pub(super) fn is_received(&self) -> bool {
        matches!(self.arguments, Arguments::Received(_))
    }

    /// Returns whether the arguments are in a buffer that the call shares with others.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.arguments, Arguments::Shared(..))
    }

    /// Keeps the arguments of one of many calls that came together. The calls share the received bytes
    /// without a copy, because they are executed soon.
    pub(super) fn share_arguments(&mut self, buffer: &SharedBuffer) {
        if let Arguments::Received(range) = &self.arguments {
            self.arguments = Arguments::Shared(buffer.clone(), range.clone());
        }
    }

    /// Records how long the call waited for a worker, now that it is executed.
    pub(super) fn waited(&self, now: Time) {
        if let Some(which) = self.which {
            self.exported.known(which).counters.queued.record(now.since(self.arrived));
        }
    }

    /// Returns the length of the arguments in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.arguments {
            Arguments::Received(range) | Arguments::Shared(_, range) => range.len(),
            Arguments::Kept(bytes) => bytes.len(),
        }
    }

    /// Gives the outcome to the connection through which the call came. If the call came by the socket,
    /// returns the outcome instead, for the protocol to send.
    #[inline]
    pub(super) fn give_back(&self, finish: Option<Finish>, reply: &mut Vec<u8>) -> Option<Finish> {
        let Some(back) = &self.back else { return finish };
        back.give_back(self.call.key, finish?, std::mem::take(reply));
        None
    }

    /// Runs the procedure. Its encoded result goes to `outlet`, and the part that `outlet` does not take goes
    /// to `reply`. `now` is the approximate time. If the exact time matters, reads the clock before and after
    /// the procedure, and updates `now`. Returns `None` if an executor runs the call and will give its
    /// outcome back.
    #[inline(always)]
    pub(crate) fn run(
        &mut self,
        server: &Arc<Server>,
        buffer: &[u8],
        reply: &mut Vec<u8>,
        now: &mut Time,
        mut outlet: Option<&mut dyn Outlet>,
    ) -> Option<Finish> {
        let known = self.which.map(|which| self.exported.known(which));
        let timed = known.is_some_and(|known| server.limits.slow.is_some() || known.is_timed());
        if timed || known.is_none() || self.call.deadline.is_some() {
            *now = server.now();
        }
        if self.call.deadline.is_some_and(|deadline| deadline <= *now) {
            return Some(Failure::new(Kind::Deadline, Ran::No).into());
        }
        if let Err(why) = self.exported.check_access(self.principal.as_deref(), self.which, self.procedure) {
            return Some(finish(Dispatched::Failed(why)));
        }
        if known.is_some() && self.exported.is_exclusive() {
            match self.exported.fence() {
                Some(fence) => self.call.fence = fence,
                None => return Some(finish(Dispatched::Failed(not_owned()))),
            }
        }
        if let (Some(spawn), Some(which)) = (self.exported.elsewhere(), self.which) {
            let arguments = self.arguments.take(buffer);
            return self.spawn(server, spawn, which, *now, arguments);
        }
        let arguments = match &self.arguments {
            Arguments::Received(range) => &buffer[range.clone()],
            Arguments::Shared(buffer, range) => &buffer[range.clone()],
            Arguments::Kept(bytes) => bytes,
        };
        reply.clear();
        let mut decoder = Decoder::new(arguments);
        let mut encoder = match &mut outlet {
            None => Encoder::new(reply),
            Some(outlet) => Encoder::with_spill(reply, &mut **outlet),
        };
        let dispatched = {
            let _serving = context::enter(self.call, self.principal.as_ref());
            let exported = &*self.exported;
            catch(|| exported.dispatch(self.which, self.procedure, *now, &mut decoder, &mut encoder))
        };
        let dispatched = match self.call.deadline {
            Some(_) => unless_late(&self.call, server.now(), dispatched),
            None => dispatched,
        };
        if let Some(known) = known {
            known.count(&dispatched, || server.given_up(&self.call));
            known.gave(encoder.offset());
            if timed {
                let end = server.now();
                // The time that `outlet` took for a long result is not the procedure's.
                let took = outlet.map_or(Duration::ZERO, |outlet| outlet.took());
                known.ran(end.since(*now).saturating_sub(took));
                if let Some(slow) = server.limits.slow {
                    self.log_if_slow(slow, known, end.since(*now), now.since(self.arrived));
                }
                *now = end;
            }
        }
        Some(finish(dispatched))
    }

    /// Gives the call to the export's executor as a future. Refuses the call if the executor has too many.
    fn spawn(
        &self,
        server: &Arc<Server>,
        spawn: &dyn Spawn,
        which: usize,
        now: Time,
        arguments: Vec<u8>,
    ) -> Option<Finish> {
        if self.exported.running() > server.limits.workers + server.limits.queue {
            let why = Failure::new(Kind::Overloaded, Ran::No).with_detail(format!(
                "the executor already has {} calls; the maximum is FARCALL_WORKERS plus FARCALL_QUEUE",
                self.exported.running() - 1
            ));
            return Some(why.into());
        }
        let (call, exported) = (self.call, self.exported.clone());
        // Making a future runs the user's code. A panic in it must not end this thread, which may be the
        // receiver.
        let future = match guard::run(|| match self.procedure == BATCH.number {
            true => {
                self.exported.begin_each(arguments, self.payer(), self.call.fence, self.principal.clone())
            }
            false => spawn.begin(self.procedure, arguments),
        }) {
            Ok(future) => future,
            Err(panic) => return Some(finish(Dispatched::Failed(panicked(panic)))),
        };
        let back = self.back.clone();
        let (server, future) = (server.clone(), Some(future));
        let serving = Serving {
            server,
            exported,
            which,
            call,
            principal: self.principal.clone(),
            since: now,
            begun: false,
            future,
            back,
            teller: Teller::Nothing,
        };
        // If `spawn` panics, it drops the task, and that drop answers the caller.
        guard::run_alone("an executor", || spawn.spawn(Box::pin(serving)));
        None
    }

    /// Writes a line to the slow-call log, if the call took that long.
    #[cold]
    fn log_if_slow(&self, slow: Duration, known: &Known, ran: Duration, queued: Duration) {
        if ran + queued >= slow {
            let (name, from) = (known.facts.name, self.call.from);
            say(format_args!("slow call of {name} from {from}: waited {queued:?} for a worker, ran {ran:?}"));
        }
    }
}
