//! A registry that all processes of a user share: one file, which a change makes longer by a line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::acl::{self, Acl, Action, MAX_ACL};
use crate::directory::{Directory, Locked};
use crate::format::{Fault, MAX_FILE};
use crate::log::{Log, Writing};
use crate::own::{self, Own};
use crate::owner::Judge;
use crate::table::{Held, MAX_VERSION};
use crate::{Entry, Error, Label, Listing, Liveness, Owner, Registration, Registry, Result};
use farcall_base::lock;

/// The name of the registry's file in its directory.
const NAMES: &str = "names";

/// The name of the document that says who may export and import what.
const ACL: &str = "acl";

/// The longest time that a writer waits for its turn. A turn lasts milliseconds, unless the process that has
/// it is stopped meanwhile.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// For this long after a writer got no turn, withdrawals do not wait for theirs. Otherwise a program with many
/// names could not end while a process is stopped in its turn.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// The most bytes of the lines of all entries. The rest of a file is for lines of entries that were replaced
/// or removed.
const MAX_LIVE_BYTES: usize = MAX_FILE / 2;

/// How many owners a writer judges besides those that its change is about. The writers judge all owners in
/// turn.
const JUDGED_OWNERS: usize = 64;

/// A registry that all processes of a user on one machine share, with nothing to install.
///
/// The registry is one text file, `names`, in a directory of its own. A writer adds a line to it, and
/// replaces it once most of its lines are of the past. Readers take no lock: they see a line as a whole or
/// not at all. A process remembers what it has read, and reads only what was added since. Writers take turns
/// by locks on the files `lock` and `next` in the same directory. A writer that gets no turn within 10 s
/// fails with [`Error::Busy`]. Readers skip an entry whose owner has died, and one of the next writers
/// removes it.
///
/// A file that cannot be parsed is never changed: the error names the file and the line, and the file stays
/// as it is. When the disk is full, its entries stay as they are.
///
/// # Access control
///
/// A document `acl` in the directory may say which programs may export and import what (`docs/names.md`).
/// What it does not allow fails with [`Error::NotPermitted`], which names the rule. Without the document
/// everything is allowed.
///
/// The directory is created with mode 0700. Readers and writers refuse it if another user owns it, if its
/// mode lets others in, or if it is a symbolic link: otherwise a user who created it first in `/tmp` could
/// claim every name. The files are opened relative to the directory that was examined.
#[derive(Clone)]
pub struct File {
    path: PathBuf,
    known: Arc<Mutex<Known>>,
    /// When a writer that had waited for its turn got none, if none has got one since.
    busy_since: Arc<Mutex<Option<Instant>>>,
}

/// What a process knows of the file.
#[derive(Default)]
struct Known {
    /// The content as it was read or written last, if it can be continued.
    log: Option<Log>,
    /// The owner that a writer has judged last.
    judged: Option<Owner>,
}

impl File {
    /// Returns the registry of the user that this process runs as: in `$XDG_RUNTIME_DIR/farcall` if that
    /// variable holds an absolute path, otherwise in `/tmp/farcall-<uid>`. Nothing is created or opened
    /// before the first use.
    pub fn of_user() -> Self {
        Self::at(crate::directory::of_user())
    }

    /// Returns the registry in this directory, which the first publication creates. Its parent must exist.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { path: directory.into(), known: Arc::default(), busy_since: Arc::default() }
    }

    /// Returns the registry's directory.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Reads the file, or only what was added since it was read to `known`. The returned content includes the
    /// entries of dead owners, and is empty if there is no file.
    fn load(&self, directory: &Directory, known: Option<Log>) -> Result<Log> {
        let Some(file) = directory.open_existing(NAMES)? else { return Ok(Log::default()) };
        let boot = Owner::current_boot();
        if let Some(mut log) = known
            && let Some(from) = log.continues_at()
        {
            let further = directory.read_from(NAMES, &file, from, MAX_FILE.saturating_sub(from))?;
            if from + further.len() <= MAX_FILE && log.read_on(&further, boot) {
                return Ok(log);
            }
        }
        let bytes = directory.read_from(NAMES, &file, 0, MAX_FILE)?;
        let path = || self.path.join(NAMES);
        if bytes.len() > MAX_FILE {
            let why = format!("the file has more than {MAX_FILE} bytes");
            return Err(Error::Corrupt { path: path(), line: 1, why });
        }
        Log::parse(&bytes, boot).map_err(|fault| match fault {
            Fault::Version(found) => Error::Format { path: path(), found },
            Fault::Line(line, why) => Error::Corrupt { path: path(), line, why },
        })
    }

    /// Checks that the rules of the document `acl`, if there is one, let this program do something with an
    /// instance.
    fn check(
        &self,
        directory: &Directory,
        action: Action,
        type_name: &Label,
        instance: &Label,
    ) -> Result<()> {
        let Some(acl) = self.acl(directory)? else { return Ok(()) };
        let checked = acl.check(action, type_name, instance, acl::program());
        checked.map_err(|why| self.not_permitted(why))
    }

    fn not_permitted(&self, why: String) -> Error {
        Error::NotPermitted { registry: self.path.join(ACL).display().to_string(), why }
    }

    /// Reads the document `acl`.
    fn acl(&self, directory: &Directory) -> Result<Option<Acl>> {
        let Some(bytes) = directory.read(ACL, MAX_ACL)? else { return Ok(None) };
        let acl = Acl::parse(&bytes);
        acl.map(Some).map_err(|(line, why)| Error::Corrupt { path: self.path.join(ACL), line, why })
    }

    /// Returns the entries that this program may import.
    ///
    /// # Errors
    /// If there are some, and it may import none of them.
    fn importable(&self, entries: Vec<Entry>) -> Result<Vec<Entry>> {
        let Some(directory) = Directory::open(&self.path)? else { return Ok(entries) };
        let Some(acl) = self.acl(&directory)? else { return Ok(entries) };
        let (mut permitted, mut denied) = (Vec::with_capacity(entries.len()), None);
        for entry in entries {
            match acl.check(Action::Import, &entry.type_name, &entry.instance, acl::program()) {
                Ok(()) => permitted.push(entry),
                Err(why) => denied = denied.or(Some(why)),
            }
        }
        match denied {
            Some(why) if permitted.is_empty() => Err(self.not_permitted(why)),
            _ => Ok(permitted),
        }
    }

    /// Reads the file, and asks its content.
    fn ask<T>(&self, ask: impl FnOnce(&Log) -> T) -> Result<T> {
        let Some(directory) = Directory::open(&self.path)? else { return Ok(ask(&Log::default())) };
        let mut known = lock(&self.known);
        let log = self.load(&directory, known.log.take())?;
        let answer = ask(&log);
        known.log = Some(log);
        Ok(answer)
    }

    /// Waits for this writer's turn.
    fn turn(&self, directory: &Directory, patience: Duration) -> Result<Locked> {
        let turn = directory.turn(patience);
        match &turn {
            Ok(_) => *lock(&self.busy_since) = None,
            Err(Error::Busy { .. }) if !patience.is_zero() => *lock(&self.busy_since) = Some(Instant::now()),
            Err(_) => {}
        }
        turn
    }

    /// Returns how long a withdrawal waits for its turn.
    fn patience_of_withdrawal(&self, now: Instant) -> Duration {
        match *lock(&self.busy_since) {
            Some(since) if now.saturating_duration_since(since) < BUSY_FOR => Duration::ZERO,
            _ => TURN_PATIENCE,
        }
    }

    /// Removes entries of dead owners, lets `change` alter the content, and writes what has changed. No other
    /// process writes at the same time.
    fn update<T>(
        &self,
        directory: &Directory,
        patience: Duration,
        change: impl FnOnce(&mut Log, &mut Judge) -> Result<T>,
    ) -> Result<T> {
        let _turn = self.turn(directory, patience)?;
        let mut known = lock(&self.known);
        let mut log = self.load(directory, known.log.take())?;
        log.begin(first_version());
        let mut judge = Judge::new();
        let live = log.live_bytes();
        purge(&mut log, &mut judge, &mut known.judged);
        // If this fails, it has changed nothing but what dead owners had.
        let result = change(&mut log, &mut judge);
        self.check_bounds(&log, live)?;
        if log.is_changed() {
            let is_durable = log.is_durable();
            match log.writing(Owner::current_boot(), MAX_FILE) {
                Writing::Append(lines) => directory.append(NAMES, lines.as_bytes(), is_durable)?,
                Writing::Replace(text) => directory.replace(NAMES, text.as_bytes())?,
            }
        }
        known.log = Some(log);
        result
    }

    /// Checks a content before it is written. Before the change, the entries had `live` bytes.
    fn check_bounds(&self, log: &Log, live: usize) -> Result<()> {
        if log.table().version() > MAX_VERSION {
            let why = "the version is the greatest one".to_owned();
            return Err(Error::Corrupt { path: self.path.join(NAMES), line: 1, why });
        }
        let size = log.live_bytes();
        if size > MAX_LIVE_BYTES && size > live {
            return Err(Error::TooLarge { what: "bytes of registry", size, limit: MAX_LIVE_BYTES });
        }
        Ok(())
    }

    /// Publishes an entry, unless a live process has the name, or `keeps` says that its owner keeps it.
    fn publish_unless(
        &self,
        entry: &Entry,
        keeps: impl FnOnce(&Owner, &mut Judge) -> bool,
    ) -> Result<Registration> {
        entry.check()?;
        let directory = Directory::create(&self.path)?;
        self.check(&directory, Action::Export, &entry.type_name, &entry.instance)?;
        let own = self.update(&directory, TURN_PATIENCE, |log, judge| {
            remove_if_dead(log, &entry.type_name, &entry.instance, judge);
            let found = log.table().get(&entry.type_name, &entry.instance);
            refuse_own(found, &entry.owner)?;
            if let Some(added) = found.filter(|held| held.entry.owner == Owner::NONE) {
                return Err(added.entry.taken());
            }
            let found = found.map(|held| &held.entry);
            refuse_taken(found, &entry.owner, judge)?;
            if let Some(found) = found.filter(|found| keeps(&found.owner, judge)) {
                return Err(found.taken());
            }
            Ok(Own::new(entry, log.put(entry.clone())))
        })?;
        let (registry, type_name, instance) = (self.clone(), entry.type_name.clone(), entry.instance.clone());
        let (ownership, revision, renewed) = (own.ownership().clone(), own.revision(), self.clone());
        Ok(Registration::new(entry.name(), move || {
            let patience = registry.patience_of_withdrawal(Instant::now());
            registry.change(patience, |log, _| Ok(log.remove_revision(&type_name, &instance, own.revision())))
        })
        .renewing(move |entry| renewed.change(TURN_PATIENCE, |log, _| Ok(log.renew(entry, revision))))
        .owning(ownership))
    }

    /// Lets `change` take an entry out or replace it, if there is a registry. Returns whether it did.
    fn change(
        &self,
        patience: Duration,
        change: impl FnOnce(&mut Log, &mut Judge) -> Result<bool>,
    ) -> Result<bool> {
        match Directory::open(&self.path)? {
            Some(directory) => self.update(&directory, patience, change),
            None => Ok(false),
        }
    }
}

impl Registry for File {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        self.publish_unless(entry, |_, _| false)
    }

    fn publish_exclusively(&self, entry: &Entry) -> Result<Registration> {
        self.publish_unless(entry, |owner, judge| judge.liveness(owner) == Liveness::Unknown)
    }

    fn add(&self, entry: &Entry) -> Result<()> {
        entry.check()?;
        let directory = Directory::create(&self.path)?;
        self.check(&directory, Action::Export, &entry.type_name, &entry.instance)?;
        self.update(&directory, TURN_PATIENCE, |log, judge| {
            remove_if_dead(log, &entry.type_name, &entry.instance, judge);
            if let Some(found) = log.table().find(&entry.type_name, &entry.instance) {
                return Err(found.taken());
            }
            log.put(Entry { owner: Owner::NONE, ..entry.clone() });
            Ok(())
        })
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        self.change(TURN_PATIENCE, |log, judge| {
            remove_if_dead(log, type_name, instance, judge);
            refuse_taken(log.table().find(type_name, instance), &Owner::current(), judge)?;
            log.table().get(type_name, instance).into_iter().for_each(own::end);
            Ok(log.remove(type_name, instance))
        })
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.importable(self.ask(|log| living(log.table().of_type(type_name)))?)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        let found = self.ask(|log| living(log.table().find(type_name, instance).into_iter()))?;
        Ok(self.importable(found)?.into_iter().next())
    }

    fn list(&self) -> Result<Listing> {
        self.ask(|log| Listing::new(log.table().version(), living(log.table().entries())))
    }

    fn version(&self) -> Result<u64> {
        self.ask(|log| log.table().version())
    }

    /// Returns a loopback address: all clients are on this machine.
    fn routes(&self) -> Vec<IpAddr> {
        vec![Ipv4Addr::LOCALHOST.into()]
    }

    /// Returns true: nothing here waits for a network.
    fn keeps_deadlines(&self) -> bool {
        true
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the entries whose owners are not dead.
fn living<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    let mut judge = Judge::new();
    entries.filter(|entry| !judge.is_dead(&entry.owner)).cloned().collect()
}

/// Removes the entry of this name if its owner is dead.
fn remove_if_dead(log: &mut Log, type_name: &Label, instance: &Label, judge: &mut Judge) {
    if log.table().find(type_name, instance).is_some_and(|entry| judge.is_dead(&entry.owner)) {
        log.remove(type_name, instance);
    }
}

/// Judges the owners that follow the one that was judged last, and removes the entries of the dead ones.
fn purge(log: &mut Log, judge: &mut Judge, judged: &mut Option<Owner>) {
    for owner in log.table().owners_after(*judged, JUDGED_OWNERS) {
        *judged = Some(owner);
        if judge.is_dead(&owner) {
            for (type_name, instance) in log.table().names_of(&owner) {
                log.remove(&type_name, &instance);
            }
        }
    }
}

/// Returns the version at which a new file begins: the microseconds since 1970. So the revisions in a file
/// that was lost, as at a boot, are followed by greater ones, unless the clock was set back.
fn first_version() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(0)
}

/// Refuses a name that the running program keeps published.
fn refuse_own(found: Option<&Held>, this: &Owner) -> Result<()> {
    match found {
        Some(held) if held.entry.owner.pid == this.pid && own::has(held) => Err(held.entry.taken()),
        _ => Ok(()),
    }
}

/// Refuses a name that another live process exports.
fn refuse_taken(found: Option<&Entry>, this: &Owner, judge: &mut Judge) -> Result<()> {
    match found {
        Some(entry) if judge.is_live_other(&entry.owner, this) => Err(entry.taken()),
        _ => Ok(()),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn while_somebody_is_stopped_in_its_turn_one_of_many_withdrawals_waits() {
        let scratch = tempfile::tempdir().unwrap();
        let file = File::at(scratch.path().join("registry"));
        let directory = Directory::create(file.directory()).unwrap();
        let others = directory.turn(Duration::ZERO).unwrap();
        let is_busy = |patience| matches!(file.turn(&directory, patience), Err(Error::Busy { .. }));
        assert_eq!(file.patience_of_withdrawal(Instant::now()), TURN_PATIENCE);
        assert!(is_busy(Duration::from_millis(1)));
        let busy_since = lock(&file.busy_since).unwrap();
        assert_eq!(file.patience_of_withdrawal(busy_since), Duration::ZERO);
        // Further ones that do not wait leave it so for no longer.
        assert!(is_busy(Duration::ZERO));
        assert_eq!(file.patience_of_withdrawal(busy_since + BUSY_FOR), TURN_PATIENCE);
        drop(others);
        assert!(file.turn(&directory, Duration::from_secs(60)).is_ok());
        assert_eq!(file.patience_of_withdrawal(busy_since), TURN_PATIENCE);
    }
}
