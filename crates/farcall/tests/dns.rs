//! Imports by names in DNS, from a server of the test's own.
#![cfg(target_os = "linux")]

#[path = "../../farcall-names/tests/dns/server.rs"]
mod server;
#[macro_use]
#[path = "common/system.rs"]
mod system;

use std::sync::Arc;

use farcall::env::Env;
use farcall::names::Memory;
use farcall::{Error, Kind, Runtime};
use server::{Record, Server, address, srv, until};

#[farcall::interface]
trait Store {
    fn number(&self) -> farcall::Result<u64>;
}

struct Numbered(u64);

impl Store for Numbered {
    fn number(&self) -> farcall::Result<u64> {
        Ok(self.0)
    }
}

/// An exporter that no registry knows, as on another machine.
struct Exporter {
    export: farcall::Export,
    _runtime: Runtime,
}

impl Exporter {
    fn new(name: &str, number: u64) -> Exporter {
        let runtime = Runtime::builder().registry(Memory::new()).build().unwrap();
        let export = runtime.export::<dyn Store>(name, Arc::new(Numbered(number))).unwrap();
        Exporter { export, _runtime: runtime }
    }

    /// Returns the records that name this exporter as a target at a host.
    fn records(&self, host: &str) -> [Record; 2] {
        let socket = self.export.address();
        [srv("_store._udp.example.org", 0, 0, host, socket.port()), address(host, &socket.ip().to_string())]
    }
}

fn importer(server: &Server) -> Runtime {
    Runtime::builder().registry(server::local_registry(server)).build().unwrap()
}

#[test]
fn an_exporter_is_found_by_its_host_whatever_it_calls_its_instance() {
    let exporter = Exporter::new("Store/whatever", 7);
    let server = Server::of(exporter.records("ebbets.example.org").into());
    let importer = importer(&server);
    for name in ["Store", "Store/ebbets"] {
        assert_eq!(importer.import::<dyn Store>(name).unwrap().number().unwrap(), 7, "{name}");
    }
    let each = importer.import_each::<dyn Store>(&["Store/ebbets"]).unwrap();
    assert_eq!(each.multi().number().all().results().count(), 1);
    let unknown = importer.import::<dyn Store>("Store/whatever").err().unwrap();
    assert!(matches!(unknown, Error::CallFailed(ref why) if why.kind() == Kind::NoSuchName), "{unknown}");
    let refused = importer.export::<dyn Store>("Store/new", Arc::new(Numbered(1))).unwrap_err();
    assert!(matches!(refused, Error::CallFailed(ref why) if why.kind() == Kind::NotPermitted), "{refused}");
}

#[test]
fn a_group_follows_the_targets() {
    let (first, second) = (Exporter::new("Store/whatever", 1), Exporter::new("Store/other", 2));
    let server = Server::of(first.records("a.example.org").into());
    let importer = importer(&server);
    let group = importer.import_all::<dyn Store>("Store").unwrap();
    let numbers = || {
        let all = group.multi().number().all();
        let mut numbers: Vec<u64> = all.results().map(|(_, number)| *number).collect();
        numbers.sort();
        numbers
    };
    assert_eq!(numbers(), [1]);
    server.know([first.records("a.example.org"), second.records("b.example.org")].concat());
    until("the second member", || (numbers() == [1, 2]).then_some(()));
    server.know(second.records("b.example.org").into());
    until("the end of the first member", || (numbers() == [2]).then_some(()));
    server.behave(|_| Vec::new());
    assert_eq!(numbers(), [2], "a server that is away changes nothing");
}

/// The operating system, with another DNS server.
struct Asking(Server);

impl Env for Asking {
    system_does! { now, bind, spawn, event, entropy }

    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "FARCALL_DNS_SERVER" => Some(self.0.address.to_string()),
            "FARCALL_DNS_LOCAL_ADDRESSES" => Some("1".to_owned()),
            _ => None,
        }
    }
}

#[test]
fn a_name_with_a_service_is_bound_without_a_registry() {
    let exporter = Exporter::new("Store/whatever", 7);
    let asking = Arc::new(Asking(Server::of(exporter.records("ebbets.example.org").into())));
    let importer = || Runtime::builder().env(asking.clone()).registry(Memory::new()).build().unwrap();
    let (name, importer) = ("farcall://_store._udp.example.org/Store", importer());
    assert_eq!(importer.import::<dyn Store>(name).unwrap().number().unwrap(), 7);
    let later = importer.import_each::<dyn Store>(&[name]).unwrap().stubs().next().unwrap().1;
    assert_eq!(later.start().number().wait().unwrap(), 7, "a task resolves the name");
    let whatever = importer.import::<dyn Store>(&format!("{name}/whatever")).unwrap();
    assert_eq!(whatever.number().unwrap(), 7);
    for (name, kind, said) in [
        (
            "farcall://_store._udp.example.org/Store/other",
            Kind::NotExported,
            "the service _store._udp.example.org",
        ),
        ("farcall://_mail._udp.example.org/Store", Kind::NoSuchName, "it has no address that can be called"),
    ] {
        let Err(Error::CallFailed(failed)) = importer.import::<dyn Store>(name) else { panic!("{name}") };
        assert!(failed.kind() == kind && failed.to_string().contains(said), "{failed}");
    }
}
