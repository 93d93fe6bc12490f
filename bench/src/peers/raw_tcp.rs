//! The same over a TCP connection without Nagle's delay.
use std::io::{self, ErrorKind::WouldBlock, Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::Result;
use farcall_bench_method::{Calling, Laps, Mode, Peer, Serving, Setup};

use super::gate::{Gate, Gated};

/// A stream has no empty messages: the null call is one byte.
pub struct RawTcp;

impl Peer for RawTcp {
    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let gate = Gate::new(setup);
        let (passed, setup) = (gate.clone(), *setup);
        let thread = std::thread::spawn(move || serve(&listener, &setup, &passed)).thread().clone();
        Ok(Box::new(Gated { address, gate, thread }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let stream = TcpStream::connect(address)?;
        prepare(&stream, setup)?;
        Ok(Box::new(RawClient { stream, buffer: vec![0; setup.bytes.max(1)] }))
    }
}

fn prepare(stream: &TcpStream, setup: &Setup) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(setup.mode == Mode::Spin)
}

fn serve(listener: &TcpListener, setup: &Setup, gate: &Gate) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    prepare(&stream, setup)?;
    let mut buffer = vec![0; setup.bytes.max(1)];
    loop {
        read(&mut stream, &mut buffer, || gate.pass())?;
        write(&mut stream, &buffer)?;
    }
}

struct RawClient {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Calling for RawClient {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            write(&mut self.stream, &self.buffer)?;
            read(&mut self.stream, &mut self.buffer, || {})?;
        }
        Ok(())
    }
}

/// Fills `buffer`, calling `rest` before each try.
#[inline]
fn read(stream: &mut TcpStream, buffer: &mut [u8], rest: impl Fn()) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        rest();
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(why) if why.kind() == WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

#[inline]
fn write(stream: &mut TcpStream, buffer: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while written < buffer.len() {
        match stream.write(&buffer[written..]) {
            Ok(length) => written += length,
            Err(why) if why.kind() == WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
