//! How two processes meet: what a hello says, what a connection carries, and what an epoll set reports.

use crate::threads;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use farcall_shm::{
    AccessRights, Alarm, CallMemory, EpollSet, Hello, KEYED_PROOF_BYTES, KeyedHello, Listener,
    MAX_HELLO_BYTES, MappedFile, Received, TicketHolder, UnixChannel, Wants,
};
use farcall_shm::{file_limit, unclosed};
use rustix::io::FdFlags;

/// A socket and its address, which nobody else can have while the socket is open.
fn address() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The two ends of a connection: first that of the peer that connected, then that of the peer that accepted.
fn connection() -> (UnixChannel, UnixChannel) {
    let (_socket, address) = address();
    let listener = Listener::bind(address).unwrap();
    let theirs = UnixChannel::connect(address).unwrap();
    (theirs, listener.accept().unwrap().unwrap().0)
}

#[test]
fn a_hello_has_the_documented_form_and_other_bytes_are_refused() {
    let address = "10.1.2.3:513".parse().unwrap();
    let ticket = TicketHolder { client: 2, issued: 3, conversation: u64::MAX, address };
    let calls = Hello { export: 0x0102_0304_0506_0708, wants: Wants::Calls, nonce: [9; 16], ticket };
    let mut expected = vec![9; 16];
    expected.extend([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
    expected.extend([255; 8]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3, 2, 1, b'C']);
    assert_eq!(calls.to_bytes(), expected);

    let ticket = TicketHolder { address: "[fe80::1]:7000".parse().unwrap(), ..ticket };
    let segment = Hello { wants: Wants::Segment(u64::MAX - 1), ticket, ..calls };
    for hello in [calls, segment] {
        let bytes = hello.to_bytes();
        assert_eq!(Hello::from_bytes(&bytes), Some(hello));
        assert!(bytes.len() < MAX_HELLO_BYTES, "a longer message can be told from it");
        for end in 0..bytes.len() {
            assert_eq!(Hello::from_bytes(&bytes[..end]), None, "cut to {end} bytes");
        }
        assert_eq!(Hello::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
    let last = expected.len() - 1;
    expected[last] = b'X';
    assert_eq!(Hello::from_bytes(&expected), None);
    let question = Hello::question(&[9; 16], address);
    assert_eq!(question, [&[9; 16][..], b"farcall shared memory 10.1.2.3:513"].concat());
}

#[test]
fn the_hello_of_an_importer_with_keys_has_the_documented_form() {
    let address = "10.1.2.3:513".parse().unwrap();
    let ticket = TicketHolder { client: 2, issued: 3, conversation: 4, address };
    for wants in [Wants::Calls, Wants::Segment(7)] {
        let hello = Hello { export: 1, wants, nonce: [9; 16], ticket };
        let body = KeyedHello::body_of(&[5; 300], &hello);
        assert_eq!(body, [&[1, 44][..], &[5; 300], &hello.to_bytes()].concat());
        let message = [&[6; KEYED_PROOF_BYTES][..], &body].concat();
        assert!(message.len() < MAX_HELLO_BYTES, "a longer message can be told from it");
        let read = KeyedHello::from_bytes(&message).unwrap();
        assert_eq!((read.proof, read.ticket), (&[6; KEYED_PROOF_BYTES], &[5; 300][..]));
        assert_eq!((read.hello, read.body), (hello, &body[..]));
        assert!((0..message.len()).all(|end| KeyedHello::from_bytes(&message[..end]).is_none()));
        assert_eq!(Hello::from_bytes(&message), None);
        assert_eq!(KeyedHello::from_bytes(&hello.to_bytes()), None);
    }
}

#[test]
fn the_system_tells_each_end_which_processes_are_at_a_connection() {
    let (importers, exporters) = connection();
    let this = std::process::id() as i32;
    assert_eq!((importers.processes(), exporters.processes()), (Some([this; 2]), Some([this; 2])));
}

#[test]
fn an_address_has_one_listener_and_is_free_when_that_is_dropped() {
    let (_socket, address) = address();
    assert!(UnixChannel::connect(address).is_err(), "nobody is there");
    let listener = Listener::bind(address).unwrap();
    assert!(Listener::bind(address).is_err());
    assert!(listener.accept().unwrap().is_none(), "nobody has arrived");
    let wires = [(); 2].map(|()| UnixChannel::connect(address).unwrap());
    let (_accepted, process) = listener.accept().unwrap().unwrap();
    assert_eq!(process, std::process::id() as i32);
    drop(listener);
    assert_eq!(wires.map(|wire| wire.receive(&mut [0; 8])), [Received::Nothing, Received::Gone]);
    assert!(Listener::bind(address).is_ok());
}

#[test]
fn messages_arrive_one_by_one_and_the_end_comes_last() {
    let (theirs, ours) = connection();
    let mut buffer = [0; 8];
    assert_eq!(ours.receive(&mut buffer), Received::Nothing);
    for message in [&b"hello"[..], b"twelve bytes", b"last"] {
        assert!(theirs.send(message, None));
    }
    assert_eq!((ours.receive(&mut buffer), &buffer[..5]), (Received::Message(5), &b"hello"[..]));
    // A message that is longer than the buffer is cut.
    assert_eq!((ours.receive(&mut buffer), &buffer), (Received::Message(8), b"twelve b"));
    theirs.close();
    assert_eq!((ours.receive(&mut buffer), &buffer[..4]), (Received::Message(4), &b"last"[..]));
    assert_eq!(ours.receive(&mut buffer), Received::Gone);
    assert!(!ours.send(b"x", None) && !theirs.send(b"x", None));
}

#[test]
fn wait_returns_when_a_message_has_arrived() {
    let (theirs, ours) = connection();
    ours.wait(Duration::ZERO);
    let waiting = threads::this();
    std::thread::scope(|scope| {
        scope.spawn(|| threads::once_asleep(waiting, || assert!(theirs.send(b"x", None))));
        ours.wait(Duration::MAX);
        assert_eq!(ours.receive(&mut [0; 8]), Received::Message(1));
    });
}

#[test]
fn a_file_is_received_only_by_receive_file() {
    let (theirs, ours) = connection();
    let mut buffer = [0; 8];
    assert!(ours.receive_file(&mut buffer).is_none());
    assert!(theirs.send(b"none", None));
    assert!(ours.receive_file(&mut buffer).is_none());
    let executable = File::open("/proc/self/exe").unwrap();
    assert!(theirs.send(b"file", Some(executable.as_fd())));
    for _ in 0..2 {
        assert_eq!(ours.receive(&mut buffer), Received::Files);
    }
    let (len, file) = ours.receive_file(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"file");
    let mut magic = [0; 4];
    File::from(file).read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF");
    assert_eq!(ours.receive(&mut buffer), Received::Nothing);

    // The receiver drops the connection instead of receiving the file: the sender sees the end too.
    assert!(theirs.send(b"file", Some(executable.as_fd())));
    drop(ours);
    theirs.wait(Duration::MAX);
    assert_eq!(theirs.receive(&mut buffer), Received::Gone);
    // Threads in the background close the file that nobody received.
    while unclosed() > 0 {
        std::thread::yield_now();
    }
}

/// Returns a file whose `close` blocks until the other end is closed, and that other end. The file is a TCP
/// connection that has unsent data and lingers (SO_LINGER).
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut file = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    file.set_nonblocking(true).unwrap();
    while file.write(&[0; 1 << 16]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&file, Some(Duration::from_secs(600))).unwrap();
    (file, other)
}

/// How many threads of this process close files in the background.
fn closers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "farcall-close").count()
}

#[test]
fn files_whose_close_blocks_are_closed_by_at_most_eight_other_threads() {
    const LEFT: usize = 10;
    let until_unclosed = |count| {
        while unclosed() < count {
            std::thread::yield_now();
        }
    };
    let leave = |theirs: &UnixChannel| {
        let (file, other) = lingering();
        assert!(theirs.send(b"file", Some(file.as_fd())));
        other
    };
    let mut others = Vec::new();
    for _ in 1..LEFT {
        let (theirs, ours) = connection();
        others.push(leave(&theirs));
        drop(ours);
        until_unclosed(others.len());
    }
    // The last file is sent by a connection that the listener never accepts.
    let (_socket, address) = address();
    let listener = Listener::bind(address).unwrap();
    let theirs = UnixChannel::connect(address).unwrap();
    others.push(leave(&theirs));
    drop(listener);
    until_unclosed(LEFT);
    assert!((1..=8).contains(&closers()), "{} threads", closers());
    drop(others);
    while unclosed() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn sending_to_a_peer_that_receives_nothing_fails_without_blocking() {
    let (theirs, _ours) = connection();
    let sent = (0..1_000_000).take_while(|_| theirs.send(&[0; 4096], None)).count();
    assert!((1..1_000_000).contains(&sent), "{sent} messages");
}

#[test]
fn an_epoll_set_reports_each_ready_source_by_its_name() {
    let (theirs, ours) = connection();
    let (ear, alarm) = (EpollSet::new().unwrap(), Alarm::new().unwrap());
    ear.add(&alarm, 7).unwrap();
    ear.add(&ours, 8).unwrap();
    let heard = |most| {
        let mut names = vec![1];
        ear.wait(most, &mut names);
        names.sort_unstable();
        names
    };
    assert_eq!(heard(Some(Duration::ZERO)), [1]);
    alarm.set();
    alarm.set();
    assert_eq!(heard(None), [1, 7]);
    assert!(theirs.send(b"x", None));
    assert_eq!(heard(None), [1, 7, 8]);
    alarm.clear();
    assert_eq!(heard(None), [1, 8]);
    ear.remove(&ours);
    assert_eq!(heard(Some(Duration::ZERO)), [1]);
}

/// A program that inherits a descriptor would keep the connection open after this process has ended.
#[test]
fn no_descriptor_is_inherited_by_an_executed_program() {
    let (_socket, address) = address();
    let listener = Listener::bind(address).unwrap();
    let theirs = UnixChannel::connect(address).unwrap();
    let (ours, _) = listener.accept().unwrap().unwrap();
    let alarm = Alarm::new().unwrap();
    let (_, segment) = MappedFile::create(1, AccessRights::Write).unwrap();
    let (_, arguments) = CallMemory::create_arguments().unwrap();
    let (_, page) = CallMemory::create(&arguments).unwrap();
    assert!(theirs.send(b"file", Some(segment.as_fd())));
    let (_, received) = ours.receive_file(&mut [0; 8]).unwrap();
    let wires = [listener.as_fd(), theirs.as_fd(), ours.as_fd(), alarm.as_fd()];
    let files = [&segment, &arguments, &page, &received].map(AsFd::as_fd);
    for (at, fd) in wires.into_iter().chain(files).enumerate() {
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC), "descriptor {at}");
    }
}

#[test]
fn the_file_limit_is_the_soft_limit_of_the_process() {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let soft = line.split_whitespace().next().unwrap();
    assert_eq!(file_limit(), soft.parse().unwrap_or(usize::MAX));
}
