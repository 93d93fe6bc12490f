//! The server: a directory, the memory that clerks read, and the thread that answers letters. A clerk serves
//! the programs of one machine; a letter is a request that a clerk writes into the server's memory.

mod keep;
mod push;
mod serve;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use farcall::memory::{Memory, Notify, Rights, Segment, Settings};
use farcall::{CallFailed, Export, Kind, Ran, Result, Runtime};
use farcall_file_access::{Directory, FileAccess};

use crate::areas::{Areas, COUNTER, IDENTITY};
use crate::mirror::{LEASE_OVER, Layout};
use crate::{Handle, MoreFiles, Shape};
use push::Pushing;
use serve::{Clerk, Procedures};

/// Serves the files below a directory, until it is dropped.
///
/// Clerks have all rights to the server's memory, because clerks and server are one service, and trust one
/// another (Thekkath et al. 1994, section 3.2).
#[derive(Debug)]
pub struct Server {
    core: Arc<Core>,
    runtime: Runtime,
    exports: [Export; 2],
    hearing: Option<JoinHandle<()>>,
}

/// The names under which the parts of a server can be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The name of the server's [`FileAccess`].
    pub files: String,
    /// The name of the server's [`MoreFiles`].
    pub more: String,
    /// The name of the server's segment.
    pub memory: String,
}

/// The server's state, which calls, letters and the thread share.
#[derive(Debug)]
struct Core {
    directory: Directory,
    runtime: Runtime,
    segment: Segment,
    areas: Areas,
    /// The layout of the memory of clerks into which the server pushes entries.
    layout: Layout,
    shape: Shape,
    /// How long a clerk may hold a token, the right to change an entry, before the server takes the token
    /// away.
    patience: Duration,
    /// Locked by a thread that changes an entry or writes a file.
    state: Mutex<State>,
    clerks: Mutex<Vec<Arc<Clerk>>>,
    /// Whether there has been a clerk that reads the memory. Before that, a write changes only the file.
    is_read: AtomicBool,
    /// The number of clerks that were admitted, counted from a random number of 31 bits: a clerk of a former
    /// server of this name that ends its lease must not end that of another clerk.
    admitted: AtomicU64,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The paths of files that have entries.
    paths: HashMap<Handle, String>,
    /// Errors of clerks' writes to a file, which the next commit of that file reports.
    failed: HashMap<Handle, String>,
    /// A counter that selects which entry is replaced when all places of a key are used.
    turn: u64,
    /// The clerks into whose memory the server pushes entries.
    pushing: Vec<Pushing>,
}

impl Server {
    /// Serves a directory from a runtime. `instance` distinguishes the server from others of the same
    /// registry. Takes 110 ms: clerks of a server that was killed may still believe their memory under their
    /// leases, and nothing may change meanwhile.
    ///
    /// # Errors
    /// When the directory cannot be opened or exported.
    pub fn export(runtime: &Runtime, instance: &str, path: impl AsRef<Path>, shape: Shape) -> Result<Server> {
        let local = |why: io::Error| CallFailed::new(Kind::Local, Ran::No).caused_by(why);
        let directory = || Directory::open(path.as_ref()).map_err(local);
        std::thread::sleep(LEASE_OVER);
        let areas = Areas::new(&shape);
        let settings = Settings::new(areas.size() as usize).anyone(Rights::ALL).notify(Notify::Asked);
        let segment = runtime.export_segment(instance, settings)?;
        let identity = RandomState::new().build_hasher().finish();
        let core = Arc::new(Core {
            directory: directory()?,
            runtime: runtime.clone(),
            segment,
            areas,
            layout: Layout::new(&shape),
            shape,
            patience: Duration::from_millis(20),
            state: Mutex::default(),
            clerks: Mutex::default(),
            is_read: AtomicBool::new(false),
            admitted: AtomicU64::new(identity >> 33),
            stopping: AtomicBool::new(false),
        });
        core.segment
            .store(IDENTITY, identity)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
        // The directory itself serves FileAccess, so this service does not make its calls slower.
        let files =
            runtime.export::<dyn FileAccess>(&format!("FileAccess/{instance}"), Arc::new(directory()?))?;
        let more = {
            let procedures = Arc::new(Procedures { core: core.clone(), keeps: false });
            runtime.export::<dyn MoreFiles>(&format!("MoreFiles/{instance}"), procedures)?
        };
        let hearing = std::thread::Builder::new().name("letters".into()).spawn({
            let core = core.clone();
            move || core.run()
        });
        Ok(Server {
            core,
            runtime: runtime.clone(),
            exports: [files, more],
            hearing: Some(hearing.map_err(local)?),
        })
    }

    /// Returns the addresses by which clerks find the server.
    pub fn addresses(&self) -> Addresses {
        let [files, more] = &self.exports;
        Addresses { files: files.url(), more: more.url(), memory: self.core.segment.url() }
    }

    /// Checks whether other programs have changed files that have entries, and reads those files again.
    ///
    /// A program that shares its directory with other programs must call this function as often as it wants
    /// the entries to be up to date.
    pub fn refresh(&self) {
        self.core.refresh();
    }

    /// Returns how many letters the server has answered.
    pub fn letters(&self) -> u64 {
        self.core.segment.load(COUNTER).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::SeqCst);
        // The thread waits for notices of importers' writes. So, to wake it, this process imports its own
        // segment and writes there.
        let woken = self
            .runtime
            .import_segment(&self.core.segment.url())
            .is_ok_and(|own| own.write_notify(COUNTER, &[]).and_then(|()| own.flush()).is_ok());
        if let Some(hearing) = self.hearing.take().filter(|_| woken) {
            let _ = hearing.join();
        }
        self.core.settle_all();
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers letters, and copies the blocks that clerks have changed to the files, until the server stops.
    fn run(self: &Arc<Core>) {
        loop {
            let notice = self.segment.notice();
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let bytes = notice.offset..notice.offset.saturating_add(notice.len);
            self.answer_letters(bytes.clone());
            self.settle_places(self.areas.blocks.places(bytes));
        }
    }
}

#[cfg(test)]
mod tests;
