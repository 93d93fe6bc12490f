//! Memory files for calls and segments: what a process can do, and cannot do, with a file that it was passed.
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farcall_shm::{
    AccessRights, BulkArguments, Call, CallMemory, Caller, MappedFile, Request, RequestCursor, Server,
    Status, next_written, own_pages, punch_hole,
};
use rustix::fs::{MemfdFlags, SealFlags};

/// The file of a descriptor, opened once more, as whoever was given the descriptor may do.
fn reopened(file: &OwnedFd) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().read(true).write(true).open(path).unwrap().into()
}

/// What somebody finds who would like to write.
fn cannot_be_written(file: &OwnedFd) {
    for file in [file.try_clone().unwrap(), reopened(file)] {
        assert!(MappedFile::open(&file, 4096, AccessRights::Write).is_err());
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
    let (ours, file) = MappedFile::create(100, AccessRights::Read).unwrap();
    let theirs = MappedFile::open(&file, 100, AccessRights::Read).unwrap();
    cannot_be_written(&file);
    cannot_be_resized(&file);
    // Not even a hole can be made.
    ours.words().unwrap()[3].store(7, Ordering::Release);
    punch_hole(&file, 0..4096);
    punch_hole(&reopened(&file), 0..4096);
    assert_eq!(theirs.read_only_words()[3].load(), 7);
    assert!(theirs.words().is_none());
}

#[test]
fn who_may_write_does_and_cannot_make_access_a_fault() {
    let (ours, file) = MappedFile::create(100, AccessRights::Write).unwrap();
    let theirs = MappedFile::open(&file, 100, AccessRights::Write).unwrap();
    theirs.words().unwrap()[511].store(7, Ordering::Release);
    assert_eq!(ours.read_only_words()[511].load(), 7);
    cannot_be_resized(&file);
    // A hole is zeros.
    punch_hole(&file, 0..4096);
    assert_eq!(ours.read_only_words()[511].load(), 0);
    ours.words().unwrap()[511].store(8, Ordering::Release);
    assert_eq!(theirs.read_only_words()[511].load(), 8);
}

#[test]
fn what_is_no_such_file_is_refused() {
    let (_ours, file) = MappedFile::create(100, AccessRights::Write).unwrap();
    assert!(MappedFile::open(&file, 4097, AccessRights::Read).is_err());
    assert!(
        MappedFile::open(&File::open("/proc/self/exe").unwrap().into(), 100, AccessRights::Read).is_err()
    );
    assert!(MappedFile::open(&File::open("/dev/zero").unwrap().into(), 100, AccessRights::Read).is_err());
    assert!(MappedFile::create(usize::MAX, AccessRights::Read).is_err());
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
    let (_, arguments) = CallMemory::create_arguments().unwrap();
    let (_, file) = CallMemory::create(&arguments).unwrap();
    let len = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_size as u64;
    let (len_of_arguments, len_of_page) = (len(&arguments), len(&file));
    let accepted = |more: i64, seals| {
        let made = |len: u64| made_by_a_peer(len.checked_add_signed(more).unwrap(), seals);
        let segment = MappedFile::open(&made(8192), 8192, AccessRights::Write).is_ok();
        let arguments = CallMemory::create(&made(len_of_arguments)).is_ok();
        let (ours, _) = CallMemory::create_arguments().unwrap();
        [segment, arguments, CallMemory::open(&made(len_of_page), ours).is_ok()]
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
    let (ours, arguments) = CallMemory::create_arguments().unwrap();
    let (serving, file) = CallMemory::create(&arguments).unwrap();
    let caller = Arc::new(Caller::new(Arc::new(CallMemory::open(&file, ours).unwrap())));
    let (server, mut cursor) = (Server::new(Arc::new(serving)), RequestCursor::new());
    for file in [&arguments, &file] {
        cannot_be_resized(file);
    }
    cannot_be_written(&arguments);

    let call = Call { export: 7, procedure: 1, within: None, trace: None };
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    assert_eq!(ring.put(&[5; 9]), 9);
    let id = caller.call(caller.claim().unwrap(), &call, &[1, 2], Some(&mut ring));
    let (slot, number) = server.take(&mut cursor).unwrap();
    let request = server.request(slot);
    let Request::Call { len: 2, bulk: Some(BulkArguments { ring, len: 9 }), .. } = request else { panic!() };
    let mut body = Vec::new();
    assert!(server.consumers()[ring].finish(9, Some(&mut body)));
    server.arguments(slot, 2, &mut body);
    assert_eq!(body, [5, 5, 5, 5, 5, 5, 5, 5, 5, 1, 2]);
    server.answer(slot, number, Status::Result, &[3]);
    let mut reply = Vec::new();
    assert!(caller.is_answered(id));
    assert_eq!((caller.answer(id, &mut reply), reply), ((Status::Result, 1), vec![3]));
}

#[test]
fn a_file_has_whole_pages_and_at_least_one() {
    for (asked, len) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
        let (area, _) = MappedFile::create(asked, AccessRights::Write).unwrap();
        assert_eq!((area.len(), area.is_empty()), (len, false), "{asked}");
        assert_eq!(
            (area.read_only_words().len(), area.words().unwrap().len()),
            (len / 8, len / 8),
            "{asked}"
        );
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
    let (ours, arguments) = CallMemory::create_arguments().unwrap();
    let (serving, file) = CallMemory::create(&arguments).unwrap();
    let calling = CallMemory::open(&file, ours).unwrap();
    assert_eq!((mappings(&arguments), mappings(&file)), (2, 2));
    drop(calling);
    assert_eq!((mappings(&arguments), mappings(&file)), (1, 1));
    drop(serving);
    assert_eq!((mappings(&arguments), mappings(&file)), (0, 0));
}

#[test]
fn bytes_are_copied_at_any_offset() {
    let (area, _file) = MappedFile::create(8192, AccessRights::Write).unwrap();
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
    let (area, _file) = MappedFile::create(8192, AccessRights::Write).unwrap();
    let refused = |copy: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(copy)).is_err();
    for (offset, len) in [(8000, 300), (8193, 0), (0, 8193), (usize::MAX, 300), (8192, 1)] {
        assert!(refused(&|| _ = area.copy_out(offset, &mut vec![0; len])), "{len} bytes at {offset}");
        assert!(refused(&|| _ = area.copy_in(offset, &vec![0; len])), "{len} bytes at {offset}");
    }
    let (_, file) = MappedFile::create(8192, AccessRights::Read).unwrap();
    let read_only = MappedFile::open(&file, 8192, AccessRights::Read).unwrap();
    assert!(refused(&|| assert!(!read_only.copy_in(0, &[0; 4096]), "copied without a fault")));
}

/// Returns the parts of a file that were ever written, of at most `most` bytes each.
fn written(file: &OwnedFd, len: usize, most: usize) -> Vec<Range<usize>> {
    let next = |last: &Range<usize>| next_written(file, last.end, len, most);
    std::iter::successors(next_written(file, 0, len, most), next).collect()
}

#[test]
fn what_was_written_is_known() {
    let (area, file) = MappedFile::create(100 * 4096, AccessRights::Write).unwrap();
    assert!(written(&file, area.len(), usize::MAX / 2).is_empty());
    let words = area.words().unwrap();
    for page in [1, 2, 90] {
        words[512 * page].store(1, Ordering::Release);
    }
    assert_eq!(written(&file, area.len(), 1 << 20), [4096..3 * 4096, 90 * 4096..91 * 4096]);
    assert_eq!(written(&file, area.len(), 4096), [4096..2 * 4096, 2 * 4096..3 * 4096, 90 * 4096..91 * 4096]);
    let beyond = written(&file, 4097, 1 << 20);
    assert_eq!(beyond.as_slice(), std::slice::from_ref(&(4096..4097)), "nothing beyond the end");
    punch_hole(&file, 4096..2 * 4096);
    assert_eq!(written(&file, area.len(), 1 << 20), [2 * 4096..3 * 4096, 90 * 4096..91 * 4096]);
}

#[test]
fn pages_that_are_copied_when_they_are_written_do_not_reach_the_file() {
    let (area, file) = MappedFile::create(1 << 40, AccessRights::Read).unwrap();
    let theirs = MappedFile::open(&file, 1 << 40, AccessRights::Read).unwrap();
    area.words().unwrap()[512].store(7, Ordering::Release);
    let ours = MappedFile::copy_on_write(&file, 1 << 40).unwrap();
    drop(area);
    let words = ours.words().unwrap();
    assert_eq!(words[512].load(Ordering::Acquire), 7);
    words[513].store(8, Ordering::Release);
    words[512 * 3].store(9, Ordering::Release);
    let theirs = theirs.read_only_words();
    assert_eq!([512, 513, 512 * 3].map(|word| theirs[word].load()), [7, 0, 0]);
    assert_eq!(own_pages(words, &(0..5 * 4096)).unwrap(), [1, 3]);
    assert_eq!(own_pages(words, &(4096..1 << 30)).unwrap(), [0, 2]);
}
