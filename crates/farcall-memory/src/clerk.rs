//! The segment name service: a clerk on each machine, which read one another's memory (Thekkath et al. 1994, section 4).
//!
//! A clerk knows the segments that are exported on its machine. It keeps them in a hash table in a segment of its own, which
//! has the well-known name `clerk`. A process that knows a clerk's address can read its table: to look a name up on another
//! machine costs one remote read, and no code of that machine's clerk runs. All tables are probed alike: from the place that
//! the hash gives (64-bit XXH3 of the name's bytes, modulo the number of places) to the first place that was never used.
//!
//! A runtime's exports and imports of segments by name go through the machine's clerk. The first process on a machine
//! that exports or imports a segment starts it, if [`Clerk::start`] has not. When that process ends, the next process that
//! needs a clerk starts one, which finds out from the registry of names what is exported. A clerk keeps what it has learnt
//! from others, and [looks](Clerk::refresh) from time to time whether it is still so.
//!
//! ```text
//! locator    which clerk is this machine's
//! naming     how exports and imports go through it
//! listings   what the registry of names says of a machine's segments
//! mailbox    the look-up with control transfer: questions and answers
//! neighbours segments of other clerks
//! cache      what was learnt from others
//! table      the hash table
//! entry      what is known of a segment: a record of 128 bytes
//! ```

mod cache;
mod entry;
mod listings;
mod locator;
mod mailbox;
mod naming;
mod neighbours;
mod table;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::access::{Access, AccessClient, Refused, Rights, TYPE};
use crate::runtime::{MemoryExport, MemoryRuntime};
use crate::segment::{self, Segment};
use cache::{Cache, Known};
use farcall_core::idl::Interface;
use farcall_core::stub::{Binding, Interface as _};
use farcall_core::{CallFailed, Error, Kind, Ran, Result};
use farcall_names::{Registration, Registry};
use mailbox::Mailbox;
use neighbours::Neighbours;

#[doc(hidden)]
pub use entry::fuzz_record;
pub use entry::{Entry, MAX_NAME};
pub use locator::Locator;
pub use naming::{export_segment, import_segment, import_segment_anew, import_segment_at};

/// How long a new clerk waits for exporters that do not answer.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(1);

/// How many exporters a new clerk asks at once.
const RECOVERED_AT_ONCE: usize = 64;

/// The name of every clerk's table.
const TABLE: &str = "clerk";

/// The name of the segment in which every server counts.
#[doc(hidden)]
pub const COUNTERS: &str = "counters";

/// A runtime through whose clerk segments are exported and imported by name.
pub trait ClerkRuntime: MemoryRuntime {
    /// The registry that the runtime publishes to and asks.
    fn registry(&self) -> &Arc<dyn Registry>;

    /// The address of this machine at which the runtime's exports can be called.
    ///
    /// # Errors
    /// When no socket can be had.
    fn machine(&self) -> std::result::Result<IpAddr, CallFailed>;

    /// How long the runtime's threads look for a datagram before they block.
    fn spin(&self) -> Duration;

    /// Exports the interface of a clerk. No registry is told.
    ///
    /// # Errors
    /// When no socket can be had.
    fn export_names(
        &self,
        name: &str,
        names: Arc<dyn Names>,
    ) -> std::result::Result<Box<dyn MemoryExport>, CallFailed>;

    /// Returns a binding to the export of that interface at a URL. The first call binds.
    ///
    /// # Errors
    /// When the URL is none.
    fn bind_later(
        &self,
        url: &str,
        interface: &'static Interface,
    ) -> std::result::Result<Binding, CallFailed>;

    /// Where the runtime remembers which clerk is its machine's.
    fn locator(&self) -> &Mutex<Locator>;

    /// The same runtime.
    fn share(&self) -> Arc<dyn ClerkRuntime>;

    /// A runtime with the same settings, and a port of its own.
    fn sibling(&self) -> Arc<dyn ClerkRuntime>;
}

/// The type under which every clerk exports its interface.
const NAMES: &str = "Names";

/// Why a clerk did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Fault {
    /// No clerk that was asked knows a segment of that name.
    NoSuchName,
    /// No segment can bear the name.
    NotAName(String),
    /// There is no room for the name in the clerk's table, which has this many places.
    Full(u64),
    /// Only processes of the clerk's machine may ask that.
    NotPermitted,
    /// Another machine's clerk does not answer.
    Silent(String),
}

/// The settings of a clerk.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    places: usize,
    refresh: Duration,
}

/// A machine's clerk, for as long as this is held.
pub struct Clerk {
    /// Dropped first, so that no process finds a clerk that is no longer there.
    registration: Option<Registration>,
    _names: Box<dyn MemoryExport>,
    core: Arc<Core>,
}

/// What a clerk knows, and what it needs to learn more.
struct Core {
    runtime: Arc<dyn ClerkRuntime>,
    address: SocketAddr,
    settings: Settings,
    table: Segment,
    /// Held by a thread that adds or deletes.
    writing: Mutex<()>,
    cache: Mutex<Cache>,
    /// The tables of other clerks.
    tables: Neighbours,
    mailbox: Mailbox,
    /// How many reads of others' tables the look-ups have made.
    reads: AtomicU64,
    /// Whether there is anything that a refresh could change.
    knows: AtomicBool,
    refreshing: AtomicBool,
    ended: AtomicBool,
}

/// How to look a name up.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum How {
    /// In what was learnt before, then at its source.
    Cached,
    /// At its source, by reading the table of the clerk there.
    Anew,
    /// At its source, by asking the clerk there.
    Asking,
}

/// What the processes of a machine ask of its clerk, by calls on that machine.
#[doc(hidden)]
#[farcall::interface]
pub trait Names {
    /// Adds a segment, instead of a former one of its name.
    #[idempotent]
    fn add(&self, entry: Entry) -> Result<(), Fault>;

    /// Looks a name up: on this machine, or on that of the clerk at the hint.
    #[idempotent]
    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault>;

    /// Deletes a segment of that generation; whether there was one.
    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault>;
}

impl Default for Settings {
    /// 1024 places, and a refresh every 30 seconds.
    fn default() -> Settings {
        Settings { places: 1024, refresh: Duration::from_secs(30) }
    }
}

impl Settings {
    /// How many places the table has, at least 1. A name takes one, of 128 bytes.
    #[must_use]
    pub fn places(self, places: usize) -> Settings {
        Settings { places: places.max(1), ..self }
    }

    /// How often the clerk looks whether what it knows is still so.
    #[must_use]
    pub fn refresh(self, refresh: Duration) -> Settings {
        Settings { refresh, ..self }
    }
}

impl Clerk {
    /// Starts the machine's clerk, at the address at which the runtime exports. Other machines use that address as hint.
    ///
    /// # Errors
    /// When the machine has one, in another process; when a segment cannot be exported or no thread started.
    pub fn start(runtime: &dyn ClerkRuntime, settings: Settings) -> Result<Clerk> {
        let clerk = Clerk::open(runtime.share(), settings)?;
        locator::adopt(runtime, &clerk);
        Ok(clerk)
    }

    fn open(runtime: Arc<dyn ClerkRuntime>, settings: Settings) -> std::result::Result<Clerk, CallFailed> {
        let readable = segment::Settings::new(settings.places * entry::RECORD).anyone(Rights::READ);
        let table = Segment::offer(&*runtime, TABLE, readable)?;
        let address = table.address();
        let mailbox = Mailbox::new(&*runtime)?;
        let core = Arc::new(Core {
            runtime,
            address,
            settings,
            table,
            writing: Mutex::default(),
            cache: Mutex::default(),
            tables: Neighbours::new(TABLE),
            mailbox,
            reads: AtomicU64::new(0),
            knows: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let names = core.runtime.export_names(NAMES, Arc::new(OwnMachine(core.clone())))?;
        let mut clerk = Clerk { registration: None, _names: names, core };
        clerk.core.recover();
        let core = clerk.core.clone();
        let env = clerk.core.runtime.env();
        let spawned = env.spawn("farcall clerk", Box::new(move || core.attend()));
        spawned.map_err(|why| CallFailed::local("starting a clerk's thread", why))?;
        // Last, so that a process that finds the clerk is served.
        clerk.registration = Some(clerk.core.table.register(&listings::instance(TABLE, address.ip()))?);
        Ok(clerk)
    }

    /// Where other machines find the clerk: their hint.
    pub fn address(&self) -> SocketAddr {
        self.core.address
    }

    /// Adds a segment of this machine, instead of a former one of its name.
    ///
    /// # Errors
    /// When its name is no name, or there is no room.
    pub fn add(&self, entry: &Entry) -> Result<(), Fault> {
        self.core.add_entry(entry)
    }

    /// Looks a name up. Without a hint the clerk looks on this machine, then in what it has learnt from others, then at the
    /// machines that the registry of names says export it. With a hint, the address of another clerk, it looks there, unless it
    /// has learnt the name from there before.
    ///
    /// # Errors
    /// When the name is not exported there, or the clerk there does not answer.
    pub fn look_up(&self, name: &str, hint: Option<SocketAddr>) -> Result<Entry, Fault> {
        Ok(self.core.know(name, hint, How::Cached)?.entry)
    }

    /// Looks a name up, as [`Clerk::look_up`], and believes nothing that was learnt before.
    ///
    /// # Errors
    /// As [`Clerk::look_up`].
    pub fn look_up_anew(&self, name: &str, hint: Option<SocketAddr>) -> Result<Entry, Fault> {
        Ok(self.core.know(name, hint, How::Anew)?.entry)
    }

    /// Looks a name up at the clerk of this address with transfer of control: that clerk is asked by a write
    /// with notice, and answers by a write.
    ///
    /// # Errors
    /// As [`Clerk::look_up`].
    pub fn look_up_asking(&self, name: &str, hint: SocketAddr) -> Result<Entry, Fault> {
        Ok(self.core.know(name, Some(hint), How::Asking)?.entry)
    }

    /// Deletes a segment of that generation. Returns whether there was one.
    ///
    /// # Errors
    /// None; but a clerk of another process can be silent.
    pub fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.core.delete_entry(name, generation)
    }

    /// Reads again what was learnt from others, and forgets what is no longer so: imports through this clerk in this process are
    /// then refused as [`Stale`](crate::Refused::Stale). Deletes this machine's segments whose exporters are gone. The clerk also
    /// does this by itself at regular intervals ([`Settings::refresh`]).
    pub fn refresh(&self) {
        self.core.refresh();
    }

    /// How many remote reads its look-ups have made.
    pub fn reads(&self) -> u64 {
        self.core.reads.load(Ordering::Relaxed)
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        drop(self.registration.take());
        self.core.ended.store(true, Ordering::SeqCst);
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
        let added = {
            let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            table::add(&self.table, entry).map_err(own_memory)?
        };
        self.has_learnt();
        if added { Ok(()) } else { Err(Fault::Full(self.settings.places as u64).into()) }
    }

    fn delete_entry(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        table::delete(&self.table, name, generation).map_err(own_memory)
    }

    fn know(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known, Fault> {
        entry::check_name(name)?;
        if let Some(home) = hint.filter(|hint| *hint != self.address) {
            let learnt = self.cache().get(home, name);
            return match learnt.filter(|_| how == How::Cached) {
                Some(known) => Ok(known),
                None => self.ask_home(home, name, how)?.ok_or_else(|| Fault::NoSuchName.into()),
            };
        }
        if let Some(entry) = self.own(name, how)? {
            return Ok(Known::for_sure(entry));
        }
        let learnt = self.cache().find(name);
        if let (How::Cached, Some((_, known))) = (how, &learnt) {
            return Ok(known.clone());
        }
        let mut silent = None;
        let homes = listings::homes(&**self.runtime.registry(), name, self.address.ip());
        for home in learnt.map(|(home, _)| home).into_iter().chain(homes) {
            match self.ask_home(home, name, how) {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(why) => silent = Some(why),
            }
        }
        Err(silent.unwrap_or_else(|| Fault::NoSuchName.into()))
    }

    /// Returns this machine's segment of that name. A look-up that is not cached asks the registry whether its exporter is still
    /// there.
    fn own(&self, name: &str, how: How) -> Result<Option<Entry>, Fault> {
        let Some(entry) = table::find(&self.table, name).map_err(own_memory)?.0 else { return Ok(None) };
        if how == How::Cached || self.is_listed(&entry) {
            return Ok(Some(entry));
        }
        self.delete_entry(name, entry.generation)?;
        Ok(None)
    }

    /// Returns what another clerk knows of a name on its machine.
    fn ask_home(&self, home: SocketAddr, name: &str, how: How) -> Result<Option<Known>, Fault> {
        let answered = match how {
            How::Asking => self.mailbox.ask(self, home, name)?,
            How::Cached | How::Anew => None,
        };
        let found = match answered {
            Some(found) => found,
            None => self.read_home(home, name)?,
        };
        let Some(mut entry) = found else {
            self.cache().forget(home, name, true);
            return Ok(None);
        };
        if entry.address.ip().is_unspecified() {
            entry.address.set_ip(home.ip());
        }
        let known = self.cache().learn(home, entry);
        self.has_learnt();
        Ok(Some(known))
    }

    /// Looks a name up in the table of another clerk.
    fn read_home(&self, home: SocketAddr, name: &str) -> Result<Option<Entry>, Fault> {
        let (found, reads) = self.tables.with(&*self.runtime, home, &|table| table::find(table, name))?;
        self.reads.fetch_add(reads, Ordering::Relaxed);
        Ok(found)
    }

    fn refresh(&self) {
        let learnt = self.cache().all();
        for (home, name) in learnt {
            // That the clerk is silent says nothing of the exporter, so importers are not told that it is gone.
            if let Err(_silent) = self.ask_home(home, &name, How::Anew) {
                self.cache().forget(home, &name, false);
            }
        }
        // The entries are read before the registry: an entry that is added meanwhile has been registered before.
        let entries = table::entries(&self.table).unwrap_or_default();
        for entry in &entries {
            if !self.is_listed(entry) {
                let _ = self.delete_entry(&entry.name, entry.generation);
            }
        }
        self.knows.store(!entries.is_empty() || !self.cache().is_empty(), Ordering::SeqCst);
    }

    /// Notes that there is something to refresh.
    fn has_learnt(&self) {
        if !self.knows.swap(true, Ordering::SeqCst) {
            self.mailbox.wake();
        }
    }

    /// The clerk's thread: answers questions, and sees to it that what is known is refreshed.
    fn attend(self: Arc<Core>) {
        let env = self.runtime.env();
        let mut refreshed = env.now();
        while !self.ended.load(Ordering::SeqCst) {
            let left = self.settings.refresh.saturating_sub(env.now().since(refreshed));
            let knows = self.knows.load(Ordering::SeqCst);
            if knows && left.is_zero() {
                refreshed = env.now();
                self.clone().refresh_beside();
                continue;
            }
            mailbox::attend(&self, knows.then_some(left));
            if !knows {
                refreshed = env.now();
            }
        }
    }

    /// Refreshes in a thread of its own: another clerk that does not answer must not delay answers to questions.
    fn refresh_beside(self: Arc<Core>) {
        if self.refreshing.swap(true, Ordering::SeqCst) {
            return;
        }
        let core = self.clone();
        let refresh = move || {
            core.refresh();
            core.refreshing.store(false, Ordering::SeqCst);
        };
        if self.runtime.env().spawn("farcall refresh", Box::new(refresh)).is_err() {
            self.refreshing.store(false, Ordering::SeqCst);
        }
    }

    /// Adds to a new clerk what the registry says is exported on its machine.
    fn recover(&self) {
        let exported = listings::exported(&**self.runtime.registry(), self.address.ip());
        for some in exported.chunks(RECOVERED_AT_ONCE) {
            let asked = some.iter().filter_map(|(address, name)| {
                let url = format!("udp://{address}/{TYPE}/{name}");
                let binding = self.runtime.bind_later(&url, <dyn Access>::interface()).ok()?;
                let access = AccessClient::from(binding.within(RECOVERY_PATIENCE));
                Some((address, name, access.start_facts()))
            });
            // All are asked before the first is waited for.
            for (address, name, facts) in asked.collect::<Vec<_>>() {
                let Ok(facts) = facts.wait() else { continue };
                let (generation, size, rights) = (facts.generation, facts.size, facts.rights().bits());
                let (name, address) = (name.clone(), *address);
                let _ = self.add_entry(&Entry { name, address, generation, size, rights });
            }
        }
    }

    /// Whether the registry knows a segment of this machine at that address.
    fn is_listed(&self, entry: &Entry) -> bool {
        listings::is_listed(&**self.runtime.registry(), entry, self.address.ip())
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clerk, for callers of its own machine.
struct OwnMachine(Arc<Core>);

impl OwnMachine {
    /// The clerk, if the caller is of this machine.
    fn clerk(&self) -> Result<&Core, Fault> {
        let caller = farcall_core::context().caller().map(|caller| caller.ip());
        match caller {
            Some(ip) if !ip.is_loopback() && ip != self.0.address.ip() => Err(Fault::NotPermitted.into()),
            _ => Ok(&self.0),
        }
    }
}

impl Names for OwnMachine {
    fn add(&self, entry: Entry) -> Result<(), Fault> {
        self.clerk()?.add_entry(&entry)
    }

    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault> {
        Ok(self.clerk()?.know(name, hint, how)?.entry)
    }

    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.clerk()?.delete_entry(name, generation)
    }
}

/// The fault of an access to the clerk's own memory, which never refuses one.
fn own_memory(why: Error<Refused>) -> Error<Fault> {
    why.map_declared(|refused| Fault::Silent(format!("the clerk's own memory: {refused}")))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NoSuchName => f.write_str("no clerk knows a segment of this name"),
            Fault::NotAName(why) => f.write_str(why),
            Fault::Full(places) => write!(f, "the clerk's table of {places} places has no room for the name"),
            Fault::NotPermitted => f.write_str("only processes of its machine may ask that of a clerk"),
            Fault::Silent(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Fault {}

impl From<Fault> for CallFailed {
    fn from(fault: Fault) -> CallFailed {
        let kind = match &fault {
            Fault::NoSuchName | Fault::NotAName(_) => Kind::NoSuchName,
            Fault::Full(_) => Kind::Overloaded,
            Fault::NotPermitted => Kind::NotPermitted,
            Fault::Silent(_) => Kind::Unreachable,
        };
        CallFailed::new(kind, Ran::No).caused_by(fault)
    }
}
