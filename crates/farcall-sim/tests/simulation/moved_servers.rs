//! Tests that clients of ONC RPC find servers that moved: a host's name leads to another address, or a port
//! mapper to another port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use farcall_onc::rpcbind::Mapper;
use farcall_onc::{Client, Server};
use farcall_sim::{Process, Sim, check, sim};

#[farcall::interface(program = 0x2000_0177, version = 1)]
trait Where {
    #[procedure(1)]
    fn place(&self) -> farcall::Result<u32>;
    #[procedure(2)]
    #[idempotent]
    fn again(&self) -> farcall::Result<u32>;
}

struct At(u32);

impl Where for At {
    fn place(&self) -> farcall::Result<u32> {
        Ok(self.0)
    }

    fn again(&self) -> farcall::Result<u32> {
        Ok(self.0)
    }
}

const HOUR: Duration = Duration::from_secs(3600);

fn at_port(port: u16) -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], port))
}

/// Starts a server at port 1 that returns this number.
fn server(sim: &Sim, number: u32) -> Process {
    sim.server(&format!("s{number}"), move || {
        let server = Server::builder().program::<dyn Where>(Arc::new(At(number))).address(at_port(1));
        let _server = server.start().expect("a free port");
        sim::sleep(HOUR);
    })
}

/// Calls until a call is answered: each call that is not may have found out that the server is gone.
fn answered(stub: &WhereClient) -> Option<u32> {
    (0..3).find_map(|_| stub.place().ok())
}

#[test]
fn a_server_whose_name_leads_elsewhere_is_found_again() {
    check(20, |sim| {
        let (a, b) = (server(sim, 1), server(sim, 2));
        sim.host("server.example", &[&a]);
        let stubs = ["tcp://server.example:1", "udp://server.example:1"].map(|address| {
            let client = Client::connect(address).expect("a server");
            assert_eq!(client.address(), address);
            client.bind::<dyn Where>()
        });
        for stub in &stubs {
            assert_eq!(stub.place()?, 1);
        }
        match sim.below(2) {
            0 => a.crash(),
            _ => sim.partition(&sim.test(), &a),
        }
        sim.host("server.example", &[&b]);
        sim.sleep(Duration::from_millis(sim.below(3_000)));
        for stub in &stubs {
            assert_eq!(answered(stub), Some(2));
            assert_eq!(stub.again()?, 2);
        }
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_server_that_registers_at_another_port_is_found_again() {
    check(20, |sim| {
        let port = Arc::new(AtomicU16::new(1000));
        let ports = port.clone();
        let host = sim.server("host", move || {
            let (mapper, port) = (Mapper::default(), ports.load(Relaxed));
            let mapping = Server::builder().mapper(&mapper).address(at_port(111));
            let server = Server::builder().program::<dyn Where>(Arc::new(At(port.into())));
            let server = server.register_at(&mapper).address(at_port(port));
            let _both = (mapping.start().expect("a free port"), server.start().expect("a free port"));
            sim::sleep(HOUR);
        });
        sim.host("server.example", &[&host]);
        let stubs: Vec<WhereClient> = ["server.example", "tcp://server.example", "udp://server.example"]
            .iter()
            .map(|address| farcall_onc::import::<dyn Where>(address).expect("a server"))
            .collect();
        for stub in &stubs {
            assert_eq!(stub.place()?, 1000);
        }
        host.crash();
        port.store(2000, Relaxed);
        host.restart();
        sim.sleep(Duration::from_secs(2));
        for stub in &stubs {
            assert_eq!(answered(stub), Some(2000));
        }
        Ok::<(), farcall::Error>(())
    });
}

/// The client goes on with the place that it knows.
#[test]
fn a_connection_is_made_again_while_resolver_and_port_mapper_are_silent() {
    check(20, |sim| {
        let (a, mapped) = (server(sim, 1), server(sim, 2));
        sim.host("server.example", &[&a]);
        let named = Client::connect("tcp://server.example:1").expect("a server").bind::<dyn Where>();
        assert_eq!(named.place()?, 1);
        sim.silence_resolver(true);
        a.crash();
        a.restart();
        sim.sleep(Duration::from_secs(2));
        assert_eq!(named.within(Duration::from_secs(10)).again()?, 1);
        sim.silence_resolver(false);
        drop(mapped);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn of_several_addresses_of_a_name_the_first_is_taken_that_answers_over_udp_too() {
    check(20, |sim| {
        let silent = sim.server("silent", || sim::sleep(HOUR));
        let refuses = sim.server("refuses", || sim::sleep(HOUR));
        let live = server(sim, 3);
        sim.partition(&sim.test(), &silent);
        sim.host("server.example", &[&silent, &refuses, &live]);
        for network in ["tcp", "udp"] {
            let client = Client::connect(&format!("{network}://server.example:1")).expect("a server");
            let begun = sim::now();
            assert_eq!(client.bind::<dyn Where>().place()?, 3, "{network}");
            assert!(sim::now() - begun < Duration::from_secs(1), "{network}: nobody else is asked");
        }
        Ok::<(), farcall::Error>(())
    });
}
