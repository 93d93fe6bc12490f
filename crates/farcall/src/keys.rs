//! The keys of a runtime: its own, and which others it accepts for what (docs/security.md).
//!
//! A runtime with keys seals everything that it sends, and accepts nothing that is not sealed by a key which
//! it accepts.

mod access;
mod clients;
mod names;
mod trust;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use farcall_keys::{KeyFiles, Keyring, Right};
use zeroize::Zeroizing;

use crate::conversations::ServerIdentity;
use crate::{CallFailed, Kind, Ran, lock};

pub(crate) use access::{Access, What};
pub(crate) use names::SignedNames;
pub(crate) use trust::Trusting;

/// The keys of a [`Runtime`](crate::Runtime): from a directory of key files, which are read again when they
/// change, or from the program. Clones are handles of the same keys.
///
/// ```no_run
/// # fn main() -> farcall::Result<()> {
/// let keys = farcall::Keys::open("/etc/farcall")?;
/// let runtime = farcall::Runtime::builder().keys(keys).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Keys(Arc<Inner>);

struct Inner {
    keyring: RwLock<Arc<Keyring>>,
    /// How often decisions about clients were made void.
    generation: AtomicU64,
    files: Mutex<Option<Files>>,
    /// Where the secrets of conversations are logged, if they are.
    log: Mutex<Option<File>>,
}

/// The files of keys, and the fault that was last told of.
struct Files {
    files: KeyFiles,
    told: Option<String>,
}

/// The maximum number of a server's own names that it shows.
const MAX_PRINCIPALS: usize = 16;

impl Keys {
    /// Reads the keys of a directory. While a runtime uses them, a changed file is read again within a quarter
    /// of a second. If it has a fault, the keys that were read last go on, and the fault is written to
    /// standard error.
    ///
    /// # Errors
    /// The fault of a file: which file, which line, what was expected and what to do.
    pub fn open(directory: impl Into<PathBuf>) -> crate::Result<Keys> {
        let (files, keyring) = KeyFiles::open(directory)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
        Ok(Keys::with(keyring, Some(Files { files, told: None })))
    }

    /// Makes keys that the program itself has put together.
    pub fn new(keyring: Keyring) -> Keys {
        Keys::with(keyring, None)
    }

    fn with(keyring: Keyring, files: Option<Files>) -> Keys {
        Keys(Arc::new(Inner {
            keyring: RwLock::new(Arc::new(keyring)),
            generation: AtomicU64::new(0),
            files: Mutex::new(files),
            log: Mutex::default(),
        }))
    }

    /// Replaces the keys. Runtimes end conversations with those that are no longer accepted within a quarter
    /// of a second.
    pub fn replace(&self, keyring: Keyring) {
        *self.0.keyring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keyring);
        self.decide_anew();
    }

    /// Makes decisions that were kept count no more, because the keys, or what has expired, are others now.
    pub(crate) fn decide_anew(&self) {
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Writes the secrets of every conversation that clients with these keys begin from now on to a new file,
    /// which only its owner can read. By it `farcall dump --key-log` reads captured datagrams. Whoever has
    /// the file can read these conversations too; nothing but this call writes one. Each new conversation
    /// waits until its line is written, so the file should not be on a slow disk.
    ///
    /// # Errors
    /// When the file is there already, or cannot be made.
    pub fn log_secrets(&self, path: impl AsRef<Path>) -> crate::Result<()> {
        let path = path.as_ref();
        let mut options = File::options();
        options.append(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).and_then(|mut file| {
            file.write_all(
                b"# farcall: secrets of conversations; whoever has them can read what was said\n",
            )?;
            Ok(file)
        });
        let file = file.map_err(|why| CallFailed::local(&format!("making {}", path.display()), why))?;
        *lock(&self.0.log) = Some(file);
        Ok(())
    }

    /// Adds a line to the log of secrets, if there is one.
    fn log(&self, line: &dyn Fn() -> Zeroizing<String>) {
        if let Some(file) = &mut *lock(&self.0.log) {
            let mut line = line();
            line.push('\n');
            // What cannot be written is missing in the log. No call fails because of it.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Returns the present keys.
    pub fn keyring(&self) -> Arc<Keyring> {
        self.0.keyring.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns who a server with these keys is. Of the names in its grants it has the first 16.
    pub(crate) fn server_identity(&self) -> ServerIdentity {
        let keyring = self.keyring();
        let mut principals: Vec<String> = Vec::new();
        for terms in keyring.grants().iter().map(|grant| grant.terms()) {
            let is_new = !principals.iter().any(|name| **name == **terms.principal);
            if is_new && terms.rights.has(Right::Export) && principals.len() < MAX_PRINCIPALS {
                principals.push(terms.principal.to_string());
            }
        }
        ServerIdentity { key: *keyring.identity().public().as_bytes(), principals }
    }

    /// Returns how often decisions about clients were made void.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Reads the files again if they have changed. Returns a fault that was not told of yet.
    pub(crate) fn reload(&self) -> Option<String> {
        let mut files = lock(&self.0.files);
        let files = files.as_mut()?;
        match files.files.reload() {
            Ok(None) => None,
            Ok(Some(keyring)) => {
                files.told = None;
                self.replace(keyring);
                None
            }
            Err(fault) => {
                let fault = fault.to_string();
                let is_new = files.told.as_ref() != Some(&fault);
                files.told = Some(fault.clone());
                is_new.then_some(fault)
            }
        }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("identity", &self.keyring().identity().public()).finish_non_exhaustive()
    }
}
