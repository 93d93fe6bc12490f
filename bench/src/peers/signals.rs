//! Farcall over UDP, with a signal that is raised in each call (Birrell & Nelson 1984, the last two rows of
//! table I).

use std::sync::Arc;

use anyhow::Result;
use farcall::Answer;
use farcall_bench_method::{Calling, Carry, Laps, Peer, Serving, Setup, cannot};

use super::farcall::{Exported, Farcall};

/// What the caller's handler does with the signal.
#[derive(Clone, Copy)]
pub enum Signal {
    /// The handler resumes the procedure.
    Resumed,
    /// The handler unwinds the call.
    Unwound,
}

#[farcall::interface]
pub trait Raises {
    /// Raises the signal, and returns when the handler has resumed the procedure.
    fn raise(&self) -> farcall::Result<()>;
    /// The signal, which has no argument and no result.
    #[signal]
    fn signal(&self);
}

struct Server;

impl Raises for Server {
    fn raise(&self) -> farcall::Result<()> {
        Ok(RaisesSignals::signal()?)
    }
}

impl RaisesHandler for Signal {
    fn signal(&self, by: RaisesRaiser) -> Answer<()> {
        match (self, by) {
            (Signal::Unwound, RaisesRaiser::raise(call)) => call.unwind(Ok(())),
            _ => Answer::Resume(()),
        }
    }
}

impl Peer for Signal {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both || setup.bytes > 0 {
            return cannot("its calls have no payload");
        }
        let runtime = Farcall::OVER_UDP.runtime(setup)?;
        Ok(Box::new(Exported(runtime.export::<dyn Raises>("Raises", Arc::new(Server))?)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let raises = Farcall::OVER_UDP.runtime(setup)?.import::<dyn Raises>(address)?;
        Ok(Box::new(Client(raises.catching(*self))))
    }
}

struct Client(RaisesClient);

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.0.raise()?;
        }
        Ok(())
    }
}
