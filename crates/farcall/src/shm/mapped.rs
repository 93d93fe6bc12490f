//! The carrier by mapping: the importer reads and writes the exporter's memory itself.
//!
//! ```text
//! shared     the memory at the exporter: who gets it, and how it is taken away from them
//! control    whether what an importer did was done to the segment
//! liveness   whether the exporter is still there
//! ```
//!
//! What stands in the control word decides after each access whether it counts. Where it does not, the
//! exporter is asked: only it can say why.

mod control;
mod liveness;
mod shared;

mod parts {
    //! What `control` and `shared` are made of; loom's stand in its place in tests/shared_mapping.rs.
    pub(super) use std::os::fd::{AsFd, OwnedFd};
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
    pub(super) use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

    pub(super) use farcall_shm::{
        AccessRights, MappedFile, PROOF_BYTES, UnixChannel, punch_hole, written_ranges,
    };

    pub(super) use crate::sys::fork;
    pub(super) use farcall_memory::words::zeros;
}

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farcall_shm::{AccessRights, MappedFile, PROOF_BYTES, ReadOnlyWord, UnixChannel, Wants};

use super::elsewhere::elsewhere;
use super::proof::Question;
use crate::client::Peer;
use crate::xdr::Encode;
use crate::{CallFailed, Kind, Pending, Ran};
use farcall_memory::words;
use farcall_memory::{Carrier, Facts, Refused, Result, Rights};

pub(crate) use liveness::Watcher;
pub(super) use shared::SharedMapping;

use liveness::Liveness;

/// A segment that is mapped here.
pub(super) struct Mapped {
    data: MappedFile,
    control: MappedFile,
    generation: u64,
    /// The exporter hears of writes if it is asked to.
    hears: bool,
    exporter: Liveness,
    /// Carries what is not done by mapping.
    served: Arc<dyn Carrier>,
    /// Whether `served` was ever used.
    asked: AtomicBool,
}

/// What importers with these rights may do with memory that they map; `None` if they may map none: a mapping
/// can be read, or everything can be done with it.
pub(super) fn protection(rights: Rights) -> Option<AccessRights> {
    match rights {
        Rights::READ => Some(AccessRights::Read),
        Rights::ALL => Some(AccessRights::Write),
        _ => None,
    }
}

/// Maps the segment that an exporter has as `export`, if the exporter passes its memory; else gives back
/// `served`.
pub(crate) fn map(
    peer: &Arc<Peer>,
    export: u64,
    facts: &Facts,
    watcher: Option<Arc<Watcher>>,
    served: Arc<dyn Carrier>,
) -> Arc<dyn Carrier> {
    /// The longest that the meeting takes: the exporter has just answered a call.
    const MOST: Duration = Duration::from_secs(1);
    let (generation, size) = (facts.generation, facts.size);
    let mapped = watcher.zip(protection(facts.rights())).and_then(|(watcher, may)| {
        let question = Question::new(&**watcher.env(), peer, export, Wants::Segment(generation))?;
        let address = peer.address();
        let meet = move || meet(address, &question, size, may, MOST);
        let (control, data, hears, wire) = elsewhere(watcher.env(), MOST, meet)?;
        Some((control, data, hears, watcher.watch(wire).ok()?))
    });
    let Some((control, data, hears, exporter)) = mapped else { return served };
    Arc::new(Mapped { data, control, generation, hears, exporter, served, asked: AtomicBool::new(false) })
}

/// Meets the exporter at `address`. A thread that looks at what the exporter passes may be blocked by it.
fn meet(
    address: SocketAddr,
    question: &Question,
    size: u64,
    may: AccessRights,
    most: Duration,
) -> Option<(MappedFile, MappedFile, bool, UnixChannel)> {
    let wire = UnixChannel::connect(address).ok()?;
    if !wire.send(question.hello(), None) {
        return None;
    }
    let mut first = [0; PROOF_BYTES + 2];
    let control = receive(&wire, &mut first, most)?;
    let (proof, facts) = first.split_at(PROOF_BYTES);
    if !question.is_answered_by(proof) {
        return None;
    }
    let data = receive(&wire, &mut [0; 1], most)?;
    if facts[0] != u8::from(may == AccessRights::Write) {
        return None;
    }
    let control = MappedFile::open(&control, size_of::<u64>(), AccessRights::Read).ok()?;
    let data = MappedFile::open(&data, usize::try_from(size).ok()?, may).ok()?;
    Some((control, data, facts[1] != 0, wire))
}

/// Receives a message of that length, and returns the file that comes with it.
fn receive(wire: &UnixChannel, message: &mut [u8], most: Duration) -> Option<std::os::fd::OwnedFd> {
    wire.wait(most);
    wire.receive_file(message).filter(|(len, _)| *len == message.len()).map(|(_, file)| file)
}

impl Mapped {
    /// Whether what was read so far was read from the segment.
    #[inline(always)]
    fn is_current(&self) -> bool {
        control::has_read(self.generation, || self.offered()) && self.exporter.holds()
    }

    /// Succeeds if what was written so far was written to the segment.
    #[inline(always)]
    fn is_done(&self) -> Result<()> {
        let done = control::has_written(self.generation, || self.offered()) && self.exporter.holds();
        if done { Ok(()) } else { Err(self.raced().into()) }
    }

    /// The generation that stands in the control word, which is never 0 for one that is mapped.
    #[inline(always)]
    fn offered(&self) -> u64 {
        self.control.read_only_words().first().map_or(0, ReadOnlyWord::load)
    }

    #[inline(always)]
    fn read_words(&self, offset: u64, into: &mut [u8]) {
        words::read_by(self.data.read_only_words(), ReadOnlyWord::load, offset, into);
    }

    /// The words, which may be written: [`Carrier`] is called with rights checked.
    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.data.words().unwrap_or_default()
    }

    /// Returns the carrier by calls, unless the exporter is known to be gone. Nothing was done yet.
    #[cold]
    fn served(&self) -> Result<&dyn Carrier> {
        if !self.exporter.is_ours() {
            return Err(CallFailed::forked().into());
        }
        if self.exporter.is_gone() {
            return Err(gone(Ran::No).into());
        }
        self.asked.store(true, Ordering::Relaxed);
        Ok(&*self.served)
    }

    /// Starts an access by the carrier by calls.
    fn start_served<T: Encode>(
        &self,
        start: impl FnOnce(&dyn Carrier) -> Pending<T, Refused>,
    ) -> Pending<T, Refused> {
        self.served().map_or_else(|why| Pending::ended(Err(why)), start)
    }

    /// The failure of a write or swap while the segment was taken away: nobody knows whether it was done.
    #[cold]
    fn raced(&self) -> CallFailed {
        if self.exporter.is_gone() {
            return gone(Ran::Maybe);
        }
        CallFailed::new(Kind::NotExported, Ran::Maybe).because("the segment was taken away meanwhile")
    }
}

#[cold]
fn gone(ran: Ran) -> CallFailed {
    CallFailed::new(Kind::Unreachable, ran).because("Memory: the process that exported the segment has ended")
}

impl Carrier for Mapped {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.read_words(offset, into);
        if self.is_current() { Ok(()) } else { self.served()?.read(offset, into) }
    }

    fn read_bytes(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if !self.data.copy_out(offset as usize, into) {
            self.read_words(offset, into);
        }
        if self.is_current() { Ok(()) } else { self.served()?.read_bytes(offset, into) }
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, into) in ranges.iter_mut() {
            self.read_words(*offset, into);
        }
        if self.is_current() { Ok(()) } else { self.served()?.read_each(ranges) }
    }

    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        // An exporter that is to hear of the write must be told, so the bytes may as well go along.
        if (notify && self.hears) || !self.is_current() {
            return self.served()?.write(offset, bytes, notify);
        }
        words::write(self.words(), offset, bytes);
        self.is_done()
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if !self.is_current() {
            return self.served()?.write_bytes(offset, bytes);
        }
        if !self.data.copy_in(offset as usize, bytes) {
            words::write(self.words(), offset, bytes);
        }
        self.is_done()
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        if !self.is_current() {
            return self.served()?.compare_and_swap(offset, old, new);
        }
        let found = words::compare_and_swap(self.words(), offset, old, new);
        self.is_done().map(|()| found)
    }

    fn flush(&self) -> Result<()> {
        // What was written by mapping is there.
        if self.asked.load(Ordering::Relaxed) { self.served()?.flush() } else { Ok(()) }
    }

    fn start_flush(&self) -> Pending<(), Refused> {
        // What was written by mapping is there.
        match self.asked.load(Ordering::Relaxed) {
            true => self.start_served(|served| served.start_flush()),
            false => Pending::ended(Ok(())),
        }
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        let mut bytes = vec![0; len as usize];
        self.read_words(offset, &mut bytes);
        if self.is_current() {
            return Pending::ended(Ok(bytes.into()));
        }
        self.start_served(|served| served.start_read(offset, len))
    }

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        if self.is_current() {
            return Pending::ended(self.write(offset, bytes, false));
        }
        self.start_served(|served| served.start_write(offset, bytes))
    }

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        if self.is_current() {
            return Pending::ended(self.compare_and_swap(offset, old, new));
        }
        self.start_served(|served| served.start_compare_and_swap(offset, old, new))
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
        for (proof, is_mapped) in [([1; PROOF_BYTES], true), ([2; PROOF_BYTES], false)] {
            let listener = Listener::bind(address).unwrap();
            let exporter = std::thread::spawn(move || {
                let wire = loop {
                    match listener.accept() {
                        Ok(Some((wire, _))) => break wire,
                        _ => std::thread::yield_now(),
                    }
                };
                let mapping = SharedMapping::new(4096, AccessRights::Read, 7).unwrap();
                // (An importer that hears the wrong proof is gone.)
                assert!(mapping.pass(7, false, &proof, &wire) || !is_mapped);
                wire.as_fd().try_clone_to_owned().unwrap()
            });
            let question = Question::expecting([1; PROOF_BYTES]);
            assert_eq!(meet(address, &question, 4096, AccessRights::Read, LONG).is_some(), is_mapped);
            drop(exporter.join().unwrap());
        }
    }
}
