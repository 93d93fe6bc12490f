//! Files that several servers keep, read and written by majorities: one linearizable register for each path.
//!
//! The algorithm is that of Attiya, Bar-Noy and Dolev (1995), with several writers as in Lynch and Shvartsman
//! (1997). Any two majorities have a member in common, so whoever asks one hears of the newest version that
//! was written to one. A reader writes back what it has read, so that nobody who reads later can read
//! something older. Servers only keep the newest version that reached them; they know nothing of one another.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farcall::multi::{Fixed, Rest, Short};
use farcall::{Bytes, Group};

/// One server of the files.
#[farcall::interface]
pub trait Replica {
    /// The newest version that has come here; the zeroth one, which is empty, if there is none.
    #[idempotent]
    fn read(&self, path: &str) -> farcall::Result<Versioned>;

    /// Keeps a version, unless there is a newer one. What was answered must be read for ever, also after a
    /// crash.
    #[idempotent]
    fn write(&self, path: &str, file: Versioned) -> farcall::Result<()>;
}

/// A version of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Versioned {
    /// Which one it is.
    pub version: Version,
    /// The file.
    pub contents: Bytes,
}

/// Versions are in one order: of two writers that count the same, one comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, farcall::Xdr)]
pub struct Version {
    /// One more than what the writer had seen.
    pub count: u64,
    /// The writer.
    pub writer: u64,
}

/// A server that keeps its files in memory. After a crash it must not come back with less.
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

/// The files, as the replicas keep them together.
#[derive(Debug)]
pub struct Files {
    replicas: Group<ReplicaClient, Fixed>,
    quorums: Quorums,
    writer: u64,
    /// The greatest count of a version of ours.
    count: Mutex<u64>,
    patience: Duration,
}

/// How many replicas must answer.
#[derive(Clone, Copy, Debug)]
pub struct Quorums {
    /// When the newest version is looked for.
    pub read: usize,
    /// When a version is written. One of these must be among any [`read`](Quorums::read) replicas.
    pub write: usize,
}

impl Files {
    /// The files of these replicas, which must always be the same ones, whether they are up or not. No two
    /// writers, nor two lives of one, may have the same number.
    pub fn new(replicas: Group<ReplicaClient, Fixed>, writer: u64) -> Files {
        let majority = replicas.len() / 2 + 1;
        let quorums = Quorums { read: majority, write: majority };
        Files { replicas, quorums, writer, count: Mutex::default(), patience: Duration::from_secs(10) }
    }

    /// With other quorums than majorities: fewer readers and more writers, perhaps.
    #[must_use]
    pub fn quorums(self, quorums: Quorums) -> Files {
        Files { quorums, ..self }
    }

    /// Waits no longer than that for a quorum, each time.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Files {
        Files { patience, ..self }
    }

    /// The file under a path.
    ///
    /// # Errors
    /// Too few replicas answered.
    pub fn read(&self, path: &str) -> Result<Bytes, Short> {
        let newest = self.newest(path)?;
        self.spread(path, newest.clone())?;
        Ok(newest.contents)
    }

    /// Replaces the file under a path.
    ///
    /// # Errors
    /// Too few replicas answered. It may be that the file is replaced nevertheless, now or later.
    pub fn write(&self, path: &str, contents: Bytes) -> Result<(), Short> {
        let seen = self.newest(path)?.version.count;
        let count = self.count_above(seen);
        self.spread(path, Versioned { version: Version { count, writer: self.writer }, contents })
    }

    /// The newest version that a quorum knows. Two who ask one after the other may hear of a newer one first,
    /// while that is being written: [`read`](Files::read) sees to it that they do not.
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

    /// A count that is greater than `seen`, and than all that this writer has used: what it wrote before may
    /// not have reached those who answered, and no version may be used twice.
    fn count_above(&self, seen: u64) -> u64 {
        let mut last = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *last = seen.max(*last).saturating_add(1);
        *last
    }

    /// Writes a version to a quorum; the others' calls go on, so that they have it too.
    fn spread(&self, path: &str, file: Versioned) -> Result<(), Short> {
        self.replicas.multi().write(path, file).within(self.patience).quorum(self.quorums.write).map(drop)
    }
}
