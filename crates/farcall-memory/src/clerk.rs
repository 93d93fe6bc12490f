//! The name service for memory segments: each machine has a clerk, and clerks read one another's memory
//! (Thekkath et al. 1994, section 4).
//!
//! A clerk knows the segments that are exported on its machine. It keeps them in a hash table in a segment of
//! its own, which has the well-known name `clerk`. A process that knows a clerk's address can read the
//! clerk's table. So a look-up on another machine costs one remote read, and no work of the clerk there. All
//! tables are probed in one way, from the slot that the hash selects (64-bit XXH3 of the name's bytes, modulo
//! the number of slots) to the first slot that was never used.
//!
//! A runtime exports and imports segments by name through its machine's clerk. If no process has called
//! [`Clerk::start`], the first process on a machine that exports or imports a segment starts the clerk. When
//! that process ends, the next process that needs a clerk starts one, which learns from the registry of names
//! what is exported. A runtime with keys uses only clerks that it believes, and otherwise one of its own:
//! clerks of several identities stand side by side, and each finds the segments of all in the registry. A clerk caches entries of other clerks, and [checks](Clerk::refresh) from time to time
//! whether these entries are still true.
//!
//! ```text
//! locator    finds or starts this machine's clerk
//! clients    the requests of other processes to the clerk, which it does not trust
//! exporters  what the exporters of this machine say of their segments
//! naming     exports and imports segments through the clerk
//! listings   asks the registry of names for the segments of a machine
//! mailbox    the look-up by asking: questions to other clerks, and their answers
//! neighbours imported segments of other clerks
//! cache      entries of other clerks
//! table      the hash table
//! entry      an entry, and the record of 128 bytes that encodes it
//! ```

mod cache;
mod clients;
mod entry;
mod exporters;
mod listings;
mod locator;
mod mailbox;
mod naming;
mod neighbours;
mod table;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use crate::access::{Refused, Rights, TYPE};
use crate::runtime::{MemoryExport, MemoryRuntime};
use crate::segment::{self, Segment};
use cache::{Cache, Known};
use clients::OwnMachine;
use farcall_core::idl::Interface;
use farcall_core::stub::Binding;
use farcall_core::{CallFailed, Error, Kind, Ran, Result, lock};
use farcall_names::{Label, Registration, Registry};
use mailbox::{Asked, Mailbox};
use neighbours::Neighbours;
use table::Added;

#[doc(hidden)]
pub use entry::fuzz_record;
pub use entry::{Entry, MAX_NAME};
pub use locator::Locator;
#[cfg(unix)]
pub use naming::export_file;
pub use naming::{export_segment, import_segment, import_segment_anew, import_segment_at};

/// The name of every clerk's table.
const TABLE: &str = "clerk";

/// The name under which clerks export their interface beside the table, for runtimes with keys. A key that may
/// answer for the table may answer for this name, too.
const CLERK_NAMES: &str = "clerk-names";

/// The name of the segment in which every server keeps its counters.
#[doc(hidden)]
pub const COUNTERS: &str = "counters";

/// A runtime that exports and imports segments by name.
pub trait ClerkRuntime: MemoryRuntime {
    /// Returns the registry that the runtime uses.
    fn registry(&self) -> &Arc<dyn Registry>;

    /// Returns the entries of a type, or of one of its instances, within the time that this thread has.
    ///
    /// # Errors
    /// The registry's, or [`Kind::Deadline`] if it has not answered in time.
    fn listed(
        &self,
        signatures: Signatures,
        kind: &Label,
        instance: Option<&Label>,
    ) -> std::result::Result<Vec<farcall_names::Entry>, CallFailed>;

    /// Returns the first eight bytes of the runtime's public key, if it has keys.
    fn key_prefix(&self) -> Option<u64>;

    /// Returns the address of this machine at which the runtime's exports can be called.
    ///
    /// # Errors
    /// When no socket can be opened.
    fn machine(&self) -> std::result::Result<IpAddr, CallFailed>;

    /// Returns how long the runtime's threads poll for a datagram before they block.
    fn spin(&self) -> Duration;

    /// Exports the interface of a clerk without publishing it in the registry.
    ///
    /// # Errors
    /// When no socket can be opened.
    fn export_names(
        &self,
        name: &str,
        names: Arc<dyn Names>,
    ) -> std::result::Result<Box<dyn MemoryExport>, CallFailed>;

    /// Returns a binding to the export of that interface at a URL. The first call binds.
    ///
    /// # Errors
    /// When the URL is not well-formed.
    fn bind_later(
        &self,
        url: &str,
        interface: &'static Interface,
    ) -> std::result::Result<Binding, CallFailed>;

    /// Returns the state in which the runtime remembers its machine's clerk.
    fn locator(&self) -> &Mutex<Locator>;

    /// Returns a new reference to the same runtime.
    fn share(&self) -> Arc<dyn ClerkRuntime>;

    /// Returns a runtime with the same settings and a port of its own.
    fn sibling(&self) -> Arc<dyn ClerkRuntime>;
}

/// Whether a runtime with keys checks the signatures of what a registry lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Entries without a good signature do not count.
    Checked,
    /// Entries count without a good signature too.
    Unchecked,
}

/// The type under which every clerk exports its interface.
const NAMES: &str = "Names";

/// Why a clerk has refused or failed a request.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Fault {
    /// No clerk that was asked knows a segment of this name.
    NoSuchName,
    /// The name is not a valid name of a segment.
    NotAName(String),
    /// The clerk's table, which has this many slots, has no room for the name.
    Full(u64),
    /// Only processes of the clerk's machine may make this request.
    NotPermitted,
    /// Another machine's clerk, or an exporter, does not answer.
    Silent(String),
    /// What another process says of a segment is not true.
    Disbelieved(String),
    /// The caller has too many look-ups at other machines under way.
    Busy,
}

/// The settings of a clerk.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    places: usize,
    most_places: usize,
    refresh: Duration,
    search: Search,
}

/// How a clerk looks for a name in another clerk's table (Thekkath et al. 1994, section 4.2). The name is in
/// the slot that its hash selects, unless another name occupies that slot: a collision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Read one slot after another until the name is found, or a free slot shows that it is not there. The
    /// other clerk does nothing.
    #[default]
    Read,
    /// Ask the other clerk at once.
    Ask,
    /// Read at most this often, then ask the other clerk.
    ReadThenAsk(u32),
}

/// A machine's clerk, which runs until this is dropped.
pub struct Clerk {
    /// This field is dropped first, so that no process finds a clerk that has ended.
    registration: Option<Registration>,
    _names: [Box<dyn MemoryExport>; 2],
    core: Arc<Core>,
}

/// Whom a clerk serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The registry lists the clerk, for all programs that believe it.
    Listed,
    /// The clerk serves the runtime that has started it.
    Private,
}

/// The state of a clerk.
struct Core {
    runtime: Arc<dyn ClerkRuntime>,
    address: SocketAddr,
    settings: Settings,
    place: Place,
    /// The table. When it is full, a larger one takes its place under the same name. Importers of the former
    /// one are refused then, and import the segment of that name again.
    table: RwLock<Segment>,
    /// The number of entries in the table. Locked by a thread that adds or deletes entries.
    writing: Mutex<usize>,
    cache: Mutex<Cache>,
    /// The imported tables of other clerks.
    tables: Neighbours,
    mailbox: Mailbox,
    /// How many reads of other clerks' tables the look-ups have made.
    reads: AtomicU64,
    /// Whether there may be an entry that a refresh could change.
    has_entries: AtomicBool,
    refreshing: AtomicBool,
    ended: AtomicBool,
}

/// How to look a name up.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum How {
    /// Look in the cache first, then at the clerk of the machine that exports the name.
    Cached,
    /// Do not look in the cache. Read the table of the clerk of the machine that exports the name.
    Anew,
    /// Do not look in the cache. Ask the clerk of the machine that exports the name.
    Asking,
}

/// The requests of a machine's processes to its clerk, by calls within that machine.
#[doc(hidden)]
#[farcall::interface]
pub trait Names {
    /// Adds a segment. It replaces a former segment of the same name.
    #[idempotent]
    fn add(&self, entry: Entry) -> Result<(), Fault>;

    /// Looks a name up, on this machine or, if there is a hint, on the machine of the clerk whose address the
    /// hint is.
    #[idempotent]
    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault>;

    /// Deletes a segment of that generation. Returns whether there was one.
    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault>;
}

impl Default for Settings {
    /// Returns settings of 1024 slots at first and 2^20 at most, a refresh every 30 seconds, and
    /// [`Search::Read`].
    fn default() -> Settings {
        Settings {
            places: 1024,
            most_places: 1 << 20,
            refresh: Duration::from_secs(30),
            search: Search::Read,
        }
    }
}

impl Settings {
    /// Sets how many slots of 128 bytes the table has at first, at least 1. Each name takes one. When three
    /// quarters of the slots are in use, a table with twice as many takes the place of the former one.
    #[must_use]
    pub fn places(self, places: usize) -> Settings {
        Settings { places: places.max(1), ..self }
    }

    /// Sets how many slots the table has at most. A number that is less than that of [`Settings::places`]
    /// means that the table does not grow.
    #[must_use]
    pub fn most_places(self, most_places: usize) -> Settings {
        Settings { most_places, ..self }
    }

    /// Sets how often the clerk checks whether its entries are still true.
    #[must_use]
    pub fn refresh(self, refresh: Duration) -> Settings {
        Settings { refresh, ..self }
    }

    /// Sets how the clerk looks for names in other clerks' tables.
    ///
    /// ```
    /// use farcall::memory::clerk::{Search, Settings};
    ///
    /// // Few reads, and then a question: for tables in which many names collide.
    /// let settings = Settings::default().search(Search::ReadThenAsk(2));
    /// ```
    #[must_use]
    pub fn search(self, search: Search) -> Settings {
        Settings { search, ..self }
    }
}

impl Clerk {
    /// Starts the machine's clerk at the address at which the runtime exports. Other machines use that
    /// address as a hint.
    ///
    /// # Errors
    /// When another process runs the machine's clerk, a segment cannot be exported, or no thread can be
    /// started.
    pub fn start(runtime: &dyn ClerkRuntime, settings: Settings) -> Result<Clerk> {
        let clerk = Clerk::open(runtime.share(), settings, Place::Listed)?;
        locator::adopt(runtime, &clerk);
        Ok(clerk)
    }

    fn open(
        runtime: Arc<dyn ClerkRuntime>,
        settings: Settings,
        place: Place,
    ) -> std::result::Result<Clerk, CallFailed> {
        let table = offer_table(&*runtime, settings.places)?;
        let address = table.address();
        let mailbox = Mailbox::new(&*runtime)?;
        let core = Arc::new(Core {
            runtime,
            address,
            settings,
            place,
            table: RwLock::new(table),
            writing: Mutex::default(),
            cache: Mutex::default(),
            tables: Neighbours::new(TABLE),
            mailbox,
            reads: AtomicU64::new(0),
            has_entries: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let served = Arc::new(OwnMachine::new(core.clone()));
        let names = [
            core.runtime.export_names(NAMES, served.clone())?,
            core.runtime.export_names(&format!("{TYPE}/{CLERK_NAMES}"), served)?,
        ];
        let mut clerk = Clerk { registration: None, _names: names, core };
        clerk.core.reconcile();
        let core = clerk.core.clone();
        let env = clerk.core.runtime.env();
        let spawned = env.spawn("farcall clerk", Box::new(move || core.run()));
        spawned.map_err(|why| CallFailed::local("starting a clerk's thread", why))?;
        if place == Place::Listed {
            // Registered last, so that every process that finds the clerk is served.
            let instance = listings::instance_of_clerk(&*clerk.core.runtime, address.ip());
            clerk.registration = Some(clerk.core.with_table(|table| table.register(&instance))?);
        }
        Ok(clerk)
    }

    /// Returns the address of this machine's clerk, whichever process has it, if the registry of names lists
    /// one that this runtime believes, or one of the same keys.
    ///
    /// # Errors
    /// When no socket can be opened to learn this machine's address.
    pub fn of_machine(runtime: &dyn ClerkRuntime) -> std::result::Result<Option<SocketAddr>, CallFailed> {
        let machine = runtime.machine()?;
        let believed = listings::clerks_of(runtime, machine).into_iter().next().map(|clerk| clerk.address);
        Ok(believed
            .or_else(|| listings::own_clerk(runtime, machine).filter(|_| runtime.key_prefix().is_some())))
    }

    /// Returns the clerk's address, which other machines use as a hint.
    pub fn address(&self) -> SocketAddr {
        self.core.address
    }

    /// Adds a segment of this machine. It replaces a former segment of the same name.
    ///
    /// # Errors
    /// When its name is not valid, or the table is full.
    pub fn add(&self, entry: &Entry) -> Result<(), Fault> {
        self.core.add_entry(entry)
    }

    /// Looks a name up. Without a hint the clerk looks on this machine, then in its cache, then on the
    /// machines that export the name according to the registry. With a hint, the address of another clerk, it
    /// looks in the cache and then at that clerk.
    ///
    /// # Errors
    /// When the name is not exported there, or the other clerk does not answer.
    pub fn look_up(&self, name: &str, hint: Option<SocketAddr>) -> Result<Entry, Fault> {
        Ok(self.core.know(name, hint, How::Cached)?.entry)
    }

    /// Looks a name up as [`Clerk::look_up`] does, but not in the cache.
    ///
    /// # Errors
    /// Those of [`Clerk::look_up`].
    pub fn look_up_anew(&self, name: &str, hint: Option<SocketAddr>) -> Result<Entry, Fault> {
        Ok(self.core.know(name, hint, How::Anew)?.entry)
    }

    /// Looks a name up at the clerk with this address by asking that clerk: writes a question into its
    /// memory, with notice, and waits until it writes the answer into this clerk's memory.
    ///
    /// # Errors
    /// Those of [`Clerk::look_up`].
    pub fn look_up_asking(&self, name: &str, hint: SocketAddr) -> Result<Entry, Fault> {
        Ok(self.core.know(name, Some(hint), How::Asking)?.entry)
    }

    /// Deletes a segment of that generation. Returns whether there was one.
    ///
    /// # Errors
    /// [`Fault::Silent`] when the clerk's own memory cannot be accessed.
    pub fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.core.delete_entry(name, generation)
    }

    /// Looks all cached names up again, and forgets entries that are no longer true. Imports that this
    /// process has made by such an entry are then refused as [`Stale`](crate::Refused::Stale). Deletes this
    /// machine's segments whose exporters are gone. The clerk also does this by itself at regular intervals
    /// ([`Settings::refresh`]).
    pub fn refresh(&self) {
        self.core.refresh();
    }

    /// Returns how many remote reads the clerk's look-ups have made.
    pub fn reads(&self) -> u64 {
        self.core.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        drop(self.registration.take());
        // The event that `wake` sets makes this store visible to the clerk's thread.
        self.core.ended.store(true, Ordering::Relaxed);
        self.core.mailbox.wake();
    }
}

impl fmt::Debug for Clerk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clerk").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Core {
    fn add_entry(&self, entry: &Entry) -> Result<(), Fault> {
        entry::check_name(&entry.name)?;
        let added = self.add_or_grow(&mut lock(&self.writing), entry)?;
        self.note_entry();
        if added { Ok(()) } else { Err(Fault::Full(self.with_table(|table| table::slots(table))).into()) }
    }

    /// Adds an entry to the table, which has `held` entries, and makes the table larger before it becomes full.
    /// Returns whether there was room.
    fn add_or_grow(&self, held: &mut usize, entry: &Entry) -> Result<bool, Fault> {
        loop {
            let added = self.with_table(|table| table::add(table, entry)).map_err(own_memory)?;
            *held += usize::from(added == Added::New);
            let slots = self.with_table(|table| table::slots(table)) as usize;
            let is_crowded = *held > slots - slots / 4 || added == Added::NoRoom;
            let has_grown = is_crowded && self.grow(slots)?;
            if added != Added::NoRoom {
                return Ok(true);
            }
            if !has_grown {
                return Ok(false);
            }
        }
    }

    /// Puts a table with at least twice as many slots in the place of the present one, which has `slots`.
    /// Returns whether it did. The caller holds the lock `writing`.
    fn grow(&self, slots: usize) -> Result<bool, Fault> {
        let entries = self.with_table(|table| table::entries(table)).map_err(own_memory)?;
        let mut larger = slots;
        loop {
            larger = larger.saturating_mul(2).min(self.settings.most_places);
            if larger <= slots {
                return Ok(false);
            }
            // Without memory for a larger table, the present one stays.
            let Ok(table) = offer_table(&*self.runtime, larger) else { return Ok(false) };
            let fits = |entry: &Entry| matches!(table::add(&table, entry), Ok(Added::New));
            if entries.iter().all(fits) {
                // The name leads to the former table until that is dropped, which is complete until an entry is
                // added to this one.
                let former = std::mem::replace(&mut *write_lock(&self.table), table);
                drop(former);
                return Ok(true);
            }
            if larger == self.settings.most_places {
                return Ok(false);
            }
        }
    }

    /// Calls `act` with the table.
    fn with_table<T>(&self, act: impl FnOnce(&Segment) -> T) -> T {
        act(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn delete_entry(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        let mut held = lock(&self.writing);
        let deleted = self.with_table(|table| table::delete(table, name, generation)).map_err(own_memory)?;
        *held -= usize::from(deleted).min(*held);
        Ok(deleted)
    }

    fn know(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known, Fault> {
        match self.known_here(name, hint, how)? {
            Some(known) => Ok(known),
            None => self.know_elsewhere(name, hint, how),
        }
    }

    /// Looks a name up without asking or reading another machine.
    fn known_here(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Option<Known>, Fault> {
        entry::check_name(name)?;
        let may_use_cache = how == How::Cached;
        if let Some(home) = self.elsewhere(hint) {
            return Ok(if may_use_cache { lock(&self.cache).get(home, name) } else { None });
        }
        if let Some(entry) = self.own(name, how)? {
            return Ok(Some(Known::valid(entry)));
        }
        let cached = if may_use_cache { lock(&self.cache).find(name) } else { None };
        Ok(cached.map(|(_, known)| known))
    }

    /// Looks up a name at other machines: that of the hint, or those that export the name according to the
    /// registry.
    fn know_elsewhere(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known, Fault> {
        if let Some(home) = self.elsewhere(hint) {
            return self.ask_home(home, name, how)?.ok_or_else(|| Fault::NoSuchName.into());
        }
        if let Some(entry) = self.learn_here(name)? {
            return Ok(Known::valid(entry));
        }
        let cached = lock(&self.cache).find(name).map(|(home, _)| home);
        let homes = listings::homes(&*self.runtime, name, self.address.ip());
        let mut failed = None;
        for home in cached.into_iter().chain(homes) {
            match self.ask_home(home, name, how) {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.unwrap_or_else(|| Fault::NoSuchName.into()))
    }

    /// Returns the hint if it is another clerk's address.
    fn elsewhere(&self, hint: Option<SocketAddr>) -> Option<SocketAddr> {
        hint.filter(|hint| *hint != self.address)
    }

    /// Returns this machine's segment with this name. Unless the look-up may use the cache, asks the registry
    /// whether the exporter is still there.
    fn own(&self, name: &str, how: How) -> Result<Option<Entry>, Fault> {
        let found = self.with_table(|table| table::find(table, name)).map_err(own_memory)?.0;
        let Some(entry) = found else { return Ok(None) };
        if how == How::Cached || self.is_listed(&entry) {
            return Ok(Some(entry));
        }
        self.delete_entry(name, entry.generation)?;
        Ok(None)
    }

    /// Returns the entry of a name at another clerk.
    fn ask_home(&self, home: SocketAddr, name: &str, how: How) -> Result<Option<Known>, Fault> {
        let found = match how {
            How::Asking => self.ask(home, name)?,
            How::Cached | How::Anew => self.search_home(home, name)?,
        };
        let Some(mut entry) = found else {
            lock(&self.cache).forget(home, name, true);
            return Ok(None);
        };
        if entry.address.ip().is_unspecified() {
            entry.address.set_ip(home.ip());
        }
        if entry.address.ip().to_canonical() != home.ip().to_canonical() {
            // Otherwise a clerk could make this machine's processes send packets to a third one.
            lock(&self.cache).forget(home, name, true);
            let why = format!(
                "the clerk at {home} says that {name:?} is at {}, which is another machine",
                entry.address
            );
            return Err(Fault::Disbelieved(why).into());
        }
        let known = lock(&self.cache).learn(home, entry);
        self.note_entry();
        Ok(Some(known))
    }

    /// Asks another clerk for a name, or reads the clerk's table if all slots for answers are in use.
    fn ask(&self, home: SocketAddr, name: &str) -> Result<Option<Entry>, Fault> {
        match self.mailbox.ask(self, home, name)? {
            Asked::Answered(found) => Ok(found),
            Asked::NoSlot => self.read_home(home, name),
            Asked::Silent => Err(Fault::Silent(format!("the clerk at {home} does not answer")).into()),
        }
    }

    /// Looks a name up at another clerk in the way that the settings say.
    fn search_home(&self, home: SocketAddr, name: &str) -> Result<Option<Entry>, Fault> {
        let max_reads = match self.settings.search {
            Search::Read => return self.read_home(home, name),
            Search::Ask => 0,
            Search::ReadThenAsk(reads) => u64::from(reads),
        };
        match self.read_home_within(home, name, max_reads)? {
            table::Search::Found(entry) => return Ok(Some(entry)),
            table::Search::Missing => return Ok(None),
            table::Search::Unfinished => {}
        }
        match self.mailbox.ask(self, home, name)? {
            Asked::Answered(found) => Ok(found),
            // The table can be read even if the other clerk's thread is stuck, or a hostile process
            // overwrites each question.
            Asked::NoSlot | Asked::Silent => self.read_home(home, name),
        }
    }

    /// Looks a name up in the table of another clerk.
    fn read_home(&self, home: SocketAddr, name: &str) -> Result<Option<Entry>, Fault> {
        match self.read_home_within(home, name, u64::MAX)? {
            table::Search::Found(entry) => Ok(Some(entry)),
            table::Search::Missing | table::Search::Unfinished => Ok(None),
        }
    }

    /// Looks a name up in the table of another clerk with at most that many reads.
    fn read_home_within(
        &self,
        home: SocketAddr,
        name: &str,
        max_reads: u64,
    ) -> Result<table::Search<Entry>, Fault> {
        if max_reads == 0 {
            return Ok(table::Search::Unfinished);
        }
        let find = |table: &crate::Remote| table::find_within(table, name, max_reads);
        let (found, reads) = self.tables.with(&*self.runtime, home, &find)?;
        self.reads.fetch_add(reads, Ordering::Relaxed);
        Ok(found)
    }

    fn refresh(&self) {
        // The flag is cleared before anything is read, because an entry that is added meanwhile sets it
        // again.
        self.has_entries.swap(false, Ordering::AcqRel);
        let cached = lock(&self.cache).all();
        for (home, name) in cached {
            // A silent clerk says nothing about the exporter, so importers are not told that the exporter is
            // gone.
            if let Err(_silent) = self.ask_home(home, &name, How::Anew) {
                lock(&self.cache).forget(home, &name, false);
            }
        }
        self.reconcile();
        let has_own = *lock(&self.writing) > 0;
        if has_own || !lock(&self.cache).is_empty() {
            self.note_entry();
        }
    }

    /// Notes that there is an entry to refresh.
    fn note_entry(&self) {
        if !self.has_entries.swap(true, Ordering::AcqRel) {
            self.mailbox.wake();
        }
    }

    /// Runs the clerk's thread: answers questions, and starts refreshes when they are due.
    fn run(self: Arc<Core>) {
        let env = self.runtime.env();
        let mut refreshed = env.now();
        while !self.ended.load(Ordering::Relaxed) {
            let left = self.settings.refresh.saturating_sub(env.now().since(refreshed));
            let has_entries = self.has_entries.load(Ordering::Acquire);
            if has_entries && left.is_zero() {
                refreshed = env.now();
                self.clone().start_refresh();
                continue;
            }
            mailbox::serve(&self, has_entries.then_some(left));
            if !has_entries {
                refreshed = env.now();
            }
        }
    }

    /// Starts a refresh in a thread of its own, so that another clerk's silence does not delay answers to
    /// questions.
    fn start_refresh(self: Arc<Core>) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = self.clone();
        let refresh = move || {
            core.refresh();
            core.refreshing.store(false, Ordering::Release);
        };
        if self.runtime.env().spawn("farcall refresh", Box::new(refresh)).is_err() {
            self.refreshing.store(false, Ordering::Release);
        }
    }

    /// Returns whether the registry lists this machine's segment at the entry's address, as far as it can be
    /// asked.
    fn is_listed(&self, entry: &Entry) -> bool {
        listings::is_listed(&**self.runtime.registry(), entry, self.address.ip()).unwrap_or(true)
    }
}

/// Exports a table of so many slots. Exports of the same name follow one another: the name leads to the oldest
/// one.
fn offer_table(runtime: &dyn ClerkRuntime, slots: usize) -> std::result::Result<Segment, CallFailed> {
    let size = slots.saturating_mul(entry::RECORD_BYTES);
    Segment::offer(runtime, TABLE, segment::Settings::new(size).anyone(Rights::READ))
}

fn write_lock<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Converts the error of an access to the clerk's own memory.
fn own_memory(why: Error<Refused>) -> Error<Fault> {
    why.map_declared(|refused| Fault::Silent(format!("the clerk's own memory: {refused}")))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoSuchName => f.write_str("no clerk that was asked knows a segment of this name"),
            Fault::NotAName(why) => f.write_str(why),
            Fault::Full(places) => write!(f, "the clerk's table of {places} slots has no room for the name"),
            Fault::NotPermitted => f.write_str("only processes on the clerk's machine may make this request"),
            Fault::Silent(why) | Fault::Disbelieved(why) => f.write_str(why),
            Fault::Busy => f.write_str("the caller has too many look-ups at other machines under way"),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for CallFailed {
    fn from(fault: Fault) -> CallFailed {
        let kind = match &fault {
            Fault::NoSuchName | Fault::NotAName(_) | Fault::Disbelieved(_) => Kind::NoSuchName,
            Fault::Full(_) | Fault::Busy => Kind::Overloaded,
            Fault::NotPermitted => Kind::NotPermitted,
            Fault::Silent(_) => Kind::Unreachable,
        };
        CallFailed::new(kind, Ran::No).caused_by(fault)
    }
}
