//! Pinned segments, huge pages, and segments of memory that the program has already.
//!
//! This is a binary of its own, because the system counts the pinned memory of the whole process.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;

use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::memory::{HugePages, Memory, Refused, Rights, Segment, Settings};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};
use farcall_shm::{AccessRights, MappedFile};

const SIZE: usize = 1 << 20;

fn runtime(shares_memory: bool) -> Runtime {
    common::builder().shared_memory(shares_memory).build().unwrap()
}

fn segment(shares_memory: bool) -> Segment {
    let settings = Settings::new(SIZE).anyone(Rights::ALL);
    runtime(shares_memory).export_segment("Pinned", settings).unwrap()
}

/// Returns how many bytes of this process are pinned.
fn pinned() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn failure<T: std::fmt::Debug>(outcome: Result<T, impl Into<CallFailed>>) -> String {
    let why = outcome.unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No), "{why}");
    why.to_string()
}

/// One test, because all of it is of one count. It runs again in a process that may pin 64 KiB only.
#[test]
fn pinned_memory_stays_pinned_until_it_is_not() {
    const LIMITED: &str = "FARCALL_TEST_PIN_LIMIT";
    if std::env::var_os(LIMITED).is_some() {
        for shares_memory in [false, true] {
            let segment = segment(shares_memory);
            let Err(Error::CallFailed(why)) = segment.pin() else { panic!("the limit is reached") };
            let why = failure::<()>(Err(why));
            assert!(why.contains("RLIMIT_MEMLOCK") && why.contains("65536 bytes"), "{why}");
            assert!(!segment.is_pinned());
        }
        return;
    }
    for shares_memory in [false, true] {
        let segment = segment(shares_memory);
        if let Err(why) = segment.pin() {
            return common::skip(&format!("pinned memory: {why}"));
        }
        segment.pin().unwrap();
        let held = || (SIZE..SIZE + (8 << 10)).contains(&pinned());
        assert!(segment.is_pinned() && held(), "{} bytes", pinned());
        // The memory moves, if an importer has it mapped.
        let remote = runtime(shares_memory).import_segment(&segment.url()).unwrap();
        remote.store(8, 7).unwrap();
        segment.export_again();
        assert!(segment.is_pinned() && held() && segment.load(8).unwrap() == 7, "{} bytes", pinned());
        segment.revoke();
        assert!(segment.is_pinned() && held(), "{} bytes", pinned());
        segment.unpin();
        assert_eq!((segment.is_pinned(), pinned()), (false, 0));
        segment.pin().unwrap();
        drop((segment, remote));
        // The exporter's threads may hold the segment a little longer.
        while pinned() > 0 {
            std::thread::yield_now();
        }
    }
    let name = "pinned_memory_stays_pinned_until_it_is_not";
    let limited = Command::new("prlimit")
        .args(["--memlock=65536:65536", "setpriv", "--inh-caps=-ipc_lock", "--bounding-set=-ipc_lock"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env(LIMITED, "1")
        .output();
    match limited {
        Ok(run) if run.status.success() => {
            assert!(String::from_utf8_lossy(&run.stdout).contains("1 passed"));
        }
        Ok(run) if run.status.code() == Some(101) => panic!("{}", String::from_utf8_lossy(&run.stdout)),
        other => common::skip(&format!("the limit of pinned memory: {other:?}")),
    }
}

#[test]
fn what_becomes_of_huge_pages_is_told() {
    let export = |size: usize, shares_memory| {
        let settings = Settings::new(size).anyone(Rights::ALL).huge_pages(true);
        runtime(shares_memory).export_segment("Huge", settings).unwrap()
    };
    for (shares_memory, setting) in [(false, "enabled"), (true, "shmem_enabled")] {
        assert_eq!(*segment(shares_memory).huge_pages(), HugePages::NotAsked);
        let path = format!("/sys/kernel/mm/transparent_hugepage/{setting}");
        let chosen = std::fs::read_to_string(&path).unwrap_or_else(|_| "[never]".into());
        let is_off = chosen.contains("[never]") || chosen.contains("[deny]");
        let large = export(16 << 20, shares_memory);
        match large.huge_pages() {
            HugePages::Asked => assert!(!is_off, "{chosen}"),
            HugePages::Refused(why) => assert!(is_off && why.contains(&path), "{why}"),
            other => panic!("{other:?}"),
        }
        large.store(8 << 20, 7).unwrap();
        let remote = runtime(shares_memory).import_segment(&large.url()).unwrap();
        assert_eq!(remote.load(8 << 20).unwrap(), 7);
        assert!(matches!(export(64, shares_memory).huge_pages(), HugePages::Refused(_)));
    }
}

/// Returns a memory file of the program's, which the program has mapped.
fn given() -> (MappedFile, OwnedFd) {
    MappedFile::create(4 * 4096, AccessRights::Write).unwrap()
}

#[test]
fn a_program_exports_memory_that_it_has_already() {
    for shares_memory in [false, true] {
        let (mapping, file) = given();
        let words: &[AtomicU64] = mapping.words().unwrap();
        words[512].store(7, Ordering::Relaxed);
        let exporter = runtime(shares_memory);
        let settings = Settings::new(8192).anyone(Rights::ALL);
        let segment = exporter.export_file("Given", file, 4096, settings).unwrap();
        let remote = runtime(shares_memory).import_segment(&segment.url()).unwrap();
        assert_eq!((remote.load(0).unwrap(), segment.load(0).unwrap()), (7, 7));
        remote.store(8, 9).unwrap();
        remote.flush().unwrap();
        assert_eq!(words[513].load(Ordering::Relaxed), 9);
        assert!(remote.load(8192).is_err(), "the file goes on, the segment does not");

        // The program keeps its memory when importers lose it.
        segment.export_again();
        assert_eq!(remote.load(0), Err(Error::Declared(Refused::Stale)));
        let again = runtime(shares_memory).import_segment(&segment.url()).unwrap();
        segment.inhibit_writes(true);
        assert_eq!(again.store(8, 1), Err(Error::Declared(Refused::Inhibited)));
        segment.revoke();
        words[512].store(8, Ordering::Relaxed);
        assert_eq!((words[513].load(Ordering::Relaxed), segment.load(0).unwrap()), (9, 8));
        drop(segment);
        assert_eq!(words[512].load(Ordering::Relaxed), 8);
    }
}

#[test]
fn what_cannot_be_exported_is_refused_and_said() {
    let exporter = runtime(true);
    let try_file = |file: OwnedFd, offset, size| {
        failure(exporter.export_file("Given", file, offset, Settings::new(size).anyone(Rights::READ)))
    };
    let cases: [(u64, usize, &str); 5] = [
        (8, 4096, "multiple of a page"),
        (0, 4100, "multiple of eight"),
        (4 * 4096, 8, "it has 16384 bytes"),
        (4096, 4 * 4096, "it has 16384 bytes"),
        (u64::MAX - 4095, 4096, "it has 16384 bytes"),
    ];
    for (offset, size, expected) in cases {
        let why = try_file(given().1, offset, size);
        assert!(why.contains(expected), "{why}");
    }
    assert!(try_file(given().1, 0, 0).contains("cannot have 0 bytes"));

    let on_disk = tempfile::tempfile().unwrap();
    on_disk.set_len(4096).unwrap();
    let why = try_file(on_disk.into(), 0, 4096);
    assert!(why.contains("not a memory file") || why.contains("sealed against shrinking"), "{why}");
    let (read, _write) = std::io::pipe().unwrap();
    assert!(try_file(read.into(), 0, 4096).contains("not a memory file"));

    let path = |file: &OwnedFd| format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    let (_mapping, file) = given();
    let read_only = std::fs::File::open(path(&file)).unwrap();
    assert!(try_file(read_only.into(), 0, 4096).contains("mapping it to be written"));
    let (_mapping, sealed) = MappedFile::create(4096, AccessRights::Read).unwrap();
    assert!(try_file(sealed, 0, 4096).contains("mapping it to be written"));
}
