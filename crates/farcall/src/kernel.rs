//! Segments that the kernel serves: an XDP program answers short reads that arrive over the network.
//!
//! `farcall-xdp` has the program, and docs/kernel-served.md says why importers and this server agree with
//! what it does. This module decides which segments are offered to it, and tells it of the conversations
//! whose readers it may answer: those of which this server has answered a read itself.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use farcall_memory::{Rights, SharedMemory, SharingTerms, words};
use farcall_xdp::{Conversation, Kernel as Xdp, MAX_READ_BYTES, MAX_SEGMENT_BYTES, SegmentArray};

use crate::lock;
use crate::sys::fork;

/// The XDP program of one server.
#[derive(Debug)]
pub(crate) struct Kernel {
    xdp: Xdp,
    /// The port at which the server listens.
    port: u16,
    state: Mutex<State>,
    /// The fork generation of the process that loaded the program. A forked child has the program's maps too,
    /// and must not change them.
    process: u64,
}

#[derive(Debug, Default)]
struct State {
    /// The exports whose segments are offered.
    offered: HashSet<u64>,
    /// By the server's identifiers of conversations.
    admitted: HashMap<u64, Admitted>,
}

/// A conversation of which the kernel was told.
#[derive(Debug)]
struct Admitted {
    /// The client's address.
    address: SocketAddr,
    /// Reads that arrived here since, although the kernel could have answered them.
    reads: u32,
    /// Whether the kernel's answers do not seem to reach the client, or its reads do not reach the kernel.
    given_up: bool,
}

/// The most conversations that are remembered as admitted. Beyond it all are forgotten, and admitted again at
/// their next reads. The program has a bound of its own.
const MAX_ADMITTED: usize = 16_384;

/// The server gives the kernel up for a conversation if more than one of so many reads still arrives here:
/// the client repeats reads whose answers are lost, and the kernel passes every other repetition on.
const READS_FOR_ONE: u32 = 4;
/// The reads that may arrive here before that are `SPARE / READS_FOR_ONE`.
const SPARE: u32 = 8;

/// The length of the datagram of a read of one range, and where its fields are (docs/protocol.md, 3).
const READ_BYTES: usize = 80;
const CONVERSATION: usize = 4;
const SEQUENCE: usize = 32;
const EXPORT: usize = 40;
const LENGTH: usize = 68;

impl Kernel {
    /// Loads the XDP program for the server that listens at `port`, and attaches it to these interfaces. The
    /// error says why that is not possible.
    pub(crate) fn start(interfaces: &[String], port: u16) -> Result<Arc<Kernel>, String> {
        let xdp = Xdp::load(interfaces).map_err(|why| why.to_string())?;
        Ok(Arc::new(Kernel { xdp, port, state: Mutex::default(), process: fork::generation() }))
    }

    /// Returns the interfaces to which the program is attached, and how, for people.
    pub(crate) fn attached(&self) -> String {
        let each = self.xdp.attached().iter().map(|(interface, mode)| format!("{interface} ({mode})"));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Returns memory of `len` bytes that the kernel serves, if every process may read it.
    pub(crate) fn share(self: &Arc<Self>, len: usize, terms: &SharingTerms) -> Option<Box<dyn SharedMemory>> {
        if !terms.anyone.contains(Rights::READ) || len > MAX_SEGMENT_BYTES {
            return None;
        }
        let segment = self.xdp.array(len).ok()?;
        let state = Mutex::new(Offer { export: None, generation: Some(terms.generation) });
        Some(Box::new(KernelServed { kernel: self.clone(), segment, state }))
    }

    /// Notes that this server has answered a reading: `asked` and `answer` are the two datagrams. If it was a
    /// short read of a segment that the kernel serves, the kernel answers the conversation's next ones.
    #[inline]
    pub(crate) fn answered(&self, from: &SocketAddr, asked: &[u8], answer: &[u8]) {
        // 1 0: a datagram of this wire version in the open scheme.
        if let (Ok(asked), Some(client)) = (<&[u8; READ_BYTES]>::try_from(asked), word(answer, CONVERSATION))
            && let ([1, 0, ..], [Some(server), Some(sequence), Some(export), Some(bytes)]) =
                (asked, [CONVERSATION, SEQUENCE, EXPORT, LENGTH].map(|at| word(asked, at)))
            && (bytes >> 32) as usize <= MAX_READ_BYTES
        {
            let server_port = self.port;
            self.admit(export, Conversation { server, client, sequence, address: *from, server_port });
        }
    }

    fn admit(&self, export: u64, conversation: Conversation) {
        let (server, address) = (conversation.server, conversation.address);
        let state = &mut *lock(&self.state);
        if !state.offered.contains(&export) || self.process != fork::generation() {
            return;
        }
        if let Some(known) = state.admitted.get_mut(&server)
            && known.address == address
        {
            if known.given_up {
                return;
            }
            known.reads += 1;
            match self.xdp.answered(server) {
                Some(answered)
                    if known.reads.saturating_mul(READS_FOR_ONE) > answered.saturating_add(SPARE) =>
                {
                    known.given_up = true;
                    return self.xdp.forget(server);
                }
                Some(_) => return,
                // The kernel has forgotten it, because others were used more lately.
                None => {}
            }
        }
        if state.admitted.len() >= MAX_ADMITTED {
            state.admitted.clear();
        }
        state.admitted.insert(server, Admitted { address, reads: 0, given_up: false });
        // If the kernel has no memory, this server goes on answering.
        let _ = self.xdp.admit(&conversation);
    }

    /// Makes the kernel answer nothing any more.
    pub(crate) fn stop(&self) {
        if self.process == fork::generation() {
            self.xdp.detach();
        }
    }
}

fn word(datagram: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*datagram.get(at..)?.first_chunk()?))
}

/// The memory of a segment that the kernel serves. The server in user space serves what the kernel passes on,
/// from the same memory.
#[derive(Debug)]
struct KernelServed {
    kernel: Arc<Kernel>,
    segment: SegmentArray,
    state: Mutex<Offer>,
}

#[derive(Debug)]
struct Offer {
    /// The identifier of the segment's export, once it is known.
    export: Option<u64>,
    /// The generation as which the segment is offered.
    generation: Option<u64>,
}

impl KernelServed {
    /// Offers the segment as this generation from now on, or ends the offer. When this returns, no read of
    /// another generation is answered any more.
    fn change(&self, offer: &mut Offer, generation: Option<u64>) {
        if self.kernel.process != fork::generation() {
            return;
        }
        offer.generation = generation;
        let Some(export) = offer.export else { return };
        self.kernel.xdp.withhold(export, &self.segment);
        lock(&self.kernel.state).offered.remove(&export);
        // If the kernel has no room, it passes the reads on.
        if let Some(generation) = generation
            && self.kernel.xdp.offer(export, &self.segment, generation).is_ok()
        {
            lock(&self.kernel.state).offered.insert(export);
        }
    }
}

impl SharedMemory for KernelServed {
    fn offer(&self, export: u64) {
        let offer = &mut *lock(&self.state);
        offer.export = Some(export);
        self.change(offer, offer.generation);
    }

    fn with(&self, access: &mut dyn FnMut(&[AtomicU64])) {
        access(self.segment.words());
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        words::read(self.segment.words(), offset, into);
    }

    fn copy_out(&self, _: usize, _: &mut [u8]) -> bool {
        false
    }

    fn copy_in(&self, _: usize, _: &[u8]) -> bool {
        false
    }

    // (Nobody maps it.)
    fn set_hears(&self, _: bool) {}

    fn hears(&self) -> bool {
        false
    }

    fn is_written_by_others(&self) -> bool {
        false
    }

    fn is_read_by_anyone(&self) -> bool {
        true
    }

    // (The kernel never pages out the memory of BPF arrays.)
    fn pin(&self) -> io::Result<()> {
        Ok(())
    }

    fn unpin(&self) {}

    fn is_pinned(&self) -> bool {
        true
    }

    fn ask_for_huge_pages(&self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a BPF array has ordinary pages"))
    }

    fn take_away(&self, offer: Option<u64>) -> io::Result<()> {
        self.change(&mut lock(&self.state), offer);
        Ok(())
    }

    fn withdraw(&self) {
        self.change(&mut lock(&self.state), None);
    }

    fn answered_by_kernel(&self) -> Option<u64> {
        lock(&self.state).generation.map(|_| self.segment.answered())
    }
}
