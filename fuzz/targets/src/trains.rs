//! Trains of datagrams, as the drivers receive them in one system call: the real drivers over a scripted
//! socket.
//!
//! All runs in the thread of the target: threads that a driver starts are kept, and a worker's is run when
//! another waits for a datagram, until the script ends. So an input is one run, and its memory is counted.

mod caller;
mod exporter;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::env::{Env, Event, Received, Socket, SocketOptions, Time, Wait};

use crate::script::Script;
pub use caller::trains_to_caller;
pub use exporter::trains_to_server;

/// Where the driver that is tested is, and where the other end.
const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 7000);
const THERE: ([u8; 4], u16) = ([10, 0, 0, 2], 7000);
/// An end that nobody asked.
const STRANGER: ([u8; 4], u16) = ([10, 0, 0, 3], 7000);

/// Longer datagrams do not pass.
const LONGEST: usize = 1472;

/// What is called: with arguments that are borrowed from what was received, quick and not, and with results
/// of any length.
#[farcall::interface]
trait Marked {
    /// Something that the arguments decide.
    #[procedure(1)]
    fn ask(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// How many they are.
    #[procedure(2)]
    #[blocking]
    fn count(&self, data: &[u8]) -> farcall::Result<u32>;
}

/// Bytes by which the call or the result with this mark is known: no part of them is like a part of
/// another's.
fn marked(mark: u32, len: usize) -> Vec<u8> {
    mark.wrapping_mul(0x9e37_79b1).to_be_bytes().into_iter().cycle().take(len).collect()
}

/// As XDR has a list of bytes (RFC 4506 section 4.10). The length is a multiple of four.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// Datagrams that have arrived and were not received.
#[derive(Default)]
struct Line {
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    /// They are received in trains where the system may join them.
    joined: bool,
}

impl Line {
    /// What is received next. The system joins datagrams of one sender and one size, and one that is shorter
    /// behind them.
    fn take(&mut self, buffer: &mut [u8]) -> Option<Received> {
        let (from, first) = self.datagrams.pop_front()?;
        let each = first.len().min(buffer.len());
        buffer[..each].copy_from_slice(&first[..each]);
        let mut len = each;
        while let Some((_, next)) = self.datagrams.front().filter(|(next, _)| self.joined && *next == from) {
            let end = len + next.len();
            if next.len() > each || next.is_empty() || len % each != 0 || end > buffer.len() {
                break;
            }
            buffer[len..end].copy_from_slice(next);
            len = end;
            self.datagrams.pop_front();
        }
        Some(Received::Datagrams { from, len, each: each.max(1) })
    }
}

/// The other end of the only socket.
trait Other: Send {
    /// What the driver has sent.
    fn hear(&mut self, now: Time, datagram: &[u8]);
    /// Sees to it that something arrives, now that all is received that had.
    fn bring(&mut self, now: Time, line: &mut Line) -> Brought;
    /// Takes a step of the script that is its own.
    fn told(&mut self, _step: u8, _script: &mut Script<'_>) {}
}

/// What became of the wait for a datagram.
enum Brought {
    /// Something arrived.
    Arrived,
    /// So much time passed.
    Passed(Duration),
    /// Nothing will arrive by itself.
    Nothing,
}

fn arrived(line: &Line) -> Brought {
    if line.datagrams.is_empty() { Brought::Nothing } else { Brought::Arrived }
}

/// What a thread runs, or somebody else in its place.
type Run = Box<dyn FnOnce() + Send>;

/// The outside of the driver.
struct Outside {
    now: AtomicU64,
    drawn: AtomicU64,
    threads: Mutex<Vec<(String, Run)>>,
    line: Mutex<Line>,
    other: Mutex<Box<dyn Other>>,
    /// Called by a receiver when nothing more arrives.
    over: Mutex<Option<Run>>,
    /// Receives that gave nothing, one after the other.
    idle: AtomicU64,
}

impl Outside {
    fn new(joined: bool, other: Box<dyn Other>) -> Arc<Outside> {
        Arc::new(Outside {
            now: AtomicU64::new(1_000_000_000),
            drawn: AtomicU64::new(0),
            threads: Mutex::default(),
            line: Mutex::new(Line { joined, ..Line::default() }),
            other: Mutex::new(other),
            over: Mutex::default(),
            idle: AtomicU64::new(0),
        })
    }

    fn pass(&self, time: Duration) {
        self.now.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Takes a thread out that was started and does not run.
    fn thread(&self, name: &str) -> Option<Run> {
        let mut threads = lock(&self.threads);
        let place = threads.iter().position(|(other, _)| other == name)?;
        Some(threads.remove(place).1)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the driver is given: its outside, as whatever it asks for.
#[derive(Clone)]
struct Seam(Arc<Outside>);

impl Env for Seam {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.now.load(Ordering::Relaxed))
    }

    fn bind(&self, _: SocketAddr, _: &SocketOptions) -> io::Result<Arc<dyn Socket>> {
        Ok(Arc::new(self.clone()))
    }

    fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        lock(&self.0.threads).push((name.to_owned(), run));
        Ok(())
    }

    fn event(&self) -> Arc<dyn Event> {
        Arc::new(Flag(AtomicBool::new(false)))
    }

    /// Gives the same bytes in every run, and never the same twice in a run.
    fn entropy(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let drawn = self.0.drawn.fetch_add(1, Ordering::Relaxed) + 1;
            part.copy_from_slice(&drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()[..part.len()]);
        }
    }

    fn process_id(&self) -> u32 {
        1
    }

    fn processors(&self) -> usize {
        2
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

impl Socket for Seam {
    fn send(&self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        if to == SocketAddr::from(THERE) && datagram.len() <= LONGEST {
            lock(&self.0.other).hear(self.now(), datagram);
        }
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8], wait: Wait) -> io::Result<Received> {
        if let Some(received) = lock(&self.0.line).take(buffer) {
            self.0.idle.store(0, Ordering::Relaxed);
            return Ok(received);
        }
        if wait == Wait::No {
            return Ok(Received::TimedOut);
        }
        // A worker that was started meanwhile comes first: it has something to do, and is then the one that
        // receives.
        if let Some(worker) = self.0.thread("farcall-worker") {
            worker();
            return Ok(Received::Woken);
        }
        let brought = lock(&self.0.other).bring(self.now(), &mut lock(&self.0.line));
        match brought {
            Brought::Arrived => return Ok(lock(&self.0.line).take(buffer).unwrap_or(Received::Woken)),
            Brought::Passed(time) => {
                self.0.pass(time);
                return Ok(Received::Woken);
            }
            Brought::Nothing => {}
        }
        assert!(self.0.idle.fetch_add(1, Ordering::Relaxed) < 10_000, "it waits without end");
        let over = lock(&self.0.over).take();
        if let Some(over) = over {
            over();
            return Ok(Received::Woken);
        }
        match wait {
            Wait::Nanos(nanos) => {
                self.0.pass(Duration::from_nanos(nanos));
                Ok(Received::TimedOut)
            }
            _ => Ok(Received::Woken),
        }
    }

    fn wake(&self) {}

    fn local_address(&self) -> SocketAddr {
        HERE.into()
    }

    fn receive_buffer(&self) -> usize {
        4 << 20
    }
}

/// An event that only this thread could set: if it is not set nobody will.
struct Flag(AtomicBool);

impl Event for Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let set = self.0.swap(false, Ordering::Relaxed);
        assert!(set || timeout.is_some(), "it waits for ever, alone");
        set
    }
}
