//! The common part of the models of ONC RPC and of shared memory: how calls end, what a run reports, and the
//! promises that both make.

use farcall_proto::Ran;

use crate::oracle::Violation;
use crate::rng::mix;

/// Counts of the calls of a run, and of their outcomes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Calls made.
    pub calls: u64,
    /// Executions.
    pub executed: u64,
    /// Calls that returned.
    pub returned: u64,
    /// Calls that failed and were said not to have run.
    pub no: u64,
    /// Calls that failed and may have run.
    pub maybe: u64,
    /// Messages that were not executed because the server remembered their call.
    pub remembered: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Streams that ended before their calls did.
    pub broken: u64,
}

impl Tally {
    /// Adds what another run counted.
    pub fn add(&mut self, other: &Tally) {
        self.calls += other.calls;
        self.executed += other.executed;
        self.returned += other.returned;
        self.no += other.no;
        self.maybe += other.maybe;
        self.remembered += other.remembered;
        self.deaths += other.deaths;
        self.broken += other.broken;
    }
}

/// The report of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The counts.
    pub tally: Tally,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// A hash of everything that happened.
    pub trace_hash: u64,
}

/// How a call ended at its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Returned,
    Failed(Ran),
    /// The caller of the call died.
    Abandoned,
}

impl Report {
    /// Folds something that happened to `which` at that time into the trace.
    pub(crate) fn trace(&mut self, at: u64, what: u64, which: usize) {
        self.trace_hash = mix(self.trace_hash ^ mix(what << 48 ^ which as u64 ^ at << 8));
    }

    /// Notes that an invariant did not hold. Only the first is kept.
    pub(crate) fn violated(&mut self, at: u64, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, at, what });
    }

    /// Notes how the call `id` ended. `former` is how it had ended before.
    pub(crate) fn ended(&mut self, at: u64, id: usize, ended: Ended, former: &mut Option<Ended>) {
        let code = match ended {
            Ended::Returned => {
                self.tally.returned += 1;
                0
            }
            Ended::Failed(Ran::No) => {
                self.tally.no += 1;
                1
            }
            Ended::Failed(_) => {
                self.tally.maybe += 1;
                2
            }
            Ended::Abandoned => 3,
        };
        self.trace(at, 4 + code, id);
        if former.replace(ended).is_some() {
            self.violated(at, "ends-once", format!("call {id} ended twice"));
        }
    }

    /// Checks in the end that no call ran of which its caller was told that it did not.
    pub(crate) fn judge(&mut self, at: u64, calls: impl Iterator<Item = (Option<Ended>, bool)>) {
        for (id, (ended, ran)) in calls.enumerate() {
            if ended == Some(Ended::Failed(Ran::No)) && ran {
                self.violated(at, "no-means-never", format!("call {id} was said not to have run, and did"));
            }
        }
    }
}

/// Bytes that belong to one call alone; they begin with its number.
pub(crate) fn content(id: usize, len: usize) -> Vec<u8> {
    let mut bytes = (id as u64).to_be_bytes().to_vec();
    bytes.extend((8..len.max(8)).map(|at| (at ^ at >> 8 ^ id.wrapping_mul(31)) as u8));
    bytes
}
