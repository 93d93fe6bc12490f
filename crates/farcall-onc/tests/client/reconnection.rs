//! Tests of the failures that a client reports when connections break, and of how it connects again.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{Asked, Echo, EchoClient, Stream, tcp, udp};
use farcall::{CallFailed, Calls, Kind, Ran};
use farcall_onc::wire::auth::{AuthStat, Flavor, OpaqueAuth};
use farcall_onc::wire::message::{Accepted, Answer, Rejected};
use farcall_onc::wire::record::Limits;
use farcall_onc::{AuthSys, Client};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

fn failure<T: std::fmt::Debug>(result: farcall::Result<T>) -> CallFailed {
    result.unwrap_err().into()
}

/// The path of a Unix socket in a temporary directory.
struct Place {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        Place { _directory: directory, path }
    }

    fn address(&self) -> String {
        format!("unix:{}", self.path.display())
    }
}

/// Starts a server that ends its first connection after one call. The server keeps its second connection
/// open. The returned channel gets a message when the first connection has ended.
fn ends_its_first_connection(place: &Place) -> mpsc::Receiver<()> {
    let listener = UnixListener::bind(&place.path).unwrap();
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let mut first = Stream::new(listener.accept().unwrap().0);
        let asked = first.next().unwrap();
        first.send(&asked.result());
        drop(first);
        ended.send(()).unwrap();
        Stream::new(listener.accept().unwrap().0).serve();
    });
    end
}

#[test]
fn a_call_that_cannot_be_sent_is_made_on_another_connection() {
    let place = Place::new();
    let end = ends_its_first_connection(&place);
    let echo = Client::connect(&place.address()).unwrap().bind::<dyn Echo>();
    assert_eq!(echo.next(1).unwrap(), 2);
    end.recv().unwrap();
    assert_eq!(echo.next(2).unwrap(), 3);
}

#[test]
fn a_call_that_cannot_be_sent_did_not_run() {
    let cases: [fn(&Client) -> CallFailed; 3] = [
        |client| failure(client.bind::<dyn Echo>().next(1)),
        |client| failure(client.bind::<dyn Echo>().start().next(1).wait()),
        |client| failure(client.one_way().bind::<dyn Echo>().null()),
    ];
    for case in cases {
        let place = Place::new();
        let end = ends_its_first_connection(&place);
        let client = Client::builder().reconnect(false).connect(&place.address()).unwrap();
        assert_eq!(client.bind::<dyn Echo>().next(1).unwrap(), 2);
        end.recv().unwrap();
        let why = case(&client);
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}");
    }
}

// A Unix socket whose queue of connections is full takes no new connection before its server accepts one.
#[test]
fn a_full_queue_of_connections_delays_no_call_beyond_its_deadline() {
    let place = Place::new();
    let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&place.path).unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let listener = UnixListener::from(listener);
    let echo = Client::connect(&place.address()).unwrap().bind::<dyn Echo>();
    drop(listener.accept().unwrap());
    let waits = UnixStream::connect(&place.path).unwrap();

    let soon = echo.within(Duration::from_millis(20));
    let late = || {
        let why = failure(soon.next(1));
        assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
        let why = failure(soon.start().next(1).wait());
        assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    };
    thread::scope(|scope| {
        // A call with a long deadline keeps waiting. It does not delay calls with shorter deadlines.
        let patient = scope.spawn(|| echo.next(41));
        let others = [scope.spawn(late), scope.spawn(late)];
        others.into_iter().for_each(|other| other.join().unwrap());
        drop(waits);
        scope.spawn(|| {
            // Accepts `waits`, which the test has closed, and then the client's connections.
            while let Ok((socket, _)) = listener.accept() {
                let mut stream = Stream::new(socket);
                if let Some(asked) = stream.next() {
                    stream.send(&asked.result());
                    return;
                }
            }
        });
        assert_eq!(patient.join().unwrap().unwrap(), 42);
    });
}

// The first copy of the call may have run on a server that still knew the short credential.
#[test]
fn a_repeated_call_with_a_rejected_credential_is_not_made_again() {
    let (address, server) = udp(|socket| {
        let (first, from) = socket.next();
        let verifier = OpaqueAuth::new(Flavor::SHORT.0, b"hand").unwrap();
        let outcome = Accepted::Success(&first.arguments);
        socket.0.send_to(&first.answer(Answer::Accepted { verifier, outcome }), from).unwrap();
        let mut seen = Vec::new();
        loop {
            let (asked, from) = socket.next();
            // On a busy machine the first call may be sent again before it is answered.
            if asked.xid == first.xid {
                continue;
            }
            let is_short = asked.credential.0 == Flavor::SHORT.0;
            let is_repeated = seen.last() == Some(&(asked.xid, is_short));
            seen.push((asked.xid, is_short));
            if !is_short {
                socket.0.send_to(&asked.result(), from).unwrap();
                return seen;
            }
            if is_repeated {
                let rejected = Answer::Rejected(Rejected::AuthError(AuthStat::REJECTEDCRED));
                socket.0.send_to(&asked.answer(rejected), from).unwrap();
            }
        }
    });
    let auth = AuthSys::new(b"here", 1000, 100, &[]).unwrap();
    let client = Client::builder().auth(auth).retransmit(Duration::from_millis(5)).connect(&address).unwrap();
    let echo = client.bind::<dyn Echo>();
    assert_eq!(echo.again(5).unwrap(), 5);
    let why = failure(echo.next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::NotPermitted, Ran::Maybe), "{why}");
    assert_eq!(echo.next(7).unwrap(), 8);
    let seen = server.join().unwrap();
    assert!(seen.iter().filter(|(_, is_short)| !is_short).count() == 1, "{seen:?}");
}

// The system reports that a port is closed, but not which datagram was refused. The server may have received
// other datagrams.
#[test]
fn a_refusal_after_earlier_datagrams_does_not_prove_that_a_call_did_not_run() {
    let client =
        |address: &str| Client::builder().retransmit(Duration::from_millis(5)).connect(address).unwrap();
    let refused =
        |why: CallFailed| assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
    // The call is sent again, both if it was started and if a thread waits for it.
    let (address, server) = udp(|socket| drop((socket.next(), socket.next())));
    let pending = client(&address).bind::<dyn Echo>().start().next(1);
    server.join().unwrap();
    refused(failure(pending.wait()));
    let (address, _server) = udp(|socket| drop((socket.next(), socket.next())));
    refused(failure(client(&address).bind::<dyn Echo>().next(1)));
    // The earlier datagram is a one-way call.
    let (address, server) = udp(|socket| drop(socket.next()));
    let client = client(&address);
    client.one_way().bind::<dyn Echo>().null().unwrap();
    server.join().unwrap();
    refused(failure(client.bind::<dyn Echo>().next(1)));
}

/// Returns the mark and the first 10 bytes of a reply.
fn half(asked: &Asked) -> Vec<u8> {
    let reply = asked.result();
    [&(0x8000_0000 | reply.len() as u32).to_be_bytes()[..], &reply[..10]].concat()
}

/// Starts a server, and returns its address. The server answers the first call of its first connection with
/// the bytes of `first`, and sends nothing more there. It serves other connections.
fn falls_silent(first: impl Fn(&Asked) -> Vec<u8> + Send + 'static) -> String {
    let mut silent = Vec::new();
    tcp(move |number, mut stream| {
        if number > 0 {
            return stream.serve();
        }
        let asked = stream.next().unwrap();
        stream.raw(&first(&asked));
        silent.push(stream);
    })
}

/// The time after which a client or a call gives up waiting in these tests.
const SHORT: Duration = Duration::from_millis(20);

/// Returns functions that make one call each, and wait for it in different ways.
fn ways() -> [fn(&EchoClient) -> farcall::Result<u32>; 4] {
    [
        |echo| echo.next(41),
        |echo| echo.start().next(41).wait(),
        |echo| {
            let mut calls = Calls::new();
            calls.add((), echo.start().next(41));
            calls.wait().unwrap().1
        },
        |echo| tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(echo.start().next(41)),
    ]
}

#[test]
fn after_a_call_without_a_whole_reply_the_next_call_makes_another_connection() {
    let answers: [fn(&Asked) -> Vec<u8>; 2] = [|_| Vec::new(), half];
    for (way, first) in ways().into_iter().flat_map(|way| answers.map(|first| (way, first))) {
        let address = falls_silent(first);
        let client = Client::builder().patience(Some(SHORT)).connect(&address).unwrap();
        let why = failure(way(&client.bind::<dyn Echo>()));
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
        let echo = client.bind::<dyn Echo>().within(Duration::from_secs(20));
        assert_eq!(echo.next(41).unwrap(), 42);
        assert_eq!(echo.start().next(41).wait().unwrap(), 42);
    }
}

#[test]
fn a_call_fails_when_its_reply_takes_longer_than_a_record_may() {
    for way in ways() {
        let address = falls_silent(half);
        let limits = Limits { time: SHORT, ..Limits::default() };
        let client = Client::builder().patience(None).limits(limits).connect(&address).unwrap();
        let why = failure(way(&client.bind::<dyn Echo>()));
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe), "{why}");
        assert!(why.detail().contains("took longer than 20ms"), "{why}");
        assert_eq!(way(&client.bind::<dyn Echo>()).unwrap(), 42);
    }
}

#[test]
fn earlier_calls_on_a_silent_connection_can_still_be_answered() {
    let (answer, answered) = mpsc::channel::<()>();
    let mut first = Some(answered);
    let address = tcp(move |_, mut stream| {
        let Some(answer) = first.take() else { return stream.serve() };
        thread::spawn(move || {
            let (slow, _) = (stream.next().unwrap(), stream.next().unwrap());
            answer.recv().unwrap();
            stream.send(&slow.result());
            // The client does not use the old connection any more.
            assert!(stream.next().is_none());
        });
    });
    let echo = Client::builder().patience(None).connect(&address).unwrap().bind::<dyn Echo>();
    let slow = echo.start().next(1);
    let why = failure(echo.within(SHORT).next(2));
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe), "{why}");
    assert_eq!(echo.next(3).unwrap(), 4, "the call is made on another connection");
    answer.send(()).unwrap();
    assert_eq!(slow.wait().unwrap(), 2);
}

#[test]
fn a_slow_call_does_not_end_a_connection_on_which_other_calls_are_answered() {
    let address = tcp(|number, mut stream| {
        assert_eq!(number, 0, "the client made another connection");
        let slow = stream.next().unwrap();
        let other = stream.next().unwrap();
        stream.send(&other.result());
        stream.serve();
        drop(slow);
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let slow = echo.within(Duration::from_secs(1)).start().next(1);
    assert_eq!(echo.next(2).unwrap(), 3);
    assert_eq!(failure(slow.wait()).kind(), Kind::Deadline);
    assert_eq!(echo.next(4).unwrap(), 5);
}

#[test]
fn a_client_that_may_not_reconnect_keeps_a_silent_connection() {
    let address = tcp(|number, mut stream| {
        assert_eq!(number, 0, "the client made another connection");
        stream.next().unwrap();
        stream.serve();
    });
    let client = Client::builder().reconnect(false).connect(&address).unwrap();
    let echo = client.bind::<dyn Echo>();
    assert_eq!(failure(echo.within(SHORT).next(1)).ran(), Ran::Maybe);
    assert_eq!(echo.next(2).unwrap(), 3);
}
