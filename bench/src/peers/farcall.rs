//! Farcall over UDP: the stubs that any program would use, a runtime with the default settings.
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use farcall::names::Memory;
use farcall::{Export, Runtime};
use farcall_bench_method::{Calling, Laps, Mode, Peer, Serving, Setup};

/// How long a side that is to spin looks for a packet before it blocks: longer than any round trip,
/// so that it never does while it is measured, and soon over when it is not.
const SPIN: Duration = Duration::from_millis(1);

#[farcall::interface]
trait Echo {
    /// The null call.
    fn null(&self) -> farcall::Result<()>;
    /// The first 32 bytes.
    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]>;
    /// All of them.
    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
}

struct Server;

impl Echo for Server {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<[u8; 32]> {
        Ok(data.first_chunk().copied().unwrap_or_default())
    }

    fn echo_all(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

pub struct Farcall;

impl Peer for Farcall {
    fn transport(&self) -> &'static str {
        "udp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        Ok(Box::new(Exported(runtime(setup)?.export::<dyn Echo>("Echo", Arc::new(Server))?)))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let echo = runtime(setup)?.import::<dyn Echo>(address)?;
        Ok(Box::new(Client { echo, data: vec![7; setup.bytes] }))
    }
}

/// Names stay in the process: the address is enough here.
fn runtime(setup: &Setup) -> farcall::Result<Runtime> {
    let builder = Runtime::builder().registry(Memory::new());
    match setup.mode {
        Mode::Block => builder.build(),
        Mode::Spin => builder.spin(SPIN).build(),
    }
}

struct Exported(Export);

impl Serving for Exported {
    fn address(&self) -> String {
        self.0.url()
    }
}

struct Client {
    echo: EchoClient,
    data: Vec<u8>,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        match self.data.len() {
            0 => {
                while laps.next() {
                    self.echo.null()?;
                }
            }
            32 => {
                while laps.next() {
                    std::hint::black_box(self.echo.echo(&self.data)?);
                }
            }
            _ => {
                while laps.next() {
                    std::hint::black_box(self.echo.echo_all(&self.data)?);
                }
            }
        }
        Ok(())
    }
}
