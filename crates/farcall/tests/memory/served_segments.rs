//! Segments that are exported by one runtime and imported by another, over the network.

use crate::common;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use farcall::memory::{Memory, Notify, Refused, Remote, Rights, Segment, Settings};
use farcall::{Error, Runtime};

/// Returns a runtime that shares no memory with others.
fn runtime() -> Runtime {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(false).build().unwrap()
}

#[test]
fn what_one_writes_the_other_reads() {
    let exporter = runtime();
    let segment = exporter.export_segment("Words", Settings::new(100).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    assert_eq!((remote.size(), remote.rights()), (100, Rights::ALL));

    segment.write(5, b"over there").unwrap();
    let mut bytes = [0; 10];
    remote.read(5, &mut bytes).unwrap();
    assert_eq!(&bytes, b"over there");

    remote.write(90, b"and back").unwrap();
    remote.flush().unwrap();
    let mut bytes = [0; 8];
    segment.read(90, &mut bytes).unwrap();
    assert_eq!(&bytes, b"and back");

    assert_eq!(remote.compare_and_swap(16, 0, 7).unwrap(), u64::from_le_bytes([0; 8]));
    assert_eq!((segment.load(16).unwrap(), remote.load(16).unwrap()), (7, 7));

    let (mut first, mut last) = ([0; 4], [0; 4]);
    remote.read_each(&mut [(5, &mut first), (94, &mut last)]).unwrap();
    assert_eq!((&first, &last), (b"over", b"back"));
}

#[test]
fn what_is_not_allowed_is_refused_and_said() {
    let exporter = runtime();
    let segment =
        exporter.export_segment("Guarded", Settings::new(64).anyone(Rights::READ | Rights::WRITE)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let refused = |outcome: farcall::memory::Result<()>| match outcome {
        Err(Error::Declared(refused)) => refused,
        other => panic!("{other:?}"),
    };
    let swap = |at| remote.compare_and_swap(at, 0, 1).map(drop);
    assert_eq!(refused(remote.read(60, &mut [0; 5])), Refused::OutOfRange(64));
    assert_eq!(refused(remote.write(u64::MAX, &[1])), Refused::OutOfRange(64));
    assert_eq!(refused(swap(0)), Refused::NotPermitted);

    segment.inhibit_writes(true);
    assert_eq!(refused(remote.write(0, &[1])), Refused::Inhibited);
    remote.read(0, &mut [0; 8]).unwrap();
    segment.inhibit_writes(false);
    remote.write(0, &[1]).unwrap();

    segment.export_again();
    assert_eq!(refused(remote.read(0, &mut [0; 8])), Refused::Stale);
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.read(0, &mut [0; 8]).unwrap();
    segment.revoke();
    assert_eq!(refused(remote.write(0, &[1])), Refused::Stale);
}

#[test]
fn who_asks_for_it_hears_of_writes() {
    let exporter = runtime();
    let settings = Settings::new(64).anyone(Rights::WRITE).notify(Notify::Asked);
    let segment = exporter.export_segment("Heard", settings).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.write(0, b"quiet").unwrap();
    remote.flush().unwrap();
    assert_eq!(segment.try_notice(), None);
    remote.write_notify(8, b"loud").unwrap();
    let notice = segment.notice();
    assert_eq!((notice.offset, notice.len, notice.writes), (8, 4, 1));
}

#[test]
fn accesses_that_are_started_are_checked_too() {
    let exporter = runtime();
    let segment = exporter.export_segment("Started", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let writes: Vec<_> = (0..8).map(|at| remote.start_write(at * 8, &at.to_le_bytes())).collect();
    writes.into_iter().for_each(|write| write.wait().unwrap());
    assert_eq!(&remote.start_read(24, 8).wait().unwrap()[..], 3_u64.to_le_bytes());
    assert_eq!(remote.start_compare_and_swap(56, 7, 8).wait().unwrap(), 7);
    assert_eq!(segment.load(56).unwrap(), 8);

    assert_eq!(remote.start_read(60, 5).wait(), Err(Error::Declared(Refused::OutOfRange(64))));
    assert_eq!(remote.start_write(u64::MAX, &[1]).wait(), Err(Error::Declared(Refused::OutOfRange(64))));
    assert_eq!(remote.start_compare_and_swap(1, 0, 1).wait(), Err(Error::Declared(Refused::NotAWord)));
}

#[test]
fn reads_under_way_together_each_give_their_own_bytes() {
    let exporter = runtime();
    let segment = exporter.export_segment("Many", Settings::new(8 << 10).anyone(Rights::READ)).unwrap();
    let bytes: Vec<u8> = (0..8 << 10).map(|i| (i * 7 % 251) as u8).collect();
    segment.write(0, &bytes).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let place = |i: usize| (i * 97 % 5000, [0, 1, 5, 32, 400, 3000][i % 6]);
    let pending: Vec<_> = (0..500).map(|i| remote.start_read(place(i).0 as u64, place(i).1)).collect();
    for (i, pending) in pending.into_iter().enumerate().rev() {
        let (offset, len) = place(i);
        assert_eq!(pending.wait().unwrap(), bytes[offset..offset + len], "read {i}");
    }
    // These threads wait for one another's writes.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let pending: Vec<_> =
                (0..100).map(|i| remote.start_read(place(i).0 as u64, place(i).1)).collect();
            let bytes = &bytes;
            scope.spawn(move || {
                for (i, pending) in pending.into_iter().enumerate() {
                    let (offset, len) = place(i);
                    assert_eq!(pending.wait().unwrap(), bytes[offset..offset + len], "read {i}");
                }
            });
        }
    });
    let stale: Vec<_> = (0..10).map(|i| remote.start_read(i, 1)).collect();
    drop(stale);
    segment.revoke();
    let refused = remote.start_read(0, 8).wait();
    assert!(matches!(refused, Err(Error::Declared(Refused::Stale))), "{refused:?}");
}

#[test]
fn a_task_hears_of_writes() {
    let segment =
        runtime().export_segment("Awaited", Settings::new(64).notify(Notify::Asked).anyone(Rights::WRITE));
    let segment = segment.unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    std::thread::scope(|scope| {
        let heard = scope
            .spawn(|| common::block_on(async { (segment.next_notice().await, segment.next_notice().await) }));
        remote.write_notify(8, b"one").unwrap();
        remote.write_notify(16, b"two").unwrap();
        let (one, two) = heard.join().unwrap();
        assert_eq!((one.offset, one.len, two.offset, two.len), (8, 3, 16, 3));
        assert!(one.from.is_some());
    });
}

#[test]
fn a_callback_hears_of_writes_until_the_segment_is_dropped() {
    let segment =
        runtime().export_segment("Called", Settings::new(1024).notify(Notify::Always).anyone(Rights::WRITE));
    let segment = segment.unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    segment.on_notice(move |notice| send.send(notice).unwrap()).unwrap();
    for at in 0..100 {
        remote.write(at * 8, &[1; 8]).unwrap();
    }
    remote.flush().unwrap();
    let (mut writes, mut end) = (0, 0);
    while writes < 100 {
        let notice = receive.recv().unwrap();
        writes += notice.writes;
        assert_eq!(notice.offset, end);
        end = notice.offset + notice.len;
    }
    assert_eq!((writes, end), (100, 800));
    drop(segment);
    assert!(receive.recv().is_err());
}

#[test]
fn notices_that_nobody_fetches_become_one() {
    let segment =
        runtime().export_segment("Unheard", Settings::new(4096).notify(Notify::Always).anyone(Rights::WRITE));
    let segment = segment.unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    for at in 0..500 {
        remote.write(at * 8, &[1; 8]).unwrap();
    }
    remote.flush().unwrap();
    let notices: Vec<_> = std::iter::from_fn(|| segment.try_notice()).collect();
    assert!(notices.len() <= 64, "{}", notices.len());
    assert_eq!(notices.iter().map(|notice| notice.writes).sum::<u64>(), 500);
    assert_eq!(notices.last().map(|last| last.offset + last.len), Some(4000));
}

#[test]
fn more_than_one_access_may_is_accessed_in_parts() {
    let exporter = runtime();
    let size = (16 << 20) + 1000;
    let segment = exporter.export_segment("Long", Settings::new(size).anyone(Rights::ALL)).unwrap();
    segment.write((16 << 20) - 4, b"over the edge").unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let mut bytes = vec![1; size];
    remote.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes[(16 << 20) - 4..][..13], b"over the edge");
    assert!(bytes[..1000].iter().all(|byte| *byte == 0));
    bytes.fill(7);
    remote.write(1, &bytes[1..]).unwrap();
    assert_eq!(
        [0, size - 8].map(|at| segment.load(at as u64).unwrap().to_le_bytes()),
        [[0, 7, 7, 7, 7, 7, 7, 7], [7; 8]]
    );
    let too_large =
        |why: Error<Refused>| matches!(why, Error::CallFailed(why) if why.kind() == farcall::Kind::TooLarge);
    assert!(too_large(remote.start_read(0, size).wait().unwrap_err()));
    assert!(too_large(remote.start_write(0, &bytes).wait().unwrap_err()));
}

#[test]
fn posted_writes_are_done_in_order_when_they_are_flushed() {
    let exporter = runtime();
    let segment = exporter.export_segment("Posted", Settings::new(64 << 10).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.flush().unwrap();
    for number in 0..1_000_u64 {
        remote.post(number * 8, &number.to_le_bytes()).unwrap();
        remote.post(8_000, &number.to_le_bytes()).unwrap();
    }
    remote.flush().unwrap();
    assert!((0..1_000).all(|number| segment.load(number * 8).unwrap() == number));
    assert_eq!(segment.load(8_000).unwrap(), 999);

    // Long writes work too, and later writes keep their order behind them.
    remote.post(16_000, &[7; 20_000]).unwrap();
    remote.post(16_000, &[8; 8]).unwrap();
    assert_eq!(
        remote.compare_and_swap(16_000, u64::from_le_bytes([8; 8]), 9).unwrap(),
        u64::from_le_bytes([8; 8])
    );
    remote.post(16_000, &[1; 8]).unwrap();
    remote.write(16_000, &[2; 8]).unwrap();
    assert_eq!(segment.load(16_000).unwrap(), u64::from_le_bytes([2; 8]));

    remote.post(24, &7_u64.to_le_bytes()).unwrap();
    remote.start_flush().wait().unwrap();
    assert_eq!(segment.load(24).unwrap(), 7);
    remote.start_flush().wait().unwrap();
}

#[test]
fn behind_a_posted_write_that_was_refused_nothing_is_written() {
    let exporter = runtime();
    let segment = exporter.export_segment("Refused", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.post(0, &1_u64.to_le_bytes()).unwrap();
    remote.flush().unwrap();
    segment.inhibit_writes(true);
    remote.post(0, &2_u64.to_le_bytes()).unwrap();
    assert_eq!(remote.start_flush().wait(), Err(Error::Declared(Refused::Inhibited)));
    segment.inhibit_writes(false);
    let refused = Err(Error::Declared(Refused::Inhibited));
    assert_eq!(remote.post(8, &3_u64.to_le_bytes()), refused);
    assert_eq!((remote.flush(), remote.write(8, &[3; 8])), (refused.clone(), refused));
    assert_eq!((segment.load(0).unwrap(), segment.load(8).unwrap()), (1, 0));

    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.post(0, &4_u64.to_le_bytes()).unwrap();
    segment.export_again();
    let flushed = remote.flush();
    assert_eq!(flushed, Err(Error::Declared(Refused::Stale)));
    assert_eq!(remote.post(0, &[0; 8]), Err(Error::Declared(Refused::Stale)));
}

#[test]
fn what_is_posted_can_be_heard_of() {
    let exporter = runtime();
    let settings = Settings::new(64).anyone(Rights::WRITE).notify(Notify::Asked);
    let segment = exporter.export_segment("Heard", settings).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.post(0, b"quiet").unwrap();
    remote.post_notify(8, b"loud").unwrap();
    let notice = segment.notice();
    assert_eq!((notice.offset, notice.len, notice.writes), (8, 4, 1));
}

#[test]
fn nothing_is_written_once_a_segment_was_taken_away() {
    let (exporter, importer) = (runtime(), runtime());
    let segment = exporter.export_segment("Taken", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let take: [fn(&farcall::memory::Segment); 3] =
        [|one| one.export_again(), |one| one.inhibit_writes(true), |one| one.revoke()];
    for round in 0..300 {
        segment.inhibit_writes(false);
        segment.export_again();
        let (before, remote) = (segment.load(0).unwrap(), importer.import_segment(&segment.url()).unwrap());
        let writer = std::thread::spawn(move || {
            (1..).find_map(|number| remote.store(0, before + number).err()).unwrap()
        });
        while segment.load(0).unwrap() == before {
            std::thread::yield_now();
        }
        take[round % 3](&segment);
        let taken = segment.load(0).unwrap();
        assert!(matches!(writer.join().unwrap(), Error::Declared(_)));
        assert_eq!(segment.load(0).unwrap(), taken, "round {round}");
    }
}

#[test]
fn what_is_known_to_be_over_is_refused_without_asking() {
    let exporter = runtime();
    let segment = exporter.export_segment("Over", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let other = remote.clone();
    segment.export_again();
    assert_eq!(remote.load(0), Err(Error::Declared(Refused::Stale)));
    let accesses = || exporter.stats().exports[0].accesses;
    let before = accesses();
    assert_eq!(
        (other.store(0, 1), other.load(0)),
        (Err(Error::Declared(Refused::Stale)), Err(Error::Declared(Refused::Stale)))
    );
    assert_eq!(accesses(), before);
}

#[test]
fn ranges_are_written_in_their_order_or_not_at_all() {
    let exporter = runtime();
    let settings = Settings::new(3 << 20).anyone(Rights::READ | Rights::WRITE).notify(Notify::Asked);
    let segment = exporter.export_segment("Ranges", settings).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    remote.write_each(&[(0, &[1; 8]), (4, &[2; 8]), (2, &[3; 1])], true).unwrap();
    let mut bytes = [0; 12];
    segment.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 1, 3, 1, 2, 2, 2, 2, 2, 2, 2, 2]);
    let notice = segment.notice();
    assert_eq!((notice.offset, notice.len, notice.writes), (2, 1, 1));
    let refused = remote.write_each(&[(0, &[9; 8]), (3 << 20, &[9])], true);
    assert_eq!(refused, Err(Error::Declared(Refused::OutOfRange(3 << 20))));
    remote.write_each(&[], true).unwrap();
    assert_eq!(
        (segment.load(0).unwrap().to_le_bytes(), segment.try_notice()),
        ([1, 1, 3, 1, 2, 2, 2, 2], None)
    );

    // These are more bytes than one access may write.
    let long = vec![7; 1 << 20];
    remote.write_each(&[(0, &long), (1, &long), (1 << 20, &[8; 8])], true).unwrap();
    assert_eq!([0, 1 << 20].map(|at| segment.load(at).unwrap().to_le_bytes()), [[7; 8], [8; 8]]);
    assert_eq!(segment.notice().offset, 1 << 20);
}

/// A waker that takes a segment away.
struct Withdraws(Mutex<Option<Segment>>, Mutex<Sender<()>>);

impl Wake for Withdraws {
    fn wake(self: Arc<Self>) {
        if let Some(segment) = self.0.lock().unwrap().take() {
            segment.revoke();
            drop(segment);
        }
        self.1.lock().unwrap().send(()).unwrap();
        panic!("and fails");
    }
}

#[test]
fn who_is_woken_may_take_the_segment_away_or_panic() {
    let write: fn(&Remote) = |remote| remote.write_notify(0, b"loud").unwrap();
    let swap: fn(&Remote) = |remote| assert_eq!(remote.compare_and_swap(0, 0, 1).unwrap(), 0);
    let start: fn(&Remote) = |remote| remote.start_write(0, b"loud").wait().unwrap();
    let post: fn(&Remote) = |remote| remote.post_notify(0, b"loud").unwrap();
    let exporter = runtime();
    let other = exporter.export_segment("Other", Settings::new(8).anyone(Rights::READ)).unwrap();
    let reads = runtime().import_segment(&other.url()).unwrap();
    for (which, access) in [write, swap, start, post].into_iter().enumerate() {
        let settings = Settings::new(64).anyone(Rights::ALL).notify(Notify::Always);
        let segment = exporter.export_segment(&format!("Woken{which}"), settings).unwrap();
        let remote = runtime().import_segment(&segment.url()).unwrap();
        let (sender, woken) = channel();
        let withdraws = Arc::new(Withdraws(Mutex::new(None), Mutex::new(sender)));
        {
            let waker = Waker::from(withdraws.clone());
            assert!(pin!(segment.next_notice()).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        *withdraws.0.lock().unwrap() = Some(segment);
        access(&remote);
        woken.recv().unwrap();
        assert!(remote.read(0, &mut [0; 8]).is_err());
        reads.read(0, &mut [0; 8]).unwrap();
    }
}

#[farcall::interface]
trait Doubling {
    fn twice(&self, n: u32) -> farcall::Result<u32>;
}

struct Doubler;

impl Doubling for Doubler {
    fn twice(&self, n: u32) -> farcall::Result<u32> {
        Ok(2 * n)
    }
}

#[test]
fn many_long_accesses_that_come_together_are_all_done_and_calls_beside_them_too() {
    const LONG: usize = 1 << 20;
    let exporter = Runtime::builder()
        .registry(farcall::names::Memory::new())
        .shared_memory(false)
        .workers(1)
        .threads(2)
        .build()
        .unwrap();
    let segment = exporter.export_segment("Long", Settings::new(LONG).anyone(Rights::ALL)).unwrap();
    segment.write(LONG as u64 - 8, &[7; 8]).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let exported = exporter.export::<dyn Doubling>("Doubling", Arc::new(Doubler)).unwrap();
    let doubling: DoublingClient = runtime().import::<dyn Doubling>(&exported.url()).unwrap();
    let reads: Vec<_> = (0..48).map(|_| remote.start_read(0, LONG)).collect();
    let swaps: Vec<_> = (0..64).map(|at| remote.start_compare_and_swap(at * 8, 0, at + 1)).collect();
    let calls: Vec<_> = (0..64).map(|n| doubling.start().twice(n)).collect();
    for (n, call) in (0..64).zip(calls) {
        assert_eq!(call.wait(), Ok(2 * n));
    }
    for (at, swap) in (0..64).zip(swaps) {
        assert_eq!(swap.wait().unwrap(), 0);
        assert_eq!(segment.load(at * 8).unwrap(), at + 1);
    }
    for read in reads {
        let bytes = read.wait().unwrap();
        assert_eq!((bytes.len(), &bytes[LONG - 8..]), (LONG, &[7; 8][..]));
    }
}

#[test]
fn ranges_that_are_too_much_for_one_access_are_done_by_several() {
    let exporter = runtime();
    let segment = exporter.export_segment("Ranges", Settings::new(8 << 10).anyone(Rights::ALL)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let ranges: Vec<(u64, &[u8])> = (0..8 << 10).map(|at| (at, &[9][..])).collect();
    remote.write_each(&ranges, false).unwrap();
    let mut bytes = vec![0; 8 << 10];
    let mut into: Vec<(u64, &mut [u8])> = (0..).zip(bytes.chunks_mut(1)).collect();
    remote.read_each(&mut into).unwrap();
    assert_eq!(bytes, vec![9; 8 << 10]);
}
