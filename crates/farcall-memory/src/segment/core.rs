//! The state that the owner of a segment and the threads that serve it share: the memory, its generation, and
//! the rights to it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::task::Waker;

use super::area::Area;
use super::terms::{Digest, Terms};
use super::{Settings, random_number};
use crate::Result;
use crate::access::{Refused, Rights, check_alignment, check_range};
use crate::deposit::DepositMemory;
use crate::notice::{Kind, Notices};
use crate::posted::{Faults, Streams};
use crate::runtime::Accessor;
use farcall_core::env::Env;
use farcall_core::{Principal, lock};

/// The most streams of posted writes that a segment remembers.
const MAX_STREAMS: usize = 1024;

/// A segment, as the threads that execute importers' accesses use it.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) area: Area,
    /// The valid generation; zero while the segment is revoked.
    generation: AtomicU64,
    /// The terms of accesses. A thread that executes an access holds the read lock from before it checks the
    /// rights until it has changed the memory and noted the notice. So whoever changes the terms waits for
    /// all accesses under the former ones, except for the short reads that take no lock.
    terms: RwLock<Terms>,
    /// The [`Digest`] of the terms, for reads that take no lock. They compare it before and after they copy.
    digest: AtomicU64,
    /// The streams of posted writes (writes that importers send without waiting for an answer).
    pub(super) streams: Mutex<Streams<Refused>>,
    /// Where the numbers of streams come from. Nobody can guess them.
    entropy: Entropy,
    pub(crate) notices: Notices,
}

/// A source of unpredictable numbers.
struct Entropy(Arc<dyn Env>);

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

impl Core {
    pub(super) fn new(area: Area, settings: Settings, generation: u64, env: &Arc<dyn Env>) -> Core {
        let terms = Terms::new(&settings);
        Core {
            area,
            generation: AtomicU64::new(generation),
            digest: AtomicU64::new(Digest::of(&terms).word()),
            terms: RwLock::new(terms),
            streams: Mutex::new(Streams::new(MAX_STREAMS, Faults::default())),
            entropy: Entropy(env.clone()),
            notices: Notices::new(&**env),
        }
    }

    /// Returns a segment that consists of these words, with the rights and the notices of these settings.
    pub(crate) fn of_words(
        words: Arc<[AtomicU64]>,
        settings: Settings,
        generation: u64,
        env: &Arc<dyn Env>,
    ) -> Core {
        let len = size_of_val(&*words);
        Core::new(Area::given(words, len), settings, generation, env)
    }

    /// Copies bytes out of the memory, for tests.
    #[cfg(test)]
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) {
        self.area.read(offset, into);
    }

    pub(crate) fn size(&self) -> u64 {
        self.area.len() as u64
    }

    /// Makes `generation` the valid one; zero revokes the segment.
    ///
    /// A read copies words by acquiring loads, and then checks the generation once more. So if it has copied
    /// a word that was written after this store, it finds the new generation.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::Release);
    }

    /// Changes the terms. When this returns, all accesses under the former terms have ended, except for short
    /// reads, which then find the new digest and discard what they have read, as described at
    /// [`Core::set_generation`].
    pub(super) fn change_terms<T>(&self, change: impl FnOnce(&mut Terms) -> T) -> T {
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut terms);
        let next = self.digest().next(&terms);
        self.digest.store(next.word(), Ordering::Release);
        changed
    }

    /// Waits until the accesses that were allowed before have ended. Checks that begin later see what this
    /// thread has stored before.
    pub(super) fn wait_for_accesses(&self) {
        drop(self.terms.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the terms, which do not change until the guard is dropped.
    pub(super) fn terms(&self) -> RwLockReadGuard<'_, Terms> {
        self.terms.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether some thread executes an access or changes the terms.
    #[cfg(test)]
    pub(super) fn are_terms_locked(&self) -> bool {
        self.terms.try_write().is_err()
    }

    #[inline]
    pub(super) fn digest(&self) -> Digest {
        Digest::from_word(self.digest.load(Ordering::Acquire))
    }

    /// Returns whether a read may be executed without a lock, in a process that may be of another machine.
    #[inline]
    pub(super) fn lets_read(&self, digest: Digest, principal: Option<&Principal>) -> bool {
        digest.lets_anyone_read() || self.lets_principal_read(digest, principal)
    }

    #[cold]
    fn lets_principal_read(&self, digest: Digest, principal: Option<&Principal>) -> bool {
        !digest.hears_reads()
            && principal.is_some()
            && self.terms().rights_of(principal).contains(Rights::READ)
    }

    /// Opens a stream of posted writes for an importer, and returns its number.
    pub(super) fn open_stream(&self, by: &Accessor) -> u64 {
        let (importer, random) = (by.from.map(|from| from.ip()), random_number(&*self.entropy.0));
        lock(&self.streams).open(importer, by.principal_name(), random)
    }

    /// Returns whether this generation is valid.
    #[inline]
    pub(super) fn is(&self, generation: u64) -> bool {
        generation != 0 && self.generation.load(Ordering::Acquire) == generation
    }

    /// Returns the valid generation; `None` while the segment is revoked.
    pub(crate) fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::Acquire)).filter(|generation| *generation != 0)
    }

    /// Checks that the generation is valid, and that a process may make an access that needs the rights
    /// `needs`. This holds until the returned guard is dropped. [`Core::begin_change`] checks whether writes
    /// are inhibited.
    pub(super) fn begin_access(
        &self,
        generation: u64,
        by: &Accessor,
        needs: Rights,
    ) -> Result<RwLockReadGuard<'_, Terms>> {
        let terms = self.terms();
        if !self.is(generation) {
            return Err(Refused::Stale.into());
        }
        if terms.rights(by).contains(needs) { Ok(terms) } else { Err(Refused::NotPermitted.into()) }
    }

    /// Checks that a process may change the memory. This holds until the returned guard is dropped.
    pub(super) fn begin_change(
        &self,
        generation: u64,
        by: &Accessor,
        needs: Rights,
    ) -> Result<RwLockReadGuard<'_, Terms>> {
        let terms = self.begin_access(generation, by, needs)?;
        if terms.inhibit(by) { Err(Refused::Inhibited.into()) } else { Ok(terms) }
    }

    pub(crate) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        check_range(self.size(), offset, len as u64)
    }

    pub(super) fn check_word(&self, offset: u64) -> Result<()> {
        check_alignment(offset)?;
        self.check_range(offset, 8)
    }

    /// Notifies the exporter that an importer wrote `bytes`, if the terms or the writer ask for it. `asked`
    /// is the offset where the notice that the writer asks for begins: an importer that writes in parts asks
    /// with the last part for a notice of all of them.
    pub(super) fn wrote(
        &self,
        terms: &Terms,
        offset: u64,
        bytes: &[u8],
        asked: Option<u64>,
        by: &mut Accessor,
    ) {
        let len = bytes.len() as u64;
        let load = |word: u64| {
            // Another importer may have written the word again already, but this one's value has reached it.
            let within = word.checked_sub(offset).and_then(|at| bytes.get(at as usize..)?.first_chunk());
            within.copied().map_or_else(|| self.area.load(word), u64::from_le_bytes)
        };
        if terms.notify.hears_write(asked.is_some(), (offset, len), load) {
            let begin = asked.unwrap_or(offset);
            self.notices.add(Kind::Write, begin, offset + len - begin, by);
        }
    }

    /// Notifies the exporter that an importer read, if the terms ask for it.
    pub(super) fn was_read(&self, terms: &Terms, offset: u64, len: usize, by: &mut Accessor) {
        if terms.notify.hears_read(offset, len as u64) {
            self.notices.add(Kind::Read, offset, len as u64, by);
        }
    }
}

impl DepositMemory for Core {
    fn deposit(&self, generation: u64, offset: u64, bytes: &[u8]) -> bool {
        // While this is held, the owner does not finish revoking the segment or exporting it again.
        let _terms = self.terms();
        let is_valid = self.is(generation);
        if is_valid {
            self.area.write(offset, bytes);
        }
        is_valid
    }

    fn deposited(&self, offset: u64, len: usize, asked: bool, woken: &mut Vec<Waker>) {
        let mut by = Accessor::default();
        // While this is held, the owner does not finish changing what it is notified of.
        let terms = self.terms();
        if terms.notify.hears_write(asked, (offset, len as u64), |word| self.area.load(word)) {
            self.notices.add(Kind::Write, offset, len as u64, &mut by);
        }
        drop(terms);
        woken.append(&mut by.woken);
    }
}
