//! Segments whose memory other processes may map, at their exporter.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farcall_shm::{PROOF, Wire};

use super::mapped::{self, SharedMapping};
use crate::segments::{SharedMemory, SharingTerms, words};

/// The segments of a runtime that may be mapped, by the identifiers of their exports.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<u64, Weak<Shared>>>);

/// The memory of a segment.
#[derive(Debug)]
struct Shared {
    mapping: SharedMapping,
    /// The exporter hears of a write if the writer asks for it.
    hears: bool,
}

/// The memory of a segment, as the segment knows it.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    offers: Arc<Offers>,
}

impl Offers {
    /// Returns memory of `len` bytes that others may map; `None` if it cannot be had, or the others' rights are not a
    /// mapping's.
    pub(crate) fn share(self: &Arc<Self>, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        let mapping = SharedMapping::new(len, mapped::protection(terms.others)?, terms.generation)?;
        let shared = Arc::new(Shared { mapping, hears: terms.hears });
        Some(Box::new(Owner { shared, offers: self.clone() }))
    }

    /// Passes memory to a process of the same user, if that export has such memory and it is of that generation.
    pub(super) fn pass(&self, export: u64, generation: u64, proof: &[u8; PROOF], wire: &Wire) -> bool {
        let shared = self.lock().get(&export).and_then(Weak::upgrade);
        shared.is_some_and(|shared| shared.mapping.pass(generation, shared.hears, proof, wire))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owner {
    fn with<R>(&self, access: impl FnOnce(&[AtomicU64]) -> R) -> R {
        self.shared.mapping.with(access)
    }
}

impl SharedMemory for Owner {
    fn offer(&self, export: u64) {
        let mut offers = self.offers.lock();
        offers.retain(|_, shared| shared.strong_count() > 0);
        offers.insert(export, Arc::downgrade(&self.shared));
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        self.with(|words| words::read(words, offset, into));
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) {
        if !self.shared.mapping.copy_out(offset as usize, into) {
            self.read(offset, into);
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.with(|words| words::write(words, offset, bytes));
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        if !self.shared.mapping.copy_in(offset as usize, bytes) {
            self.write(offset, bytes);
        }
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> u64 {
        self.with(|words| words::compare_and_swap(words, offset, old, new))
    }

    fn is_written_by_others(&self) -> bool {
        self.shared.mapping.is_written_by_others()
    }

    fn take_away(&self, offer: Option<u64>) {
        self.shared.mapping.take_away(offer);
    }

    fn withdraw(&self) {
        self.shared.mapping.withdraw();
    }
}
