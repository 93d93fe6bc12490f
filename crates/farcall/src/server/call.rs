//! A call that is to be executed: what is known of it, where its arguments stand.

use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use farcall_proto::server::{self as proto, Finish, HostName, Incoming};
use farcall_proto::{Failure, Kind, Ran, Time};

use super::Server;
use super::executor::Spawn;
use super::exported::{Exported, Known};
use super::finish::{finish, unless_late};
use super::reply_to::{Back, Outlet};
use super::task::Serving;
use crate::context;
use crate::env::place;
use crate::guard;
use crate::stub::{Dispatched, catch, panicked};
use crate::workers::Pace;
use crate::xdr::{Decoder, Encoder};

/// A call that is to be executed.
pub(crate) struct Work {
    pub(crate) call: context::Incoming,
    pub(crate) exported: Arc<Exported>,
    procedure: u32,
    /// The procedure's place in the interface, if it has one of that number.
    which: Option<usize>,
    arguments: Arguments,
    /// When it came.
    arrived: Time,
    /// Who gets the outcome, if the call did not come by the socket.
    pub(crate) back: Option<Arc<dyn Back>>,
}

/// The datagrams that came together.
pub(super) type Train = Arc<Box<[u8]>>;

enum Arguments {
    /// Where they stand in the buffer of the worker that received them.
    Received(Range<usize>),
    /// Where they stand in the bytes of a datagram batch, which its calls share: the worker's buffer, or a
    /// copy of it.
    Shared(Train, Range<usize>),
    Kept(Vec<u8>),
}

impl Work {
    /// A call that came in `datagram`, which begins at `start` of the worker's buffer.
    #[inline(always)]
    pub(super) fn new(
        now: Time,
        from: &SocketAddr,
        incoming: Incoming<'_>,
        exported: &Arc<Exported>,
        datagram: &[u8],
        start: usize,
    ) -> Work {
        exported.begin();
        let arguments = match place(datagram, &incoming.args) {
            Some(place) => Arguments::Received(start + place.start..start + place.end),
            None => Arguments::Kept(incoming.args.into_owned()),
        };
        let Incoming { key, deadline, trace, .. } = incoming;
        Work {
            call: context::Incoming { key, from: *from, deadline, trace, same_user: false },
            which: exported.procedure(incoming.procedure),
            exported: exported.clone(),
            procedure: incoming.procedure,
            arguments,
            arrived: now,
            back: None,
        }
    }

    /// Whether the receiver may execute it itself. To say that there is no such
    /// procedure is quick, and so is to have it executed elsewhere.
    pub(crate) fn is_quick(&self) -> bool {
        self.pace() == Pace::Quick
    }

    /// The number by which the pool knows the host that the call comes from. For a call through shared memory
    /// that is this machine.
    #[inline(always)]
    pub(super) fn host(&self) -> u64 {
        HostName::at(&self.call.from).number()
    }

    /// What is known of how long it takes.
    #[inline(always)]
    pub(crate) fn pace(&self) -> Pace {
        if self.exported.elsewhere().is_some() {
            return Pace::Quick;
        }
        self.which.map_or(Pace::Quick, |which| self.exported.known(which).pace())
    }

    /// The pace that is known of the call, and the usual length of its result in bytes: 0 if that is not
    /// long.
    #[inline(always)]
    pub(super) fn outlook(&self) -> (Pace, usize) {
        (self.pace(), self.usual_result())
    }

    /// Whether it is quick, and its result is not long.
    pub(super) fn is_light(&self) -> bool {
        self.outlook() == (Pace::Quick, 0)
    }

    /// How long its result will be, if that is long.
    #[inline]
    pub(super) fn usual_result(&self) -> usize {
        self.which.map_or(0, |which| self.exported.known(which).usual_result())
    }

    /// It was executed. Gives the room of its arguments back.
    #[inline]
    pub(super) fn give_room_back(&mut self, protocol: &mut proto::Server) {
        if let Arguments::Kept(bytes) = &mut self.arguments {
            protocol.recycle(std::mem::take(bytes));
        }
    }

    /// Takes the arguments out of the buffer, which will be used again.
    pub(super) fn keep_arguments(&mut self, buffer: &[u8]) {
        if let Arguments::Received(range) = &self.arguments {
            self.arguments = Arguments::Kept(buffer[range.clone()].to_vec());
        }
    }

    /// Keeps the arguments by taking over the buffer, which holds nothing else.
    pub(crate) fn keep_all(&mut self, buffer: &mut Vec<u8>) {
        self.arguments = Arguments::Kept(std::mem::take(buffer));
    }

    /// Whether its arguments still stand in the buffer of the worker that received them.
    pub(super) fn is_received(&self) -> bool {
        matches!(self.arguments, Arguments::Received(_))
    }

    /// Whether its arguments stand in a buffer that it shares with calls which came with it.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.arguments, Arguments::Shared(..))
    }

    /// Keeps the arguments of one of many calls that came together. The calls share the received bytes
    /// without a copy, because their turn comes soon. Their outcomes share datagrams.
    pub(super) fn share_arguments(&mut self, train: &Train) {
        if let Arguments::Received(range) = &self.arguments {
            self.arguments = Arguments::Shared(train.clone(), range.clone());
        }
    }

    /// It is to wait for a worker, from now on.
    pub(crate) fn waits(&mut self, now: Time) {
        self.arrived = now;
    }

    /// Since when it has waited.
    pub(super) fn arrived(&self) -> Time {
        self.arrived
    }

    /// It waited for a worker, and is executed now.
    pub(super) fn waited(&self, now: Time) {
        if let Some(which) = self.which {
            self.exported.known(which).counters.queued.record(now.since(self.arrived));
        }
    }

    /// What it costs to keep, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.arguments {
            Arguments::Received(range) | Arguments::Shared(_, range) => range.len(),
            Arguments::Kept(bytes) => bytes.len(),
        }
    }

    /// Gives the outcome to whoever handed the call in. What is left is an outcome for the protocol.
    #[inline]
    pub(super) fn give_back(&self, finish: Option<Finish>, reply: &mut Vec<u8>) -> Option<Finish> {
        let Some(back) = &self.back else { return finish };
        back.give_back(self.call.key, finish?, std::mem::take(reply));
        None
    }

    /// Runs the procedure. The reply stands in `reply`, behind what the outlet takes. `now` is about the
    /// time; it is looked up, here and when the procedure has ended, if that matters. `None` says that it is
    /// executed elsewhere, and given back from there.
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
        let arguments = match &self.arguments {
            Arguments::Received(range) => &buffer[range.clone()],
            Arguments::Shared(train, range) => &train[range.clone()],
            Arguments::Kept(bytes) => bytes,
        };
        if let (Some(spawn), Some(which)) = (self.exported.elsewhere(), self.which) {
            return self.spawn(server, spawn, which, *now, arguments.to_vec());
        }
        reply.clear();
        let mut decoder = Decoder::new(arguments);
        let mut encoder = match &mut outlet {
            None => Encoder::new(reply),
            Some(outlet) => Encoder::with_spill(reply, &mut **outlet),
        };
        let dispatched = {
            let _serving = context::enter(self.call);
            let exported = &*self.exported;
            catch(|| exported.dispatch(self.which, self.procedure, *now, &mut decoder, &mut encoder))
        };
        if let Some(known) = known {
            known.count(&dispatched);
            known.gave(encoder.offset());
            if timed {
                let end = server.now();
                // To hand a long result on is no reason to have another thread do it.
                let took = outlet.map_or(Duration::ZERO, |outlet| outlet.took());
                known.ran(end.since(*now).saturating_sub(took));
                if let Some(slow) = server.limits.slow {
                    self.log_if_slow(slow, known, end.since(*now), now.since(self.arrived));
                }
                *now = end;
            }
        }
        if self.call.deadline.is_some() {
            return Some(finish(unless_late(&self.call, server.now(), dispatched)));
        }
        Some(finish(dispatched))
    }

    /// Has the call executed as a future, unless too many are.
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
                "the executor has {} calls (FARCALL_WORKERS and FARCALL_QUEUE, together)",
                self.exported.running() - 1
            ));
            return Some(why.into());
        }
        let (call, exported) = (self.call, self.exported.clone());
        // What makes and executes futures is the user's, and this thread may be the one that receives.
        let future = match guard::run(|| spawn.begin(self.procedure, arguments)) {
            Ok(future) => future,
            Err(panic) => return Some(finish(Dispatched::Failed(panicked(panic)))),
        };
        let back = self.back.clone();
        let (server, future) = (server.clone(), Some(future));
        let serving = Serving { server, exported, which, call, since: now, future, back, notice: None };
        // If this panics, the task has been dropped, and its caller told.
        guard::run_alone("an executor", || spawn.spawn(Box::pin(serving)));
        None
    }

    /// The slow-call log.
    #[cold]
    fn log_if_slow(&self, slow: Duration, known: &Known, ran: Duration, queued: Duration) {
        if ran + queued >= slow {
            let (name, from) = (known.name(), self.call.from);
            let line = format!(
                "farcall: slow call of {name} from {from}: waited {queued:?} for a worker, ran {ran:?}"
            );
            // Not by `eprintln`, which panics when nobody reads.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}
