//! Farcall over UDP, with one-way calls in the place of calls.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use farcall_bench_method::{Calling, Carry, Laps, Peer, Serving, Setup, cannot};

use super::farcall::{Exported, Farcall};

/// One-way calls with an argument of 32 bytes.
pub struct Oneway;

#[farcall::interface]
pub trait Notes {
    /// Counts the call.
    #[oneway]
    fn note(&self, payload: [u8; 32]) -> farcall::Result<()>;
    /// Returns how many calls were counted.
    fn counted(&self) -> farcall::Result<u64>;
}

#[derive(Default)]
struct Server(AtomicU64);

impl Notes for Server {
    fn note(&self, payload: [u8; 32]) -> farcall::Result<()> {
        self.0.fetch_add(u64::from(payload[31] == 7), Ordering::Relaxed);
        Ok(())
    }

    fn counted(&self) -> farcall::Result<u64> {
        Ok(self.0.load(Ordering::Relaxed))
    }
}

impl Peer for Oneway {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both || setup.bytes != 32 {
            return cannot("its arguments have 32 bytes");
        }
        let runtime = Farcall::OVER_UDP.runtime(setup)?;
        Ok(Box::new(Exported(runtime.export::<dyn Notes>("Notes", Arc::new(Server::default()))?)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        Ok(Box::new(Client(Farcall::OVER_UDP.runtime(setup)?.import::<dyn Notes>(address)?)))
    }
}

struct Client(NotesClient);

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.window(1, 1)?;
        }
        Ok(())
    }

    /// Makes one-way calls, whatever number would be outstanding, and waits until all have been executed.
    fn window(&mut self, _: usize, calls: usize) -> Result<()> {
        let before = self.0.counted()?;
        (0..calls).try_for_each(|_| self.0.note([7; 32]))?;
        let executed = self.0.counted()? - before;
        ensure!(executed == calls as u64, "{executed} calls of {calls} were executed");
        Ok(())
    }
}
