//! The ways in which a procedure is called, each a server and a client in processes of their own.
//!
//! The name of a peer says way and procedure (`udp-3`), or for bare sockets the lengths of the datagrams.

use std::sync::Arc;

use anyhow::Result;
use farcall::key_files::{Identity, Keyring};
use farcall::names::Memory;
use farcall::{Export, Keys, Level, Runtime};
use farcall_bench_method::{Calling, Laps, Peer, Serving, Setup};

use crate::bare::{Bare, Script};
use crate::interface::{Cedar, CedarClient, Procedure, Server, direct};

/// A way to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over UDP, as the paper's calls went over the Ethernet.
    Udp,
    /// Over UDP, by ends that have keys and encrypt what they send.
    UdpKeys,
    /// Through shared memory.
    Shared,
    /// Through shared memory, by ends that have keys.
    SharedKeys,
    /// By the server's object itself, in the client's process.
    Local,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 5] = [Way::Udp, Way::UdpKeys, Way::Shared, Way::SharedKeys, Way::Local];

    /// Returns the name in a peer's name.
    fn name(self) -> &'static str {
        match self {
            Way::Udp => "udp",
            Way::UdpKeys => "udp+keys",
            Way::Shared => "shm",
            Way::SharedKeys => "shm+keys",
            Way::Local => "local",
        }
    }

    /// Returns the name of the peer that calls a procedure in this way.
    pub fn peer(self, procedure: Procedure) -> String {
        let number = Procedure::ALL.iter().position(|each| *each == procedure).unwrap_or_default();
        format!("{}-{number}", self.name())
    }

    /// Returns a runtime that calls in this way.
    ///
    /// # Errors
    /// When it cannot be built, for example without sockets.
    pub fn runtime(self) -> Result<farcall::Builder> {
        let shared = matches!(self, Way::Shared | Way::SharedKeys);
        let builder = Runtime::builder().registry(Memory::new()).shared_memory(shared);
        match self {
            Way::UdpKeys | Way::SharedKeys => Ok(builder.keys(keys()?).level(Level::Secure)),
            Way::Udp | Way::Shared | Way::Local => Ok(builder.open()),
        }
    }
}

/// Returns the keys of both ends. They are secret from nobody.
fn keys() -> Result<Keys> {
    let identity = Identity::from_entropy([7; 32]);
    let public = identity.public();
    let keyring = Keyring::new(identity)
        .with_authorized_key(format!("{public} bench").parse()?)?
        .with_known_server(format!("* {public}").parse()?);
    Ok(Keys::new(keyring))
}

/// Returns the peer of this name.
pub fn peer(name: &str) -> Option<Box<dyn Peer>> {
    let (way, rest) = name.split_once('-')?;
    if way == Bare::NAME {
        return Some(Box::new(Bare(rest.parse::<Script>().ok()?)));
    }
    let way = Way::ALL.into_iter().find(|each| each.name() == way)?;
    Some(Box::new(Caller { way, procedure: *Procedure::ALL.get(rest.parse::<usize>().ok()?)? }))
}

/// A procedure, called in one way.
struct Caller {
    way: Way,
    procedure: Procedure,
}

impl Peer for Caller {
    fn transport(&self) -> &'static str {
        match self.way {
            Way::Udp | Way::UdpKeys => "udp",
            Way::Shared | Way::SharedKeys => "shared memory",
            Way::Local => "in process",
        }
    }

    /// A direct call takes less time than a reading of the clock.
    fn calls_per_lap(&self) -> usize {
        match self.way {
            Way::Local if !self.procedure.raises() => 1_000,
            _ => 1,
        }
    }

    fn serve(&self, _: &Setup) -> Result<Box<dyn Serving>> {
        if self.way == Way::Local {
            return Ok(Box::new(Nobody));
        }
        let runtime = self.way.runtime()?.build()?;
        Ok(Box::new(Exported(runtime.export::<dyn Cedar>("Cedar", Arc::new(Server))?)))
    }

    fn connect(&self, _: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let procedure = self.procedure;
        let stub = |stub| Box::new(Stub { stub: procedure.prepared(stub), procedure });
        Ok(match self.way {
            // A signal is raised in a call, so that a call by a stub is needed.
            Way::Local if procedure.raises() => stub(farcall::stub::local(direct())),
            Way::Local => Box::new(Direct { server: direct(), procedure, lap: self.calls_per_lap() }),
            Way::Shared | Way::SharedKeys => stub(self.import(&address.replacen("udp://", "shm://", 1))?),
            Way::Udp | Way::UdpKeys => stub(self.import(address)?),
        })
    }
}

impl Caller {
    fn import(&self, address: &str) -> Result<CedarClient> {
        Ok(self.way.runtime()?.build()?.import::<dyn Cedar>(address)?)
    }
}

struct Exported(Export);

impl Serving for Exported {
    fn address(&self) -> String {
        self.0.url()
    }
}

/// The server's process of local calls only waits until it is told to end.
struct Nobody;

impl Serving for Nobody {
    fn address(&self) -> String {
        "here".into()
    }
}

struct Stub {
    stub: CedarClient,
    procedure: Procedure,
}

impl Calling for Stub {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        Ok(self.procedure.calls(&self.stub, || laps.next())?)
    }
}

struct Direct {
    server: Arc<dyn Cedar>,
    procedure: Procedure,
    lap: usize,
}

impl Calling for Direct {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            let mut calls = 0..self.lap;
            self.procedure.calls(&*self.server, || calls.next().is_some())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_found_by_their_names() {
        for way in Way::ALL {
            for procedure in Procedure::ALL {
                assert!(peer(&way.peer(procedure)).is_some(), "{}", way.peer(procedure));
            }
        }
        assert!(peer("bare-60-48").is_some());
        assert!(["udp-12", "bare-60", "tcp-1", "udp"].into_iter().all(|name| peer(name).is_none()));
    }
}
