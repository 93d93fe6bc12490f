//! Memory files for segments: what those to whom one is passed can do with it, whatever they try.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use farcall_shm::{Area, May, punch, written};

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

#[test]
fn bytes_are_copied_at_any_offset() {
    let (area, _file) = Area::create(8192, May::Write).unwrap();
    let bytes: Vec<u8> = (0..2000).map(|i| (i % 251) as u8).collect();
    assert!(!area.copy_in(0, &bytes[..8]));
    if !area.copy_in(77, &bytes) {
        return;
    }
    let mut back = vec![0; 2000];
    assert!(area.copy_out(77, &mut back));
    assert_eq!(back, bytes);
}

#[test]
#[should_panic(expected = "300 bytes at 8000 of 8192")]
fn nothing_is_copied_from_beyond() {
    let (area, _file) = Area::create(8192, May::Write).unwrap();
    area.copy_out(8000, &mut [0; 300]);
}

#[test]
fn what_was_written_is_known() {
    let (area, file) = Area::create(100 * 4096, May::Write).unwrap();
    assert!(written(&file, area.len()).is_empty());
    let words = area.words().unwrap();
    words[512].store(1, Ordering::Release);
    words[513 * 90].store(1, Ordering::Release);
    let parts = written(&file, area.len());
    assert!(parts.iter().any(|part| part.contains(&4096)) && parts.iter().any(|part| part.contains(&(513 * 90 * 8))));
    assert!(parts.iter().map(|part| part.len()).sum::<usize>() < area.len());
    assert!(parts.last().unwrap().end <= area.len());
}
