//! Files that several servers keep. Each read and each write needs the answers of a majority of the servers.
//! Each path is a linearizable register: a read returns the last write.
//!
//! The algorithm is that of Attiya, Bar-Noy and Dolev (1995), with several writers as in Lynch and Shvartsman
//! (1997). Any two majorities have a member in common, so a reader that asks a majority learns the newest
//! version that was written to a majority. The reader writes that version back, so that no later reader gets
//! an older one. Each server only keeps the newest version that has reached it. The servers know nothing of
//! one another.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farcall::multi::{Fixed, Rest, Short};
use farcall::{Bytes, Group};

/// One server that keeps the files.
#[farcall::interface]
pub trait Replica {
    /// Returns the newest version that has reached this server, or version zero, which is empty.
    #[idempotent]
    fn read(&self, path: &str) -> farcall::Result<Versioned>;

    /// Keeps a version, unless there is a newer one. The server must return an acknowledged version for ever,
    /// also after a crash.
    #[idempotent]
    fn write(&self, path: &str, file: Versioned) -> farcall::Result<()>;
}

/// A version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Versioned {
    /// The version's number.
    pub version: Version,
    /// The file's content.
    pub contents: Bytes,
}

/// The number of a version. Versions have a total order: first by their counts, then by their writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, farcall::Xdr)]
pub struct Version {
    /// One more than the count that the writer had seen.
    pub count: u64,
    /// The writer.
    pub writer: u64,
}

/// A server that keeps its files in memory. It must not be started again after a crash, because it has lost
/// its files.
#[derive(Debug, Default)]
pub struct Memory(Mutex<BTreeMap<String, Versioned>>);

impl Replica for Memory {
    fn read(&self, path: &str) -> farcall::Result<Versioned> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(files.get(path).cloned().unwrap_or_default())
    }

    fn write(&self, path: &str, file: Versioned) -> farcall::Result<()> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = files.entry(path.to_owned()).or_default();
        if held.version < file.version {
            *held = file;
        }
        Ok(())
    }
}

/// The files of a set of replicas.
#[derive(Debug)]
pub struct Files {
    replicas: Group<ReplicaClient, Fixed>,
    quorums: Quorums,
    writer: u64,
    /// The greatest count that this writer has used.
    count: Mutex<u64>,
    patience: Duration,
}

/// How many replicas must answer.
#[derive(Clone, Copy, Debug)]
pub struct Quorums {
    /// The number of replicas that must answer a query for the newest version.
    pub read: usize,
    /// The number of replicas that must acknowledge a write of a version. It must be so great that any
    /// [`read`](Quorums::read) replicas include one of these.
    pub write: usize,
}

impl Files {
    /// Returns the files of these replicas. The set must always be the same, whether the replicas are up or
    /// not. No two writers, and no two lives of one writer, may have the same number.
    pub fn new(replicas: Group<ReplicaClient, Fixed>, writer: u64) -> Files {
        let majority = replicas.len() / 2 + 1;
        let quorums = Quorums { read: majority, write: majority };
        Files { replicas, quorums, writer, count: Mutex::default(), patience: Duration::from_secs(10) }
    }

    /// Sets other quorums than majorities, such as fewer readers and more writers.
    #[must_use]
    pub fn quorums(self, quorums: Quorums) -> Files {
        Files { quorums, ..self }
    }

    /// Sets the longest wait for a quorum.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Files {
        Files { patience, ..self }
    }

    /// Returns the file at a path.
    ///
    /// # Errors
    /// Too few replicas answered.
    pub fn read(&self, path: &str) -> Result<Bytes, Short> {
        let newest = self.newest(path)?;
        self.spread(path, newest.clone())?;
        Ok(newest.contents)
    }

    /// Replaces the file at a path.
    ///
    /// # Errors
    /// Too few replicas answered. The file may be replaced nevertheless, now or later.
    pub fn write(&self, path: &str, contents: Bytes) -> Result<(), Short> {
        let seen = self.newest(path)?.version.count;
        let count = self.count_above(seen);
        self.spread(path, Versioned { version: Version { count, writer: self.writer }, contents })
    }

    /// Returns the newest version that a quorum knows. While a version is being written, a second query may
    /// return an older version than the first; [`read`](Files::read) prevents that.
    ///
    /// # Errors
    /// Too few replicas answered.
    pub fn newest(&self, path: &str) -> Result<Versioned, Short> {
        let asked = self.replicas.multi().read(path).within(self.patience).rest(Rest::Cancel);
        let answers = asked.quorum(self.quorums.read)?;
        Ok(answers
            .results()
            .map(|(_, file)| file)
            .max_by_key(|file| file.version)
            .cloned()
            .unwrap_or_default())
    }

    /// Returns a count that is greater than `seen` and than all counts that this writer has used. `seen`
    /// alone is not enough, because the writer's earlier writes may not have reached the replicas that
    /// answered, and no version may be used twice.
    fn count_above(&self, seen: u64) -> u64 {
        let mut last = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *last = seen.max(*last).saturating_add(1);
        *last
    }

    /// Writes a version to a quorum. The calls of the other replicas go on, so that these receive the version
    /// too.
    fn spread(&self, path: &str, file: Versioned) -> Result<(), Short> {
        self.replicas.multi().write(path, file).within(self.patience).quorum(self.quorums.write).map(drop)
    }
}
