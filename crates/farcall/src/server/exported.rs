//! One exported interface: what executes its calls, the memory that is exported with it, its counters, and
//! how long its procedures take.

use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::executor::{Dispatch, Executor, Spawn};
use super::oneway_orders::Orders;
use crate::builtin::Shown;
use crate::env::{Env, Event, Time};
use crate::host::Host;
use crate::keys::{Access, What};
use crate::stats::{self, Counters};
use crate::stub::{AsyncDispatched, BATCH, Dispatched, Procedure, execute_each, execute_each_later};
use crate::workers::{Pace, UsualTime};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Principal, Ran, builtin, guard, idl, lock};
use farcall_memory::{AccessHandler, Accessor};
use farcall_names::{Ownership, Registration};
use farcall_proto::{ACCESSES, READINGS};

/// An exported interface.
pub(crate) struct Exported {
    pub(crate) id: u64,
    env: Arc<dyn Env>,
    executor: Executor,
    /// What keeps the export's name in the registry.
    listed: Mutex<Option<Registration>>,
    /// If the export is exclusive, the ownership of its name, once it is published.
    exclusive: Option<OnceLock<Ownership>>,
    /// Executes accesses to the memory that is exported beside the interface.
    memory: Option<Arc<dyn AccessHandler>>,
    /// How often that memory was accessed.
    accessed: AtomicU64,
    /// Decides which clients may do what, if this server has keys.
    access: Option<Access>,
    /// What is shown besides counters to clients that ask for it.
    shown: Option<Shown>,
    /// The description of the interface, for clients that ask for it.
    described: Option<&'static idl::Interface>,
    since: Time,
    procedures: Box<[Known]>,
    /// The orders of one-way calls.
    orders: Arc<Orders>,
    /// Calls that execute or are queued.
    running: AtomicUsize,
    /// Whether a thread waits for `idle`.
    ///
    /// SeqCst: the thread that waits writes this and then reads `running`; a thread that ends a call writes
    /// `running` and then reads this. At least one of them sees what the other wrote.
    draining: AtomicBool,
    /// Set when `running` falls to zero while draining.
    idle: Arc<dyn Event>,
}

/// The exports, sorted by identifier, because each call looks up its export.
#[derive(Clone, Default)]
pub(super) struct Exports(Vec<Arc<Exported>>);

impl Exports {
    pub(super) fn add(&mut self, exported: Arc<Exported>) {
        if let Err(place) = self.place(exported.id) {
            self.0.insert(place, exported);
        }
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Ok(place) = self.place(id) {
            self.0.remove(place);
        }
    }

    #[inline(always)]
    pub(super) fn find(&self, id: u64) -> Option<&Arc<Exported>> {
        self.0.get(self.place(id).ok()?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Exported>> {
        self.0.iter()
    }

    #[inline(always)]
    fn place(&self, id: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |exported| exported.id)
    }
}

/// What the server knows about a procedure: its declaration, its usual running time, and its counters.
pub(super) struct Known {
    pub(super) facts: Procedure,
    usual_time: UsualTime,
    /// The length of the last result in bytes, if that was long; otherwise 0.
    result: AtomicUsize,
    pub(super) counters: Counters,
}

/// A procedure is quick if its usual running time is below this, which is about the time that it takes to
/// wake another thread.
const QUICK: Duration = Duration::from_micros(30);

impl Known {
    /// Returns the length of the last result in bytes if that was long, and otherwise 0.
    #[inline]
    pub(super) fn usual_result(&self) -> usize {
        self.result.load(Ordering::Relaxed)
    }

    /// Notes that a result had `len` bytes.
    #[inline]
    pub(super) fn gave(&self, len: usize) {
        const LONG_RESULT_BYTES: usize = 16 << 10;
        if len > LONG_RESULT_BYTES || self.usual_result() > 0 {
            self.result.store(if len > LONG_RESULT_BYTES { len } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Returns how long the procedure is expected to take.
    #[inline]
    pub(super) fn pace(&self) -> Pace {
        match self.is_quick() {
            true => Pace::Quick,
            false if self.facts.blocking => Pace::Blocking,
            false => Pace::Any,
        }
    }

    /// Returns whether the receiving worker may execute the procedure itself.
    #[inline]
    pub(super) fn is_quick(&self) -> bool {
        !self.facts.blocking && self.usual_time.is_quick()
    }

    /// Returns whether to time the call that begins now.
    #[inline]
    pub(super) fn is_timed(&self) -> bool {
        self.usual_time.is_timed(self.counters.results.load(Ordering::Relaxed)) || self.facts.blocking
    }

    /// Counts the end of a call of this procedure. `given_up` says why its caller takes no result any more,
    /// if it does not.
    #[inline]
    pub(super) fn count(&self, dispatched: &Dispatched, given_up: impl FnOnce() -> Option<Kind>) {
        let counter = match dispatched {
            Dispatched::Result => &self.counters.results,
            Dispatched::Exception => &self.counters.exceptions,
            failed => self.failure_counter(failed, given_up),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A procedure that was told that its call is given up may fail by the word of whatever it was doing.
    #[cold]
    fn failure_counter(&self, failed: &Dispatched, given_up: impl FnOnce() -> Option<Kind>) -> &AtomicU64 {
        let Dispatched::Failed(why) = failed else { return &self.counters.failures };
        let kind = match why.kind() {
            kind @ (Kind::Nested | Kind::Other | Kind::Cancelled) => given_up().unwrap_or(kind),
            kind => kind,
        };
        match kind {
            Kind::Cancelled => &self.counters.cancelled,
            Kind::Deadline => &self.counters.late,
            _ => &self.counters.failures,
        }
    }

    /// Notes how long a run took.
    pub(super) fn ran(&self, time: Duration) {
        self.counters.ran.record(time);
        self.usual_time.ran(time);
    }
}

/// Returns the refusal of a call of an exclusive export that may have another owner by now.
#[cold]
pub(super) fn not_owned() -> CallFailed {
    let why = "the exporter's lease of the name has ended, and another process may own the name";
    CallFailed::new(Kind::NotExported, Ran::No).because(why)
}

impl Exported {
    pub(crate) fn new(
        id: u64,
        (procedures, has_oneway): (&[Procedure], bool),
        described: Option<&'static idl::Interface>,
        executor: Executor,
        env: &Arc<dyn Env>,
    ) -> Exported {
        let blocking = procedures.iter().any(|procedure| procedure.blocking);
        let batch = has_oneway.then_some(Procedure { blocking, ..BATCH });
        let known = |facts: &Procedure| Known {
            facts: *facts,
            usual_time: UsualTime::new(QUICK),
            result: AtomicUsize::new(0),
            counters: Counters::default(),
        };
        Exported {
            id,
            env: env.clone(),
            executor,
            exclusive: None,
            memory: None,
            access: None,
            accessed: AtomicU64::new(0),
            shown: None,
            described,
            since: env.now(),
            procedures: procedures.iter().chain(&batch).map(known).collect(),
            orders: Orders::new(env),
            running: AtomicUsize::new(0),
            listed: Mutex::new(None),
            draining: AtomicBool::new(false),
            idle: env.event(),
        }
    }

    /// Makes the export offer memory too.
    pub(crate) fn with_memory(mut self, handler: Option<Arc<dyn AccessHandler>>) -> Exported {
        self.memory = handler;
        self
    }

    /// Makes the export ask who may do what.
    pub(crate) fn with_access(mut self, access: Option<Access>) -> Exported {
        self.access = access;
        self
    }

    /// Returns an error if a client may not call a procedure, `which` is its index if it is of the interface.
    #[inline]
    pub(super) fn check_access(
        &self,
        principal: Option<&Principal>,
        which: Option<usize>,
        number: u32,
    ) -> Result<(), CallFailed> {
        match &self.access {
            None => Ok(()),
            Some(access) => self.check_by(access, principal, which, number),
        }
    }

    #[inline(never)]
    fn check_by(
        &self,
        access: &Access,
        principal: Option<&Principal>,
        which: Option<usize>,
        number: u32,
    ) -> Result<(), CallFailed> {
        let what = match which {
            // Each call of a batch is asked for when it begins.
            Some(_) if number == BATCH.number => return Ok(()),
            Some(which) => What::Procedure(self.known(which).facts.name),
            None if number == READINGS => What::Read,
            None if number >= READINGS => What::Facts,
            None if number >= ACCESSES => What::Write,
            None if number == builtin::HEALTH.number => What::Health,
            None => What::Describe,
        };
        access.check(principal, what)
    }

    /// Returns whether a client of the same user may map the export's memory, to read it, or to write it too:
    /// whether the policy and the segment allow it.
    pub(super) fn may_map(&self, principal: Option<&Arc<Principal>>, writes: bool) -> bool {
        let by = Accessor { same_user: true, principal: principal.cloned(), ..Accessor::default() };
        let is_allowed = |what| {
            self.access.as_ref().is_none_or(|access| access.check(by.principal.as_deref(), what).is_ok())
        };
        is_allowed(What::Read)
            && (!writes || is_allowed(What::Write))
            && self.memory.as_ref().is_some_and(|memory| memory.may_map(&by, writes))
    }

    /// Makes the export admit calls only while this process owns its name.
    pub(crate) fn exclusively(mut self, exclusive: bool) -> Exported {
        self.exclusive = exclusive.then(OnceLock::new);
        self
    }

    /// Notes that the export is published, and until when this process owns its name.
    pub(crate) fn owned(&self, ownership: &Ownership) {
        if let Some(exclusive) = &self.exclusive {
            let _ = exclusive.set(ownership.clone());
        }
    }

    #[inline(always)]
    pub(crate) fn is_exclusive(&self) -> bool {
        self.exclusive.is_some()
    }

    /// Returns the fence of an exclusive export, if this process surely owns its name now.
    pub(crate) fn fence(&self) -> Option<u64> {
        self.exclusive.as_ref()?.get()?.fence()
    }

    /// Makes the export show balancers and conversations.
    pub(super) fn with_shown(mut self, shown: Shown) -> Exported {
        self.shown = Some(shown);
        self
    }

    /// Returns the memory that is exported beside the interface.
    #[inline]
    pub(super) fn memory(&self) -> Option<&dyn AccessHandler> {
        self.memory.as_deref()
    }

    /// Counts an access to the export's memory.
    #[inline]
    pub(super) fn count_access(&self) {
        self.accessed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the index of the procedure with this number. Numbers mostly begin at 1 and have no gaps.
    pub(super) fn procedure(&self, number: u32) -> Option<usize> {
        let guess = number.wrapping_sub(1) as usize;
        if self.procedures.get(guess).is_some_and(|known| known.facts.number == number) {
            return Some(guess);
        }
        self.procedures.iter().position(|known| known.facts.number == number)
    }

    /// Returns the export's counters under the export's `name`.
    pub(super) fn stats(&self, name: String) -> stats::Export {
        let procedures = self.procedures.iter().map(|known| known.counters.snapshot(known.facts.name));
        let (running, accesses) =
            (self.running.load(Ordering::Relaxed), self.accessed.load(Ordering::Relaxed));
        let answered_by_kernel = self.memory.as_ref().and_then(|memory| memory.answered_by_kernel());
        let procedures = procedures.collect();
        stats::Export { id: self.id, name, procedures, running, accesses, answered_by_kernel }
    }

    #[inline]
    pub(super) fn known(&self, which: usize) -> &Known {
        &self.procedures[which]
    }

    /// Checks that a call that was admitted under a fence may still begin. It has waited since then.
    pub(super) fn check_admits(&self, fence: u64) -> Result<(), CallFailed> {
        match self.is_exclusive() && self.fence() != Some(fence) {
            true => Err(not_owned()),
            false => Ok(()),
        }
    }

    /// Executes a call. `which` is the index of the procedure, if the interface has a procedure with this
    /// number.
    #[inline]
    pub(super) fn dispatch(
        &self,
        which: Option<usize>,
        number: u32,
        now: Time,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched {
        match (which, &self.executor) {
            (Some(_), Executor::Here(server)) if number == BATCH.number => {
                self.dispatch_each(&**server, arguments)
            }
            (Some(_), Executor::Here(server)) => server.dispatch(number, arguments, reply),
            _ => self.dispatch_other(number, now, arguments, reply),
        }
    }

    /// Executes a batch of one-way calls.
    #[inline(never)]
    fn dispatch_each(&self, server: &dyn Dispatch, batch: &mut Decoder<'_>) -> Dispatched {
        let fence = crate::context().fence().unwrap_or(0);
        let principal = self.access.as_ref().and_then(|_| crate::context().principal());
        let dispatch = |number, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>| match self.check_access(
            principal.as_deref(),
            self.procedure(number),
            number,
        ) {
            Ok(()) => server.dispatch(number, arguments, reply),
            Err(why) => Dispatched::Failed(why),
        };
        // Calls through shared memory are of this user.
        let caller = crate::context().caller().filter(|_| !crate::context::is_same_user());
        let host = Host::of(caller, None);
        let begin = |place| {
            let turn = self.orders.begin(place, host)?;
            self.check_admits(fence).map(|()| turn)
        };
        execute_each(batch, begin, dispatch, |number, dispatched| self.count_oneway(number, &dispatched))
    }

    /// Makes the future that executes a batch of one-way calls of a client at a host in the executor of the
    /// export.
    pub(super) fn begin_each(
        self: &Arc<Self>,
        batch: Vec<u8>,
        host: Host,
        fence: u64,
        principal: Option<Arc<Principal>>,
    ) -> AsyncDispatched {
        let (executing, counting) = (self.clone(), self.clone());
        let (orders, owning) = (self.orders.clone(), self.clone());
        let start = move |number, arguments| match executing.elsewhere() {
            _ if let Err(why) =
                executing.check_access(principal.as_deref(), executing.procedure(number), number) =>
            {
                Box::pin(ready((Dispatched::Failed(why), Vec::new())))
            }
            Some(spawn) => spawn.begin(number, arguments),
            // Only an export that has an executor executes batches as futures.
            None => Box::pin(ready((Dispatched::NoSuchProcedure, Vec::new()))),
        };
        execute_each_later(
            batch,
            move |place| async move {
                let turn = orders.begin_later(place, host).await?;
                owning.check_admits(fence).map(|()| turn)
            },
            start,
            move |number, dispatched| {
                counting.count_oneway(number, &dispatched);
            },
        )
    }

    /// Counts the end of a one-way call. Only this counter shows how such a call ended.
    fn count_oneway(&self, number: u32, dispatched: &Dispatched) {
        if let Some(which) = self.procedure(number) {
            self.known(which).count(dispatched, || None);
        }
    }

    /// Executes a call of a procedure that the interface does not declare: an access to memory, or a
    /// procedure that every export has.
    #[inline(never)]
    fn dispatch_other(
        &self,
        number: u32,
        now: Time,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched {
        if number >= farcall_proto::ACCESSES
            && let Some(memory) = self.memory()
        {
            self.count_access();
            let call = crate::context();
            let (from, principal) = (call.caller(), call.principal());
            let same_user = crate::context::is_same_user();
            let mut by = Accessor { from, same_user, principal, ..Accessor::default() };
            let ended = memory.access(&mut by, number, arguments, reply);
            by.wake();
            return ended;
        }
        let shown = self.shown.as_ref().map(|shown| (shown, self.sees_only_own()));
        builtin::dispatch(number, self.described, shown, || self.health(now), arguments, reply)
    }

    /// Returns the key of the client that calls, if it may see its own conversations only.
    #[cold]
    fn sees_only_own(&self) -> Option<[u8; 32]> {
        let (access, call) = (self.access.as_ref()?, crate::context());
        let principal = call.principal();
        let may_see_others = access.check(principal.as_deref(), What::Others).is_ok();
        // Nobody has the key that stands for a caller without one.
        (!may_see_others).then(|| principal.map_or([0; 32], |principal| principal.key))
    }

    fn health(&self, now: Time) -> builtin::Health {
        let running = u32::try_from(self.running.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
        builtin::Health { up: now.since(self.since), running }
    }

    /// Returns the executor of the export's calls, if workers do not execute them.
    #[inline]
    pub(crate) fn elsewhere(&self) -> Option<&dyn Spawn> {
        match &self.executor {
            Executor::Here(_) | Executor::Gone => None,
            Executor::Elsewhere(spawn) => Some(&**spawn),
        }
    }

    /// Returns the number of calls that execute or are queued.
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 && self.draining.load(Ordering::SeqCst) {
            self.idle.set();
        }
    }

    /// Keeps the export's name in the registry until [`Exported::unlist`].
    pub(crate) fn list(&self, registration: Registration) {
        *lock(&self.listed) = Some(registration);
    }

    /// Takes the export's name out of the registry.
    pub(crate) fn unlist(&self) {
        let registration = lock(&self.listed).take();
        drop(registration);
    }

    /// Waits until no call executes or is queued, but at most `time`. Returns whether none does.
    pub(crate) fn wait_idle(&self, env: &dyn Env, time: Duration) -> bool {
        let end = env.now() + time;
        self.draining.store(true, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) > 0 {
            let left = end.since(env.now());
            if left.is_zero() {
                return false;
            }
            self.idle.wait(Some(left));
        }
        // An event wakes one thread, but several threads may wait for `idle`. So each thread that was woken
        // wakes the next.
        self.idle.set();
        true
    }
}

/// Drops the user's server. That drop may panic or block, so a new thread runs it.
impl Drop for Exported {
    fn drop(&mut self) {
        let executor = std::mem::replace(&mut self.executor, Executor::Gone);
        let drop_it = || guard::run_alone("the drop of a server", || drop(executor));
        if !crate::serving::is_in_pool() {
            return drop_it();
        }
        // If no thread can be started, `spawn` drops the closure, and with it the server, here.
        guard::run_alone("the drop of a server", || drop(self.env.spawn("farcall-drop", Box::new(drop_it))));
    }
}
