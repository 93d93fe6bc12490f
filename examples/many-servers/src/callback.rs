//! A file server that promises to notify each client that has a copy of a file when the file changes. This is
//! how callbacks work in the Andrew File System.
//!
//! (Howard et al. 1988, section 3.2. Satyanarayanan and Siegel wrote MultiRPC to make these notifications.)
//! Copies are read without a call. If a client does not answer, the first writer waits for it, once, for the
//! server's patience, and the server then forgets the client. Such a client may be alive but cut off from the
//! server, and then reads an old version. In Andrew, clients bound that time by asking the server now and
//! then. Here they do it by [`Workstation::forget`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::multi::{Outcome, Rest};
use farcall::{Bytes, Group};

/// A server of files.
#[farcall::interface]
pub trait Files {
    /// Returns a file. The server will notify the [`Copies`] of that name when the file is replaced.
    #[blocking]
    fn fetch(&self, path: &str, copies: &str) -> farcall::Result<Fetched, NotFound>;

    /// Replaces a file. When this returns, each client with a copy was notified, or has not answered and is
    /// forgotten.
    #[blocking]
    fn store(&self, path: &str, contents: Bytes) -> farcall::Result<()>;
}

/// The copies of a client.
#[farcall::interface]
pub trait Copies {
    /// Tells the client that its copies of a file that are older than this version are stale, and that the
    /// server's promise for them has ended.
    #[idempotent]
    fn break_callback(&self, path: &str, version: u64) -> farcall::Result<()>;
}

/// A file, and whether the server will notify the client when it changes.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Fetched {
    /// The version, which is greater each time that the file is replaced.
    pub version: u64,
    /// The file's content.
    pub contents: Bytes,
    /// Whether the client may keep the file as a copy.
    pub promised: bool,
}

/// There is no file of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct NotFound;

/// The server.
#[derive(Debug)]
pub struct Server {
    state: Mutex<State>,
    /// How long to wait for clients that do not answer.
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, (u64, Bytes)>,
    /// The names of the clients to notify, by path.
    promises: BTreeMap<String, BTreeMap<String, CopiesClient>>,
}

impl Server {
    /// Returns a server without files. A notified client must answer within the patience.
    pub fn new(patience: Duration) -> Server {
        Server { state: Mutex::default(), patience }
    }

    /// Returns how many promises the server has made and not yet fulfilled.
    pub fn promises(&self) -> usize {
        self.lock().promises.values().map(BTreeMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for Server {
    fn fetch(&self, path: &str, copies: &str) -> farcall::Result<Fetched, NotFound> {
        // A client that cannot be notified must not keep a copy.
        let client = farcall::import::<dyn Copies>(copies);
        let mut state = self.lock();
        let (version, contents) = state.files.get(path).cloned().ok_or(NotFound)?;
        let promised = client.is_ok();
        if let Ok(client) = client {
            state.promises.entry(path.to_owned()).or_default().insert(copies.to_owned(), client);
        }
        Ok(Fetched { version, contents, promised })
    }

    fn store(&self, path: &str, contents: Bytes) -> farcall::Result<()> {
        let (version, told) = {
            let mut state = self.lock();
            let file = state.files.entry(path.to_owned()).or_default();
            *file = (file.0 + 1, contents);
            (file.0, state.promises.remove(path).unwrap_or_default())
        };
        // No lock is held, because a notified client may fetch the file at once.
        let breaks =
            Group::of(told).multi().break_callback(path, version).within(self.patience).rest(Rest::Finish);
        for (client, outcome) in breaks.all() {
            if !matches!(outcome, Outcome::Result(())) {
                self.lock().promises.values_mut().for_each(|clients| drop(clients.remove(&client)));
            }
        }
        Ok(())
    }
}

/// A client's machine, with copies of the files that it has read.
#[derive(Debug)]
pub struct Workstation {
    files: FilesClient,
    copies: Arc<Kept>,
    /// The name under which the copies are exported.
    name: String,
    _export: farcall::Export,
}

/// By path: the newest known version, and the copy, if it is of that version.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeMap<String, (u64, Option<Bytes>)>>);

impl Workstation {
    /// Returns a client of a server. It exports its copies under the name `Copies/…`, by which the server
    /// calls it.
    ///
    /// # Errors
    /// Those of [`farcall::export`].
    pub fn new(files: FilesClient, name: &str) -> farcall::Result<Workstation> {
        let copies = Arc::new(Kept::default());
        let export = farcall::export::<dyn Copies>(name, copies.clone())?;
        Ok(Workstation { files, copies, name: name.to_owned(), _export: export })
    }

    /// Returns a file: the copy, if there is one.
    ///
    /// # Errors
    /// Those of any call, or that there is no such file.
    pub fn read(&self, path: &str) -> farcall::Result<Bytes, NotFound> {
        if let Some((_, Some(copy))) = self.copies.lock().get(path) {
            return Ok(copy.clone());
        }
        let fetched = self.files.fetch(path, &self.name)?;
        if fetched.promised {
            let mut copies = self.copies.lock();
            let known = copies.entry(path.to_owned()).or_default();
            // The notification that the file is stale may have arrived before the file.
            if fetched.version >= known.0 {
                *known = (fetched.version, Some(fetched.contents.clone()));
            }
        }
        Ok(fetched.contents)
    }

    /// Replaces a file.
    ///
    /// # Errors
    /// Those of any call.
    pub fn write(&self, path: &str, contents: Bytes) -> farcall::Result<()> {
        self.files.store(path, contents)
    }

    /// Returns whether there is a copy of a file.
    pub fn has(&self, path: &str) -> bool {
        matches!(self.copies.lock().get(path), Some((_, Some(_))))
    }

    /// Forgets all copies.
    pub fn forget(&self) {
        self.copies.lock().values_mut().for_each(|(_, copy)| *copy = None);
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (u64, Option<Bytes>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copies for Kept {
    fn break_callback(&self, path: &str, version: u64) -> farcall::Result<()> {
        let mut copies = self.lock();
        let known = copies.entry(path.to_owned()).or_default();
        if known.0 < version {
            *known = (version, None);
        }
        Ok(())
    }
}
