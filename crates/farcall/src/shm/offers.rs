//! The segments of this runtime whose memory other processes may map.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use farcall_shm::{PROOF_BYTES, UnixChannel};

use super::mapped::{self, SharedMapping};
use crate::lock;
use farcall_memory::{SharedMemory, SharingTerms, words};

/// The segments of a runtime that may be mapped, by the identifiers of their exports.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<u64, Offer>>);

/// The memory of a segment, and whether the exporter is notified of writes that ask for a notice.
type Offer = (Weak<SharedMapping>, bool);

/// The memory of a segment, as the segment itself holds it.
#[derive(Debug)]
struct Owner {
    mapping: Arc<SharedMapping>,
    hears: bool,
    offers: Arc<Offers>,
}

impl Offers {
    /// Returns memory of `len` bytes that other processes may map. Returns `None` if the system cannot
    /// provide it, or if a mapping cannot express the rights of other processes.
    pub(crate) fn share(self: &Arc<Self>, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        let mapping = SharedMapping::new(len, mapped::protection(terms.others)?, terms.generation)?;
        Some(Box::new(Owner { mapping: Arc::new(mapping), hears: terms.hears, offers: self.clone() }))
    }

    /// Passes the memory of `export` to a process of the same user, if that export has such memory and is of
    /// this generation. Returns whether the memory was passed.
    pub(super) fn pass(
        &self,
        export: u64,
        generation: u64,
        proof: &[u8; PROOF_BYTES],
        channel: &UnixChannel,
    ) -> bool {
        let offer =
            lock(&self.0).get(&export).and_then(|(mapping, hears)| Some((mapping.upgrade()?, *hears)));
        offer.is_some_and(|(mapping, hears)| mapping.pass(generation, hears, proof, channel))
    }
}

impl SharedMemory for Owner {
    fn offer(&self, export: u64) {
        let mut offers = lock(&self.offers.0);
        offers.retain(|_, (mapping, _)| mapping.strong_count() > 0);
        offers.insert(export, (Arc::downgrade(&self.mapping), self.hears));
    }

    fn with(&self, access: &mut dyn FnMut(&[AtomicU64])) {
        self.mapping.with(access);
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.mapping.with(|words| words::read(words, offset, into));
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) -> bool {
        self.mapping.copy_out(offset, into)
    }

    fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        self.mapping.copy_in(offset, bytes)
    }

    fn is_written_by_others(&self) -> bool {
        self.mapping.is_written_by_others()
    }

    fn take_away(&self, offer: Option<u64>) {
        self.mapping.take_away(offer);
    }

    fn withdraw(&self) {
        self.mapping.withdraw();
    }
}
