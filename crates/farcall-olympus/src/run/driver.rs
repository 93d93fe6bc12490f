//! The thread of a run: it starts calls and collects them, has procedures found, and waits.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::dynamic::Encoded;
use farcall::env::{Condition, Env, Time};
use farcall::{Calls, Kind, Ran};

use super::bell::Bell;
use super::machine::{Machine, Next, Todo};
use super::{Changes, Command, Outcome, Refused};
use crate::model::NodeId;
use crate::procedures::{self, Bound, Procedures};

/// What the thread of a run and its users share.
pub(super) struct Shared {
    pub env: Arc<dyn Env>,
    procedures: Procedures,
    machine: Mutex<Machine>,
    /// Notified after each turn while users wait for changes.
    changed: Condition,
    /// How many users wait for changes.
    watchers: AtomicUsize,
    /// Notified when nothing is left to do.
    settled: Condition,
    /// Wakes the thread.
    bell: Bell,
    finding: Mutex<Finding>,
}

/// The threads that find procedures.
#[derive(Default)]
struct Finding {
    threads: usize,
    /// The nodes whose procedures are to be found.
    queue: VecDeque<NodeId>,
}

/// The most threads that find procedures at once. Each may wait for a server that does not answer.
const MAX_FINDERS: usize = 16;

/// The most outcomes that are taken at once, before more calls are started.
const MAX_ENDED: usize = 256;

/// The most memory that is kept for the arguments of the next call.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The key of what is no call, but the bell.
const BELL: usize = usize::MAX;

impl Shared {
    pub fn new(machine: Machine, procedures: &Procedures, env: Arc<dyn Env>) -> Shared {
        Shared {
            bell: Bell::new(&env),
            env,
            procedures: procedures.clone(),
            machine: Mutex::new(machine),
            changed: Condition::default(),
            watchers: AtomicUsize::new(0),
            settled: Condition::default(),
            finding: Mutex::default(),
        }
    }

    pub fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the run do something.
    ///
    /// # Errors
    /// When the run refuses.
    pub fn command(&self, command: Command) -> Result<(), Refused> {
        let now = self.env.now();
        let obeyed = {
            let mut machine = self.machine();
            let obeyed = machine.obey(command, now);
            if obeyed.is_ok() {
                machine.unsettle();
            }
            obeyed
        };
        self.bell.ring();
        self.changed.notify_all();
        self.settled.notify_all();
        obeyed
    }

    /// Returns what has changed since that change; waits for the next one if there is none.
    pub fn changes(&self, since: u64, wait: Duration) -> Changes {
        let until = self.env.now() + wait;
        let mut machine = self.machine();
        loop {
            let left = until.since(self.env.now());
            if machine.board.number() > since || left.is_zero() {
                return machine.changes(since, &self.env);
            }
            // The thread looks at this number after it has locked the machine.
            self.watchers.fetch_add(1, Ordering::SeqCst);
            machine = self.changed.wait(&self.env, &self.machine, machine, Some(left)).0;
            self.watchers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until nothing is left to do, at most for this time.
    pub fn wait_for(&self, time: Duration) -> Option<Outcome> {
        let until = self.env.now() + time;
        let mut machine = self.machine();
        loop {
            if let Some(outcome) = &machine.outcome {
                return Some(outcome.clone());
            }
            let left = until.since(self.env.now());
            if left.is_zero() {
                return None;
            }
            machine = self.settled.wait(&self.env, &self.machine, machine, Some(left)).0;
        }
    }

    fn finding(&self) -> MutexGuard<'_, Finding> {
        self.finding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread of a run.
///
/// # Errors
/// When the system can start no more threads.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let driver = Driver {
        shared: shared.clone(),
        calls: Calls::in_env(shared.env.clone()),
        called: Vec::new(),
        has_bell: false,
        arguments: Vec::new(),
    };
    shared.env.spawn("olympus", Box::new(move || driver.run()))
}

struct Driver {
    shared: Arc<Shared>,
    calls: Calls<usize, Encoded, Encoded>,
    /// The procedure of each call, by its key.
    called: Vec<Option<Arc<Bound>>>,
    /// Whether the bell is among the calls.
    has_bell: bool,
    /// Memory for the encoded arguments of a call.
    arguments: Vec<u8>,
}

/// The outcome of a call.
type Ended = (usize, Arc<Bound>, procedures::Outcome);

impl Driver {
    fn run(mut self) {
        let (mut ended, mut todo) = (Vec::new(), Todo::default());
        loop {
            let now = self.shared.env.now();
            let (next, is_settled) = {
                let mut machine = self.shared.machine();
                for (key, bound, outcome) in ended.drain(..) {
                    machine.called(key, &bound, outcome, now);
                }
                machine.board.measure(now);
                let next = machine.turn(now, &mut todo);
                (next, machine.outcome.is_some())
            };
            if is_settled {
                self.shared.settled.notify_all();
            }
            if self.shared.watchers.load(Ordering::SeqCst) > 0 {
                self.shared.changed.notify_all();
            }
            if next == Next::End {
                return;
            }
            let is_idle = self.act(&mut todo, &mut ended);
            match next {
                Next::Wait(until) if is_idle => self.wait(until, &mut ended),
                _ => self.receive(&mut ended),
            }
        }
    }

    /// Starts calls, and has procedures found; empties `todo`. Returns whether there is nothing to be told to
    /// the machine yet.
    fn act(&mut self, todo: &mut Todo, ended: &mut Vec<Ended>) -> bool {
        let mut has_found = false;
        if !todo.forget.is_empty() || !todo.find.is_empty() {
            has_found = self.find(todo);
            todo.forget.clear();
            todo.find.clear();
        }
        for (key, bound, arguments) in todo.start.drain(..) {
            self.arguments.clear();
            self.arguments.shrink_to(MAX_KEPT_BYTES);
            match bound.encode_to(&arguments, &mut self.arguments) {
                Ok(()) => self.start(key, bound),
                Err(why) => {
                    let failed = procedures::Outcome::Failed { why, kind: Kind::BadArguments, ran: Ran::No };
                    ended.push((key, bound, failed));
                }
            }
        }
        ended.is_empty() && !has_found
    }

    /// Starts a call with the arguments that are encoded.
    fn start(&mut self, key: usize, bound: Arc<Bound>) {
        self.calls.add(key, bound.start(&self.arguments));
        if self.called.len() <= key {
            self.called.resize(key + 1, None);
        }
        self.called[key] = Some(bound);
    }

    /// Waits until a call ends or the bell rings, at most until then, and takes the calls that have ended.
    fn wait(&mut self, until: Option<Time>, ended: &mut Vec<Ended>) {
        if self.calls.is_empty() {
            let left = until.map(|until| until.since(self.shared.env.now()));
            return self.shared.bell.wait(left);
        }
        if !self.has_bell {
            self.has_bell = true;
            self.calls.add(BELL, self.shared.bell.pending());
        }
        let first = match until {
            None => self.calls.wait(),
            Some(until) => self.calls.wait_for(until.since(self.shared.env.now())),
        };
        if let Some((key, outcome)) = first {
            self.take(key, outcome, ended);
            self.collect(ended);
        }
    }

    /// Receives what has arrived, and takes the calls that have ended. Without this, calls would seem to be
    /// under way while there is always more to begin. It is a system call for each turn of many firings.
    fn receive(&mut self, ended: &mut Vec<Ended>) {
        if self.calls.len() > usize::from(self.has_bell)
            && let Some((key, outcome)) = self.calls.try_next()
        {
            self.take(key, outcome, ended);
            self.collect(ended);
        }
    }

    /// Takes calls that are known to have ended. Does not receive.
    fn collect(&mut self, ended: &mut Vec<Ended>) {
        while ended.len() < MAX_ENDED
            && self.calls.len() > usize::from(self.has_bell)
            && let Some((key, outcome)) = self.calls.wait_for(Duration::ZERO)
        {
            self.take(key, outcome, ended);
        }
    }

    fn take(&mut self, key: usize, outcome: farcall::Result<Encoded, Encoded>, ended: &mut Vec<Ended>) {
        if key == BELL {
            self.has_bell = false;
            return;
        }
        let Some(bound) = self.called.get_mut(key).and_then(Option::take) else { return };
        let outcome = bound.outcome(outcome);
        ended.push((key, bound, outcome));
    }

    /// Finds the procedures whose servers are known. Has the others found by other threads, because that may
    /// take long. Returns whether one was known.
    fn find(&self, todo: &Todo) -> bool {
        let graph = self.shared.machine().graph.clone();
        let wanted = |node: &NodeId| graph.nodes.get(node.0 as usize)?.call.as_ref();
        for (node, bound) in &todo.forget {
            wanted(node).into_iter().for_each(|wanted| self.shared.procedures.forget(wanted, bound));
        }
        let (mut unknown, mut has_found) = (Vec::new(), false);
        for node in &todo.find {
            match wanted(node).and_then(|wanted| self.shared.procedures.find_known(wanted)) {
                Some(bound) => {
                    self.shared.machine().found(*node, Ok(bound), self.shared.env.now());
                    has_found = true;
                }
                None => unknown.push(*node),
            }
        }
        let mut finding = self.shared.finding();
        finding.queue.extend(&unknown);
        let wanted_threads = MAX_FINDERS.min(finding.threads + finding.queue.len());
        while finding.threads < wanted_threads {
            finding.threads += 1;
            let shared = self.shared.clone();
            let find = move || shared.find();
            if self.shared.env.spawn("olympus-find", Box::new(find)).is_err() {
                finding.threads -= 1;
                break;
            }
        }
        let has_thread = finding.threads > 0;
        drop(finding);
        // Without a thread for this, the procedures are found here, late but surely.
        if !has_thread && !unknown.is_empty() {
            self.shared.finding().threads += 1;
            self.shared.find();
        }
        has_found
    }
}

impl Shared {
    /// Finds procedures until none is to be found.
    fn find(&self) {
        loop {
            let node = {
                let mut finding = self.finding();
                let Some(node) = finding.queue.pop_front() else {
                    finding.threads -= 1;
                    return;
                };
                node
            };
            let graph = self.machine().graph.clone();
            let Some(wanted) = graph.nodes.get(node.0 as usize).and_then(|node| node.call.as_ref()) else {
                continue;
            };
            let found = self.procedures.find(wanted);
            let now = self.env.now();
            self.machine().found(node, found, now);
            self.bell.ring();
        }
    }
}
