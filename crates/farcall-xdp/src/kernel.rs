//! Loads the XDP program, attaches it to interfaces, and tells it of segments and conversations.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aya::Ebpf;
use aya::maps::{HashMap, HashOfMaps, MapData, MapError};
use aya::programs::{TestRun, TestRunOptions, Xdp, XdpMode};

use crate::array::{SegmentArray, chain};
use crate::{Conversation, Mode, Unavailable};

/// The XDP program. Dropping this, or the end of the process, detaches the program.
pub struct Kernel {
    attached: Vec<(String, Mode)>,
    /// Has a lock of its own, because a change of it waits for the kernel.
    segments: Mutex<HashOfMaps<MapData, u64, MapData>>,
    state: Mutex<State>,
}

struct State {
    /// The program and its links to interfaces; `None` once it is detached.
    program: Option<Ebpf>,
    conversations: HashMap<MapData, u64, Known>,
    /// How often a conversation was admitted.
    admissions: u64,
}

/// The number of the first datagram that the program sends. The server in user space counts from 1.
const FIRST_NUMBER: u64 = 1 << 62;

// linux/bpf.h
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// The name of the program's function.
const PROGRAM: &str = "farcall_read";

static OBJECT: &[u8] = aya::include_bytes_aligned!("../program/read.o");

/// The bytes of a conversation, `struct conversation` of `program/read.c`. The number of the next datagram is
/// at the end.
type Known = [u8; 48];

impl Kernel {
    /// Loads the program and attaches it to these interfaces (`eth0`, `eth0:native`, `veth0:generic`). It
    /// answers nothing until it is told of segments and conversations.
    ///
    /// # Errors
    /// When the process lacks the privilege (`CAP_BPF` and `CAP_NET_ADMIN`), the verifier refuses the program,
    /// an interface does not exist, or another program is attached to it.
    pub fn load(interfaces: &[String]) -> Result<Kernel, Unavailable> {
        let mut program = Ebpf::load(OBJECT).map_err(|why| failed("loading the XDP program's maps", &why))?;
        let segments = HashOfMaps::try_from(taken(&mut program, "segments")?);
        let segments = segments.map_err(|why| failed("opening the map of segments", &why))?;
        let conversations = HashMap::try_from(taken(&mut program, "conversations")?);
        let conversations = conversations.map_err(|why| failed("opening the map of conversations", &why))?;
        let xdp = program.program_mut(PROGRAM).ok_or_else(|| lacking(PROGRAM))?;
        let xdp: &mut Xdp = xdp.try_into().map_err(|why| failed("opening the XDP program", &why))?;
        xdp.load().map_err(|why| failed("loading the XDP program", &why))?;
        let attached = interfaces.iter().map(|name| attach(xdp, name));
        let attached = attached.collect::<Result<_, Unavailable>>()?;
        let state = State { program: Some(program), conversations, admissions: 0 };
        Ok(Kernel { attached, segments: Mutex::new(segments), state: Mutex::new(state) })
    }

    /// Returns the interfaces to which the program is attached, and how.
    pub fn attached(&self) -> &[(String, Mode)] {
        &self.attached
    }

    /// Makes memory for a segment of `len` bytes, all zeros, which is not offered yet.
    ///
    /// # Errors
    /// When the segment is too long, or the kernel has no memory.
    pub fn array(&self, len: usize) -> Result<SegmentArray, Unavailable> {
        SegmentArray::new(len)
    }

    /// Lets everybody with an [admitted](Kernel::admit) conversation read the segment of this export, as this
    /// generation.
    ///
    /// # Errors
    /// When more segments are offered than the map has room for.
    pub fn offer(&self, export: u64, segment: &SegmentArray, generation: u64) -> Result<(), Unavailable> {
        segment.set_generation(generation);
        let inserted = lock(&self.segments).insert(export.to_be(), segment.map(), 0);
        inserted.map_err(|why| failed("offering a segment", &why))
    }

    /// Ends the offer of the segment of this export. When this returns, no run of the program that began
    /// before goes on, so no reader is answered any more.
    ///
    /// The kernel waits by itself: when a map of maps has changed, the system call returns only after an RCU
    /// grace period (`maybe_wait_bpf_programs` in Linux' kernel/bpf/syscall.c, since 4.20), and a run of an
    /// XDP program is an RCU reader.
    pub fn withhold(&self, export: u64, segment: &SegmentArray) {
        // A run that looked the segment up before finds the other generation.
        segment.set_generation(0);
        // An export that was never offered has no entry. No other failure can happen to a map that is there.
        let _: Result<(), MapError> = lock(&self.segments).remove(&export.to_be());
    }

    /// Tells the program of a conversation, so that it answers its client. Takes the place of what the
    /// program knew of the conversation. When there are too many, the program forgets the ones that were not
    /// used for longest.
    ///
    /// # Errors
    /// When the kernel has no memory.
    pub fn admit(&self, conversation: &Conversation) -> Result<(), Unavailable> {
        let state = &mut *lock(&self.state);
        // The program counts on from here. It may forget a conversation that is admitted again later, and no
        // datagram number may be used again, so each admission has numbers of its own.
        state.admissions += 1;
        let known = known(conversation, FIRST_NUMBER + (state.admissions << 32));
        let inserted = state.conversations.insert(conversation.server.to_be(), known, 0);
        inserted.map_err(|why| failed("admitting a conversation", &why))
    }

    /// Returns how many calls of a conversation the program has answered since it was admitted, modulo 2^32.
    /// Returns `None` if the program does not know the conversation.
    pub fn answered(&self, server: u64) -> Option<u32> {
        let known = lock(&self.state).conversations.get(&server.to_be(), 0).ok()?;
        known.last_chunk().map(|number| u64::from_ne_bytes(*number) as u32)
    }

    /// Makes the program forget a conversation, so that the server answers all its reads.
    pub fn forget(&self, server: u64) {
        // One that is not known is forgotten already.
        let _: Result<(), MapError> = lock(&self.state).conversations.remove(&server.to_be());
    }

    /// Runs the program on a frame, as if it had arrived at an interface. Returns the frame that it sends, or
    /// `None` if it passes the frame on. For tests.
    ///
    /// # Errors
    /// When the kernel refuses the frame, or the program does anything else.
    #[doc(hidden)]
    pub fn run(&self, frame: &[u8]) -> Result<Option<Vec<u8>>, Unavailable> {
        let mut sent = vec![0; 2048];
        let state = lock(&self.state);
        let program = state.program.as_ref().and_then(|program| program.program(PROGRAM));
        let xdp: &Xdp = program
            .ok_or_else(|| lacking(PROGRAM))?
            .try_into()
            .map_err(|why| failed("opening the XDP program", &why))?;
        let (data_in, data_out) = (Some(frame), Some(sent.as_mut_slice()));
        let options = TestRunOptions { data_in, data_out, ..TestRunOptions::default() };
        let ran = xdp.test_run(options).map_err(|why| failed("running the XDP program", &why))?;
        let len = ran.data_size_out as usize;
        match ran.return_value {
            XDP_PASS if sent.get(..len) == Some(frame) => Ok(None),
            XDP_TX if len <= sent.len() => {
                sent.truncate(len);
                Ok(Some(sent))
            }
            action => Err(Unavailable(format!("the program returned {action} and left {len} bytes"))),
        }
    }

    /// Detaches the program. It answers nothing any more.
    pub fn detach(&self) {
        drop(lock(&self.state).program.take());
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel").field("attached", &self.attached).finish_non_exhaustive()
    }
}

/// Returns a conversation as the program has it. What stands on the wire is as there.
fn known(conversation: &Conversation, number: u64) -> Known {
    let address = match conversation.address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut known = [0; size_of::<Known>()];
    known[..8].copy_from_slice(&conversation.client.to_be_bytes());
    known[8..24].copy_from_slice(&address.octets());
    known[24..26].copy_from_slice(&conversation.address.port().to_be_bytes());
    known[26..28].copy_from_slice(&conversation.server_port.to_be_bytes());
    // The call of that sequence has not come again.
    known[32..40].copy_from_slice(&conversation.sequence.to_ne_bytes());
    known[40..].copy_from_slice(&number.to_ne_bytes());
    known
}

/// Attaches the program to an interface, given as `NAME`, `NAME:native` or `NAME:generic`. (The system lets
/// no name of an interface contain a colon.) Returns the name, and how the program is attached.
///
/// If nothing else is said, the program is attached natively where a driver of a device can run it. A virtual
/// interface gets it in the network stack: a veth pair delivers what a native program sends only if a program
/// is attached to the other end, too.
fn attach(xdp: &mut Xdp, interface: &str) -> Result<(String, Mode), Unavailable> {
    let (name, modes): (_, &[Mode]) = match interface.split_once(':') {
        Some((name, "native")) => (name, &[Mode::Native]),
        Some((name, "generic")) => (name, &[Mode::Generic]),
        None if is_of_a_device(interface) => (interface, &[Mode::Native, Mode::Generic]),
        None => (interface, &[Mode::Generic]),
        Some(_) => return Err(Unavailable(format!("{interface:?}: the mode must be native or generic"))),
    };
    if name.is_empty() || name.contains('\0') {
        return Err(Unavailable(format!("{interface:?} is no name of an interface")));
    }
    let mut why = None;
    for mode in modes {
        let flag = if *mode == Mode::Native { XdpMode::Driver } else { XdpMode::Skb };
        match xdp.attach(name, flag) {
            Ok(_) => return Ok((name.to_owned(), *mode)),
            Err(failure) => why = Some(failed(&format!("attaching the XDP program to {name}"), &failure)),
        }
    }
    Err(why.unwrap_or_else(|| lacking(name)))
}

/// Returns whether an interface is that of a device, and not virtual.
fn is_of_a_device(interface: &str) -> bool {
    !interface.contains('/') && std::path::Path::new("/sys/class/net").join(interface).join("device").exists()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(program: &mut Ebpf, name: &str) -> Result<aya::maps::Map, Unavailable> {
    program.take_map(name).ok_or_else(|| lacking(name))
}

fn lacking(name: &str) -> Unavailable {
    Unavailable(format!("program/read.o has no {name}"))
}

fn failed(doing: &str, why: &dyn std::error::Error) -> Unavailable {
    Unavailable(format!("{doing}: {}", chain(why)))
}
