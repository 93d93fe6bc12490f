//! The speed at which two processors can pass on a payload by copying: one copies parts into shared memory,
//! and the other copies them out at the same time. Both poll. The ratio to a copy within one processor's
//! cache shows the distance between the processors.
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use anyhow::Result;
use farcall_bench_method::{Calling, Carry, Gate, Gated, Laps, Mode, Peer, Serving, Setup, cannot};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::MemfdFlags;

/// The number and the bytes of parts, as in farcall's bulk rings.
const PART: usize = 64 << 10;
const PARTS: usize = 16;
/// The distance between two words: two cache lines, because processors fetch lines in pairs.
const APART: usize = 128;
/// The offset of the parts.
const HEAD: usize = 4096;

/// The words that both sides see: calls made, parts filled, parts emptied.
const CALLS: usize = 0;
const FILLED: usize = 1;
const EMPTIED: usize = 2;

pub struct RawCopies;

impl Peer for RawCopies {
    fn transport(&self) -> &'static str {
        "shared memory"
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.carry == Carry::Both {
            return cannot("it passes on one payload, one way");
        }
        let file = rustix::fs::memfd_create("farcall-bench", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, (HEAD + PARTS * PART) as u64)?;
        let mut lane = Lane::new(setup, &file)?;
        // The file stays open for as long as the process lives, because the other process opens it through
        // /proc.
        let address = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        std::mem::forget(file);
        let gate = Gate::new(&Setup { mode: Mode::Spin, ..*setup });
        let (passed, carry) = (gate.clone(), setup.carry);
        let serve = move || {
            for call in 1.. {
                lane.wait(CALLS, call, || passed.pass());
                match carry {
                    Carry::Argument => lane.empty(),
                    Carry::Both | Carry::Result => lane.fill(),
                }
            }
        };
        Ok(Box::new(Gated { address, gate, thread: std::thread::spawn(serve).thread().clone() }))
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(Path::new(address))?;
        Ok(Box::new(Client { lane: Lane::new(setup, &file)?, carry: setup.carry, calls: 0 }))
    }
}

struct Client {
    lane: Lane,
    carry: Carry,
    calls: u64,
}

impl Calling for Client {
    fn run(&mut self, laps: &mut Laps) -> Result<()> {
        while laps.next() {
            self.window(1, 1)?;
        }
        Ok(())
    }

    fn window(&mut self, _outstanding: usize, calls: usize) -> Result<()> {
        for _ in 0..calls {
            self.calls += 1;
            self.lane.word(CALLS).store(self.calls, Release);
            match self.carry {
                Carry::Argument => self.lane.fill(),
                Carry::Both | Carry::Result => self.lane.empty(),
            }
        }
        let parts = self.lane.parts;
        self.lane.wait(EMPTIED, parts, || {});
        Ok(())
    }
}

/// One side of the exchange.
struct Lane {
    map: MmapRaw,
    payload: Vec<u8>,
    /// The number of parts that this side has filled or emptied.
    parts: u64,
}

impl Lane {
    fn new(setup: &Setup, file: impl memmap2::MmapAsRawDesc) -> Result<Lane> {
        let map = MmapOptions::new().len(HEAD + PARTS * PART).map_raw(file)?;
        Ok(Lane { map, payload: vec![7; setup.bytes], parts: 0 })
    }

    fn word(&self, which: usize) -> &AtomicU64 {
        // SAFETY: the map is longer than that, aligned to pages, and lives as long as `self`. All accesses to
        // this word are atomic.
        unsafe { &*self.map.as_ptr().add(which * APART).cast::<AtomicU64>() }
    }

    /// Waits until the word is at least that number. Calls `rest` before each look.
    fn wait(&self, which: usize, many: u64, rest: impl Fn()) {
        loop {
            rest();
            if self.word(which).load(Acquire) >= many {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn part(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(HEAD + self.parts as usize % PARTS * PART)
    }

    fn fill(&mut self) {
        for part in self.payload.chunks(PART) {
            self.wait(EMPTIED, (self.parts + 1).saturating_sub(PARTS as u64), || {});
            // SAFETY: the map has room for a part at that place. The other side does not access the part
            // between EMPTIED and FILLED.
            unsafe { copy(self.part(), part.as_ptr(), part.len()) }
            self.parts += 1;
            self.word(FILLED).store(self.parts, Release);
        }
    }

    fn empty(&mut self) {
        for at in (0..self.payload.len()).step_by(PART) {
            self.wait(FILLED, self.parts + 1, || {});
            let from = self.part();
            let part = &mut self.payload[at..];
            let len = part.len().min(PART);
            // SAFETY: as above. The other side does not access the part between FILLED and EMPTIED.
            unsafe { copy(part.as_mut_ptr(), from, len) }
            self.parts += 1;
            self.word(EMPTIED).store(self.parts, Release);
        }
        std::hint::black_box(&self.payload);
    }
}

/// Copies by the instruction that is fastest between processors without a common cache.
///
/// # Safety
/// Those of [`std::ptr::copy_nonoverlapping`].
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as promised; the direction flag is clear on entry to asm blocks.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as promised.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, len);
    }
}
