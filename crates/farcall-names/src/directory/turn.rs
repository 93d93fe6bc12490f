//! Lets the writers in a directory take turns, in order and with a limit on each one's wait.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::Directory;
use crate::{Error, Result};

/// The name of the file whose lock a writer holds during its turn.
const LOCK: &str = "lock";

/// The name of the file whose lock the next writer holds.
const NEXT: &str = "next";

/// A lock on a file. Dropping this value releases the lock.
pub(crate) struct Locked(File);

impl Directory {
    /// Waits for this writer's turn, which lasts until the returned lock is dropped.
    ///
    /// A process that releases a lock and asks for it again gets it before a waiting process has woken up. So
    /// with one lock, a busy writer would keep all others out. With two locks this does not happen: the
    /// writer whose turn is next already holds the file `next`, which the busy writer must lock first.
    pub(crate) fn turn(&self, patience: Duration) -> Result<Locked> {
        let deadline = Instant::now() + patience;
        let _next = self.take(NEXT, deadline)?;
        let mut turn = self.take(LOCK, deadline)?;
        turn.sign();
        Ok(turn)
    }

    fn take(&self, name: &str, deadline: Instant) -> Result<Locked> {
        let failed = |source| Error::Io { doing: "locking", path: self.path().join(name), source };
        loop {
            let file = self.open_or_make(name)?;
            let Some(locked) = wait(file, deadline, &ABANDONED).map_err(failed)? else {
                return Err(self.busy());
            };
            if self.is_still(name, &locked.0)? {
                return Ok(locked);
            }
            // The file was removed in the meantime, and other writers lock the new file of this name.
            if Instant::now() >= deadline {
                return Err(self.busy());
            }
        }
    }

    fn busy(&self) -> Error {
        Error::Busy { path: self.path().join(LOCK), holder: self.open_or_make(LOCK).ok().and_then(signature) }
    }
}

/// How many threads of this process wait for locks that nobody wants any more.
static ABANDONED: AtomicUsize = AtomicUsize::new(0);

/// The most such threads. Once there are so many, a writer looks at the lock from time to time instead. A
/// process that is stopped in its turn would otherwise cost each other one a thread for each writer that gives
/// up.
const MAX_ABANDONED: usize = 16;

/// How often such a writer looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Locks the file. Returns `None` if the file was still locked at the deadline.
///
/// Counts in `abandoned` the thread that it leaves behind, until that has ended.
fn wait(file: File, deadline: Instant, abandoned: &'static AtomicUsize) -> io::Result<Option<Locked>> {
    match file.try_lock() {
        Ok(()) => return Ok(Some(Locked(file))),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => return Err(e),
    }
    let patience = deadline.saturating_duration_since(Instant::now());
    if patience.is_zero() {
        return Ok(None);
    }
    if abandoned.load(Ordering::Relaxed) >= MAX_ABANDONED {
        return look(file, deadline);
    }
    // The system has no lock with a deadline, and a stopped holder would block this thread for ever. So
    // another thread waits for the lock. If this thread gives up, that one goes on waiting.
    let (sender, receiver) = mpsc::sync_channel(0);
    let waiter = thread::Builder::new().name("farcall-names".to_owned());
    waiter.spawn(move || {
        let locked = block(&file).map(|()| Locked(file));
        // If the thread that wants the lock has given up, the lock is dropped and so released at once.
        if sender.send(locked).is_err() {
            abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    })?;
    match receiver.recv_timeout(patience) {
        Ok(locked) => locked.map(Some),
        Err(_) => {
            abandoned.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
    }
}

/// Locks the file as [`wait`] does, without a thread that waits.
fn look(file: File, deadline: Instant) -> io::Result<Option<Locked>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        thread::sleep(left.min(LOOK_EVERY));
        match file.try_lock() {
            Ok(()) => return Ok(Some(Locked(file))),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
}

fn block(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Locked {
    /// Writes the process number into the file, for the error message of a writer that gets no turn. Errors
    /// are ignored. The number always has the same width: some file systems write a file to the disk when it
    /// is closed after it was made shorter.
    fn sign(&mut self) {
        let file = &mut self.0;
        let _ = file.write_all(format!("{:<15}\n", std::process::id()).as_bytes());
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing the file is not enough, because a child that was forked in the meantime has a copy of the
        // descriptor.
        let _ = self.0.unlock();
    }
}

fn signature(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(all(test, unix))]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Makes a directory for the test, and in it a registry's directory.
    fn made() -> (tempfile::TempDir, PathBuf, Directory) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("registry");
        let directory = Directory::create(&path).unwrap();
        (scratch, path, directory)
    }

    fn is_busy(result: Result<Locked>, path: PathBuf) {
        match result.map(drop) {
            Err(Error::Busy { path: lock, holder }) => {
                assert_eq!((lock, holder), (path.join(LOCK), Some(std::process::id())));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_writer_that_waits_in_vain_learns_who_has_the_turn() {
        let (_scratch, path, directory) = made();
        let turn = directory.turn(Duration::ZERO).unwrap();
        is_busy(directory.turn(Duration::ZERO), path.clone());
        is_busy(directory.turn(Duration::from_millis(1)), path.clone());
        drop(turn);
        // The thread that waited for the second of them gives the lock back as soon as it has it.
        directory.turn(Duration::from_secs(60)).unwrap();
    }

    /// A process that is stopped in its turn may stay so for days, while exporters sign their entries anew.
    #[test]
    fn writers_that_wait_in_vain_leave_few_threads_and_the_next_one_gets_its_turn() {
        static LEFT: AtomicUsize = AtomicUsize::new(0);
        let (_scratch, _, directory) = made();
        let turn = directory.turn(Duration::ZERO).unwrap();
        let wait_for =
            |patience| wait(directory.open_or_make(LOCK).unwrap(), Instant::now() + patience, &LEFT).unwrap();
        for _ in 0..4 * MAX_ABANDONED {
            assert!(wait_for(Duration::from_millis(1)).is_none());
        }
        assert_eq!(LEFT.load(Ordering::Relaxed), MAX_ABANDONED);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_for(Duration::from_secs(60)).is_some());
            drop(turn);
            assert!(waiter.join().unwrap());
        });
        while LEFT.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn a_writer_that_waits_gets_its_turn() {
        let (_scratch, _, directory) = made();
        let turn = directory.turn(Duration::ZERO).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| directory.turn(Duration::from_secs(60)).is_ok());
            // It may not have begun to wait yet; then it finds the lock free.
            drop(turn);
            assert!(waiter.join().unwrap());
        });
    }

    /// A child that is forked during a turn inherits such a copy.
    #[test]
    fn a_turn_ends_although_a_copy_of_its_descriptor_is_open() {
        let (_scratch, _, directory) = made();
        let turn = directory.turn(Duration::ZERO).unwrap();
        let copy = turn.0.try_clone().unwrap();
        drop(turn);
        assert!(directory.turn(Duration::ZERO).is_ok());
        drop(copy);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_writer_that_waits_for_a_removed_lock_file_locks_its_successor() {
        use std::os::unix::fs::MetadataExt;
        let (_scratch, path, directory) = made();
        let turn = directory.turn(Duration::ZERO).unwrap();
        let waited_for = format!(":{} ", std::fs::metadata(path.join(LOCK)).unwrap().ino());
        let waits = |line: &str| line.contains("->") && line.contains(&waited_for);
        let locks = || std::fs::read_to_string("/proc/locks");
        let Ok(_) = locks() else {
            return println!("skipped: a writer that waits for a removed lock file: there is no /proc/locks");
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| directory.turn(Duration::from_secs(60)));
            // If the system does not list the lock that the waiter waits for, the waiter gives up after its
            // 60 s, and the test fails.
            while !waiter.is_finished() && !locks().unwrap().lines().any(waits) {
                thread::yield_now();
            }
            std::fs::remove_file(path.join(LOCK)).unwrap();
            drop(turn);
            let successor = waiter.join().unwrap().unwrap();
            assert!(directory.is_still(LOCK, &successor.0).unwrap());
        });
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_not_taken_for_its_successor() {
        let (_scratch, path, directory) = made();
        let former = directory.open_or_make(LOCK).unwrap();
        assert!(directory.is_still(LOCK, &former).unwrap());
        std::fs::remove_file(path.join(LOCK)).unwrap();
        assert!(!directory.is_still(LOCK, &former).unwrap());
        let _turn = directory.turn(Duration::ZERO).unwrap();
        assert!(!directory.is_still(LOCK, &former).unwrap());
    }
}
