//! Segments that are mapped by another runtime on this machine.

use farcall::memory::{Memory, Notify, Refused, Remote, Rights, Segment, Settings};
use farcall::names::Memory as Names;
use farcall::stats::Export;
use farcall::{Error, Kind, Ran, Runtime};

fn runtime() -> Runtime {
    Runtime::builder().registry(Names::new()).shared_memory(true).build().unwrap()
}

/// A segment, its exporter, and an import of it by another runtime.
struct Pair {
    exporter: Runtime,
    segment: Segment,
    remote: Remote,
}

impl Pair {
    fn new(settings: Settings) -> Pair {
        let exporter = runtime();
        let segment = exporter.export_segment("Words", settings).unwrap();
        let remote = runtime().import_segment(&segment.url()).unwrap();
        Pair { exporter, segment, remote }
    }

    /// Returns how many calls and accesses the exporter has served.
    fn calls(&self) -> u64 {
        let results =
            |export: &Export| export.procedures.iter().map(|procedure| procedure.results).sum::<u64>();
        self.exporter.stats().exports.iter().map(|export| results(export) + export.accesses).sum()
    }
}

fn refused<T: std::fmt::Debug>(outcome: farcall::memory::Result<T>) -> Refused {
    match outcome {
        Err(Error::Declared(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

fn all_for_the_user(size: usize) -> Settings {
    Settings::new(size).same_user(Rights::ALL)
}

#[test]
fn what_is_mapped_costs_the_exporter_nothing() {
    let pair = Pair::new(all_for_the_user(10_000));
    let Pair { segment, remote, .. } = &pair;
    assert_eq!((remote.size(), remote.rights()), (10_000, Rights::ALL));
    let calls = pair.calls();

    segment.write(5, b"over there").unwrap();
    let mut bytes = [0; 10];
    remote.read(5, &mut bytes).unwrap();
    assert_eq!(&bytes, b"over there");
    remote.write(9_990, b"and back").unwrap();
    remote.flush().unwrap();
    let mut bytes = [0; 8];
    segment.read(9_990, &mut bytes).unwrap();
    assert_eq!(&bytes, b"and back");

    assert_eq!(remote.compare_and_swap(16, 0, 7).unwrap(), 0);
    assert_eq!((segment.load(16).unwrap(), remote.load(16).unwrap()), (7, 7));
    assert_eq!(remote.start_compare_and_swap(16, 7, 8).wait().unwrap(), 7);
    assert_eq!(&remote.start_read(16, 8).wait().unwrap()[..], 8_u64.to_le_bytes());
    remote.start_write(24, b"started").wait().unwrap();

    let long: Vec<u8> = (0..5000).map(|i| i as u8).collect();
    remote.write_bytes(3001, &long).unwrap();
    let (mut once, mut twice) = (vec![0; 5000], vec![0; 5000]);
    segment.read_bytes(3001, &mut once).unwrap();
    remote.read_each(&mut [(3001, &mut twice[..2500]), (5501, &mut [])]).unwrap();
    remote.read_bytes(5501, &mut twice[2500..]).unwrap();
    assert!(once == long && twice == long);
    assert_eq!(pair.calls(), calls);
}

#[test]
fn who_may_only_read_maps_what_cannot_be_written() {
    let pair = Pair::new(Settings::new(64).anyone(Rights::READ).notify(Notify::Asked));
    let calls = pair.calls();
    pair.segment.store(8, 42).unwrap();
    assert_eq!(pair.remote.load(8).unwrap(), 42);
    assert_eq!(refused(pair.remote.store(8, 1)), Refused::NotPermitted);
    assert_eq!(refused(pair.remote.compare_and_swap(8, 42, 1)), Refused::NotPermitted);
    assert_eq!(refused(pair.remote.read(60, &mut [0; 5])), Refused::OutOfRange(64));
    assert_eq!(refused(pair.remote.read(u64::MAX - 1, &mut [0; 5])), Refused::OutOfRange(64));
    // No other process writes, so inhibiting writes changes nothing.
    pair.segment.inhibit_writes(true);
    pair.segment.store(8, 43).unwrap();
    assert_eq!(pair.remote.load(8).unwrap(), 43);
    assert_eq!(pair.calls(), calls);
}

#[test]
fn finer_rights_and_notices_of_each_write_are_served() {
    for settings in [
        Settings::new(64).same_user(Rights::READ | Rights::WRITE),
        Settings::new(64).anyone(Rights::READ).same_user(Rights::CAS),
        all_for_the_user(64).notify(Notify::Always),
    ] {
        let pair = Pair::new(settings);
        let calls = pair.calls();
        assert_eq!(pair.remote.load(8).unwrap(), 0);
        assert_eq!(pair.calls(), calls + 1, "{settings:?}");
    }
}

#[test]
fn what_the_user_may_is_not_what_anyone_may() {
    let settings = all_for_the_user(64).anyone(Rights::READ);
    let pair = Pair::new(settings);
    pair.remote.store(0, 1).unwrap();
    let stranger = Runtime::builder().registry(Names::new()).shared_memory(false).build().unwrap();
    let remote = stranger.import_segment(&pair.segment.url()).unwrap();
    assert_eq!(remote.rights(), Rights::READ);
    assert_eq!(remote.load(0).unwrap(), 1);
    assert_eq!(refused(remote.store(0, 2)), Refused::NotPermitted);
}

#[test]
fn who_asks_for_it_hears_of_writes_of_what_is_mapped() {
    let pair = Pair::new(all_for_the_user(64).notify(Notify::Asked));
    pair.remote.write(0, b"quiet").unwrap();
    assert_eq!(pair.segment.try_notice(), None);
    pair.remote.write_notify(8, b"loud").unwrap();
    let notice = pair.segment.notice();
    assert_eq!((notice.offset, notice.len, notice.writes), (8, 4, 1));
    let mut bytes = [0; 12];
    pair.segment.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"quiet\0\0\0loud");
}

#[test]
fn what_is_revoked_is_taken_away_and_kept_as_it_is() {
    for rights in [Rights::READ, Rights::ALL] {
        let pair = Pair::new(Settings::new(10_000).same_user(rights));
        pair.segment.store(8, 42).unwrap();
        pair.segment.store(9_992, 43).unwrap();
        let generation = pair.remote.generation();
        assert_eq!(pair.remote.load(8).unwrap(), 42);
        pair.segment.revoke();
        assert_eq!(refused(pair.remote.load(8)), Refused::Stale);
        assert_eq!((pair.segment.load(8).unwrap(), pair.segment.load(9_992).unwrap()), (42, 43));

        pair.segment.export_again();
        assert_eq!(refused(pair.remote.load(8)), Refused::Stale);
        let calls = pair.calls();
        let again = runtime().import_segment(&pair.segment.url()).unwrap();
        assert_eq!(again.generation(), generation + 1);
        let asked = pair.calls();
        assert_eq!((again.load(8).unwrap(), again.load(9_992).unwrap()), (42, 43));
        assert_eq!((pair.calls(), asked), (asked, calls + 1));

        // The segment becomes a new generation without having been revoked.
        pair.segment.export_again();
        assert_eq!(refused(again.load(8)), Refused::Stale);
        assert_eq!(refused(again.start_read(8, 8).wait()), Refused::Stale);
    }
}

#[test]
fn inhibited_writes_are_refused_and_reads_go_on() {
    let pair = Pair::new(all_for_the_user(64));
    pair.remote.store(0, 1).unwrap();
    pair.segment.inhibit_writes(true);
    assert_eq!(refused(pair.remote.store(0, 2)), Refused::Inhibited);
    assert_eq!(refused(pair.remote.compare_and_swap(0, 1, 2)), Refused::Inhibited);
    assert_eq!(pair.remote.load(0).unwrap(), 1);
    pair.segment.inhibit_writes(false);
    pair.remote.store(0, 3).unwrap();
    assert_eq!(pair.segment.load(0).unwrap(), 3);
}

#[test]
fn a_segment_that_is_gone_is_not_read() {
    let Pair { exporter, segment, remote } = Pair::new(all_for_the_user(64));
    drop(segment);
    let why = remote.load(0).unwrap_err();
    assert_eq!(
        why.call_failed().map(|why| (why.kind(), why.ran())),
        Some((Kind::NotExported, Ran::No)),
        "{why:?}"
    );
    drop(exporter);
}

#[test]
fn what_is_posted_is_there_when_it_is_flushed_whatever_carries_it() {
    let readable = Settings::new(64).same_user(Rights::READ | Rights::WRITE);
    for settings in [all_for_the_user(64), all_for_the_user(64).notify(Notify::Asked), readable] {
        let pair = Pair::new(settings);
        for number in 1..100_u64 {
            pair.remote.post(8, &number.to_le_bytes()).unwrap();
            pair.remote.post_notify(16, &number.to_le_bytes()).unwrap();
        }
        pair.remote.flush().unwrap();
        pair.remote.start_flush().wait().unwrap();
        assert_eq!([8, 16].map(|offset| pair.segment.load(offset).unwrap()), [99, 99], "{settings:?}");
    }
}
