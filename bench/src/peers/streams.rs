//! Farcall over UDP, with the items of one stream in the place of calls.
use std::sync::Arc;

use anyhow::{Result, ensure};
use farcall::Stream;
use farcall_bench_method::{Calling, Carry, Laps, Peer, Serving, Setup, cannot};

use super::farcall::{Exported, Farcall};

/// Items of 32 bytes, which the server sends.
pub struct Items;

#[farcall::interface]
pub trait Sends {
    /// Sends so many items.
    fn items(&self, count: u64) -> farcall::Result<Stream<[u8; 32]>>;
}

struct Server;

impl Sends for Server {
    fn items(&self, count: u64) -> farcall::Result<Stream<[u8; 32]>> {
        Ok(Stream::of((0..count).map(|_| [7; 32])))
    }
}

impl Peer for Items {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both || setup.bytes != 32 {
            return cannot("its items have 32 bytes");
        }
        let runtime = Farcall::OVER_UDP.runtime(setup)?;
        Ok(Box::new(Exported(runtime.export::<dyn Sends>("Sends", Arc::new(Server))?)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        Ok(Box::new(Client(Farcall::OVER_UDP.runtime(setup)?.import::<dyn Sends>(address)?)))
    }
}

struct Client(SendsClient);

impl Client {
    fn take(&self, count: usize) -> Result<()> {
        let mut taken = 0;
        for item in self.0.items(count as u64)? {
            taken += usize::from(item?[31] == 7);
        }
        ensure!(taken == count, "{taken} items of {count}");
        Ok(())
    }
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.take(1)?;
        }
        Ok(())
    }

    /// Takes `calls` items from one stream, whatever number would be outstanding.
    fn window(&mut self, _: usize, calls: usize) -> Result<()> {
        self.take(calls)
    }
}
