//! A server that refuses tickets in every way that the specification allows, over a real socket.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::builder;
use farcall::stub::Interface;
use farcall::{Kind, Ran};
use farcall_proto::server::{Export, Server};
use farcall_proto::{Fingerprint, ServerConfig, Time};

#[farcall::interface]
pub trait Echo {
    fn echo(&self, number: u64) -> farcall::Result<u64>;
}

const BIND: u8 = 0x01;
const RENEWAL: u8 = 0x01;

/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

/// Serves with two incarnations at one address. The first answers BIND; the second answers everything else,
/// so it refuses the tickets of the first. It does so in conversation zero, since the client's identifier is
/// in its ticket only. The second is also asked whether a ticket is good, and takes no new calls.
fn refuse(socket: &UdpSocket, over: &AtomicBool) {
    let time = || Time::from_nanos(1 << 40);
    let (mut binds, mut serves): (Server, Server) =
        [1, 2].map(|secret| Server::new(ServerConfig::default(), time(), [secret; 32])).into();
    let fingerprints = <dyn Echo as Interface>::interface().fingerprints();
    let procedures =
        fingerprints.iter().map(|f| Fingerprint { number: f.number, types: f.types, name: f.name }).collect();
    binds.export(Export { id: 7, type_name: "Echo".into(), instance: String::new(), procedures });
    serves.drain();
    let (mut datagram, mut out) = ([0; 2048], [0; 2048]);
    while let Ok((len, from)) = socket.recv_from(&mut datagram)
        && !over.load(Ordering::SeqCst)
    {
        let anonymous = datagram[4..12] == [0; 8];
        let renews = anonymous && datagram[20..22] == [BIND, RENEWAL];
        let server: &mut Server = if anonymous && !renews { &mut binds } else { &mut serves };
        server.receive(time(), from, &datagram[..len], &mut |_| unreachable!("no conversation was admitted"));
        while let Some(answer) = server.transmit(time(), &mut out) {
            if !anonymous {
                // Over loopback a datagram's tag is its length.
                out[4..12].fill(0);
            }
            socket.send_to(&out[..answer.len], answer.to).unwrap();
        }
    }
}

#[test]
fn a_refusal_in_conversation_zero_is_asked_about_and_ends_the_call_of_the_thread_that_receives() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = socket.local_addr().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| refuse(&socket, &over));
        let (ended, ends) = mpsc::channel();
        // A thread that hangs is left behind; the test does not wait for it.
        thread::spawn(move || {
            let runtime = builder().shared_memory(false).build().unwrap();
            let echo = runtime.import::<dyn Echo>(&format!("udp://{address}/Echo")).unwrap();
            for number in 0..3 {
                let why = echo.echo(number).expect_err("nobody is there to execute it");
                let _ = ended.send((why.call_failed().map(|why| why.kind()), why.ran()));
            }
        });
        for _ in 0..3 {
            let told = ends.recv_timeout(LONG);
            if told != Ok((Some(Kind::ServerRestarted), Ran::Maybe)) {
                over.store(true, Ordering::SeqCst);
                let _ = socket.send_to(&[], address);
            }
            assert_eq!(told, Ok((Some(Kind::ServerRestarted), Ran::Maybe)));
        }
        over.store(true, Ordering::SeqCst);
        let _ = socket.send_to(&[], address);
    });
}
