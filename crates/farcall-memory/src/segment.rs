//! Exported memory, as its owner uses it.
//!
//! ```text
//! core       the state that the owner and the threads that serve the segment share
//! area       the segment's memory
//! terms      rights and notices, which the owner may change at any time
//! execute    the accesses of importers that arrive as calls
//! pages      pinned memory and huge pages
//! ```

mod area;
mod core;
mod execute;
mod pages;
mod terms;

use std::fmt;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::access::{Rights, TYPE};
use crate::carrier::SharedMemory;
use crate::deposit::DepositTarget;
use crate::notice::Notice;
use crate::runtime::{AccessHandler, MemoryExport, MemoryRuntime, SharingTerms};
use crate::{Memory, Result};
pub(crate) use core::Core;

use area::Area;
use farcall_core::env::Env;
use farcall_core::messages::say;
use farcall_core::sys::fork;
use farcall_core::{CallFailed, Error, Kind, Ran, guard, lock};
use farcall_names::Registration;

#[doc(hidden)]
pub use execute::fuzz_access;
pub use pages::HugePages;
pub use terms::{Condition, Importers, Notify};

/// The settings of a segment to be exported.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    size: usize,
    anyone: Rights,
    same_user: Rights,
    mappable: Option<Rights>,
    notify: Notify,
    #[cfg_attr(not(unix), allow(dead_code))]
    sigio: bool,
    huge_pages: bool,
}

impl Settings {
    /// Returns the settings of a segment of `size` bytes, to which no other process has any right yet.
    pub fn new(size: usize) -> Settings {
        let (anyone, same_user, notify) = (Rights::NONE, Rights::NONE, Notify::Never);
        Settings { size, anyone, same_user, mappable: None, notify, sigio: false, huge_pages: false }
    }

    /// Sets the rights of every process that can send a packet here. (Over UDP a sender does not prove its
    /// identity.)
    pub fn anyone(self, rights: Rights) -> Settings {
        Settings { anyone: rights, ..self }
    }

    /// Sets further rights of processes of the same user on this machine. The system proves their identity
    /// where memory is shared with them (the builder's `shared_memory`). Such processes map the memory if
    /// they may only read it, or if they have all rights, unless the exporter is notified of accesses for
    /// which nobody asks. The exporter does nothing for an access to mapped memory.
    pub fn same_user(self, rights: Rights) -> Settings {
        Settings { same_user: rights, ..self }
    }

    /// Sets how processes of the same user may map the memory at most: [`Rights::READ`] or [`Rights::ALL`].
    /// Without this, the rights that such processes have from the beginning decide. So a segment that is
    /// exported without rights, and whose rights are [granted](Segment::grant) later, is mapped only with
    /// this setting. It gives no rights: an importer maps the memory if it has exactly these rights.
    pub fn mappable(self, rights: Rights) -> Settings {
        Settings { mappable: Some(rights), ..self }
    }

    /// Sets when the exporter is notified of an importer's access.
    pub fn notify(self, notify: Notify) -> Settings {
        Settings { notify, ..self }
    }

    /// Sets whether the segment's descriptor can raise SIGIO, after `fcntl` with `F_SETOWN` and `O_ASYNC`.
    /// The descriptor is then a pipe, which takes two descriptors and more time for each notice than the
    /// eventfd that is the default on Linux. Other systems always use a pipe.
    #[cfg(unix)]
    pub fn sigio(self, sigio: bool) -> Settings {
        Settings { sigio, ..self }
    }

    /// Sets whether the system is asked to use huge pages. Where it has none, it uses ordinary ones:
    /// [`Segment::huge_pages`] tells that.
    pub fn huge_pages(self, huge_pages: bool) -> Settings {
        Settings { huge_pages, ..self }
    }

    pub(super) fn rights_of_anyone(&self) -> Rights {
        self.anyone
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns how processes of the same user may map the memory. Returns `None` if they may not, because
    /// nothing notifies the exporter of accesses to mapped memory.
    fn sharing(&self, generation: u64) -> Option<SharingTerms> {
        let others = self.mappable.unwrap_or(self.anyone | self.same_user);
        let hears = self.notify != Notify::Never;
        let lets_map = self.notify.allows_mapping(others.contains(Rights::WRITE));
        lets_map.then_some(SharingTerms { others, anyone: self.anyone, hears, generation })
    }
}

/// A segment of this process that other processes may import. Dropping it revokes the segment.
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
    /// Opens the descriptor of notices, when it is first asked for.
    #[cfg(unix)]
    env: Arc<dyn Env>,
    /// Whether that descriptor can raise SIGIO.
    #[cfg(unix)]
    sigio: bool,
    huge_pages: HugePages,
}

/// The name by which importers find a segment. Dropping this withdraws the name.
pub(super) trait Listing: fmt::Debug + Send + Sync {
    /// Announces that the segment is now exported as this generation, with these rights of every process.
    fn update(&self, generation: u64, rights: Rights) -> farcall_core::Result<()>;

    /// Announces that the segment is revoked.
    fn remove(&self);
}

/// The maximum size of a segment in bytes.
const MAX_SEGMENT_BYTES: usize = 1 << 40;

/// Checks that a segment may have `size` bytes.
pub(super) fn check_size(size: usize) -> std::result::Result<(), CallFailed> {
    if (1..=MAX_SEGMENT_BYTES).contains(&size) {
        return Ok(());
    }
    let why = format!("a segment cannot have {size} bytes, only 1 to {MAX_SEGMENT_BYTES}");
    Err(CallFailed::new(Kind::Local, Ran::No).because(why))
}

impl Segment {
    /// Exports a segment of zeros, without a name: only importers that know its address find it.
    pub(super) fn offer(
        runtime: &dyn MemoryRuntime,
        name: &str,
        settings: Settings,
    ) -> std::result::Result<Segment, CallFailed> {
        Segment::offer_memory(runtime, name, settings, None)
    }

    /// Exports a segment as [`Segment::offer`] does, of this memory if there is some, and otherwise of zeros.
    pub(super) fn offer_memory(
        runtime: &dyn MemoryRuntime,
        name: &str,
        settings: Settings,
        memory: Option<Box<dyn SharedMemory>>,
    ) -> std::result::Result<Segment, CallFailed> {
        check_size(settings.size)?;
        if let Err(Error::Declared(why)) = settings.notify.check(settings.size as u64) {
            let why = format!("the condition for notices: {why}");
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        let (env, size) = (runtime.env(), settings.size);
        let generation = first_generation(&**env);
        let share = || settings.sharing(generation).and_then(|terms| runtime.share_memory(size, terms));
        let area = match memory.or_else(share) {
            Some(memory) => Area::shared(memory, size),
            None => Area::own(size).map_err(|why| no_room(name, size, &why))?,
        };
        let huge_pages = HugePages::ask(&area, settings.huge_pages);
        let core = Arc::new(Core::new(area, settings, generation, env));
        let export = runtime.export_memory(&format!("{TYPE}/{name}"), core.clone())?;
        if let Some(memory) = core.area.shared_memory() {
            memory.offer(export.id());
        }
        let (name, process) = (name.to_owned(), fork::generation());
        let last_generation = Mutex::new(generation);
        Ok(Segment {
            listing: None,
            name,
            core,
            export,
            last_generation,
            process,
            huge_pages,
            #[cfg(unix)]
            env: runtime.env().clone(),
            #[cfg(unix)]
            sigio: settings.sigio,
        })
    }

    /// Returns the same segment with a name by which importers find it.
    pub(super) fn listed(mut self, listing: Box<dyn Listing>) -> Segment {
        self.listing = Some(listing);
        self
    }

    /// Gives rights to importers, beside those that they have. Importers that have the segment imported learn
    /// of new rights when they import it again.
    ///
    /// ```no_run
    /// # fn main() -> farcall::memory::Result<()> {
    /// use farcall::memory::{Importers, Rights, Settings};
    ///
    /// let orders = farcall::memory::export("Orders", Settings::new(64))?;
    /// orders.grant(Importers::Principal("alice"), Rights::READ | Rights::WRITE)?;
    /// orders.withdraw(Importers::Principal("alice"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When nobody can be the principal: the runtime has no keys, or no principal can have that name. Also
    /// when the segment knows 1,024 principals already.
    pub fn grant(&self, to: Importers<'_>, rights: Rights) -> farcall_core::Result<()> {
        self.check_importers(to)?;
        {
            let _last = lock(&self.last_generation);
            self.core.change_terms(|terms| terms.grant(to, rights))?;
        }
        self.update_listing(to);
        Ok(())
    }

    /// Takes away all rights that these importers were given. They keep rights that others are given and that
    /// apply to them too: a principal may read what anyone may read.
    ///
    /// When this returns, no access that needed the rights will be executed, and the result of no read will
    /// contain anything that was written later. If importers may have the memory mapped because of these
    /// rights, it is taken away from all importers: they go on by calls until the segment is exported again.
    pub fn withdraw(&self, from: Importers<'_>) {
        if !self.is_ours() {
            return;
        }
        {
            let _last = lock(&self.last_generation);
            let lost = self.core.change_terms(|terms| terms.withdraw(from));
            if let Some(memory) = self.core.area.shared_memory() {
                let mapped_by = if memory.is_written_by_others() { Rights::ALL } else { Rights::READ };
                // What is read by anyone must not be read on because the same user may read it.
                let anyone_may_read = self.core.terms().rights_of_anyone().contains(Rights::READ);
                let is_offered_to_none = memory.is_read_by_anyone() && !anyone_may_read;
                if mapped_by.without(lost) != mapped_by || is_offered_to_none {
                    self.take_away(memory, None);
                }
            }
        }
        self.update_listing(from);
    }

    /// Changes when the exporter is notified of importers' accesses. When this returns, notices follow the
    /// new rule alone. If importers have the memory mapped in a way that does not notify the exporter of what
    /// it asks for now, the memory is taken away from them: they go on by calls until the segment is exported
    /// again.
    ///
    /// # Errors
    /// When the condition is about bytes that are not in the segment.
    pub fn set_notify(&self, notify: Notify) -> Result<()> {
        self.check_ours()?;
        notify.check(self.core.size())?;
        let _last = lock(&self.last_generation);
        self.core.change_terms(|terms| terms.notify = notify);
        let Some(memory) = self.core.area.shared_memory() else { return Ok(()) };
        let (hears, writes) = (notify != Notify::Never, memory.is_written_by_others());
        let are_told = memory.hears() || !hears || !writes;
        memory.set_hears(hears);
        if !are_told || !notify.allows_mapping(writes) {
            memory.take_away(None).map_err(|why| not_taken_away(&why))?;
        }
        Ok(())
    }

    /// Refuses importers' writes and swaps if `inhibited`, and otherwise allows them again. Accesses that
    /// have begun have ended when this returns. Inhibiting writes ends the mappings of importers that could
    /// write: they access the memory by calls from then on, even when writes are allowed again.
    pub fn inhibit_writes(&self, inhibited: bool) {
        if !self.is_ours() {
            return;
        }
        let _last = lock(&self.last_generation);
        if let Err(why) = self.inhibit(Importers::Anyone, inhibited) {
            self.say(&why);
        }
    }

    /// Refuses or allows the writes and swaps of some importers, as [`Segment::inhibit_writes`] does for all.
    /// Their rights are not changed. A write is refused if writes are inhibited of anyone, or of importers
    /// among whom the writer is.
    ///
    /// # Errors
    /// Those of [`Segment::grant`].
    pub fn inhibit_writes_of(&self, of: Importers<'_>, inhibited: bool) -> farcall_core::Result<()> {
        self.check_importers(of)?;
        let _last = lock(&self.last_generation);
        self.inhibit(of, inhibited)
    }

    /// Takes the memory away from importers that have it mapped. If that fails, says so on standard error.
    fn take_away(&self, memory: &dyn SharedMemory, offer: Option<u64>) {
        if let Err(why) = memory.take_away(offer) {
            self.say(&not_taken_away(&why).into());
        }
    }

    #[cold]
    fn say(&self, why: &Error) {
        say(format_args!("segment {:?}: {why}", self.name));
    }

    fn inhibit(&self, of: Importers<'_>, inhibited: bool) -> farcall_core::Result<()> {
        self.core.change_terms(|terms| terms.inhibit_writes(of, inhibited))?;
        if let (true, Some(memory)) = (inhibited, self.core.area.shared_memory())
            && memory.is_written_by_others()
        {
            memory.take_away(None).map_err(|why| not_taken_away(&why))?;
        }
        Ok(())
    }

    fn check_importers(&self, who: Importers<'_>) -> farcall_core::Result<()> {
        self.check_ours()?;
        match who {
            Importers::Anyone | Importers::SameUser => Ok(()),
            Importers::Principal(name) => Ok(self.export.check_principal(name)?),
        }
    }

    /// Tells the machine's clerk of the rights of every process, if they have changed. A clerk that cannot be
    /// told has outdated rights in its table, on which nobody relies.
    fn update_listing(&self, changed: Importers<'_>) {
        if let (Importers::Anyone, Some(listing), Some(generation)) =
            (changed, &self.listing, self.core.generation())
        {
            // (The terms must not be locked while the clerk is called, which may ask this segment.)
            let rights = self.core.terms().rights_of_anyone();
            let _ = listing.update(generation, rights);
        }
    }

    /// Refuses all accesses of other processes from now on. This process keeps the memory.
    pub fn revoke(&self) {
        if !self.is_ours() {
            return;
        }
        {
            let _last = lock(&self.last_generation);
            self.core.set_generation(0);
            self.core.wait_for_accesses();
            if let Some(memory) = self.core.area.shared_memory() {
                self.take_away(memory, None);
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
        if !self.is_ours() {
            return;
        }
        let generation = {
            let mut last = lock(&self.last_generation);
            *last += 1;
            let generation = *last;
            self.core.set_generation(generation);
            self.core.wait_for_accesses();
            if let Some(memory) = self.core.area.shared_memory() {
                let terms = self.core.terms();
                let lets_map = terms.let_some_map(memory.is_written_by_others())
                    && (!memory.is_read_by_anyone() || terms.rights_of_anyone().contains(Rights::READ));
                drop(terms);
                self.take_away(memory, lets_map.then_some(generation));
            }
            generation
        };
        if let Some(listing) = &self.listing {
            let rights = self.core.terms().rights_of_anyone();
            let _ = listing.update(generation, rights);
        }
    }

    /// Returns the place of `len` bytes at an offset, as the target of a deposit.
    ///
    /// # Errors
    /// When the segment is revoked or too short, or this is a forked child of the process that exported it.
    pub(super) fn deposit_target(
        &self,
        offset: u64,
        len: usize,
        notify: bool,
    ) -> std::result::Result<DepositTarget, CallFailed> {
        if self.process != fork::generation() {
            return Err(CallFailed::forked());
        }
        let Some(generation) = self.core.generation() else {
            return Err(no_target("it is revoked".into()));
        };
        if self.core.check_range(offset, len).is_err() {
            let size = self.core.size();
            return Err(no_target(format!("it has {size} bytes, not {len} at offset {offset}")));
        }
        Ok(DepositTarget::new(self.core.clone(), generation, offset, notify))
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

    /// Starts a thread that calls `f` with each notice from now on, until the segment is dropped. A panic in
    /// `f` is written to standard error, and `f` is called with the next notice.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn on_notice(&self, mut f: impl FnMut(Notice) + Send + 'static) -> farcall_core::Result<()> {
        let core = self.core.clone();
        let run = move || {
            while let Some(notice) = core.notices.wait() {
                guard::run_alone("a callback of notices", || f(notice));
            }
            // The drop of the callback is the user's code, too.
            guard::run_alone("the drop of a callback of notices", || drop(f));
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

    /// Returns a notice, if there is one. A forked child gets none.
    pub fn try_notice(&self) -> Option<Notice> {
        self.is_ours().then(|| self.core.notices.fetch()).flatten()
    }

    /// Returns the descriptor of the segment's notices: it is readable exactly while a notice waits
    /// (Thekkath et al. 1994, section 3.1.2). Wait for it with others by `poll`, `epoll` or `select`, or have
    /// it raise SIGIO ([`Settings::sigio`]). Then take notices by [`Segment::try_notice`]: taking the last
    /// one makes the descriptor unreadable. Do not read the descriptor itself.
    ///
    /// The first call opens the descriptor; a segment that is never asked has none. An edge-triggered poller
    /// reports the descriptor when a first notice waits, so take notices until there are none. The descriptor
    /// stays open until the segment is dropped, also while the segment is revoked.
    ///
    /// ```no_run
    /// # fn main() -> farcall::memory::Result<()> {
    /// use farcall::memory::{Notify, Rights, Settings};
    /// # use std::os::fd::{AsFd, BorrowedFd};
    /// # fn wait_for(descriptor: BorrowedFd<'_>) {}
    ///
    /// let settings = Settings::new(64).anyone(Rights::WRITE).notify(Notify::Always);
    /// let orders = farcall::memory::export("Orders", settings)?;
    /// wait_for(orders.open_descriptor()?);
    /// while let Some(notice) = orders.try_notice() {
    ///     println!("{} bytes were written at {}", notice.len, notice.offset);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the process has no descriptor left, in a forked child, and in a simulation, which has no
    /// descriptors.
    #[cfg(unix)]
    pub fn open_descriptor(&self) -> farcall_core::Result<BorrowedFd<'_>> {
        self.check_ours()?;
        let make = || if self.sigio { self.env.signalling_alarm() } else { self.env.alarm() };
        let descriptor = self.core.notices.descriptor(make);
        Ok(descriptor.map_err(|why| CallFailed::local("opening the descriptor of notices", why))?)
    }

    /// Returns whether this is the process that exported the segment, not a forked child. A child has copies
    /// of everything but the memory that importers map, and changes nothing.
    #[inline]
    fn is_ours(&self) -> bool {
        self.process == fork::generation()
    }

    #[inline]
    fn check_ours(&self) -> std::result::Result<(), CallFailed> {
        if self.is_ours() { Ok(()) } else { Err(CallFailed::forked()) }
    }

    /// Checks that an access by the owner lies within the segment. Fails in a forked child, which shares the
    /// mapped memory but may not use it.
    #[inline]
    fn check(&self, offset: u64, len: usize) -> Result<()> {
        self.check_ours()?;
        self.core.check_range(offset, len)
    }

    /// Returns a name by which the segment can be imported without a registry, such as
    /// `udp://127.0.0.1:7000/Load`.
    pub fn url(&self) -> String {
        format!("udp://{}/{}", self.address(), self.name)
    }
}

/// The descriptor of the segment's notices. [`Segment::open_descriptor`] describes it.
///
/// # Panics
/// When the descriptor cannot be opened. [`Segment::open_descriptor`] returns the error instead; once it has
/// succeeded, this does not panic.
#[cfg(unix)]
impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let opened = self.core.notices.opened_descriptor();
        opened.unwrap_or_else(|| self.open_descriptor().unwrap_or_else(|why| panic!("{why}")))
    }
}

/// The descriptor of the segment's notices, for executors (tokio's `AsyncFd`).
///
/// # Panics
/// When the descriptor cannot be opened ([`Segment::open_descriptor`] returns the error instead).
#[cfg(unix)]
impl AsRawFd for Segment {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
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

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Segment { listing, name, core, .. } = self;
        f.debug_struct("Segment").field("name", name).field("listing", listing).field("core", core).finish()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        self.core.set_generation(0);
        self.core.notices.end();
        if let Some(memory) = self.core.area.shared_memory() {
            memory.withdraw();
        }
    }
}

#[cold]
fn no_room(name: &str, size: usize, why: &io::Error) -> CallFailed {
    let why = format!("a segment {name:?} of {size} bytes cannot be exported: {why}");
    CallFailed::new(Kind::Local, Ran::No).because(why)
}

/// Returns the failure to take memory away from importers that have it mapped.
#[cold]
fn not_taken_away(why: &io::Error) -> CallFailed {
    let why = format!(
        "importers that have the memory mapped were told that they may not access it, but one that ignores \
         this still can, until memory is found to which the segment can move: {why}"
    );
    CallFailed::new(Kind::Local, Ran::No).because(why)
}

#[cold]
fn no_target(why: String) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::No).because(format!("nothing can be deposited in the segment: {why}"))
}

/// Returns the access handler of a segment that consists of these words and has this generation. Other
/// processes may only read it.
pub fn readable_words(
    words: Arc<[AtomicU64]>,
    generation: u64,
    env: &Arc<dyn Env>,
) -> Arc<dyn AccessHandler> {
    let settings = Settings::new(size_of_val(&*words)).anyone(Rights::READ);
    Arc::new(Core::of_words(words, settings, generation, env))
}

/// Returns a random first generation, so that a process that exports the same name later gets other
/// generations.
fn first_generation(env: &dyn Env) -> u64 {
    // The generation must not be zero, and must have room to grow.
    (random_number(env) >> 1) + 1
}

/// Returns a number that nobody can guess.
fn random_number(env: &dyn Env) -> u64 {
    let mut bytes = [0; 8];
    env.entropy(&mut bytes);
    u64::from_le_bytes(bytes)
}
