//! A directory that only its user can enter, and the few things done in it.

#[cfg(not(unix))]
#[path = "directory/other.rs"]
mod system;
#[cfg(unix)]
#[path = "directory/unix.rs"]
mod system;

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(crate) use system::{Directory, of_user};

use crate::{Error, Result};

/// The file whose lock lets one writer at a time into a directory.
const LOCK: &str = "lock";

/// A writer's turn; dropping it ends the turn.
pub(crate) struct Turn(File);

impl Directory {
    /// Waits for this writer's turn, about as long as `patience` says.
    pub(crate) fn lock(&self, patience: Duration) -> Result<Turn> {
        let path = self.path().join(LOCK);
        let failed = |source| Error::Io {
            doing: "locking",
            path: path.clone(),
            source,
        };
        let begun = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            let mut file = self.open_or_make(LOCK)?;
            match file.try_lock() {
                // If the file was removed meanwhile, others lock its successor.
                Ok(()) if self.is_still(LOCK, &file)? => {
                    sign(&mut file);
                    return Ok(Turn(file));
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
            if begun.elapsed() >= patience {
                return Err(Error::Busy {
                    path,
                    holder: signature(&mut file),
                });
            }
            // A lock that blocks would wait for a stopped process for ever, so we ask again and again;
            // often, because a writer who asks at once gets ahead of us.
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
    }

    /// Puts `bytes` in the place of the file `name`, all or nothing. Only in one's turn.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let new = format!("{name}.new");
        let path = self.path().join(&new);
        let result = self
            .make(&new)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                // Some file systems find out only now that the disk is full; and without this a crash
                // of the machine may leave an empty file under the name.
                file.sync_all()
            })
            .map_err(|source| Error::Io {
                doing: "writing",
                path: path.clone(),
                source,
            })
            .and_then(|()| {
                self.rename(&new, name).map_err(|source| Error::Io {
                    doing: "renaming",
                    path: path.clone(),
                    source,
                })
            });
        if result.is_err() {
            self.remove(&new);
        }
        result
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Closing alone would not do: a child forked at a bad moment holds a copy of the descriptor.
        let _ = self.0.unlock();
    }
}

/// Leaves our process number in the lock's file, for the one who waits in vain. Failure is no matter.
fn sign(file: &mut File) {
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
}

fn signature(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Up to `limit + 1` bytes, so that the caller sees when there are too many.
fn read_bounded(file: File, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn io_error(
    doing: &'static str,
    directory: &Path,
    name: &str,
    source: impl Into<io::Error>,
) -> Error {
    let path: PathBuf = if name.is_empty() {
        directory.to_owned()
    } else {
        directory.join(name)
    };
    Error::Io {
        doing,
        path,
        source: source.into(),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("farcall-names-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_writer_that_waits_in_vain_learns_who_has_the_lock() {
        let path = scratch("busy");
        let directory = Directory::create(&path).unwrap();
        let turn = directory.lock(Duration::ZERO).unwrap();
        match directory.lock(Duration::ZERO).map(drop) {
            Err(Error::Busy { path: lock, holder }) => {
                assert_eq!((lock, holder), (path.join(LOCK), Some(std::process::id())));
            }
            other => panic!("{other:?}"),
        }
        drop(turn);
        directory.lock(Duration::ZERO).unwrap();
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_not_taken_for_its_successor() {
        let path = scratch("successor");
        let directory = Directory::create(&path).unwrap();
        let former = directory.open_or_make(LOCK).unwrap();
        assert!(directory.is_still(LOCK, &former).unwrap());
        std::fs::remove_file(path.join(LOCK)).unwrap();
        assert!(!directory.is_still(LOCK, &former).unwrap());
        let _successor = directory.lock(Duration::ZERO).unwrap();
        assert!(!directory.is_still(LOCK, &former).unwrap());
        std::fs::remove_dir_all(path).unwrap();
    }
}
