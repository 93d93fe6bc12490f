//! The common part of the models of ONC RPC, of shared memory and of several grants: how calls end, what a
//! run reports, the promises that the first two check, and the rules that a run can break on purpose.

use farcall_proto::Ran;

use crate::counts::counts;
use crate::oracle::Violation;
use crate::rng::mix;

counts! {
    /// Counts of the calls of a run, and of their outcomes.
    Tally {
        /// Calls made.
        calls,
        /// Executions.
        executed,
        /// Calls that returned.
        returned,
        /// Calls that failed as not run.
        no,
        /// Calls that failed and may have run.
        maybe,
        /// Messages that were not executed because the server remembered their call.
        remembered,
        /// Processes that died.
        deaths,
        /// Streams that ended before their calls did.
        broken,
    }
}

/// A rule of one of the models that can be broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A caller reports `No` for a request that the server had taken when it died.
    TakenIgnored,
    /// A slot whose request was given up is used again before it is answered.
    SlotUsedAgain,
    /// A cancelled call gives its caller the result that comes later.
    LateResult,
    /// A server continues to take requests after its caller has seen it close the connection.
    TakesAfterClose,
    /// A server does not notice that a ring is used for another call.
    LaneNotRenewed,
    /// A server executes a call that was withdrawn before it took the call.
    WithdrawnRuns,
    /// A server finds out which call of a slot was given up only when it acts on that.
    CancelLooksLater,
    /// A server executes a call that it remembers.
    DuplicateRuns,
    /// A server treats a call that is repeated on another connection as a new call, whatever happened to the
    /// first connection.
    ConnectionForgets,
    /// A client treats any reply as the reply to its oldest call.
    RepliesMixed,
    /// A client concludes from a refused datagram that the call did not run.
    RefusedSaysNo,
    /// A client concludes from the end of a stream that its calls did not run.
    BrokenSaysNo,
    /// A client concludes from the refusal of one of several copies of a call that the call did not run.
    RepeatedSaysNo,
    /// A server's decision about a client counts for the client's key, whatever other grant it shows.
    DecisionByKey,
    /// What a first message shows counts for all conversations of its key, before its client has proven
    /// itself.
    UpdateBeforeProof,
    /// A conversation goes on when its grant is revoked or has expired.
    ConversationNotRechecked,
    /// A decision counts on when the keys have changed, or a grant has expired.
    DecisionNotRemade,
    /// A client judges a server by what its key has shown last, to whomever.
    ServerByKey,
    /// A client goes on with a server when the grant for its name is revoked or has expired.
    ServerNotRechecked,
}

/// Each rule, and its name for `--break`, which begins with the name of the rule's model.
const RULES: [(Rule, &str); 19] = [
    (Rule::TakenIgnored, "shm-taken-ignored"),
    (Rule::SlotUsedAgain, "shm-slot-used-again"),
    (Rule::LateResult, "shm-late-result"),
    (Rule::TakesAfterClose, "shm-takes-after-close"),
    (Rule::LaneNotRenewed, "shm-ring-not-renewed"),
    (Rule::WithdrawnRuns, "shm-withdrawn-runs"),
    (Rule::CancelLooksLater, "shm-cancel-looks-later"),
    (Rule::DuplicateRuns, "onc-duplicate-runs"),
    (Rule::ConnectionForgets, "onc-connection-forgets"),
    (Rule::RepliesMixed, "onc-replies-mixed"),
    (Rule::RefusedSaysNo, "onc-refused-says-no"),
    (Rule::BrokenSaysNo, "onc-broken-says-no"),
    (Rule::RepeatedSaysNo, "onc-repeated-says-no"),
    (Rule::DecisionByKey, "keys-decision-by-key"),
    (Rule::UpdateBeforeProof, "keys-update-before-proof"),
    (Rule::ConversationNotRechecked, "keys-conversation-not-rechecked"),
    (Rule::DecisionNotRemade, "keys-decision-not-remade"),
    (Rule::ServerByKey, "keys-server-by-key"),
    (Rule::ServerNotRechecked, "keys-server-not-rechecked"),
];

impl Rule {
    /// Returns every rule with its name.
    pub fn all() -> impl Iterator<Item = (Rule, &'static str)> {
        RULES.into_iter()
    }

    /// Returns the rule of keys that is broken, if it is one.
    #[cfg(feature = "soak")]
    pub(crate) fn of_keys(self) -> Option<farcall::key_mutants::Rule> {
        match self {
            Rule::DecisionByKey => Some(farcall::key_mutants::Rule::DecisionOfConversation),
            Rule::UpdateBeforeProof => Some(farcall::key_mutants::Rule::NothingBeforeProof),
            Rule::ConversationNotRechecked => Some(farcall::key_mutants::Rule::ConversationRechecked),
            Rule::DecisionNotRemade => Some(farcall::key_mutants::Rule::DecisionRemade),
            Rule::ServerByKey => Some(farcall::key_mutants::Rule::ServerOfConversation),
            Rule::ServerNotRechecked => Some(farcall::key_mutants::Rule::ServerRechecked),
            _ => None,
        }
    }
}

/// The report of a run, with the state that is needed while the run lasts.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The counts.
    pub tally: Tally,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// A hash of everything that happened.
    pub trace_hash: u64,
    /// The time of the present event.
    pub(crate) now: u64,
    pub(crate) calls: Vec<Call>,
}

/// A call: the length of its arguments in bytes, and how it ended.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    len: usize,
    ended: Option<Ended>,
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
    /// Notes a new call, with arguments of `len` bytes. Returns its number.
    pub(crate) fn begin(&mut self, len: usize) -> usize {
        self.tally.calls += 1;
        self.trace(2, self.calls.len());
        self.calls.push(Call { len, ended: None });
        self.calls.len() - 1
    }

    /// Returns the arguments of a call.
    pub(crate) fn arguments(&self, id: usize) -> Vec<u8> {
        content(id, self.calls[id].len)
    }

    /// Returns the call that has these arguments. Notes a violation if there is none.
    pub(crate) fn called(&mut self, arguments: &[u8]) -> Option<usize> {
        let id = arguments.first_chunk().map_or(usize::MAX, |id| u64::from_be_bytes(*id) as usize);
        if self.calls.get(id).is_some_and(|call| arguments == content(id, call.len)) {
            return Some(id);
        }
        self.violated("arguments-intact", format!("{} bytes of arguments are no call's", arguments.len()));
        None
    }

    /// Adds an event that concerns `which` to the trace.
    pub(crate) fn trace(&mut self, what: u64, which: usize) {
        self.trace_hash = mix(self.trace_hash ^ mix(what << 48 ^ which as u64 ^ self.now << 8));
    }

    /// Notes that an invariant does not hold. Only the first violation is kept.
    pub(crate) fn violated(&mut self, rule: &'static str, what: String) {
        self.violation.get_or_insert(Violation { rule, at: self.now, what });
    }

    /// Notes that a call returned `result`. `right` is the result of its execution, or `None` if it was
    /// executed more often than it may be.
    pub(crate) fn returned(&mut self, id: usize, result: &[u8], right: Option<&[u8]>) {
        if right.is_none_or(|right| right != result) {
            let (len, right) = (result.len(), right.map(<[u8]>::len));
            let what = format!("call {id} returned {len} bytes that are not its own: {right:?}");
            self.violated("result-is-the-executions", what);
        }
        self.ended(id, Ended::Returned);
    }

    /// Notes how a call ended.
    pub(crate) fn ended(&mut self, id: usize, ended: Ended) {
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
        self.trace(4 + code, id);
        if self.calls[id].ended.replace(ended).is_some() {
            self.violated("ends-once", format!("call {id} ended twice"));
        }
    }

    /// Checks, at the end of a run, each call of which the caller was told that it did not run: `ran`, which
    /// says whether a call ran, must be false.
    pub(crate) fn judge(&mut self, ran: impl Fn(usize) -> bool) {
        let told_no = |id: &usize| self.calls[*id].ended == Some(Ended::Failed(Ran::No));
        if let Some(id) = (0..self.calls.len()).filter(told_no).find(|id| ran(*id)) {
            self.violated("no-means-never", format!("call {id} was said not to have run, and did"));
        }
    }
}

/// Returns bytes that belong to one call alone. They begin with the call's number.
pub(crate) fn content(id: usize, len: usize) -> Vec<u8> {
    let mut bytes = (id as u64).to_be_bytes().to_vec();
    bytes.extend((8..len.max(8)).map(|at| (at ^ at >> 8 ^ id.wrapping_mul(31)) as u8));
    bytes
}
