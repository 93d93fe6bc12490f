//! The ways in which a test is called: Courier's modes, farcall's own packets, local calls, and the bounds.
//!
//! ```text
//! stubs   calls through farcall's stubs, by each protocol, and their servers
//! bare    streams and packets of the same lengths, without any protocol: the bounds
//! local   calls within the process
//! ```

mod bare;
mod local;
mod stubs;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use farcall::env::Env;

use crate::interface::{RESULT_BYTES, Server, Test};

/// A way to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Way {
    /// Cooper's dialect over TCP: what the paper calls Courier.
    Courier,
    /// One UDP packet each way: what the paper calls PCourier.
    Pcourier,
    /// Courier as the standard has it, over TCP.
    Xsis,
    /// Farcall's own packets.
    Farcall,
    /// A local call that copies its argument.
    Local,
    /// The loop without a call.
    Loop,
    /// A TCP connection with messages as long as those of `courier`.
    CourierBound,
    /// UDP packets as long as those of `pcourier`.
    PcourierBound,
    /// A TCP connection with messages as long as those of `xsis`.
    XsisBound,
    /// UDP packets as long as those of `farcall`.
    FarcallBound,
}

impl Way {
    /// Returns the way's name.
    pub fn name(self) -> &'static str {
        match self {
            Way::Courier => "courier",
            Way::Pcourier => "pcourier",
            Way::Xsis => "xsis",
            Way::Farcall => "farcall",
            Way::Local => "local",
            Way::Loop => "loop",
            Way::CourierBound => "courier-bound",
            Way::PcourierBound => "pcourier-bound",
            Way::XsisBound => "xsis-bound",
            Way::FarcallBound => "farcall-bound",
        }
    }

    /// Returns the way that does nothing but send and receive as many bytes.
    pub fn bound(self) -> Option<Way> {
        match self {
            Way::Courier => Some(Way::CourierBound),
            Way::Pcourier => Some(Way::PcourierBound),
            Way::Xsis => Some(Way::XsisBound),
            Way::Farcall => Some(Way::FarcallBound),
            _ => None,
        }
    }

    /// Returns whether calls go through a stub over a network, so that there is a profile of them.
    pub fn is_remote(self) -> bool {
        self.bound().is_some()
    }

    /// Returns whether a call without a result has no reply.
    pub fn is_one_way(self, test: Test) -> bool {
        let no_reply = [Way::Courier, Way::Pcourier, Way::CourierBound, Way::PcourierBound];
        !test.has_result && no_reply.contains(&self)
    }

    /// Returns whether packets can be lost, and are not sent again.
    pub fn loses(self) -> bool {
        matches!(self, Way::Pcourier | Way::PcourierBound | Way::FarcallBound)
    }

    /// Returns how long a caller waits for a reply that does not come.
    pub fn patience(self) -> Duration {
        match self {
            Way::PcourierBound | Way::FarcallBound => bare::PATIENCE,
            _ => Duration::from_secs(10),
        }
    }
}

/// Why a call failed.
#[derive(Debug)]
pub enum Failed {
    /// No reply came in time.
    TimedOut,
    /// The call cannot be made in this way, and did not run.
    Refused(String),
    /// Anything else.
    Broken(String),
}

/// A client that makes calls of one test, one after another.
pub trait Caller {
    /// Makes a call.
    fn call(&mut self) -> Result<(), Failed>;

    /// Waits until the server has received the calls that have no reply, by one call that has one.
    fn finish(&mut self) -> Result<(), Failed>;
}

/// Where the server of each way is, as text.
pub type Addresses = BTreeMap<String, String>;

/// The servers of all ways.
pub struct Serving {
    pub addresses: Addresses,
    executed: Arc<AtomicU64>,
    _stubs: stubs::Served,
}

impl Serving {
    /// Starts all servers at this address.
    pub fn start(at: IpAddr) -> Result<Serving> {
        let server = Server::default();
        let executed = server.executed.clone();
        let mut addresses = Addresses::new();
        let stubs = stubs::serve(at, &server, &mut addresses)?;
        bare::serve(at, &executed, &mut addresses)?;
        Ok(Serving { addresses, executed, _stubs: stubs })
    }

    /// Returns how many calls were executed since this was asked last.
    pub fn executed(&self) -> u64 {
        self.executed.swap(0, Ordering::Relaxed)
    }
}

/// Connects to the server of a way, through this environment, and makes a first call.
pub fn connect(way: Way, test: Test, addresses: &Addresses, env: Arc<dyn Env>) -> Result<Box<dyn Caller>> {
    let address =
        || addresses.get(way.name()).with_context(|| format!("there is no server for {}", way.name()));
    match way {
        Way::Local => Ok(local::calls(test)),
        Way::Loop => Ok(local::nothing()),
        Way::CourierBound | Way::XsisBound => bare::stream(address()?, lengths(way, test)),
        Way::PcourierBound | Way::FarcallBound => bare::packets(address()?, lengths(way, test)),
        Way::Courier | Way::Pcourier | Way::Xsis | Way::Farcall => stubs::connect(way, test, address()?, env),
    }
}

/// The bytes of a call's message and of its reply. No reply has zero bytes.
#[derive(Clone, Copy)]
struct Lengths {
    call: usize,
    reply: usize,
}

/// The most bytes in a packet of the XSIS mode, and the bytes before them: a length, and the header of SPP.
const XSIS_PACKET: (usize, usize) = (534, 14);
/// The bytes of the XSIS mode's call and return before the arguments and the result.
const XSIS_HEADS: (usize, usize) = (12, 4);
/// The bytes of a call in Cooper's dialect, and of its reply, before the arguments and the result.
const COOPER_HEADS: (usize, usize) = (4, 2);
/// The bytes of farcall's datagrams before the arguments and the result, while all fits into one.
const FARCALL_HEADS: (usize, usize) = (60, 52);

/// Returns how long the messages of a bound are: as long as those of the way that it bounds.
fn lengths(bound: Way, test: Test) -> Lengths {
    let result = if test.has_result { RESULT_BYTES } else { 0 };
    let plain = |(call, reply)| Lengths { call: call + test.bytes(), reply: reply + result };
    match bound {
        Way::XsisBound => {
            let message = plain(XSIS_HEADS);
            let packets = |bytes: usize| bytes + bytes.div_ceil(XSIS_PACKET.0) * XSIS_PACKET.1;
            Lengths { call: packets(message.call), reply: packets(message.reply) }
        }
        Way::FarcallBound => plain(FARCALL_HEADS),
        _ if !test.has_result => Lengths { reply: 0, ..plain(COOPER_HEADS) },
        _ => plain(COOPER_HEADS),
    }
}
