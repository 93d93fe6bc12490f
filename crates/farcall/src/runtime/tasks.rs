//! What started calls wait for before they can leave: steps that a few threads make, however many calls there
//! are.
//!
//! A task that waits for a server has no thread: it goes on when it is woken, or at its deadline. One thread
//! makes all steps, and rests while there are none. Only what the task itself blocks in (a registry, a
//! meeting through shared memory) holds its thread up, and then another one makes the others' steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::Inner;
use crate::env::{Env, Event, Time};
use crate::{CallFailed, Kind, Ran, guard, lock};

/// Threads, at most: as many tasks may be held up at once.
const MOST_THREADS: usize = 256;

/// Calls that are tasks, at most, and bytes of their arguments, as far as these are long.
const MOST_CALLS: usize = 16_384;
const LONG: usize = 64 << 10;
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 256 << 20 };

/// The tasks of a runtime.
pub(super) struct Tasks {
    state: Mutex<State>,
    /// Wakes the thread that rests.
    work: Arc<dyn Event>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<u64, Task>,
    /// The last one's number.
    last: u64,
    /// Those to be gone on with, in this order.
    ready: VecDeque<u64>,
    /// When tasks are woken though nothing has happened.
    alarms: BTreeSet<(Time, u64)>,
    threads: usize,
    /// How many threads are held up.
    held: usize,
    /// One of them waits for work.
    rests: bool,
    calls: usize,
    bytes: usize,
}

struct Task {
    turn: Turn,
    deadline: Option<Time>,
}

pub(super) type Steps = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whose turn it is.
enum Turn {
    /// Whoever wakes it.
    Waits(Steps),
    /// It is among those that are ready.
    Ready(Steps),
    /// A thread makes a step of it. It was woken meanwhile, or not.
    Goes { woken: bool },
}

/// What a thread is to do next.
enum Next {
    Go(u64, Steps),
    Rest(Option<Time>),
    Leave,
}

impl Tasks {
    pub(super) fn new(env: &dyn Env) -> Tasks {
        Tasks { state: Mutex::default(), work: env.event() }
    }

    /// Has these steps made, and makes the next one when the waker that this returns is woken; at the
    /// deadline too.
    ///
    /// # Errors
    /// There is no thread, and can be none now.
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

    /// Runs what may block, in a step: others are gone on with meanwhile.
    pub(super) fn hold_up<R>(inner: &Arc<Inner>, block: impl FnOnce() -> R) -> R {
        struct Held<'a>(&'a Tasks);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.lock().held -= 1;
            }
        }
        inner.tasks.lock().held += 1;
        let _held = Held(&inner.tasks);
        // Where there can be no thread the others wait for this one.
        let _ = Tasks::staff(inner);
        block()
    }

    /// Sees to it that somebody does what is ready: who rests, or another thread if all are held up.
    fn staff(inner: &Arc<Inner>) -> io::Result<()> {
        {
            let mut state = inner.tasks.lock();
            let (ready, due) = (!state.ready.is_empty(), !state.alarms.is_empty());
            if state.rests {
                if ready {
                    inner.tasks.work.set();
                }
                return Ok(());
            }
            if !ready && !due || state.threads > state.held || state.threads == MOST_THREADS {
                return Ok(());
            }
            state.threads += 1;
        }
        let ours = inner.clone();
        let spawned = inner.env.spawn("farcall-rebind", Box::new(move || work(&ours)));
        spawned.inspect_err(|_| inner.tasks.lock().threads -= 1)
    }

    /// Takes a task back that nobody would go on with.
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
            if let Turn::Ready(steps) = mem::replace(&mut task.turn, Turn::Goes { woken: false }) {
                return Next::Go(id, steps);
            }
        }
        if state.rests || state.tasks.is_empty() {
            state.threads -= 1;
            return Next::Leave;
        }
        state.rests = true;
        Next::Rest(state.alarms.first().map(|(when, _)| *when))
    }

    /// Waits for work, as the one that does. No longer the one when it is unwound, so that another can be.
    fn rest(&self, time: Option<Duration>) {
        struct Rests<'a>(&'a Tasks);
        impl Drop for Rests<'_> {
            fn drop(&mut self) {
                self.0.lock().rests = false;
            }
        }
        let _rests = Rests(self);
        self.work.wait(time);
    }

    /// A step was made, after which others follow.
    fn put_back(&self, id: u64, steps: Steps) {
        let state = &mut *self.lock();
        let Some(task) = state.tasks.get_mut(&id) else { return };
        let woken = matches!(task.turn, Turn::Goes { woken: true });
        task.turn = Turn::Waits(steps);
        if woken {
            state.wake(id);
        }
    }

    fn remove(&self, id: u64) {
        let mut state = self.lock();
        state.remove(id);
        if state.rests && state.tasks.is_empty() {
            self.work.set();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    /// Has it gone on with. False if there is nothing more to do for that.
    fn wake(&mut self, id: u64) -> bool {
        let Some(task) = self.tasks.get_mut(&id) else { return false };
        match mem::replace(&mut task.turn, Turn::Goes { woken: true }) {
            Turn::Waits(steps) => {
                task.turn = Turn::Ready(steps);
                self.ready.push_back(id);
                return true;
            }
            ready @ Turn::Ready(_) => task.turn = ready,
            Turn::Goes { .. } => {}
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

/// What a thread does, until there are no tasks, or somebody else waits for work.
fn work(inner: &Arc<Inner>) {
    let mut dies = Dies(Some(&inner.tasks));
    loop {
        match inner.tasks.next(inner.env.now()) {
            Next::Go(id, steps) => step(inner, id, steps),
            Next::Rest(until) => {
                inner.tasks.rest(until.map(|until| until.since(inner.env.now())));
            }
            Next::Leave => break,
        }
    }
    dies.0 = None;
}

fn step(inner: &Arc<Inner>, id: u64, mut steps: Steps) {
    let waker = waker(inner, id);
    let go = || steps.as_mut().poll(&mut Context::from_waker(&waker));
    // A registry of the user's may panic, and so may what is dropped. Who waits for the task hears that it
    // ended.
    match guard::run(go) {
        Ok(Poll::Pending) => inner.tasks.put_back(id, steps),
        Ok(Poll::Ready(())) | Err(_) => {
            let _ = guard::run(|| drop(steps));
            inner.tasks.remove(id);
        }
    }
}

/// Of a thread that is unwound, as those of a simulated process that was killed: what it would have gone on
/// with goes too, for it holds the runtime.
struct Dies<'a>(Option<&'a Tasks>);

impl Drop for Dies<'_> {
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

struct Waking {
    inner: Weak<Inner>,
    id: u64,
}

fn waker(inner: &Arc<Inner>, id: u64) -> Waker {
    Waker::from(Arc::new(Waking { inner: Arc::downgrade(inner), id }))
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(inner) = self.inner.upgrade() else { return };
        let goes = inner.tasks.lock().wake(self.id);
        if goes {
            // Where there can be no other thread, those there are come back from where they are held up.
            let _ = Tasks::staff(&inner);
        }
    }
}

/// A call among the tasks, with its arguments.
pub(super) struct Room {
    inner: Arc<Inner>,
    bytes: usize,
}

impl Room {
    /// For one more call, with so many bytes of arguments. Where no other has long ones it may have any.
    pub(super) fn take(inner: &Arc<Inner>, bytes: usize) -> Result<Room, CallFailed> {
        let mut state = inner.tasks.lock();
        let bytes = if bytes > LONG { bytes } else { 0 };
        let all = state.bytes.saturating_add(bytes);
        if state.calls == MOST_CALLS || bytes > 0 && state.bytes > 0 && all > MOST_BYTES {
            let why = format!(
                "{} started calls, with {} bytes of long arguments, wait to be bound",
                state.calls, state.bytes
            );
            return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
        }
        state.calls += 1;
        state.bytes = all;
        Ok(Room { inner: inner.clone(), bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut state = self.inner.tasks.lock();
        state.calls = state.calls.saturating_sub(1);
        state.bytes = state.bytes.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Runtime;

    #[test]
    fn there_is_room_for_so_many_bytes_of_arguments() {
        let Runtime(inner) = Runtime::builder().registry(farcall_names::Memory::new()).build().unwrap();
        let large = Room::take(&inner, 2 * MOST_BYTES).expect("one that is alone may have any");
        assert!(Room::take(&inner, 2 * LONG).is_err());
        drop((Room::take(&inner, LONG).unwrap(), large));
        let half = Room::take(&inner, MOST_BYTES / 2).unwrap();
        let other = Room::take(&inner, MOST_BYTES / 2).unwrap();
        let why = Room::take(&inner, 2 * LONG).err().expect("no more than that");
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
        drop(half);
        drop((Room::take(&inner, 2 * LONG).unwrap(), other));
        let state = inner.tasks.lock();
        assert_eq!((state.calls, state.bytes), (0, 0));
    }

    /// Steps that are one, and panic when they are dropped.
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

    /// An event at which whoever waits is unwound.
    struct Unwinds;

    impl Event for Unwinds {
        fn wait(&self, _: Option<Duration>) -> bool {
            panic!("as the test wants it");
        }

        fn set(&self) {}
    }

    #[test]
    fn who_is_unwound_while_it_rests_rests_no_more() {
        let tasks = Tasks { state: Mutex::default(), work: Arc::new(Unwinds) };
        tasks.lock().rests = true;
        assert!(guard::run(|| tasks.rest(None)).is_err());
        assert!(!tasks.lock().rests);
    }
}
