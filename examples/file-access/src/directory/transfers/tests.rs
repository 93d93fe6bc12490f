//! Tests that files are fetched and stored whole, and that a broken transfer goes on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::{FileAccess, FileAccessClient};
use farcall::Error;

/// A directory `served` that clients may write to, its server, and a client.
struct Scratch {
    directory: tempfile::TempDir,
    server: Arc<Directory>,
    files: FileAccessClient,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch::with(|directory| directory.writable(u64::MAX))
    }

    fn with(prepare: impl Fn(Directory) -> Directory) -> Scratch {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("served/sub")).unwrap();
        let server = Arc::new(prepare(Directory::open(directory.path().join("served")).unwrap()));
        Scratch { directory, files: farcall::stub::local::<dyn FileAccess>(server.clone()), server }
    }

    fn served(&self) -> std::path::PathBuf {
        self.directory.path().join("served")
    }

    fn finish(&self, path: &str, content: &[u8], replace: bool) -> farcall::Result<(), FileError> {
        self.files.finish(path, digest_of(content), time(), replace)
    }

    /// Starts a transfer of `path` that has stored `first`, and goes on with what is sent.
    fn start(&self, path: &'static str, first: &'static str) -> (mpsc::Sender<&'static str>, Storer) {
        let (send, receive) = mpsc::channel::<&str>();
        let files = self.files.clone();
        let slow = Bulk::new(receive.into_iter().map(|bytes| Ok(bytes.into())));
        let storer = std::thread::spawn(move || files.store(path, 0, slow));
        send.send(first).unwrap();
        while self.files.unfinished(path).unwrap() != digest_of(first.as_bytes()) {
            std::thread::yield_now();
        }
        (send, storer)
    }

    /// Returns the transfers to the unfinished file of `path`.
    fn transfers(&self, path: &str) -> Arc<Mutex<Transfers>> {
        self.server.storing.of(self.server.open_unfinished(path, UNFINISHED).unwrap().number)
    }
}

/// A thread that stores a file.
type Storer = std::thread::JoinHandle<farcall::Result<u64, FileError>>;

/// Waits until so many others have the transfers. While this thread holds their lock, the others wait for it.
fn wait_for_users(transfers: &Arc<Mutex<Transfers>>, count: usize) {
    while Arc::strong_count(transfers) < 1 + count {
        std::thread::yield_now();
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
    assert_eq!(exception(scratch.finish("sub/file", b"new", false)), FileError::Exists);
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
    assert!(why.to_string().starts_with("refused: it cannot go on from byte"), "{why}");
    let rest = all[there.length as usize..].to_vec();
    assert_eq!(scratch.files.store("file", there.length, Bulk::from_bytes(rest)).unwrap(), 1_000_003);
    scratch.finish("file", &all, false).unwrap();
    assert!(fs::read(scratch.served().join("file")).unwrap() == all);

    // What stood behind the offset is discarded, and what is not as it was sent gets no name.
    scratch.files.store("other", 0, Bulk::from_bytes("some bytes")).unwrap();
    assert_eq!(scratch.files.store("other", 4, Bulk::from_bytes("!")).unwrap(), 5);
    let why = exception(scratch.finish("other", b"some bytes", false));
    assert_eq!(why, FileError::Refused("the 5 bytes that are here are not the 10 sent".into()));
    scratch.finish("other", b"some!", false).unwrap();
}

#[test]
fn of_three_transfers_to_a_file_only_the_latest_goes_on() {
    let scratch = Scratch::new();
    let overtaken = FileError::Refused("another transfer to the same file has begun".into());
    let (first, first_storer) = scratch.start("file", "first");
    let (second, second_storer) = scratch.start("file", "second");
    let (third, third_storer) = scratch.start("file", "third");
    first.send("more").unwrap();
    second.send("more").unwrap();
    drop((first, second));
    assert_eq!(exception(first_storer.join().unwrap()), overtaken);
    assert_eq!(exception(second_storer.join().unwrap()), overtaken);
    // The end of an earlier transfer does not end the latest one.
    let under_way = FileError::Refused("another transfer to the same file is under way".into());
    assert_eq!(exception(scratch.finish("file", b"third", false)), under_way);
    third.send(", whole").unwrap();
    drop(third);
    assert_eq!(third_storer.join().unwrap().unwrap(), 12);
    scratch.finish("file", b"third, whole", false).unwrap();
    assert_eq!(fs::read(scratch.served().join("file")).unwrap(), b"third, whole");
}

#[test]
fn an_overtaken_transfer_that_sends_no_more_does_not_succeed() {
    let scratch = Scratch::new();
    let (first, storer) = scratch.start("file", "first");
    assert_eq!(scratch.files.store("file", 0, Bulk::from_bytes("second")).unwrap(), 6);
    drop(first);
    let why = exception(storer.join().unwrap());
    assert_eq!(why, FileError::Refused("another transfer to the same file has begun".into()));
}

#[test]
fn transfers_begin_only_when_no_earlier_one_writes() {
    let storing = Storing::default();
    let first = storing.begin((1, 1));
    let transfers = storing.of((1, 1));
    let writing = first.hold().unwrap();
    let begun = std::sync::atomic::AtomicUsize::new(0);
    let begin = || {
        let turn = storing.begin((1, 1));
        begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        turn
    };
    std::thread::scope(|scope| {
        let others = [scope.spawn(begin), scope.spawn(begin)];
        // The first transfer and the two others.
        wait_for_users(&transfers, 3);
        assert_eq!(begun.load(std::sync::atomic::Ordering::SeqCst), 0);
        drop(writing);
        let turns = others.map(|other| other.join().unwrap());
        assert!(first.hold().is_err());
        assert_eq!(turns.iter().filter(|turn| turn.hold().is_ok()).count(), 1);
    });
}

#[test]
fn no_entry_stays_of_a_file_that_is_not_being_stored() {
    let scratch = Scratch::new();
    for name in ["one", "two", "three"] {
        scratch.files.store(name, 0, Bulk::from_bytes(name)).unwrap();
        scratch.finish(name, name.as_bytes(), false).unwrap();
        assert!(lock(&scratch.server.storing.0).len() <= 1);
    }
}

#[test]
fn a_complete_file_is_not_written_to() {
    let scratch = Scratch::new();
    scratch.files.store("file", 0, Bulk::from_bytes("complete")).unwrap();
    let transfers = scratch.transfers("file");
    let finishing = lock(&transfers);
    let files = scratch.files.clone();
    let late = std::thread::spawn(move || files.store("file", 0, Bulk::from_bytes("x")));
    wait_for_users(&transfers, 1);
    fs::rename(scratch.served().join(".file.part"), scratch.served().join("file")).unwrap();
    drop(finishing);
    let why = exception(late.join().unwrap());
    assert_eq!(why, FileError::Refused(".file.part was completed or removed meanwhile".into()));
    assert_eq!(fs::read(scratch.served().join("file")).unwrap(), b"complete");
}

#[test]
fn only_the_file_that_was_checked_gets_the_name() {
    let scratch = Scratch::new();
    scratch.files.store("file", 0, Bulk::from_bytes("complete")).unwrap();
    let transfers = scratch.transfers("file");
    let finishing = lock(&transfers);
    let files = scratch.files.clone();
    let late = std::thread::spawn(move || files.finish("file", digest_of(b"complete"), time(), true));
    wait_for_users(&transfers, 1);
    fs::rename(scratch.served().join(".file.part"), scratch.served().join("file")).unwrap();
    fs::write(scratch.served().join(".file.part"), "a part").unwrap();
    drop(finishing);
    let why = exception(late.join().unwrap());
    assert_eq!(why, FileError::Refused("another file has taken the place of .file.part".into()));
    assert_eq!(fs::read(scratch.served().join("file")).unwrap(), b"complete");
    assert_eq!(fs::read(scratch.served().join(".file.part")).unwrap(), b"a part");
}

/// Stores two files under one name at once, again and again.
#[test]
fn of_two_files_of_one_name_one_is_published_whole() {
    let scratch = Scratch::new();
    let contents = [content()[..200_000].to_vec(), content()[500_000..].to_vec()];
    for _ in 0..30 {
        let put = |content: &Vec<u8>| {
            scratch.files.store("file", 0, Bulk::from_bytes(content.clone()))?;
            scratch.finish("file", content, true)
        };
        let outcomes = std::thread::scope(|scope| {
            contents
                .each_ref()
                .map(|content| scope.spawn(move || put(content)))
                .map(|put| put.join().unwrap())
        });
        let published = fs::read(scratch.served().join("file")).unwrap();
        let is_published =
            contents.iter().zip(&outcomes).any(|(content, outcome)| outcome.is_ok() && *content == published);
        assert!(is_published, "{outcomes:?}");
        for why in outcomes.into_iter().filter_map(farcall::Result::err) {
            assert!(matches!(why.declared(), Some(FileError::Refused(_) | FileError::NotFound)), "{why}");
        }
    }
}

#[test]
fn a_file_with_another_name_is_not_written_to() {
    let scratch = Scratch::new();
    fs::write(scratch.directory.path().join("outside"), "secret").unwrap();
    fs::hard_link(scratch.directory.path().join("outside"), scratch.served().join(".file.part")).unwrap();
    let refused = FileError::Refused(".file.part has another name too".into());
    assert_eq!(exception(scratch.files.store("file", 0, Bulk::from_bytes("x"))), refused);
    assert_eq!(exception(scratch.finish("file", b"secret", false)), refused);
    assert_eq!(fs::read(scratch.directory.path().join("outside")).unwrap(), b"secret");
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
