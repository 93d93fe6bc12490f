//! The state that the owner of a segment and the threads that serve it share: the memory, its generation, and
//! the rights to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::task::Waker;

use super::area::Area;
use super::{Notify, Settings};
use crate::Result;
use crate::access::{Refused, Rights, check_alignment, check_range};
use crate::deposit::DepositMemory;
use crate::notice::Notices;
use crate::posted::{Faults, Streams};
use crate::runtime::Accessor;
use farcall_core::env::Env;

/// The most streams of posted writes that a segment remembers.
const MAX_STREAMS: usize = 1024;

/// A segment, as the threads that execute importers' accesses use it.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) area: Area,
    settings: Settings,
    /// The valid generation; zero while the segment is revoked.
    generation: AtomicU64,
    /// Whether importers' writes are inhibited. A thread that changes the memory for an importer holds the
    /// read lock from before it checks the rights until it has changed the memory.
    writes_are_inhibited: RwLock<bool>,
    /// The streams of posted writes (writes that importers send without waiting for an answer).
    pub(super) streams: Mutex<Streams<Refused>>,
    pub(crate) notices: Notices,
}

impl Core {
    pub(super) fn new(area: Area, settings: Settings, generation: u64, env: &dyn Env) -> Core {
        Core {
            area,
            settings,
            generation: AtomicU64::new(generation),
            writes_are_inhibited: RwLock::default(),
            streams: Mutex::new(Streams::new(MAX_STREAMS, Faults::default())),
            notices: Notices::new(env),
        }
    }

    /// Returns a segment that consists of these words, to which any process has these rights. Its exporter is
    /// notified of every write.
    pub(crate) fn of_words(words: Arc<[AtomicU64]>, rights: Rights, generation: u64, env: &dyn Env) -> Core {
        let len = size_of_val(&*words);
        let settings = Settings::new(len).anyone(rights).notify(Notify::Always);
        Core::new(Area::own(words, len), settings, generation, env)
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

    /// Inhibits or allows importers' writes. Writes that were allowed before have ended when this returns.
    pub(super) fn inhibit_writes(&self, inhibited: bool) {
        *self.writes_are_inhibited.write().unwrap_or_else(PoisonError::into_inner) = inhibited;
    }

    /// Waits until the changes that were allowed before have ended. Checks that begin later see what this
    /// thread has stored before.
    pub(super) fn wait_for_changes(&self) {
        drop(self.writes_are_inhibited.write().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn writes_are_inhibited(&self) -> bool {
        *self.lock_writes()
    }

    fn lock_writes(&self) -> RwLockReadGuard<'_, bool> {
        self.writes_are_inhibited.read().unwrap_or_else(PoisonError::into_inner)
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

    /// Returns the rights of every process.
    #[inline]
    pub(super) fn rights_of_anyone(&self) -> Rights {
        self.settings.rights_of_anyone()
    }

    /// Returns the rights of the process that makes an access.
    pub(super) fn rights(&self, by: &Accessor) -> Rights {
        if by.same_user { self.settings.rights_of_same_user() } else { self.rights_of_anyone() }
    }

    /// Checks that the generation is valid, and that a process with the rights `has` may make an access that
    /// needs the rights `needs`. [`Core::begin_change`] checks whether writes are inhibited.
    pub(super) fn check(&self, generation: u64, has: Rights, needs: Rights) -> Result<()> {
        if !self.is(generation) {
            return Err(Refused::Stale.into());
        }
        if has.contains(needs) { Ok(()) } else { Err(Refused::NotPermitted.into()) }
    }

    /// Checks that a process may change the memory. This holds until the returned guard is dropped.
    pub(super) fn begin_change(
        &self,
        generation: u64,
        has: Rights,
        needs: Rights,
    ) -> Result<RwLockReadGuard<'_, bool>> {
        let inhibited = self.lock_writes();
        self.check(generation, has, needs)?;
        if *inhibited { Err(Refused::Inhibited.into()) } else { Ok(inhibited) }
    }

    pub(crate) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        check_range(self.size(), offset, len as u64)
    }

    pub(super) fn check_word(&self, offset: u64) -> Result<()> {
        check_alignment(offset)?;
        self.check_range(offset, 8)
    }

    /// Notifies the exporter that an importer wrote, if the settings or the writer ask for it.
    pub(crate) fn written(&self, offset: u64, len: usize, asked: bool, by: &mut Accessor) {
        let is_notified = match self.settings.notify {
            Notify::Never => false,
            Notify::Asked => asked,
            Notify::Always => true,
        };
        if is_notified {
            self.notices.add(offset, len as u64, by);
        }
    }
}

impl DepositMemory for Core {
    fn deposit(&self, generation: u64, offset: u64, bytes: &[u8]) -> bool {
        // While this is held, the owner does not finish revoking the segment or exporting it again.
        let _changing = self.lock_writes();
        let is_valid = self.is(generation);
        if is_valid {
            self.area.write(offset, bytes);
        }
        is_valid
    }

    fn deposited(&self, offset: u64, len: usize, asked: bool, woken: &mut Vec<Waker>) {
        let mut by = Accessor::default();
        self.written(offset, len, asked, &mut by);
        woken.append(&mut by.woken);
    }
}
