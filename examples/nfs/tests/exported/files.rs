//! Tests what each operation does to real files of the exported directory, and that no path leads out of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use farcall_nfs::files::{Change, Files};
use farcall_nfs::places::Key;
use farcall_nfs::protocol::nfs::StableHow;
use rustix::fs::{FileType, Timespec, Timestamps};
use rustix::io::Errno;

fn exported() -> (tempfile::TempDir, Files) {
    // The directory's canonical path is used, because the directory of temporary files may be a link.
    let directory = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
    let files = Files::open(directory.path()).unwrap();
    (directory, files)
}

fn names(files: &Files, directory: Key) -> Vec<String> {
    let mut names = Vec::new();
    files
        .list(directory, 0, |entry, _| {
            names.push(String::from_utf8(entry.name).unwrap());
            true
        })
        .unwrap();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

fn read(files: &Files, file: Key, offset: u64, length: usize) -> (Vec<u8>, bool) {
    let (bytes, ended, _) = files.read(file, offset, length).unwrap();
    (bytes, ended)
}

#[test]
fn a_file_is_made_written_read_renamed_and_removed() {
    let (directory, files) = exported();
    let root = files.root();
    let file = files.create(root, b"notes", 0o640, None).unwrap();
    files.write(file, 3, b"later", StableHow::FileSync).unwrap();
    files.write(file, 0, b"now", StableHow::Unstable).unwrap();
    files.commit(file).unwrap();
    assert_eq!(read(&files, file, 0, 100), (b"nowlater".to_vec(), true));
    assert_eq!(read(&files, file, 0, 3), (b"now".to_vec(), false));
    assert_eq!(read(&files, file, 90, 3), (Vec::new(), true));
    assert_eq!(fs::read(directory.path().join("notes")).unwrap(), b"nowlater");
    files.rename((root, b"notes"), (root, b"kept")).unwrap();
    assert_eq!(files.read(file, 3, 5).unwrap().0, b"later");
    files.remove(root, b"kept", false).unwrap();
    assert_eq!(files.stat(file).unwrap_err(), Errno::STALE);
    assert_eq!(files.lookup(root, b"kept").unwrap_err(), Errno::NOENT);
}

#[test]
fn a_name_that_is_taken_is_refused_only_where_it_must_be_new() {
    let (_directory, files) = exported();
    let first = files.create(files.root(), b"a", 0o600, None).unwrap();
    assert_eq!(files.create(files.root(), b"a", 0o600, None).unwrap_err(), Errno::EXIST);
    assert_eq!(files.existing(files.root(), b"a").unwrap().0, first);
}

#[test]
fn directories_nest_and_are_listed_in_parts() {
    let (_directory, files) = exported();
    let sub = files.make_directory(files.root(), b"sub", 0o755).unwrap().unwrap();
    for number in 0..100 {
        files.create(sub, format!("{number}").as_bytes(), 0o600, None).unwrap();
    }
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let mut left = 7;
        let ended = files.list(sub, cookie, |entry, _| {
            if left == 0 {
                return false;
            }
            left -= 1;
            cookie = entry.cookie;
            seen.push(entry.name);
            true
        });
        if ended.unwrap() {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 102, "a hundred, `.` and `..`, each once");
    assert_eq!(files.lookup(sub, b"..").unwrap().0, files.root());
    assert_eq!(files.lookup(files.root(), b"..").unwrap().0, files.root(), "nothing is above the root");
    assert_eq!(files.remove(files.root(), b"sub", true).unwrap_err(), Errno::NOTEMPTY);
    assert_eq!(names(&files, files.root()), ["sub"]);
}

#[test]
fn nothing_leads_out() {
    let (outside, files) = (tempfile::tempdir().unwrap(), exported());
    let (directory, files) = files;
    fs::write(outside.path().join("secret"), "x").unwrap();
    symlink(outside.path(), directory.path().join("out")).unwrap();
    for name in [&b"a/b"[..], b"", b"/etc", b"a\0b", b"../x"] {
        assert_eq!(files.lookup(files.root(), name).unwrap_err(), Errno::INVAL, "{name:?}");
    }
    let (link, _) = files.lookup(files.root(), b"out").unwrap();
    assert_eq!(files.lookup(link, b"secret").unwrap_err(), Errno::NOTDIR);
    assert_eq!(files.read_link(link).unwrap(), outside.path().as_os_str().as_encoded_bytes());
    assert_eq!(files.read(link, 0, 1).unwrap_err(), Errno::INVAL);
}

#[test]
fn a_handle_is_stale_when_something_else_stands_in_its_place() {
    let (directory, files) = exported();
    fs::write(directory.path().join("a"), "old").unwrap();
    let (file, _) = files.lookup(files.root(), b"a").unwrap();
    fs::write(directory.path().join("b"), "new").unwrap();
    fs::rename(directory.path().join("b"), directory.path().join("a")).unwrap();
    assert_eq!(files.read(file, 0, 9).unwrap_err(), Errno::STALE);
    let forged = Key::parse([0xab; 24]);
    assert_eq!(files.stat(forged).unwrap_err(), Errno::STALE);
}

#[test]
fn attributes_change_and_links_are_left_alone() {
    let (directory, files) = exported();
    let path = directory.path().join("f");
    let file = files.create(files.root(), b"f", 0o600, None).unwrap();
    files.change(file, &Change { mode: Some(0o644), size: Some(10), ..Change::default() }).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o644, 10));
    let link = files.make_link(files.root(), b"l", b"f").unwrap().unwrap();
    files.change(link, &Change { mode: Some(0o777), ..Change::default() }).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    let at = Timespec { tv_sec: 7, tv_nsec: 0 };
    let times = Some(Timestamps { last_access: at, last_modification: at });
    files.change(link, &Change { times, ..Change::default() }).unwrap();
    assert_eq!(fs::symlink_metadata(directory.path().join("l")).unwrap().mtime(), 7);
    assert_eq!(fs::metadata(&path).unwrap().mtime(), metadata.mtime(), "what it leads to is left alone");
    files.link(file, files.root(), b"g").unwrap();
    assert_eq!(fs::metadata(directory.path().join("g")).unwrap().ino(), metadata.ino());
    let pipe = files.make_special(files.root(), b"p", FileType::Fifo, 0o600).unwrap().unwrap();
    assert_eq!(files.read(pipe, 0, 1).unwrap_err(), Errno::INVAL, "and nobody waits for its other end");
    assert_eq!(
        files.make_special(files.root(), b"d", FileType::BlockDevice, 0o600).unwrap_err(),
        Errno::NOTSUP
    );
    assert_eq!(files.stat(file).unwrap().stx_size, 10);
    assert!(files.space(files.root()).unwrap().f_blocks > 0);
    assert!(files.may(file, rustix::fs::Access::READ_OK).unwrap());
}

#[test]
fn a_program_whose_size_was_set_can_be_run() {
    let (directory, files) = exported();
    let path = directory.path().join("true");
    fs::copy("/bin/true", &path).unwrap();
    let (file, stat) = files.lookup(files.root(), b"true").unwrap();
    files.change(file, &Change { size: Some(stat.stx_size), ..Change::default() }).unwrap();
    // While a process has the file open for writing, the system refuses to execute it.
    assert!(Command::new(&path).status().unwrap().success());
}

#[test]
fn a_file_stays_to_be_read_however_many_are_opened_after_it() {
    let (directory, files) = exported();
    for number in 0..300 {
        fs::write(directory.path().join(format!("{number}")), [number as u8]).unwrap();
    }
    let all: Vec<Key> = (0..300)
        .map(|number| files.lookup(files.root(), format!("{number}").as_bytes()).unwrap().0)
        .collect();
    for _ in 0..2 {
        for (number, file) in all.iter().enumerate() {
            assert_eq!(files.read(*file, 0, 1).unwrap().0, [number as u8]);
        }
    }
    // Only files that this test has opened count. Other tests of this process have files of their own.
    let open =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    let open = open.filter(|path| path.parent() == Some(directory.path())).count();
    assert!((1..200).contains(&open), "{open} files are open");
}
