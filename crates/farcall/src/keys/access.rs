//! Decides what a client may do with an export: the scope of what it has shown, and the policy.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use farcall_core::Evidence;
use farcall_keys::{Action, Decision};

use super::Trusting;
use super::mutant::Rule;
use crate::{CallFailed, Kind, Principal, Ran};

/// What a client wants of an export.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// To call a procedure of the interface.
    Procedure(&'a str),
    /// To read the description of the interface.
    Describe,
    /// To know that the exporter is alive.
    Health,
    /// To read the memory, or only to learn its size and what may be done with it.
    Read,
    Facts,
    /// To write the memory.
    Write,
    /// To see the conversations of other clients.
    Others,
}

/// Decides what clients may do with one export, and keeps the decisions.
pub(crate) struct Access {
    clients: Arc<Trusting>,
    /// The type and the instance of the export.
    name: (String, String),
    /// Whether the export is the server's counters.
    counters: bool,
    decided: RwLock<Decided>,
}

/// The decisions about clients, by the places of what they have shown: a key can show several grants.
#[derive(Default)]
struct Decided {
    /// The generation of the keys that the decisions follow from.
    generation: u64,
    of: HashMap<usize, Kept, BuildHasherDefault<Mixed>>,
}

/// A decision about a client.
struct Kept {
    decision: Result<Decision, String>,
    /// From when on the decision does not count any more, because a grant has expired, in Unix seconds.
    until: u64,
    /// What the client has shown. It is kept so that nothing else is at its place.
    _evidence: Evidence,
}

/// The maximum number of decisions that are kept.
const MAX_DECISIONS: usize = 1 << 16;

impl Access {
    pub(crate) fn new(clients: &Arc<Trusting>, type_name: &str, instance: &str) -> Access {
        let name = (type_name.to_owned(), instance.to_owned());
        Access { clients: clients.clone(), name, counters: false, decided: RwLock::default() }
    }

    /// Makes this decide about the server's counters.
    pub(crate) fn of_counters(self) -> Access {
        Access { counters: true, ..self }
    }

    /// Returns an error if the client may not do that.
    pub(crate) fn check(&self, principal: Option<&Principal>, what: What<'_>) -> Result<(), CallFailed> {
        let Some((principal, evidence)) = principal.and_then(|one| Some((one, one.evidence()?))) else {
            return Err(refusal("this server has keys, and the caller has shown none".to_owned()));
        };
        let mutant = self.clients.keys().mutant();
        let by_key = mutant.breaks(Rule::DecisionOfConversation);
        let place = if by_key { usize::from(principal.key[0]) } else { evidence.place() };
        let is_kept = mutant.breaks(Rule::DecisionRemade);
        let generation = if is_kept { 0 } else { self.clients.keys().generation() };
        {
            let decided = self.decided.read().unwrap_or_else(PoisonError::into_inner);
            if decided.generation == generation
                && let Some(kept) = decided.of.get(&place)
                && (kept.until > self.clients.looked() || is_kept)
            {
                return self.heed(&kept.decision, principal, what);
            }
        }
        let (decision, until) = self.clients.decide(principal, (&self.name.0, &self.name.1));
        let heeded = self.heed(&decision, principal, what);
        let mut decided = self.decided.write().unwrap_or_else(PoisonError::into_inner);
        if decided.generation != generation || decided.of.len() >= MAX_DECISIONS {
            *decided = Decided { generation, of: HashMap::default() };
        }
        decided.of.insert(place, Kept { decision, until, _evidence: evidence.clone() });
        heeded
    }

    /// Returns an error if a decision about a client does not allow that.
    fn heed(
        &self,
        decision: &Result<Decision, String>,
        principal: &Principal,
        what: What<'_>,
    ) -> Result<(), CallFailed> {
        match decision {
            Ok(decision) if self.allows(decision, what) => Ok(()),
            Ok(_) => {
                let what = if self.counters { "read the server's counters".to_owned() } else { say(what) };
                Err(refusal(format!("the policy does not let {} {what}", principal.name)))
            }
            Err(why) => Err(refusal(why.clone())),
        }
    }

    fn allows(&self, decision: &Decision, what: What<'_>) -> bool {
        if self.counters && !matches!(what, What::Others) {
            return decision.allows(Action::Counters);
        }
        match what {
            What::Procedure(name) => decision.allows_procedure(name),
            What::Describe => decision.allows(Action::Describe),
            What::Health => decision.allows(Action::Health),
            What::Read => decision.allows(Action::MemoryRead),
            What::Write => decision.allows(Action::MemoryWrite),
            What::Others => decision.shows_others(),
            What::Facts => decision.allows_facts(),
        }
    }
}

/// Mixes the bits of a place in memory, which nobody else chooses.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, word: usize) {
        let mixed = (self.0 ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The lowest bits of a place are zero, and the map looks at the lowest bits.
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cold]
fn refusal(why: String) -> CallFailed {
    CallFailed::new(Kind::NotPermitted, Ran::No).because(why)
}

fn say(what: What<'_>) -> String {
    match what {
        What::Procedure(name) => format!("call {name}"),
        What::Describe => "read the description".to_owned(),
        What::Health => "ask for the health".to_owned(),
        What::Read | What::Facts => "read the memory".to_owned(),
        What::Write => "write the memory".to_owned(),
        What::Others => "see the conversations of others".to_owned(),
    }
}
