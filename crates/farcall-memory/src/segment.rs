//! Exported memory, as its owner uses it.
//!
//! ```text
//! core       the state that the owner and the threads that serve the segment share
//! area       the segment's memory
//! execute    the accesses of importers that arrive as calls
//! ```

mod area;
mod core;
mod execute;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::access::{Rights, TYPE};
use crate::notice::Notice;
use crate::runtime::{AccessHandler, MemoryExport, MemoryRuntime, SharingTerms};
use crate::{Memory, Result, words};
use area::Area;
use core::Core;
use farcall_core::env::Env;
use farcall_core::sys::fork;
use farcall_core::{CallFailed, Kind, Ran, lock};
use farcall_names::Registration;

#[doc(hidden)]
pub use execute::fuzz_access;

/// When the exporter is notified of an importer's write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notify {
    /// Never.
    #[default]
    Never,
    /// At every write for which the writer asks it.
    Asked,
    /// At every write.
    Always,
}

/// The settings of a segment to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    size: usize,
    anyone: Rights,
    same_user: Rights,
    notify: Notify,
}

impl Settings {
    /// Returns the settings of a segment of `size` bytes, to which no other process has any right yet.
    pub fn new(size: usize) -> Settings {
        Settings { size, anyone: Rights::NONE, same_user: Rights::NONE, notify: Notify::Never }
    }

    /// Sets the rights of every process that can send a packet here. (Over UDP a sender does not prove its
    /// identity.)
    pub fn anyone(self, rights: Rights) -> Settings {
        Settings { anyone: rights, ..self }
    }

    /// Sets further rights of processes of the same user on this machine. The system proves their identity
    /// where memory is shared with them (the builder's `shared_memory`). Such processes map the memory if
    /// they may only read it, or if they have all rights and the exporter is not notified of every write. The
    /// exporter does nothing for an access to mapped memory.
    pub fn same_user(self, rights: Rights) -> Settings {
        Settings { same_user: rights, ..self }
    }

    /// Sets when the exporter is notified of an importer's write.
    pub fn notify(self, notify: Notify) -> Settings {
        Settings { notify, ..self }
    }

    pub(super) fn rights_of_anyone(&self) -> Rights {
        self.anyone
    }

    fn rights_of_same_user(&self) -> Rights {
        self.anyone | self.same_user
    }

    /// Returns how processes of the same user may map the memory. Returns `None` if they may not, because the
    /// exporter is to be notified of every write, and nothing notifies it of writes to mapped memory.
    fn sharing(&self, generation: u64) -> Option<SharingTerms> {
        let others = self.rights_of_same_user();
        let hears = self.notify != Notify::Never;
        let keeps_notify = self.notify != Notify::Always || !others.contains(Rights::WRITE);
        let anyone = self.rights_of_anyone();
        keeps_notify.then_some(SharingTerms { others, anyone, hears, generation })
    }
}

/// A segment of this process that other processes may import. Dropping it revokes the segment.
#[derive(Debug)]
pub struct Segment {
    /// The segment's name with the clerk; `None` if no clerk knows the segment.
    listing: Option<Box<dyn Listing>>,
    name: String,
    core: Arc<Core>,
    export: Box<dyn MemoryExport>,
    /// The last generation that the segment had. A thread locks this while it changes what importers may do.
    /// Without the lock, one thread could find that writes are allowed, and offer the segment to writers
    /// after another thread has inhibited writes or revoked the segment.
    last_generation: Mutex<u64>,
    /// The fork generation of the process that exported the segment. A forked child has another one.
    process: u64,
}

/// The name by which importers find a segment. Dropping this withdraws the name.
pub(super) trait Listing: std::fmt::Debug + Send + Sync {
    /// Announces that the segment is now exported as this generation.
    fn update(&self, generation: u64) -> farcall_core::Result<()>;

    /// Announces that the segment is revoked.
    fn remove(&self);
}

/// The maximum size of a segment in bytes.
const MAX_SEGMENT_BYTES: usize = 1 << 40;

impl Segment {
    /// Exports a segment of zeros, without a name: only importers that know its address find it.
    pub(super) fn offer(
        runtime: &dyn MemoryRuntime,
        name: &str,
        settings: Settings,
    ) -> std::result::Result<Segment, CallFailed> {
        if settings.size == 0 || settings.size > MAX_SEGMENT_BYTES {
            let why = format!("a segment cannot have {} bytes, only 1 to {MAX_SEGMENT_BYTES}", settings.size);
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        let (env, size) = (&**runtime.env(), settings.size);
        let generation = first_generation(env);
        let shared = settings.sharing(generation).and_then(|terms| runtime.share_memory(size, terms));
        let area = match shared {
            Some(memory) => Area::shared(memory, size),
            None => Area::own(words::zeros(size).into(), size),
        };
        let core = Arc::new(Core::new(area, settings, generation, env));
        let export = runtime.export_memory(&format!("{TYPE}/{name}"), core.clone())?;
        if let Some(memory) = core.area.shared_memory() {
            memory.offer(export.id());
        }
        let (name, process) = (name.to_owned(), fork::generation());
        let last_generation = Mutex::new(generation);
        Ok(Segment { listing: None, name, core, export, last_generation, process })
    }

    /// Returns the same segment with a name by which importers find it.
    pub(super) fn listed(mut self, listing: Box<dyn Listing>) -> Segment {
        self.listing = Some(listing);
        self
    }

    /// Refuses importers' writes and swaps if `inhibited`, and otherwise allows them again. Accesses that
    /// have begun have ended when this returns. Inhibiting writes ends the mappings of importers that could
    /// write: they access the memory by calls from then on, even when writes are allowed again.
    pub fn inhibit_writes(&self, inhibited: bool) {
        let _last = lock(&self.last_generation);
        self.core.inhibit_writes(inhibited);
        if let (true, Some(memory)) = (inhibited, self.core.area.shared_memory())
            && memory.is_written_by_others()
        {
            memory.take_away(None);
        }
    }

    /// Refuses all accesses of other processes from now on. This process keeps the memory.
    pub fn revoke(&self) {
        {
            let _last = lock(&self.last_generation);
            self.core.set_generation(0);
            self.core.wait_for_changes();
            if let Some(memory) = self.core.area.shared_memory() {
                memory.take_away(None);
            }
        }
        if let Some(listing) = &self.listing {
            listing.remove();
        }
    }

    /// Exports the segment again with its present content, as a new generation. Importers must import it
    /// again. If this process cannot tell the machine's clerk of the new generation, later importers find it
    /// out from the segment's exporter.
    pub fn export_again(&self) {
        let generation = {
            let mut last = lock(&self.last_generation);
            *last += 1;
            let generation = *last;
            self.core.set_generation(generation);
            self.core.wait_for_changes();
            if let Some(memory) = self.core.area.shared_memory() {
                let writes_are_inhibited = self.core.writes_are_inhibited() && memory.is_written_by_others();
                memory.take_away((!writes_are_inhibited).then_some(generation));
            }
            generation
        };
        if let Some(listing) = &self.listing {
            let _ = listing.update(generation);
        }
    }

    /// Returns the valid generation, which grows each time the segment is exported again. Returns `None`
    /// while the segment is revoked.
    pub fn generation(&self) -> Option<u64> {
        self.core.generation()
    }

    /// Returns the address from which the segment can be imported.
    pub(super) fn address(&self) -> SocketAddr {
        self.export.address()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Publishes the segment in the registry under this name. Dropping the registration withdraws the name.
    pub(super) fn register(&self, name: &str) -> std::result::Result<Registration, CallFailed> {
        let wrong = |why| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why);
        self.export.list_as(name.parse().map_err(wrong)?)
    }

    /// Blocks until there is a notice. Each notice goes to one of the waiting threads and tasks.
    pub fn notice(&self) -> Notice {
        let notice = self.core.notices.wait();
        notice.unwrap_or_else(|| unreachable!("notices end when the segment is dropped"))
    }

    /// Awaits a notice, on any executor.
    pub fn next_notice(&self) -> impl Future<Output = Notice> + Send + '_ {
        std::future::poll_fn(|context| self.core.notices.poll(context))
    }

    /// Starts a thread that calls `f` with each notice from now on, until the segment is dropped.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn on_notice(&self, mut f: impl FnMut(Notice) + Send + 'static) -> farcall_core::Result<()> {
        let core = self.core.clone();
        let run = move || {
            while let Some(notice) = core.notices.wait() {
                f(notice);
            }
        };
        let spawned = self.export.spawn("farcall-notices", Box::new(run));
        Ok(spawned.map_err(|why| CallFailed::local("starting a thread", why))?)
    }

    /// Waits for a notice, for at most `timeout`. Returns `None` after that time, or when [`Segment::wake`]
    /// ends the wait.
    pub(super) fn notice_within(&self, timeout: Option<Duration>) -> Option<Notice> {
        self.core.notices.wait_within(timeout)
    }

    /// Wakes a thread that waits for a notice.
    pub(super) fn wake(&self) {
        self.core.notices.wake();
    }

    /// Returns a notice, if there is one.
    pub fn try_notice(&self) -> Option<Notice> {
        self.core.notices.fetch()
    }

    /// Checks that an access by the owner lies within the segment. Fails in a forked child, which shares the
    /// mapped memory but may not use it.
    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<()> {
        if self.process != fork::generation() {
            return Err(CallFailed::forked().into());
        }
        self.core.check_range(offset, len)
    }

    /// Returns a name by which the segment can be imported without a registry, such as
    /// `udp://127.0.0.1:7000/Load`.
    pub fn url(&self) -> String {
        format!("udp://{}/{}", self.address(), self.name)
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
        self.core.set_generation(0);
        self.core.notices.end();
        if let Some(memory) = self.core.area.shared_memory() {
            memory.withdraw();
        }
    }
}

/// Returns the access handler of a segment that consists of these words and has this generation. Other
/// processes may only read it.
pub fn readable_words(words: Arc<[AtomicU64]>, generation: u64, env: &dyn Env) -> Arc<dyn AccessHandler> {
    Arc::new(Core::of_words(words, Rights::READ, generation, env))
}

/// Returns a random first generation, so that a process that exports the same name later gets other
/// generations.
fn first_generation(env: &dyn Env) -> u64 {
    let mut bytes = [0; 8];
    env.entropy(&mut bytes);
    // The generation must not be zero, and must have room to grow.
    (u64::from_le_bytes(bytes) >> 1) + 1
}
