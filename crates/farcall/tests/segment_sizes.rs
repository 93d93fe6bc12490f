//! Segments whose size their exporter chooses: what does not fit is an error and no abort, and what is taken
//! away from importers costs no second segment.
//!
//! The test program runs itself again as a process of little memory. This is a binary of its own, because it
//! counts the memory of all memory files of the process.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod common;
#[path = "common/other.rs"]
mod other;

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::sync::Mutex;

use farcall::memory::{Importers, Memory, Notify, Remote, Rights, Segment, Settings};
use farcall::{Kind, Ran, Runtime};
use other::{Other, ROLE};

const TIB: usize = 1 << 40;
const PAGE: usize = 4096;

/// One test at a time counts the memory of this process.
static COUNTS: Mutex<()> = Mutex::new(());

fn runtime() -> Runtime {
    common::builder().shared_memory(true).build().unwrap()
}

/// Returns how many bytes of memory the memory files of segments have that this process has open.
fn file_bytes() -> u64 {
    let files = fs::read_dir("/proc/self/fd").unwrap().filter_map(|file| Some(file.ok()?.path()));
    let of_segments = files
        .filter(|file| fs::read_link(file).is_ok_and(|to| to.to_string_lossy().contains("memfd:farcall")));
    of_segments.filter_map(|file| Some(fs::metadata(file).ok()?.st_blocks() * 512)).sum()
}

/// Returns a figure of `/proc/self/status` or of `smaps_rollup`, in bytes.
fn of_process(file: &str, figure: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// The pages of a sparse segment that are written, at its beginning, in the middle and at its end.
const WRITTEN: [u64; 4] = [0, 8, (TIB / 2) as u64, (TIB - 8) as u64];

fn sparse(rights: Rights) -> (Segment, Remote) {
    let segment = runtime().export_segment("Sparse", Settings::new(TIB).same_user(rights)).unwrap();
    WRITTEN.iter().for_each(|offset| segment.store(*offset, offset + 1).unwrap());
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.load(0).unwrap();
    (segment, remote)
}

fn check_content(memory: &dyn Memory) {
    assert!(WRITTEN.iter().all(|offset| memory.load(*offset).unwrap() == offset + 1));
}

#[test]
fn rights_of_a_sparse_segment_of_a_tebibyte_change_without_its_memory() {
    let _counts = COUNTS.lock().unwrap();
    type Change = fn(&Segment);
    let changes: [(&str, Change); 5] = [
        ("revoke", Segment::revoke),
        ("withdraw", |segment| segment.withdraw(Importers::SameUser)),
        ("inhibit", |segment| segment.inhibit_writes(true)),
        ("notify", |segment| segment.set_notify(Notify::Always).unwrap()),
        ("again", Segment::export_again),
    ];
    for (name, change) in changes {
        for rights in [Rights::READ, Rights::ALL] {
            let before = file_bytes();
            let (segment, remote) = sparse(rights);
            let held = file_bytes() - before;
            change(&segment);
            println!("{name}, {rights:?}: {held} bytes before, {} after", file_bytes() - before);
            check_content(&segment);
            // What the importer has mapped stays only if it may only read it.
            assert!(file_bytes() - before <= 2 * held, "only pages that were written count");
            segment.store(16, 99).unwrap();
            segment.store((TIB / 4) as u64, 98).unwrap();
            if !matches!(name, "inhibit" | "notify") {
                assert!(remote.load(0).is_err());
            }
            segment.grant(Importers::SameUser, rights).unwrap();
            segment.inhibit_writes(false);
            segment.set_notify(Notify::Never).unwrap();
            // It is offered again, with everything that was written before and since.
            segment.export_again();
            let again = runtime().import_segment(&segment.url()).unwrap();
            check_content(&again);
            assert_eq!((again.load(16).unwrap(), again.load((TIB / 4) as u64).unwrap()), (99, 98));
            drop((segment, remote, again));
        }
    }
}

#[test]
fn memory_that_moves_is_given_back_part_by_part_and_memory_that_is_only_read_stays() {
    const LEN: usize = 32 << 20;
    let _counts = COUNTS.lock().unwrap();
    let resident = || of_process("status", "RssAnon:");
    let peak = || of_process("status", "VmHWM:");
    for rights in [Rights::READ, Rights::ALL] {
        let before = file_bytes();
        let segment = runtime().export_segment("Moved", Settings::new(LEN).same_user(rights)).unwrap();
        segment.write_bytes(0, &vec![7; LEN]).unwrap();
        let remote = runtime().import_segment(&segment.url()).unwrap();
        assert_eq!(remote.load(0).unwrap(), u64::from_ne_bytes([7; 8]));
        let (held, own) = (file_bytes() - before, resident());
        assert!(held >= LEN as u64);
        // The highest figure begins anew.
        let counts_anew = fs::write("/proc/self/clear_refs", "5").is_ok();
        let lowest = peak();
        segment.revoke();
        let risen = peak().saturating_sub(lowest);
        assert!(!counts_anew || risen < 16 << 20, "{risen} bytes of {LEN} were there twice");
        let (after, grown) = (file_bytes() - before, resident().saturating_sub(own));
        // The importer has the former file mapped; of a writer's nothing is left.
        assert!(after <= held + PAGE as u64, "{held} bytes before and {after} after");
        assert!(grown < 8 << 20, "{grown} bytes of this process's own memory");
        segment.store(0, 1).unwrap();
        assert_eq!(segment.load(LEN as u64 - 8).unwrap(), u64::from_ne_bytes([7; 8]));
        drop((segment, remote));
    }
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(_) = std::env::var(ROLE) else { return };
    const LARGE: usize = 64 << 30;
    let [mapped, served] =
        [true, false].map(|shares| common::builder().shared_memory(shares).build().unwrap());
    let limit = rustix::process::Rlimit { current: Some(4 << 30), maximum: Some(4 << 30) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit).unwrap();
    for runtime in [&mapped, &served] {
        let settings = Settings::new(LARGE).same_user(Rights::ALL).anyone(Rights::ALL);
        let why = runtime.export_segment("Large", settings).expect_err("it does not fit");
        let why = why.call_failed().expect("no exception is declared");
        assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
        assert!(why.to_string().contains(&LARGE.to_string()) && why.to_string().contains("ulimit"), "{why}");
        // What fits is exported as ever.
        let small = runtime.export_segment("Small", Settings::new(64).anyone(Rights::ALL)).unwrap();
        small.store(0, 42).unwrap();
        let remote = mapped.import_segment(&small.url()).unwrap();
        assert_eq!(remote.load(0).unwrap(), 42);
    }
    println!("nothing was aborted");
}

#[test]
fn a_segment_that_does_not_fit_is_an_error_and_the_process_lives() {
    let mut little = Other::start(module_path!(), "little", "");
    little.hear("nothing was aborted");
    assert!(little.end().success());
}

#[test]
fn a_served_segment_takes_only_the_pages_that_are_accessed() {
    let _counts = COUNTS.lock().unwrap();
    let peak = || of_process("status", "VmHWM:");
    let exporter = common::builder().shared_memory(false).build().unwrap();
    let before = peak();
    let segment = exporter.export_segment("Served", Settings::new(TIB).anyone(Rights::ALL)).unwrap();
    WRITTEN.iter().for_each(|offset| segment.store(*offset, offset + 1).unwrap());
    check_content(&common::runtime().import_segment(&segment.url()).unwrap());
    let grown = peak() - before;
    assert!(grown < 64 << 20, "{grown} bytes");
}
