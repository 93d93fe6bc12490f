//! The carrier by mapping: the importer reads and writes the exporter's memory itself.
//!
//! ```text
//! ground     the memory at the exporter: who gets it, and how it is taken away from them
//! tie        whether the exporter is still there
//! ```
//!
//! What stands in the control word decides after each access whether it counts. Where it does not, the exporter is asked:
//! only it can say why.

mod ground;
mod tie;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use bytes::Bytes;
use farcall_shm::{Area, May, Sight, Wire};

use super::Result;
use super::access::Refused;
use super::area::{self, Load};
use super::carrier::Carrier;
use super::segment::{Rights, TYPE};
use super::served::Served;
use crate::shm::elsewhere;
use crate::{CallFailed, Kind, Pending, Ran};

pub(crate) use farcall_shm::Wire as Guest;
pub(crate) use ground::Ground;
pub(crate) use tie::Watcher;

use tie::Tie;

/// A segment that is mapped here.
pub(super) struct Mapped {
    data: Area,
    control: Area,
    generation: u64,
    /// The exporter hears of writes if it is asked to.
    heard: bool,
    tie: Tie,
    /// For what is not done by mapping.
    served: Served,
    /// There was such a write.
    asked: AtomicBool,
}

/// What begins the message of who wants to map a segment, behind the export's identifier; the generation follows.
const HELLO: u8 = b'M';

/// The export and the generation that a process of the same user on this machine wants to map, if it wants that.
pub(crate) fn wanted(hello: &[u8]) -> Option<(u64, u64)> {
    let (export, rest) = hello.split_first_chunk::<8>()?;
    let generation = rest.strip_prefix(&[HELLO])?.try_into().ok()?;
    Some((u64::from_be_bytes(*export), u64::from_be_bytes(generation)))
}

/// Takes any bytes for what an importer says first.
#[doc(hidden)]
pub fn fuzz_hello(hello: &[u8]) -> Option<(u64, u64)> {
    wanted(hello)
}

/// What others are to map of a segment, of which they have these rights; `None` if it is to be served.
pub(super) fn ground(len: usize, rights: Rights, generation: u64) -> Option<Ground> {
    Ground::new(len, mappable(rights)?, generation)
}

/// Rights for all of it are a mapping's.
fn mappable(rights: Rights) -> Option<May> {
    match rights {
        Rights::READ => Some(May::Read),
        Rights::ALL => Some(May::Write),
        _ => None,
    }
}

/// Maps the segment that the exporter at `address` has as `export`, if that has it mapped; else gives back what serves.
pub(super) fn map(
    address: SocketAddr,
    export: u64,
    (generation, size, rights): (u64, u64, Rights),
    watcher: Option<Arc<Watcher>>,
    served: Served,
) -> Arc<dyn Carrier> {
    /// The exporter has just answered a call.
    const MOST: Duration = Duration::from_secs(1);
    let mapped = watcher.zip(mappable(rights)).and_then(|(watcher, may)| {
        let meet = move || meet(address, export, generation, size, may, MOST);
        let (control, data, heard, wire) = elsewhere(watcher.env(), MOST, meet)?;
        Some((control, data, heard, watcher.tie(wire).ok()?))
    });
    let Some((control, data, heard, tie)) = mapped else { return Arc::new(served) };
    Arc::new(Mapped { data, control, generation, heard, tie, served, asked: AtomicBool::new(false) })
}

/// Meets the exporter at `address`. What it passes may block whoever looks at it.
fn meet(
    address: SocketAddr,
    export: u64,
    generation: u64,
    size: u64,
    may: May,
    most: Duration,
) -> Option<(Area, Area, bool, Wire)> {
    let wire = Wire::connect(address).ok()?;
    let mut hello = export.to_be_bytes().to_vec();
    hello.push(HELLO);
    hello.extend_from_slice(&generation.to_be_bytes());
    if !wire.send(&hello, None) {
        return None;
    }
    let mut facts = [0; 2];
    let control = receive(&wire, &mut facts, most)?;
    let data = receive(&wire, &mut [0; 1], most)?;
    if facts[0] != u8::from(may == May::Write) {
        return None;
    }
    let control = Area::open(&control, size_of::<u64>(), May::Read).ok()?;
    let data = Area::open(&data, usize::try_from(size).ok()?, may).ok()?;
    Some((control, data, facts[1] != 0, wire))
}

/// A message of that length, and the file that comes with it.
fn receive(wire: &Wire, message: &mut [u8], most: Duration) -> Option<std::os::fd::OwnedFd> {
    wire.wait(most);
    wire.receive_file(message).filter(|(len, _)| *len == message.len()).map(|(_, file)| file)
}

impl Mapped {
    /// Whether what was done so far was done to the segment: after an access that has read.
    #[inline(always)]
    fn is_current(&self) -> bool {
        fence(Ordering::Acquire);
        self.control.sight().first().is_some_and(|word| word.load() == self.generation) && self.tie.holds()
    }

    /// The same after one that has written: whoever takes the memory away writes the control word before he reads ours.
    #[inline(always)]
    fn is_done(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        if self.is_current() { Ok(()) } else { Err(self.raced().into()) }
    }

    /// (Whoever has not the right to write is refused above.)
    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.data.words().unwrap_or_default()
    }

    /// What serves, unless the exporter is known to be gone. Nothing was done yet.
    #[cold]
    fn served(&self) -> Result<&Served> {
        if !self.tie.is_ours() {
            return Err(crate::client::forked().into());
        }
        if self.tie.is_gone() {
            return Err(gone(Ran::No).into());
        }
        self.asked.store(true, Ordering::Relaxed);
        Ok(&self.served)
    }

    #[cold]
    fn raced(&self) -> CallFailed {
        if self.tie.is_gone() {
            return gone(Ran::Maybe);
        }
        CallFailed::new(Kind::NotExported, Ran::Maybe).because("the segment was taken away meanwhile")
    }
}

#[cold]
fn gone(ran: Ran) -> CallFailed {
    CallFailed::new(Kind::Unreachable, ran).because(format!("{TYPE}: the process that exported the segment has ended"))
}

impl Load for Sight {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load()
    }
}

impl Carrier for Mapped {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        area::read(self.data.sight(), offset, into);
        if self.is_current() { Ok(()) } else { self.served()?.read(offset, into) }
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if !self.data.copy_out(offset as usize, into) {
            area::read(self.data.sight(), offset, into);
        }
        if self.is_current() { Ok(()) } else { self.served()?.read_bytes(offset, into) }
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, into) in ranges.iter_mut() {
            area::read(self.data.sight(), *offset, into);
        }
        if self.is_current() { Ok(()) } else { self.served()?.read_each(ranges) }
    }

    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        // Whoever is to hear of it must be told, so the bytes may as well go along.
        if (notify && self.heard) || !self.is_current() {
            return self.served()?.write(offset, bytes, notify);
        }
        area::write(self.words(), offset, bytes);
        self.is_done()
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if !self.is_current() {
            return self.served()?.write_bytes(offset, bytes);
        }
        if !self.data.copy_in(offset as usize, bytes) {
            area::write(self.words(), offset, bytes);
        }
        self.is_done()
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        if !self.is_current() {
            return self.served()?.compare_and_swap(offset, old, new);
        }
        let found = area::compare_and_swap(self.words(), offset, old, new);
        self.is_done().map(|()| found)
    }

    fn flush(&self) -> Result<()> {
        // What was written by mapping is there.
        if self.asked.load(Ordering::Relaxed) { self.served()?.flush() } else { Ok(()) }
    }

    fn start_flush(&self) -> Pending<(), Refused> {
        Pending::ended(self.flush())
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        let mut bytes = vec![0; len as usize];
        area::read(self.data.sight(), offset, &mut bytes);
        if self.is_current() {
            return Pending::ended(Ok(bytes.into()));
        }
        self.served().map_or_else(|why| Pending::ended(Err(why)), |served| served.start_read(offset, len))
    }

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        if self.is_current() {
            return Pending::ended(self.write(offset, bytes, false));
        }
        self.served().map_or_else(|why| Pending::ended(Err(why)), |served| served.start_write(offset, bytes))
    }

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        if self.is_current() {
            return Pending::ended(self.compare_and_swap(offset, old, new));
        }
        let served = self.served();
        served.map_or_else(|why| Pending::ended(Err(why)), |served| served.start_compare_and_swap(offset, old, new))
    }
}
