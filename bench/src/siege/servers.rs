//! The server under siege: one process with every kind of server that farcall has, each with default
//! settings.
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use farcall::key_files::Keyring;
use farcall::{Keys, Runtime, names};
use farcall_bench_secure::crowd::{AUTHORITY, HONEST, SERVER, identity};
use farcall_olympus::page::{Page, RestartableRun};
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{self, Run};

use crate::hostile::target::Server as Native;

/// The subsystem of RPC2.
pub const SUBSYSTEM: u32 = 7;

/// The program of ONC RPC and of Courier.
#[farcall::interface(program = 900, version = 3)]
pub trait Work {
    /// Returns the next number.
    #[procedure(1)]
    #[idempotent]
    fn next(&self, number: u16) -> farcall::Result<u16>;
}

/// The subsystem of RPC2.
#[farcall::interface]
pub trait Doubling {
    /// Returns twice the number.
    #[procedure(1)]
    fn double(&self, number: u32) -> farcall::Result<u32>;
}

struct Worker;

impl Work for Worker {
    fn next(&self, number: u16) -> farcall::Result<u16> {
        Ok(number.wrapping_add(1))
    }
}

impl Doubling for Worker {
    fn double(&self, number: u32) -> farcall::Result<u32> {
        Ok(number.wrapping_mul(2))
    }
}

/// The addresses of all servers.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Places {
    /// The native server without keys, at a loopback address and at another one.
    pub open: Vec<SocketAddr>,
    /// The native server with keys.
    pub keyed: SocketAddr,
    /// ONC RPC over UDP, of both families.
    pub onc: [SocketAddr; 2],
    pub onc_tcp: SocketAddr,
    pub courier: SocketAddr,
    pub rpc2: SocketAddr,
    /// Olympus' page and its token.
    pub page: SocketAddr,
    pub token: String,
}

/// The servers, which end when this is dropped.
pub struct Servers {
    pub places: Places,
    _natives: [Native; 2],
    _onc: farcall_onc::Server,
    _courier: farcall_courier::Server,
    _rpc2: farcall_rpc2::Server,
    _page: Page,
}

impl Servers {
    pub fn start() -> Result<Servers> {
        let (v4, v6) = (SocketAddr::from(([127, 0, 0, 1], 0)), "[::1]:0".parse()?);
        let open = Native::start(true)?;
        let keyed = Native::of(
            Runtime::builder()
                .registry(names::Memory::new())
                .address(v4)
                .keys(Keys::new(keyring()?))
                .build()?,
        )?;
        let onc = farcall_onc::Server::builder().program::<dyn Work>(Arc::new(Worker));
        let onc = onc.udp(v4).udp(v6).tcp(v4).start()?;
        let udp = |family: fn(&SocketAddr) -> bool| {
            let mut all = onc.addresses().iter();
            let found = all.find(|(over, at)| *over == farcall_onc::server::Transport::Udp && family(at));
            found.map(|(_, at)| *at).context("ONC RPC has no UDP address")
        };
        let onc_at = [udp(SocketAddr::is_ipv4)?, udp(SocketAddr::is_ipv6)?];
        let courier = farcall_courier::Server::builder().program::<dyn Work>(Arc::new(Worker));
        let courier = courier.tcp(v4).start()?;
        let rpc2 = farcall_rpc2::Server::builder().subsystem::<dyn Doubling>(SUBSYSTEM, Arc::new(Worker));
        let rpc2 = rpc2.udp(v4).start()?;
        let page = page()?;
        let places = Places {
            open: open.addresses(true)?,
            keyed: keyed.addresses(false)?[0],
            onc: onc_at,
            onc_tcp: onc.tcp().context("ONC RPC has no TCP address")?,
            courier: *courier.addresses().first().context("Courier has no address")?,
            rpc2: rpc2.address(),
            page: page.address(),
            token: page.token().to_owned(),
        };
        Ok(Servers {
            places,
            _natives: [open, keyed],
            _onc: onc,
            _courier: courier,
            _rpc2: rpc2,
            _page: page,
        })
    }
}

fn keyring() -> Result<Keyring> {
    let line = format!("{} honest", identity(HONEST).public()).parse()?;
    Ok(Keyring::new(identity(SERVER)).with_authorized_key(line)?.with_authority(identity(AUTHORITY).public()))
}

fn page() -> Result<Page> {
    let runtime = Runtime::builder().registry(names::Memory::new()).build()?;
    let procedures = Procedures::new(&runtime);
    let of_runs = procedures.clone();
    let start = move |graph| {
        let settings = run::Settings { paused: true, ..run::Settings::default() };
        Run::start(graph, &of_runs, settings).map_err(|why| why.to_string())
    };
    let graph = farcall_olympus::text::parse("siege.olympus", "place jobs\n")?;
    let run = RestartableRun::new(graph.clone(), procedures, start).map_err(anyhow::Error::msg)?;
    Ok(Page::serve(graph, Arc::new(run), farcall_olympus::page::Settings::default())?)
}
