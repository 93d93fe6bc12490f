//! Mapped memory whose peers die or write garbage, or from which the exporter takes the memory away.
//!
//! The test program runs itself again as the other processes. No test waits for time to pass.
//!
//! This is a binary of its own because it counts the descriptors and the mappings of the whole process.
#![cfg(target_os = "linux")]

mod common;
#[path = "common/open_resources.rs"]
mod open_resources;
#[path = "common/other.rs"]
mod other;

use std::env;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use farcall::memory::{Memory, Record, Refused, Remote, Rights, Ring, Segment, Settings, Unread};
use farcall::names::Registry;
use farcall::{Error, Kind, Ran, Runtime};
use farcall_shm::{AccessRights, MappedFile, Received, UnixChannel, Wants, punch_hole};
use open_resources::OpenResources;
use other::{Other, ROLE, URL};

fn runtime() -> Runtime {
    common::builder().shared_memory(true).build().unwrap()
}

#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = env::var(ROLE) else { return };
    let url = env::var(URL).unwrap();
    match &role[..] {
        "exporter" => {
            let segment =
                runtime().export_segment("Mortal", Settings::new(4096).same_user(Rights::ALL)).unwrap();
            segment.store(8, 42).unwrap();
            println!("at {}", segment.url());
            rest(&segment);
        }
        "scribbler" => {
            let remote = runtime().import_segment(&url).unwrap();
            let mut chance = 1_u64;
            for count in 0_u64.. {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(count);
                if remote.store(chance % 512 * 8, chance).is_err() {
                    break;
                }
                if count == 10_000 {
                    println!("at work");
                }
            }
            println!("it has ended");
            rest(&remote);
        }
        "writer" => {
            let remote = runtime().import_segment(&url).unwrap();
            let record = Record::new(&remote, 0, 1000).unwrap();
            record.writer().unwrap().write(&[1; 1000]).unwrap();
            // This leaves a record half written: the word behind it, and a part of it.
            remote.store(8 + 1000, 2).unwrap();
            remote.write(8, &[2; 500]).unwrap();
            println!("at the middle");
            rest(&remote);
        }
        "producer" => {
            let remote = runtime().import_segment(&url).unwrap();
            let mut producer = RING.producer(&remote).unwrap();
            let mut writer = Record::new(&remote, RING.size(), 200).unwrap().writer().unwrap();
            for number in 0..MESSAGES {
                writer.write(&[number as u8; 200]).unwrap();
                while !producer.put(&number.to_le_bytes()).unwrap() {
                    std::thread::yield_now();
                }
            }
            println!("all are put");
            rest(&remote);
        }
        "tidy" => {
            let (segment, importer) = (taken_twice(), runtime());
            // Resources that are made once stay: sockets, threads, a connection for calls.
            drop(importer.import_segment(&segment.url()).unwrap());
            let before = OpenResources::now();
            for _ in 0..20 {
                let remotes: Vec<_> =
                    (0..5).map(|_| importer.import_segment(&segment.url()).unwrap()).collect();
                assert!(OpenResources::now().mappings > before.mappings);
                segment.export_again();
                assert!(remotes.iter().all(|remote| remote.load(0).is_err()));
            }
            // The exporter's host notices it at once.
            OpenResources::wait_until_no_more_than(&before);
            println!("nothing is left");
            rest(&segment);
        }
        other => panic!("{other}"),
    }
}

/// Returns a segment that was mapped and exported again before.
fn taken_twice() -> Segment {
    let segment = runtime().export_segment("Tidy", Settings::new(4096).same_user(Rights::ALL)).unwrap();
    runtime().import_segment(&segment.url()).unwrap();
    segment.export_again();
    segment
}

static RING: LazyLock<Ring> = LazyLock::new(|| Ring::new(0, 7, 16));
const MESSAGES: u64 = 5_000;

#[test]
fn a_ring_and_a_record_go_from_process_to_process() {
    let size = RING.size() as usize + Record::<()>::size(200);
    let segment = runtime().export_segment("Between", Settings::new(size).same_user(Rights::ALL)).unwrap();
    let mut producer = Other::start(module_path!(), "producer", &segment.url());
    let mut consumer = RING.consumer(&segment).unwrap();
    let record = Record::new(&segment, RING.size(), 200).unwrap();
    let (mut taken, mut bytes) = (Vec::new(), [0; 200]);
    for number in 0..MESSAGES {
        while !consumer.take(&mut taken).unwrap() {
            std::thread::yield_now();
        }
        assert_eq!(taken, number.to_le_bytes());
        // The record was written before the message was put, and perhaps again since then.
        match record.read(&mut bytes) {
            Ok(version) => {
                assert!(version > number && bytes == [(version - 1) as u8; 200], "{version} at {number}")
            }
            // The writer was killed in the middle of a write.
            Err(why) => assert_eq!(why, Error::Declared(Unread::Torn)),
        }
    }
    producer.hear("all are put");
    producer.kill();
}

#[test]
fn nothing_is_left_of_what_was_mapped() {
    let mut tidy = Other::start(module_path!(), "tidy", "");
    tidy.hear("nothing is left");
    tidy.kill();
}

/// Waits until the process is killed, or the test ends.
fn rest<T>(_kept: &T) {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn an_exporter_that_dies_while_it_is_mapped_is_unreachable() {
    let mut exporter = Other::start(module_path!(), "exporter", "");
    let url = exporter.hear("at ");
    let remote = runtime().import_segment(&url).unwrap();
    assert_eq!(remote.load(8).unwrap(), 42);
    exporter.kill();
    // The memory can be read until the system has reported the exporter's death.
    let why = loop {
        match remote.load(8) {
            Ok(word) => assert_eq!(word, 42),
            Err(why) => break why,
        }
        std::thread::yield_now();
    };
    let is_unreachable = |why: Error<Refused>| {
        let why = why.call_failed().expect("it is not refused").clone();
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}");
    };
    is_unreachable(why);
    is_unreachable(remote.store(8, 1).unwrap_err());
    is_unreachable(remote.write_bytes(8, &[1; 1000]).unwrap_err());
    is_unreachable(remote.compare_and_swap(8, 42, 1).unwrap_err());
    is_unreachable(remote.start_read(8, 8).wait().unwrap_err());
    is_unreachable(remote.start_write(8, &[1]).wait().unwrap_err());
}

#[test]
fn an_importer_that_scribbles_harms_what_it_may_write_and_nothing_else() {
    let exporter = runtime();
    let settings = |rights| Settings::new(4096).same_user(rights);
    let segment = exporter.export_segment("Scribbled", settings(Rights::ALL)).unwrap();
    let other = exporter.export_segment("Untouched", settings(Rights::READ)).unwrap();
    other.store(8, 42).unwrap();
    let mut scribbler = Other::start(module_path!(), "scribbler", &segment.url());
    scribbler.hear("at work");
    let (remote, other_remote) =
        (runtime().import_segment(&segment.url()).unwrap(), runtime().import_segment(&other.url()).unwrap());
    for count in 0..10_000 {
        remote.load(count % 512 * 8).unwrap();
        segment.load(count % 512 * 8).unwrap();
    }
    assert_eq!((other.load(8), other_remote.load(8)), (Ok(42), Ok(42)));
    // Taking the memory away takes it from this importer too.
    segment.revoke();
    segment.write(0, &[7; 4096]).unwrap();
    scribbler.hear("it has ended");
    let mut bytes = [0; 4096];
    segment.read(0, &mut bytes).unwrap();
    assert!(bytes == [7; 4096]);
    scribbler.kill();
}

/// Returns the files that the exporter passes to an importer made by hand: the control word's, and the
/// memory's.
fn passed(exporter: &Runtime, hello: impl FnOnce(u64) -> Vec<u8>) -> Option<(UnixChannel, OwnedFd, OwnedFd)> {
    let entry = exporter.registry().instances(&"Memory".parse().unwrap()).unwrap().remove(0);
    let wire = UnixChannel::connect(exporter.address().unwrap()).unwrap();
    assert!(wire.send(&hello(entry.export), None));
    let receive = || loop {
        wire.wait(Duration::from_secs(60));
        match wire.receive(&mut [0; 8]) {
            Received::Files => return wire.receive_file(&mut [0; 8]).map(|(_, file)| file),
            Received::Nothing => {}
            Received::Message(_) | Received::Gone => return None,
        }
    };
    let (control, data) = (receive()?, receive()?);
    Some((wire, control, data))
}

fn hello(export: u64, generation: u64) -> Vec<u8> {
    common::meeting::hello(export, Wants::Segment(generation))
}

/// Tries everything that a descriptor may allow.
fn tamper(file: &OwnedFd) {
    let again = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .unwrap();
    for file in [file.try_clone().unwrap(), again.into()] {
        punch_hole(&file, 0..4096);
        if let Ok(area) = MappedFile::open(&file, 4096, AccessRights::Write) {
            area.words().unwrap().iter().for_each(|word| word.store(u64::MAX, Ordering::SeqCst));
        }
        let file = std::fs::File::from(file);
        let _ = file.set_len(0);
        let _ = file.set_len(1 << 20);
        let _ = file.write_at(&[0xff; 64], 0);
    }
}

#[test]
fn whoever_has_the_files_can_write_only_what_he_may() {
    for rights in [Rights::READ, Rights::ALL] {
        let exporter = runtime();
        let segment = exporter.export_segment("Guarded", Settings::new(4096).same_user(rights)).unwrap();
        let remote = runtime().import_segment(&segment.url()).unwrap();
        segment.store(8, 42).unwrap();
        let (wire, control, data) = passed(&exporter, |export| hello(export, remote.generation())).unwrap();
        tamper(&control);
        tamper(&data);
        let word = if rights == Rights::READ { 42 } else { u64::MAX };
        assert_eq!((remote.load(8), segment.load(8)), (Ok(word), Ok(word)));
        segment.revoke();
        segment.store(8, 43).unwrap();
        tamper(&control);
        tamper(&data);
        assert_eq!((remote.load(8), segment.load(8)), (Err(Error::Declared(Refused::Stale)), Ok(43)));
        drop(wire);
    }
}

#[test]
fn who_asks_for_what_is_not_offered_gets_nothing() {
    let exporter = runtime();
    let segment = exporter.export_segment("Asked", Settings::new(4096).same_user(Rights::ALL)).unwrap();
    let generation = runtime().import_segment(&segment.url()).unwrap().generation();
    let get = |hello: &dyn Fn(u64) -> Vec<u8>| passed(&exporter, hello).is_some();
    assert!(get(&|export| hello(export, generation)));
    assert!(!get(&|export| hello(export, generation + 1)));
    assert!(!get(&|export| hello(export, 0)));
    assert!(!get(&|export| hello(export.wrapping_add(1), generation)));
    assert!(!get(&|_| b"M".to_vec()));
    segment.revoke();
    assert!(!get(&|export| hello(export, generation)));
    assert!(!get(&|export| hello(export, 0)));
    segment.export_again();
    assert!(!get(&|export| hello(export, generation)));
    assert!(get(&|export| hello(export, generation + 1)));
    segment.inhibit_writes(true);
    assert!(!get(&|export| hello(export, generation + 1)));
}

#[test]
fn a_writer_that_dies_in_the_middle_of_a_record_leaves_it_torn() {
    let segment = runtime().export_segment("Record", Settings::new(4096).same_user(Rights::ALL)).unwrap();
    let mut writer = Other::start(module_path!(), "writer", &segment.url());
    writer.hear("at the middle");
    writer.kill();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let mut bytes = [0; 1000];
    for memory in [&segment as &dyn Memory, &remote] {
        let record = Record::new(memory, 0, 1000).unwrap();
        assert_eq!(record.read(&mut bytes), Err(Error::Declared(Unread::Torn)));
    }
    let record = Record::new(&remote, 0, 1000).unwrap();
    record.writer().unwrap().write(&[3; 1000]).unwrap();
    assert_eq!((record.read(&mut bytes), bytes), (Ok(3), [3; 1000]));
}

/// How often a segment is taken away and exported again while others use it.
const TIMES: u64 = 300;

fn import_until(over: &AtomicBool, importer: &Runtime, url: &str) -> Option<Remote> {
    while !over.load(Ordering::Relaxed) {
        // Between two exports there is no segment to import.
        if let Ok(remote) = importer.import_segment(url) {
            return Some(remote);
        }
    }
    None
}

#[test]
fn what_is_read_while_it_is_taken_away_is_of_its_generation_or_nothing() {
    for rights in [Rights::READ, Rights::ALL] {
        let segment = runtime().export_segment("Taken", Settings::new(40_000).same_user(rights)).unwrap();
        let (url, over, reads) = (segment.url(), AtomicBool::new(false), AtomicU64::new(0));
        let first = runtime().import_segment(&url).unwrap().generation();
        std::thread::scope(|scope| {
            let reader = || {
                let importer = runtime();
                let mut bytes = vec![0; 40_000];
                while let Some(remote) = import_until(&over, &importer, &url) {
                    let filled = (remote.generation() - first) as u8;
                    for read in [Remote::read, Remote::read_bytes].iter().cycle() {
                        match read(&remote, 0, &mut bytes) {
                            Ok(()) => assert!(bytes.iter().all(|byte| *byte == filled), "{filled}: torn"),
                            Err(Error::Declared(Refused::Stale)) => break,
                            Err(why) => panic!("{why}"),
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            let readers = [scope.spawn(reader), scope.spawn(reader)];
            for generation in 1..=TIMES {
                let before = reads.load(Ordering::Relaxed);
                while reads.load(Ordering::Relaxed) == before
                    && !readers.iter().any(|reader| reader.is_finished())
                {
                    std::thread::yield_now();
                }
                segment.revoke();
                segment.write_bytes(0, &[generation as u8; 40_000]).unwrap();
                segment.export_again();
            }
            over.store(true, Ordering::Relaxed);
            segment.revoke();
        });
    }
}

#[test]
fn what_was_written_while_it_was_taken_away_is_there_if_it_was_said_so() {
    let segment = runtime().export_segment("Counted", Settings::new(64).same_user(Rights::ALL)).unwrap();
    let (url, over, tries) = (segment.url(), AtomicBool::new(false), AtomicU64::new(0));
    // Returns how often a counter was surely raised, and how often perhaps.
    let count = |importer: &Runtime| {
        let (mut surely, mut perhaps, mut stores) = (0, 0, 0);
        while let Some(remote) = import_until(&over, importer, &url) {
            let mut old = 0;
            loop {
                tries.fetch_add(1, Ordering::Relaxed);
                let outcome = remote.compare_and_swap(0, old, old + 1).and_then(|found| {
                    surely += u64::from(found == old);
                    old = if found == old { old + 1 } else { found };
                    remote.store(8, stores + 1).map_err(|why| {
                        // The swap is counted. It does not matter whether the store was done: the next store
                        // is the same.
                        if why.ran() == Ran::Maybe { Error::Declared(Refused::Stale) } else { why }
                    })?;
                    stores += 1;
                    assert!(segment.load(8) == Ok(stores), "what was stored is lost");
                    Ok(())
                });
                match outcome {
                    Ok(()) => {}
                    Err(Error::Declared(Refused::Stale)) => break,
                    Err(why) => {
                        let why = why.call_failed().unwrap().clone();
                        assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::Maybe), "{why}");
                        perhaps += 1;
                        break;
                    }
                }
            }
        }
        (surely, perhaps)
    };
    let (surely, perhaps) = std::thread::scope(|scope| {
        let counter = scope.spawn(|| count(&runtime()));
        for _ in 0..TIMES {
            let before = tries.load(Ordering::Relaxed);
            while tries.load(Ordering::Relaxed) == before && !counter.is_finished() {
                std::thread::yield_now();
            }
            segment.export_again();
        }
        over.store(true, Ordering::Relaxed);
        segment.revoke();
        counter.join().unwrap()
    });
    let counted = segment.load(0).unwrap();
    assert!(
        (surely..=surely + perhaps).contains(&counted),
        "{surely} and perhaps {perhaps} more, counted {counted}"
    );
    assert!(surely > 0);
}

#[test]
fn our_own_accesses_are_not_lost_while_it_is_moved() {
    let segment: Segment = runtime().export_segment("Own", Settings::new(64).same_user(Rights::ALL)).unwrap();
    let (url, over) = (segment.url(), AtomicBool::new(false));
    let raised = std::thread::scope(|scope| {
        let counter = scope.spawn(|| {
            let mut raised = 0;
            while !over.load(Ordering::Relaxed) {
                raised += u64::from(segment.compare_and_swap(0, raised, raised + 1).unwrap() == raised);
            }
            raised
        });
        let importer = runtime();
        for _ in 0..TIMES {
            // The exporter moves memory only if an importer has it.
            importer.import_segment(&url).unwrap();
            segment.export_again();
        }
        over.store(true, Ordering::Relaxed);
        counter.join().unwrap()
    });
    assert_eq!(segment.load(0), Ok(raised));
}
