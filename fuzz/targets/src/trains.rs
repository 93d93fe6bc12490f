//! Fuzz targets for trains: batches of datagrams that a driver receives by one system call. The targets run
//! the real drivers over a scripted socket.
//!
//! Everything runs in the target's own thread. A thread that a driver starts is put into a list. When the
//! driver waits for a datagram, a worker from this list runs instead. So each run of an input is the same,
//! and all of its memory is counted.

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

/// The address of the driver that is tested.
const HERE: ([u8; 4], u16) = ([10, 0, 0, 1], 7000);
/// The address of the other end of the conversation.
const THERE: ([u8; 4], u16) = ([10, 0, 0, 2], 7000);
/// The address of an end that belongs to no conversation.
const STRANGER: ([u8; 4], u16) = ([10, 0, 0, 3], 7000);

/// The longest datagram that the scripted network carries, in bytes. Longer datagrams are lost.
const LONGEST: usize = 1472;

/// The interface that is called. Its arguments are borrowed from the received datagrams, and its results can
/// have any length. One procedure is quick, and one is blocking.
#[farcall::interface]
trait Marked {
    /// Returns bytes that the arguments determine.
    #[procedure(1)]
    fn ask(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
    /// Returns the length of the arguments.
    #[procedure(2)]
    #[blocking]
    fn count(&self, data: &[u8]) -> farcall::Result<u32>;
}

/// Returns bytes that identify the call or the result with this mark: four bytes that depend on the mark,
/// repeated.
fn marked(mark: u32, len: usize) -> Vec<u8> {
    mark.wrapping_mul(0x9e37_79b1).to_be_bytes().into_iter().cycle().take(len).collect()
}

/// Returns the XDR encoding of variable-length opaque data (RFC 4506 section 4.10). The number of bytes must
/// be a multiple of four.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

/// The datagrams that have arrived and that the driver has not received.
#[derive(Default)]
struct Line {
    datagrams: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Whether the driver receives datagrams in trains where the system can join them.
    joined: bool,
}

impl Line {
    /// Takes out what the driver receives next. The system joins datagrams of one sender and one size into a
    /// train. The last datagram of a train may be shorter.
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
    /// Receives a datagram that the driver has sent.
    fn hear(&mut self, now: Time, datagram: &[u8]);
    /// Puts the next datagrams into `line`, which is empty, or says what happens instead.
    fn bring(&mut self, now: Time, line: &mut Line) -> Brought;
    /// Takes a step of the script that concerns this end.
    fn told(&mut self, _step: u8, _script: &mut Script<'_>) {}
}

/// What happens while the driver waits for a datagram.
enum Brought {
    /// A datagram has arrived.
    Arrived,
    /// This time has passed.
    Passed(Duration),
    /// No datagram arrives.
    Nothing,
}

/// Returns whether a datagram has arrived.
fn arrived(line: &Line) -> Brought {
    if line.datagrams.is_empty() { Brought::Nothing } else { Brought::Arrived }
}

/// What a thread runs. The target's thread runs it in place of a thread that a driver has started.
type Run = Box<dyn FnOnce() + Send>;

/// The state of the environment in which the driver runs.
struct Outside {
    /// The time in nanoseconds.
    now: AtomicU64,
    /// How many words of entropy the driver has drawn.
    drawn: AtomicU64,
    /// The threads that the driver has started and that have not run, with their names.
    threads: Mutex<Vec<(String, Run)>>,
    line: Mutex<Line>,
    other: Mutex<Box<dyn Other>>,
    /// Called once by a receiver when nothing more arrives.
    over: Mutex<Option<Run>>,
    /// The number of receives in a row that returned no datagram.
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

    /// Takes out a thread with this name that was started and has not run.
    fn thread(&self, name: &str) -> Option<Run> {
        let mut threads = lock(&self.threads);
        let place = threads.iter().position(|(other, _)| other == name)?;
        Some(threads.remove(place).1)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment that the driver gets. It is the driver's socket too.
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

    /// Fills `out` with bytes that are the same in every run of an input, and differ within a run.
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
        // A worker that was started meanwhile runs first. It has a call to execute, or receives in place of
        // this thread.
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
        assert!(self.0.idle.fetch_add(1, Ordering::Relaxed) < 10_000, "the driver waits without end");
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

/// An event that only the target's thread can set. So a wait without a timeout must find the event set.
struct Flag(AtomicBool);

impl Event for Flag {
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wait(&self, timeout: Option<Duration>) -> bool {
        let set = self.0.swap(false, Ordering::Relaxed);
        assert!(set || timeout.is_some(), "the only thread waits for ever");
        set
    }
}
