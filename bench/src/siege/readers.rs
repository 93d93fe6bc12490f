//! Readers of what others wrote: a registry in etcd whose pages have no end, and a description of a mebibyte.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use farcall::names::Registry;
use farcall_idl::{Argument, Interface};
use farcall_xdr::schema::{Body, Field, Type};

/// How many keys a page has, and a whole registry.
const PAGE: usize = 1_000;
const KEYS: usize = 100_000;
/// The longest time that anything may take to be read, or to be refused: that of all pages of a registry.
const PATIENCE: Duration = Duration::from_secs(65);
/// The pause after a round.
const PAUSE: Duration = Duration::from_millis(300);
/// The most memory of a reader: what it may read of a registry, twice, and its own.
pub const MEMORY: usize = 512 << 20;

/// What a reader has done.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Done {
    pub read: u64,
    pub longest: Duration,
    pub failures: Vec<String>,
}

/// Serves a registry at a port of its own: one whose pages never end, or one of so many keys.
pub fn registry(endless: bool) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || drop(answer(&stream, endless)));
        }
    });
    Ok(address)
}

/// Answers the requests of a connection, each with the next page.
fn answer(stream: &TcpStream, endless: bool) -> Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut page = 0;
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        // Base64 of a number of twelve digits, which is no entry's key.
        let key = |at: usize| format!("{{\"key\":\"{:0>16}\",\"value\":\"AAAA\"}}", at + page * PAGE);
        let keys: Vec<String> = (0..PAGE).map(key).collect();
        page += 1;
        let more = endless || page * PAGE < KEYS;
        let body = format!(
            "{{\"header\":{{\"revision\":\"7\"}},\"kvs\":[{}],\"more\":{more},\"count\":\"9\"}}",
            keys.join(",")
        );
        if !more {
            page = 0;
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        (&*stream).write_all((head + &body).as_bytes())?;
    }
}

/// Reads a hostile registry and a hostile description, or honest ones, again and again for that time.
pub fn read(registry: SocketAddr, endless: bool, description: &[u8], time: Duration) -> Done {
    let (began, mut done) = (Instant::now(), Done::default());
    while began.elapsed() < time {
        let start = Instant::now();
        if let Err(why) = list(registry, endless).and_then(|()| decode(description)) {
            done.failures.push(format!("a reader: {why:#}"));
        }
        done.longest = done.longest.max(start.elapsed());
        done.read += 1;
        std::thread::sleep(PAUSE);
    }
    if done.longest > PATIENCE {
        done.failures.push(format!("a reader took {:?}", done.longest));
    }
    done
}

fn list(registry: SocketAddr, endless: bool) -> Result<()> {
    let registry = farcall_names::Etcd::at(&format!("etcd://{registry}"))?;
    match registry.list() {
        Ok(_) if endless => bail!("a registry without an end was read"),
        Err(why) if !endless => Err(why.into()),
        _ => Ok(()),
    }
}

fn decode(description: &[u8]) -> Result<()> {
    let interface: Interface = farcall_xdr::from_slice(description)?;
    ensure!(!interface.procedures.is_empty());
    // What an importer computes of it: the fingerprint of each procedure.
    ensure!(interface.fingerprints().len() == interface.procedures.len());
    Ok(())
}

/// Returns a description with so many procedures and types, each of which contains the next.
pub fn description(count: usize) -> Result<Vec<u8>> {
    let mut interface = Interface::new("Large");
    for at in 0..count {
        let key = format!("T{at}");
        let next = Type::Optional(Box::new(Type::Named(((at + 1) % count) as u32)));
        interface.types.define(&key, &key, "", |_| Body::Struct {
            fields: vec![Field { name: "next".into(), docs: String::new(), ty: next, defaulted: false }],
            extensible: false,
        });
    }
    for at in 0..count {
        interface.procedure(at as u32, format!("p{at}"));
        if let Some(last) = interface.procedures.last_mut() {
            last.arguments.push(Argument { name: "a".into(), ty: Type::Named(at as u32) });
        }
    }
    Ok(farcall_xdr::to_vec(&interface)?)
}
