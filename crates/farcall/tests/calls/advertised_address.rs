//! Tests of the address that a server publishes if it listens at all addresses of its host.

use crate::common;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use crate::common::{builder, skip};
use farcall::names::{Entry, File, Label, Listing, Memory, Registration, Registry};
use farcall::{Kind, Ran, Runtime};

#[farcall::interface]
trait Echo {
    fn echo(&self, value: u64) -> farcall::Result<u64>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, value: u64) -> farcall::Result<u64> {
        Ok(value)
    }
}

/// A registry that several machines share, with its addresses if those are known.
#[derive(Clone)]
struct Shared(Memory, Vec<IpAddr>);

impl Registry for Shared {
    fn publish(&self, entry: &Entry) -> farcall::names::Result<Registration> {
        self.0.publish(entry)
    }
    fn withdraw(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<bool> {
        self.0.withdraw(type_name, instance)
    }
    fn instances(&self, type_name: &Label) -> farcall::names::Result<Vec<Entry>> {
        self.0.instances(type_name)
    }
    fn lookup(&self, type_name: &Label, instance: &Label) -> farcall::names::Result<Option<Entry>> {
        self.0.lookup(type_name, instance)
    }
    fn list(&self) -> farcall::names::Result<Listing> {
        self.0.list()
    }
    fn version(&self) -> farcall::names::Result<u64> {
        self.0.version()
    }
    fn routes(&self) -> Vec<IpAddr> {
        self.1.clone()
    }
}

fn at_all(wildcard: &str, registry: impl Registry + 'static) -> Runtime {
    builder().address(wildcard.parse().unwrap()).open().registry(registry).build().unwrap()
}

/// Somebody has forgotten FARCALL_ADDRESS, and every caller on another machine would call its own machine.
#[test]
fn a_loopback_address_is_not_published_for_other_machines_unless_the_program_says_so() {
    let shared = || Shared(Memory::new(), vec!["10.0.0.1".parse().unwrap()]);
    let runtime = builder().registry(shared()).build().unwrap();
    let refused = runtime.export::<dyn Echo>("Echo/here", Arc::new(Server)).unwrap_err();
    let refused = refused.call_failed().unwrap();
    assert_eq!((refused.kind(), refused.ran()), (Kind::Local, Ran::No));
    assert!(refused.to_string().contains("FARCALL_ADDRESS"), "{refused}");
    let told = builder().registry(shared()).advertise("127.0.0.1:0".parse().unwrap()).build().unwrap();
    let _told = told.export::<dyn Echo>("Echo/here", Arc::new(Server)).unwrap();
    let local = Shared(Memory::new(), vec!["127.0.0.1".parse().unwrap()]);
    let local = builder().registry(local).build().unwrap();
    let _local = local.export::<dyn Echo>("Echo/here", Arc::new(Server)).unwrap();
}

#[test]
fn a_server_at_all_addresses_publishes_an_address_at_which_it_can_be_called() {
    let directory = tempfile::tempdir().unwrap();
    let file = || File::at(directory.path().join("names"));
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        if UdpSocket::bind(wildcard).is_err() {
            skip("this machine has no IPv6");
            continue;
        }
        let export = at_all(wildcard, file()).export::<dyn Echo>("Echo/all", Arc::new(Server)).unwrap();
        let listed = file().list().unwrap().entries.remove(0).address.socket().unwrap();
        assert_eq!(listed, export.address(), "{wildcard}");
        assert!(listed.ip().is_loopback() && listed.port() != 0, "{wildcard}: {listed}");
        assert!(export.url().starts_with(&format!("udp://{listed}/")), "{}", export.url());
        let caller = builder().registry(file()).build().unwrap();
        for name in ["Echo/all", &export.url()] {
            assert_eq!(caller.import::<dyn Echo>(name).unwrap().echo(7).unwrap(), 7, "{wildcard}: {name}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_at_all_addresses_shares_memory_with_callers_of_a_loopback_address() {
    if std::env::var("FARCALL_SHM").is_ok_and(|value| value == "off") {
        return skip("FARCALL_SHM=off");
    }
    for (wildcard, loopbacks) in [("0.0.0.0:0", &["127.0.0.1"][..]), ("[::]:0", &["127.0.0.1", "[::1]"])] {
        if UdpSocket::bind(wildcard).is_err() {
            skip("this machine has no IPv6");
            continue;
        }
        let export = at_all(wildcard, Memory::new()).export::<dyn Echo>("Echo", Arc::new(Server)).unwrap();
        for loopback in loopbacks.iter().filter(|ip| UdpSocket::bind(format!("{ip}:0")).is_ok()) {
            let name = format!("shm://{loopback}:{}/Echo", export.address().port());
            assert_eq!(
                common::runtime().import::<dyn Echo>(&name).unwrap().echo(7).unwrap(),
                7,
                "{wildcard}: {name}"
            );
        }
    }
}

#[test]
fn a_server_at_all_addresses_refuses_to_export_if_it_cannot_know_its_address() {
    // The registry's address is unknown, is of another family, or is no host's address.
    for route in [None, Some("fd00::7"), Some("::")] {
        let names = Memory::new();
        let route = route.into_iter().map(|ip| ip.parse().unwrap()).collect();
        let runtime = at_all("0.0.0.0:0", Shared(names.clone(), route));
        let why = runtime.export::<dyn Echo>("Echo", Arc::new(Server)).unwrap_err();
        let farcall::Error::CallFailed(why) = why;
        assert_eq!((why.kind(), why.ran()), (Kind::Local, Ran::No));
        assert!(why.detail().contains("FARCALL_ADVERTISE") && why.detail().contains("advertise()"), "{why}");
        assert!(names.list().unwrap().entries.is_empty());
    }
}

#[test]
fn a_server_publishes_the_address_of_its_route_to_a_shared_registry() {
    // Only this machine can ask a registry at a loopback address.
    let names = Memory::new();
    let other: IpAddr = "127.0.0.9".parse().unwrap();
    let export =
        at_all("0.0.0.0:0", Shared(names.clone(), vec![other])).export::<dyn Echo>("Echo", Arc::new(Server));
    assert_eq!(export.unwrap().address().ip().to_string(), "127.0.0.1");
    // For a registry on another host, the server publishes the address from which this machine would send to
    // that host, if there is a route. The test sends nothing there.
    let far: IpAddr = "192.0.2.1".parse().unwrap();
    let towards = || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((far, 9))?;
        socket.local_addr()
    };
    let Ok(source) = towards() else { return skip("this machine has no route to other machines") };
    let export = at_all("0.0.0.0:0", Shared(names, vec![far, far, other]))
        .export::<dyn Echo>("Echo", Arc::new(Server))
        .unwrap();
    assert_eq!(export.address().ip(), source.ip());
    let all: Vec<IpAddr> = export.addresses().iter().map(|address| address.ip()).collect();
    assert_eq!(all, [source.ip(), "127.0.0.1".parse().unwrap()]);
}

#[test]
fn an_instance_is_bound_at_the_address_that_answers() {
    let names = Memory::new();
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let runtime = builder().registry(names.clone()).advertise(dead.local_addr().unwrap());
    // The server's own address is known only once it is bound.
    let port = UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let runtime = runtime.address(port).advertise(port).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo/a", Arc::new(Server)).unwrap();
    assert_eq!(export.addresses(), [dead.local_addr().unwrap(), port]);
    let caller = builder().registry(names).build().unwrap();
    for name in ["Echo", "Echo/a"] {
        assert_eq!(caller.import::<dyn Echo>(name).unwrap().echo(7).unwrap(), 7, "{name}");
    }
    let group = caller.import_all::<dyn Echo>("Echo").unwrap();
    assert_eq!(group.multi().echo(8).all().results().count(), 1);
}

#[test]
fn a_server_publishes_the_advertised_address_whatever_it_is_bound_to() {
    let names = Memory::new();
    let build = |listens: &str, says: &str| {
        let builder = builder().registry(names.clone()).open().address(listens.parse().unwrap());
        builder.advertise(says.parse().unwrap()).build().unwrap()
    };
    let runtime = build("0.0.0.0:0", "127.0.0.1:0");
    let export = runtime.export::<dyn Echo>("Echo/own", Arc::new(Server)).unwrap();
    assert_eq!(export.address().port(), runtime.address().unwrap().port());
    assert_eq!(common::runtime().import::<dyn Echo>(&export.url()).unwrap().echo(3).unwrap(), 3);
    // The published address need not be the server's own: a port of another host may be forwarded to the
    // server.
    let forwarded =
        build("127.0.0.1:0", "192.0.2.1:7000").export::<dyn Echo>("Echo/far", Arc::new(Server)).unwrap();
    assert_eq!(forwarded.url(), "udp://192.0.2.1:7000/Echo/far");
    let listed = names.lookup(&"Echo".parse().unwrap(), &"far".parse().unwrap()).unwrap().unwrap();
    assert_eq!(listed.address.socket(), Some(forwarded.address()));
}
