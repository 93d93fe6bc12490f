//! Accesses by mapping: the importer of a segment has mapped the exporter's memory, and reads and writes it
//! directly.
//!
//! ```text
//! shared     the memory at the exporter: passes it to importers, and takes it away from them
//! control    checks whether an importer's access reached the segment
//! liveness   checks whether the exporter is still there
//! ```
//!
//! After each access the importer reads a control word of the exporter, which says whether the access was
//! valid. If it was not, and has had no effect, the importer makes the access again by a call: the exporter
//! executes it or says why it cannot. If the access may have had an effect, it fails.

mod control;
mod liveness;
mod shared;

mod parts {
    //! The synchronisation types that `control` and `shared` use. `tests/shared_mapping.rs` replaces this
    //! module by loom's types.
    pub(super) use std::os::fd::{AsFd, OwnedFd};
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, fence};
    pub(super) use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

    pub(super) use farcall_shm::{
        AccessRights, MappedFile, UnixChannel, next_written, own_pages, punch_hole,
    };

    pub(super) use crate::sys::fork;
    pub(super) use farcall_core::sys::{Pinned, ZeroedWords, ask_for_huge_pages};
}

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farcall_shm::{AccessRights, MappedFile, ReadOnlyWord, UnixChannel, Wants};

use super::elsewhere::elsewhere;
use super::proof::{Inquirer, Question};
use crate::client::{Peer, Standing};
use crate::xdr::Encode;
use crate::{CallFailed, Kind, Pending, Ran};
use farcall_core::room;
use farcall_memory::words;
use farcall_memory::{Accessor, Carrier, Deposit, DepositTarget, Facts, Refused, Result, Rights};

pub(crate) use liveness::Watcher;
pub(super) use shared::SharedMapping;

use liveness::Liveness;

/// A segment whose memory this process has mapped, and the carrier for what cannot be done by mapping.
pub(super) struct Mapped {
    mapping: Arc<Mapping>,
    /// The carrier for accesses that cannot be done by mapping.
    served: Arc<dyn Carrier>,
}

/// The mapped memory of a segment.
struct Mapping {
    /// The segment's memory.
    data: MappedFile,
    /// The control word, which has the generation for which the exporter offers the memory.
    control: MappedFile,
    /// The generation of the segment that was imported.
    generation: u64,
    /// Whether the exporter asks to be notified of writes made with `notify`.
    hears: bool,
    /// Whether the exporter's process lives.
    exporter: Liveness,
    /// Whether an access was ever made by a call.
    asked: AtomicBool,
}

/// Returns how importers with these rights may map the memory. A mapping allows either only reading or
/// everything, so returns `None` for all other rights.
pub(super) fn protection(rights: Rights) -> Option<AccessRights> {
    match rights {
        Rights::READ => Some(AccessRights::Read),
        Rights::ALL => Some(AccessRights::Write),
        _ => None,
    }
}

/// Maps the segment that the exporter knows as `export`, if the exporter passes its memory. Otherwise returns
/// `served`.
pub(crate) fn map(
    peer: &Arc<Peer>,
    export: u64,
    facts: &Facts,
    watcher: Option<Arc<Watcher>>,
    served: Arc<dyn Carrier>,
) -> Arc<dyn Carrier> {
    /// The maximum time for connecting to the exporter and for receiving each of its files. It is short,
    /// because the exporter has just answered a call.
    const MEETING_TIME: Duration = Duration::from_secs(1);
    let (generation, size) = (facts.generation, facts.size);
    let mapped = watcher.zip(protection(facts.rights())).and_then(|(watcher, may)| {
        let (env, wants) = (watcher.env().clone(), Wants::Segment(generation));
        let inquirer = Inquirer { env, peer: peer.clone(), export, wants };
        let address = peer.address();
        let ask = move |channel: &UnixChannel| inquirer.question(channel, || channel.wait(MEETING_TIME));
        let meet = move || meet(address, ask, size, may, MEETING_TIME);
        let Passed { control, data, hears, channel, server } = elsewhere(watcher.env(), MEETING_TIME, meet)?;
        let exporter = watcher.watch(channel, (peer, export), server).ok()?;
        // What the exporter has shown may have become void before the watcher knew of it.
        peer.is_served_by(server, export).then_some((control, data, hears, exporter))
    });
    let Some((control, data, hears, exporter)) = mapped else { return served };
    let mapping = Mapping { data, control, generation, hears, exporter, asked: AtomicBool::new(false) };
    Arc::new(Mapped { mapping: Arc::new(mapping), served })
}

/// What an exporter has passed.
struct Passed {
    control: MappedFile,
    data: MappedFile,
    hears: bool,
    channel: UnixChannel,
    /// Who the exporter is, if this end has keys.
    server: Option<Standing>,
}

/// Connects to the exporter at `address`, and maps the control word and the memory that it passes. Waits for
/// each message for at most `most`. `elsewhere` runs this in a separate thread, because a hostile exporter
/// can pass files that block the thread.
fn meet(
    address: SocketAddr,
    ask: impl FnOnce(&UnixChannel) -> Option<Question>,
    size: u64,
    may: AccessRights,
    most: Duration,
) -> Option<Passed> {
    let channel = UnixChannel::connect(address).ok()?;
    let question = ask(&channel)?;
    if !channel.send(question.hello(), None) {
        return None;
    }
    let mut first = vec![0; question.answer_len() + 2];
    let control = receive(&channel, &mut first, most)?;
    let (proof, facts) = first.split_at(question.answer_len());
    if !question.is_answered_by(proof) {
        return None;
    }
    let data = receive(&channel, &mut [0; 1], most)?;
    if facts[0] != u8::from(may == AccessRights::Write) {
        return None;
    }
    let control = MappedFile::open(&control, size_of::<u64>(), AccessRights::Read).ok()?;
    let data = MappedFile::open(&data, usize::try_from(size).ok()?, may).ok()?;
    Some(Passed { control, data, hears: facts[1] != 0, channel, server: question.server() })
}

/// Receives a message of exactly the length of `message`, and returns the file that comes with it.
fn receive(channel: &UnixChannel, message: &mut [u8], most: Duration) -> Option<std::os::fd::OwnedFd> {
    channel.wait(most);
    channel.receive_file(message).filter(|(len, _)| *len == message.len()).map(|(_, file)| file)
}

impl Mapped {
    /// Returns whether the mapping is still valid, so that everything that was read so far was read from the
    /// segment.
    #[inline(always)]
    fn is_current(&self) -> bool {
        control::has_read(self.mapping.generation, || self.offered()) && self.mapping.exporter.holds()
    }

    /// Returns an error unless the mapping is still valid, so that everything that was written so far was
    /// written to the segment.
    #[inline(always)]
    fn is_done(&self) -> Result<()> {
        let done =
            control::has_written(self.mapping.generation, || self.offered()) && self.mapping.exporter.holds();
        if done { Ok(()) } else { Err(self.raced().into()) }
    }

    /// Returns the generation in the control word. Returns 0, which no segment has, if there is no control
    /// word.
    #[inline(always)]
    fn offered(&self) -> u64 {
        self.mapping.control.read_only_words().first().map_or(0, ReadOnlyWord::load)
    }

    #[inline(always)]
    fn read_words(&self, offset: u64, into: &mut [u8]) {
        words::read_by(self.mapping.data.read_only_words(), ReadOnlyWord::load, offset, into);
    }

    /// Returns the mapped words, for writing. There are none if the mapping allows only reading, but the code
    /// that calls a [`Carrier`] has checked the rights already.
    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        self.mapping.data.words().unwrap_or_default()
    }

    /// Returns the carrier that works by calls. It may be used only for an access that has had no effect yet.
    /// Returns an error if the exporter is known to be gone, or if this process is a forked child of the
    /// importer.
    #[cold]
    fn served(&self) -> Result<&dyn Carrier> {
        if !self.mapping.exporter.is_ours() {
            return Err(CallFailed::forked().into());
        }
        if self.mapping.exporter.is_gone() {
            return Err(gone(Ran::No).into());
        }
        self.mapping.asked.store(true, Ordering::Relaxed);
        Ok(&*self.served)
    }

    /// Starts an access on the carrier that works by calls.
    fn start_served<T: Encode>(
        &self,
        start: impl FnOnce(&dyn Carrier) -> Pending<T, Refused>,
    ) -> Pending<T, Refused> {
        self.served().map_or_else(|why| Pending::ended(Err(why)), start)
    }

    /// Starts an access whose result is deposited, on the carrier that works by calls.
    #[cold]
    fn deposit_served(&self, start: impl FnOnce(&dyn Carrier) -> Deposit) -> Deposit {
        self.served().map_or_else(|why| Deposit::ended(Err(why)), start)
    }

    /// Returns the failure of a write or swap during which the exporter took the segment away. It is unknown
    /// whether the access had an effect.
    #[cold]
    fn raced(&self) -> CallFailed {
        if self.mapping.exporter.is_gone() {
            return gone(Ran::Maybe);
        }
        let why = "the exporter revoked the segment, exported it again or inhibited writes during the access";
        CallFailed::new(Kind::NotExported, Ran::Maybe).because(why)
    }
}

/// The most bytes that are read before they are deposited. They stay in the processor's cache.
const DEPOSIT_PART_BYTES: usize = 4096;

/// Notifies the owner of the segment in which a result of `len` bytes was deposited.
fn deposited(target: &DepositTarget, len: usize) -> Deposit {
    let mut woken = Vec::new();
    target.notify(len, &mut woken);
    Accessor { woken, ..Accessor::default() }.wake();
    Deposit::ended(Ok(()))
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
        if !self.mapping.data.copy_out(offset as usize, into) {
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
        // The exporter must be notified of this write, so it goes by a call, which carries the bytes too.
        if (notify && self.mapping.hears) || !self.is_current() {
            return self.served()?.write(offset, bytes, notify);
        }
        words::write(self.words(), offset, bytes);
        self.is_done()
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if !self.is_current() {
            return self.served()?.write_bytes(offset, bytes);
        }
        if !self.mapping.data.copy_in(offset as usize, bytes) {
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
        // Writes by mapping are done already.
        if self.mapping.asked.load(Ordering::Relaxed) { self.served()?.flush() } else { Ok(()) }
    }

    fn start_flush(&self) -> Pending<(), Refused> {
        // Writes by mapping are done already.
        match self.mapping.asked.load(Ordering::Relaxed) {
            true => self.start_served(|served| served.start_flush()),
            false => Pending::ended(Ok(())),
        }
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        let mut bytes = match room::zeroed(len as usize) {
            Ok(bytes) => bytes,
            Err(why) => {
                let why = CallFailed::new(Kind::TooLarge, Ran::No).because(why.to_string());
                return Pending::ended(Err(why.into()));
            }
        };
        self.read_words(offset, &mut bytes);
        if self.is_current() {
            return Pending::ended(Ok(bytes.into()));
        }
        self.start_served(|served| served.start_read(offset, len))
    }

    fn start_read_into(&self, offset: u64, len: u32, target: DepositTarget) -> Deposit {
        if !self.is_current() {
            return self.deposit_served(|served| served.start_read_into(offset, len, target));
        }
        // Each part is checked before it is deposited, so nothing else than the segment's bytes ever is.
        let (mut part, mut at) = ([0; DEPOSIT_PART_BYTES], 0);
        while at < len as usize {
            // A part ends with a word, so that each word is read as a whole.
            let most = DEPOSIT_PART_BYTES - (offset as usize + at) % size_of::<u64>();
            let part = &mut part[..most.min(len as usize - at)];
            self.read_words(offset + at as u64, part);
            if !self.is_current() {
                return self.deposit_served(|served| served.start_read_into(offset, len, target));
            }
            if let Err(why) = target.deposit(at as u64, part) {
                return Deposit::ended(Err(why.into()));
            }
            at += part.len();
        }
        deposited(&target, len as usize)
    }

    fn start_compare_and_swap_into(&self, offset: u64, old: u64, new: u64, target: DepositTarget) -> Deposit {
        if !self.is_current() {
            let start = |served: &dyn Carrier| served.start_compare_and_swap_into(offset, old, new, target);
            return self.deposit_served(start);
        }
        let found = self.compare_and_swap(offset, old, new);
        let put = found.and_then(|found| Ok(target.deposit(0, &found.to_le_bytes())?));
        match put {
            Ok(()) => deposited(&target, size_of::<u64>()),
            Err(why) => Deposit::ended(Err(why)),
        }
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

    fn within(&self, time: Duration) -> Arc<dyn Carrier> {
        Arc::new(Mapped { mapping: self.mapping.clone(), served: self.served.within(time) })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use farcall_shm::Listener;

    use super::*;

    #[test]
    fn a_segment_is_mapped_only_if_the_other_process_proves_to_be_its_exporter() {
        const LONG: Duration = Duration::from_secs(60);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        for (proof, is_mapped) in [([1; 16], true), ([2; 16], false)] {
            let listener = Listener::bind(address).unwrap();
            let exporter = std::thread::spawn(move || {
                let channel = loop {
                    match listener.accept() {
                        Ok(Some((channel, _))) => break channel,
                        _ => std::thread::yield_now(),
                    }
                };
                let mapping = SharedMapping::new(4096, AccessRights::Read, 7).unwrap();
                // An importer that gets the wrong proof closes its socket.
                assert!(mapping.pass(7, false, &proof, &channel) || !is_mapped);
                channel.as_fd().try_clone_to_owned().unwrap()
            });
            let ask = |_: &UnixChannel| Some(Question::expecting([1; 16]));
            assert_eq!(meet(address, ask, 4096, AccessRights::Read, LONG).is_some(), is_mapped);
            drop(exporter.join().unwrap());
        }
    }
}
