//! Exports and imports segments by name, through the machine's clerk.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::cache::Known;
use super::entry::{Entry, check_name};
use super::listings::{self, instance, is_reserved};
use super::{ClerkRuntime, Fault, How, locator};
use crate::Memory as _;
use crate::access::Rights;
use crate::remote::Remote;
use crate::segment::{self, Listing, Segment};
use farcall_core::sys::fork;
use farcall_core::{CallFailed, Error, Kind, Ran, Result, lock};
use farcall_names::{Address, Name, Registration};

/// Exports a new segment of zeros under a name, until the returned handle is dropped.
///
/// # Errors
/// When the name is not valid or is taken, there is no memory, or the registry fails.
pub fn export_segment(
    runtime: &dyn ClerkRuntime,
    name: &str,
    settings: segment::Settings,
) -> Result<Segment> {
    list(runtime, Segment::offer(runtime, name, settings)?, settings)
}

/// Exports memory that the program has already under a name, until the handle is dropped.
///
/// # Errors
/// Those of [`export_segment`], and when such memory cannot be exported.
#[cfg(unix)]
pub fn export_file(
    runtime: &dyn ClerkRuntime,
    name: &str,
    (file, offset): (std::os::fd::OwnedFd, u64),
    settings: segment::Settings,
) -> Result<Segment> {
    segment::check_size(settings.size())?;
    let memory = runtime.memory_of_file(file, offset, settings.size())?;
    list(runtime, Segment::offer_memory(runtime, name, settings, Some(memory))?, settings)
}

fn list(runtime: &dyn ClerkRuntime, segment: Segment, settings: segment::Settings) -> Result<Segment> {
    let listed = Listed::new(runtime, &segment, settings.rights_of_anyone())?;
    Ok(segment.listed(Box::new(listed)))
}

/// Imports the segment that is exported under a name, or at an address (`udp://10.0.0.7:7000/Load`).
///
/// # Errors
/// When the name is not exported, or the exporter does not answer.
pub fn import_segment(runtime: &dyn ClerkRuntime, name: &str) -> Result<Remote> {
    let wrong = |why| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why);
    match name.parse::<Name>().map_err(wrong)? {
        Name::Type(segment) => import_named(runtime, segment.as_str(), None),
        Name::At { address, type_name: segment, instance: None } => {
            Remote::import(runtime, address, segment.as_str())
        }
        Name::AtHost { host, port, type_name: segment, instance: None } => {
            Remote::import(runtime, format_args!("udp://{host}:{port}"), segment.as_str())
        }
        _ => {
            let why = format!(
                "{name:?} is not the name of a segment: a label is expected, alone or after an address"
            );
            Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why).into())
        }
    }
}

/// Imports the segment that is exported under a name on the machine of the clerk at the address `hint`. Looks
/// the name up there, unless this machine's clerk has a valid entry in its cache.
///
/// # Errors
/// When the name is not exported there, or the clerk or the exporter does not answer.
pub fn import_segment_at(runtime: &dyn ClerkRuntime, name: &str, hint: SocketAddr) -> Result<Remote> {
    import_named(runtime, name, Some(hint))
}

/// Imports a segment without using the cache of this machine's clerk.
///
/// # Errors
/// When the name is not exported, or the exporter does not answer.
pub fn import_segment_anew(
    runtime: &dyn ClerkRuntime,
    name: &str,
    hint: Option<SocketAddr>,
) -> Result<Remote> {
    match know(runtime, name, hint, How::Anew) {
        // The clerk may know an exporter that is gone, if its successor may not tell it.
        Ok(known) => import_known(runtime, known).or_else(|why| {
            let listed = hint.is_none().then(|| import_listed(runtime, name));
            listed.flatten().ok_or(why)
        }),
        Err(why) if hint.is_none() => {
            import_listed(runtime, name).ok_or_else(|| explained(runtime, name, why))
        }
        Err(why) => Err(why),
    }
}

/// Returns the failure to find a name with what was passed over because it is not believed, and why.
#[cold]
fn explained(runtime: &dyn ClerkRuntime, name: &str, why: Error) -> Error {
    let Error::CallFailed(failed) = why;
    let machine = runtime.machine().ok().filter(|_| failed.kind() == Kind::NoSuchName);
    let passed = machine.map(|machine| listings::passed_over(runtime, name, machine)).unwrap_or_default();
    if passed.is_empty() {
        return failed.into();
    }
    let what = format!("no clerk that was asked knows the segment {name:?}; {}", passed.join("; "));
    failed.because(what).into()
}

/// Imports a segment from where the registry lists it. For runtimes with keys: the machine's clerk may have
/// other keys, and neither know nor be able to ask the exporter.
fn import_listed(runtime: &dyn ClerkRuntime, name: &str) -> Option<Remote> {
    runtime.key_prefix()?;
    let mut exporters = listings::exporters_of(runtime, name, runtime.machine().ok()?).into_iter();
    exporters.find_map(|at| Remote::import(runtime, Address::from(at), name).ok())
}

fn import_named(runtime: &dyn ClerkRuntime, name: &str, hint: Option<SocketAddr>) -> Result<Remote> {
    let known = match know(runtime, name, hint, How::Cached) {
        Ok(known) => known,
        Err(why) if hint.is_none() => {
            return import_listed(runtime, name).ok_or_else(|| explained(runtime, name, why));
        }
        Err(why) => return Err(why),
    };
    let generation = known.entry.generation;
    match import_known(runtime, known) {
        Ok(remote) if remote.generation() == generation => Ok(remote),
        // The clerk's entry is outdated.
        _ => import_segment_anew(runtime, name, hint),
    }
}

fn import_known(runtime: &dyn ClerkRuntime, known: Known) -> Result<Remote> {
    let remote = Remote::import(runtime, Address::from(known.entry.address), &known.entry.name)?;
    Ok(if remote.generation() == known.entry.generation { remote.until(known.purged) } else { remote })
}

fn know(runtime: &dyn ClerkRuntime, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known> {
    locator::ask(runtime, |clerk| clerk.know(name, hint, how))
}

/// A segment's name with the clerk and the registry, until this is dropped.
struct Listed {
    runtime: Arc<dyn ClerkRuntime>,
    /// The entry as it was added last.
    entry: Mutex<Entry>,
    /// Identifies the process that exported the segment, so that a forked child is noticed.
    process: u64,
    _registration: Registration,
}

impl Listed {
    /// Gives an exported segment its name.
    fn new(runtime: &dyn ClerkRuntime, segment: &Segment, rights: Rights) -> Result<Listed> {
        let name = segment.name();
        check_name(name).map_err(CallFailed::from)?;
        if is_reserved(name) {
            let why = format!("{name:?} is reserved for a segment of every clerk");
            return Err(CallFailed::from(Fault::NotAName(why)).into());
        }
        let address = segment.address();
        // The clerk is found before the segment is registered. So a clerk that starts only now need not ask
        // this process for the entry that is added below.
        locator::machine_clerk(runtime, &[])?;
        let registration = segment.register(&instance(name, address.ip()))?;
        let (generation, size, rights) = (segment.generation().unwrap_or(1), segment.size(), rights.bits());
        let entry = Entry { name: name.to_owned(), address, generation, size, rights };
        let (runtime, process) = (runtime.share(), fork::generation());
        let listed = Listed { runtime, entry: Mutex::new(entry), process, _registration: registration };
        listed.add()?;
        Ok(listed)
    }

    fn add(&self) -> Result<()> {
        let entry = self.entry();
        locator::ask(&*self.runtime, |clerk| clerk.add(&entry))
    }

    fn entry(&self) -> Entry {
        lock(&self.entry).clone()
    }
}

impl Listing for Listed {
    fn update(&self, generation: u64, rights: Rights) -> Result<()> {
        {
            let mut entry = lock(&self.entry);
            (entry.generation, entry.rights) = (generation, rights.bits());
        }
        self.add()
    }

    fn remove(&self) {
        let entry = self.entry();
        if let Some(clerk) = locator::known(&*self.runtime) {
            clerk.delete(&entry.name, entry.generation);
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // In a forked child this is a copy, and the name belongs to the parent.
        if self.process == fork::generation() {
            self.remove();
        }
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.entry(), f)
    }
}
