//! A registry that can only be read: a text file that people write.

mod stamp;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use farcall_base::lock;

use crate::{Distrust, Entry, Error, Label, Listing, Registration, Registry, Result};
use stamp::Stamp;

/// A registry that can only be read: a text file that people, or their tools, write.
///
/// ```text
/// # The stores of the first floor.
/// Store/ebbets  udp://10.0.0.7:7000  udp://[fd00::7]:7000
/// Store/luther  udp://10.0.0.8:7000   # being repaired
/// ```
///
/// A line has the name of an export and from one to eight addresses, which callers try in that order. What
/// follows a `#` is a comment. The file has at most 4 MiB and 100,000 lines.
///
/// The file is read again when it has changed: each question compares its inode, size and times, which costs
/// a system call and blocks no longer than a local file does. A change is seen by the next question, also if
/// the file was replaced by another one. If the changed file cannot be read or parsed, the registry keeps the
/// content that it has read last, and [`StaticFile::fault`] says what is wrong. If it has never read a good
/// file, each question fails, with an error that names the file and the line.
///
/// Publishing and withdrawing fail with [`Error::NotPermitted`]. An exporter that the file names uses another
/// registry, such as [`Memory`](crate::Memory), and a fixed address. Who can write to the file decides who
/// exports its names: farcall does not look at the file's owner and mode.
///
/// Clones share one copy of the content.
///
/// ```
/// use farcall_names::{Registry, StaticFile};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("names");
/// std::fs::write(&path, "Store/ebbets udp://10.0.0.7:7000\n")?;
/// let registry = StaticFile::at(&path);
/// assert_eq!(registry.instances(&"Store".parse()?)?[0].address, "udp://10.0.0.7:7000".parse()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StaticFile(Arc<Shared>);

/// What clones share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The good content that was read last.
    content: Option<Arc<Listing>>,
    /// The stamp of the file that was read last, good or bad, unless it could change without a new stamp.
    stamp: Option<Stamp>,
    /// Why the content is not that of the file.
    fault: Option<String>,
}

impl StaticFile {
    /// Returns the registry in this file. Nothing is read before the first use.
    pub fn at(path: impl Into<PathBuf>) -> StaticFile {
        StaticFile(Arc::new(Shared { path: path.into(), state: Mutex::default() }))
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Looks at the file as a question does, and says what is wrong with it. Returns `None` if nothing is.
    pub fn fault(&self) -> Option<String> {
        match self.content() {
            Ok(_) => lock(&self.0.state).fault.clone(),
            Err(why) => Some(why.to_string()),
        }
    }

    /// Returns the content of the file, or the last one that was good.
    fn content(&self) -> Result<Arc<Listing>> {
        let mut state = lock(&self.0.state);
        let looked = state.look(&self.0.path);
        match (&state.content, looked) {
            (None, Err(why)) => return Err(why),
            (_, Err(why)) => state.fault = Some(why.to_string()),
            _ => {}
        }
        Ok(state.content.clone().unwrap_or_else(|| Arc::new(Listing::new(0, Vec::new()))))
    }

    fn refuse<T>(&self) -> Result<T> {
        let registry = format!("file://{}", self.0.path.display());
        Err(Error::NotPermitted { registry, why: "it is read-only: edit the file".to_owned() })
    }
}

impl State {
    /// Reads the file if it may have changed since it was read last.
    fn look(&mut self, path: &Path) -> Result<()> {
        let failed = |doing, source| Error::Io { doing, path: path.to_owned(), source };
        let known = self.stamp.take();
        let found = fs::metadata(path).map_err(|source| failed("examining", source))?;
        if known.is_some() && self.content.is_some() && known == Some(Stamp::of(&found)) {
            self.stamp = known;
            return Ok(());
        }
        let file = stamp::open(path).map_err(|source| failed("opening", source))?;
        let found = file.metadata().map_err(|source| failed("examining", source))?;
        if !found.is_file() {
            return Err(Error::Untrusted { path: path.to_owned(), why: Distrust::NotAFile });
        }
        let stamp = Stamp::of(&found);
        let is_settled = stamp.is_settled(SystemTime::now());
        let bytes = crate::directory::read_bounded(file, text::MAX_FILE)
            .map_err(|source| failed("reading", source))?;
        self.stamp = is_settled.then_some(stamp);
        let entries =
            text::parse(&bytes).map_err(|(line, why)| Error::Corrupt { path: path.to_owned(), line, why })?;
        self.fault = None;
        let version = match &self.content {
            Some(known) if known.entries == entries => return Ok(()),
            Some(known) => known.version.wrapping_add(1),
            None => 1,
        };
        self.content = Some(Arc::new(Listing::new(version, entries)));
        Ok(())
    }
}

impl Registry for StaticFile {
    fn publish(&self, _: &Entry) -> Result<Registration> {
        self.refuse()
    }

    fn is_published_to(&self) -> bool {
        false
    }

    fn withdraw(&self, _: &Label, _: &Label) -> Result<bool> {
        self.refuse()
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        let content = self.content()?;
        let first = content.entries.partition_point(|entry| entry.type_name < *type_name);
        let same = |entry: &&Entry| entry.type_name == *type_name;
        Ok(content.entries[first..].iter().take_while(same).cloned().collect())
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        let content = self.content()?;
        let key = (type_name, instance);
        let found = content.entries.binary_search_by_key(&key, |entry| (&entry.type_name, &entry.instance));
        Ok(found.ok().map(|place| content.entries[place].clone()))
    }

    fn list(&self) -> Result<Listing> {
        Ok((*self.content()?).clone())
    }

    fn version(&self) -> Result<u64> {
        Ok(self.content()?.version)
    }

    /// Returns true: nothing here waits for a network.
    fn keeps_deadlines(&self) -> bool {
        true
    }
}
