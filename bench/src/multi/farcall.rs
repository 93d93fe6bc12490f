//! Farcall's members: servers with default settings, and a client that calls them by `multi()`.
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Result, ensure};
use farcall::multi::{Fixed, Multi, Next};
use farcall::names::Memory;
use farcall::xdr::Decode;
use farcall::{Builder, Bytes, Export, Group, Level, Runtime};
use farcall_bench_group::{Calls, Draws, Kind, Parts, Sent, Server, Work};
use farcall_bench_method::network;

use crate::peers::keys;

#[farcall::interface]
pub trait Member {
    /// The null call.
    fn null(&self) -> farcall::Result<()>;
    /// Sleeps for a time of that mean and distribution, in place of a computation.
    #[blocking]
    fn work(&self, milliseconds: u32, distribution: u32) -> farcall::Result<()>;
    /// Returns that many bytes.
    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes>;
    /// Takes bytes, and does nothing with them.
    fn store(&self, data: &[u8]) -> farcall::Result<()>;
}

struct Sleeper {
    draws: Mutex<Draws>,
    data: Bytes,
}

/// The longest result in bytes.
const LONGEST: usize = 16 << 20;

impl Member for Sleeper {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn work(&self, milliseconds: u32, distribution: u32) -> farcall::Result<()> {
        let work = Work::from_wire(milliseconds, distribution);
        let time = self.draws.lock().unwrap_or_else(PoisonError::into_inner).next(work);
        std::thread::sleep(time);
        Ok(())
    }

    fn fetch(&self, bytes: u32) -> farcall::Result<Bytes> {
        Ok(self.data.slice(..self.data.len().min(bytes as usize)))
    }

    fn store(&self, _: &[u8]) -> farcall::Result<()> {
        Ok(())
    }
}

/// Returns settings by which names stay in the process, because addresses suffice here. There is no shared
/// memory, because one thread cannot wait there for many servers.
fn settings(level: Option<Level>) -> Builder {
    keys::with(level, Runtime::builder().registry(Memory::new()).shared_memory(false))
}

/// Starts servers in this process, each in a runtime of its own.
pub fn serve(level: Option<Level>, seeds: &[u64]) -> Result<Box<dyn Server>> {
    start(seeds, || settings(level))
}

/// Starts servers in this process, which is in a network namespace of its own.
pub fn serve_apart(seeds: &[u64]) -> Result<Box<dyn Server>> {
    let address = SocketAddr::new(network::SERVER.parse()?, 0);
    start(seeds, || settings(None).address(address).open())
}

fn start(seeds: &[u64], settings: impl Fn() -> Builder) -> Result<Box<dyn Server>> {
    // The memory comes from calloc, so pages that no call uses are not allocated.
    let data = Bytes::from(vec![0; LONGEST]);
    let serve = |&seed: &u64| {
        let sleeper = Sleeper { draws: Mutex::new(Draws::new(seed)), data: data.clone() };
        Ok(settings().build()?.export::<dyn Member>("Member", Arc::new(sleeper))?)
    };
    Ok(Box::new(Servers(seeds.iter().map(serve).collect::<Result<_>>()?)))
}

struct Servers(Vec<Export>);

impl Server for Servers {
    fn addresses(&self) -> Vec<String> {
        self.0.iter().map(Export::url).collect()
    }
}

/// Returns a client of these servers.
pub fn connect(level: Option<Level>, addresses: &[String]) -> Result<Box<dyn Calls>> {
    let runtime = settings(level).build()?;
    let import = |address: &String| runtime.import::<dyn Member>(address);
    let members = addresses.iter().map(import).collect::<farcall::Result<_>>()?;
    Ok(Box::new(Client { runtime, members, group: None, data: Vec::new() }))
}

struct Client {
    runtime: Runtime,
    members: Vec<MemberClient>,
    /// The group that was called last, and the number of its members.
    group: Option<((usize, usize), Group<MemberClient, Fixed>)>,
    data: Vec<u8>,
}

impl Calls for Client {
    #[inline]
    fn one(&mut self, member: usize, kind: Kind) -> Result<()> {
        let member = &self.members[member];
        match kind {
            Kind::Null => member.null()?,
            Kind::Work(work) => {
                let (milliseconds, distribution) = work.to_wire();
                member.work(milliseconds, distribution)?;
            }
            Kind::Fetch(bytes) => drop(std::hint::black_box(member.fetch(bytes)?)),
            Kind::Store(bytes) => member.store(&vec![7; bytes as usize])?,
        }
        Ok(())
    }

    fn all(&mut self, (first, many): (usize, usize), kind: Kind, enough: Option<usize>) -> Result<()> {
        if self.group.as_ref().is_none_or(|(members, _)| *members != (first, many)) {
            let member = |index: usize| (index.to_string(), self.members[index].clone());
            self.group = Some(((first, many), Group::of((first..first + many).map(member))));
        }
        let Some((_, group)) = &self.group else { return Ok(()) };
        match kind {
            Kind::Null => gather(|| group.multi().null(), enough),
            Kind::Work(work) => {
                let (milliseconds, distribution) = work.to_wire();
                gather(|| group.multi().work(milliseconds, distribution), enough)
            }
            Kind::Fetch(bytes) => gather(|| group.multi().fetch(bytes), enough),
            Kind::Store(bytes) => {
                self.data.resize(bytes as usize, 7);
                gather(|| group.multi().store(&self.data), enough)
            }
        }
    }

    fn parts(&mut self, (first, many): (usize, usize)) -> Result<Parts> {
        // (A reading of the clock would otherwise be a large part of these.)
        const TIMES: u64 = 64;
        let member = |index: usize| (index.to_string(), self.members[index].clone());
        let group: Group<MemberClient, Fixed> = Group::of((first..first + many).map(member));
        let began = Instant::now();
        for _ in 0..TIMES {
            drop(black_box(group.multi().null()));
        }
        let pack = since(began) / TIMES;
        let began = Instant::now();
        let mut gathering = group.multi().null().start();
        let start = since(began);
        let began = Instant::now();
        while let Some(reply) = gathering.wait_next() {
            reply.result?;
        }
        let rest = since(began);
        ensure!(gathering.outstanding() == 0, "a member has not answered");
        let mut handler = |reply: Decoded| match reply {
            Ok(()) => Next::Continue,
            Err(_) => Next::Stop,
        };
        let handler: &mut dyn FnMut(Decoded) -> Next = black_box(&mut handler);
        let began = Instant::now();
        for _ in 0..TIMES * many as u64 {
            black_box(handler(farcall::xdr::from_slice(black_box(&[]))));
        }
        Ok(Parts { pack, start, rest, unpack: since(began) / TIMES })
    }

    fn sent(&self) -> Result<Sent> {
        let mut sent = Sent::default();
        for peer in self.runtime.stats().peers {
            sent.datagrams += peer.conversation.sent;
            sent.again += peer.conversation.retransmitted;
            sent.probes += peer.conversation.probes;
        }
        Ok(sent)
    }
}

type Decoded = std::result::Result<(), farcall::xdr::Error>;

fn since(began: Instant) -> u64 {
    began.elapsed().as_nanos() as u64
}

/// Calls the group. Inlined where it is called, like a user's own code.
#[inline(always)]
fn gather<T: for<'a> Decode<'a>>(
    multi: impl FnOnce() -> Multi<T, farcall::Never, Fixed>,
    enough: Option<usize>,
) -> Result<()> {
    let Some(enough) = enough else {
        let outcomes = multi().all();
        let failed = outcomes.failures().next();
        return failed.map_or(Ok(()), |(_, why)| Err(why.clone().into()));
    };
    let mut answers = 0;
    multi().each(|reply| {
        answers += usize::from(reply.result.is_ok());
        if answers < enough { Next::Continue } else { Next::Stop }
    });
    ensure!(answers >= enough, "only {answers} members answered");
    Ok(())
}
