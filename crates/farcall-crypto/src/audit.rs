//! Watches the seals of one thread, for simulations: whether a number is used twice under a key, and whether
//! anything opens that was not sealed. It can also make phases short, so that a short run has many.
//!
//! Nothing is watched until a thread [exchanges](exchange) its audit for a new one.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// What an audit has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Seals of datagrams, answers and tickets.
    pub sealed: u64,
    /// Seals that opened.
    pub opened: u64,
    /// Seals that did not open.
    pub refused: u64,
    /// Seals with a number that the key had used before.
    pub reused: u64,
    /// Bytes that opened although nobody had sealed them.
    pub forged: u64,
    /// Handshakes that a client completed.
    pub handshakes: u64,
    /// X25519 functions that ends have computed in handshakes.
    pub asymmetric: u64,
    /// How often an end made the secrets of a resumed conversation.
    pub resumptions: u64,
    /// How often an end went on to the next phase.
    pub phases: u64,
}

/// The audit of one run.
#[derive(Debug)]
pub struct Audit {
    max_per_phase: u32,
    limit_per_phase: u32,
    counts: Counts,
    /// The key and the number of each seal, and a hash of what was sealed with them first.
    sealed: HashMap<(u64, u64), u64>,
    /// What was sealed with the same key and number later.
    again: HashSet<(u64, u64, u64)>,
}

thread_local! {
    static AUDIT: RefCell<Option<Audit>> = const { RefCell::new(None) };
}

impl Audit {
    /// Makes an audit that has seen nothing. Ends that are watched go on to the next phase after
    /// `max_per_phase` datagrams.
    pub fn new(max_per_phase: u32) -> Audit {
        let limit_per_phase = u32::MAX;
        let (counts, sealed, again) = Default::default();
        Audit { max_per_phase, limit_per_phase, counts, sealed, again }
    }

    /// Makes ends that are watched seal no more than `limit_per_phase` datagrams in a phase.
    #[must_use]
    pub fn limited(self, limit_per_phase: u32) -> Audit {
        Audit { limit_per_phase, ..self }
    }
}

/// Sets this thread's audit, and returns the one before.
pub fn exchange(audit: Option<Audit>) -> Option<Audit> {
    AUDIT.replace(audit)
}

/// Returns what this thread's audit has seen.
pub fn counts() -> Counts {
    look(|audit| audit.counts).unwrap_or_default()
}

/// Returns after how many datagrams an end goes on to the next phase, if this thread has an audit.
pub(crate) fn max_per_phase() -> Option<u32> {
    look(|audit| audit.max_per_phase)
}

/// Returns how many datagrams an end may seal in a phase, if this thread has an audit.
pub(crate) fn limit_per_phase() -> Option<u32> {
    look(|audit| audit.limit_per_phase)
}

/// Returns what stands for a key in an audit.
pub(crate) fn name_of(material: &[u8]) -> u64 {
    digest(material)
}

pub(crate) fn note_seal(key: u64, number: u64, sealed: &[u8]) {
    look(|audit| {
        audit.counts.sealed += 1;
        let digest = digest(sealed);
        match audit.sealed.entry((key, number)) {
            Entry::Vacant(entry) => _ = entry.insert(digest),
            Entry::Occupied(_) => {
                audit.counts.reused += 1;
                audit.again.insert((key, number, digest));
            }
        }
    });
}

/// Notes that bytes with this digest did, or did not, open.
pub(crate) fn note_open(key: u64, number: u64, digest: u64, opened: bool) {
    look(|audit| {
        if !opened {
            audit.counts.refused += 1;
            return;
        }
        audit.counts.opened += 1;
        let known =
            audit.sealed.get(&(key, number)) == Some(&digest) || audit.again.contains(&(key, number, digest));
        audit.counts.forged += u64::from(!known);
    });
}

pub(crate) fn note_handshake() {
    look(|audit| audit.counts.handshakes += 1);
}

pub(crate) fn note_asymmetric() {
    look(|audit| audit.counts.asymmetric += 1);
}

pub(crate) fn note_resumption() {
    look(|audit| audit.counts.resumptions += 1);
}

pub(crate) fn note_phase() {
    look(|audit| audit.counts.phases += 1);
}

/// Returns what stands for bytes in an audit.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn look<T>(look: impl FnOnce(&mut Audit) -> T) -> Option<T> {
    // A thread that ends may still make calls.
    AUDIT.try_with(|audit| audit.borrow_mut().as_mut().map(look)).ok().flatten()
}
