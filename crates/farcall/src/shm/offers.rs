//! The segments of this runtime whose memory other processes may map.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use farcall_shm::UnixChannel;

use super::mapped::{self, SharedMapping};
#[cfg(feature = "secure")]
use crate::env::Env;
use crate::{Principal, lock};
use farcall_memory::{SharedMemory, SharingTerms, words};

/// The segments of a runtime that may be mapped, by the identifiers of their exports.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<u64, Offer>>);

/// The memory of a segment that may be mapped.
#[derive(Debug)]
struct Offer {
    mapping: Weak<SharedMapping>,
    /// Whether the exporter is notified of writes that ask for a notice.
    hears: Arc<AtomicBool>,
    /// Who may have the memory mapped, if this runtime has keys: an importer that has closed its connection
    /// can have kept the mapping.
    mapped_by: Vec<Arc<Principal>>,
}

/// The most principals that map one segment. Further ones access it by calls.
const MAX_PRINCIPALS: usize = 256;

/// The memory of a segment, as the segment itself holds it.
#[derive(Debug)]
struct Owner {
    mapping: Arc<SharedMapping>,
    hears: Arc<AtomicBool>,
    offers: Arc<Offers>,
}

impl Offers {
    /// Returns memory of `len` bytes that other processes may map. Returns `None` if the system cannot
    /// provide it, or if a mapping cannot express the rights of other processes.
    pub(crate) fn share(self: &Arc<Self>, len: usize, terms: SharingTerms) -> Option<Box<dyn SharedMemory>> {
        let mapping = SharedMapping::new(len, mapped::protection(terms.others)?, terms.generation)?;
        let (mapping, hears) = (Arc::new(mapping), Arc::new(AtomicBool::new(terms.hears)));
        Some(Box::new(Owner { mapping, hears, offers: self.clone() }))
    }

    /// Passes the memory of `export` to a process of the same user, if that export has such memory and is of
    /// this generation. With keys, `principal` is the process's, and `may` decides whether it may write, or
    /// only read, the memory. Returns whether the memory was passed.
    pub(super) fn pass(
        &self,
        (export, generation): (u64, u64),
        principal: Option<&Arc<Principal>>,
        may: impl FnOnce(bool) -> bool,
        proof: &[u8],
        channel: &UnixChannel,
    ) -> bool {
        // The lock is held throughout, so that `take_from` knows of everybody to whom memory was passed.
        let mut offers = lock(&self.0);
        let Some(Offer { mapping, hears, mapped_by }) = offers.get_mut(&export) else { return false };
        let Some(mapping) = mapping.upgrade().filter(|mapping| may(mapping.is_written_by_others())) else {
            return false;
        };
        if let Some(principal) = principal
            && !mapped_by.iter().any(|known| known.key_and_evidence() == principal.key_and_evidence())
        {
            if mapped_by.len() >= MAX_PRINCIPALS {
                return false;
            }
            mapped_by.push(principal.clone());
        }
        // If this changes now, the memory is taken away again (`Segment::set_notify`).
        mapping.pass(generation, hears.load(Ordering::Acquire), proof, channel)
    }

    /// Takes the memory of segments away from all their importers if one of these may not map it any more, as
    /// `may` says of an export, a principal, and whether the memory can be written. Everybody goes on by
    /// calls. Until the segment is exported again, its memory is not passed to anybody.
    #[cfg(feature = "secure")]
    pub(crate) fn take_from(&self, env: &dyn Env, may: impl Fn(u64, &Arc<Principal>, bool) -> bool) {
        let mut taken = Vec::new();
        for (export, Offer { mapping, mapped_by, .. }) in lock(&self.0).iter_mut() {
            let Some(mapping) = mapping.upgrade() else { continue };
            let writes = mapping.is_written_by_others();
            if !mapped_by.iter().all(|principal| may(*export, principal, writes)) {
                mapped_by.clear();
                taken.push(mapping);
            }
        }
        // This may copy the memory.
        for mapping in &taken {
            if let Err(why) = mapping.take_away(None) {
                env.say(&format!(
                    "memory of a segment is not taken away from an importer that ignores that: {why}"
                ));
            }
        }
    }
}

impl SharedMemory for Owner {
    fn offer(&self, export: u64) {
        let mut offers = lock(&self.offers.0);
        offers.retain(|_, offer| offer.mapping.strong_count() > 0);
        let (mapping, mapped_by) = (Arc::downgrade(&self.mapping), Vec::new());
        offers.insert(export, Offer { mapping, hears: self.hears.clone(), mapped_by });
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

    fn set_hears(&self, hears: bool) {
        self.hears.store(hears, Ordering::Release);
    }

    fn hears(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    fn is_written_by_others(&self) -> bool {
        self.mapping.is_written_by_others()
    }

    fn take_away(&self, offer: Option<u64>) -> io::Result<()> {
        self.mapping.take_away(offer)
    }

    fn pin(&self) -> io::Result<()> {
        self.mapping.pin()
    }

    fn unpin(&self) {
        self.mapping.unpin();
    }

    fn is_pinned(&self) -> bool {
        self.mapping.is_pinned()
    }

    fn ask_for_huge_pages(&self) -> io::Result<()> {
        self.mapping.ask_for_huge_pages()
    }

    fn withdraw(&self) {
        self.mapping.withdraw();
    }
}
