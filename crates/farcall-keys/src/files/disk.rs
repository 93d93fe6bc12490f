//! Reads files that nobody else can have written, and writes files that nobody else can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use zeroize::Zeroizing;

use super::stamp::Stamp;
use super::trust::{self, Secrecy};
use crate::fault::Fault;

/// The maximum length of a file in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// How often a file that changes meanwhile is read.
const MAX_READINGS: u32 = 3;

/// What a file has. It is overwritten when it is dropped.
pub(super) struct Content {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    #[cfg(feature = "x509")]
    pub(super) stamp: Stamp,
}

/// Reads a file as a whole, or returns `None` if there is none. Reads it again if it changes meanwhile, for a
/// few times.
pub(super) fn read(path: &Path, secrecy: Secrecy) -> Result<Option<Content>, Fault> {
    read_whole(path, secrecy, || {})
}

/// What one reading of a file found.
enum Reading {
    Missing,
    /// The file was changed or replaced meanwhile.
    Changed,
    Whole(Content),
}

fn read_whole(path: &Path, secrecy: Secrecy, mut meanwhile: impl FnMut()) -> Result<Option<Content>, Fault> {
    for _ in 0..MAX_READINGS {
        match read_once(path, secrecy, &mut meanwhile)? {
            Reading::Missing => return Ok(None),
            Reading::Changed => {}
            Reading::Whole(content) => return Ok(Some(content)),
        }
    }
    let advice = "try again; a program that changes it should write a new file and rename it";
    Err(Fault::new(path, "a file that stays as it is", "one that changed whenever it was read", advice))
}

/// Reads a file. Calls `meanwhile` after looking at it and before reading it.
fn read_once(path: &Path, secrecy: Secrecy, meanwhile: impl FnOnce()) -> Result<Reading, Fault> {
    trust::check_way(path)?;
    let mut file = match open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Reading::Missing),
        Err(why) => return Err(Fault::io(path, why)),
    };
    let before = file.metadata().map_err(|why| Fault::io(path, why))?;
    if !before.is_file() {
        return Err(Fault::new(path, "a file", "something else", "put a text file there"));
    }
    trust::check_file(path, &before, secrecy)?;
    if before.len() > MAX_FILE_BYTES {
        let (expected, found) =
            (format!("at most {MAX_FILE_BYTES} bytes"), format!("{} bytes", before.len()));
        return Err(Fault::new(path, &expected, found, "remove lines that nobody needs"));
    }
    meanwhile();
    let bytes = read_all(&mut file, before.len()).map_err(|why| Fault::io(path, why))?;
    let after = file.metadata().map_err(|why| Fault::io(path, why))?;
    let stamp = Stamp::of(&after);
    let is_whole = stamp == Stamp::of(&before) && bytes.len() as u64 == after.len();
    if !is_whole {
        return Ok(Reading::Changed);
    }
    Ok(Reading::Whole(Content {
        bytes,
        #[cfg(feature = "x509")]
        stamp,
    }))
}

/// Checks that nobody else can put files into the directory, or another directory into its place.
pub(super) fn check_directory(path: &Path) -> Result<(), Fault> {
    trust::check_way(path)?;
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let advice = "make it and an identity in it: `farcall keys make`";
            return Err(Fault::new(path, "a directory of key files", "no such directory", advice));
        }
        Err(why) => return Err(Fault::io(path, why)),
    };
    if !found.is_dir() {
        return Err(Fault::new(path, "a directory of key files", "something else", "name a directory"));
    }
    trust::check_folder(path, &found)
}

/// Writes a new file that only the user can read.
pub(super) fn create_private(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let mut file = match new_file(0o600).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
            let advice = "a private key is never overwritten: choose another name, or move the file away";
            return Err(Fault::new(path, "no file", "a file", advice));
        }
        Err(why) => return Err(Fault::write(path, why)),
    };
    let written = file.write_all(content).and_then(|()| file.sync_all());
    written.map_err(|why| {
        // It has no whole key, and would be in the way of the next attempt.
        let _ = fs::remove_file(path);
        Fault::write(path, why)
    })
}

/// Writes a file that everybody can read, in place of what is there. A reader finds the old or the new file.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), Fault> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}.new", std::process::id()));
    let new = Path::new(&new);
    let written = new_file(0o644).open(new).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(new, path)
    });
    written.map_err(|why| {
        if why.kind() != io::ErrorKind::AlreadyExists {
            let _ = fs::remove_file(new);
        }
        Fault::write(new, why)
    })
}

/// Reads to the end, or a byte more than was expected.
fn read_all(file: &mut File, expected: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    // With room for all, the content is not moved, which would leave copies of a private key.
    let room = usize::try_from(expected + 1).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut content = Zeroizing::new(vec![0; room]);
    let mut length = 0;
    while let Some(rest) = content.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    content.truncate(length);
    Ok(content)
}

/// Opens a file for reading. Does not block if it is a pipe.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    }
    options.open(path)
}

fn new_file(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(mode);
    }
    #[cfg(not(unix))]
    let _ = mode;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &tempfile::TempDir, content: &[u8]) -> std::path::PathBuf {
        let path = directory.path().join("grants");
        replace(&path, content).expect("written");
        path
    }

    #[test]
    fn a_file_that_is_replaced_while_it_is_read_is_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = written(&directory, b"# an old file");
        let mut changes = 0;
        let content = read_whole(&path, Secrecy::Public, || {
            changes += 1;
            if changes == 1 {
                replace(&path, b"# new").expect("written");
            }
        });
        let content = content.expect("whole").expect("a file");
        assert_eq!((content.bytes.as_slice(), changes), (b"# new".as_slice(), 2));
    }

    #[test]
    fn a_file_that_is_truncated_or_grows_whenever_it_is_read_is_a_fault() {
        let directory = tempfile::tempdir().expect("a directory");
        for later in ["", "# an old file that has grown"] {
            let path = written(&directory, b"# an old file");
            let mut changes = 0;
            let found = read_whole(&path, Secrecy::Public, || {
                changes += 1;
                let room = " ".repeat(changes);
                fs::write(&path, format!("{later}{room}")).expect("written");
            });
            let why = found.err().expect("a fault").to_string();
            assert!(why.ends_with(
                "grants: expected a file that stays as it is; found one that changed whenever it was read; \
                 try again; a program that changes it should write a new file and rename it"
            ));
            assert_eq!(changes, 3);
        }
    }
}
