//! Farcall without a network: a stub bound to a server in the client's own process, and the server itself.
use std::hint::black_box;
use std::sync::Arc;

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Crew, Laps, Peer, Serving, Setup, cannot};

use super::farcall::{Echo, Server, calls, started};

/// How the client reaches its server. A call takes little time compared with a reading of the clock, so a lap
/// consists of many calls.
#[derive(Clone, Copy)]
pub enum InProcess {
    /// By a stub: arguments and results are encoded and decoded.
    Stub,
    /// By the trait object, as in a program that binds directly.
    Direct,
}

impl Peer for InProcess {
    fn transport(&self) -> &'static str {
        "in process"
    }

    fn calls_per_lap(&self) -> usize {
        match self {
            InProcess::Stub => 100,
            InProcess::Direct => 10_000,
        }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        match setup.carry {
            Carry::Both => Ok(Box::new(Nobody)),
            Carry::Result | Carry::Argument => cannot("its payload stays where it is"),
        }
    }

    fn connect(&self, setup: &Setup, _: &str) -> Result<Box<dyn Calling>> {
        // `black_box` keeps the compiler from calling the method directly.
        let server: Arc<dyn Echo> = black_box(Arc::new(Server::default()));
        let (data, lap) = (vec![7; setup.bytes], self.calls_per_lap());
        Ok(match self {
            InProcess::Stub => {
                let echo = Arc::new(::farcall::stub::local(server));
                let window = |echo: &_, data: &[u8], outstanding, calls| {
                    started(echo, Carry::Both, data, outstanding, calls)
                };
                Box::new(Client { echo, data, lap, window, crew: None })
            }
            InProcess::Direct => {
                let window = |_: &_, _: &[u8], _, _| cannot("a direct call has ended when it returns");
                Box::new(Client { echo: server, data, lap, window, crew: None })
            }
        })
    }
}

/// The other process only waits until it is told to end.
struct Nobody;

impl Serving for Nobody {
    fn address(&self) -> String {
        "here".into()
    }
}

struct Client<E: ?Sized> {
    echo: Arc<E>,
    data: Vec<u8>,
    lap: usize,
    /// Keeps a number of calls outstanding until all have been made.
    window: fn(&E, &[u8], usize, usize) -> Result<()>,
    crew: Option<Crew>,
}

impl<E: Echo + Send + Sync + ?Sized + 'static> Calling for Client<E> {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            so_many(&*self.echo, &self.data, self.lap)?;
        }
        Ok(())
    }

    fn window(&mut self, outstanding: usize, calls: usize) -> Result<()> {
        match outstanding {
            1 => so_many(&*self.echo, &self.data, calls),
            _ => (self.window)(&self.echo, &self.data, outstanding, calls),
        }
    }

    fn threads(&mut self, threads: usize, calls: usize) -> Result<()> {
        let member = || {
            let (echo, data) = (self.echo.clone(), self.data.clone());
            Ok(move |calls| so_many(&*echo, &data, calls))
        };
        Crew::keep(&mut self.crew, threads, member)?.run(calls)
    }
}

/// Makes `number` calls, one after the other.
fn so_many(echo: &(impl Echo + ?Sized), data: &[u8], number: usize) -> Result<()> {
    let mut numbers = 0..number;
    calls(echo, Carry::Both, data, || numbers.next().is_some())
}
