//! A registry that all processes of a user share: one file, replaced as a whole.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::acl::{self, Acl, Action, MAX_ACL};
use crate::directory::Directory;
use crate::format::{self, Fault, MAX_FILE};
use crate::own::{self, Own};
use crate::owner::Judge;
use crate::table::{Held, MAX_VERSION, Table};
use crate::{Entry, Error, Label, Listing, Liveness, Owner, Registration, Registry, Result};

/// The name of the registry's file in its directory.
const NAMES: &str = "names";

/// The name of the document that says who may export and import what.
const ACL: &str = "acl";

/// The longest time that a writer waits for its turn. A turn lasts milliseconds, unless the process that has
/// it is stopped meanwhile.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// A registry that all processes of a user on one machine share, with nothing to install.
///
/// The registry is one text file, `names`, in a directory of its own. Readers take no lock: a writer replaces
/// the whole file, so a reader sees the old or the new one. Writers take turns by locks on the files `lock`
/// and `next` in the same directory. A writer that gets no turn within 10 s fails with [`Error::Busy`].
/// Readers skip an entry whose owner has died, and the next writer removes it.
///
/// A file that cannot be parsed is never replaced: the error names the file and the line, and the file stays
/// as it is. It also stays as it is when the disk is full.
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
#[derive(Clone, Debug)]
pub struct File {
    path: PathBuf,
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
        Self { path: directory.into() }
    }

    /// Returns the registry's directory.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// Reads the file. The returned table includes the entries of dead owners, and is empty if there is no
    /// file.
    fn load(&self, directory: &Directory) -> Result<Table> {
        let Some(bytes) = directory.read(NAMES, MAX_FILE)? else {
            return Ok(Table::default());
        };
        let path = self.path.join(NAMES);
        format::parse(&bytes).map_err(|fault| match fault {
            Fault::Version(found) => Error::Format { path, found },
            Fault::Line(line, why) => Error::Corrupt { path, line, why },
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

    /// Reads the entries for which `wanted` returns true and whose owners are not dead.
    fn living(&self, mut wanted: impl FnMut(&Entry) -> bool) -> Result<Listing> {
        let Some(directory) = Directory::open(&self.path)? else {
            return Ok(Listing::new(0, Vec::new()));
        };
        let table = self.load(&directory)?;
        let mut judge = Judge::new();
        let entries = table.entries().filter(|e| wanted(e) && !judge.is_dead(&e.owner));
        Ok(Listing::new(table.version(), entries.cloned().collect()))
    }

    /// Removes the entries of dead owners, lets `change` alter the table, and writes the table if it differs.
    /// No other process writes at the same time.
    fn update<T>(
        &self,
        directory: &Directory,
        change: impl FnOnce(&mut Table, &mut Judge) -> Result<T>,
    ) -> Result<T> {
        let _turn = directory.turn(TURN_PATIENCE)?;
        let mut table = self.load(directory)?;
        table.begin(first_version());
        let before = table.version();
        let mut judge = Judge::new();
        table.retain(|entry| !judge.is_dead(&entry.owner));
        let result = change(&mut table, &mut judge)?;
        if table.version() != before {
            if table.version() > MAX_VERSION {
                let why = "the version is the greatest one".to_owned();
                return Err(Error::Corrupt { path: self.path.join(NAMES), line: 1, why });
            }
            let text = format::render(&table);
            if text.len() > MAX_FILE {
                return Err(Error::TooLarge { what: "bytes of registry", size: text.len(), limit: MAX_FILE });
            }
            directory.replace(NAMES, text.as_bytes())?;
        }
        Ok(result)
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
        let own = self.update(&directory, |table, judge| {
            let found = table.get(&entry.type_name, &entry.instance);
            refuse_own(found, &entry.owner)?;
            if let Some(added) = found.filter(|held| held.entry.owner == Owner::NONE) {
                return Err(added.entry.taken());
            }
            let found = found.map(|held| &held.entry);
            refuse_taken(found, &entry.owner, judge)?;
            if let Some(found) = found.filter(|found| keeps(&found.owner, judge)) {
                return Err(found.taken());
            }
            Ok(Own::new(entry, table.put(entry.clone())))
        })?;
        let (registry, type_name, instance) = (self.clone(), entry.type_name.clone(), entry.instance.clone());
        let (ownership, revision, renewed) = (own.ownership().clone(), own.revision(), self.clone());
        Ok(Registration::new(entry.name(), move || {
            registry.change(|table, _| Ok(table.remove_revision(&type_name, &instance, own.revision())))
        })
        .renewing(move |entry| renewed.change(|table, _| Ok(table.renew(entry, revision))))
        .owning(ownership))
    }

    /// Lets `change` take an entry out or replace it, if there is a registry. Returns whether it did.
    fn change(&self, change: impl FnOnce(&mut Table, &mut Judge) -> Result<bool>) -> Result<bool> {
        match Directory::open(&self.path)? {
            Some(directory) => self.update(&directory, change),
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
        self.update(&directory, |table, _| {
            if let Some(found) = table.find(&entry.type_name, &entry.instance) {
                return Err(found.taken());
            }
            table.put(Entry { owner: Owner::NONE, ..entry.clone() });
            Ok(())
        })
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        self.change(|table, judge| {
            refuse_taken(table.find(type_name, instance), &Owner::current(), judge)?;
            table.get(type_name, instance).into_iter().for_each(own::end);
            Ok(table.remove(type_name, instance))
        })
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.importable(self.living(|e| e.type_name == *type_name)?.entries)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        let found = self.living(|e| e.type_name == *type_name && e.instance == *instance)?;
        Ok(self.importable(found.entries)?.into_iter().next())
    }

    fn list(&self) -> Result<Listing> {
        self.living(|_| true)
    }

    fn version(&self) -> Result<u64> {
        Ok(self.living(|_| false)?.version)
    }

    /// Returns a loopback address: all clients are on this machine.
    fn routes(&self) -> Vec<IpAddr> {
        vec![Ipv4Addr::LOCALHOST.into()]
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
