//! A small executor: a few threads run any number of tasks. Each task binds, or repeats, one started call.
//!
//! A task that waits for a server blocks no thread. It continues when it is woken, or at its deadline. One
//! thread runs the steps of all tasks, and sleeps while no task is ready. If a step blocks, in a registry or
//! while two processes meet through shared memory, another thread runs the steps of the other tasks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcall_proto::SharedArguments;

use super::Inner;
use crate::client::over_budget;
use crate::env::{Env, Event, Time};
use crate::{CallFailed, Kind, Ran, guard, lock};

/// The most threads of a runtime's executor, and so the most tasks that may block at the same time.
const MAX_THREADS: usize = 256;

/// The most calls that are tasks at the same time.
const MAX_CALLS: usize = 16_384;

/// The tasks of a runtime.
pub(super) struct Tasks {
    state: Mutex<State>,
    /// Wakes the thread that waits for work.
    work: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<u64, Task>,
    /// The number of the latest task.
    last: u64,
    /// The tasks whose next step is to be run, in this order.
    ready: VecDeque<u64>,
    /// The deadlines at which tasks are woken.
    alarms: BTreeSet<(Time, u64)>,
    threads: usize,
    /// The number of threads that are blocked in a step.
    blocked: usize,
    /// Whether a thread waits for work.
    has_idle_thread: bool,
    calls: usize,
}

struct Task {
    turn: Turn,
    deadline: Option<Time>,
}

pub(super) type Steps = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of a task.
enum Turn {
    /// The task waits until it is woken.
    Waiting(Steps),
    /// The task is in [`State::ready`].
    Ready(Steps),
    /// A thread runs a step of the task. `woken` says whether the task was woken meanwhile.
    Running { woken: bool },
}

/// What a thread is to do next.
enum Next {
    Step(u64, Steps),
    /// Wait for work, at most until this time.
    Wait(Option<Time>),
    Exit,
}

impl Tasks {
    pub(super) fn new(env: &dyn Env) -> Tasks {
        Tasks { state: Mutex::default(), work: env.event() }
    }

    /// Starts a task that runs `steps`. Returns its waker. The next step is run whenever the task is woken,
    /// and at the deadline.
    ///
    /// # Errors
    /// When there is no thread and none can be started.
    pub(super) fn spawn(inner: &Arc<Inner>, deadline: Option<Time>, steps: Steps) -> io::Result<Waker> {
        let id = {
            let state = &mut *inner.tasks.lock();
            state.last += 1;
            state.tasks.insert(state.last, Task { turn: Turn::Ready(steps), deadline });
            state.ready.push_back(state.last);
            state.alarms.extend(deadline.map(|deadline| (deadline, state.last)));
            state.last
        };
        if let Err(why) = Tasks::staff(inner)
            && let Some(task) = inner.tasks.remove_without_thread(id)
        {
            drop(task);
            return Err(why);
        }
        Ok(waker(inner, id))
    }

    /// Starts a task that wakes another one at a time.
    ///
    /// # Errors
    /// Those of [`Tasks::spawn`].
    pub(super) fn wake_at(inner: &Arc<Inner>, time: Time, waker: Waker) -> io::Result<()> {
        let env = inner.env.clone();
        let due = poll_fn(move |_| if env.now() < time { Poll::Pending } else { Poll::Ready(()) });
        let steps = async move {
            due.await;
            waker.wake();
        };
        Tasks::spawn(inner, Some(time), Box::pin(steps)).map(drop)
    }

    /// Runs, in a step, code that may block. Another thread runs the other tasks meanwhile.
    pub(super) fn run_blocking<R>(inner: &Arc<Inner>, block: impl FnOnce() -> R) -> R {
        struct Blocked<'a>(&'a Tasks);
        impl Drop for Blocked<'_> {
            fn drop(&mut self) {
                self.0.lock().blocked -= 1;
            }
        }
        inner.tasks.lock().blocked += 1;
        let _blocked = Blocked(&inner.tasks);
        // If no thread can be started, the other tasks wait for this one.
        let _ = Tasks::staff(inner);
        block()
    }

    /// Makes sure that a thread runs the ready tasks: wakes the idle thread, or starts one if all threads are
    /// blocked.
    fn staff(inner: &Arc<Inner>) -> io::Result<()> {
        {
            let mut state = inner.tasks.lock();
            let (ready, due) = (!state.ready.is_empty(), !state.alarms.is_empty());
            if state.has_idle_thread {
                if ready {
                    inner.tasks.work.set();
                }
                return Ok(());
            }
            if !ready && !due || state.threads > state.blocked || state.threads == MAX_THREADS {
                return Ok(());
            }
            state.threads += 1;
        }
        let ours = inner.clone();
        let spawned = inner.env.spawn("farcall-rebind", Box::new(move || work(&ours)));
        spawned.inspect_err(|_| inner.tasks.lock().threads -= 1)
    }

    /// Removes a task if there is no thread that would run it.
    fn remove_without_thread(&self, id: u64) -> Option<Task> {
        let mut state = self.lock();
        if state.threads > 0 { None } else { state.remove(id) }
    }

    fn next(&self, now: Time) -> Next {
        let mut state = self.lock();
        while let Some(&(_, id)) = state.alarms.first().filter(|(when, _)| *when <= now) {
            state.alarms.pop_first();
            state.wake(id);
        }
        while let Some(id) = state.ready.pop_front() {
            let Some(task) = state.tasks.get_mut(&id) else { continue };
            if let Turn::Ready(steps) = mem::replace(&mut task.turn, Turn::Running { woken: false }) {
                return Next::Step(id, steps);
            }
        }
        if state.has_idle_thread || state.tasks.is_empty() {
            state.threads -= 1;
            return Next::Exit;
        }
        state.has_idle_thread = true;
        Next::Wait(state.alarms.first().map(|(when, _)| *when))
    }

    /// Waits for work. Afterwards no thread counts as idle, even if this one is unwound, so that another
    /// thread can wait for work.
    fn wait_for_work(&self, time: Option<Duration>) {
        struct Idle<'a>(&'a Tasks);
        impl Drop for Idle<'_> {
            fn drop(&mut self) {
                self.0.lock().has_idle_thread = false;
            }
        }
        let _idle = Idle(self);
        self.work.wait(time);
    }

    /// Stores the rest of a task after a step.
    fn put_back(&self, id: u64, steps: Steps) {
        let state = &mut *self.lock();
        let Some(task) = state.tasks.get_mut(&id) else { return };
        let woken = matches!(task.turn, Turn::Running { woken: true });
        task.turn = Turn::Waiting(steps);
        if woken {
            state.wake(id);
        }
    }

    fn remove(&self, id: u64) {
        let mut state = self.lock();
        state.remove(id);
        if state.has_idle_thread && state.tasks.is_empty() {
            self.work.set();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Wakes a task. Returns whether the task became ready, so that a thread must run it.
    fn wake(&mut self, id: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&id) else { return false };
        match mem::replace(&mut task.turn, Turn::Running { woken: true }) {
            Turn::Waiting(steps) => {
                task.turn = Turn::Ready(steps);
                self.ready.push_back(id);
                return true;
            }
            ready @ Turn::Ready(_) => task.turn = ready,
            Turn::Running { .. } => {}
        }
        false
    }

    fn remove(&mut self, id: u64) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(deadline) = task.deadline {
            self.alarms.remove(&(deadline, id));
        }
        Some(task)
    }
}

/// Runs tasks until there are none, or until there is nothing to do and another thread waits for work.
fn work(inner: &Arc<Inner>) {
    let mut unwind_guard = UnwindGuard(Some(&inner.tasks));
    loop {
        match inner.tasks.next(inner.env.now()) {
            Next::Step(id, steps) => step(inner, id, steps),
            Next::Wait(until) => {
                inner.tasks.wait_for_work(until.map(|until| until.since(inner.env.now())));
            }
            Next::Exit => break,
        }
    }
    unwind_guard.0 = None;
}

fn step(inner: &Arc<Inner>, id: u64, mut steps: Steps) {
    let waker = waker(inner, id);
    let go = || steps.as_mut().poll(&mut Context::from_waker(&waker));
    // The user's registry may panic, and so may the drop of the steps. That drop also tells the waiting
    // callers that the task has ended.
    match guard::run(go) {
        Ok(Poll::Pending) => inner.tasks.put_back(id, steps),
        Ok(Poll::Ready(())) | Err(_) => {
            let _ = guard::run(|| drop(steps));
            inner.tasks.remove(id);
        }
    }
}

/// Drops all tasks if the last thread is unwound, as in a simulated process that was killed. The tasks must
/// be dropped because they keep the runtime alive.
struct UnwindGuard<'a>(Option<&'a Tasks>);

impl Drop for UnwindGuard<'_> {
    fn drop(&mut self) {
        let Some(tasks) = self.0 else { return };
        let left = {
            let mut state = tasks.lock();
            state.threads -= 1;
            if state.threads > 0 {
                return;
            }
            mem::take(&mut *state)
        };
        drop(left);
    }
}

struct TaskWaker {
    inner: Weak<Inner>,
    id: u64,
}

fn waker(inner: &Arc<Inner>, id: u64) -> Waker {
    Waker::from(Arc::new(TaskWaker { inner: Arc::downgrade(inner), id }))
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else { return };
        let became_ready = inner.tasks.lock().wake(self.id);
        if became_ready {
            // If no thread can be started, a blocked thread runs the task when it returns.
            let _ = Tasks::staff(&inner);
        }
    }
}

/// The calls of one import that are tasks.
#[derive(Debug, Default)]
pub(super) struct TaskLoad {
    calls: AtomicUsize,
    /// The bytes of their arguments.
    bytes: AtomicUsize,
}

/// A place among the [`MAX_CALLS`] calls that are tasks, with the bytes of the call's arguments.
pub(super) struct Reservation {
    inner: Arc<Inner>,
    load: Arc<TaskLoad>,
    bytes: usize,
}

impl Reservation {
    /// Reserves a place for a call of an import. The calls of an import may take as many places, and as many
    /// bytes, as these calls then leave free. So imports whose server does not answer leave a share to every
    /// other one. The only call of an import always has a place.
    ///
    /// # Errors
    /// When there are too many calls, or too many bytes of arguments.
    pub(super) fn take(
        inner: &Arc<Inner>,
        load: &Arc<TaskLoad>,
        arguments: &SharedArguments,
    ) -> Result<Reservation, CallFailed> {
        let mut state = inner.tasks.lock();
        let (calls, held) = (load.calls.load(Ordering::Relaxed), load.bytes.load(Ordering::Relaxed));
        if calls > 0 && calls + 1 > MAX_CALLS.saturating_sub(state.calls + 1) {
            let why = format!("{} started calls wait to be bound, {calls} of them to this name", state.calls);
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
        }
        let bytes = arguments.bytes().len();
        if !inner.settings.arguments.admits(held, bytes, Some(arguments)) {
            return Err(over_budget(&inner.settings.arguments, held));
        }
        arguments.count_in(&inner.settings.arguments);
        state.calls += 1;
        load.calls.store(calls + 1, Ordering::Relaxed);
        load.bytes.store(held + bytes, Ordering::Relaxed);
        Ok(Reservation { inner: inner.clone(), load: load.clone(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.inner.tasks.lock();
        state.calls = state.calls.saturating_sub(1);
        self.load.calls.fetch_sub(1, Ordering::Relaxed);
        self.load.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn an_import_may_have_as_many_calls_and_bytes_as_are_free_and_always_one() {
        let Runtime(inner) = Runtime::builder().registry(farcall_names::Memory::new()).build().unwrap();
        let [one, other] = [(); 2].map(|()| Arc::new(TaskLoad::default()));
        let long = |len| SharedArguments::new(vec![0; len]);
        let half = long(inner.settings.arguments.limit() / 2);
        let only = Reservation::take(&inner, &one, &half).expect("the only call may have any arguments");
        let why = Reservation::take(&inner, &one, &long(64 << 10)).err().expect("the bound is reached");
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
        assert!(why.to_string().contains("keep"), "{why}");
        drop(Reservation::take(&inner, &one, &long(0)).expect("short arguments are bounded by number"));
        drop(Reservation::take(&inner, &other, &half).expect("the other import shares them"));
        drop((only, half));
        assert_eq!(inner.settings.arguments.used(), 0);
        let none = long(0);
        let take = |load: &Arc<TaskLoad>| -> Vec<Reservation> {
            std::iter::repeat_with(|| Reservation::take(&inner, load, &none)).map_while(Result::ok).collect()
        };
        let (hung, rest) = (take(&one), take(&other));
        assert_eq!((hung.len(), rest.len()), (MAX_CALLS / 2, MAX_CALLS / 4));
        drop((hung, rest));
        let calls = [&one, &other].map(|load| load.calls.load(Ordering::Relaxed));
        assert_eq!((inner.tasks.lock().calls, calls), (0, [0, 0]));
    }

    /// A task of one step, which panics when it is dropped.
    struct Panics(std::sync::mpsc::Receiver<()>);

    impl Future for Panics {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            let _ = self.0.recv();
            Poll::Ready(())
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }

    #[test]
    fn a_task_that_panics_when_it_is_dropped_is_gone_and_the_others_are_not() {
        let Runtime(inner) = Runtime::builder().registry(farcall_names::Memory::new()).build().unwrap();
        let (go, wait) = std::sync::mpsc::channel();
        let (told, tells) = std::sync::mpsc::channel();
        Tasks::spawn(&inner, None, Box::pin(Panics(wait))).unwrap();
        let ours = inner.clone();
        let other =
            async move { told.send(Vec::from_iter(ours.tasks.lock().tasks.keys().copied())).unwrap() };
        Tasks::spawn(&inner, None, Box::pin(other)).unwrap();
        go.send(()).unwrap();
        assert_eq!(tells.recv().expect("the other task goes on"), [2]);
    }

    /// An event that unwinds each thread that waits for it.
    struct Unwinds;

    impl Event for Unwinds {
        fn wait(&self, _: Option<Duration>) -> bool {
            panic!("as the test wants it");
        }

        fn set(&self) {}
    }

    #[test]
    fn a_thread_that_is_unwound_while_it_waits_for_work_is_idle_no_more() {
        let tasks = Tasks { state: Mutex::default(), work: Arc::new(Unwinds) };
        tasks.lock().has_idle_thread = true;
        assert!(guard::run(|| tasks.wait_for_work(None)).is_err());
        assert!(!tasks.lock().has_idle_thread);
    }
}
