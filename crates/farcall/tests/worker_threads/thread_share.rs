//! A process whose calls through shared memory are all slow gets its share of the server's threads, and no
//! more.

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use crate::common::builder;

#[farcall::interface]
pub trait Gate {
    /// Ends at once, or when the gate is opened. Returns whether the connection's receiver executed the call,
    /// as it does for procedures known as quick.
    fn pass(&self, waits: bool) -> farcall::Result<bool>;
    /// Ends when `MEETING` calls have come.
    #[blocking]
    fn meet(&self) -> farcall::Result<()>;
}

struct Door {
    state: Mutex<State>,
    changed: Condvar,
    meeting: Barrier,
}

#[derive(Default)]
struct State {
    open: bool,
    waiting: usize,
    most: usize,
}

impl Gate for Door {
    fn pass(&self, waits: bool) -> farcall::Result<bool> {
        if !waits {
            return Ok(std::thread::current().name() == Some("farcall-shm"));
        }
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        state.most = state.most.max(state.waiting);
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| !state.open).unwrap();
        state.waiting -= 1;
        Ok(true)
    }

    fn meet(&self) -> farcall::Result<()> {
        self.meeting.wait();
        Ok(())
    }
}

/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);
const THREADS: usize = 32;
const CONNECTIONS: usize = 2;
/// The threads that a process may take: one for each connection, two for the process, and half of all.
const SHARE: usize = CONNECTIONS + 2 + THREADS / 2;
const MEETING: usize = 4;

#[test]
fn a_process_that_makes_its_calls_slow_leaves_threads_to_others() {
    let door =
        Arc::new(Door { state: Mutex::default(), changed: Condvar::new(), meeting: Barrier::new(MEETING) });
    let server = builder().shared_memory(true).workers(4).threads(THREADS).build().unwrap();
    let export = server.export::<dyn Gate>("Gate", door.clone()).unwrap();
    let shm = export.url().replace("udp:", "shm:");
    let hostile: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let runtime = builder().build().unwrap();
            let gate = runtime.import::<dyn Gate>(&shm).unwrap();
            assert!((0..100_000).any(|_| gate.pass(false).unwrap()), "it is not known as quick");
            (gate, runtime)
        })
        .collect();
    let calls: Vec<_> =
        hostile.iter().flat_map(|(gate, _)| (0..100).map(|_| gate.start().pass(true))).collect();
    let state = door.state.lock().unwrap();
    let (state, late) = door.changed.wait_timeout_while(state, LONG, |state| state.waiting < SHARE).unwrap();
    assert!(!late.timed_out(), "{} of {SHARE} calls have begun", state.waiting);
    drop(state);
    // Other processes have the threads that they need meanwhile.
    let other = builder().shared_memory(false).build().unwrap();
    let gate = other.import::<dyn Gate>(&export.url()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..MEETING {
            scope.spawn(|| gate.within(LONG).meet().unwrap());
        }
    });
    let mut state = door.state.lock().unwrap();
    assert_eq!(state.most, SHARE, "it has more than its share");
    state.open = true;
    drop(state);
    door.changed.notify_all();
    // Each of the process's own calls has its turn.
    for call in calls {
        call.wait().unwrap();
    }
}
