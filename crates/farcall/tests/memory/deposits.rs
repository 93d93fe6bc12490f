//! Deposits: reads and swaps whose results arrive in a segment of the importer's process, by each carrier.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::intercept::Interceptor;
use farcall::memory::{Memory, Notify, Refused, Remote, Rights, Segment, Settings};
use farcall::{Error, Kind, Ran, Runtime};

const SIZE: usize = 64 << 10;

/// An exported segment, an import of it, and a segment of the importer's.
struct Ends {
    way: &'static str,
    there: Segment,
    remote: Remote,
    here: Segment,
    bytes: Vec<u8>,
}

/// Counts the calls that it sees.
struct Counter(Arc<AtomicU64>);

impl Interceptor for Counter {
    fn before(&self, _: &farcall::intercept::Call<'_>) -> Result<(), farcall::CallFailed> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Returns ends that are connected by packets, by a mapping, by calls through shared memory, and by packets
/// with an interceptor at the importer.
fn each_way(notify: Notify) -> Vec<Ends> {
    let all = Rights::READ | Rights::CAS;
    let ways = [
        ("served", false, Rights::ALL, false),
        ("mapped", true, Rights::ALL, false),
        ("linked", true, all, false),
        ("intercepted", false, Rights::ALL, true),
    ];
    ways.map(|(way, shares_memory, rights, is_intercepted)| {
        let builder = || common::builder().shared_memory(shares_memory);
        let exporter = builder().build().unwrap();
        let there = exporter.export_segment("There", Settings::new(SIZE).anyone(rights)).unwrap();
        let bytes: Vec<u8> = (0..SIZE).map(|i| (i * 7 % 251) as u8).collect();
        there.write(0, &bytes).unwrap();
        let importer = match is_intercepted {
            true => builder().intercept_calls(Counter(Arc::default())),
            false => builder(),
        };
        let importer: Runtime = importer.build().unwrap();
        let remote = importer.import_segment(&there.url()).unwrap();
        let here = importer.export_segment("Here", Settings::new(2 * SIZE).notify(notify)).unwrap();
        Ends { way, there, remote, here, bytes }
    })
    .into()
}

fn local(outcome: farcall::memory::Result<()>) -> (Ran, String) {
    match outcome {
        Err(Error::CallFailed(why)) if why.kind() == Kind::Local => (why.ran(), why.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_read_arrives_at_its_own_place() {
    for Ends { way, remote, here, bytes, .. } in each_way(Notify::Never) {
        let mut at = 0;
        let place = |i: usize| (i * 97 % 5000, [0, 1, 5, 32, 400, 3000][i % 6]);
        let started: Vec<_> = (0..180)
            .map(|i| {
                let (offset, len) = place(i);
                let begin = at;
                at += len;
                (begin, remote.start_read_into(offset as u64, len, &here, begin as u64, false))
            })
            .collect();
        for (i, (begin, deposit)) in started.into_iter().enumerate().rev() {
            let (offset, len) = place(i);
            deposit.wait().unwrap();
            let mut found = vec![0; len];
            here.read(begin as u64, &mut found).unwrap();
            assert_eq!(found, bytes[offset..offset + len], "read {i}, {way}");
        }
        // The threads wait for one another's batches.
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (remote, here, bytes) = (&remote, &here, &bytes);
                scope.spawn(move || {
                    let begin = thread * 4096_u64;
                    let reads: Vec<_> = (0..64)
                        .map(|i| remote.start_read_into(i * 64, 64, here, begin + i * 64, false))
                        .collect();
                    reads.into_iter().rev().for_each(|read| read.wait().unwrap());
                    let mut found = [0; 4096];
                    here.read(begin, &mut found).unwrap();
                    assert_eq!(found[..], bytes[..4096], "thread {thread}");
                });
            }
        });
    }
}

/// Nobody waits for the reads, and their handles are gone. The notices alone say that the bytes have come.
#[test]
fn what_nobody_waits_for_arrives_too() {
    for Ends { way, remote, here, bytes, .. } in each_way(Notify::Asked) {
        for i in 0..40 {
            drop(remote.start_read_into(i * 8, 8, &here, i * 8, i % 2 == 0));
        }
        drop(remote.start_read_into(0, 4096, &here, 4096, true));
        drop(remote);
        let mut heard = [0; 41];
        while heard.iter().step_by(2).any(|notices| *notices == 0) {
            let notice = here.notice();
            assert_eq!((notice.writes, notice.from), (1, None));
            let which = if notice.offset == 4096 { 40 } else { notice.offset / 8 };
            heard[which as usize] += 1;
            let mut found = vec![0; notice.len as usize];
            here.read(notice.offset, &mut found).unwrap();
            let from = if which == 40 { 0 } else { notice.offset as usize };
            assert_eq!(found, bytes[from..from + found.len()], "{way}");
        }
        assert!(heard.iter().enumerate().all(|(i, notices)| *notices == u32::from(i % 2 == 0)), "{way}");
    }
}

#[test]
fn tasks_wait_for_deposits() {
    for Ends { way, there, remote, here, .. } in each_way(Notify::Never) {
        there.store(800, 7).unwrap();
        let reads: Vec<_> = (0..50).map(|i| remote.start_read_into(800, 8, &here, i * 8, false)).collect();
        common::block_on(async {
            for read in reads {
                read.await.unwrap();
            }
        });
        assert!((0..50).all(|i| here.load(i * 8).unwrap() == 7), "{way}");
    }
}

#[test]
fn a_swap_deposits_the_former_word() {
    for Ends { way, there, remote, here, .. } in each_way(Notify::Asked) {
        there.store(16, 0x0102_0304_0506_0708).unwrap();
        let former = 0x0102_0304_0506_0708;
        remote.start_compare_and_swap_into(16, (former, 9), &here, 24, true).wait().unwrap();
        remote.start_compare_and_swap_into(16, (former, 11), &here, 32, false).wait().unwrap();
        assert_eq!((here.load(24).unwrap(), here.load(32).unwrap()), (former, 9), "{way}");
        assert_eq!(there.load(16).unwrap(), 9);
        let notice = here.notice();
        assert_eq!((notice.offset, notice.len, here.try_notice()), (24, 8, None), "{way}");
    }
}

#[test]
fn what_cannot_be_deposited_is_refused_before_anything_is_sent() {
    let exporter = common::builder().shared_memory(false).build().unwrap();
    let there = exporter.export_segment("There", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let importer = common::builder().shared_memory(false).intercept_calls(Counter(calls.clone()));
    let importer = importer.build().unwrap();
    let remote = importer.import_segment(&there.url()).unwrap();
    let here = importer.export_segment("Here", Settings::new(100)).unwrap();
    let before = calls.load(Ordering::Relaxed);
    let read = |at| remote.start_read_into(0, 64, &here, at, false).wait();
    let swap = |at| remote.start_compare_and_swap_into(0, (0, 1), &here, at, false).wait();

    let (ran, why) = local(read(40));
    assert!(ran == Ran::No && why.contains("100 bytes") && why.contains("64 at offset 40"), "{why}");
    assert_eq!(local(read(u64::MAX)).0, Ran::No);
    assert_eq!(local(swap(96)).0, Ran::No);
    assert_eq!(swap(4), Err(Error::Declared(Refused::NotAWord)));
    let beyond = remote.start_read_into(60, 5, &here, 0, false).wait();
    assert_eq!(beyond, Err(Error::Declared(Refused::OutOfRange(64))));

    here.revoke();
    let (ran, why) = local(read(0));
    assert!(ran == Ran::No && why.contains("revoked"), "{why}");
    assert_eq!(local(swap(0)).0, Ran::No);
    assert_eq!((calls.load(Ordering::Relaxed), there.load(0).unwrap()), (before, 0), "nothing was sent");

    here.export_again();
    read(0).unwrap();
    there.revoke();
    assert_eq!(read(0), Err(Error::Declared(Refused::Stale)));
}

#[test]
fn a_dead_exporter_is_told_by_the_deposit() {
    let patience = std::time::Duration::from_millis(50);
    let builder = || common::builder().shared_memory(false).patience(patience);
    let exporter = builder().build().unwrap();
    let there = exporter.export_segment("There", Settings::new(64).anyone(Rights::ALL)).unwrap();
    let importer = builder().build().unwrap();
    let remote = importer.import_segment(&there.url()).unwrap();
    let here = importer.export_segment("Here", Settings::new(64)).unwrap();
    remote.start_read_into(0, 8, &here, 0, false).wait().unwrap();
    drop((there, exporter));
    let reads: Vec<_> = (0..8).map(|i| remote.start_read_into(0, 8, &here, i * 8, false)).collect();
    for read in reads {
        assert!(matches!(read.wait(), Err(Error::CallFailed(_) | Error::Declared(Refused::Stale))));
    }
}
