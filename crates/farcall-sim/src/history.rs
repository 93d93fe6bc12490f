//! Checks linearizability: whether the results that several clients saw could result from operations executed
//! one after another.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The operations that several clients made at the same time on a shared object, to be
/// [checked](History::check) in the end.
///
/// `O` describes an operation and, once the operation has ended, its result.
///
/// ```
/// use farcall_sim::history::History;
///
/// #[derive(Clone, Debug)]
/// enum Operation { Write(u64), Read(Option<u64>) }
///
/// /// A register: what it holds afterwards, if the operation is right.
/// fn register(held: &u64, operation: &Operation) -> Option<u64> {
///     match operation {
///         Operation::Write(value) => Some(*value),
///         Operation::Read(seen) => seen.is_none_or(|seen| seen == *held).then_some(*held),
///     }
/// }
///
/// let history = History::default();
/// let write = history.begin(Operation::Write(7));
/// let read = history.begin(Operation::Read(None));
/// history.end(read, Operation::Read(Some(7))); // seen before the write has ended: fine
/// let read = history.begin(Operation::Read(None));
/// history.end(read, Operation::Read(Some(0))); // but not unseen again
/// history.end(write, Operation::Write(7));
/// assert!(history.check(0, register).is_err());
/// ```
#[derive(Debug)]
pub struct History<O>(Mutex<Events<O>>);

#[derive(Debug)]
struct Events<O> {
    operations: Vec<Operation<O>>,
    /// The number of operations that have begun or ended.
    time: u64,
}

/// One operation.
#[derive(Clone, Debug)]
struct Operation<O> {
    what: O,
    begun: u64,
    /// When the operation ended; `NEVER` if no client saw its end. Such an operation may take effect at any
    /// time after its beginning, or not at all.
    ended: u64,
}

const NEVER: u64 = u64::MAX;

/// An operation of a [`History`] that has begun.
#[derive(Debug)]
pub struct Begun(usize);

impl<O> Default for History<O> {
    fn default() -> Self {
        History(Mutex::new(Events { operations: Vec::new(), time: 0 }))
    }
}

impl<O: Clone + fmt::Debug> History<O> {
    /// Notes the beginning of an operation.
    pub fn begin(&self, what: O) -> Begun {
        let mut events = self.lock();
        let begun = events.tick();
        events.operations.push(Operation { what, begun, ended: NEVER });
        Begun(events.operations.len() - 1)
    }

    /// Notes the end of an operation, with its result in `what`. Do not note the end of an operation that
    /// failed and may have happened or may still happen.
    pub fn end(&self, begun: Begun, what: O) {
        let mut events = self.lock();
        let ended = events.tick();
        let operation = &mut events.operations[begun.0];
        *operation = Operation { what, ended, ..*operation };
    }

    /// Returns how many operations have begun, and how many have ended.
    pub fn counts(&self) -> (usize, usize) {
        let events = self.lock();
        (
            events.operations.len(),
            events.operations.iter().filter(|operation| operation.ended != NEVER).count(),
        )
    }

    /// Checks whether there is an order of the operations, each at some moment between its beginning and its
    /// end, in which `step` allows them all. `step` returns the state after an operation, if the operation
    /// could have happened in the state before.
    ///
    /// The search is that of Wing and Gong (1993). It looks at each pair of a state and a set of operations
    /// only once (Lowe 2017). It is fast while few operations overlap, as in a history of some dozens.
    ///
    /// # Errors
    /// When there is no such order.
    pub fn check<S: Clone + Eq + Hash>(
        &self,
        initial: S,
        step: impl Fn(&S, &O) -> Option<S>,
    ) -> Result<(), NotLinearizable> {
        let operations = self.lock().operations.clone();
        let ended = operations.iter().filter(|operation| operation.ended != NEVER).count();
        let mut seen = HashSet::new();
        let mut furthest = Done::none(operations.len());
        let mut ways = vec![(furthest.clone(), initial)];
        while let Some((done, state)) = ways.pop() {
            if done.ended == ended {
                return Ok(());
            }
            if done.ended > furthest.ended {
                furthest = done.clone();
            }
            // An operation that began after another remaining operation had ended comes after that one. So
            // only operations that began before the first of these ends can be next.
            let left = || operations.iter().enumerate().filter(|(which, _)| !done.has(*which));
            let first_end = left().map(|(_, operation)| operation.ended).min().unwrap_or(NEVER);
            // Operations that began earlier are tried earlier.
            for (which, operation) in left().filter(|(_, operation)| operation.begun < first_end).rev() {
                let Some(after) = step(&state, &operation.what) else { continue };
                // An operation that need not have happened, and changes nothing, is left out.
                if operation.ended == NEVER && after == state {
                    continue;
                }
                let way = (done.with(which, operation.ended != NEVER), after);
                if seen.insert(way.clone()) {
                    ways.push(way);
                }
            }
        }
        Err(NotLinearizable(describe(&operations, &furthest)))
    }

    fn lock(&self) -> MutexGuard<'_, Events<O>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O> Events<O> {
    fn tick(&mut self) -> u64 {
        self.time += 1;
        self.time
    }
}

/// The operations that already have their place in the order.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done {
    /// A bit for each operation.
    bits: Box<[u64]>,
    /// How many of these operations have ended.
    ended: usize,
}

impl Done {
    fn none(operations: usize) -> Done {
        Done { bits: vec![0; operations.div_ceil(64)].into(), ended: 0 }
    }

    fn has(&self, which: usize) -> bool {
        self.bits[which / 64] & 1 << (which % 64) != 0
    }

    fn with(&self, which: usize, ended: bool) -> Done {
        let mut with = self.clone();
        with.bits[which / 64] |= 1 << (which % 64);
        with.ended += usize::from(ended);
        with
    }
}

/// No order of the operations explains the results. The text shows the history, and how far an order could be
/// found.
#[derive(Clone, Debug)]
pub struct NotLinearizable(String);

impl fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotLinearizable {}

fn describe<O: fmt::Debug>(operations: &[Operation<O>], furthest: &Done) -> String {
    let mut text =
        String::from("not linearizable; of these operations no order could be found for those with a star:");
    for (which, Operation { what, begun, ended }) in operations.iter().enumerate() {
        let star = if furthest.has(which) || *ended == NEVER { ' ' } else { '*' };
        let until = if *ended == NEVER { "...".to_owned() } else { ended.to_string() };
        text += &format!("\n{star} {begun:4} to {until:4} {what:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Of {
        Write(u64),
        Read(Option<u64>),
    }
    use Of::{Read, Write};

    fn register(held: &u64, operation: &Of) -> Option<u64> {
        match operation {
            Write(value) => Some(*value),
            Read(seen) => seen.is_none_or(|seen| seen == *held).then_some(*held),
        }
    }

    /// Checks operations with their beginnings and ends.
    fn history(operations: &[(Of, u64, u64)]) -> bool {
        let operations: Vec<_> = operations
            .iter()
            .map(|(what, begun, ended)| Operation { what: what.clone(), begun: *begun, ended: *ended })
            .collect();
        History(Mutex::new(Events { operations, time: 0 })).check(0, register).is_ok()
    }

    #[test]
    fn one_after_the_other_each_read_sees_the_last_write() {
        assert!(history(&[(Write(1), 1, 2), (Read(Some(1)), 3, 4), (Write(2), 5, 6), (Read(Some(2)), 7, 8)]));
        assert!(!history(&[(Write(1), 1, 2), (Write(2), 3, 4), (Read(Some(1)), 5, 6)]));
        assert!(!history(&[(Read(Some(1)), 1, 2), (Write(1), 3, 4)]));
        assert!(!history(&[(Write(1), 1, 2), (Read(Some(0)), 3, 4)]));
        assert!(history(&[]));
    }

    #[test]
    fn what_overlaps_may_be_in_either_order() {
        for seen in [0, 1] {
            assert!(history(&[(Write(1), 1, 4), (Read(Some(seen)), 2, 3)]));
        }
        assert!(history(&[(Write(1), 1, 3), (Write(2), 2, 4), (Read(Some(1)), 5, 6)]));
        assert!(!history(&[
            (Write(1), 1, 3),
            (Write(2), 2, 4),
            (Read(Some(1)), 5, 6),
            (Read(Some(2)), 7, 8)
        ]));
    }

    #[test]
    fn new_then_old_is_found_during_a_write() {
        assert!(!history(&[(Write(1), 1, 9), (Read(Some(1)), 2, 3), (Read(Some(0)), 4, 5)]));
        // Two overlapping readers may see this.
        assert!(history(&[(Write(1), 1, 9), (Read(Some(1)), 2, 5), (Read(Some(0)), 3, 4)]));
    }

    #[test]
    fn what_never_ended_may_have_happened_late_or_never_but_once() {
        assert!(history(&[(Write(1), 1, NEVER), (Read(Some(0)), 2, 3), (Read(Some(1)), 4, 5)]));
        assert!(history(&[(Write(1), 1, NEVER), (Read(Some(0)), 2, 3)]));
        assert!(!history(&[(Read(Some(1)), 1, 2), (Write(1), 3, NEVER)]));
        let twice = [(Write(1), 1, NEVER), (Read(Some(1)), 2, 3), (Write(2), 4, 5), (Read(Some(1)), 6, 7)];
        assert!(!history(&twice));
        assert!(history(&[(Read(None), 1, NEVER), (Write(1), 2, 3), (Read(Some(1)), 4, 5)]));
    }

    /// Checks the definition by trying every order: simple enough to be right.
    fn by_definition(operations: &[(Of, u64, u64)], done: &mut Vec<usize>, held: u64) -> bool {
        if operations
            .iter()
            .enumerate()
            .all(|(which, (_, _, ended))| done.contains(&which) || *ended == NEVER)
        {
            return true;
        }
        (0..operations.len()).any(|which| {
            let left = |other: &usize| !done.contains(other);
            if !left(&which)
                || (0..operations.len()).filter(left).any(|o| operations[o].2 < operations[which].1)
            {
                return false;
            }
            let Some(after) = register(&held, &operations[which].0) else { return false };
            done.push(which);
            let found = by_definition(operations, done, after);
            done.pop();
            found
        })
    }

    #[test]
    fn random_histories_are_judged_as_by_the_definition() {
        let mut verdicts = [0, 0];
        for seed in 0..3000 {
            let mut rng = crate::rng::Rng::new(seed);
            let mut times: Vec<u64> = (0..14).collect();
            (1..times.len()).rev().for_each(|at| times.swap(at, rng.below(at as u64 + 1) as usize));
            let operation = |pair: &[u64]| {
                let what = if rng.below(2) == 0 { Write(1 + rng.below(3)) } else { Read(Some(rng.below(4))) };
                let ended = if rng.below(5) == 0 { NEVER } else { pair[0].max(pair[1]) };
                (what, pair[0].min(pair[1]), ended)
            };
            let operations: Vec<_> = times.chunks(2).map(operation).collect();
            let expected = by_definition(&operations, &mut Vec::new(), 0);
            assert_eq!(history(&operations), expected, "seed {seed}: {operations:?}");
            verdicts[usize::from(expected)] += 1;
        }
        assert!(verdicts.iter().all(|count| *count > 300), "both kinds are tried: {verdicts:?}");
    }
}
