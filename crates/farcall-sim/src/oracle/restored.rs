//! The invariants of a server that was restored from a snapshot. What the server did and said after the
//! snapshot does not bind it (docs/protocol.md 7.5).

use std::collections::{HashMap, HashSet};

use farcall_proto::Ran;

use super::{Call, Life, Oracle, State, pattern};
use crate::memory::Head;
use crate::net::Nanos;

/// For how long clients still hear what a restored server had said since the snapshot, or take it to be about
/// a later conversation: the restored server gives the same identifiers again.
const UNDONE_WORDS_ARE_HEARD_FOR: Nanos = 1_000_000_000;

/// The undone work of restored servers.
#[derive(Default)]
pub(super) struct Undone {
    /// For each call that is not a reading: its executions since the snapshot.
    executions: HashMap<usize, Vec<Execution>>,
    /// Exports of restored servers. Posted writes to them are not checked.
    exports: HashSet<u64>,
    memories: Vec<Memory>,
}

/// The facts that determine the result of one execution.
#[derive(Clone, Copy)]
struct Execution {
    nonce: u64,
    result: usize,
    exception: bool,
    head: Head,
}

impl Execution {
    fn of(call: &Call) -> Execution {
        Execution { nonce: call.nonce, result: call.result, exception: call.exception, head: call.head }
    }
}

/// A server's memory that went back, from one number of writes to another.
struct Memory {
    server: usize,
    at: Nanos,
    most: u64,
    least: u64,
}

impl Oracle {
    /// Restores what a server knew at `then`. `snapshot` is the oracle of that moment.
    pub fn restore(&mut self, now: Nanos, server: usize, then: Nanos, snapshot: &Oracle) {
        for (index, call) in self.calls.iter_mut().enumerate().filter(|(_, call)| call.server == server) {
            let before = snapshot.calls.get(index);
            call.unsettled = before.is_none_or(|before| {
                !before.refused && before.executed == 0 && before.state != State::Failed(Ran::No)
            });
            if !call.reads() && call.executed > before.map_or(0, |before| before.executed) {
                self.undone.executions.entry(index).or_default().push(Execution::of(call));
                call.undone += 1;
            }
            restore_call(call, before);
        }
        self.restore_inside(server);
        for (index, import) in
            self.imports.iter_mut().enumerate().filter(|(_, import)| import.server == server)
        {
            let before = snapshot.imports.get(index);
            (import.done, import.refused) = before.map_or((0, false), |before| (before.done, before.refused));
        }
        let exports = self.exports.iter().filter(|(_, whose)| **whose == server);
        self.undone.exports.extend(exports.map(|(export, _)| *export));
        let (most, least) = (self.versions[server], snapshot.versions[server]);
        self.undone.memories.push(Memory { server, at: now, most, least });
        self.versions[server] = least;
        let living = snapshot.living[server];
        self.living[server] = living;
        let Life { born, paused } = snapshot.lives[living];
        self.lives[living] = Life { born, paused: paused + (now - then) };
    }

    /// Returns whether what a restored server said before may be about a call that is made now.
    pub(super) fn hears_undone_words(&self, server: usize, now: Nanos) -> bool {
        let restored = self.undone.memories.iter().filter(|memory| memory.server == server);
        restored.map(|memory| memory.at).any(|at| now < at + UNDONE_WORDS_ARE_HEARD_FOR)
    }

    /// Returns whether the server of that export was restored, so that its posted writes need be neither in
    /// order nor done once.
    pub fn was_restored(&self, export: u64) -> bool {
        self.undone.exports.contains(&export)
    }

    /// Returns how many writes the server can have done when a reading was executed.
    pub(super) fn versions_of(&self, reading: &Call) -> std::ops::RangeInclusive<u64> {
        let (mut least, mut most) = (reading.version, self.versions[reading.server]);
        let went_back = |memory: &&Memory| memory.server == reading.server && reading.started <= memory.at;
        for memory in self.undone.memories.iter().filter(went_back) {
            (least, most) = (least.min(memory.least), most.max(memory.most));
        }
        least..=most
    }

    /// Returns whether a result is made of results of the call's own executions, of which some were undone.
    pub(super) fn is_of_executions(&self, index: usize, body: &[u8], exception: bool) -> bool {
        let Some(undone) = self.undone.executions.get(&index) else { return false };
        let call = &self.calls[index];
        let last = Some(Execution::of(call)).filter(|_| call.executed > 0);
        let made = |execution: &Execution| {
            let mut bytes = Vec::new();
            if call.is_access() {
                execution.head.write(&mut bytes);
            }
            pattern(self.token(index) ^ execution.nonce, execution.result, &mut bytes);
            (bytes, execution.exception)
        };
        let results: Vec<(Vec<u8>, bool)> = undone.iter().chain(&last).map(made).collect();
        let fits = |(bytes, is): &&(Vec<u8>, bool)| bytes.len() == body.len() && *is == exception;
        let some =
            |(at, byte): (usize, &u8)| results.iter().filter(fits).any(|(bytes, _)| bytes[at] == *byte);
        results.iter().any(|result| fits(&result)) && body.iter().enumerate().all(some)
    }

    /// Returns whether the call may run although it was reported as not run: before the snapshot of its
    /// server it was neither executed nor refused, or was not made, and after the restoration no user refused
    /// it.
    pub(super) fn is_undone(&self, call: &Call) -> bool {
        call.unsettled && !call.refused
    }

    /// Returns whether the call may be reported as not run although it ran: before the snapshot of its server
    /// it was neither executed nor refused. After the restoration a user may have refused it, if none
    /// executed it.
    pub(super) fn may_be_denied(&self, call: &Call) -> bool {
        self.is_undone(call) || call.unsettled && call.executed == 0
    }
}

/// Restores the facts that a server knew of a call before the snapshot, if it knew the call.
fn restore_call(call: &mut Call, before: Option<&Call>) {
    (call.told, call.forsaken) = before.map_or((false, false), |before| (before.told, before.forsaken));
    call.refused = before.is_some_and(|before| before.refused);
    if call.reads() {
        return;
    }
    let Some(before) = before else {
        call.executed = 0;
        return;
    };
    (call.executed, call.executor, call.head) = (before.executed, before.executor, before.head);
    (call.nonce, call.result, call.exception) = (before.nonce, before.result, before.exception);
}
