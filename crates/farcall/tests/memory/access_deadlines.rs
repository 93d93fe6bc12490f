//! Accesses to segments of an exporter that falls silent.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use farcall::memory::{Memory, Result, Rights, Settings};
use farcall::{Error, Kind, Ran, Runtime};

/// A way to an exporter on which nothing passes any more once it is cut. Its port stays taken until it is
/// dropped, so that nobody is told that no program receives there.
struct Way {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    _port: UdpSocket,
}

impl Way {
    fn to(exporter: SocketAddr) -> Way {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (address, is_cut) = (socket.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let port = socket.try_clone().unwrap();
        let ends = is_cut.clone();
        std::thread::spawn(move || {
            let (mut importer, mut bytes) = (exporter, [0; 65_536]);
            while !ends.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
                let to = if from == exporter { importer } else { exporter };
                if from != exporter {
                    importer = from;
                }
                let _ = socket.send_to(&bytes[..len], to);
            }
        });
        Way { address, is_cut, _port: port }
    }

    fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.cut();
    }
}

fn runtime() -> Runtime {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(false).open().build().unwrap()
}

#[test]
fn accesses_to_a_silent_exporter_end_at_their_deadline() {
    let (exporter, importer) = (runtime(), runtime());
    let segment = exporter.export_segment("Words", Settings::new(4096).anyone(Rights::ALL)).unwrap();
    let address = segment.url().split('/').nth(2).unwrap().parse().unwrap();
    let way = Way::to(address);
    let url = segment.url().replace(&address.to_string(), &way.address.to_string());
    let remote = importer.import_segment(&url).unwrap();
    let timed = remote.within(Duration::from_millis(200));
    remote.store(8, 7).unwrap();
    assert_eq!(timed.load(8).unwrap(), 7);
    remote.post(16, &[1; 8]).unwrap();
    timed.flush().unwrap();

    way.cut();
    let late = |outcome: Result<()>| match outcome {
        Err(Error::CallFailed(why)) => {
            assert_eq!(why.kind(), Kind::Deadline, "{why}");
            why.ran()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(late(remote.within(Duration::ZERO).store(8, 9)), Ran::No);
    timed.post(24, &[1; 8]).unwrap();
    assert_eq!(late(timed.compare_and_swap(8, 7, 9).map(drop)), Ran::No, "it waited for the posted write");
    assert_eq!(late(timed.write(32, &[1; 200])), Ran::No);
    assert_eq!(late(timed.flush()), Ran::Maybe);
    late(timed.start_flush().wait());
    late(timed.load(8).map(drop));
    late(timed.start_read(8, 8).wait().map(drop));
    let here = importer.export_segment("Here", Settings::new(64)).unwrap();
    late(timed.start_read_into(8, 8, &here, 0, false).wait());
}

/// A swap that is sent may have been executed.
#[test]
fn a_swap_that_was_sent_and_not_answered_may_have_been_executed() {
    let (exporter, importer) = (runtime(), runtime());
    let segment = exporter.export_segment("Words", Settings::new(4096).anyone(Rights::ALL)).unwrap();
    let address = segment.url().split('/').nth(2).unwrap().parse().unwrap();
    let way = Way::to(address);
    let url = segment.url().replace(&address.to_string(), &way.address.to_string());
    let timed = importer.import_segment(&url).unwrap().within(Duration::from_millis(200));
    assert_eq!(timed.load(8).unwrap(), 0);
    way.cut();
    let Err(Error::CallFailed(why)) = timed.compare_and_swap(8, 0, 9) else { panic!("nobody answers") };
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe), "{why}");
}

/// Neither a mapping nor a segment of the same process waits for anybody.
#[test]
fn a_time_changes_nothing_where_accesses_wait_for_nobody() {
    for shared_memory in [false, true] {
        let names = farcall::names::Memory::new();
        let runtime = || {
            let builder = Runtime::builder().registry(names.clone()).shared_memory(shared_memory);
            builder.open().build().unwrap()
        };
        let (exporter, importer) = (runtime(), runtime());
        let segment = exporter.export_segment("Words", Settings::new(4096).anyone(Rights::ALL)).unwrap();
        for runtime in [&importer, &exporter] {
            let remote = runtime.import_segment("Words").unwrap();
            let timed = remote.within(Duration::from_secs(60));
            timed.store(8, 7).unwrap();
            assert_eq!((timed.load(8).unwrap(), segment.load(8).unwrap()), (7, 7));
            assert_eq!(timed.compare_and_swap(8, 7, 9).unwrap(), 7);
            timed.post(16, &[1; 8]).unwrap();
            timed.flush().unwrap();
            assert_eq!(timed.start_read(16, 8).wait().unwrap()[..], [1; 8]);
            timed.write_notify(24, &[2; 8]).unwrap();
            assert_eq!(remote.load(8).unwrap(), 9);
            let none = remote.within(Duration::ZERO);
            match none.load(8) {
                Ok(word) => assert_eq!(word, 9),
                Err(Error::CallFailed(why)) => {
                    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
