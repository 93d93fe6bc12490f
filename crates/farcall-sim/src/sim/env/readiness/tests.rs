//! Tests simulated streams in the way in which farcall uses streams.

use std::io::{ErrorKind, IoSlice};
use std::net::Shutdown;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::System;
use farcall::env::{Address, ConnectOptions, Env, Interest, Stream, Wait, Wanted};

use crate::{Faults, Sim, check, replay, sim};

/// Where the server listens.
type Place = Arc<Mutex<Option<Address>>>;

fn await_ready(env: &dyn Env, stream: &dyn Stream, interest: Interest) {
    env.wait_any(&mut [Wanted::new(stream.source(), interest)], None).unwrap();
}

/// Accepts one connection, and sends back what comes, until the client ends its direction of the connection.
fn echo(place: &Place) {
    let env = System::current();
    let listener = env.listen(&Address::Tcp("0.0.0.0:0".parse().unwrap())).unwrap();
    *place.lock().unwrap() = listener.local_address().map(Address::Tcp);
    env.wait_any(&mut [Wanted::new(listener.source(), Interest::READ)], None).unwrap();
    let stream = listener.accept().unwrap().stream;
    let mut buffer = [0; 5000];
    loop {
        let len = match stream.read(&mut buffer, Wait::Forever) {
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        if write_all(&*env, &*stream, &buffer[..len]).is_err() {
            return;
        }
    }
}

fn write_all(env: &dyn Env, stream: &dyn Stream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream
            .write(&[IoSlice::new(&bytes[..bytes.len() / 2]), IoSlice::new(&bytes[bytes.len() / 2..])])
        {
            Ok(len) => bytes = &bytes[len..],
            Err(why) if why.kind() == ErrorKind::WouldBlock => await_ready(env, stream, Interest::WRITE),
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

fn connect(place: &Place) -> Arc<dyn Stream> {
    let env = System::current();
    let address = place.lock().unwrap().clone().unwrap();
    let stream = env.connect(&address, &ConnectOptions::default()).unwrap();
    await_ready(&*env, &*stream, Interest::WRITE);
    stream
}

fn exchange(sim: &Sim) {
    sim.faults(Faults { jitter: Duration::from_millis(20), ..Faults::none() });
    let place = Place::default();
    let at = place.clone();
    sim.server("echo", move || echo(&at));
    sim.process("client", move || {
        let stream = connect(&place);
        stream.take_error().unwrap();
        let sent: Vec<u8> = (0..30_000u32).map(|n| (n * 7) as u8).collect();
        let (bytes, writes) = (sent.clone(), stream.clone());
        let writer = sim::spawn(move || {
            write_all(&*System::current(), &*writes, &bytes).unwrap();
            writes.shutdown(Shutdown::Write);
        });
        let (mut got, mut buffer) = (Vec::new(), [0; 3000]);
        loop {
            match stream.read(&mut buffer, Wait::Nanos(1_000_000)) {
                Ok(0) => break,
                Ok(len) => got.extend_from_slice(&buffer[..len]),
                Err(why) => assert_eq!(why.kind(), ErrorKind::WouldBlock),
            }
        }
        writer.join();
        assert!(got == sent);
    });
}

#[test]
fn bytes_cross_in_parts_and_in_order_until_one_side_ends_its_direction() {
    check(30, exchange);
    assert_eq!(replay(7, exchange), replay(7, exchange));
}

#[test]
fn a_peer_that_crashes_or_was_never_there_is_found_out() {
    check(30, |sim| {
        let place = Place::default();
        let at = place.clone();
        let server = sim.server("echo", move || echo(&at));
        let stream = connect(&place);
        server.crash();
        let start = sim::now();
        let read = stream.read(&mut [0; 8], Wait::Forever).unwrap_err();
        assert!(matches!(read.kind(), ErrorKind::ConnectionReset | ErrorKind::TimedOut), "{read}");
        assert!(sim::now() - start < Duration::from_secs(62));
        server.restart_as(|| sim::sleep(Duration::from_secs(900)));
        let refused = connect(&place);
        assert_eq!(refused.take_error().unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn nothing_arrives_behind_bytes_that_a_broken_connection_lost() {
    check(60, |sim| {
        sim.faults(Faults { loss: 0.3, jitter: Duration::from_millis(20), ..Faults::none() });
        let place = Place::default();
        let at = place.clone();
        sim.server("reader", move || {
            let env = System::current();
            let listener = env.listen(&Address::Tcp("0.0.0.0:0".parse().unwrap())).unwrap();
            *at.lock().unwrap() = listener.local_address().map(Address::Tcp);
            env.wait_any(&mut [Wanted::new(listener.source(), Interest::READ)], None).unwrap();
            let stream = listener.accept().unwrap().stream;
            let (mut got, mut buffer) = (Vec::new(), [0; 3000]);
            while let Ok(len @ 1..) = stream.read(&mut buffer, Wait::Forever) {
                got.extend_from_slice(&buffer[..len]);
                let words = got.chunks_exact(4).zip(0u32..);
                words.for_each(|(word, number)| assert_eq!(word, number.to_be_bytes()));
            }
        });
        sim.process("writer", move || {
            let stream = connect(&place);
            let words: Vec<u8> = (0..30_000u32).flat_map(u32::to_be_bytes).collect();
            let _ = write_all(&*System::current(), &*stream, &words);
            // The connection stays until all that was sent has arrived.
            sim::sleep(Duration::from_secs(60));
        });
    });
}
