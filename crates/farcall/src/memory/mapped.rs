//! The carrier by mapping: the importer reads and writes the exporter's memory itself.
//!
//! ```text
//! ground     the memory at the exporter: who gets it, and how it is taken away from them
//! control    whether what an importer did was done to the segment
//! tie        whether the exporter is still there
//! ```
//!
//! What stands in the control word decides after each access whether it counts. Where it does not, the exporter is asked:
//! only it can say why.

mod control;
mod ground;
mod tie;

mod parts {
    //! What `control` and `ground` are made of; loom's stand in its place in tests/ground.rs.
    pub(super) use std::os::fd::{AsFd, OwnedFd};
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
    pub(super) use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

    pub(super) use farcall_shm::{Area, May, PROOF, Wire, punch, written};

    pub(super) use super::super::area::zeros;
    pub(super) use crate::sys::fork;
}

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farcall_shm::{Area, May, PROOF, Sight, Wants, Wire};

use super::Result;
use super::access::Refused;
use super::area::{self, Load};
use super::carrier::Carrier;
use super::segment::{Rights, TYPE};
use super::served::Served;
use crate::client::Peer;
use crate::shm::{Question, elsewhere};
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

/// Maps the segment that an exporter has as `export`, if that has it mapped; else gives back what serves.
pub(super) fn map(
    peer: &Arc<Peer>,
    export: u64,
    (generation, size, rights): (u64, u64, Rights),
    watcher: Option<Arc<Watcher>>,
    served: Served,
) -> Arc<dyn Carrier> {
    /// The exporter has just answered a call.
    const MOST: Duration = Duration::from_secs(1);
    let mapped = watcher.zip(mappable(rights)).and_then(|(watcher, may)| {
        let question = Question::new(&**watcher.env(), peer, export, Wants::Segment(generation))?;
        let address = peer.address();
        let meet = move || meet(address, &question, size, may, MOST);
        let (control, data, heard, wire) = elsewhere(watcher.env(), MOST, meet)?;
        Some((control, data, heard, watcher.tie(wire).ok()?))
    });
    let Some((control, data, heard, tie)) = mapped else { return Arc::new(served) };
    Arc::new(Mapped { data, control, generation, heard, tie, served, asked: AtomicBool::new(false) })
}

/// Meets the exporter at `address`. What it passes may block whoever looks at it.
fn meet(
    address: SocketAddr,
    question: &Question,
    size: u64,
    may: May,
    most: Duration,
) -> Option<(Area, Area, bool, Wire)> {
    let wire = Wire::connect(address).ok()?;
    if !wire.send(question.hello(), None) {
        return None;
    }
    let mut first = [0; PROOF + 2];
    let control = receive(&wire, &mut first, most)?;
    let (proof, facts) = first.split_at(PROOF);
    if !question.is_answered_by(proof) {
        return None;
    }
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
        control::has_read(self.generation, || self.offered()) && self.tie.holds()
    }

    /// Whether what was done so far was done to the segment: after an access that has written.
    #[inline(always)]
    fn is_done(&self) -> Result<()> {
        let done = control::has_written(self.generation, || self.offered()) && self.tie.holds();
        if done { Ok(()) } else { Err(self.raced().into()) }
    }

    /// The generation that stands in the control word, which is never 0 for one that is mapped.
    #[inline(always)]
    fn offered(&self) -> u64 {
        self.control.sight().first().map_or(0, Sight::load)
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
    CallFailed::new(Kind::Unreachable, ran)
        .because(format!("{TYPE}: the process that exported the segment has ended"))
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
        served.map_or_else(
            |why| Pending::ended(Err(why)),
            |served| served.start_compare_and_swap(offset, old, new),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use farcall_shm::Listener;

    use super::*;

    #[test]
    fn a_segment_is_mapped_only_from_whoever_proves_to_be_its_exporter() {
        const LONG: Duration = Duration::from_secs(60);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        for (proof, is_mapped) in [([1; PROOF], true), ([2; PROOF], false)] {
            let listener = Listener::bind(address).unwrap();
            let exporter = std::thread::spawn(move || {
                let wire = loop {
                    match listener.accept() {
                        Ok(Some((wire, _))) => break wire,
                        _ => std::thread::yield_now(),
                    }
                };
                let ground = Ground::new(4096, May::Read, 7).unwrap();
                // (Whoever hears the wrong proof is gone.)
                assert!(ground.pass(7, false, &proof, &wire) || !is_mapped);
                wire.as_fd().try_clone_to_owned().unwrap()
            });
            let question = Question::expecting([1; PROOF]);
            assert_eq!(meet(address, &question, 4096, May::Read, LONG).is_some(), is_mapped);
            drop(exporter.join().unwrap());
        }
    }
}
