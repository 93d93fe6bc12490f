//! The segment name service: a clerk on each machine, which read one another's memory (Thekkath et al. 1994, section 4).
//!
//! A clerk knows the segments that are exported on its machine. It keeps them in a hash table in a segment of its own,
//! which bears the well-known name `clerk`, so that who knows a clerk's address can read its table: to look a name up on
//! another machine costs one remote read, and nothing runs there. Every table is probed by one rule: the hash is XXH3 of 64
//! bits of the name's bytes, modulo the number of places; who finds another name there goes on to the next place, up to the
//! first that was never used.
//!
//! [`Runtime::export_segment`] and [`Runtime::import_segment`] go through the machine's clerk. The first process on a machine
//! that exports or imports a segment starts it, if [`Clerk::start`] has not; when that process ends, the next one that
//! needs a clerk does, and finds out from the registry of names what is exported. What a clerk has learnt from others it keeps,
//! and [looks](Clerk::refresh) from time to time whether it is still so.
//!
//! ```text
//! entry      what is known of a segment: a record of 128 bytes
//! table      the hash table
//! cache      what was learnt from others
//! neighbours segments of other clerks
//! post       the look-up with control transfer: questions and answers
//! desk       which clerk is this machine's;  how exports and imports go through it
//! ```

mod cache;
mod desk;
mod entry;
mod neighbours;
mod post;
mod table;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::segment::TYPE;
use super::{Remote, Rights, Segment};
use crate::names::{Label, Registration};
use crate::{CallFailed, Error, Export, Kind, Ran, Result, Runtime};
use cache::{Cache, Known};
use neighbours::Neighbours;
use post::Post;

pub(crate) use desk::Desk;
pub(in crate::memory) use desk::Named;
#[doc(hidden)]
pub use entry::fuzz_record;
pub use entry::{Entry, MAX_NAME};

/// The name of every clerk's table.
const TABLE: &str = "clerk";

/// Whether a name is kept for segments that farcall itself exports.
fn is_reserved(name: &str) -> bool {
    name == TABLE || name == post::NAME || name == super::counters::NAME
}

/// The name of the interface of every clerk.
const NAMES: &str = "Names";

/// Why a clerk did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Fault {
    /// Nobody exports the name, as far as those know who were asked.
    NoSuchName,
    /// No segment can bear the name.
    NotAName(String),
    /// There is no room for the name in the clerk's table, which has so many places.
    Full(u64),
    /// Only processes of its machine may ask that of a clerk.
    NotPermitted,
    /// Another machine's clerk does not answer.
    Silent(String),
}

/// How a clerk is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    places: usize,
    refresh: Duration,
}

/// A machine's clerk, for as long as this is held.
pub struct Clerk {
    /// First, so that nobody finds what is no longer there.
    registration: Option<Registration>,
    _names: Export,
    core: Arc<Core>,
}

/// What a clerk knows, and what it needs to know more.
pub(crate) struct Core {
    runtime: Runtime,
    address: SocketAddr,
    settings: Settings,
    table: Segment,
    /// Who adds or deletes has it.
    writing: Mutex<()>,
    cache: Mutex<Cache>,
    /// The tables of other clerks.
    tables: Neighbours,
    post: Post,
    /// How many reads of others' tables it took so far.
    reads: AtomicU64,
    /// Whether there is anything that a refresh could change.
    knows: AtomicBool,
    refreshing: AtomicBool,
    ended: AtomicBool,
}

/// How to look a name up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub(crate) enum How {
    /// Believing what was learnt before.
    Cached,
    /// At its source.
    Anew,
    /// At its source, by asking the clerk there.
    Asking,
}

/// What the processes of a machine ask of its clerk, by calls on that machine.
#[farcall::interface]
pub(crate) trait Names {
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

    /// How often to look whether what is known is still so.
    #[must_use]
    pub fn refresh(self, refresh: Duration) -> Settings {
        Settings { refresh, ..self }
    }
}

impl Clerk {
    /// Starts the clerk of the machine, at the address at which the runtime exports: that is other machines' hint.
    ///
    /// # Errors
    /// When the machine has one, in another process; when a segment cannot be exported or no thread started.
    pub fn start(runtime: &Runtime, settings: Settings) -> Result<Clerk> {
        let clerk = Clerk::open(runtime, settings)?;
        desk::adopt(runtime, &clerk);
        Ok(clerk)
    }

    fn open(runtime: &Runtime, settings: Settings) -> std::result::Result<Clerk, CallFailed> {
        let readable = super::Settings::new(settings.places * entry::RECORD).anyone(Rights::READ);
        let table = runtime.offer_segment(TABLE, readable)?;
        let address = table.address();
        let core = Arc::new(Core {
            runtime: runtime.clone(),
            address,
            settings,
            table,
            writing: Mutex::default(),
            cache: Mutex::default(),
            tables: Neighbours::new(TABLE),
            post: Post::new(runtime)?,
            reads: AtomicU64::new(0),
            knows: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let names = runtime.export_unlisted::<dyn Names>(NAMES, Arc::new(Counter(core.clone())), None)?;
        let mut clerk = Clerk { registration: None, _names: names, core };
        desk::recover(&clerk.core);
        let core = clerk.core.clone();
        let started = runtime.env().spawn("farcall clerk", Box::new(move || core.attend()));
        started.map_err(|why| {
            CallFailed::new(Kind::Local, Ran::No).because("starting a clerk's thread").caused_by(why)
        })?;
        // Last, so that whoever finds it is served.
        clerk.registration = Some(clerk.core.table.list_as(&listed(TABLE, address.ip()))?);
        Ok(clerk)
    }

    /// Where other machines find it: their hint.
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

    /// Looks a name up. Without a hint: on this machine, then in what was learnt from others, then at the machines that the
    /// registry of names has it from. With one, which is the address of a clerk: there, unless that was learnt before.
    ///
    /// # Errors
    /// When nobody exports it there, or the clerk there does not answer.
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

    /// Deletes a segment of that generation; whether there was one.
    ///
    /// # Errors
    /// None; but a clerk of another process can be silent.
    pub fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.core.delete_entry(name, generation)
    }

    /// Reads anew what was learnt from others, and forgets what is no longer so: accesses by who imported it through this clerk
    /// in this process are refused as [`Stale`](super::Refused::Stale) from then on. Of this machine's segments those are deleted
    /// whose exporters are gone. It happens by itself every now and then ([`Settings::refresh`]).
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
        self.core.post.wake();
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
        for home in learnt.map(|(home, _)| home).into_iter().chain(desk::homes(
            &self.runtime,
            name,
            self.address.ip(),
        )) {
            match self.ask_home(home, name, how) {
                Ok(Some(known)) => return Ok(known),
                Ok(None) => {}
                Err(why) => silent = Some(why),
            }
        }
        Err(silent.unwrap_or_else(|| Fault::NoSuchName.into()))
    }

    /// This machine's segment of that name. A look-up anew asks the registry whether its exporter is still there.
    fn own(&self, name: &str, how: How) -> Result<Option<Entry>, Fault> {
        let Some(entry) = table::find(&self.table, name).map_err(own_memory)?.0 else { return Ok(None) };
        if how == How::Cached || desk::is_listed(&self.runtime, &entry, self.address.ip()) {
            return Ok(Some(entry));
        }
        self.delete_entry(name, entry.generation)?;
        Ok(None)
    }

    /// What another clerk knows of a name on its machine.
    fn ask_home(&self, home: SocketAddr, name: &str, how: How) -> Result<Option<Known>, Fault> {
        let answered = match how {
            How::Asking => self.post.ask(self, home, name)?,
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
        let (found, reads) = self.tables.with(&self.runtime, home, &|table| table::find(table, name))?;
        self.reads.fetch_add(reads, Ordering::Relaxed);
        Ok(found)
    }

    fn refresh(&self) {
        let learnt = self.cache().all();
        for (home, name) in learnt {
            // Whether its clerk is there says nothing of the exporter: only who asked it knows that it is gone.
            if let Err(_silent) = self.ask_home(home, &name, How::Anew) {
                self.cache().forget(home, &name, false);
            }
        }
        // First what we have: what is added now has been listed before.
        let entries = table::entries(&self.table).unwrap_or_default();
        for entry in &entries {
            if !desk::is_listed(&self.runtime, entry, self.address.ip()) {
                let _ = self.delete_entry(&entry.name, entry.generation);
            }
        }
        self.knows.store(!entries.is_empty() || !self.cache().is_empty(), Ordering::SeqCst);
    }

    /// There is something to refresh.
    fn has_learnt(&self) {
        if !self.knows.swap(true, Ordering::SeqCst) {
            self.post.wake();
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
            post::attend(&self, knows.then_some(left));
            if !knows {
                refreshed = env.now();
            }
        }
    }

    /// Refreshes without keeping those waiting who ask: a clerk that does not answer takes its time.
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

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names for Core {
    fn add(&self, entry: Entry) -> Result<(), Fault> {
        self.add_entry(&entry)
    }

    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault> {
        Ok(self.know(name, hint, how)?.entry)
    }

    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.delete_entry(name, generation)
    }
}

/// Where the processes of this machine ask.
struct Counter(Arc<Core>);

impl Counter {
    /// The clerk, for somebody of this machine.
    fn clerk(&self) -> Result<&Core, Fault> {
        let caller = crate::context().caller().map(|caller| caller.ip());
        match caller {
            Some(ip) if !ip.is_loopback() && ip != self.0.address.ip() => Err(Fault::NotPermitted.into()),
            _ => Ok(&self.0),
        }
    }
}

impl Names for Counter {
    fn add(&self, entry: Entry) -> Result<(), Fault> {
        self.clerk()?.add(entry)
    }

    fn look_up(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Entry, Fault> {
        self.clerk()?.look_up(name, hint, how)
    }

    fn delete(&self, name: &str, generation: u64) -> Result<bool, Fault> {
        self.clerk()?.delete(name, generation)
    }
}

/// The name under which the registry knows a segment of a machine.
fn listed(name: &str, machine: IpAddr) -> String {
    format!("{name}.{}", machine.to_string().replace(':', "-"))
}

/// A clerk's own memory refuses it nothing.
fn own_memory(why: Error<super::Refused>) -> Error<Fault> {
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
