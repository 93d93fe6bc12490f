//! The capacity of shared memory: a word that one side writes and the other waits for, by polling or by
//! futex.
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Gate, Gated, Laps, Mode, Peer, Serving, Setup, cannot};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::MemfdFlags;
use rustix::thread::futex;

/// The distance between the call's word and the result's, in bytes: two cache lines, because processors fetch
/// lines in pairs.
const APART: usize = 128;
/// The offset of the call's payload in bytes. The result's payload follows it.
const PAYLOADS: usize = 4096;

pub struct RawShared;

impl Peer for RawShared {
    fn transport(&self) -> &'static str {
        "shared memory"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry != Carry::Both {
            return cannot("see raw-memcpy");
        }
        let file = rustix::fs::memfd_create("farcall-bench", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (PAYLOADS + 2 * room(setup)) as u64)?;
        let shared = Shared::new(setup, &file)?;
        // The file stays open for as long as the process lives, because the other process opens it through
        // /proc.
        let address = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        std::mem::forget(file);
        let gate = Gate::new(setup);
        let passed = gate.clone();
        let serve = move || {
            let mut payload = vec![0; shared.setup.bytes];
            for turn in 1.. {
                shared.wait(0, turn, || passed.pass());
                shared.copy_out(0, &mut payload);
                shared.copy_in(1, &payload);
                shared.tell(1, turn);
            }
        };
        Ok(Box::new(Gated { address, gate, thread: std::thread::spawn(serve).thread().clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(Path::new(address))?;
        Ok(Box::new(Client { shared: Shared::new(setup, &file)?, payload: vec![7; setup.bytes], turn: 0 }))
    }
}

/// Returns the bytes that a payload takes in the file.
fn room(setup: &Setup) -> usize {
    setup.bytes.next_multiple_of(PAYLOADS)
}

struct Client {
    shared: Shared,
    payload: Vec<u8>,
    turn: u32,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.turn = self.turn.wrapping_add(1);
            self.shared.copy_in(0, &self.payload);
            self.shared.tell(0, self.turn);
            self.shared.wait(1, self.turn, || {});
            self.shared.copy_out(1, &mut self.payload);
        }
        Ok(())
    }
}

/// A file that both processes have mapped. Channel 0 is the call's, 1 the result's.
struct Shared {
    map: MmapRaw,
    setup: Setup,
}

impl Shared {
    fn new(setup: &Setup, file: impl memmap2::MmapAsRawDesc) -> Result<Shared> {
        let map = MmapOptions::new().len(PAYLOADS + 2 * room(setup)).map_raw(file)?;
        Ok(Shared { map, setup: *setup })
    }

    #[inline]
    fn word(&self, channel: usize) -> &AtomicU32 {
        // SAFETY: the map is longer than that, aligned to pages, and lives as long as `self`. All accesses to
        // this word are atomic.
        unsafe { &*self.map.as_ptr().add(channel * APART).cast::<AtomicU32>() }
    }

    #[inline]
    fn tell(&self, channel: usize, turn: u32) {
        self.word(channel).store(turn, Release);
        if self.setup.mode == Mode::Block {
            let _ = futex::wake(self.word(channel), futex::Flags::empty(), 1);
        }
    }

    /// Waits until the word is `turn`. Calls `rest` before each look.
    #[inline]
    fn wait(&self, channel: usize, turn: u32, rest: impl Fn()) {
        let word = self.word(channel);
        loop {
            rest();
            let now = word.load(Acquire);
            if now == turn {
                return;
            }
            match self.setup.mode {
                Mode::Block => drop(futex::wait(word, futex::Flags::empty(), now, None)),
                Mode::Spin => std::hint::spin_loop(),
            }
        }
    }

    #[inline]
    fn copy_in(&self, channel: usize, payload: &[u8]) {
        debug_assert_eq!(payload.len(), self.setup.bytes);
        // SAFETY: `new` made the map with room for two payloads. The other side does not access this one
        // before `tell` (Release) and `wait` (Acquire) have passed it on.
        unsafe {
            self.payload(channel)
                .copy_from_nonoverlapping(payload.as_ptr(), payload.len().min(self.setup.bytes))
        }
    }

    #[inline]
    fn copy_out(&self, channel: usize, payload: &mut [u8]) {
        debug_assert_eq!(payload.len(), self.setup.bytes);
        // SAFETY: as above, after `wait`.
        unsafe {
            self.payload(channel)
                .copy_to_nonoverlapping(payload.as_mut_ptr(), payload.len().min(self.setup.bytes))
        }
    }

    #[inline]
    fn payload(&self, channel: usize) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(PAYLOADS + channel * room(&self.setup))
    }
}

/// A copy of the payload within the client's memory, as a lower bound for every transport.
pub struct RawMemcpy;

impl Peer for RawMemcpy {
    fn transport(&self) -> &'static str {
        "memory"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        match setup.carry {
            Carry::Both => cannot("it makes no calls"),
            Carry::Result | Carry::Argument => Ok(Box::new(Nobody)),
        }
    }

    fn connect(&self, setup: &Setup, _: &str) -> Result<Box<dyn Calling>> {
        Ok(Box::new(Copying { from: vec![7; setup.bytes], to: vec![0; setup.bytes] }))
    }
}

struct Nobody;

impl Serving for Nobody {
    fn address(&self) -> String {
        "here".into()
    }
}

struct Copying {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Calling for Copying {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.window(1, 1)?;
        }
        Ok(())
    }

    fn window(&mut self, _outstanding: usize, calls: usize) -> Result<()> {
        for _ in 0..calls {
            self.to.copy_from_slice(std::hint::black_box(&self.from));
            std::hint::black_box(&mut self.to);
        }
        Ok(())
    }
}
