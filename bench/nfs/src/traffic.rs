//! What passes between NFS clients and a server: calls, and their bytes as control and as data.
//!
//! Data are what a client wants of the server, and what it would also have to move if it could access the
//! server's memory: file contents, attributes, names, the text of links. All else is control: headers of
//! calls and replies, credentials, handles of files, positions, lengths, padding (Thekkath et al. 1994,
//! section 2).

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use farcall::stub::Program;
use farcall_nfs::protocol::nfs::*;
use farcall_onc::wire::message::{Accepted, Answer, Call, Reply};
use farcall_onc::wire::record::{Limits, Records};
use farcall_onc::xdr::{self, Decode};

/// The bytes of a file's attributes.
const ATTRIBUTES: u64 = 84;
/// The bytes of a file's number.
const NUMBER: u64 = 8;

/// The calls of one procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub calls: u64,
    /// All bytes of them and of their replies, without those of lower protocols.
    pub bytes: u64,
    /// Those that are data.
    pub data: u64,
}

/// The calls of each procedure.
pub type Counts = BTreeMap<u32, Calls>;

/// Passes on what clients and a server send to one another, and counts it.
pub struct Relay {
    address: SocketAddr,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    counts: Counts,
    /// Of each call that has no reply yet: its procedure, its bytes, and those that are data.
    open: HashMap<u32, (u32, u64, u64)>,
}

impl Relay {
    /// Listens for clients of a server. Its threads end with the process.
    ///
    /// # Errors
    /// When there is no port.
    pub fn start(server: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port for the relay")?;
        let relay = Relay { address: listener.local_addr()?, ledger: Arc::default() };
        let ledger = relay.ledger.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { return };
                let _ = both_ways(client, server, &ledger);
            }
        });
        Ok(relay)
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts so far, and begins again.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut lock(&self.ledger).counts)
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

fn both_ways(client: TcpStream, server: TcpStream, ledger: &Arc<Mutex<Ledger>>) -> Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (there, back) = ((client.try_clone()?, server.try_clone()?), (server, client));
    for ((from, to), count) in [(there, Ledger::call as fn(&mut Ledger, &[u8])), (back, Ledger::reply)] {
        let ledger = ledger.clone();
        std::thread::spawn(move || {
            let _ = pass(&from, &to, &ledger, count);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}

/// Passes on what one side sends. Counts messages before they are passed on, so that a reply never comes
/// before its call.
fn pass(
    mut from: &TcpStream,
    mut to: &TcpStream,
    ledger: &Mutex<Ledger>,
    count: fn(&mut Ledger, &[u8]),
) -> Result<()> {
    let mut records = Records::new(Limits::default());
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let space = records.space();
            let (now, later) = rest.split_at(space.len().min(rest.len()));
            space[..now.len()].copy_from_slice(now);
            records.filled(now.len());
            rest = later;
            while let Some(record) = records.next()? {
                count(&mut lock(ledger), &record);
            }
        }
        to.write_all(&buffer[..length])?;
    }
}

impl Ledger {
    fn call(&mut self, message: &[u8]) {
        let Ok((call, arguments)) = Call::parse(message) else { return };
        if call.program == <dyn NfsV3>::PROGRAM {
            let data = data_of_arguments(call.procedure, arguments).unwrap_or_default();
            self.open.insert(call.xid, (call.procedure, message.len() as u64, data));
        }
    }

    fn reply(&mut self, message: &[u8]) {
        let Ok(Reply { xid, answer, .. }) = Reply::parse(message) else { return };
        let Some((procedure, bytes, data)) = self.open.remove(&xid) else { return };
        let results = match answer {
            Answer::Accepted { outcome: Accepted::Success(results), .. } => results,
            _ => &[],
        };
        let calls = self.counts.entry(procedure).or_default();
        calls.calls += 1;
        calls.bytes += bytes + message.len() as u64;
        calls.data += data + data_of_results(procedure, results).unwrap_or_default();
    }
}

/// The numbers of procedures (RFC 1813, section 3.3).
pub const NULL: u32 = 0;
pub const GETATTR: u32 = 1;
pub const LOOKUP: u32 = 3;
pub const READLINK: u32 = 5;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const READDIR: u32 = 16;
pub const READDIRPLUS: u32 = 17;
pub const FSSTAT: u32 = 18;

fn data_of_arguments(procedure: u32, arguments: &[u8]) -> Option<u64> {
    match procedure {
        LOOKUP => Some(decoded::<Lookup3args>(arguments)?.what.name.len() as u64),
        WRITE => Some(decoded::<Write3args>(arguments)?.data.len() as u64),
        _ => None,
    }
}

fn data_of_results(procedure: u32, results: &[u8]) -> Option<u64> {
    match procedure {
        GETATTR => decoded::<Getattr3res>(results)?.into_ok().ok().map(|_| ATTRIBUTES),
        LOOKUP => {
            let found = decoded::<Lookup3res>(results)?.into_ok().ok()?;
            Some(attributes(&found.obj_attributes) + attributes(&found.dir_attributes))
        }
        READLINK => {
            let link = decoded::<Readlink3res>(results)?.into_ok().ok()?;
            Some(link.data.len() as u64 + attributes(&link.symlink_attributes))
        }
        READ => {
            let read = decoded::<Read3res>(results)?.into_ok().ok()?;
            Some(read.data.len() as u64 + attributes(&read.file_attributes))
        }
        WRITE => {
            let written = decoded::<Write3res>(results)?.into_ok().ok()?;
            Some(attributes(&written.file_wcc.after))
        }
        READDIR => {
            let list = decoded::<Readdir3res>(results)?.into_ok().ok()?;
            let entries = list.reply.entries.iter().map(|entry| NUMBER + entry.name.len() as u64);
            Some(attributes(&list.dir_attributes) + entries.sum::<u64>())
        }
        READDIRPLUS => {
            let list = decoded::<Readdirplus3res>(results)?.into_ok().ok()?;
            let entries = list
                .reply
                .entries
                .iter()
                .map(|entry| NUMBER + entry.name.len() as u64 + attributes(&entry.name_attributes));
            Some(attributes(&list.dir_attributes) + entries.sum::<u64>())
        }
        FSSTAT => {
            let _found = decoded::<Fsstat3res>(results)?.into_ok().ok()?;
            // Six numbers of 8 bytes, and a time of 4.
            Some(52)
        }
        _ => None,
    }
}

fn decoded<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Option<T> {
    xdr::from_slice(bytes).ok()
}

fn attributes(attributes: &PostOpAttr) -> u64 {
    if attributes.is_some() { ATTRIBUTES } else { 0 }
}
