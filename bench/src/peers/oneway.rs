//! Farcall over UDP: one-way calls instead of calls with a result. A one-way call returns before it has been
//! sent, so its own time says nothing of the server. What is measured ends when the server has executed the
//! calls.
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

impl Client {
    /// Makes calls, and checks that the server has executed as many as were made.
    fn counting(&self, make: impl FnOnce(&NotesClient) -> Result<u64>) -> Result<()> {
        let before = self.0.counted()?;
        let made = make(&self.0)?;
        let executed = self.0.counted()? - before;
        ensure!(executed == made, "{executed} calls of {made} were executed");
        Ok(())
    }
}

impl Calling for Client {
    /// Times a call and the `flush` that waits until it has been executed.
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        self.counting(|notes| {
            let mut calls = 0;
            while laps.next() {
                notes.note([7; 32])?;
                notes.binding().flush()?;
                calls += 1;
            }
            Ok(calls)
        })
    }

    /// Makes calls without waiting between them, and then waits until all have been executed. The number of
    /// outstanding calls does not matter to one-way calls.
    fn window(&mut self, _: usize, calls: usize) -> Result<()> {
        self.counting(|notes| {
            (0..calls).try_for_each(|_| notes.note([7; 32]))?;
            notes.binding().flush()?;
            Ok(calls as u64)
        })
    }
}
