//! The descriptor of a segment's notices: readable exactly while a notice waits, beside sockets.
//!
//! `FARCALL_NOTICES=1000000 cargo test --release -p farcall --test memory notice_descriptors` runs the whole
//! number of notices.

#[path = "../common/other.rs"]
mod other;

use std::env;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::Runtime;
use farcall::memory::clerk::{self, Clerk};
use farcall::memory::{Memory, Notify, Remote, Rights, Segment, Settings};
use other::{Other, ROLE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common;

const SEGMENTS: usize = 1_000;
/// The bytes of a segment: eight words, so that not all notices can be merged.
const SIZE: usize = 64;

/// Returns how many notices a test makes.
fn notices() -> u64 {
    let most = env::var("FARCALL_NOTICES").ok().map(|most| most.parse().unwrap());
    most.unwrap_or(20_000)
}

/// Returns a runtime that shares no memory with others.
fn runtime() -> Runtime {
    Runtime::builder().registry(farcall::names::Memory::new()).shared_memory(false).build().unwrap()
}

/// Returns a clerk whose table has room for the names of many segments.
fn roomy_clerk(runtime: &Runtime) -> Clerk {
    Clerk::start(runtime, clerk::Settings::default().places(16 * SEGMENTS)).unwrap()
}

fn settings() -> Settings {
    Settings::new(SIZE).anyone(Rights::READ | Rights::WRITE).notify(Notify::Asked)
}

/// Raises this process's limit of open files as far as it may. Returns whether it may open `files`.
fn may_open(files: u64) -> bool {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.is_none_or(|most| most >= files)
}

fn is_readable(segment: &Segment) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(segment, PollFlags::IN)], Some(&now)).unwrap() > 0
}

fn wait_until_readable(segment: &Segment) {
    poll(&mut [PollFd::new(segment, PollFlags::IN)], None).unwrap();
}

#[test]
fn a_descriptor_is_readable_exactly_while_a_notice_waits() {
    let (exporter, importer) = (runtime(), runtime());
    for sigio in [false, true] {
        let segment = exporter.export_segment("Exact", settings().sigio(sigio)).unwrap();
        let remote = importer.import_segment(&segment.url()).unwrap();
        // This notice comes before anybody asks for the descriptor.
        remote.write_notify(0, b"early").unwrap();
        assert!(is_readable(&segment));
        assert_eq!(segment.open_descriptor().unwrap().as_raw_fd(), segment.as_raw_fd());
        for _ in 0..100 {
            assert_eq!(segment.try_notice().map(|notice| notice.writes), Some(1));
            assert!(!is_readable(&segment) && segment.try_notice().is_none());
            remote.write(8, b"quiet").unwrap();
            assert!(!is_readable(&segment));
            remote.write_notify(8, b"one").unwrap();
            remote.write_notify(16, b"two").unwrap();
            assert!(is_readable(&segment));
            assert_eq!(segment.notice().offset, 8);
            assert!(is_readable(&segment), "one notice is left");
            assert_eq!(segment.try_notice().map(|notice| notice.offset), Some(16));
            assert!(!is_readable(&segment));
            remote.write_notify(8, b"three").unwrap();
        }
        // A task takes a notice too.
        assert_eq!(common::block_on(segment.next_notice()).offset, 8);
        assert!(!is_readable(&segment));
    }
}

/// Writes with notice to all segments in turn, beginning with the `first`, and returns how often to each.
fn write_to(remotes: &[Remote], first: usize, times: u64) -> Vec<u64> {
    let mut written = vec![0; remotes.len()];
    for count in 0..times {
        let which = (first + count as usize * 7) % remotes.len();
        remotes[which].post_notify(count % 8 * 8, &count.to_le_bytes()).unwrap();
        written[which] += 1;
    }
    remotes.iter().for_each(|remote| remote.flush().unwrap());
    written
}

#[test]
fn one_poll_loop_hears_every_notice_of_a_thousand_segments_once() {
    const WRITERS: usize = 2;
    if !may_open(2 * SEGMENTS as u64) {
        return common::skip("a thousand descriptors: this process may not have so many");
    }
    let exporter = runtime();
    let _clerk = roomy_clerk(&exporter);
    let export = |which| exporter.export_segment(&format!("Many{which}"), settings()).unwrap();
    let segments: Vec<Segment> = (0..SEGMENTS).map(export).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (at, each) = (socket.local_addr().unwrap(), notices() / WRITERS as u64);

    let writer = |first: usize| {
        let urls: Vec<String> = segments.iter().map(Segment::url).collect();
        std::thread::spawn(move || {
            let importer = runtime();
            let remotes: Vec<Remote> = urls.iter().map(|url| importer.import_segment(url).unwrap()).collect();
            let written = write_to(&remotes, first, each);
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"all are written", at).unwrap();
            written
        })
    };
    let writers: Vec<_> = (0..WRITERS).map(|which| writer(which * 500)).collect();

    let (mut heard, mut ended, mut waits) = (vec![0; SEGMENTS], 0, 0_u64);
    let mut waited: Vec<PollFd<'_>> =
        segments.iter().map(|segment| PollFd::new(segment, PollFlags::IN)).collect();
    waited.push(PollFd::new(&socket, PollFlags::IN));
    while ended < WRITERS {
        poll(&mut waited, None).unwrap();
        waits += 1;
        let ready = |of: &PollFd<'_>| of.revents().contains(PollFlags::IN);
        for (which, segment) in segments.iter().enumerate().filter(|(which, _)| ready(&waited[*which])) {
            let notice = segment.try_notice().expect("a readable descriptor has a notice");
            heard[which] += notice.writes;
        }
        if ready(&waited[SEGMENTS]) {
            socket.recv_from(&mut [0; 100]).unwrap();
            ended += 1;
        }
    }
    let written: Vec<Vec<u64>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    // Whatever was written before the last datagram came is known now.
    for (segment, heard) in segments.iter().zip(&mut heard) {
        while is_readable(segment) {
            *heard += segment.try_notice().expect("a readable descriptor has a notice").writes;
        }
        assert_eq!(segment.try_notice(), None);
    }
    for (which, heard) in heard.iter().enumerate() {
        assert_eq!(*heard, written.iter().map(|by| by[which]).sum::<u64>(), "segment {which}");
    }
    println!("{} notices, heard in {waits} waits", heard.iter().sum::<u64>());
    assert_eq!(heard.iter().sum::<u64>(), each * WRITERS as u64);
}

/// Takes notices until there are none, after each edge.
#[cfg(target_os = "linux")]
#[test]
fn an_edge_triggered_poller_loses_no_edge() {
    use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
    const WRITERS: u64 = 2;
    let (exporter, each) = (runtime(), notices() / 4);
    for sigio in [false, true] {
        let segment = exporter.export_segment("Edges", settings().sigio(sigio)).unwrap();
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &segment, EventData::new_u64(7), EventFlags::IN | EventFlags::ET).unwrap();
        let write = move |url: String| {
            let remote = runtime().import_segment(&url).unwrap();
            (0..each).for_each(|count| remote.write_notify(count % 8 * 8, &[1; 8]).unwrap());
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let url = segment.url();
                std::thread::spawn(move || write(url))
            })
            .collect();
        let (mut heard, mut edges) = (0, 0_u64);
        let mut events: Vec<Event> = Vec::with_capacity(4);
        // A lost edge would leave this waiting for ever.
        while heard < each * WRITERS {
            events.clear();
            epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap();
            edges += 1;
            let taken: u64 = std::iter::from_fn(|| segment.try_notice()).map(|notice| notice.writes).sum();
            heard += taken;
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // An edge may be for a notice that was taken after an earlier edge, but no notice makes two edges.
        assert!(heard == each * WRITERS && edges <= heard, "{heard} writes, {edges} edges");
    }
}

#[test]
fn a_descriptor_is_shared_with_threads_and_each_notice_is_taken_once() {
    const END: u64 = SIZE as u64 - 8;
    let (exporter, each, heard) = (runtime(), notices() / 4, AtomicU64::new(0));
    let segment = exporter.export_segment("Shared", settings()).unwrap();
    segment.open_descriptor().unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let notices = std::iter::repeat_with(|| segment.notice());
            for notice in notices.take_while(|notice| notice.offset != END) {
                heard.fetch_add(notice.writes, Ordering::Relaxed);
            }
        });
        scope.spawn(|| (0..each).for_each(|n| remote.write_notify(n % 7 * 8, &[1; 8]).unwrap()));
        while heard.load(Ordering::Relaxed) < each {
            // The other thread may be faster.
            match is_readable(&segment).then(|| segment.try_notice()).flatten() {
                Some(notice) => drop(heard.fetch_add(notice.writes, Ordering::Relaxed)),
                None => std::thread::yield_now(),
            }
        }
        assert!(!is_readable(&segment));
        remote.write_notify(END, b"the end.").unwrap();
    });
    assert_eq!((heard.into_inner(), segment.try_notice()), (each, None));
    assert!(!is_readable(&segment));
}

#[test]
fn notices_that_nobody_takes_are_bounded_and_leave_the_descriptor_readable() {
    let segment = runtime().export_segment("Untaken", settings()).unwrap();
    segment.open_descriptor().unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let each = notices();
    (0..each).for_each(|count| remote.post_notify(count % 8 * 8, &[1; 8]).unwrap());
    remote.flush().unwrap();
    let taken: Vec<_> =
        std::iter::from_fn(|| is_readable(&segment).then(|| segment.try_notice().unwrap())).collect();
    assert!(taken.len() <= 64, "{} wait", taken.len());
    assert_eq!(taken.iter().map(|notice| notice.writes).sum::<u64>(), each);
    assert_eq!(segment.try_notice(), None);
}

#[test]
fn a_descriptor_is_polled_while_its_segment_is_revoked_and_works_when_it_is_exported_again() {
    let (exporter, importer) = (runtime(), runtime());
    let segment = exporter.export_segment("Over", settings()).unwrap();
    for round in 0..50 {
        segment.export_again();
        let remote = importer.import_segment(&segment.url()).unwrap();
        std::thread::scope(|scope| {
            let polled = scope.spawn(|| {
                wait_until_readable(&segment);
                segment.try_notice().unwrap()
            });
            segment.revoke();
            assert!(remote.write_notify(0, b"refused").is_err());
            assert!(!is_readable(&segment), "nothing was written");
            segment.export_again();
            let remote = importer.import_segment(&segment.url()).unwrap();
            remote.write_notify(8, b"again").unwrap();
            assert_eq!(polled.join().unwrap().offset, 8, "round {round}");
        });
        // A notice that waits is not lost when the segment is revoked.
        let remote = importer.import_segment(&segment.url()).unwrap();
        remote.write_notify(16, b"before").unwrap();
        segment.revoke();
        assert!(is_readable(&segment));
        assert_eq!(segment.try_notice().map(|notice| notice.offset), Some(16));
        assert!(!is_readable(&segment));
    }
}

#[test]
fn a_process_that_a_test_starts() {
    match env::var(ROLE).as_deref() {
        Ok("sparing") => be_sparing(),
        Ok("signalled") => be_signalled(),
        _ => {}
    }
}

/// Counts the descriptors of segments, in a process in which nothing else happens.
fn be_sparing() {
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let exporter = runtime();
    let _clerk = roomy_clerk(&exporter);
    let export = |which| exporter.export_segment(&format!("One{which}"), settings()).unwrap();
    // The first segment opens sockets.
    let _first = export(SEGMENTS);
    let before = open();
    let segments: Vec<Segment> = (0..SEGMENTS).map(export).collect();
    assert_eq!(open(), before, "segments that nobody asked have no descriptors");
    let all_open = may_open(SEGMENTS as u64 + 100);
    if all_open {
        assert!(segments.iter().all(|segment| segment.open_descriptor().is_ok()));
        assert_eq!(open(), before + SEGMENTS);
        drop(segments);
        assert_eq!(open(), before);
    }
    println!("are counted: {all_open}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_segment_that_is_not_asked_has_no_descriptor() {
    let all_open = Other::start(module_path!(), "sparing", "").hear("are counted: ");
    if all_open != "true" {
        common::skip("a thousand descriptors: this process may not have so many");
    }
}

/// Lets the system send this process SIGIO when a notice waits, and makes one. The signal ends the process.
fn be_signalled() {
    // A program that uses `libc` calls `fcntl` itself. The descriptor is standard input there.
    const FCNTL: &str = "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()); \
                         fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)";
    let segment = runtime().export_segment("Signalled", settings().sigio(true)).unwrap();
    let remote = runtime().import_segment(&segment.url()).unwrap();
    let descriptor = segment.as_fd().try_clone_to_owned().unwrap();
    let status = Command::new("python3").args(["-c", FCNTL]).stdin(descriptor).status().unwrap();
    assert!(status.success());
    remote.write(0, b"quiet").unwrap();
    println!("is told of");
    remote.write_notify(0, b"loud").unwrap();
    // The signal comes before the write has returned, or a moment later.
    loop {
        std::thread::park();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_notice_raises_sigio() {
    use std::os::unix::process::ExitStatusExt;
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return common::skip("SIGIO: python3 is not installed");
    }
    let mut other = Other::start(module_path!(), "signalled", "");
    other.hear("is told of");
    assert_eq!(other.end().signal(), Some(rustix::process::Signal::IO.as_raw()));
}
