//! Memory that is exported, and what may be done with it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use super::access::{Access, Refused};
use super::area::Area;
use super::clerk::Named;
use super::notice::{Notice, Notices};
use super::streams::Streams;
use super::{Memory, Result, mapped};
use crate::env::Env;
use crate::names::Registration;
use crate::server::{Accesses, Accessor};
use crate::sys::fork;
use crate::{CallFailed, Export, Kind, Ran, Runtime};

/// What may be done with a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rights(u32);

impl Rights {
    /// Nothing.
    pub const NONE: Rights = Rights(0);
    /// Reading.
    pub const READ: Rights = Rights(1);
    /// Writing.
    pub const WRITE: Rights = Rights(2);
    /// Comparing and swapping words.
    pub const CAS: Rights = Rights(4);
    /// Everything.
    pub const ALL: Rights = Rights(7);

    /// Whether these contain all of those.
    pub fn contains(self, those: Rights) -> bool {
        self.0 & those.0 == those.0
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// Unknown bits give no right.
    pub(super) fn from_bits(bits: u32) -> Rights {
        Rights(bits & Rights::ALL.0)
    }
}

impl std::ops::BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// When the exporter hears that somebody wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// Never.
    #[default]
    Never,
    /// When the writer asks for it.
    Asked,
    /// Whenever somebody writes.
    Always,
}

/// How a segment is to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    size: usize,
    anyone: Rights,
    same_user: Rights,
    notify: Notify,
}

impl Settings {
    /// A segment of `size` bytes, with which nobody else may do anything yet.
    pub fn new(size: usize) -> Settings {
        Settings { size, anyone: Rights::NONE, same_user: Rights::NONE, notify: Notify::Never }
    }

    /// What anyone may do who can send a packet here: over UDP nobody proves who they are.
    pub fn anyone(self, rights: Rights) -> Settings {
        Settings { anyone: rights, ..self }
    }

    /// What processes of the same user on this machine may do beside that: the system proves who they are, where
    /// [memory is shared](crate::Builder::shared_memory) with them. Rights to read and nothing else, or all rights, are
    /// a mapping's: what they do with it then costs nothing here. (All rights with [`Notify::Always`] are not.)
    pub fn same_user(self, rights: Rights) -> Settings {
        Settings { same_user: rights, ..self }
    }

    /// When the exporter hears that somebody wrote.
    pub fn notify(self, notify: Notify) -> Settings {
        Settings { notify, ..self }
    }
}

/// A segment of this process that others may import. Dropping it revokes it.
#[derive(Debug)]
pub struct Segment {
    /// None if no clerk knows it.
    named: Option<Named>,
    core: Arc<Core>,
    export: Export,
    /// Held while what others may do is changed.
    changes: Mutex<()>,
    /// The process it was made in.
    process: u64,
}

/// What a segment's owner and those who serve it share.
#[derive(Debug)]
pub(super) struct Core {
    area: Area,
    settings: Settings,
    /// Zero while it is revoked.
    generation: AtomicU64,
    /// The last one that it had.
    last: AtomicU64,
    inhibited: AtomicBool,
    /// Locked for reading by whoever is changing it for others.
    changing: RwLock<()>,
    streams: Streams,
    notices: Notices,
}

/// The largest segment, in bytes.
const MAX_SIZE: usize = 1 << 40;

/// The type under which segments are exported.
pub(super) const TYPE: &str = "Memory";

impl Runtime {
    /// As [`memory::export`](super::export), from this runtime.
    ///
    /// # Errors
    /// As [`memory::export`](super::export).
    pub fn export_segment(&self, name: &str, settings: Settings) -> crate::Result<Segment> {
        let mut segment = self.offer_segment(name, settings)?;
        segment.named = Some(Named::new(self, &segment, settings.anyone)?);
        Ok(segment)
    }

    /// A segment that only those find who know the address.
    pub(super) fn offer_segment(
        &self,
        name: &str,
        settings: Settings,
    ) -> std::result::Result<Segment, CallFailed> {
        if settings.size == 0 || settings.size > MAX_SIZE {
            let why = format!("a segment of {} bytes; it has from 1 to {MAX_SIZE}", settings.size);
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        let generation = self.first_generation();
        let core = Arc::new(Core::new(self.area(&settings, generation), settings, generation, &**self.env()));
        let accesses: Arc<dyn Accesses> = core.clone();
        let export =
            self.export_unlisted::<dyn Access>(&format!("{TYPE}/{name}"), core.clone(), Some(accesses))?;
        self.offers().add(export.id(), &core);
        Ok(Segment { named: None, core, export, changes: Mutex::default(), process: fork::generation() })
    }

    /// Memory that those who may can map, where there is such memory.
    fn area(&self, settings: &Settings, generation: u64) -> Area {
        let ground = match self.shares_memory() && settings.notify_always_is_kept() {
            true => mapped::ground(settings.size, settings.near(), generation),
            false => None,
        };
        ground.map_or_else(|| Area::new(settings.size), |ground| Area::on(ground, settings.size))
    }

    /// Not another's: a process that exports the name after us has other generations.
    fn first_generation(&self) -> u64 {
        let mut bytes = [0; 8];
        self.env().entropy(&mut bytes);
        // So that it is not zero, and can grow.
        (u64::from_le_bytes(bytes) >> 1) + 1
    }
}

/// Segments whose memory may be mapped, by the identifiers of their exports.
#[derive(Default)]
pub(crate) struct Offers(Mutex<HashMap<u64, Weak<Core>>>);

impl Offers {
    fn add(&self, export: u64, core: &Arc<Core>) {
        if core.area.ground().is_some() {
            let mut offers = self.lock();
            offers.retain(|_, core| core.strong_count() > 0);
            offers.insert(export, Arc::downgrade(core));
        }
    }

    /// Passes memory to a process of the same user, if that export has such memory and it is of that generation.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn pass(&self, export: u64, generation: u64, proof: &[u8; 16], guest: &mapped::Guest) -> bool {
        let core = self.lock().get(&export).and_then(Weak::upgrade);
        core.is_some_and(|core| {
            let heard = core.settings.notify != Notify::Never;
            core.area.ground().is_some_and(|ground| ground.pass(generation, heard, proof, guest))
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<Core>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Settings {
    /// What a process of the same user may do.
    fn near(&self) -> Rights {
        self.anyone | self.same_user
    }

    /// Nobody hears of what is written by mapping.
    fn notify_always_is_kept(&self) -> bool {
        self.notify != Notify::Always || !self.near().contains(Rights::WRITE)
    }
}

impl Segment {
    /// Refuses others' writes and swaps, or no longer. Those that have begun have ended when this returns. Whoever had mapped the
    /// memory to write it is served from the first time on.
    pub fn inhibit_writes(&self, inhibited: bool) {
        let _one = self.change();
        self.core.inhibited.store(inhibited, Ordering::SeqCst);
        self.core.wait_for_changes();
        if let (true, Some(ground)) = (inhibited, self.core.area.ground())
            && ground.is_written_by_others()
        {
            ground.part(None);
        }
    }

    /// Refuses whatever others do with it from now on; the memory stays this process's.
    pub fn revoke(&self) {
        {
            let _one = self.change();
            self.core.generation.store(0, Ordering::SeqCst);
            self.core.wait_for_changes();
            if let Some(ground) = self.core.area.ground() {
                ground.part(None);
            }
        }
        if let Some(named) = &self.named {
            named.delete();
        }
    }

    /// Exports it again as it is now, as a new generation: who had imported it must import it anew. (When the machine's clerk
    /// does not hear of it, those who import it find out.)
    pub fn export_again(&self) {
        let generation = {
            let _one = self.change();
            let generation = self.core.last.fetch_add(1, Ordering::SeqCst) + 1;
            self.core.generation.store(generation, Ordering::SeqCst);
            self.core.wait_for_changes();
            if let Some(ground) = self.core.area.ground() {
                let writes_are_inhibited =
                    self.core.inhibited.load(Ordering::SeqCst) && ground.is_written_by_others();
                ground.part((!writes_are_inhibited).then_some(generation));
            }
            generation
        };
        if let Some(named) = &self.named {
            let _ = named.add_anew(generation);
        }
    }

    /// Lets one thread at a time change what others may do. Otherwise a thread that exports the segment again
    /// could find that writes are not inhibited, and then offer it to writers after another thread has
    /// inhibited writes, or has revoked the segment.
    fn change(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which export of it is valid; none while it is revoked.
    pub fn generation(&self) -> Option<u64> {
        self.core.generation()
    }

    /// Where it can be imported from.
    pub(super) fn address(&self) -> SocketAddr {
        self.export.address()
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        let name = self.export.name();
        name.rsplit('/').next().unwrap_or(name)
    }

    /// Tells the registry of it, under this name.
    pub(super) fn list_as(&self, name: &str) -> std::result::Result<Registration, CallFailed> {
        let wrong = |why| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why);
        self.export.list_as(name.parse().map_err(wrong)?)
    }

    /// Blocks until somebody's write is to be heard of. Each notice goes to one of those who wait, however they do.
    pub fn notice(&self) -> Notice {
        self.core
            .notices
            .wait()
            .unwrap_or_else(|| unreachable!("there are notices as long as there is a segment"))
    }

    /// Waits, in a task of any executor, for a write with notice.
    pub fn next_notice(&self) -> impl Future<Output = Notice> + Send + '_ {
        std::future::poll_fn(|context| self.core.notices.poll(context))
    }

    /// Has a thread of its own call `f` with each notice from now on, until the segment is dropped.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn on_notice(&self, mut f: impl FnMut(Notice) + Send + 'static) -> crate::Result<()> {
        let (core, runtime) = (self.core.clone(), self.export.runtime().clone());
        let inside = runtime.clone();
        let body = move || {
            inside.enter(|| {
                while let Some(notice) = core.notices.wait() {
                    f(notice);
                }
            });
        };
        let spawned = runtime.env().spawn("farcall-notices", Box::new(body));
        Ok(spawned.map_err(|why| crate::runtime::local("starting a thread", why))?)
    }

    /// As [`Segment::notice`], but for no longer than `most`, nor beyond a [`Segment::wake`].
    pub(super) fn notice_within(&self, most: Option<Duration>) -> Option<Notice> {
        self.core.notices.wait_within(most)
    }

    /// Wakes who waits for a notice.
    pub(super) fn wake(&self) {
        self.core.notices.wake();
    }

    /// Somebody's write, if there is one to hear of.
    pub fn try_notice(&self) -> Option<Notice> {
        self.core.notices.fetch()
    }

    /// Memory that is mapped a child of this process shares, and may not use.
    fn check(&self, offset: u64, len: usize) -> Result<()> {
        if self.process != fork::generation() {
            return Err(crate::client::forked().into());
        }
        self.core.check_range(offset, len)
    }

    /// Its name without a registry, as in `udp://127.0.0.1:7000/Load`.
    pub fn url(&self) -> String {
        format!("udp://{}/{}", self.address(), self.name())
    }
}

impl Memory for Segment {
    fn size(&self) -> u64 {
        self.core.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        self.core.area.read(offset, into);
        Ok(())
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        self.core.area.read_bytes(offset, into);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.core.area.write(offset, bytes);
        Ok(())
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        self.core.area.write_bytes(offset, bytes);
        Ok(())
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.check(offset, 8)?;
        self.core.check_word(offset)?;
        Ok(self.core.area.compare_and_swap(offset, old, new))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.process != fork::generation() {
            return;
        }
        self.core.generation.store(0, Ordering::SeqCst);
        self.core.notices.end();
        if let Some(ground) = self.core.area.ground() {
            ground.withdraw();
        }
    }
}

impl Core {
    fn new(area: Area, settings: Settings, generation: u64, env: &dyn Env) -> Core {
        Core {
            area,
            settings,
            generation: AtomicU64::new(generation),
            last: AtomicU64::new(generation),
            inhibited: AtomicBool::new(false),
            changing: RwLock::default(),
            streams: Streams::default(),
            notices: Notices::new(env),
        }
    }

    /// Memory that anyone may read, and that is served.
    pub(super) fn to_read(words: Arc<[AtomicU64]>, generation: u64, env: &dyn Env) -> Core {
        let area = Area::of(words);
        let settings = Settings::new(area.len()).anyone(Rights::READ);
        Core::new(area, settings, generation, env)
    }

    /// Lets anyone do everything with the memory.
    pub(super) fn open_to_all(mut self) -> Core {
        self.settings = self.settings.anyone(Rights::ALL).notify(Notify::Always);
        self
    }

    pub(super) fn area(&self) -> &Area {
        &self.area
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.streams
    }

    pub(super) fn size(&self) -> u64 {
        self.area.len() as u64
    }

    /// To be held from before a check that it may be changed until it is.
    pub(super) fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for those that were checked before: what is stored before this all others see.
    fn wait_for_changes(&self) {
        drop(self.changing.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether that is its generation now.
    #[inline]
    pub(super) fn is(&self, generation: u64) -> bool {
        generation != 0 && self.generation.load(Ordering::SeqCst) == generation
    }

    /// Its generation, unless it is revoked.
    pub(super) fn generation(&self) -> Option<u64> {
        Some(self.generation.load(Ordering::SeqCst)).filter(|generation| *generation != 0)
    }

    /// What whoever calls may do: by packets anyone, by shared memory a process of the same user.
    pub(super) fn far(&self) -> Rights {
        if crate::context::is_same_user() { self.settings.near() } else { self.settings.anyone }
    }

    /// Whether whoever calls may read that generation.
    #[inline]
    pub(super) fn may_read(&self, generation: u64) -> bool {
        self.is(generation) && self.far().contains(Rights::READ)
    }

    /// Whether whoever calls may do that with that generation.
    pub(super) fn check(&self, generation: u64, right: Rights) -> Result<()> {
        if !self.is(generation) {
            return Err(Refused::Stale.into());
        }
        if !self.far().contains(right) {
            return Err(Refused::NotPermitted.into());
        }
        if right != Rights::READ && self.inhibited.load(Ordering::SeqCst) {
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

    /// Somebody else wrote there, and perhaps asks that we hear of it.
    pub(super) fn written(&self, offset: u64, len: usize, asked: bool, by: &mut Accessor) {
        let heard = match self.settings.notify {
            Notify::Never => false,
            Notify::Asked => asked,
            Notify::Always => true,
        };
        if heard {
            self.notices.add(offset, len as u64, by);
        }
    }
}
