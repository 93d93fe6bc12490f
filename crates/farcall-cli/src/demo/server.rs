//! The demo's server: a process that exports files, [`Demo`] and [`Asking`], and also a bare UDP echo.

use std::collections::HashSet;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use farcall_file_access::{Directory, FileAccess};
use serde_json::json;

use super::interface::{Answered, Asking, AskingSignals, Counted, Demo};
use crate::failure::{Failure, Outcome};
use crate::output::say;

/// A server.
#[derive(Debug, Args)]
pub struct Server {
    /// What to call it
    name: String,

    /// The directory to serve
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The only processor to use
    #[arg(long)]
    processor: Option<usize>,
}

impl Server {
    /// Serves until the standard input ends. The first line of output has the addresses.
    pub fn run(&self) -> Outcome {
        // The thread is bound before it starts other threads, which inherit the binding.
        self.processor.into_iter().for_each(super::pin::pin);
        let demo = farcall::export::<dyn Demo>(&self.name, Arc::new(Implementation::new(&self.name)))?;
        // An export is withdrawn when it is dropped, so this keeps the further exports until the end.
        let _further_exports = match &self.dir {
            None => None,
            Some(dir) => {
                let directory =
                    Directory::open(dir).map_err(|why| Failure::from(why).about(dir.display()))?;
                let files = farcall::export::<dyn FileAccess>("FileAccess", Arc::new(directory))?;
                Some((files, farcall::export::<dyn Asking>("Asking", Arc::new(Asker))?))
            }
        };
        let raw = UdpSocket::bind("127.0.0.1:0")?;
        let address = raw.local_addr()?;
        std::thread::Builder::new().name("raw echo".into()).spawn(move || echo(&raw))?;
        say(json!({ "url": demo.url(), "address": demo.address(), "raw": address }))?;
        super::wait_for_end();
        Ok(())
    }
}

/// Echoes datagrams, for comparison with calls.
fn echo(socket: &UdpSocket) {
    let mut buffer = vec![0; 65_536];
    // The sender of a datagram may have ended when it is answered, which does not matter.
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..length], from);
    }
}

struct Implementation {
    name: String,
    counted: Mutex<Executions>,
}

#[derive(Default)]
struct Executions {
    all: u32,
    calls: HashSet<u32>,
}

impl Implementation {
    fn new(name: &str) -> Implementation {
        Implementation { name: name.to_owned(), counted: Mutex::default() }
    }
}

impl Demo for Implementation {
    fn hello(&self, name: &str) -> farcall::Result<String> {
        Ok(format!("hello {name}, I am {}, process {}", self.name, std::process::id()))
    }

    fn count(&self, number: u32) -> farcall::Result<u32> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.all += 1;
        counted.calls.insert(number);
        Ok(number)
    }

    fn counted(&self) -> farcall::Result<Counted> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Counted { executions: counted.all, repeated: counted.all - counted.calls.len() as u32 })
    }

    fn sleep(&self, ms: u32) -> farcall::Result<()> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(())
    }

    fn hang(&self) -> farcall::Result<()> {
        // If the reader of the output has ended, it does not wait for this line.
        let _ = say("hanging");
        loop {
            std::thread::park();
        }
    }

    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.to_vec())
    }
}

struct Asker;

impl Asking for Asker {
    fn ask(&self) -> farcall::Result<Answered> {
        let server = std::process::id();
        let told = AskingSignals::who(server)?;
        Ok(Answered { server, told })
    }
}
