//! Tests that files are fetched and stored whole, and that a broken transfer goes on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::{FileAccess, FileAccessClient};
use farcall::Error;

/// A directory `served` that clients may write to, and a client.
struct Scratch {
    directory: tempfile::TempDir,
    files: FileAccessClient,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch::with(|directory| directory.writable(u64::MAX))
    }

    fn with(prepare: impl Fn(Directory) -> Directory) -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("served/sub")).unwrap();
        let server = prepare(Directory::open(directory.path().join("served")).unwrap());
        Scratch { directory, files: farcall::stub::local::<dyn FileAccess>(Arc::new(server)) }
    }

    fn served(&self) -> std::path::PathBuf {
        self.directory.path().join("served")
    }

    fn finish(&self, path: &str, content: &[u8], replace: bool) -> farcall::Result<(), FileError> {
        self.files.finish(path, digest_of(content), time(), replace)
    }
}

fn digest_of(content: &[u8]) -> Digest {
    let mut digesting = Digesting::default();
    digesting.add(content);
    digesting.end()
}

fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(951_827_696)
}

fn content() -> Vec<u8> {
    (0..1_000_003u32).map(|n| (n ^ n >> 9) as u8).collect()
}

fn exception<T: std::fmt::Debug>(result: farcall::Result<T, FileError>) -> FileError {
    result.unwrap_err().declared().expect("an exception").clone()
}

fn names(directory: &Path) -> Vec<String> {
    crate::entries(&Directory::open(directory).unwrap(), "").map(|entry| entry.unwrap().name).collect()
}

#[test]
fn parts_of_a_file_are_fetched_and_digested() {
    let scratch = Scratch::new();
    let all = content();
    fs::write(scratch.served().join("sub/file"), &all).unwrap();
    for (offset, quota) in
        [(0, u64::MAX), (7, 100_000), (1_000_000, 100), (2_000_000, 1), (u64::MAX, u64::MAX)]
    {
        let mut bytes = Vec::new();
        scratch.files.fetch("sub/file", offset, quota).unwrap().read_to_end(&mut bytes).unwrap();
        let from = all.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let length = (all.len() - from).min(usize::try_from(quota).unwrap_or(usize::MAX));
        assert!(bytes == all[from..from + length], "{offset} {quota}: {} bytes", bytes.len());
    }
    assert_eq!(scratch.files.digest("sub/file", 10).unwrap(), digest_of(&all[..10]));
    assert_eq!(scratch.files.digest("sub/file", u64::MAX).unwrap(), digest_of(&all));
    assert_eq!(exception(scratch.files.fetch("sub", 0, 1)), FileError::NotAFile);
    assert_eq!(exception(scratch.files.fetch("none", 0, 1)), FileError::NotFound);
    assert_eq!(exception(scratch.files.digest("sub", 1)), FileError::NotAFile);
}

#[test]
fn a_stored_file_is_seen_when_it_is_finished() {
    let scratch = Scratch::new();
    let all = content();
    assert_eq!(scratch.files.unfinished("sub/file").unwrap(), digest_of(b""));
    assert_eq!(exception(scratch.finish("sub/file", &all, false)), FileError::NotFound);
    assert_eq!(scratch.files.store("sub/file", 0, Bulk::from_bytes(all.clone())).unwrap(), 1_000_003);
    assert_eq!(names(&scratch.served().join("sub")), [".file.part"]);
    scratch.finish("sub/file", &all, false).unwrap();
    let path = scratch.served().join("sub/file");
    assert!(fs::read(&path).unwrap() == all);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), time());
    assert_eq!(names(&scratch.served().join("sub")), ["file"]);

    assert_eq!(scratch.files.store("sub/file", 0, Bulk::from_bytes("new")).unwrap(), 3);
    assert_eq!(exception(scratch.finish("sub/file", b"new", false)), Errno::EXIST.into());
    scratch.finish("sub/file", b"new", true).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn what_has_arrived_stays_and_the_transfer_goes_on_from_there() {
    let scratch = Scratch::new();
    let all = content();
    let broken = Bulk::from_reader(std::io::Cursor::new(all[..600_000].to_vec()).chain(Broken));
    assert!(matches!(scratch.files.store("file", 0, broken), Err(Error::CallFailed(_))));
    let there = scratch.files.unfinished("file").unwrap();
    assert!(there.length > 0 && there.length <= 600_000, "{there:?}");
    assert_eq!(there, digest_of(&all[..there.length as usize]));
    let why = exception(scratch.files.store("file", there.length + 1, Bulk::from_bytes("")));
    assert!(why.to_string().contains("cannot go on from byte"), "{why}");
    let rest = all[there.length as usize..].to_vec();
    assert_eq!(scratch.files.store("file", there.length, Bulk::from_bytes(rest)).unwrap(), 1_000_003);
    scratch.finish("file", &all, false).unwrap();
    assert!(fs::read(scratch.served().join("file")).unwrap() == all);

    // What stood behind the offset is discarded, and what is not as it was sent gets no name.
    scratch.files.store("other", 0, Bulk::from_bytes("some bytes")).unwrap();
    assert_eq!(scratch.files.store("other", 4, Bulk::from_bytes("!")).unwrap(), 5);
    let why = exception(scratch.finish("other", b"some bytes", false));
    assert!(why.to_string().contains("are not the 10 sent"), "{why}");
    scratch.finish("other", b"some!", false).unwrap();
}

#[test]
fn the_last_transfer_to_a_file_breaks_off_the_one_before() {
    let scratch = Scratch::new();
    let (send, receive) = mpsc::channel::<Vec<u8>>();
    let files = scratch.files.clone();
    let slow = Bulk::new(receive.into_iter().map(|bytes| Ok(bytes.into())));
    let first = std::thread::spawn(move || files.store("file", 0, slow));
    send.send(b"first".to_vec()).unwrap();
    while scratch.files.unfinished("file").unwrap().length == 0 {
        std::thread::yield_now();
    }
    assert_eq!(scratch.files.store("file", 0, Bulk::from_bytes("second")).unwrap(), 6);
    send.send(b"more".to_vec()).unwrap();
    drop(send);
    let why = first.join().unwrap().unwrap_err();
    assert!(why.to_string().contains("another transfer to the same file has begun"), "{why}");
    scratch.finish("file", b"second", false).unwrap();
    assert_eq!(fs::read(scratch.served().join("file")).unwrap(), b"second");
}

#[test]
fn a_directory_is_written_to_only_where_that_is_allowed() {
    let scratch = Scratch::with(|directory| directory);
    assert_eq!(exception(scratch.files.store("file", 0, Bulk::from_bytes("x"))), FileError::NotPermitted);
    assert_eq!(exception(scratch.files.unfinished("file")), FileError::NotPermitted);
    assert_eq!(exception(scratch.finish("file", b"", true)), FileError::NotPermitted);

    let scratch = Scratch::with(|directory| directory.writable(10));
    assert_eq!(scratch.files.store("file", 0, Bulk::from_bytes("0123456789")).unwrap(), 10);
    for offset in [5, 10] {
        let why = scratch.files.store("file", offset, Bulk::from_bytes("abcdef")).unwrap_err();
        assert!(why.to_string().contains(&format!("more than {} bytes", 10 - offset)), "{why}");
    }

    fs::write(scratch.directory.path().join("outside"), "secret").unwrap();
    symlink("../outside", scratch.served().join(".link.part")).unwrap();
    symlink("..", scratch.served().join("up")).unwrap();
    for path in ["link", "../outside", "up/outside", "/etc/passwd", "", ".", "a/.."] {
        let stored = scratch.files.store(path, 0, Bulk::from_bytes("x"));
        let why = exception(stored);
        assert!(
            matches!(why, FileError::BadPath(_) | FileError::NotPermitted | FileError::NotAFile),
            "{path:?}: {why}"
        );
        assert!(scratch.finish(path, b"secret", true).is_err() && scratch.files.unfinished(path).is_err());
    }
    assert_eq!(fs::read(scratch.directory.path().join("outside")).unwrap(), b"secret");
}

/// Fails at once.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is broken"))
    }
}
