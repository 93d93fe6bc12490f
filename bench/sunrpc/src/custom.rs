//! Programs 3 and 4 in Rust: the C program's calls and replies (`custom.c`), by the same system calls.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ways::{Caller, PATIENCE, Size};

/// The longest call: the procedure's number, and an argument of four bytes.
const LARGEST: usize = 8;

const NONE: i32 = 1;
const TWO: i32 = 2;
const FOUR: i32 = 3;

#[inline(never)]
fn none() -> i32 {
    1
}

#[inline(never)]
fn two(argument: i16) -> i32 {
    argument.into()
}

#[inline(never)]
fn four(argument: i32) -> i32 {
    argument
}

/// Executes a call, unless this is none.
#[inline(never)]
fn dispatch(call: &[u8]) -> Option<i32> {
    let (procedure, argument) = call.split_first_chunk()?;
    match i32::from_ne_bytes(*procedure) {
        NONE => Some(none()),
        TWO => argument.first_chunk().map(|bytes| two(i16::from_ne_bytes(*bytes))),
        FOUR => argument.first_chunk().map(|bytes| four(i32::from_ne_bytes(*bytes))),
        _ => None,
    }
}

/// Serves a UDP socket until it fails.
pub fn serve_datagrams(socket: &UdpSocket) {
    let mut call = [0; LARGEST];
    while let Ok((bytes, from)) = socket.recv_from(&mut call) {
        if let Some(result) = dispatch(&call[..bytes]) {
            // A reply that cannot be sent is lost, and the client notices that.
            let _ = socket.send_to(&result.to_ne_bytes(), from);
        }
    }
}

/// Serves a connection until it ends.
///
/// # Errors
/// When it fails, or carries what is no call.
pub fn serve_connection(mut connection: TcpStream) -> io::Result<()> {
    let (mut call, mut have) = ([0; LARGEST], 0);
    loop {
        match connection.read(&mut call[have..])? {
            0 if have < LARGEST => return Ok(()),
            0 => return Err(ErrorKind::InvalidData.into()),
            bytes => have += bytes,
        }
        if let Some(result) = dispatch(&call[..have]) {
            have = 0;
            connection.write_all(&result.to_ne_bytes())?;
        }
    }
}

/// Returns the call of a procedure, and its length.
fn marshal(size: Size, number: u32) -> ([u8; LARGEST], usize) {
    let mut call = [0; LARGEST];
    let (procedure, length) = match size {
        Size::None => (NONE, 4),
        Size::Two => (TWO, 6),
        Size::Four => (FOUR, 8),
    };
    call[..4].copy_from_slice(&procedure.to_ne_bytes());
    match size {
        Size::None => {}
        Size::Two => call[4..6].copy_from_slice(&(number as i16).to_ne_bytes()),
        Size::Four => call[4..].copy_from_slice(&number.to_ne_bytes()),
    }
    (call, length)
}

/// Waits until there is something to receive.
fn wait(socket: impl AsFd) -> Result<()> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let mut wanted = [PollFd::new(&socket, PollFlags::IN)];
    ensure!(poll(&mut wanted, Some(&patience))? == 1, "no reply came");
    Ok(())
}

/// A client of program 3.
pub struct Datagrams {
    socket: UdpSocket,
    to: SocketAddrV4,
    polls: bool,
}

impl Datagrams {
    /// Makes a client of the server at this address.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn new(to: SocketAddrV4, polls: bool) -> Result<Datagrams> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Datagrams { socket, to, polls })
    }
}

impl Caller for Datagrams {
    fn call(&mut self, size: Size, calls: u32) -> Result<()> {
        let mut result = [0; 4];
        for number in 0..calls {
            let (call, length) = marshal(size, number);
            self.socket.send_to(&call[..length], self.to)?;
            if self.polls {
                wait(&self.socket)?;
            }
            let (bytes, _) = self.socket.recv_from(&mut result).context("no reply came")?;
            ensure!(bytes == result.len(), "a reply has {bytes} bytes");
        }
        Ok(())
    }
}

/// A client of program 4.
pub struct Connection {
    connection: TcpStream,
    polls: bool,
}

impl Connection {
    /// Connects to the server at this address.
    ///
    /// # Errors
    /// When there is no connection.
    pub fn new(to: SocketAddrV4, polls: bool) -> Result<Connection> {
        let connection = TcpStream::connect(to)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { connection, polls })
    }
}

impl Caller for Connection {
    fn call(&mut self, size: Size, calls: u32) -> Result<()> {
        for number in 0..calls {
            let (call, length) = marshal(size, number);
            self.connection.write_all(&call[..length])?;
            let (mut result, mut have) = ([0; 4], 0);
            while have < result.len() {
                if self.polls {
                    wait(&self.connection)?;
                }
                match self.connection.read(&mut result[have..]).context("no reply came")? {
                    0 => return Err(Error::from(ErrorKind::UnexpectedEof).into()),
                    bytes => have += bytes,
                }
            }
        }
        Ok(())
    }
}
