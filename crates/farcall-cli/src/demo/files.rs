//! The demo's files: each is read through calls and from the disk, and the two are compared by their SHA-256.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use farcall::{Error, Runtime};
use farcall_file_access::{Attributes, FileAccess, FileAccessClient, FileError, FileKind, entries};
use sha2::{Digest, Sha256};

use crate::failure::Outcome;
use crate::remote::Stream;

/// The most bytes that are read, so that the demo stays short.
const MAX_BYTES: u64 = 256_000_000;
const MAX_FILES: u64 = 20_000;
const MAX_DIRECTORIES: usize = 10_000;
const MAX_TIME: Duration = Duration::from_secs(5);

/// The results.
#[derive(Default)]
pub struct Files {
    pub files: u64,
    pub bytes: u64,
    pub time: Duration,
    /// The paths whose hashes differ.
    pub differ: Vec<String>,
    /// The number of files that could not be read, changed meanwhile, or are no regular files.
    pub skipped: u64,
    /// Why some files were skipped.
    pub stopped: Option<&'static str>,
}

type Hash = [u8; 32];

/// Reads every file below `dir`, which the server exports too.
pub fn read(runtime: &Runtime, dir: &Path) -> Outcome<Files> {
    let client = runtime.import::<dyn FileAccess>("FileAccess")?;
    let start = Instant::now();
    let mut found = Files::default();
    // The paths of directories that have not been read yet.
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        for entry in entries(&client, &directory) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Error::Declared(_)) => {
                    found.skipped += 1;
                    break;
                }
                Err(Error::CallFailed(why)) => return Err(why.into()),
            };
            found.stopped = found.limit(start.elapsed(), directories.len());
            if found.stopped.is_some() {
                found.time = start.elapsed();
                return Ok(found);
            }
            let path = if directory.is_empty() { entry.name } else { format!("{directory}/{}", entry.name) };
            match entry.attributes.kind {
                FileKind::Directory => directories.push(path),
                FileKind::File => found.compare(&client, dir, path, &entry.attributes)?,
                _ => found.skipped += 1,
            }
        }
    }
    found.time = start.elapsed();
    Ok(found)
}

impl Files {
    /// Returns the limit that has been reached.
    fn limit(&self, time: Duration, directories: usize) -> Option<&'static str> {
        Some(match () {
            () if self.bytes >= MAX_BYTES => "256 MB",
            () if self.files >= MAX_FILES => "20,000 files",
            () if directories >= MAX_DIRECTORIES => "10,000 directories",
            () if time >= MAX_TIME => "5 s",
            () => return None,
        })
    }

    fn compare(&mut self, client: &FileAccessClient, dir: &Path, path: String, was: &Attributes) -> Outcome {
        if was.size > MAX_BYTES - self.bytes {
            self.skipped += 1;
            return Ok(());
        }
        let remote = match remote(client, &path, was.size) {
            Ok(hash) => hash,
            Err(Error::Declared(_)) => None,
            Err(Error::CallFailed(why)) => return Err(why.into()),
        };
        let (Some(remote), Ok(Some(local))) = (remote, local(&dir.join(&path), was.size)) else {
            self.skipped += 1;
            return Ok(());
        };
        if remote != local {
            // A file that another program changes meanwhile may differ.
            match client.stat(&path) {
                Ok(is) if is == *was => self.differ.push(path),
                _ => self.skipped += 1,
            }
            return Ok(());
        }
        self.files += 1;
        self.bytes += was.size;
        Ok(())
    }
}

/// Returns the hash of the server's file, or `None` if the file has grown.
fn remote(client: &FileAccessClient, path: &str, size: u64) -> Result<Option<Hash>, Error<FileError>> {
    let (mut hash, mut length) = (Sha256::new(), 0);
    for part in Stream::new(client, path, 0) {
        let part = part?;
        length += part.len() as u64;
        if length > size {
            return Ok(None);
        }
        hash.update(&part);
    }
    Ok(Some(hash.finalize().into()))
}

/// Returns the hash of the file on the disk, or `None` if the file has grown.
fn local(path: &Path, size: u64) -> io::Result<Option<Hash>> {
    let mut file = File::open(path)?.take(size.saturating_add(1));
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        length += read as u64;
        hash.update(&buffer[..read]);
    }
    Ok((length <= size).then(|| hash.finalize().into()))
}
