//! The keys of a runtime: its own, and which others it accepts for what (docs/security.md).
//!
//! A runtime with keys seals everything that it sends, and accepts nothing that is not sealed by a key which
//! it accepts.

mod access;
mod clients;
mod expiries;
pub mod mutant;
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
use mutant::Mutant;
pub(crate) use names::SignedNames;
pub(crate) use trust::{Trusting, server_shown_by};

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
    mutant: Mutant,
}

/// The files of keys, and their faults that were told of.
struct Files {
    files: KeyFiles,
    told: Vec<String>,
}

/// The maximum number of a server's own names that it shows.
const MAX_PRINCIPALS: usize = 16;

impl Keys {
    /// Reads the keys of a directory. While a runtime uses them, a changed file is read again within a
    /// quarter of a second. If it has a fault, it gives nothing new, and what is gone from it or revoked ends
    /// all the same ([`farcall_keys::KeyFiles::reload`]). The fault is written to standard error, and
    /// [`Keys::faults`] has it.
    ///
    /// # Errors
    /// The fault of a file: which file, which line, what was expected and what to do.
    pub fn open(directory: impl Into<PathBuf>) -> crate::Result<Keys> {
        let (files, keyring) = KeyFiles::open(directory)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
        Ok(Keys::with(keyring, Some(Files { files, told: Vec::new() }), Mutant::default()))
    }

    /// Makes keys that the program itself has put together.
    pub fn new(keyring: Keyring) -> Keys {
        Keys::with(keyring, None, Mutant::default())
    }

    /// Makes keys that have a fault.
    #[doc(hidden)]
    #[cfg(feature = "mutants")]
    pub fn broken(keyring: Keyring, mutant: Mutant) -> Keys {
        Keys::with(keyring, None, mutant)
    }

    fn with(keyring: Keyring, files: Option<Files>, mutant: Mutant) -> Keys {
        Keys(Arc::new(Inner {
            keyring: RwLock::new(Arc::new(keyring)),
            generation: AtomicU64::new(0),
            files: Mutex::new(files),
            log: Mutex::default(),
            mutant,
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

    /// Returns who a server with these keys is, with the faults of its key files if these are to be told. Of
    /// the names in its grants it has the first 16.
    pub(crate) fn server_identity(&self, with_faults: bool) -> ServerIdentity {
        let keyring = self.keyring();
        let mut principals: Vec<String> = Vec::new();
        for terms in keyring.grants().iter().map(|grant| grant.terms()) {
            let is_new = !principals.iter().any(|name| **name == **terms.principal);
            if is_new && terms.rights.has(Right::Export) && principals.len() < MAX_PRINCIPALS {
                principals.push(terms.principal.to_string());
            }
        }
        let faults = if with_faults { self.faults() } else { Vec::new() };
        ServerIdentity { key: *keyring.identity().public().as_bytes(), principals, faults }
    }

    /// Returns what was wrong with the key files when they were read last: which file, which line and column,
    /// what was expected and what to do. Empty for keys that the program has put together.
    pub fn faults(&self) -> Vec<String> {
        let files = lock(&self.0.files);
        let faults = files.iter().flat_map(|files| files.files.faults());
        faults.map(ToString::to_string).collect()
    }

    /// Returns the fault that these keys have, if any.
    #[inline(always)]
    fn mutant(&self) -> Mutant {
        self.0.mutant
    }

    /// Returns how often decisions about clients were made void.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Reads the files again if they have changed. Returns what has to be told: faults that were not told of
    /// yet, or that there are none any more.
    pub(crate) fn reload(&self) -> Vec<String> {
        let mut files = lock(&self.0.files);
        let Some(files) = files.as_mut() else { return Vec::new() };
        if let Some(keyring) = files.files.reload() {
            self.replace(keyring);
        }
        let faults: Vec<String> = files.files.faults().iter().map(ToString::to_string).collect();
        let new = faults.iter().filter(|fault| !files.told.contains(fault));
        let mut told: Vec<String> = new
            .map(|fault| {
                format!(
                    "a key file has a fault, so it gives nothing new; what is gone from it or revoked has ended: \
                     {fault}"
                )
            })
            .collect();
        if faults.is_empty() && !files.told.is_empty() {
            told.push("the key files have no fault any more".to_owned());
        }
        files.told = faults;
        told
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("identity", &self.keyring().identity().public()).finish_non_exhaustive()
    }
}
