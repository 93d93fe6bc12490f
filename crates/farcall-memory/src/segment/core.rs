//! What the owner of a segment and the threads that serve it share: the memory, its generation and who may do what.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use super::area::Area;
use super::{Notify, Settings};
use crate::Result;
use crate::access::{Refused, Rights};
use crate::notice::Notices;
use crate::posted::{Faults, Streams};
use crate::runtime::Accessor;
use farcall_core::env::Env;

/// The most streams of posted writes of a segment that are remembered.
const MAX_STREAMS: usize = 1024;

/// A segment, as it is served.
#[derive(Debug)]
pub(crate) struct Core {
    area: Area,
    settings: Settings,
    /// The valid generation; zero while the segment is revoked.
    generation: AtomicU64,
    /// The generation that the segment had last.
    last: AtomicU64,
    inhibited: AtomicBool,
    /// Locked for reading by threads that change the memory for importers.
    changing: RwLock<()>,
    streams: Mutex<Streams<Refused>>,
    notices: Notices,
}

impl Core {
    pub(super) fn new(area: Area, settings: Settings, generation: u64, env: &dyn Env) -> Core {
        Core {
            area,
            settings,
            generation: AtomicU64::new(generation),
            last: AtomicU64::new(generation),
            inhibited: AtomicBool::new(false),
            changing: RwLock::default(),
            streams: Mutex::new(Streams::new(MAX_STREAMS, Faults::default())),
            notices: Notices::new(env),
        }
    }

    /// Memory of this process alone, with which anyone may do that. Its exporter hears of every write.
    pub(super) fn of_words(words: Arc<[AtomicU64]>, rights: Rights, generation: u64, env: &dyn Env) -> Core {
        let len = size_of_val(&*words);
        let settings = Settings::new(len).anyone(rights).notify(Notify::Always);
        Core::new(Area::own(words, len), settings, generation, env)
    }

    pub(super) fn area(&self) -> &Area {
        &self.area
    }

    /// The streams of posted writes.
    pub(super) fn streams(&self) -> MutexGuard<'_, Streams<Refused>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    pub(super) fn size(&self) -> u64 {
        self.area.len() as u64
    }

    /// Makes the segment a generation that it never was before; returns which.
    pub(super) fn renew(&self) -> u64 {
        let generation = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        self.set_generation(generation);
        generation
    }

    /// Makes that the valid generation; zero if none is to be.
    pub(super) fn set_generation(&self, generation: u64) {
        self.generation.store(generation, Ordering::SeqCst);
    }

    pub(super) fn inhibit_writes(&self, inhibited: bool) {
        self.inhibited.store(inhibited, Ordering::SeqCst);
    }

    pub(super) fn writes_are_inhibited(&self) -> bool {
        self.inhibited.load(Ordering::SeqCst)
    }

    /// Returns a guard that is to be held from before the check that a change is allowed until the change is done.
    pub(super) fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until changes have ended that were checked before. Later checks see what the caller has stored before this.
    pub(super) fn wait_for_changes(&self) {
        drop(self.changing.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether that generation is valid.
    #[inline]
    pub(super) fn is(&self, generation: u64) -> bool {
        generation != 0 && self.generation.load(Ordering::SeqCst) == generation
    }

    /// The valid generation; `None` while the segment is revoked.
    pub(super) fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::SeqCst)).filter(|generation| *generation != 0)
    }

    /// What anyone may do.
    #[inline]
    pub(super) fn rights_of_anyone(&self) -> Rights {
        self.settings.rights_of_anyone()
    }

    /// What that process may do.
    pub(super) fn rights(&self, by: &Accessor) -> Rights {
        if by.same_user { self.settings.rights_of_same_user() } else { self.rights_of_anyone() }
    }

    /// Whether a process that has these rights may do what needs those, with that generation.
    pub(super) fn check(&self, generation: u64, has: Rights, needs: Rights) -> Result<()> {
        if !self.is(generation) {
            return Err(Refused::Stale.into());
        }
        if !has.contains(needs) {
            return Err(Refused::NotPermitted.into());
        }
        if needs != Rights::READ && self.writes_are_inhibited() {
            return Err(Refused::Inhibited.into());
        }
        Ok(())
    }

    pub(super) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        match self.area.has(offset, len) {
            true => Ok(()),
            false => Err(Refused::OutOfRange(self.size()).into()),
        }
    }

    pub(super) fn check_word(&self, offset: u64) -> Result<()> {
        if !offset.is_multiple_of(8) {
            return Err(Refused::NotAWord.into());
        }
        self.check_range(offset, 8)
    }

    /// Tells the exporter that an importer wrote, if it is to hear of it.
    pub(super) fn written(&self, offset: u64, len: usize, asked: bool, by: &mut Accessor) {
        let hears = match self.settings.notify {
            Notify::Never => false,
            Notify::Asked => asked,
            Notify::Always => true,
        };
        if hears {
            self.notices.add(offset, len as u64, by);
        }
    }
}
