//! Tests of a client against scripted servers: successful calls, and every kind of failure.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{Asked, Datagrams, Echo, Stream, tcp, udp};
use farcall::{CallFailed, Calls, Kind, Ran};
use farcall_onc::wire::auth::{AuthStat, Flavor, OpaqueAuth};
use farcall_onc::wire::message::{Accepted, Answer, Rejected};
use farcall_onc::wire::record::Limits;
use farcall_onc::{AuthSys, Client};

fn failure<T: std::fmt::Debug>(result: farcall::Result<T>) -> CallFailed {
    result.unwrap_err().into()
}

#[test]
fn calls_over_tcp_and_a_unix_socket_give_their_results() {
    let over_tcp = tcp(|_, mut stream| stream.serve());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || Stream::new(listener.accept().unwrap().0).serve());
    for address in [over_tcp, format!("unix:{}", path.display())] {
        let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
        echo.null().unwrap();
        for length in [0, 1, 5, 1000, 100_000, 3_000_000] {
            let data = vec![7; length];
            assert_eq!(echo.echo(&data).unwrap(), data);
        }
        assert_eq!(echo.next(41).unwrap(), 42);
    }
}

#[test]
fn calls_over_udp_give_their_results() {
    let (address, server) = udp(|socket| {
        for _ in 0..3 {
            let (asked, from) = socket.next();
            socket.0.send_to(&asked.result(), from).unwrap();
        }
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    echo.null().unwrap();
    assert_eq!(echo.next(41).unwrap(), 42);
    assert_eq!(echo.echo(&[7; 60_000]).unwrap(), [7; 60_000]);
    server.join().unwrap();
    let why = failure(echo.echo(&[7; 65_500]));
    assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No));
}

#[test]
fn a_client_calls_a_server_at_an_ipv6_address() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else { return };
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || Stream::new(listener.accept().unwrap().0).serve());
    let client = Client::connect(&address).unwrap();
    assert_eq!(client.address(), address);
    assert_eq!(client.bind::<dyn Echo>().next(1).unwrap(), 2);
}

#[test]
fn replies_may_come_in_any_order() {
    let address = tcp(|_, mut stream| {
        let mut asked: Vec<Asked> = (0..64).map_while(|_| stream.next()).collect();
        asked.reverse();
        asked.iter().for_each(|asked| stream.send(&asked.result()));
        stream.serve();
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let all: Vec<_> = (0..64).map(|n| echo.start().next(n)).collect();
    for (n, pending) in all.into_iter().enumerate() {
        assert_eq!(pending.wait().unwrap(), n as u32 + 1);
    }
    assert_eq!(echo.next(7).unwrap(), 8);
}

#[test]
fn threads_share_a_connection() {
    let address = tcp(|_, mut stream| stream.serve());
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let echo = echo.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    let n = thread << 16 | n;
                    assert_eq!(echo.next(n).unwrap(), n + 1);
                    let pending = echo.start().next(n);
                    assert_eq!(echo.again(n).unwrap(), n);
                    assert_eq!(pending.wait().unwrap(), n + 1);
                }
            });
        }
    });
}

#[test]
fn one_thread_waits_for_the_first_of_many_calls_to_end() {
    let address = tcp(|_, mut stream| stream.serve());
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let mut calls = Calls::new();
    let mut sum = 0;
    for n in 0..1000 {
        calls.add(n, echo.start().next(n));
        while calls.len() >= 64 {
            let (n, result) = calls.wait().unwrap();
            assert_eq!(result.unwrap(), n + 1);
            sum += n;
        }
    }
    while let Some((n, result)) = calls.wait() {
        assert_eq!(result.unwrap(), n + 1);
        sum += n;
    }
    assert_eq!(sum, 999 * 1000 / 2);
}

#[test]
fn one_thread_waits_for_calls_on_two_connections() {
    let server = || Client::connect(&tcp(|_, mut stream| stream.serve())).unwrap().bind::<dyn Echo>();
    let (one, other) = (server(), server());
    for _ in 0..100 {
        let mut calls = Calls::new();
        for n in 0..4 {
            calls.add(n, one.start().next(n));
            calls.add(n, other.start().next(n));
        }
        let mut ended = 0;
        while let Some((n, result)) = calls.wait() {
            assert_eq!(result.unwrap(), n + 1);
            ended += 1;
        }
        assert_eq!(ended, 8);
    }
}

#[test]
fn calls_can_be_awaited() {
    let address = tcp(|_, mut stream| stream.serve());
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for n in 0..100 {
            let (a, b) = (echo.start().next(n), echo.start().next(n + 1));
            assert_eq!((a.await.unwrap(), b.await.unwrap()), (n + 1, n + 2));
        }
    });
}

// Arguments and results fill all buffers between client and server. The server reads a call only after it has
// sent the result of the previous call.
#[test]
fn a_client_receives_results_while_it_cannot_send_arguments() {
    let address = tcp(|_, mut stream| stream.serve());
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let data = vec![3; 1 << 20];
    let all: Vec<_> = (0..32).map(|_| echo.start().echo(&data)).collect();
    for pending in all {
        assert!(pending.wait().unwrap() == data);
    }
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(echo.echo(&data).unwrap() == data));
        }
    });
}

// The client receives messages with an unknown identifier, calls, messages of an unknown type, and messages
// that are too short.
#[test]
fn a_client_drops_messages_that_are_not_its_replies_and_waits_on() {
    let noise = |asked: &Asked| {
        let mut call = asked.result();
        call[7] = 0; // The message type of a call.
        let mut neither = asked.result();
        neither[7] = 9; // A message type that does not exist.
        let wrong = Asked { xid: asked.xid ^ 0x100, ..asked.clone() };
        vec![wrong.result(), call, neither, b"short".to_vec(), Vec::new()]
    };
    let address = tcp(move |_, mut stream| {
        while let Some(asked) = stream.next() {
            noise(&asked).iter().for_each(|message| stream.send(message));
            stream.send(&asked.result());
            // The server answers twice, as Debian's rstatd does.
            stream.send(&asked.result());
        }
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    (0..10).for_each(|n| assert_eq!(echo.next(n).unwrap(), n + 1));
    let (address, server) = udp(move |socket| {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..10 {
            let (asked, from) = socket.next();
            let forged = asked.accept(Accepted::Success(&[0, 0, 0, 99]));
            stranger.send_to(&forged, from).unwrap();
            for message in noise(&asked).iter().chain([&asked.result(), &asked.result()]) {
                socket.0.send_to(message, from).unwrap();
            }
        }
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    (0..10).for_each(|n| assert_eq!(echo.next(n).unwrap(), n + 1));
    server.join().unwrap();
}

#[test]
fn an_unanswered_call_is_sent_again_with_the_same_identifier() {
    let serve = |count: usize| {
        udp(move |socket| {
            let asked: Vec<_> = (0..count).map(|_| socket.next()).collect();
            let (last, from) = asked.last().unwrap();
            socket.0.send_to(&last.result(), *from).unwrap();
            asked.iter().map(|(asked, _)| asked.xid).collect::<Vec<u32>>()
        })
    };
    let client =
        |address: &str| Client::builder().retransmit(Duration::from_millis(5)).connect(address).unwrap();
    let (address, server) = serve(4);
    assert_eq!(client(&address).bind::<dyn Echo>().next(1).unwrap(), 2);
    let xids = server.join().unwrap();
    assert!(xids.iter().all(|xid| *xid == xids[0]), "{xids:?}");
    // A started call is sent again even if no thread waits for it.
    let (address, server) = serve(3);
    let pending = client(&address).bind::<dyn Echo>().start().next(1);
    let xids = server.join().unwrap();
    assert!(xids.iter().all(|xid| *xid == xids[0]), "{xids:?}");
    assert_eq!(pending.wait().unwrap(), 2);
}

#[test]
fn a_refusal_of_the_second_copy_does_not_prove_that_the_first_did_not_run() {
    // Tests a blocking call, and then a call that is started and waited for later.
    for started in [false, true] {
        let (address, _server) = udp(|socket| {
            socket.next();
            let (asked, from) = socket.next();
            socket.0.send_to(&asked.accept(Accepted::ProgUnavail), from).unwrap();
        });
        let client = Client::builder().retransmit(Duration::from_millis(5)).connect(&address).unwrap();
        let echo = client.bind::<dyn Echo>();
        let why = failure(if started { echo.start().next(1).wait() } else { echo.next(1) });
        assert_eq!((why.kind(), why.ran()), (Kind::NotExported, Ran::Maybe), "started: {started}");
    }
}

#[test]
fn a_call_without_reply_ends_after_the_clients_patience_or_at_the_callers_deadline() {
    let (gone, wait) = mpsc::channel::<()>();
    let address = tcp(move |_, mut stream| {
        stream.next();
        let _ = wait.recv();
    });
    let short = Duration::from_millis(20);
    let client = Client::builder().patience(Some(short)).connect(&address).unwrap();
    let echo = client.bind::<dyn Echo>();
    let why = failure(echo.next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe));
    let at = format!("next of Echo (program 0x20000077, version 3) at {address}: no reply within 20ms");
    assert_eq!(why.detail(), at);
    let why = failure(echo.within(short).next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let why = failure(echo.within(short).start().next(1).wait());
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let why = failure(runtime.block_on(echo.within(short).start().next(1)));
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    let mut calls = Calls::new();
    calls.add((), echo.within(short).start().next(1));
    let why = failure(calls.wait().unwrap().1);
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe));
    drop(gone);
}

/// Returns a loopback address that no other test uses, so that no other test gets the port that this test
/// frees. Returns 127.0.0.1 on systems that have only one loopback address.
fn loopback_of_this_test() -> &'static str {
    if UdpSocket::bind("127.0.7.4:0").is_ok() { "127.0.7.4:0" } else { "127.0.0.1:0" }
}

/// Returns a client of a closed port, and the address of that port. The client retransmits after an hour, or
/// earlier after a refusal.
fn client_of_a_refused_port() -> (Client, SocketAddr) {
    let port = UdpSocket::bind(loopback_of_this_test()).unwrap().local_addr().unwrap();
    let client = Client::builder().retransmit(Duration::from_secs(3600)).patience(None);
    (client.connect(&format!("udp://{port}")).unwrap(), port)
}

// The refused datagram may be the second copy of a call whose first copy ran.
#[test]
fn a_refused_port_never_proves_that_a_call_did_not_run() {
    let refused = |why: CallFailed| {
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
        assert!(why.detail().contains("refused"), "{why}");
    };
    let (client, _) = client_of_a_refused_port();
    let echo = client.bind::<dyn Echo>();
    refused(failure(echo.next(1)));
    refused(failure(echo.start().next(1).wait()));
    let mut calls = Calls::new();
    (0..3).for_each(|n| calls.add(n, echo.start().next(n)));
    (0..3).for_each(|_| refused(failure(calls.wait().unwrap().1)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    refused(failure(runtime.block_on(echo.start().next(1))));
    std::thread::scope(|scope| {
        (0..3).for_each(|n| {
            drop(scope.spawn({
                let echo = &echo;
                move || refused(failure(echo.next(n)))
            }))
        });
    });
    // The call fails only after several refusals. The deadline passes earlier.
    let why = failure(echo.within(Duration::from_millis(50)).next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::Maybe), "{why}");
}

#[test]
fn a_refused_call_is_soon_sent_again_to_a_server_that_starts_at_the_port() {
    for waits in [false, true] {
        let (client, port) = client_of_a_refused_port();
        let echo = client.bind::<dyn Echo>();
        // When `next` returns, the call has been sent and refused.
        let pending = echo.start().next(41);
        let socket = UdpSocket::bind(port).unwrap();
        let server = std::thread::spawn(move || {
            let socket = Datagrams(socket);
            let (asked, from) = socket.next();
            socket.0.send_to(&asked.result(), from).unwrap();
        });
        if waits {
            assert_eq!(pending.wait().unwrap(), 42);
            server.join().unwrap();
            continue;
        }
        // No thread waits for the call, so the service thread learns of the refusal.
        server.join().unwrap();
        assert_eq!(pending.wait().unwrap(), 42);
    }
}

#[test]
fn a_client_that_cannot_connect_reports_that_nothing_ran() {
    let tcp = TcpListener::bind(loopback_of_this_test()).unwrap().local_addr().unwrap();
    let why = Client::connect(&format!("tcp://{tcp}")).unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No));
    let why = Client::connect("unix:/no/such/socket").unwrap_err();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No));
    for address in ["localhost:1", "tcp://localhost", "ftp://localhost:1", ""] {
        let why = Client::connect(address).unwrap_err();
        assert_eq!((why.kind(), why.ran()), (Kind::NoSuchName, Ran::No), "{why}");
    }
}

#[test]
fn a_call_whose_connection_ends_may_have_run() {
    let address = tcp(|number, mut stream| {
        if number == 0 {
            stream.next();
            return;
        }
        stream.serve();
    });
    let client = Client::connect(&address).unwrap();
    let echo = client.bind::<dyn Echo>();
    let why = failure(echo.next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
    // The next call makes another connection.
    assert_eq!(echo.next(1).unwrap(), 2);
}

#[test]
fn an_idempotent_call_is_made_again_on_a_new_connection() {
    let address = tcp(|number, mut stream| {
        if number == 0 {
            stream.next();
            return;
        }
        stream.serve();
    });
    assert_eq!(Client::connect(&address).unwrap().bind::<dyn Echo>().again(5).unwrap(), 5);
}

#[test]
fn a_client_that_may_not_reconnect_makes_no_second_connection() {
    let address = tcp(|number, mut stream| {
        assert_eq!(number, 0, "the client made another connection");
        stream.next();
    });
    let client = Client::builder().reconnect(false).connect(&address).unwrap();
    let echo = client.bind::<dyn Echo>();
    assert_eq!(failure(echo.again(1)).ran(), Ran::Maybe);
    assert_eq!(failure(echo.again(1)).ran(), Ran::No);
    assert_eq!(failure(echo.start().again(1).wait()).ran(), Ran::No);
}

// The missing rest of a reply on the old connection must not affect replies on the new connection.
#[test]
fn a_partly_received_reply_is_discarded_with_its_connection() {
    let address = tcp(|number, mut stream| {
        if number == 0 {
            let asked = stream.next().unwrap();
            let reply = asked.result();
            stream.raw(&(0x8000_0000 | reply.len() as u32).to_be_bytes());
            stream.raw(&reply[..10]);
            return;
        }
        stream.serve();
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    assert_eq!(failure(echo.next(1)).ran(), Ran::Maybe);
    assert_eq!(echo.next(1).unwrap(), 2);
}

// Some existing servers send fragments of one byte, and an empty last fragment.
#[test]
fn a_reply_in_many_fragments_is_accepted() {
    let address = tcp(|_, mut stream| {
        let asked = stream.next().unwrap();
        asked.result().iter().for_each(|byte| stream.raw(&[0, 0, 0, 1, *byte]));
        stream.raw(&[0x80, 0, 0, 0]);
        stream.serve();
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    assert_eq!(echo.next(41).unwrap(), 42);
    assert_eq!(echo.next(1).unwrap(), 2);
}

// The server sends fragments that are too long, and too many fragments that are empty or have one byte.
#[test]
fn replies_beyond_the_limits_end_the_connection() {
    let limits = Limits { record: 1024, fragments: 100, ..Limits::default() };
    for bad in [
        vec![0x7f, 0xff, 0xff, 0xff],
        vec![0xff; 4],
        vec![0x80, 0, 4, 1],
        vec![0; 404],
        [0, 0, 0, 1, 9].repeat(101),
    ] {
        let address = tcp(move |number, mut stream| {
            if number == 0 {
                stream.next().unwrap();
                stream.raw(&bad);
            }
            stream.serve();
        });
        let echo = Client::builder().limits(limits).connect(&address).unwrap().bind::<dyn Echo>();
        let why = failure(echo.next(1));
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe), "{why}");
        assert_eq!(echo.next(1).unwrap(), 2);
    }
}

#[test]
fn each_refusal_has_its_kind_and_reports_that_the_call_did_not_run() {
    let answers = [
        (Answer::Accepted { verifier: OpaqueAuth::NONE, outcome: Accepted::ProgUnavail }, Kind::NotExported),
        (
            Answer::Accepted {
                verifier: OpaqueAuth::NONE,
                outcome: Accepted::ProgMismatch { low: 4, high: 7 },
            },
            Kind::Mismatch,
        ),
        (
            Answer::Accepted { verifier: OpaqueAuth::NONE, outcome: Accepted::ProcUnavail },
            Kind::NoSuchProcedure,
        ),
        (Answer::Accepted { verifier: OpaqueAuth::NONE, outcome: Accepted::GarbageArgs }, Kind::BadArguments),
        (Answer::Rejected(Rejected::RpcMismatch { low: 3, high: 4 }), Kind::Mismatch),
        (Answer::Rejected(Rejected::AuthError(AuthStat::TOOWEAK)), Kind::NotPermitted),
        (Answer::Rejected(Rejected::AuthError(AuthStat(77))), Kind::NotPermitted),
    ];
    let address = tcp(move |_, mut stream| {
        for (answer, _) in &answers {
            let asked = stream.next().unwrap();
            stream.send(&asked.answer(*answer));
        }
        let asked = stream.next().unwrap();
        stream.send(&asked.accept(Accepted::SystemErr));
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    for (answer, kind) in answers {
        let why = failure(echo.next(1));
        assert_eq!((why.kind(), why.ran()), (kind, Ran::No), "{answer:?}: {why}");
        assert!(why.detail().contains("next of Echo") && why.detail().contains(&address), "{why}");
    }
    assert_eq!(failure(echo.next(1)).ran(), Ran::Maybe);
}

#[test]
fn an_unreadable_reply_is_a_bad_result() {
    let address = tcp(move |_, mut stream| {
        // An unknown status, a verifier that is too long, and a truncated header.
        for tail in [
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9][..],
            &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0],
            &[0],
        ] {
            let asked = stream.next().unwrap();
            stream.send(&[&asked.xid.to_be_bytes()[..], &[0, 0, 0, 1], tail].concat());
        }
        let asked = stream.next().unwrap();
        stream.send(&asked.accept(Accepted::Success(&[0, 0])));
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    for _ in 0..3 {
        let why = failure(echo.next(1));
        assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Maybe));
        assert!(why.detail().contains("byte") && why.detail().contains(&address), "{why}");
    }
    let why = failure(echo.next(1));
    assert_eq!((why.kind(), why.ran()), (Kind::BadResult, Ran::Yes));
    let said = format!("next of Echo (program 0x20000077, version 3) at {address}: at byte 0: ");
    assert!(why.detail().starts_with(&said), "{why}");
}

// The verifier of a reply gives the client a short credential. The client sends the short credential until
// the server rejects it (RFC 5531 section 8.2 and appendix A).
#[test]
fn auth_short_stands_for_auth_sys_until_it_is_rejected() {
    let address = tcp(|_, mut stream| {
        let mut flavors = Vec::new();
        for number in 0..6 {
            let asked = stream.next().unwrap();
            flavors.push(asked.credential.0);
            let is_short = asked.credential.0 == Flavor::SHORT.0;
            assert!(!is_short || asked.credential.1 == b"hand");
            if is_short && number == 3 {
                stream.send(&asked.answer(Answer::Rejected(Rejected::AuthError(AuthStat::REJECTEDCRED))));
                continue;
            }
            let verifier = match number {
                1 => OpaqueAuth::new(Flavor::SHORT.0, b"hand").unwrap(),
                _ => OpaqueAuth::NONE,
            };
            let outcome = Accepted::Success(&asked.arguments);
            stream.send(&asked.answer(Answer::Accepted { verifier, outcome }));
        }
        assert_eq!(flavors, [1, 1, 2, 2, 1, 1]);
        let asked = stream.next().unwrap();
        stream.send(&asked.result());
    });
    let auth = AuthSys::new(b"here", 1000, 100, &[5, 6]).unwrap();
    let echo = Client::builder().auth(auth).connect(&address).unwrap().bind::<dyn Echo>();
    for n in 0..5 {
        assert_eq!(echo.again(n).unwrap(), n);
    }
    assert_eq!(echo.next(1).unwrap(), 2);
    assert!(AuthSys::new(&[b'x'; 256], 0, 0, &[]).is_err());
    assert!(AuthSys::new(b"x", 0, 0, &[0; 17]).is_err());
}

#[test]
fn one_way_calls_are_not_answered() {
    let (received, calls) = mpsc::channel();
    let address = tcp(move |_, mut stream| {
        while let Some(asked) = stream.next() {
            match asked.procedure {
                0 => received.send(asked.arguments.len()).unwrap(),
                _ => stream.send(&asked.result()),
            }
        }
    });
    let client = Client::connect(&address).unwrap();
    let (echo, one_way) = (client.bind::<dyn Echo>(), client.one_way().bind::<dyn Echo>());
    for _ in 0..10 {
        one_way.null().unwrap();
        one_way.start().null().wait().unwrap();
    }
    assert_eq!(echo.next(1).unwrap(), 2);
    assert_eq!(calls.try_iter().count(), 20);
}

#[test]
fn a_call_that_is_dropped_or_cancelled_leaves_the_connection_usable() {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let address = tcp(move |_, mut stream| {
        while let Some(asked) = stream.next() {
            counted.fetch_add(1, Ordering::SeqCst);
            stream.send(&asked.result());
        }
    });
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    for n in 0..100 {
        drop(echo.start().next(n));
        echo.start().next(n).detach();
        let mut pending = echo.start().next(n);
        pending.cancel();
        let outcome = pending.wait();
        assert!(outcome.is_ok() || failure(outcome).kind() == Kind::Cancelled);
    }
    assert_eq!(echo.next(1).unwrap(), 2);
    // The client sends calls in the order in which they are made, so the server has counted all earlier
    // calls.
    assert_eq!(count.load(Ordering::SeqCst), 301);
}

/// A generator of pseudo-random numbers. A seed always gives the same numbers.
struct Random(u64);

impl Random {
    /// Returns a number less than `below`, or 0 if `below` is 0.
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % below.max(1)
    }
}

// The server changes random bytes of a reply and of its mark, and truncates the reply.
#[test]
fn every_call_ends_whatever_bytes_the_server_sends() {
    // The first connection uses seed 0, the second seed 1.
    let address = tcp(|seed, mut stream| {
        let mut random = Random(seed as u64);
        let Some(asked) = stream.next() else { return };
        let mut message = asked.result();
        for _ in 0..random.next(4) {
            let at = random.next(message.len());
            message[at] = random.next(256) as u8;
        }
        message.truncate(message.len().saturating_sub(random.next(3) * random.next(20)));
        let mut record = (0x8000_0000 | message.len() as u32).to_be_bytes().to_vec();
        if random.next(4) == 0 {
            let at = random.next(4);
            record[at] = random.next(256) as u8;
        }
        stream.raw(&record);
        stream.raw(&message);
    });
    for client in 0..300u32 {
        let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
        let results = [echo.next(client), echo.start().next(client).wait(), echo.again(client)];
        for result in results.into_iter().filter_map(Result::err) {
            let why = CallFailed::from(result);
            assert!(!why.detail().is_empty(), "client {client}: {why:?}");
        }
    }
}

// Only privileged processes can bind a reserved port. The system refuses the port to other processes.
#[test]
fn a_client_may_call_from_a_reserved_port() {
    let (port, ports) = mpsc::channel();
    let address = tcp(move |_, mut stream| {
        port.send(stream.socket.peer_addr().unwrap().port()).unwrap();
        stream.serve();
    });
    match Client::builder().reserved_port().connect(&address) {
        Ok(client) => {
            assert_eq!(client.bind::<dyn Echo>().next(1).unwrap(), 2);
            assert!((512..1024).contains(&ports.recv().unwrap()));
        }
        Err(why) => assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}"),
    }
}

/// An interface without a program number. It may have streams and one-way procedures, which ONC RPC lacks.
#[farcall::interface]
trait Richer {
    fn sum(&self, numbers: farcall::Stream<u64>) -> farcall::Result<u64>;
    fn below(&self, limit: u64) -> farcall::Result<farcall::Stream<u64>>;
    #[oneway]
    fn note(&self, number: u64) -> farcall::Result<()>;
}

#[test]
fn streams_and_one_way_procedures_are_refused_before_anything_is_sent() {
    // This socket never answers, so a call that was sent would wait without end.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = format!("udp://{}", socket.local_addr().unwrap());
    let client = Client::builder().patience(None).connect(&address).unwrap();
    let richer = client.bind_as::<dyn Richer>(0x2000_0077, 1);
    let numbers = || farcall::Stream::of(0..3);
    let refusals = [
        failure(richer.sum(numbers())),
        failure(richer.start().sum(numbers()).wait()),
        failure(richer.below(3)),
        failure(richer.start().below(3).wait()),
        failure(richer.note(7).and_then(|()| richer.binding().flush())),
    ];
    for why in refusals {
        assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No), "{why}");
        assert!(why.detail().contains("ONC RPC carries no"), "{why}");
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 64]).is_err(), "the client sent a datagram");
}

#[test]
fn started_calls_to_a_hung_server_keep_no_more_than_the_budget_leaves_free() {
    const LEN: usize = 60_000;
    let hung = UdpSocket::bind("127.0.0.1:0").unwrap();
    let builder = Client::builder().patience(None).argument_bytes(16 * (LEN + 100));
    let to_hung = builder.connect(&format!("udp://{}", hung.local_addr().unwrap())).unwrap();
    let to_hung = to_hung.bind::<dyn Echo>();
    let mut waiting: Vec<_> = (0..100).map(|_| to_hung.start().echo(&[7; LEN])).collect();
    let (address, server) = udp(|socket| {
        let (asked, from) = socket.next();
        socket.0.send_to(&asked.result(), from).unwrap();
    });
    let well = builder.connect(&address).unwrap().bind::<dyn Echo>();
    assert_eq!(well.start().echo(&[7; LEN]).wait().unwrap(), [7; LEN], "the others do not suffer");
    server.join().unwrap();
    for one in &mut waiting {
        one.cancel();
    }
    let refused = waiting.into_iter().map(|one| failure(one.wait()));
    let refused = refused.filter(|why| (why.kind(), why.ran()) == (Kind::Overloaded, Ran::No)).count();
    assert_eq!(refused, 100 - 8, "the others have half of the budget");
}

#[test]
fn what_waits_to_be_sent_to_a_deaf_server_counts_too_until_it_is_sent() {
    const LEN: usize = 1 << 20;
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let builder = Client::builder().patience(None).argument_bytes(4 * LEN);
    let to_deaf = builder.connect(&format!("tcp://{}", deaf.local_addr().unwrap())).unwrap();
    let to_deaf = to_deaf.bind::<dyn Echo>();
    let mut waiting: Vec<_> = (0..40).map(|_| to_deaf.start().echo(&vec![7; LEN])).collect();
    let well = builder.connect(&tcp(|_, mut stream| stream.serve())).unwrap().bind::<dyn Echo>();
    assert_eq!(well.start().echo(&vec![7; LEN]).wait().unwrap().len(), LEN, "the others do not suffer");
    // The last one found no room, and the first one always does.
    let why = failure(waiting.pop().unwrap().wait());
    assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No));
    std::thread::spawn(move || Stream::new(deaf.accept().unwrap().0).serve());
    assert_eq!(waiting.remove(0).wait().unwrap().len(), LEN);
    drop(waiting);
    assert_eq!(to_deaf.start().echo(&vec![7; LEN]).wait().unwrap().len(), LEN);
}
