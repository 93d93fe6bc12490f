//! Accesses of more than 1 MiB, which an importer makes in parts, through each carrier.

use farcall::memory::{Memory, Notice, Notify, Refused, Remote, Rights, Ring, Segment, Settings};
use farcall::{CallFailed, Error, Kind, Ran, Runtime};

const MIB: usize = 1 << 20;

/// Returns a runtime that shares memory with others, if it may.
fn runtime(shares: bool) -> Runtime {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(shares).build().unwrap()
}

/// Exports a segment, and imports it twice: over the network, and by whatever is best on this machine.
fn exported(settings: Settings) -> (Segment, [Remote; 2]) {
    let segment = runtime(true).export_segment("Long", settings).unwrap();
    let remotes = [false, true].map(|shares| runtime(shares).import_segment(&segment.url()).unwrap());
    (segment, remotes)
}

fn notices(segment: &Segment) -> Vec<(u64, u64, u64)> {
    let all = std::iter::from_fn(|| segment.try_notice());
    all.map(|Notice { offset, len, writes, .. }| (offset, len, writes)).collect()
}

#[test]
fn a_long_write_gives_one_notice_of_all_its_bytes_when_the_last_is_there() {
    const LEN: usize = 3 * MIB + 5;
    let (segment, remotes) = exported(Settings::new(4 * MIB).anyone(Rights::ALL).notify(Notify::Asked));
    for (round, remote) in (1..).zip(&remotes) {
        let bytes = vec![round; LEN];
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| remote.write_notify(8, &bytes));
            let notice = segment.notice();
            let mut last = [0];
            segment.read(8 + LEN as u64 - 1, &mut last).unwrap();
            assert_eq!((notice.offset, notice.len, notice.writes), (8, LEN as u64, 1));
            assert_eq!(last, [round], "the last byte is there when the notice is");
            writes.join().unwrap().unwrap();
        });
        assert_eq!(notices(&segment), []);
        remote.post_notify(16, &bytes[..2 * MIB]).unwrap();
        remote.flush().unwrap();
        assert_eq!(notices(&segment), [(16, 2 * MIB as u64, 1)]);
        remote.write_each(&[(0, &bytes[..MIB]), (24, &bytes[..2 * MIB])], true).unwrap();
        assert_eq!(notices(&segment), [(24, 2 * MIB as u64, 1)]);
    }
}

#[test]
fn an_exporter_that_hears_of_every_access_hears_of_each_part_and_then_of_the_whole() {
    let (segment, remotes) = exported(Settings::new(4 * MIB).anyone(Rights::ALL).notify(Notify::Always));
    for remote in &remotes {
        remote.write_notify(8, &vec![1; 2 * MIB + 8]).unwrap();
        let (part, all) = (MIB as u64, 2 * MIB as u64 + 8);
        assert_eq!(notices(&segment), [(8, part, 1), (8 + part, part, 1), (8, all, 1)]);
    }
}

#[test]
fn a_started_access_of_more_than_a_mebibyte_is_refused_whatever_carries_it() {
    let (segment, remotes) = exported(Settings::new(2 * MIB).anyone(Rights::ALL));
    let here = runtime(false).export_segment("Here", Settings::new(2 * MIB)).unwrap();
    let too_large = |why: Error<Refused>| {
        assert!(
            matches!(&why, Error::CallFailed(why) if (why.kind(), why.ran()) == (Kind::TooLarge, Ran::No)),
            "{why:?}"
        );
    };
    for remote in &remotes {
        let bytes = vec![7; MIB + 1];
        too_large(remote.start_read(0, MIB + 1).wait().map(drop).unwrap_err());
        too_large(remote.start_read_into(0, MIB + 1, &here, 0, false).wait().unwrap_err());
        too_large(remote.start_write(0, &bytes).wait().unwrap_err());
        assert_eq!(segment.load(0).unwrap(), 0);
        assert_eq!(remote.start_read(0, MIB).wait().unwrap().len(), MIB);
        remote.start_read_into(0, MIB, &here, 0, false).wait().unwrap();
        remote.start_write(MIB as u64, &bytes[..MIB]).wait().unwrap();
        segment.store(MIB as u64, 0).unwrap();
    }
}

/// "Refused" would say that nothing was written.
#[test]
fn a_long_write_that_ends_half_way_may_have_had_an_effect() {
    let (segment, [remote, _]) = exported(Settings::new(40 * MIB).anyone(Rights::ALL));
    let bytes = vec![1; 40 * MIB];
    for each in [false, true] {
        segment.store(0, 0).unwrap();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| match each {
                false => remote.write(0, &bytes),
                true => remote.write_each(&[(0, &bytes[..8]), (8, &bytes[8..])], false),
            });
            while segment.load(0).unwrap() == 0 && !writes.is_finished() {
                std::thread::yield_now();
            }
            segment.inhibit_writes(true);
            match writes.join().unwrap() {
                Err(Error::CallFailed(why)) => assert_eq!(CallFailed::ran(&why), Ran::Maybe, "{why}"),
                ended => assert_eq!(ended, Ok(()), "a refusal says that nothing was written"),
            }
        });
        segment.inhibit_writes(false);
    }
}

#[test]
fn a_callback_that_panics_hears_of_the_next_write() {
    let (segment, [remote, _]) = exported(Settings::new(64).anyone(Rights::ALL).notify(Notify::Asked));
    let (send, receive) = std::sync::mpsc::channel();
    let heard = move |notice: Notice| {
        send.send(notice.offset).unwrap();
        assert_ne!(notice.offset, 8, "as the test wants");
    };
    segment.on_notice(heard).unwrap();
    for offset in [8, 16, 8, 24] {
        remote.write_notify(offset, b"word").unwrap();
        assert_eq!(receive.recv(), Ok(offset));
    }
}

#[test]
fn a_ring_that_no_memory_can_hold_is_refused() {
    let (segment, [remote, _]) = exported(Settings::new(4096).anyone(Rights::ALL));
    for (slots, most) in [(u32::MAX, u32::MAX), (1 << 31, u32::MAX), (u32::MAX, 1), (1 << 29, u32::MAX - 7)] {
        let ring = Ring::new(0, slots, most);
        assert!(ring.size() >= u64::from(slots) * 16, "{ring:?} takes {} bytes", ring.size());
        assert!(matches!(ring.producer(&segment), Err(Error::Declared(Refused::OutOfRange(4096)))));
        assert!(matches!(ring.consumer(&remote), Err(Error::Declared(Refused::OutOfRange(4096)))));
    }
    assert!(Ring::new(u64::MAX - 7, 1, 1).producer(&segment).is_err());
}
