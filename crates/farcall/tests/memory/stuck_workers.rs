//! Accesses to segments while every worker of their exporter is stuck in a procedure.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use farcall::memory::{Counters, Memory, Notify, Remote, Rights, Segment, Settings};
use farcall::{Builder, Calls, Error, Export, Kind, Ran, Runtime};

#[farcall::interface]
trait Door {
    /// Returns when the door is open.
    fn pass(&self) -> farcall::Result<()>;
    /// Does what `pass` does. Clients call it often while the door is open.
    fn pass_often(&self) -> farcall::Result<()>;
}

#[derive(Default)]
struct Shut {
    open: Mutex<bool>,
    opened: Condvar,
    /// How many calls of `pass_often` have begun.
    often: AtomicUsize,
}

impl Shut {
    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.opened.notify_all();
    }
}

impl Door for Shut {
    fn pass(&self) -> farcall::Result<()> {
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open));
        Ok(())
    }

    fn pass_often(&self) -> farcall::Result<()> {
        self.often.fetch_add(1, Ordering::SeqCst);
        self.pass()
    }
}

const WORKERS: usize = 3;
/// The calls for which the exporter's queue has room.
const QUEUE: usize = 2;
/// The calls of a quick procedure in which threads get stuck one after another.
const QUICK_CALLS: usize = 10;
const SEGMENT_BYTES: usize = 256 << 10;

fn builder(shared_memory: bool) -> Builder {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(shared_memory)
}

/// An exporter of a segment and of a door, and an importer of both.
struct Pair {
    shared_memory: bool,
    segment: Segment,
    remote: Remote,
    importer: Runtime,
    counters: Counters,
    door: Arc<Shut>,
    _export: Export,
    client: DoorClient,
    calls: Calls<usize, ()>,
}

impl Pair {
    fn new(shared_memory: bool, set: impl FnOnce(Builder) -> Builder) -> Pair {
        let exporter = set(builder(shared_memory).workers(WORKERS)).build().unwrap();
        // An exporter that hears of each write serves all accesses. Others could be mapped.
        let settings = Settings::new(SEGMENT_BYTES).anyone(Rights::ALL).notify(Notify::Always);
        let segment = exporter.export_segment("Words", settings).unwrap();
        let door = Arc::new(Shut::default());
        let export = exporter.export::<dyn Door>("Door/front", door.clone()).unwrap();

        let importer = builder(shared_memory).build().unwrap();
        let remote = importer.import_segment(&segment.url()).unwrap();
        let counters = Counters::import(&importer, export.address()).unwrap();
        let client = importer.import::<dyn Door>(&export.url()).unwrap();
        let (_export, calls) = (export, Calls::new());
        Pair { shared_memory, segment, remote, importer, counters, door, _export, client, calls }
    }

    /// Starts a call at the shut door. Waits until the exporter has it, and returns `None`, or until it has
    /// ended.
    fn start(&mut self) -> Option<Error> {
        self.calls.add(self.calls.len(), self.client.start().pass());
        loop {
            if let Some((_, outcome)) = self.calls.try_next() {
                return Some(outcome.expect_err("the door is shut"));
            }
            let exports = self.counters.read().unwrap().exports;
            if exports.iter().map(|export| export.running).sum::<usize>() == self.calls.len() {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// Lets all threads that may execute, and then the last one that receives, be stuck in calls.
    fn hold_last_receiver(&mut self) {
        loop {
            self.door.set(true);
            (0..100).for_each(|_| self.client.pass_often().unwrap());
            self.end_calls();
            self.door.set(false);
            for _ in 0..WORKERS {
                let ended = self.start();
                assert!(ended.is_none(), "{ended:?}");
            }
            let begun = self.door.often.load(Ordering::SeqCst);
            self.calls.add(self.calls.len(), self.client.start().pass_often());
            loop {
                if self.door.often.load(Ordering::SeqCst) > begun {
                    return;
                }
                if self.counters.read().unwrap().queued > 0 {
                    // The procedure is not known to be quick, perhaps because the machine paused.
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    fn end_calls(&mut self) {
        while let Some((_, outcome)) = self.calls.wait() {
            outcome.unwrap();
        }
    }

    /// Makes accesses by the importer that waits at the door, and by one that the exporter has not met yet.
    /// Then opens the door.
    fn access_and_open(mut self) {
        access(&self.segment, &self.remote);
        let other = builder(self.shared_memory).build().unwrap();
        let remote = other.import_segment(&self.segment.url()).unwrap();
        access(&self.segment, &remote);
        for runtime in [&self.importer, &other] {
            let links = runtime.stats().links;
            assert_eq!(links.len(), usize::from(self.shared_memory), "{links:?}");
            assert!(links.iter().all(|link| link.calls >= 10), "{links:?}");
        }
        assert!(self.calls.try_next().is_none(), "a call has ended before the door was opened");
        self.door.set(true);
        self.end_calls();
    }
}

/// Makes each kind of access, and checks what it read or wrote.
fn access(segment: &Segment, remote: &Remote) {
    let word = |at| segment.load(at).unwrap();
    segment.write(0, &[0; 128]).unwrap();
    remote.write(0, b"a write.").unwrap();
    assert_eq!(word(0), u64::from_le_bytes(*b"a write."));
    let mut read = [0; 8];
    remote.read(0, &mut read).unwrap();
    assert_eq!(&read, b"a write.");
    assert_eq!((remote.compare_and_swap(8, 0, 7).unwrap(), word(8)), (0, 7));
    assert_eq!((remote.compare_and_swap(8, 0, 8).unwrap(), word(8)), (7, 7));
    remote.write_notify(16, &9_u64.to_le_bytes()).unwrap();
    remote.write_each(&[(24, &[1; 8]), (32, &[2; 8])], false).unwrap();
    assert_eq!([16, 24, 32].map(word), [9, u64::from_le_bytes([1; 8]), u64::from_le_bytes([2; 8])]);
    remote.post(40, &10_u64.to_le_bytes()).unwrap();
    remote.flush().unwrap();
    assert_eq!(word(40), 10);

    let (write, swap) = (remote.start_write(48, &[3; 8]), remote.start_compare_and_swap(56, 0, 11));
    write.wait().unwrap();
    assert_eq!((swap.wait().unwrap(), word(56)), (0, 11));
    assert_eq!(&remote.start_read(48, 8).wait().unwrap()[..], [3; 8]);

    // No single datagram, and no slot of shared memory, has room for these.
    let long: Vec<u8> = (0..SEGMENT_BYTES).map(|at| at as u8).collect();
    remote.write(0, &long).unwrap();
    let mut read = vec![0; SEGMENT_BYTES];
    remote.read(0, &mut read).unwrap();
    assert!(read == long);
}

/// Lets every thread that may execute be stuck in a call, and the queue be full.
fn while_no_call_can_begin(shared_memory: bool) {
    let mut pair = Pair::new(shared_memory, |builder| builder.threads(WORKERS + 1).queue(QUEUE));
    let refused = loop {
        if let Some(refused) = pair.start() {
            break refused;
        }
        assert!(pair.calls.len() <= WORKERS + QUEUE);
    };
    let Error::CallFailed(why) = refused;
    assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No), "{why}");
    pair.access_and_open();
}

/// Lets threads be stuck in a procedure that was quick so far, so that receiving threads execute it.
fn while_quick_calls_are_stuck(shared_memory: bool) {
    let mut pair = Pair::new(shared_memory, |builder| builder);
    pair.door.set(true);
    (0..100).for_each(|_| pair.client.pass().unwrap());
    pair.door.set(false);
    for _ in 0..QUICK_CALLS {
        let ended = pair.start();
        assert!(ended.is_none(), "{ended:?}");
    }
    pair.access_and_open();
}

/// Lets every thread that may execute be stuck in a call, and the only one that receives too.
fn while_the_last_receiver_is_stuck(shared_memory: bool) {
    let mut pair = Pair::new(shared_memory, |builder| builder.threads(WORKERS + 1));
    pair.hold_last_receiver();
    pair.access_and_open();
}

#[test]
fn accesses_over_udp_are_executed() {
    while_no_call_can_begin(false);
    while_quick_calls_are_stuck(false);
    while_the_last_receiver_is_stuck(false);
}

#[cfg(target_os = "linux")]
#[test]
fn accesses_through_shared_memory_are_executed() {
    if std::env::var("FARCALL_SHM").is_ok_and(|value| value == "off") {
        return crate::common::skip(
            "accesses through shared memory while workers are stuck: FARCALL_SHM=off",
        );
    }
    while_no_call_can_begin(true);
    while_quick_calls_are_stuck(true);
    while_the_last_receiver_is_stuck(true);
}
