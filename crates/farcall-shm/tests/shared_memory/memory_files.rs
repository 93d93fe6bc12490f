//! Memory files for calls and segments: what a process can do, and cannot do, with a file that it was passed.
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_shm::{Added, Area, Call, Caller, May, Page, Request, Server, Status, Taker, punch, written};
use rustix::fs::{MemfdFlags, SealFlags};

/// The file of a descriptor, opened once more, as whoever was given the descriptor may do.
fn reopened(file: &OwnedFd) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).unwrap().into()
}

/// What somebody finds who would like to write.
fn cannot_be_written(file: &OwnedFd) {
    for file in [file.try_clone().unwrap(), reopened(file)] {
        assert!(Area::open(&file, 4096, May::Write).is_err());
        let file = File::from(file);
        assert!(file.write_at(b"scribble", 0).is_err());
    }
}

fn cannot_be_resized(file: &OwnedFd) {
    for file in [file.try_clone().unwrap(), reopened(file)] {
        let file = File::from(file);
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(8192).is_err());
    }
}

#[test]
fn who_may_only_read_cannot_write_by_any_way() {
    let (ours, file) = Area::create(100, May::Read).unwrap();
    let theirs = Area::open(&file, 100, May::Read).unwrap();
    cannot_be_written(&file);
    cannot_be_resized(&file);
    // Not even a hole can be made.
    ours.words().unwrap()[3].store(7, Ordering::Release);
    punch(&file, 4096);
    punch(&reopened(&file), 4096);
    assert_eq!(theirs.sight()[3].load(), 7);
    assert!(theirs.words().is_none());
}

#[test]
fn who_may_write_does_and_cannot_make_access_a_fault() {
    let (ours, file) = Area::create(100, May::Write).unwrap();
    let theirs = Area::open(&file, 100, May::Write).unwrap();
    theirs.words().unwrap()[511].store(7, Ordering::Release);
    assert_eq!(ours.sight()[511].load(), 7);
    cannot_be_resized(&file);
    // A hole is zeros.
    punch(&file, 4096);
    assert_eq!(ours.sight()[511].load(), 0);
    ours.words().unwrap()[511].store(8, Ordering::Release);
    assert_eq!(theirs.sight()[511].load(), 8);
}

#[test]
fn what_is_no_such_file_is_refused() {
    let (_ours, file) = Area::create(100, May::Write).unwrap();
    assert!(Area::open(&file, 4097, May::Read).is_err());
    assert!(Area::open(&File::open("/proc/self/exe").unwrap().into(), 100, May::Read).is_err());
    assert!(Area::open(&File::open("/dev/zero").unwrap().into(), 100, May::Read).is_err());
    assert!(Area::create(usize::MAX, May::Read).is_err());
}

/// A memory file of any length and with any seals, as a peer may make it.
fn made_by_a_peer(len: u64, seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("peer", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, len).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// If a peer could make a mapped file shorter, an access to what it cut off would be a fault (SIGBUS).
#[test]
fn a_file_that_may_shrink_or_has_another_size_is_refused() {
    let (_, arguments) = Page::arguments().unwrap();
    let (_, file) = Page::create(&arguments).unwrap();
    let len = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_size as u64;
    let (len_of_arguments, len_of_page) = (len(&arguments), len(&file));
    let accepted = |more: i64, seals| {
        let made = |len: u64| made_by_a_peer(len.checked_add_signed(more).unwrap(), seals);
        let segment = Area::open(&made(8192), 8192, May::Write).is_ok();
        let arguments = Page::create(&made(len_of_arguments)).is_ok();
        let (ours, _) = Page::arguments().unwrap();
        [segment, arguments, Page::open(&made(len_of_page), ours).is_ok()]
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    assert_eq!(accepted(0, all), [true; 3]);
    for missing in all {
        assert_eq!(accepted(0, all - missing), [false; 3], "without {missing:?}");
    }
    for more in [-4096, 4096] {
        assert_eq!(accepted(more, all), [false; 3], "{more} bytes more");
    }
}

#[test]
fn caller_and_server_map_the_same_two_files() {
    let (ours, arguments) = Page::arguments().unwrap();
    let (serving, file) = Page::create(&arguments).unwrap();
    let caller = Arc::new(Caller::new(Arc::new(Page::open(&file, ours).unwrap())));
    let (server, mut taker) = (Server::new(Arc::new(serving)), Taker::new());
    for file in [&arguments, &file] {
        cannot_be_resized(file);
    }
    cannot_be_written(&arguments);

    let call = Call { export: 7, procedure: 1, within: None, trace: None };
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    assert_eq!(lane.put(&[5; 9]), 9);
    let ticket = caller.call(caller.claim().unwrap(), &call, &[1, 2], Some(&mut lane));
    let (slot, number) = server.take(&mut taker).unwrap();
    let request = server.request(slot);
    let Request::Call { len: 2, added: Some(Added { lane, len: 9 }), .. } = request else { panic!() };
    let mut body = Vec::new();
    assert!(server.emptiers()[lane].finish(9, Some(&mut body)));
    server.arguments(slot, 2, &mut body);
    assert_eq!(body, [5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 2]);
    server.answer(slot, number, Status::Result, &[3]);
    let mut reply = Vec::new();
    assert!(caller.is_answered(ticket));
    assert_eq!((caller.answer(ticket, &mut reply), reply), ((Status::Result, 1), vec![3]));
}

#[test]
fn a_file_has_whole_pages_and_at_least_one() {
    for (asked, len) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
        let (area, _) = Area::create(asked, May::Write).unwrap();
        assert_eq!((area.len(), area.is_empty()), (len, false), "{asked}");
        assert_eq!((area.sight().len(), area.words().unwrap().len()), (len / 8, len / 8), "{asked}");
    }
}

/// How many mappings of the file this process has.
fn mappings(file: &OwnedFd) -> usize {
    let inode = rustix::fs::fstat(file).unwrap().st_ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.split_whitespace().nth(4) == Some(&inode)).count()
}

#[test]
fn a_dropped_page_unmaps_both_files() {
    let (ours, arguments) = Page::arguments().unwrap();
    let (serving, file) = Page::create(&arguments).unwrap();
    let calling = Page::open(&file, ours).unwrap();
    assert_eq!((mappings(&arguments), mappings(&file)), (2, 2));
    drop(calling);
    assert_eq!((mappings(&arguments), mappings(&file)), (1, 1));
    drop(serving);
    assert_eq!((mappings(&arguments), mappings(&file)), (0, 0));
}

#[test]
fn bytes_are_copied_at_any_offset() {
    let (area, _file) = Area::create(8192, May::Write).unwrap();
    let bytes: Vec<u8> = (0..2000).map(|i| (i % 251) as u8).collect();
    assert!(!area.copy_in(0, &bytes[..8]));
    if !area.copy_in(77, &bytes) {
        return;
    }
    // The second copy ends where the area ends.
    assert!(area.copy_in(8192 - 2000, &bytes));
    for offset in [77, 8192 - 2000] {
        let mut back = vec![0; 2000];
        assert!(area.copy_out(offset, &mut back));
        assert_eq!(back, bytes);
    }
}

#[test]
fn a_copy_beyond_the_area_or_into_a_read_only_one_panics() {
    let (area, _file) = Area::create(8192, May::Write).unwrap();
    let refused = |copy: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy)).is_err();
    for (offset, len) in [(8000, 300), (8193, 0), (0, 8193), (usize::MAX, 300), (8192, 1)] {
        assert!(refused(&|| _ = area.copy_out(offset, &mut vec![0; len])), "{len} bytes at {offset}");
        assert!(refused(&|| _ = area.copy_in(offset, &vec![0; len])), "{len} bytes at {offset}");
    }
    let (_, file) = Area::create(8192, May::Read).unwrap();
    let read_only = Area::open(&file, 8192, May::Read).unwrap();
    assert!(refused(&|| assert!(!read_only.copy_in(0, &[0; 4096]), "copied without a fault")));
}

#[test]
fn what_was_written_is_known() {
    let (area, file) = Area::create(100 * 4096, May::Write).unwrap();
    assert!(written(&file, area.len()).is_empty());
    let words = area.words().unwrap();
    words[512].store(1, Ordering::Release);
    words[513 * 90].store(1, Ordering::Release);
    let parts = written(&file, area.len());
    assert!(
        parts.iter().any(|part| part.contains(&4096))
            && parts.iter().any(|part| part.contains(&(513 * 90 * 8)))
    );
    assert!(parts.iter().map(|part| part.len()).sum::<usize>() < area.len());
    assert!(parts.last().unwrap().end <= area.len());
}
