//! Tests of a client's connection: the check of an idle connection before its use, the identifiers of calls
//! under way, and TCP keepalive.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use farcall::serving::{self, WorkerPool};
use farcall::stub::{InterfaceId, Procedure};
use farcall::{Kind, Never, Ran};
use rustix::event::{PollFd, PollFlags, poll};

use super::*;

static NULL: Procedure = Procedure {
    number: 0,
    name: "null",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

/// A waker that starts a call when it is woken. An asynchronous task can do that too.
struct Calling {
    client: Client,
    woken: AtomicU32,
}

impl Wake for Calling {
    fn wake(self: Arc<Self>) {
        // The call may fail, but starting it must not block.
        let called = self.client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
        called.detach();
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_may_call_while_the_check_of_an_idle_connection_wakes_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let link = client.connection.lock().link.clone();
    // The test marks the link as known to the service thread, although it is not, so that the thread does not
    // watch it. So only the check below finds that the connection has ended.
    link.lock().listed = true;
    let mut pending = client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
    let calling = Arc::new(Calling { client: client.clone(), woken: AtomicU32::new(0) });
    let waker = Waker::from(calling.clone());
    assert!(std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
    // A record that is too long makes the client end the connection at once.
    server.write_all(&[0xff; 4]).unwrap();
    // The bytes may arrive after `write_all` has returned, so the test waits until they have arrived.
    let came = PollFd::from_borrowed_fd(link.carrier.descriptor(), PollFlags::IN);
    poll(&mut [came], None).unwrap();
    let now = client.connection.builder.env.now();
    client.connection.lock().stale = now;
    drop(client.connection.link(now + Duration::from_nanos(1), None));
    assert_eq!(calling.woken.load(Ordering::SeqCst), 1);
    let why: CallFailed = pending.wait().unwrap_err().into();
    assert_eq!(why.kind(), Kind::BadResult);
}

#[test]
fn a_call_a_millisecond_after_the_last_one_finds_that_the_server_was_restarted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
    let answer = |server: &mut TcpStream| {
        let reply = [next_xid(server), 1, 0, 0, 0, 0].map(u32::to_be_bytes);
        let mark = 0x8000_0000 | size_of_val(&reply) as u32;
        server.write_all(&[&mark.to_be_bytes()[..], reply.as_flattened()].concat()).unwrap();
    };
    let call = || client.program(1, 1).call::<(), Never>(&NULL, &|_| Ok(()));
    let env = client.connection.builder.env.clone();
    let (mut server, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(call);
        answer(&mut server);
        first.join().unwrap().unwrap();
        assert!(client.connection.lock().stale <= env.now() + Duration::from_millis(1));
        drop(server);
        let link = client.connection.lock().link.clone();
        let ended = PollFd::from_borrowed_fd(link.carrier.descriptor(), PollFlags::IN);
        poll(&mut [ended], None).unwrap();
        // The millisecond is over.
        client.connection.lock().stale = Time::from_nanos(0);
        let second = scope.spawn(call);
        answer(&mut listener.accept().unwrap().0);
        second.join().unwrap().unwrap();
    });
}

/// A pool that lets no thread wait.
struct Full;

impl WorkerPool for Full {
    fn may_wait(&self) -> Result<(), CallFailed> {
        Err(CallFailed::new(Kind::Overloaded, Ran::No))
    }

    fn begin_wait(&self, _: bool) -> Result<bool, CallFailed> {
        self.may_wait().map(|()| true)
    }

    fn end_wait(&self) {}
}

/// A call that stayed under way would be sent again and again, and its arguments would be kept for ever.
#[test]
fn a_started_call_whose_thread_may_not_wait_is_given_up() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", silent.local_addr().unwrap());
    let client = Client::builder().patience(None).connect(&address).unwrap();
    let thread = std::thread::spawn(move || {
        serving::serve_elsewhere(Some(Arc::new(Full)));
        let started = client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
        assert!(client.awaits_replies());
        let why: CallFailed = started.wait().unwrap_err().into();
        assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::Maybe));
        assert!(!client.awaits_replies());
    });
    thread.join().unwrap();
}

#[test]
fn a_client_with_a_limit_keeps_it_whatever_time_is_left_otherwise() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", silent.local_addr().unwrap())).unwrap();
    let now = client.connection.builder.env.now();
    let calls = client.patient_until(now + Duration::from_millis(10)).program(1, 1);
    let why: CallFailed = calls.call::<(), Never>(&NULL, &|_| Ok(())).unwrap_err().into();
    assert_eq!(why.kind(), Kind::Unreachable, "{why}");
    let calls = calls.within(Duration::from_secs(3_600));
    let why: CallFailed = calls.call::<(), Never>(&NULL, &|_| Ok(())).unwrap_err().into();
    assert_eq!(why.kind(), Kind::Deadline, "{why}");
}

/// Receives the next call, which must have no arguments, and returns its identifier.
fn next_xid(server: &mut TcpStream) -> u32 {
    let mut record = [0; 4 + 40];
    server.read_exact(&mut record).unwrap();
    u32::from_be_bytes(record[4..8].try_into().unwrap())
}

#[test]
fn no_new_call_gets_the_identifier_of_a_call_under_way() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let start = || client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
    let next = |xid: u32| client.connection.next.store(xid, Ordering::SeqCst);
    next(u32::MAX);
    // One thread makes a call and waits for the reply as the leader. The test then starts two more calls.
    let waiting = std::thread::spawn({
        let client = client.clone();
        move || client.program(1, 1).call::<(), Never>(&NULL, &|_| Ok(()))
    });
    assert_eq!(next_xid(&mut server), u32::MAX);
    let started = [start(), start()];
    client.connection.lock().link.send_held();
    assert_eq!([next_xid(&mut server), next_xid(&mut server)], [0, 1]);
    next(u32::MAX);
    let after = start();
    client.connection.lock().link.send_held();
    assert_eq!(next_xid(&mut server), 2);
    next(1);
    let blocking = std::thread::spawn({
        let client = client.clone();
        move || client.program(1, 1).call::<(), Never>(&NULL, &|_| Ok(()))
    });
    assert_eq!(next_xid(&mut server), 3);
    drop((server, listener));
    let ended = started.into_iter().chain([after]).map(|pending| pending.wait());
    let threads = [waiting, blocking].map(|thread| thread.join().unwrap());
    assert!(ended.chain(threads).all(|ended| ended.is_err()));
}

#[cfg(target_os = "linux")]
#[test]
fn keepalive_ends_a_connection_to_an_unreachable_machine_after_a_minute() {
    use rustix::net::sockopt;

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
    let link = client.connection.lock().link.clone();
    let socket = link.carrier.descriptor();
    assert!(sockopt::socket_keepalive(socket).unwrap());
    let after = sockopt::tcp_keepidle(socket).unwrap() + sockopt::tcp_keepintvl(socket).unwrap() * 3;
    assert_eq!((after.as_secs(), sockopt::tcp_keepcnt(socket).unwrap()), (60, 3));
    assert_eq!(sockopt::tcp_user_timeout(socket).unwrap(), 60_000);
}

/// A socket that is broken in a way that nobody knows: whoever receives gets an error at once.
struct Broken {
    socket: std::net::UdpSocket,
    receptions: Arc<AtomicU32>,
}

impl carrier::Carrier for Broken {
    fn receive(&self, _: &mut [u8], _: carrier::Wait) -> io::Result<usize> {
        self.receptions.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::other("broken"))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.socket)
    }

    fn shutdown(&self) {}
}

/// Makes such sockets.
struct ToBroken(Arc<AtomicU32>);

impl carrier::Dial for ToBroken {
    fn dial(&self, _: Option<Duration>) -> io::Result<Box<dyn carrier::Carrier>> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        Ok(Box::new(Broken { socket, receptions: self.0.clone() }))
    }

    fn is_datagrams(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        "udp://broken".into()
    }
}

#[test]
fn a_call_by_a_socket_that_only_gives_errors_fails_and_rests_meanwhile() {
    let receptions = Arc::new(AtomicU32::new(0));
    let client = Client::builder().dial(ToBroken(receptions.clone())).unwrap();
    let began = client.connection.builder.env.now();
    let why: CallFailed = client.program(1, 1).call::<(), Never>(&NULL, &|_| Ok(())).unwrap_err().into();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    // The thread rests for a millisecond after each 64 errors.
    let millis = client.connection.builder.env.now().since(began).as_millis() as u32 + 1;
    let receptions = receptions.load(Ordering::Relaxed);
    assert!(receptions <= 70 * (millis + 2), "{receptions} in {millis} ms");
}

/// A socket whose datagrams a rule of this machine's firewall drops.
struct Forbidden(std::net::UdpSocket);

impl carrier::Carrier for Forbidden {
    fn receive(&self, _: &mut [u8], wait: carrier::Wait) -> io::Result<usize> {
        if let carrier::Wait::For(time) = wait {
            self.0.set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
            return self.0.recv(&mut [0; 8]);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn send(&self, _: &[u8]) -> io::Result<usize> {
        Err(rustix::io::Errno::PERM.into())
    }

    fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    fn shutdown(&self) {}
}

/// Makes such sockets.
struct ToForbidden;

impl carrier::Dial for ToForbidden {
    fn dial(&self, _: Option<Duration>) -> io::Result<Box<dyn carrier::Carrier>> {
        Ok(Box::new(Forbidden(std::net::UdpSocket::bind("127.0.0.1:0")?)))
    }

    fn is_datagrams(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        "udp://forbidden".into()
    }
}

#[test]
fn a_call_that_the_system_does_not_send_says_so() {
    let client = Client::builder().dial(ToForbidden).unwrap();
    let program = client.program(1, 1).within(Duration::from_millis(50));
    let blocking = program.call::<(), Never>(&NULL, &|_| Ok(()));
    let started = program.start::<(), Never>(&NULL, &|_| Ok(())).wait();
    for ended in [blocking, started] {
        let why: CallFailed = ended.unwrap_err().into();
        assert_eq!(why.kind(), Kind::Deadline);
        assert!(why.detail().contains("does not send to the server: Operation not permitted"), "{why}");
    }
}
