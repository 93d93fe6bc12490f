//! A file that moves from one process to another: by farcall's bulk, and by a TCP connection with `sendfile`.
//! Both have the same kind of source and sink: files in memory (tmpfs).
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Result, ensure};
use farcall::Bulk;
use farcall_bench_method::{Calling, Carry, Laps, Peer, Serving, Setup, cannot};

use super::farcall::{Exported, Farcall};

/// Where the files are.
const MEMORY: &str = "/dev/shm";
/// The bytes that the receiver of the connection reads at once.
const BUFFER: usize = 256 << 10;

/// How the file moves.
#[derive(Clone, Copy)]
pub enum Transfer {
    Farcall,
    Sendfile,
}

#[farcall::interface]
pub trait Sends {
    /// Returns the content of the server's file.
    fn fetch(&self) -> farcall::Result<Bulk>;
}

struct Server(File);

impl Sends for Server {
    fn fetch(&self) -> farcall::Result<Bulk> {
        let file = reopened(&self.0).and_then(|file| Bulk::from_file(file, 0, u64::MAX));
        file.map_err(|why| {
            farcall::CallFailed::new(farcall::Kind::Local, farcall::Ran::Yes).caused_by(why).into()
        })
    }
}

/// Returns a file of so many bytes.
fn source(bytes: usize) -> Result<File> {
    let mut file = sink()?;
    std::io::copy(&mut std::io::repeat(7).take(bytes as u64), &mut file)?;
    Ok(file)
}

fn sink() -> Result<File> {
    Ok(tempfile::tempfile_in(MEMORY)?)
}

/// Returns the file with a position of its own.
fn reopened(file: &File) -> std::io::Result<File> {
    use std::os::fd::AsRawFd as _;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Peer for Transfer {
    fn transport(&self) -> &'static str {
        match self {
            Transfer::Farcall => "udp",
            Transfer::Sendfile => "tcp",
        }
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Result {
            return cannot("its file moves from the server to the client");
        }
        let file = source(setup.bytes)?;
        match self {
            Transfer::Farcall => {
                let runtime = Farcall::OVER_UDP.runtime(setup)?;
                Ok(Box::new(Exported(runtime.export::<dyn Sends>("Sends", Arc::new(Server(file)))?)))
            }
            Transfer::Sendfile => {
                let listener = TcpListener::bind("127.0.0.1:0")?;
                let address = listener.local_addr()?.to_string();
                std::thread::spawn(move || -> Result<()> {
                    loop {
                        let (connection, _) = listener.accept()?;
                        answer(connection, reopened(&file)?)?;
                    }
                });
                Ok(Box::new(Listens(address)))
            }
        }
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let fetch: Fetch = match self {
            Transfer::Farcall => {
                let sends = Farcall::OVER_UDP.runtime(setup)?.import::<dyn Sends>(address)?;
                Box::new(move |sink| Ok(sends.fetch()?.copy_to(sink, u64::MAX).done()?))
            }
            Transfer::Sendfile => {
                let (mut connection, bytes) = (TcpStream::connect(address)?, setup.bytes as u64);
                Box::new(move |sink| receive(&mut connection, bytes, sink))
            }
        };
        Ok(Box::new(Client { fetch, sink: sink()?, bytes: setup.bytes as u64 }))
    }
}

/// Sends the file for each byte that arrives. (The standard library uses `sendfile`.)
fn answer(mut connection: TcpStream, mut file: File) -> Result<()> {
    while connection.read(&mut [0])? == 1 {
        file.rewind()?;
        std::io::copy(&mut file, &mut connection)?;
    }
    Ok(())
}

fn receive(connection: &mut TcpStream, bytes: u64, sink: &mut File) -> Result<u64> {
    connection.write_all(&[1])?;
    let (mut buffer, mut left) = (vec![0; BUFFER], bytes);
    while left > 0 {
        let len = connection.read(&mut buffer)?;
        ensure!(len > 0, "the connection ended");
        sink.write_all(&buffer[..len])?;
        left -= len as u64;
    }
    Ok(bytes)
}

struct Listens(String);

impl Serving for Listens {
    fn address(&self) -> String {
        self.0.clone()
    }
}

/// Fetches the file into the sink, and returns how many bytes it had.
type Fetch = Box<dyn FnMut(&mut File) -> Result<u64> + Send>;

struct Client {
    fetch: Fetch,
    sink: File,
    bytes: u64,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.sink.rewind()?;
            let moved = (self.fetch)(&mut self.sink)?;
            ensure!(moved == self.bytes, "{moved} bytes of {}", self.bytes);
        }
        Ok(())
    }
}
