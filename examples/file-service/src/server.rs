//! The server: a directory, the memory in which it keeps what clerks read, and the thread that hears of letters.

mod keep;
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
use crate::{Handle, MoreFiles, Shape};
use serve::Clerk;

/// Serves the files below a directory, until it is dropped.
///
/// Clerks may do anything with its memory: clerks and server are one service, and trust one another (section 3.2).
#[derive(Debug)]
pub struct Server {
    core: Arc<Core>,
    runtime: Runtime,
    exports: [Export; 2],
    hearing: Option<JoinHandle<()>>,
}

/// Under which names a server's parts can be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Its [`FileAccess`].
    pub files: String,
    /// Its [`MoreFiles`].
    pub more: String,
    /// Its segment.
    pub memory: String,
}

/// What calls, letters and the thread share.
#[derive(Debug)]
struct Core {
    directory: Directory,
    runtime: Runtime,
    segment: Segment,
    areas: Areas,
    shape: Shape,
    /// How long a token may be held until it is taken away.
    patience: Duration,
    /// Held by whoever changes an entry or writes a file.
    state: Mutex<State>,
    clerks: Mutex<Vec<Arc<Clerk>>>,
    /// There has been a clerk that reads what is kept. Until then a write is a write to a file, and no more.
    is_read: AtomicBool,
    /// How many clerks there have been.
    admitted: AtomicU64,
    stopping: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The paths of files of which something is kept.
    paths: HashMap<Handle, String>,
    /// What clerks wrote to a file and the system refused, to be told to whoever commits it.
    failed: HashMap<Handle, String>,
    /// Counts, to choose which entry of several has to go.
    turn: u64,
}

impl Server {
    /// Serves a directory from a runtime. `instance` is its name, beside other servers' of the same registry.
    ///
    /// # Errors
    /// When it cannot be opened, or not be exported.
    pub fn export(runtime: &Runtime, instance: &str, path: impl AsRef<Path>, shape: Shape) -> Result<Server> {
        let local = |why: io::Error| CallFailed::new(Kind::Local, Ran::No).caused_by(why);
        let directory = || Directory::open(path.as_ref()).map_err(local);
        let areas = Areas::new(&shape);
        let settings = Settings::new(areas.size() as usize).anyone(Rights::ALL).notify(Notify::Asked);
        let segment = runtime.export_segment(instance, settings)?;
        let core = Arc::new(Core {
            directory: directory()?,
            runtime: runtime.clone(),
            segment,
            areas,
            shape,
            patience: Duration::from_millis(20),
            state: Mutex::default(),
            clerks: Mutex::default(),
            is_read: AtomicBool::new(false),
            admitted: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        });
        let identity = RandomState::new().build_hasher().finish();
        core.segment
            .store(IDENTITY, identity)
            .map_err(|why| CallFailed::new(Kind::Local, Ran::No).because(why.to_string()))?;
        // The plain server of the plain interface: nothing of this service makes its calls slower.
        let files =
            runtime.export::<dyn FileAccess>(&format!("FileAccess/{instance}"), Arc::new(directory()?))?;
        let more = runtime.export::<dyn MoreFiles>(&format!("MoreFiles/{instance}"), core.clone())?;
        let hearing = std::thread::Builder::new().name("letters".into()).spawn({
            let core = core.clone();
            move || core.hear()
        });
        Ok(Server {
            core,
            runtime: runtime.clone(),
            exports: [files, more],
            hearing: Some(hearing.map_err(local)?),
        })
    }

    /// Where clerks find it.
    pub fn addresses(&self) -> Addresses {
        let [files, more] = &self.exports;
        Addresses { files: files.url(), more: more.url(), memory: self.core.segment.url() }
    }

    /// Looks whether files that it keeps something of were changed by others than this service, and reads those again.
    ///
    /// It is for whoever shares a directory with others to call as often as they want to be up to date.
    pub fn refresh(&self) {
        self.core.refresh();
    }

    /// How many letters it has answered.
    pub fn letters(&self) -> u64 {
        self.core.segment.load(COUNTER).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::SeqCst);
        // The thread hears of what others write: so somebody else writes.
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

    /// Hears of letters and of blocks that clerks have written, until it is to stop.
    fn hear(self: &Arc<Core>) {
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
