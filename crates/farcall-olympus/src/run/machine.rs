//! What the thread of a run and its users share: the interpreter, the firings under way, and the journal.
//!
//! A turn of the thread takes what has ended, begins every node that may begin, and writes the journal. Only
//! then are the calls sent that the turn has begun. So the journal knows of every call before it may run, and
//! of the end of every firing before a call can use its tokens.

mod admission;
mod load;
mod orders;
mod slots;
mod views;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use farcall::env::Time;
use farcall::{Kind, Ran};
use serde_json::Value;

use super::clock::Clock;
use super::excerpt::MAX_LISTED_BYTES;
use super::mutant::{Mutant, Rule};
use super::shown::{Board, Stage};
use super::{Command, NotStarted, Outcome, Pace, Past, Settings};
use crate::expression::check_size;
use crate::interpreter::{Decision, Effect, Ended, Firing, FiringId, FiringState, Interpreter};
use crate::journal::{Damaged, Journal, Record, VERSION};
use crate::model::{Graph, NodeId};
use crate::procedures::{self, Bound, NotFound};
use load::Load;
use slots::{Called, Slots};

/// A run.
pub(super) struct Machine {
    pub graph: Arc<Graph>,
    pub interpreter: Interpreter,
    pub clock: Clock,
    pub paused: bool,
    /// How many nodes may begin although the run is paused.
    pub steps: u64,
    pub board: Board,
    pub outcome: Option<Outcome>,
    /// The firings whose procedures are looked for or called, or will be called again.
    pub calls: Slots,
    nodes: Vec<Node>,
    journal: Option<Journal>,
    mutant: Mutant,
    load: Load,
    pauses: (Duration, Duration),
    /// The nodes that are held back for a while, because their last call did not run.
    held: Vec<(Time, NodeId)>,
    /// How many calls were made for each firing that has stopped.
    stopped: BTreeMap<FiringId, u32>,
    /// The calls that are made again when their time comes.
    repeats: BinaryHeap<Reverse<(Time, usize)>>,
    /// What the thread is to do after this turn.
    todo: Todo,
}

/// What is known of a node, besides the graph.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Its procedure, once it was found.
    procedure: Option<Arc<Bound>>,
    /// Whether its procedure is being looked for.
    is_sought: bool,
    /// The firings that wait until the procedure is found, or until fewer calls are under way.
    waiting: VecDeque<usize>,
    /// Whether it has its turn when fewer calls are under way.
    has_turn: bool,
    /// How many of its firings are in [`Machine::calls`] and have no call under way.
    pending: usize,
    /// How many of its calls have failed, one after the other.
    failures: u32,
    /// Whether it is held back for a while, because its last call did not run.
    is_held: bool,
    /// Whether the interpreter may not begin it.
    is_barred: bool,
}

/// What the thread is to do after a turn.
#[derive(Debug, Default)]
pub(super) struct Todo {
    /// The calls to start: the key, the procedure and the arguments of each.
    pub start: Vec<(usize, Arc<Bound>, Value)>,
    /// The nodes whose procedures are to be found.
    pub find: Vec<NodeId>,
    /// The bindings that are no longer trusted.
    pub forget: Vec<(NodeId, Arc<Bound>)>,
}

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is more to begin.
    Turn,
    /// It waits until then, or until something happens.
    Wait(Option<Time>),
    /// The run has ended.
    End,
}

/// The most nodes that begin in a turn, so that users are heard between turns.
const MAX_BEGUN: usize = 1000;

impl Machine {
    /// # Errors
    /// When the graph cannot be interpreted, or the journal cannot be written.
    pub fn new(graph: Graph, settings: Settings) -> Result<Machine, NotStarted> {
        let graph = Arc::new(graph);
        let Settings { rules, seed, .. } = &settings;
        let interpreter = Interpreter::new(graph.clone(), rules.clone(), *seed).map_err(NotStarted::Graph)?;
        let seed = *seed;
        let mut machine = Machine::with(interpreter, Duration::ZERO, settings);
        machine.record(|| Record::Graph { version: VERSION, seed, graph: (*graph).clone() });
        machine.write().map_err(NotStarted::Journal)?;
        Ok(machine)
    }

    /// Returns a run that goes on where another has ended or was killed.
    pub fn resumed(past: Past, settings: Settings) -> Machine {
        let Past { interpreter, journal, called, attempts, now } = past;
        let mut machine = Machine::with(interpreter, now, Settings { journal, ..settings });
        let (mut open, mut stopped) = (Vec::new(), BTreeMap::new());
        for Firing { id, node, state, .. } in machine.interpreter.under_way() {
            let attempts = attempts.get(id).copied().unwrap_or_default();
            match state {
                FiringState::UnderWay => open.push((*id, *node, attempts)),
                FiringState::Stopped(_) => drop(stopped.insert(*id, attempts)),
                FiringState::Waiting(_) => {}
            }
        }
        open.sort_unstable();
        machine.stopped = stopped;
        for (firing, node, attempts) in open {
            let again = called.get(&firing).filter(|_| !machine.mutant.breaks(Rule::KilledIsMaybe));
            let Some(&again) = again else {
                machine.call(firing, node, attempts, false);
                continue;
            };
            let error = Some(KILLED.to_owned());
            let called = Called { attempts, may_have_run: true, again, error, ..Called::new(firing, node) };
            let key = machine.enter(called);
            match again {
                true => machine.go_on(key),
                false => machine.stop(key, KILLED.to_owned(), Ran::Maybe),
            }
        }
        machine
    }

    fn with(interpreter: Interpreter, now: Duration, settings: Settings) -> Machine {
        let graph = interpreter.graph().clone();
        Machine {
            nodes: vec![Node::default(); graph.nodes.len()],
            board: Board::new(&graph),
            clock: Clock::new(settings.pace, now),
            paused: settings.paused,
            steps: 0,
            outcome: None,
            calls: Slots::default(),
            journal: settings.journal,
            mutant: settings.mutant,
            load: Load::new(settings.bound),
            pauses: (settings.first_pause.max(Duration::from_micros(1)), settings.max_pause),
            held: Vec::new(),
            stopped: BTreeMap::new(),
            repeats: BinaryHeap::new(),
            todo: Todo::default(),
            graph,
            interpreter,
        }
    }

    /// Begins what may begin, and writes the journal. Fills an empty `todo` with what the thread is to do
    /// then.
    pub fn turn(&mut self, now: Time, todo: &mut Todo) -> Next {
        if self.outcome.as_ref().is_some_and(Outcome::is_final) {
            // The ends of calls are still recorded that came before the run was stopped.
            let _ = self.write();
            return Next::End;
        }
        if self.paused {
            self.clock.stop(now)
        } else {
            self.clock.start(now)
        }
        self.repeat(now);
        self.take_turns();
        let more = self.begin_all(now);
        let is_early = self.todo.start.is_empty() || !self.mutant.breaks(Rule::WrittenBeforeSent);
        if is_early && self.write().is_err() {
            return Next::End;
        }
        std::mem::swap(&mut self.todo, todo);
        let next = match more {
            true => Next::Turn,
            false => Next::Wait(self.wakes_at(now)),
        };
        self.settle(now, next);
        next
    }

    /// Takes the outcome of a call, with the procedure that was called.
    pub fn called(&mut self, key: usize, bound: &Arc<Bound>, outcome: procedures::Outcome, now: Time) {
        self.has_returned(key);
        let Some(called) = self.calls.get_mut(key) else { return };
        let (firing, node) = (called.firing, called.node);
        // (A token could not carry it, and a journal could not be read with it.)
        if let procedures::Outcome::Returned(value) | procedures::Outcome::Declared { value, .. } = &outcome
            && let Err(why) = check_size(value)
        {
            return self.stop(key, format!("the result: {why}"), Ran::Yes);
        }
        let state = &mut self.nodes[node.0 as usize];
        match outcome {
            procedures::Outcome::Returned(value) => {
                state.failures = 0;
                let attempts = called.attempts;
                self.leave(key);
                self.end(firing, node, Ended::Returned(value), attempts);
            }
            procedures::Outcome::Declared { name, value } => {
                state.failures = 0;
                let attempts = called.attempts;
                self.leave(key);
                self.end(firing, node, Ended::Declared { name, value }, attempts);
            }
            procedures::Outcome::Failed { why, kind, ran: Ran::No } if !called.may_have_run => {
                if is_lasting(kind) {
                    return self.stop(key, why, Ran::No);
                }
                if kind != Kind::Overloaded {
                    state.procedure = None;
                    self.todo.forget.push((node, bound.clone()));
                }
                self.put_back(key, why, now);
            }
            procedures::Outcome::Failed { why, kind, ran: ran_now } => {
                let ran = if called.may_have_run && ran_now == Ran::No { Ran::Maybe } else { ran_now };
                called.may_have_run |= ran != Ran::No;
                if ran_now == Ran::No {
                    state.procedure = None;
                    self.todo.forget.push((node, bound.clone()));
                }
                if ran == Ran::Maybe && self.mutant.breaks(Rule::MaybeStops) {
                    return self.put_back(key, why, now);
                }
                if helps_to_call_again(kind, ran) && self.is_idempotent(node, bound) {
                    return self.call_again(key, why, now);
                }
                self.stop(key, why, ran);
            }
        }
    }

    /// Takes what was found of a node's procedure.
    pub fn found(&mut self, node: NodeId, found: Result<Arc<Bound>, NotFound>, now: Time) {
        let Some(state) = self.nodes.get_mut(node.0 as usize) else { return };
        state.is_sought = false;
        let waiting = std::mem::take(&mut state.waiting);
        match found {
            Ok(bound) => {
                state.procedure = Some(bound);
                waiting.into_iter().for_each(|key| self.go_on(key));
            }
            Err(why) => {
                // Each puts its tokens before all others, so the last one is first.
                for key in waiting.into_iter().rev() {
                    self.not_found(key, &why, now);
                }
            }
        }
    }

    /// Returns whether the procedure of a node may be called again when it is not known if it ran.
    fn is_idempotent(&self, node: NodeId, bound: &Bound) -> bool {
        let call = self.graph.nodes[node.0 as usize].call.as_ref();
        let is_idempotent = call.is_some_and(|call| call.idempotent) || bound.is_idempotent();
        is_idempotent || self.mutant.breaks(Rule::OnlyIdempotentAgain)
    }

    fn not_found(&mut self, key: usize, why: &NotFound, now: Time) {
        let Some(called) = self.calls.get_mut(key) else { return };
        if !called.may_have_run {
            return match why.is_lasting() {
                true => self.stop(key, why.to_string(), Ran::No),
                false => self.put_back(key, why.to_string(), now),
            };
        }
        match called.again && !why.is_lasting() {
            true => self.call_again(key, why.to_string(), now),
            false => {
                let error = called.error.take().unwrap_or_else(|| why.to_string());
                self.stop(key, error, Ran::Maybe);
            }
        }
    }

    /// Calls the procedure of a firing if it is known, and otherwise has it found.
    fn go_on(&mut self, key: usize) {
        let Some(called) = self.calls.get_mut(key) else { return };
        let (node, firing) = (called.node, called.firing);
        let state = &mut self.nodes[node.0 as usize];
        let Some(bound) = state.procedure.clone() else {
            called.stage = Stage::Finding;
            state.waiting.push_back(key);
            if !std::mem::replace(&mut state.is_sought, true) {
                self.todo.find.push(node);
            }
            return self.admit(node);
        };
        if called.may_have_run && !self.is_idempotent(node, &bound) {
            let why = self.calls.get_mut(key).and_then(|called| called.error.take());
            return self.stop(key, why.unwrap_or_default(), Ran::Maybe);
        }
        if !self.has_room(node) {
            return self.wait_for_room(key);
        }
        if !self.mutant.breaks(Rule::StartIsWritten) {
            let again = self.is_idempotent(node, &bound);
            self.record(|| Record::Call { firing: firing.0, again });
        }
        self.start(key, bound);
    }

    /// Has the thread start the call of a firing.
    fn start(&mut self, key: usize, bound: Arc<Bound>) {
        let node = self.calls.get_mut(key).map(|called| called.node);
        let again = node.is_some_and(|node| self.is_idempotent(node, &bound));
        self.send(key);
        let Some(called) = self.calls.get_mut(key) else { return };
        called.again = again;
        called.attempts = called.attempts.saturating_add(1);
        let arguments = self.interpreter.firing(called.firing).and_then(|firing| firing.arguments.clone());
        self.todo.start.push((key, bound, arguments.unwrap_or(Value::Null)));
    }

    /// Begins what may begin now. Returns whether there may be more.
    fn begin_all(&mut self, now: Time) -> bool {
        for _ in 0..MAX_BEGUN {
            if self.load.is_full() || self.paused && self.steps == 0 {
                return false;
            }
            let clock = self.clock.at(now);
            if let Some(firing) = self.interpreter.due(clock) {
                let (firing, node) = (firing.id, firing.node);
                self.record(|| Record::Due { firing: firing.0, now: nanos(clock) });
                self.call(firing, node, 0, false);
                continue;
            }
            let must_be_told = self.paused || self.clock.pace() == Pace::Step;
            if must_be_told && self.steps == 0 {
                return false;
            }
            if let Some(firing) = self.interpreter.begin(clock) {
                self.steps = self.steps.saturating_sub(1);
                let failure = match &firing.state {
                    FiringState::Stopped(failure) => Some(failure.to_string()),
                    _ => None,
                };
                let waits = matches!(firing.state, FiringState::Waiting(_));
                let begun = (firing.id, firing.node, firing.began);
                self.begun(begun, waits, failure);
            } else if !self.jump(now, clock) {
                self.steps = 0;
                return false;
            }
        }
        true
    }

    /// Lets the clock jump to the next timed node, unless it runs by itself. It does so when no call is under
    /// way, because calls take no time by it. Returns whether it shows another time.
    fn jump(&mut self, now: Time, clock: Duration) -> bool {
        let Some(due) = self.interpreter.next_time() else { return false };
        if !self.calls.is_empty() || self.paused {
            return false;
        }
        self.clock.jump(due);
        self.clock.at(now) > clock
    }

    /// Goes on with a firing that has taken its tokens.
    fn begun(&mut self, begun: (FiringId, NodeId, Duration), waits: bool, failure: Option<String>) {
        let (firing, node, clock) = begun;
        self.board.begun(&self.graph, node);
        let is_next = !waits && failure.is_none() && self.has_room(node);
        let bound = self.nodes[node.0 as usize].procedure.as_ref().filter(|_| is_next);
        let (calls, again) = (bound.is_some(), bound.is_some_and(|bound| self.is_idempotent(node, bound)));
        if let Some(journal) = &mut self.journal {
            let (firing, node, now) = (firing.0, node.0, nanos(clock));
            let written = calls && !self.mutant.breaks(Rule::StartIsWritten);
            journal.add(&Record::Begin { firing, node, now, calls: written, again: again && written });
        }
        if failure.is_some() {
            return self.has_stopped(firing, node, 0);
        }
        if !waits {
            self.call(firing, node, 0, calls);
        }
    }

    /// Calls the procedure of a firing whose time has come; a node without a procedure ends. `attempts` calls
    /// were made for it before. `is_recorded` says that the journal knows of the call already.
    fn call(&mut self, firing: FiringId, node: NodeId, attempts: u32, is_recorded: bool) {
        if self.graph.nodes[node.0 as usize].call.is_none() {
            return self.end(firing, node, Ended::Returned(Value::Null), 0);
        }
        let key = self.enter(Called { attempts, ..Called::new(firing, node) });
        match self.nodes[node.0 as usize].procedure.clone() {
            Some(bound) if is_recorded => self.start(key, bound),
            _ => self.go_on(key),
        }
    }

    /// Ends a firing for which so many calls were made.
    fn end(&mut self, firing: FiringId, node: NodeId, ended: Ended, attempts: u32) {
        if let Some(journal) = self.journal.as_mut().filter(|_| !self.mutant.breaks(Rule::EndIsWritten)) {
            journal.add_end(firing, &ended);
        }
        match self.interpreter.end(firing, ended) {
            Ok(Effect::Stopped) => self.has_stopped(firing, node, attempts),
            Ok(Effect::PutBack) => self.board.put_back(&self.graph, node),
            Ok(_) => self.board.ended(&self.graph, node),
            // The machine ends only firings that are under way.
            Err(why) => self.board.failed(node, &why.to_string()),
        }
    }

    /// Notes that a firing has stopped, for which so many calls were made.
    fn has_stopped(&mut self, firing: FiringId, node: NodeId, attempts: u32) {
        self.stopped.insert(firing, attempts);
        if let Some(stopped) = self.interpreter.firing(firing) {
            let record = self.stopped_record(stopped, MAX_LISTED_BYTES);
            self.board.stopped(node, record);
        }
    }

    /// Puts the tokens of a firing back, whose procedure did not run, and holds its node back for a while.
    fn put_back(&mut self, key: usize, why: String, now: Time) {
        let Some(Called { firing, node, attempts, .. }) = self.leave(key) else { return };
        if let Some(firing) = self.interpreter.firing(firing) {
            let record = self.record_of(firing, Stage::PutBack, attempts, MAX_LISTED_BYTES);
            self.board.not_run(node, record.because(&why, Some(Ran::No)));
        }
        let state = &mut self.nodes[node.0 as usize];
        // (Calls that fail together are one failure.)
        if !state.is_held {
            state.failures = state.failures.saturating_add(1);
        }
        let until = now + pause(self.pauses, state.failures);
        state.is_held = true;
        self.admit(node);
        self.held.retain(|(_, held)| *held != node);
        self.held.push((until, node));
        // Only the first time: otherwise the tokens would grow without end.
        if self.board.counts.not_run == 1 && self.mutant.breaks(Rule::PutBackOnce) {
            let taken = self.interpreter.firing(firing).map_or_else(Vec::new, |firing| firing.taken.clone());
            let from = self.graph.nodes[node.0 as usize].inputs[0].place;
            let _ = self.obey(Command::Put { place: from, tokens: taken }, now);
        }
        if self.mutant.breaks(Rule::PutBack) {
            self.end(firing, node, Ended::Failed { why, ran: Ran::No }, attempts);
            return drop(self.decide(firing, Decision::Discard));
        }
        self.end(firing, node, Ended::NotRun(why), attempts);
    }

    /// Calls a procedure again, which may have run, after a while.
    fn call_again(&mut self, key: usize, why: String, now: Time) {
        let Some(called) = self.calls.get_mut(key) else { return };
        (called.stage, called.error) = (Stage::Waiting, Some(why.clone()));
        called.pauses = called.pauses.saturating_add(1);
        let (node, until) = (called.node, now + pause(self.pauses, called.pauses));
        self.repeats.push(Reverse((until, key)));
        let failures = &mut self.nodes[node.0 as usize].failures;
        *failures = failures.saturating_add(1);
        self.admit(node);
        self.board.repeated(node, &why);
    }

    fn stop(&mut self, key: usize, why: String, ran: Ran) {
        let Some(Called { firing, node, attempts, .. }) = self.leave(key) else { return };
        self.end(firing, node, Ended::Failed { why, ran }, attempts);
    }

    /// Lets nodes begin again that were held back long enough, and calls again what has waited long enough.
    fn repeat(&mut self, now: Time) {
        let is_due = |(until, _): &mut (Time, NodeId)| *until <= now;
        for (_, node) in self.held.extract_if(.., is_due).collect::<Vec<_>>() {
            self.nodes[node.0 as usize].is_held = false;
            self.admit(node);
        }
        while let Some(&Reverse((until, key))) = self.repeats.peek()
            && until <= now
        {
            self.repeats.pop();
            self.go_on(key);
        }
    }

    /// Returns when the thread has something to do although nothing happens.
    fn wakes_at(&self, now: Time) -> Option<Time> {
        let held = self.held.iter().map(|(until, _)| *until);
        let repeats = self.repeats.peek().map(|Reverse((until, _))| *until);
        let timed = match self.paused || self.load.is_full() {
            true => None,
            false => self.interpreter.next_time().and_then(|due| self.clock.when(due, now)),
        };
        held.chain(repeats).chain(timed).min()
    }

    /// Notes whether anything is left to do.
    fn settle(&mut self, now: Time, next: Next) {
        let is_busy = next != Next::Wait(None) || !self.calls.is_empty() || self.is_held_up(now);
        let outcome = if is_busy { None } else { Some(self.rest()) };
        if self.outcome != outcome {
            self.outcome = outcome;
            self.board.note();
        }
    }

    /// Forgets that nothing is left to do, until the thread has looked.
    pub fn unsettle(&mut self) {
        if !self.outcome.as_ref().is_some_and(Outcome::is_final) {
            self.outcome = None;
        }
    }

    /// Returns whether a node could begin, but is not allowed to.
    fn is_held_up(&self, now: Time) -> bool {
        let may_not = self.paused || self.clock.pace() == Pace::Step;
        let due = || self.interpreter.next_time().is_some_and(|due| due <= self.clock.at(now));
        let timed =
            || self.interpreter.under_way().any(|firing| matches!(firing.state, FiringState::Waiting(_)));
        let count = self.graph.nodes.len();
        let any = || (0..count).any(|node| self.interpreter.may_begin(NodeId(node as u32)));
        may_not && (due() || timed() || any())
    }

    fn rest(&self) -> Outcome {
        if self.stopped.is_empty() || self.mutant.breaks(Rule::StoppedIsShown) {
            Outcome::Quiet
        } else {
            Outcome::Stopped(self.stopped.keys().copied().collect())
        }
    }

    /// Adds a record to the journal, if there is one.
    pub fn record(&mut self, record: impl FnOnce() -> Record) {
        if let Some(journal) = &mut self.journal {
            journal.add(&record());
        }
    }

    /// Writes the journal. If it cannot be written, the run ends.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self) -> Result<(), Damaged> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.flush().map_err(|why| {
            self.outcome = Some(Outcome::JournalFailed(why.to_string()));
            self.board.note();
            Damaged::contradiction(why.to_string())
        })
    }
}

impl Outcome {
    /// Returns whether the run has ended for good.
    pub fn is_final(&self) -> bool {
        matches!(self, Outcome::Ended | Outcome::JournalFailed(_))
    }
}

/// Why a call is not known to have run that was under way when the interpreter was killed.
const KILLED: &str = "the interpreter ended while the call was under way";

/// Returns whether another call would fail likewise.
fn is_lasting(kind: Kind) -> bool {
    matches!(kind, Kind::BadArguments | Kind::TooLarge | Kind::NotPermitted)
}

/// Returns whether an idempotent procedure is called again after such a failure. One that returned
/// after the deadline did run, but nobody took its result.
fn helps_to_call_again(kind: Kind, ran: Ran) -> bool {
    !is_lasting(kind) && (ran == Ran::Maybe || matches!(kind, Kind::Deadline | Kind::ResultLost))
}

/// Returns the pause after so many failures in a row.
fn pause((first, most): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(most)
}

/// Returns a time of the graph's clock as journals write it.
pub(super) fn nanos(clock: Duration) -> u64 {
    u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotent_procedure_is_called_again_unless_that_cannot_help() {
        for kind in [Kind::Unreachable, Kind::ServerRestarted, Kind::Deadline, Kind::Cancelled] {
            assert!(helps_to_call_again(kind, Ran::Maybe), "{kind}");
        }
        // It ran, but its result is lost.
        assert!(helps_to_call_again(Kind::Deadline, Ran::Yes));
        assert!(helps_to_call_again(Kind::ResultLost, Ran::Yes));
        for kind in [Kind::Panicked, Kind::BadResult, Kind::Nested, Kind::TooLarge] {
            assert!(!helps_to_call_again(kind, Ran::Yes), "{kind}");
        }
        assert!(!helps_to_call_again(Kind::NotPermitted, Ran::Maybe));
    }
}
