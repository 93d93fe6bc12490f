//! Words, records and rings in segments of the same process, served, and mapped; and the record in all orders
//! that the memory model allows.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farcall::memory::{
    Memory, Record, Refused, Result, Rights, Ring, Segment, Settings, Stuck, Unread, Word,
};
use farcall::{Error, Runtime};

fn runtime(shares_memory: bool) -> Runtime {
    common::builder().shared_memory(shares_memory).build().unwrap()
}

fn refused<T>(outcome: Result<T>) -> Refused {
    match outcome {
        Err(Error::Declared(refused)) => refused,
        Err(Error::CallFailed(why)) => panic!("{why}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// Returns a segment and an import of it, once by packets and once by mapping.
fn each_way(size: usize) -> Vec<(&'static str, Segment, Arc<dyn Memory>)> {
    [("served", false), ("mapped", true)]
        .map(|(way, shares_memory)| {
            let settings = Settings::new(size).anyone(Rights::ALL);
            let segment = runtime(shares_memory).export_segment("Typed", settings).unwrap();
            let remote = runtime(shares_memory).import_segment(&segment.url()).unwrap();
            (way, segment, Arc::new(remote) as Arc<dyn Memory>)
        })
        .into()
}

#[test]
fn a_word_is_counted_up_by_all() {
    for (way, segment, remote) in each_way(64) {
        std::thread::scope(|scope| {
            for memory in [&segment as &dyn Memory, &remote] {
                scope.spawn(move || {
                    let word = Word::new(memory, 8).unwrap();
                    (0..500).for_each(|_| assert!(word.fetch_add(3).unwrap() < 3000));
                });
            }
        });
        let word = Word::new(&remote, 8).unwrap();
        assert_eq!(word.load().unwrap(), 3000, "{way}");
        assert_eq!(word.swap(1).unwrap(), 3000);
        assert_eq!(word.fetch_update(|old| (old > 1).then_some(old - 1)).unwrap(), 1);
        assert_eq!(refused(Word::new(&remote, 12)), Refused::NotAWord);
        assert_eq!(refused(Word::new(&remote, 64)), Refused::OutOfRange(64));
    }
}

#[test]
fn nobody_reads_half_a_record() {
    const LEN: usize = 203;
    for (way, segment, remote) in each_way(8 + Record::<()>::size(LEN)) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let record = Record::new(&remote, 8, LEN).unwrap();
                let (mut bytes, mut last, mut seen) = ([0; LEN], 0, 0);
                while !over.load(Ordering::Relaxed) || seen == 0 {
                    let version = match record.read(&mut bytes) {
                        Ok(version) => version,
                        // The writer may have been stopped in the middle.
                        Err(Error::Declared(Unread::Torn)) => continue,
                        Err(why) => panic!("{why}"),
                    };
                    assert!(version >= last, "{way}: {version} after {last}");
                    assert!(bytes.iter().all(|byte| *byte == version as u8), "{way}: {version}: {bytes:?}");
                    (last, seen) = (version, seen + 1);
                }
                seen
            });
            let mut writer = Record::new(&segment, 8, LEN).unwrap().writer().unwrap();
            for version in 1..=20_000_u64 {
                writer.write(&[version as u8; LEN]).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
    }
}

#[test]
fn a_record_whose_writer_died_in_the_middle_is_torn_until_the_next_one_writes_it() {
    for (_, segment, remote) in each_way(64) {
        let record = Record::new(&remote, 0, 16).unwrap();
        record.writer().unwrap().write(&[1; 16]).unwrap();
        remote.flush().unwrap();
        // This is a part of the next version.
        segment.store(24, 2).unwrap();
        segment.store(8, u64::MAX).unwrap();
        assert_eq!(record.read(&mut [0; 16]), Err(Error::Declared(Unread::Torn)));
        let mut writer = record.writer().unwrap();
        writer.write(&[3; 16]).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(record.read(&mut bytes), Ok(3));
        assert_eq!((bytes, writer.version()), ([3; 16], 3));

        assert_eq!(refused(Record::new(&remote, 4, 16)), Refused::NotAWord);
        assert_eq!(refused(Record::new(&remote, 0, 49)), Refused::OutOfRange(64));
        assert_eq!(refused(Record::new(&remote, 0, usize::MAX)), Refused::OutOfRange(64));
        segment.revoke();
        assert_eq!(record.read(&mut bytes), Err(Error::Declared(Unread::Refused(Refused::Stale))));
    }
}

#[test]
fn messages_come_out_as_they_were_put_in() {
    let ring = Ring::new(8, 5, 100);
    for (way, segment, remote) in each_way(8 + ring.size() as usize) {
        let message = |number: u32| vec![number as u8; (number * 7 % 101) as usize];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut producer = ring.producer(&remote).unwrap();
                for number in 0..2_000 {
                    while !producer.put(&message(number)).unwrap() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut consumer = ring.consumer(&segment).unwrap();
            let mut taken = Vec::new();
            for number in 0..2_000 {
                while !consumer.take(&mut taken).unwrap() {
                    std::thread::yield_now();
                }
                assert_eq!(taken, message(number), "{way}: {number}");
            }
            assert!(!consumer.take(&mut taken).unwrap());
        });
    }
}

#[test]
fn a_ring_believes_only_what_is_possible() {
    let ring = Ring::new(0, 2, 16);
    let (_, segment, remote) = each_way(ring.size() as usize).remove(0);
    let mut producer = ring.producer(&remote).unwrap();
    let mut consumer = ring.consumer(&segment).unwrap();
    let mut taken = Vec::new();
    assert_eq!(producer.put(&[0; 17]), Err(Error::Declared(Stuck::TooLong(16))));
    assert_eq!(
        (producer.put(b"one"), producer.put(b"two"), producer.put(b"three")),
        (Ok(true), Ok(true), Ok(false))
    );
    remote.flush().unwrap();
    segment.store(128, 17).unwrap();
    assert_eq!(consumer.take(&mut taken), Err(Error::Declared(Stuck::Broken)));
    segment.store(128, 3).unwrap();
    assert_eq!((consumer.take(&mut taken), &taken[..]), (Ok(true), &b"one"[..]));
    assert_eq!((consumer.take(&mut taken), &taken[..]), (Ok(true), &b"two"[..]));
    segment.store(0, 2 + 3).unwrap();
    assert_eq!(consumer.take(&mut taken), Err(Error::Declared(Stuck::Broken)));
    segment.store(64, 7).unwrap();
    assert_eq!(producer.put(b"four"), Err(Error::Declared(Stuck::Broken)));
    assert!(matches!(Ring::new(8, 2, 16).producer(&remote), Err(Error::Declared(Refused::OutOfRange(_)))));
}

/// Words of loom's, accessed like a segment's.
struct Modelled(Vec<loom::sync::atomic::AtomicU64>);

impl Memory for Modelled {
    fn size(&self) -> u64 {
        self.0.len() as u64 * 8
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        for (bytes, word) in into.chunks_mut(8).zip(&self.0[offset as usize / 8..]) {
            bytes.copy_from_slice(&word.load(Ordering::Acquire).to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        for (bytes, word) in bytes.chunks(8).zip(&self.0[offset as usize / 8..]) {
            word.store(u64::from_le_bytes(bytes.try_into().unwrap()), Ordering::Release);
        }
        Ok(())
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes)
    }

    fn compare_and_swap(&self, _: u64, _: u64, _: u64) -> Result<u64> {
        unreachable!("a record needs none")
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn in_no_order_of_events_is_half_a_record_read() {
    loom::model(|| {
        let words = (0..3).map(|_| loom::sync::atomic::AtomicU64::new(0)).collect();
        let memory = Arc::new(Modelled(words));
        let writer = {
            let memory = memory.clone();
            loom::thread::spawn(move || {
                let mut writer = Record::new(&*memory, 0, 8).unwrap().writer().unwrap();
                writer.write(&[1; 8]).unwrap();
                writer.write(&[2; 8]).unwrap();
            })
        };
        let mut bytes = [0; 8];
        match Record::new(&*memory, 0, 8).unwrap().tries(2).read(&mut bytes) {
            Ok(version) => assert_eq!(bytes, [version as u8; 8]),
            Err(why) => assert_eq!(why, Error::Declared(Unread::Torn)),
        }
        writer.join().unwrap();
    });
}
