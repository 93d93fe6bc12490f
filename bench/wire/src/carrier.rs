//! The threads that carry packets from one end of the wire to the other.
use std::collections::VecDeque;
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::path::{Counts, Fate, Path, Shape};

/// The longest packet, in bytes.
const MAX_PACKET: usize = 65_536;
/// The most packets that are taken in a row. After them the thread looks for packets that are due.
const BURST: usize = 64;
/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The wire between two devices. It ends when this is dropped.
pub struct Carrier {
    stop: Arc<AtomicBool>,
    counts: [Arc<Mutex<Counts>>; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Carrier {
    /// Carries packets both ways between two devices.
    pub fn start(shape: Shape, seed: u64, ends: [File; 2]) -> Result<Carrier> {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: [Arc<Mutex<Counts>>; 2] = Default::default();
        let [server, client] = ends;
        let again = [server.try_clone()?, client.try_clone()?];
        let [server_again, client_again] = again;
        let mut threads = Vec::new();
        for (n, (from, to)) in [(server, client_again), (client, server_again)].into_iter().enumerate() {
            let lane = Lane {
                path: Path::new(shape, 2 * seed + n as u64),
                from,
                to,
                waiting: VecDeque::new(),
                spare: Vec::new(),
                counts: counts[n].clone(),
            };
            let stop = stop.clone();
            let name = format!("wire {n}");
            threads.push(std::thread::Builder::new().name(name).spawn(move || lane.run(&stop))?);
        }
        Ok(Carrier { stop, counts, threads })
    }

    /// Returns what has happened so far: to packets of the server, and to those of the client.
    pub fn counts(&self) -> [Counts; 2] {
        [0, 1].map(|n| *self.counts[n].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// A packet under way.
struct Packet {
    due: Instant,
    bytes: Vec<u8>,
}

/// One direction, with its thread's state.
struct Lane {
    path: Path,
    from: File,
    to: File,
    /// In the order in which they are due, which is that in which they were sent.
    waiting: VecDeque<Packet>,
    /// Buffers for further packets.
    spare: Vec<Vec<u8>>,
    counts: Arc<Mutex<Counts>>,
}

impl Lane {
    fn run(mut self, stop: &AtomicBool) {
        // The usual slack of 50 µs is half of the shortest delay. Without it the wire is less exact.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut buffer = vec![0; MAX_PACKET];
        while !stop.load(Ordering::Relaxed) {
            // A device whose namespace is gone carries nothing more.
            if self.step(&mut buffer).is_err() {
                return;
            }
        }
    }

    fn step(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.deliver()?;
        for _ in 0..BURST {
            match rustix::io::read(&self.from, &mut *buffer) {
                Ok(length) => self.take(&buffer[..length]),
                Err(Errno::AGAIN) => {
                    *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = self.path.counts();
                    return self.wait();
                }
                Err(Errno::INTR) => {}
                Err(why) => return Err(why).context("cannot read a packet"),
            }
        }
        Ok(())
    }

    /// Takes a packet that was sent.
    fn take(&mut self, packet: &[u8]) {
        if let Fate::Arrives(due) = self.path.send(Instant::now(), packet.len()) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(packet);
            self.waiting.push_back(Packet { due, bytes });
        }
    }

    /// Delivers the packets that are due.
    fn deliver(&mut self) -> Result<()> {
        let mut now = None;
        while let Some(packet) = self.waiting.front()
            && packet.due <= *now.get_or_insert_with(Instant::now)
        {
            match rustix::io::write(&self.to, &packet.bytes) {
                Ok(_) | Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => {}
                Err(why) => return Err(why).context("cannot deliver a packet"),
            }
            self.spare.extend(self.waiting.pop_front().map(|packet| packet.bytes));
        }
        Ok(())
    }

    /// Waits until a packet is sent or due.
    fn wait(&self) -> Result<()> {
        let next = self.waiting.front().map(|packet| packet.due.saturating_duration_since(Instant::now()));
        let time = next.unwrap_or(LOOK).min(LOOK);
        let time = Timespec { tv_sec: time.as_secs().try_into()?, tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(why) => Err(why).context("cannot wait for packets"),
        }
    }
}
