//! Test of a client whose server refuses its tickets in every way that the specification allows, over a real
//! socket.

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

/// How long the test waits for an event before it fails. No event takes nearly as long.
const LONG: Duration = Duration::from_secs(60);

/// Serves with two incarnations of a server at one address. The first incarnation answers BINDs. The second
/// answers all other datagrams and questions about tickets, so it refuses the tickets of the first. Its
/// refusals go to conversation zero, because the client's identifier is in the ticket only. It takes no new
/// calls.
fn refuse(socket: &UdpSocket, over: &AtomicBool) {
    let time = || Time::from_nanos(1 << 40);
    let (mut binds, mut serves): (Server, Server) =
        [1, 2].map(|secret| Server::new(ServerConfig::default(), time(), [secret; 32])).into();
    let fingerprints = <dyn Echo as Interface>::interface().fingerprints();
    let procedures =
        fingerprints.iter().map(|f| Fingerprint { number: f.number, types: f.types, name: f.name }).collect();
    binds.export(Export { id: 7, type_name: "Echo".into(), instance: String::new(), procedures });
    serves.drain(time(), None);
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
fn a_refusal_in_conversation_zero_is_confirmed_and_ends_the_call_of_the_receiving_thread() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address: SocketAddr = socket.local_addr().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| refuse(&socket, &over));
        let (ended, ends) = mpsc::channel();
        // If this thread hangs, the test fails and does not wait for the thread.
        thread::spawn(move || {
            let runtime = builder().shared_memory(false).build().unwrap();
            let echo = runtime.import::<dyn Echo>(&format!("udp://{address}/Echo")).unwrap();
            for number in 0..3 {
                let why = echo.echo(number).expect_err("no server executes the call");
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
