//! Tests that the send time of a call is never later than the send. Otherwise the client would report a call
//! as not run although a server had executed it before the server died.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::common::builder;
use crate::stops::Stops;
use farcall::env::Time;
use farcall::memory::{Memory, Remote};
use farcall::{Error, Ran};
use farcall_proto::ServerConfig;
use farcall_proto::server::{Export, Finish, Request, Server};

/// The number of the procedure that describes a segment.
const FACTS: u32 = 0xffff_8001;

/// Serves a segment by the protocol core. The server executes the first write, and dies before it answers.
/// The next incarnation's clock is ten seconds ahead when it receives the datagram again. `written` counts
/// the writes.
fn serve(socket: &UdpSocket, written: &AtomicU32, over: &AtomicBool) {
    let begun = Instant::now();
    let mut lives = 0;
    let mut live = |now| {
        lives += 1;
        let mut server = Server::new(ServerConfig::default(), now, [lives; 32]);
        let (type_name, instance) = ("Memory".into(), "Words".into());
        server.export(Export { id: 7, type_name, instance, procedures: Vec::new() });
        server
    };
    let mut later = Duration::from_secs(1);
    let mut server = live(Time::default());
    let (mut buffer, mut out) = (vec![0; 65_536], vec![0; 65_536]);
    while !over.load(Ordering::SeqCst) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
        let now = Time::default() + begun.elapsed() + later;
        let mut asked = Vec::new();
        server.receive(now, from, &buffer[..len], &mut |request| {
            if let Request::Call(incoming) = request {
                asked.push((incoming.key, incoming.procedure));
            }
        });
        for (key, procedure) in asked {
            if procedure == FACTS {
                let facts =
                    [&1_u64.to_be_bytes()[..], &4096_u64.to_be_bytes(), &7_u32.to_be_bytes()].concat();
                server.finish(now, key, Finish::Result, &mut { facts }, &mut []);
            } else if written.fetch_add(1, Ordering::SeqCst) == 0 {
                server = live(now);
                later += Duration::from_secs(10);
            } else {
                server.finish(now, key, Finish::Result, &mut 0_u64.to_be_bytes().to_vec(), &mut []);
            }
        }
        while let Some(sent) = server.transmit(now, &mut out) {
            socket.send_to(&out[..sent.len], sent.to).unwrap();
        }
    }
}

/// Stops the caller of a write around its send, while a server executes the write and dies. Asserts that the
/// write is reported as one that may have run.
fn is_reported_as_possibly_run(write: impl Fn(&Remote) -> farcall::memory::Result<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    let (written, over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&socket, &written, &over));
        let env = Stops::default();
        let runtime = builder().shared_memory(false).env(Arc::new(env.clone())).build().unwrap();
        let remote =
            runtime.import_segment(&format!("udp://{}/Words", socket.local_addr().unwrap())).unwrap();
        env.stop();
        let outcome = write(&remote);
        over.store(true, Ordering::SeqCst);
        assert!(env.has_stopped());
        let Err(Error::CallFailed(why)) = outcome else { panic!("{outcome:?}") };
        assert_eq!((why.ran(), written.load(Ordering::SeqCst)), (Ran::Maybe, 1), "{why}");
    });
}

#[test]
fn a_fast_path_access_whose_caller_was_stopped_may_have_run() {
    is_reported_as_possibly_run(|remote| remote.compare_and_swap(0, 0, 1).map(drop));
}

#[test]
fn a_blocking_write_whose_caller_was_stopped_may_have_run() {
    is_reported_as_possibly_run(|remote| remote.write(0, &[1; 200]));
}

#[test]
fn a_started_write_whose_caller_was_stopped_may_have_run() {
    is_reported_as_possibly_run(|remote| remote.start_write(0, &[1; 200]).wait());
}
