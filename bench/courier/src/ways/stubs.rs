//! Calls through the stubs of the interface, by each protocol.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use farcall::env::Env;
use farcall::names::Memory;
use farcall::{CallFailed, Kind, Ran, Runtime};
use farcall_courier::{client, cooper, packets};

use super::{Addresses, Caller, Failed, Way};
use crate::interface::{Arguments, Server, Size, Test, Tests, TestsClient};

/// The running servers. They serve until this is dropped.
pub struct Served {
    _cooper: cooper::Server,
    _packets: packets::Server,
    _xsis: farcall_courier::Server,
    _farcall: farcall::Export,
}

/// Starts a server for each protocol.
pub fn serve(at: IpAddr, server: &Server, addresses: &mut Addresses) -> Result<Served> {
    let at = SocketAddr::new(at, 0);
    let server = Arc::new(server.clone());
    let cooper = cooper::Server::builder().program::<dyn Tests>(server.clone()).tcp(at).start()?;
    for address in cooper.addresses() {
        addresses.insert(Way::Courier.name().into(), format!("tcp://{address}"));
    }
    let packets = packets::Server::builder().program::<dyn Tests>(server.clone()).udp(at).start()?;
    addresses.insert(Way::Pcourier.name().into(), format!("udp://{}", packets.address()));
    let xsis = farcall_courier::Server::builder().program::<dyn Tests>(server.clone()).tcp(at).start()?;
    for address in xsis.addresses() {
        addresses.insert(Way::Xsis.name().into(), format!("tcp://{address}"));
    }
    let runtime = runtime().address(at).build()?;
    let farcall = runtime.export::<dyn Tests>("Tests", server)?;
    addresses.insert(Way::Farcall.name().into(), farcall.url());
    Ok(Served { _cooper: cooper, _packets: packets, _xsis: xsis, _farcall: farcall })
}

/// Returns a runtime whose calls are packets even between processes of one machine. Nobody has keys, because
/// the other ways have none.
fn runtime() -> farcall::Builder {
    Runtime::builder().registry(Memory::new()).shared_memory(false).open()
}

/// How long a client of packets waits until the server has received its calls. Then it asks again.
const FINISHES_WITHIN: Duration = Duration::from_secs(1);

/// Imports the interface by a protocol, and makes a first call, in which the ends get to know each other.
///
/// Calls over TCP have no time limit: those without a reply may fill the connection for half a minute.
pub fn connect(way: Way, test: Test, address: &str, env: Arc<dyn Env>) -> Result<Box<dyn Caller>> {
    let tests = match way {
        Way::Courier => cooper::Builder::default().patience(None).env(env).import::<dyn Tests>(address)?,
        Way::Pcourier => packets::Builder::default().env(env).import::<dyn Tests>(address)?,
        Way::Xsis => client::Builder::default().patience(None).env(env).import::<dyn Tests>(address)?,
        Way::Farcall => runtime().env(env).build()?.import::<dyn Tests>(address)?,
        _ => bail!("{} has no stubs", way.name()),
    };
    tests.ask_0()?;
    Ok(Box::new(Stub { tests, way, test, arguments: Arguments::default() }))
}

struct Stub {
    tests: TestsClient,
    way: Way,
    test: Test,
    arguments: Arguments,
}

impl Caller for Stub {
    fn call(&mut self) -> Result<(), Failed> {
        let (tests, Arguments { one, hundred, thousand }) = (&self.tests, &self.arguments);
        let called = match (self.test.size, self.test.has_result) {
            (Size::Zero, false) => tests.send_0(),
            (Size::One, false) => tests.send_1(one),
            (Size::Hundred, false) => tests.send_100(hundred),
            (Size::Thousand, false) => tests.send_1000(thousand),
            (Size::Zero, true) => tests.ask_0().map(drop),
            (Size::One, true) => tests.ask_1(one).map(drop),
            (Size::Hundred, true) => tests.ask_100(hundred).map(drop),
            (Size::Thousand, true) => tests.ask_1000(thousand).map(drop),
        };
        called.map_err(|why| failed(self.way, why))
    }

    fn finish(&mut self) -> Result<(), Failed> {
        let asked = match self.way {
            Way::Pcourier => self.tests.within(FINISHES_WITHIN).ask_0(),
            _ => self.tests.ask_0(),
        };
        asked.map(drop).map_err(|why| failed(self.way, why))
    }
}

#[cold]
fn failed(way: Way, why: farcall::Error) -> Failed {
    let why: CallFailed = why.into();
    match (why.kind(), why.ran()) {
        (Kind::Deadline, _) => Failed::TimedOut,
        // So PCourier says that no reply came within ten seconds.
        (Kind::Unreachable, Ran::Maybe) if way == Way::Pcourier => Failed::TimedOut,
        (_, Ran::No) => Failed::Refused(why.to_string()),
        _ => Failed::Broken(why.to_string()),
    }
}
