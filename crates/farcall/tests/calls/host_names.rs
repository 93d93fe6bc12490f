//! Tests of servers that are imported by the name of their host.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{builder, runtime, skip};
use farcall::env::{Env, Socket, SocketOptions};
use farcall::{CallFailed, Kind, Ran, Runtime, System};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        Ok(n + 1)
    }
}

fn serve(address: &str) -> farcall::Export {
    let runtime = builder().address(address.parse().unwrap()).build().unwrap();
    runtime.export::<dyn Member>("Member", Arc::new(Server)).unwrap()
}

fn failure<T>(result: farcall::Result<T>) -> CallFailed {
    let Err(why) = result else { panic!("the call gave a result") };
    CallFailed::from(why)
}

/// Returns the stub of a name that has not been bound.
fn unbound(runtime: &Runtime, name: &str) -> MemberClient {
    runtime.import_each::<dyn Member>(&[name]).unwrap().stubs().next().unwrap().1
}

/// The operating system, except that its resolver knows one host, and answers when the test lets it.
#[derive(Default)]
struct Hosts {
    /// Whether IPv6 addresses cannot be bound.
    without_v6: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How often the resolver was asked.
    asked: usize,
    /// The addresses of the host `ebbets`; `None` until the test lets the resolver answer.
    answer: Option<Vec<SocketAddr>>,
}

impl Hosts {
    fn knowing(addresses: &[SocketAddr]) -> Arc<Hosts> {
        let hosts = Arc::<Hosts>::default();
        hosts.answer(addresses);
        hosts
    }

    fn answer(&self, addresses: &[SocketAddr]) {
        self.state.lock().unwrap().answer = Some(addresses.to_vec());
        self.changed.notify_all();
    }
}

impl Env for Hosts {
    system_does! { now, spawn, event, entropy }

    fn bind(&self, address: SocketAddr, options: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        if self.without_v6 && address.is_ipv6() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        System.bind(address, options)
    }
    fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        let mut state = self.state.lock().unwrap();
        state.asked += 1;
        let state = self.changed.wait_while(state, |state| state.answer.is_none()).unwrap();
        match (host, &state.answer) {
            ("ebbets", Some(answer)) => Ok(answer.clone()),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "name not known")),
        }
    }
}

#[test]
fn a_server_at_either_address_of_localhost_is_found() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        if UdpSocket::bind(address).is_err() {
            skip("this machine has no IPv6");
            continue;
        }
        let export = serve(address);
        let name = format!("udp://localhost:{}/Member", export.address().port());
        let known = ("localhost", export.address().port()).to_socket_addrs();
        if !known.is_ok_and(|mut known| known.any(|known| known == export.address())) {
            skip(&format!("localhost is not at {address} here"));
            continue;
        }
        assert_eq!(runtime().import::<dyn Member>(&name).unwrap().add(1).unwrap(), 2);
        assert_eq!(unbound(&runtime(), &name).start().add(2).wait().unwrap(), 3);
    }
}

#[test]
fn all_addresses_of_a_host_are_tried() {
    let there = serve("127.0.0.1:0").address();
    let (export, silent) =
        (serve("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let mut addresses = vec![there, silent, export.address()];
    // The addresses include one of the other family, one that does not answer, and some that no server can
    // have.
    let other = UdpSocket::bind("[::1]:0").ok();
    addresses.splice(0..0, other.iter().map(|other| other.local_addr().unwrap()));
    addresses.splice(0..0, ["0.0.0.0:7".parse().unwrap(), "224.0.0.1:7".parse().unwrap()]);
    let hosts = Hosts::knowing(&addresses);
    let name = "udp://ebbets:7/Member";
    let client = || builder().env(hosts.clone()).patience(Duration::from_secs(3)).build().unwrap();
    assert_eq!(
        client().import_within::<dyn Member>(name, Duration::from_secs(60)).unwrap().add(1).unwrap(),
        2
    );
    assert_eq!(client().import::<dyn Member>(name).unwrap().add(1).unwrap(), 2);
    assert_eq!(unbound(&client(), name).start().add(2).wait().unwrap(), 3);
}

#[test]
fn a_group_of_two_families_is_called_from_a_machine_of_one() {
    let names = farcall::names::Memory::new();
    let member = builder().registry(names.clone()).address("127.0.0.1:0".parse().unwrap()).build().unwrap();
    let _b = member.export::<dyn Member>("Member/b", Arc::new(Server)).unwrap();
    let (type_name, instance) = ("Member".parse().unwrap(), "a".parse().unwrap());
    let entry = farcall::names::Entry::new(type_name, instance, "udp://[::1]:7".parse().unwrap(), 7);
    let _a = member.registry().publish(&entry).unwrap();
    let hosts = Arc::new(Hosts { without_v6: true, ..Hosts::default() });
    let client = builder().registry(names).env(hosts).build().unwrap();
    let group = client.import_all::<dyn Member>("Member").unwrap();
    let sums = group.stubs().map(|(name, stub)| (name.to_string(), stub.add(1).ok()));
    assert_eq!(Vec::from_iter(sums), [("Member/a".to_owned(), None), ("Member/b".to_owned(), Some(2))]);
}

#[test]
fn a_host_of_two_families_is_called_from_a_machine_of_one() {
    let export = serve("127.0.0.1:0");
    let hosts = Arc::new(Hosts { without_v6: true, ..Hosts::default() });
    hosts.answer(&["[::1]:7".parse().unwrap(), export.address()]);
    let (client, name) = (|| builder().env(hosts.clone()).build().unwrap(), "udp://ebbets:7/Member");
    assert_eq!(client().import::<dyn Member>(name).unwrap().add(1).unwrap(), 2);
    assert_eq!(unbound(&client(), name).start().add(2).wait().unwrap(), 3);
}

#[test]
fn a_segment_can_be_imported_by_the_name_of_its_host() {
    let exporter = runtime();
    let settings = farcall::memory::Settings::new(8).anyone(farcall::memory::Rights::READ);
    let segment = exporter.export_segment("Words", settings).unwrap();
    let address = exporter.address().unwrap();
    let client = builder().env(Hosts::knowing(&[address])).build().unwrap();
    let [by_host, by_address] =
        ["udp://ebbets:7/Words", &segment.url()].map(|name| client.import_segment(name).unwrap());
    assert_eq!(by_host.generation(), by_address.generation());
}

#[test]
fn a_failure_names_a_host_that_is_unknown_or_has_no_server() {
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let runtime = builder().env(Hosts::knowing(&[nobody])).patience(Duration::from_secs(2)).build().unwrap();
    for (host, kind) in [("ebbets", Kind::Unreachable), ("alpine.invalid", Kind::NoSuchName)] {
        let name = format!("udp://{host}:7/Member");
        let blocking = failure(runtime.import::<dyn Member>(&name));
        let started = failure(unbound(&runtime, &name).start().add(1).wait());
        for why in [blocking, started] {
            assert_eq!((why.kind(), why.ran()), (kind, Ran::No), "{why}");
            assert!(why.detail().contains(host), "{why}");
        }
    }
    let runtime = builder().env(Hosts::knowing(&["0.0.0.0:7".parse().unwrap()])).build().unwrap();
    let why = failure(runtime.import::<dyn Member>("udp://ebbets:7/Member"));
    assert_eq!((why.kind(), why.ran()), (Kind::NoSuchName, Ran::No), "{why}");
}

#[test]
fn a_resolver_that_does_not_answer_delays_no_call_beyond_its_deadline() {
    let hosts = Arc::<Hosts>::default();
    let runtime = builder().env(hosts.clone()).build().unwrap();
    let (export, name) = (serve("127.0.0.1:0"), "udp://ebbets:7/Member");
    let soon = Duration::from_millis(1);
    let late = |why: CallFailed| assert_eq!((why.kind(), why.ran()), (Kind::Deadline, Ran::No), "{why}");
    late(failure(runtime.import_within::<dyn Member>(name, soon)));
    let member = unbound(&runtime, name);
    late(failure(member.clone().within(soon).add(1)));
    let calls: Vec<_> = (0..1000).map(|n| member.start().add(n)).collect();
    late(failure(member.clone().within(soon).start().add(1).wait()));
    let mut cancelled = member.start().add(1);
    cancelled.cancel();
    assert_eq!(failure(cancelled.wait()).kind(), Kind::Cancelled);
    let impatient = builder().env(hosts.clone()).patience(soon).build().unwrap();
    let why = failure(impatient.import::<dyn Member>(name));
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No), "{why}");
    // Other servers can be called while the resolver does not answer.
    assert_eq!(unbound(&runtime, &export.url()).start().add(1).wait().unwrap(), 2);
    hosts.answer(&[export.address()]);
    for (n, call) in (0..).zip(calls) {
        assert_eq!(call.wait().unwrap(), n + 1);
    }
    assert!(
        hosts.state.lock().unwrap().asked <= 3,
        "calls that wait for the resolver at the same time share its answer"
    );
}
