//! The attacked server: default settings, procedures that any server might have, and a segment.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use farcall::memory::{Rights, Settings};
use farcall::{Bytes, Runtime, names};

use super::OUTSIDE;

/// The segment's size in bytes. Honest callers read the lower half, and hostile clients write to the upper
/// half.
pub const SEGMENT_BYTES: u64 = 2 << 20;
pub const SEGMENT: &str = "Shared";
pub const NAME: &str = "Target";

/// The longest time for which a call waits in the server.
const PARKED: Duration = Duration::from_secs(3600);

/// The interval at which [`Target::stall`] checks whether its caller has given up the call.
const STALLED: Duration = Duration::from_millis(500);

/// The procedures, which hostile clients call by number.
pub const NULL: u32 = 1;
pub const TAKE: u32 = 2;
pub const GIVE: u32 = 3;
pub const PARK: u32 = 4;
pub const STALL: u32 = 5;

#[farcall::interface]
pub trait Target {
    /// The null call.
    #[procedure(1)]
    fn null(&self) -> farcall::Result<()>;
    /// Returns the number of bytes.
    #[procedure(2)]
    fn take(&self, data: &[u8]) -> farcall::Result<u32>;
    /// Returns that many bytes in a buffer of their own.
    #[procedure(3)]
    fn give(&self, bytes: u32) -> farcall::Result<Bytes>;
    /// Waits until the caller gives up the call.
    #[blocking]
    #[procedure(4)]
    fn park(&self) -> farcall::Result<()>;
    /// Waits like the procedure above, but is not marked `#[blocking]`.
    #[procedure(5)]
    fn stall(&self) -> farcall::Result<()>;
    /// Waits for a millisecond.
    #[blocking]
    #[procedure(6)]
    fn pause(&self) -> farcall::Result<()>;
}

struct Procedures;

impl Target for Procedures {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn take(&self, data: &[u8]) -> farcall::Result<u32> {
        Ok(data.len() as u32)
    }

    fn give(&self, bytes: u32) -> farcall::Result<Bytes> {
        Ok(vec![7; bytes.min(1 << 20) as usize].into())
    }

    fn park(&self) -> farcall::Result<()> {
        farcall::context().cancelled().wait(PARKED);
        Ok(())
    }

    fn stall(&self) -> farcall::Result<()> {
        while !farcall::context().is_cancelled() {
            std::thread::sleep(STALLED);
        }
        Ok(())
    }

    fn pause(&self) -> farcall::Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}

/// The parts that live as long as the server.
pub struct Server {
    runtime: Runtime,
    _export: farcall::Export,
    _segment: farcall::memory::Segment,
}

impl Server {
    /// Serves on all addresses if some are no loopback addresses, otherwise on a loopback address.
    pub fn start(outside: bool) -> Result<Server> {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        // The hostile peers and the measured ones prove nothing of their user.
        let mut builder = Runtime::builder().registry(names::Memory::new()).open();
        if outside {
            builder = builder.address(any).advertise(SocketAddr::from(([127, 0, 0, 1], 0)));
        }
        Server::of(builder.build()?)
    }

    /// Serves by a runtime.
    pub fn of(runtime: Runtime) -> Result<Server> {
        let export = runtime.export::<dyn Target>(NAME, Arc::new(Procedures))?;
        let segment =
            runtime.export_segment(SEGMENT, Settings::new(SEGMENT_BYTES as usize).anyone(Rights::ALL))?;
        Ok(Server { runtime, _export: export, _segment: segment })
    }

    /// Returns the server's addresses: a loopback address, and another one if it has one.
    pub fn addresses(&self, outside: bool) -> Result<Vec<SocketAddr>> {
        let address = self.runtime.address();
        ensure!(address.is_some(), "the server has no address");
        let port = address.map_or(0, |address| address.port());
        let outside = outside.then(|| SocketAddr::from((OUTSIDE, port)));
        Ok([SocketAddr::from(([127, 0, 0, 1], port))].into_iter().chain(outside).collect())
    }
}
