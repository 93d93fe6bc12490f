//! Makes the transfers over TCP, by bare system calls.
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::kinds::{ITEM_BYTES, Kind, Peer};

/// The bytes that a side reads or writes at once.
const BUFFER: usize = 256 << 10;

/// What a client asks for, as the first byte of a request. Eight bytes with a number follow.
const NULL: u8 = 0;
const FETCH: u8 = 1;
const STORE: u8 = 2;
const ITEMS: u8 = 3;
const ECHO: u8 = 4;
const REQUEST_BYTES: usize = 9;

/// Serves until the process ends. The first byte of a connection says which congestion control the server's
/// end has.
pub fn serve(address: SocketAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A client that goes away ends its connection.
            std::thread::spawn(move || answer(connection));
        }
    });
    Ok(address)
}

fn answer(mut connection: TcpStream) -> Result<()> {
    let mut control = [0];
    connection.read_exact(&mut control)?;
    let peer = if control[0] == 0 { Peer::Cubic } else { Peer::Bbr };
    configure(&connection, peer)?;
    let mut buffer = vec![7; BUFFER];
    let mut request = [0; REQUEST_BYTES];
    loop {
        match connection.read_exact(&mut request) {
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let number = u64::from_be_bytes(std::array::from_fn(|n| request[n + 1]));
        match request[0] {
            NULL => connection.write_all(&[7])?,
            FETCH => send(&mut connection, number, &buffer)?,
            STORE => {
                receive(&mut connection, number, &mut buffer)?;
                connection.write_all(&[7])?;
            }
            ITEMS => items(&connection, number)?,
            ECHO => return echo(&mut connection, &mut buffer),
            other => bail!("unknown request {other}"),
        }
    }
}

fn configure(connection: &TcpStream, peer: Peer) -> Result<()> {
    connection.set_nodelay(true)?;
    let control = peer.control().context("it has no congestion control of the kernel's")?;
    rustix::net::sockopt::set_tcp_congestion(connection, control)
        .with_context(|| format!("cannot use {control}"))
}

fn send(connection: &mut TcpStream, bytes: u64, buffer: &[u8]) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let some = left.min(buffer.len() as u64);
        connection.write_all(&buffer[..some as usize])?;
        left -= some;
    }
    Ok(())
}

fn receive(connection: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let length = connection.read(&mut buffer[..most])?;
        ensure!(length > 0, "the connection ended");
        left -= length as u64;
    }
    Ok(())
}

fn items(connection: &TcpStream, count: u64) -> Result<()> {
    let mut writer = BufWriter::with_capacity(BUFFER, connection);
    for item in 0..count {
        writer.write_all(&item.to_be_bytes())?;
    }
    Ok(writer.flush()?)
}

fn echo(connection: &mut TcpStream, buffer: &mut [u8]) -> Result<()> {
    loop {
        let length = connection.read(buffer)?;
        if length == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..length])?;
    }
}

fn connect(address: SocketAddr, peer: Peer) -> Result<TcpStream> {
    let mut connection = TcpStream::connect(address)?;
    configure(&connection, peer)?;
    connection.write_all(&[u8::from(peer == Peer::Bbr)])?;
    Ok(connection)
}

fn ask(connection: &mut TcpStream, what: u8, number: u64) -> Result<()> {
    let mut request = [what; REQUEST_BYTES];
    request[1..].copy_from_slice(&number.to_be_bytes());
    Ok(connection.write_all(&request)?)
}

/// Moves it over a new connection as often as `next` returns true. The first time includes connecting.
pub fn run(address: SocketAddr, peer: Peer, kind: Kind, mut next: impl FnMut() -> bool) -> Result<()> {
    let mut buffer = vec![7; BUFFER];
    if !next() {
        return Ok(());
    }
    let connection = &mut connect(address, peer)?;
    loop {
        once(connection, kind, &mut buffer)?;
        if !next() {
            return Ok(());
        }
    }
}

fn once(connection: &mut TcpStream, kind: Kind, buffer: &mut [u8]) -> Result<()> {
    match kind {
        Kind::Null => {
            ask(connection, NULL, 0)?;
            receive(connection, 1, buffer)
        }
        Kind::Result(bytes) | Kind::Bulk(bytes) | Kind::Get(bytes) => {
            ask(connection, FETCH, bytes)?;
            receive(connection, bytes, buffer)
        }
        Kind::Argument(bytes) | Kind::Put(bytes) => {
            ask(connection, STORE, bytes)?;
            send(connection, bytes, buffer)?;
            receive(connection, 1, buffer)
        }
        Kind::Items(count) => {
            ask(connection, ITEMS, count)?;
            let mut reader = BufReader::with_capacity(BUFFER, connection);
            let mut item = [0; ITEM_BYTES as usize];
            let mut sum = 0_u64;
            for _ in 0..count {
                reader.read_exact(&mut item)?;
                sum = sum.wrapping_add(u64::from_be_bytes(item));
            }
            std::hint::black_box(sum);
            ensure!(reader.buffer().is_empty(), "there are more items than asked for");
            Ok(())
        }
    }
}

/// Receives without end, and counts the bytes.
pub fn flow(address: SocketAddr, peer: Peer, moved: &AtomicU64) -> Result<()> {
    let mut connection = connect(address, peer)?;
    ask(&mut connection, FETCH, u64::MAX)?;
    let mut reader = BufReader::with_capacity(BUFFER, connection);
    loop {
        let length = reader.fill_buf()?.len();
        ensure!(length > 0, "the connection ended");
        moved.fetch_add(length as u64, Relaxed);
        reader.consume(length);
    }
}

/// Keeps this many echoes of this many bytes outstanding on one connection, for this long. Counts those that
/// have ended.
pub fn crowd(
    address: SocketAddr,
    peer: Peer,
    (outstanding, bytes): (usize, usize),
    time: Duration,
    ended: &AtomicU64,
) -> Result<()> {
    let mut connection = connect(address, peer)?;
    ask(&mut connection, ECHO, 0)?;
    let (credit, credits) = mpsc::channel();
    credit.send(outstanding)?;
    let mut writer = connection.try_clone()?;
    std::thread::spawn(move || -> Result<()> {
        let data = vec![7; bytes];
        for calls in credits {
            (0..calls).try_for_each(|_| writer.write_all(&data))?;
        }
        Ok(())
    });
    let (mut buffer, mut received, began) = (vec![0; BUFFER], 0, Instant::now());
    connection.set_read_timeout(Some(time))?;
    while began.elapsed() < time {
        let before = received / bytes;
        let length = connection.read(&mut buffer)?;
        ensure!(length > 0, "the connection ended");
        received += length;
        let calls = received / bytes - before;
        if calls > 0 {
            ended.fetch_add(calls as u64, Relaxed);
            credit.send(calls)?;
        }
    }
    Ok(())
}
