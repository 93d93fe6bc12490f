//! Decides what a client may do with an export: the scope of its key, and the policy.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use farcall_keys::{Action, Decision};

use super::Keys;
use crate::env::Env;
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
}

/// Decides what clients may do with one export, and keeps the decisions.
pub(crate) struct Access {
    keys: Keys,
    env: Arc<dyn Env>,
    /// The type and the instance of the export.
    name: (String, String),
    /// Whether the export is the server's counters.
    counters: bool,
    decided: RwLock<Decided>,
}

/// The decisions about clients, by their keys.
#[derive(Default)]
struct Decided {
    /// The generation of the keys that the decisions follow from.
    generation: u64,
    of: HashMap<[u8; 32], Result<Decision, String>, BuildHasherDefault<FirstBytes>>,
}

/// The maximum number of decisions that are kept.
const MAX_DECISIONS: usize = 1 << 16;

impl Access {
    pub(crate) fn new(keys: &Keys, env: &Arc<dyn Env>, type_name: &str, instance: &str) -> Access {
        let name = (type_name.to_owned(), instance.to_owned());
        Access { keys: keys.clone(), env: env.clone(), name, counters: false, decided: RwLock::default() }
    }

    /// Makes this decide about the server's counters.
    pub(crate) fn of_counters(self) -> Access {
        Access { counters: true, ..self }
    }

    /// Returns an error if the client may not do that.
    pub(crate) fn check(&self, principal: Option<&Principal>, what: What<'_>) -> Result<(), CallFailed> {
        let Some(principal) = principal else {
            return Err(refusal("this server has keys, and the caller has shown none".to_owned()));
        };
        let generation = self.keys.generation();
        {
            let decided = self.decided.read().unwrap_or_else(PoisonError::into_inner);
            if decided.generation == generation
                && let Some(decision) = decided.of.get(&principal.key)
            {
                return self.heed(decision, principal, what);
            }
        }
        let decision = self.decide(principal);
        let heeded = self.heed(&decision, principal, what);
        let mut decided = self.decided.write().unwrap_or_else(PoisonError::into_inner);
        if decided.generation != generation || decided.of.len() >= MAX_DECISIONS {
            *decided = Decided { generation, of: HashMap::default() };
        }
        decided.of.insert(principal.key, decision);
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
        if self.counters {
            return decision.allows(Action::Counters);
        }
        match what {
            What::Procedure(name) => decision.allows_procedure(name),
            What::Describe => decision.allows(Action::Describe),
            What::Health => decision.allows(Action::Health),
            What::Read => decision.allows(Action::MemoryRead),
            What::Write => decision.allows(Action::MemoryWrite),
            What::Facts => decision.allows(Action::MemoryRead) || decision.allows(Action::MemoryWrite),
        }
    }

    fn decide(&self, principal: &Principal) -> Result<Decision, String> {
        let client = self.keys.client(&principal.key).ok_or("the caller's key is not remembered")?;
        let (type_name, instance) = &self.name;
        let keyring = self.keys.keyring();
        keyring
            .still_admits(&client.shown, type_name, instance, self.env.unix_seconds())
            .map_err(|why| why.to_string())
    }
}

/// Hashes a public key to its first bytes. Only keys of clients that were let in come here, so nobody can make
/// many that collide.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.first_chunk().map_or(self.0, |first| u64::from_le_bytes(*first));
    }

    /// Leaves out the length, which all keys have in common.
    fn write_usize(&mut self, _: usize) {}
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
    }
}
