//! Every type and code of ICMP and ICMPv6, forged by somebody who knows addresses and ports alone, makes no
//! end deaf: servers, clients and groups, of each protocol over UDP, and connections of TCP. Needs root;
//! otherwise the tests say that they are skipped.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "../../farcall/tests/common/forged_icmp.rs"]
mod forged_icmp;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use farcall::names::Memory;
use farcall::{Export, Runtime};
use farcall_courier::{expedited, packets};
use forged_icmp::{Forger, TCP, UDP};

#[farcall::interface(program = 900, version = 3)]
trait Work {
    #[procedure(1)]
    #[idempotent]
    fn next(&self, number: u16) -> farcall::Result<u16>;
}

struct Worker;

impl Work for Worker {
    fn next(&self, number: u16) -> farcall::Result<u16> {
        Ok(number.wrapping_add(1))
    }
}

const HERE: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The buffer that an ordinary user gets by default (net.core.rmem_default). The kernel grants twice of what
/// is asked for.
const BUFFER_BYTES: usize = 212_992 / 2;

/// How many messages are forged of each kind that becomes an error, of which there are more than 60. A buffer
/// of the size above holds fewer than 400.
const EACH: usize = 10;

/// Forges messages about all sockets, as many as fill their buffers, and then forges more while these calls
/// are made.
fn call_under_forgery(here: IpAddr, forger: &Forger, call: impl Fn(u16)) {
    call(1);
    let ports = forged_icmp::udp_ports();
    forger.flood(here, &ports, UDP, forged_icmp::all_kinds());
    call(2);
    (0..EACH).for_each(|_| forger.flood(here, &ports, UDP, forged_icmp::kinds(here).into_iter()));
    (0..100).for_each(&call);
    for number in 0..8 {
        std::thread::scope(|scope| {
            scope.spawn(|| forger.flood(here, &ports, UDP, forged_icmp::kinds(here).into_iter()));
            call(number);
        });
    }
    (0..100).for_each(&call);
}

fn runtime(here: IpAddr, buffer: usize) -> Runtime {
    let builder = Runtime::builder().registry(Memory::new()).shared_memory(false).socket_buffer(buffer);
    builder.address(SocketAddr::new(here, 0)).build().unwrap()
}

#[test]
fn a_server_a_client_and_a_group_stay_reachable() {
    if !forged_icmp::enter("a_server_a_client_and_a_group_stay_reachable") {
        return;
    }
    let forger = Forger::new();
    // The smallest buffer that the kernel grants, and an ordinary one.
    for (here, buffer) in HERE.into_iter().flat_map(|here| [(here, 8 << 10), (here, BUFFER_BYTES)]) {
        let servers = [(); 3].map(|()| runtime(here, buffer));
        let exports: Vec<Export> = servers
            .iter()
            .map(|server| server.export::<dyn Work>("Work", Arc::new(Worker)).unwrap())
            .collect();
        let urls: Vec<String> = exports.iter().map(Export::url).collect();
        let client = runtime(here, buffer);
        let work = client.import::<dyn Work>(&urls[0]).unwrap();
        let names: Vec<&str> = urls.iter().map(|url| &**url).collect();
        let group = client.import_each::<dyn Work>(&names).unwrap();
        call_under_forgery(here, &forger, |number| {
            assert_eq!(work.next(number).unwrap(), number + 1, "{here}");
            assert_eq!(work.start().next(number).wait().unwrap(), number + 1, "{here}");
            assert_eq!(group.multi().next(number).all().results().count(), 3, "{here}");
        });
        // Somebody who binds anew finds the servers too.
        let late = runtime(here, buffer).import::<dyn Work>(&urls[0]).unwrap();
        assert_eq!(late.next(1).unwrap(), 2);
    }
}

#[test]
fn ends_of_onc_rpc_stay_reachable() {
    if !forged_icmp::enter("ends_of_onc_rpc_stay_reachable") {
        return;
    }
    let forger = Forger::new();
    for here in HERE {
        let server = farcall_onc::Server::builder().program::<dyn Work>(Arc::new(Worker));
        let at = SocketAddr::new(here, 0);
        let server = server.udp(at).tcp(at).start().unwrap();
        let udp = format!("udp://{}", server.udp().unwrap());
        let udp = farcall_onc::Client::connect(&udp).unwrap().bind::<dyn Work>();
        call_under_forgery(here, &forger, |number| assert_eq!(udp.next(number).unwrap(), number + 1));
        let tcp = format!("tcp://{}", server.tcp().unwrap());
        let tcp = farcall_onc::Client::connect(&tcp).unwrap().bind::<dyn Work>();
        assert_eq!(tcp.next(1).unwrap(), 2);
        forger.flood(here, &forged_icmp::tcp_ports(), TCP, forged_icmp::all_kinds());
        assert_eq!(tcp.next(2).unwrap(), 3);
    }
}

#[test]
fn ends_of_courier_stay_reachable() {
    if !forged_icmp::enter("ends_of_courier_stay_reachable") {
        return;
    }
    let forger = Forger::new();
    for here in HERE {
        let at = SocketAddr::new(here, 0);
        let server =
            expedited::Server::builder().program::<dyn Work>(Arc::new(Worker)).udp(at).start().unwrap();
        let work = expedited::import::<dyn Work>(&format!("udp://{}", server.address())).unwrap();
        call_under_forgery(here, &forger, |number| assert_eq!(work.next(number).unwrap(), number + 1));
        let server =
            packets::Server::builder().program::<dyn Work>(Arc::new(Worker)).udp(at).start().unwrap();
        let work = packets::import::<dyn Work>(&format!("udp://{}", server.address())).unwrap();
        call_under_forgery(here, &forger, |number| assert_eq!(work.next(number).unwrap(), number + 1));
    }
}

#[farcall::interface]
trait Doubling {
    #[procedure(1)]
    fn double(&self, number: u32) -> farcall::Result<u32>;
}

struct Doubler;

impl Doubling for Doubler {
    fn double(&self, number: u32) -> farcall::Result<u32> {
        Ok(number * 2)
    }
}

#[test]
fn ends_of_rpc2_stay_reachable() {
    if !forged_icmp::enter("ends_of_rpc2_stay_reachable") {
        return;
    }
    let forger = Forger::new();
    for here in HERE {
        let server = farcall_rpc2::Server::builder().subsystem::<dyn Doubling>(7, Arc::new(Doubler));
        let server = server.udp(SocketAddr::new(here, 0)).start().unwrap();
        let address = format!("rpc2://{}/7", server.address());
        let doubling = farcall_rpc2::Builder::default().import::<dyn Doubling>(&address).unwrap();
        call_under_forgery(here, &forger, |number| {
            assert_eq!(doubling.double(number.into()).unwrap(), u32::from(number) * 2);
        });
    }
}
