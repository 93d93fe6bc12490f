//! The state of a simulated world, and the choice of what happens next. No code here waits.

#[cfg(unix)]
mod streams;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use farcall::System;
use farcall::env::{Env, Event, Received};
use farcall_proto::dump::dump;
use xxhash_rust::xxh3::xxh3_64;

use super::faults::Faults;
use crate::net::{Nanos, Net, Path, SECS, Step, address, host};
use crate::rng::{Rng, mix};
#[cfg(unix)]
pub(super) use streams::SourceId;
#[cfg(unix)]
use streams::{Sources, StreamEvent};

/// The index of a thread in [`State::threads`].
pub(super) type ThreadId = usize;

/// Names one wait of one thread. An event that ends the wait presents the ticket. A ticket of a former wait
/// is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    thread: ThreadId,
    number: u64,
}

/// An event at its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// A wait ends.
    Wake(Ticket),
    /// Something happens to a stream.
    #[cfg(unix)]
    Stream(SourceId, StreamEvent),
}

/// All changing state, under one lock.
pub(super) struct State {
    pub(super) net: Net<Due>,
    pub(super) rng: Rng,
    pub(super) threads: Vec<Thread>,
    /// The places in `threads` of those that have ended, for the next ones.
    ended: Vec<ThreadId>,
    /// The number of threads that were started.
    pub(super) started: usize,
    /// The threads that could run, and wait for the token.
    pub(super) ready: Vec<ThreadId>,
    pub(super) running: ThreadId,
    pub(super) processes: Vec<Machine>,
    sockets: Vec<Mailbox>,
    by_address: HashMap<SocketAddr, usize>,
    #[cfg(unix)]
    sources: Sources,
    /// The faults of paths to a new process.
    pub(super) faults: Faults,
    /// The chance that farcall fails to start a thread of its own, in parts per million.
    pub(super) thread_failures: u32,
    /// The virtual time at which the run fails.
    pub(super) limit: Nanos,
    pub(super) failure: Option<String>,
    /// The rule that every process breaks on purpose.
    #[cfg(feature = "soak")]
    pub(super) mutant: farcall::driver_mutants::Mutant,
    /// Whether a panic of the user's code does not fail the run.
    pub(super) panics_allowed: bool,
    /// Whether the test has ended, so that everything is taken down.
    pub(super) ending: bool,
    hash: u64,
    verbose: bool,
    /// How often threads were given the token since virtual time last advanced.
    turns: u32,
}

/// A thread of a simulated process.
pub(super) struct Thread {
    pub(super) name: String,
    pub(super) process: usize,
    /// Set when the thread receives the token, the right to run, which one thread at a time has. The thread
    /// runs until it gives the token away.
    pub(super) token: Arc<dyn Event>,
    pub(super) status: Status,
    /// The number of the thread's present or last wait.
    ticket: u64,
    /// Whether the thread's process has crashed or ended. Then the thread unwinds instead of continuing.
    pub(super) killed: bool,
    /// How often the thread was told to unwind.
    pub(super) raised: u32,
    /// The thread that waits until this one waits for the first time.
    pub(super) starter: Option<Ticket>,
}

/// Adds a thread to those that wait for an event. Whose wait has ended without the event, at its deadline
/// say, is taken out, so that an event that never comes keeps no more tickets than there are threads.
pub(super) fn enlist(threads: &[Thread], waiters: &mut Vec<Ticket>, ticket: Ticket) {
    waiters.retain(|waiter| threads[waiter.thread].ticket == waiter.number);
    waiters.push(ticket);
}

/// The status of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The thread runs, or could.
    Ready,
    Waiting(Waits),
    Ended,
    /// The thread was killed, and one of its destructors waited. The thread stays blocked for ever.
    Abandoned,
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    Datagram(SocketAddr),
    Sources,
    Event,
    Sleep,
    /// The first wait of a process that the thread has started.
    Start,
    /// The end of a process that the thread has crashed.
    Crash,
    /// The end of all processes.
    Processes,
}

/// A process on a machine of its own.
#[derive(Default)]
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) main: Option<Arc<Main>>,
    /// Whether the run may end while this process still runs.
    pub(super) server: bool,
    /// How often the process was started.
    pub(super) life: u32,
    pub(super) alive: bool,
    pub(super) paused: bool,
    /// Threads that could run if the process were not paused.
    held: Vec<ThreadId>,
    /// The reading of its clock at virtual time zero.
    pub(super) origin: Nanos,
    /// The environment of its present life.
    pub(super) env: Option<Arc<dyn Env>>,
    next_port: u16,
    /// The threads that wait until this process, or all of its threads, have ended.
    pub(super) mourners: Vec<Ticket>,
}

/// The main function of a process. Its error is text for people.
pub(super) type Main = dyn Fn() -> Result<(), String> + Send + Sync;

/// The datagrams that arrived at a socket.
struct Mailbox {
    address: SocketAddr,
    process: usize,
    open: bool,
    items: VecDeque<Item>,
    bytes: usize,
    capacity: usize,
    /// Whether the socket may receive datagram batches.
    batches: bool,
    waiters: Vec<Ticket>,
}

enum Item {
    Datagram(SocketAddr, Vec<u8>),
    Woken,
    Refused(SocketAddr, Vec<u8>),
    Unreachable(SocketAddr),
}

/// The first port of every machine.
const PORTS: u16 = 40_000;

/// The most turns of threads while no virtual time passes.
const MAX_TURNS: u32 = 200_000;

/// The bytes that a datagram takes of a socket's receive buffer in addition to its own length.
const OVERHEAD: usize = 256;

impl State {
    pub(super) fn new(seed: u64, verbose: bool) -> State {
        let mut rng = Rng::new(seed);
        State {
            net: Net::new(rng.fork(), 0, 0),
            rng,
            threads: Vec::new(),
            ended: Vec::new(),
            started: 0,
            ready: Vec::new(),
            running: 0,
            processes: Vec::new(),
            sockets: Vec::new(),
            by_address: HashMap::new(),
            #[cfg(unix)]
            sources: Sources::default(),
            faults: Faults::none(),
            thread_failures: 0,
            limit: 3600 * SECS,
            failure: None,
            #[cfg(feature = "soak")]
            mutant: farcall::driver_mutants::Mutant::NONE,
            panics_allowed: false,
            ending: false,
            hash: 0,
            verbose,
            turns: 0,
        }
    }

    /// Returns the thread that runs next, or `None` when everything has been taken down. Virtual time passes
    /// only when no thread can run.
    pub(super) fn next(&mut self) -> Option<ThreadId> {
        loop {
            if let Some(thread) = self.pick() {
                return Some(thread);
            }
            if self.ending {
                return None;
            }
            let before = self.net.now();
            let Some((now, step)) = self.net.step() else {
                let all = self.who_waits();
                self.fail(format!(
                    "deadlock: everybody waits, no timer runs and no packet is under way\n{all}"
                ));
                continue;
            };
            if now > before {
                self.turns = 0;
            }
            if now > self.limit {
                let all = self.who_waits();
                self.fail(format!("the limit of virtual time, {}, is reached\n{all}", seconds(self.limit)));
                continue;
            }
            self.happen(step);
        }
    }

    /// Picks a random thread that can run.
    fn pick(&mut self) -> Option<ThreadId> {
        while !self.ready.is_empty() {
            let at = self.rng.index(self.ready.len());
            let thread = self.ready.swap_remove(at);
            let Thread { process, killed, .. } = self.threads[thread];
            let machine = &mut self.processes[process];
            if machine.paused && !killed {
                machine.held.push(thread);
                continue;
            }
            self.turns += 1;
            if self.turns > MAX_TURNS && !self.ending {
                self.turns = 0;
                let all = self.who_waits();
                self.fail(format!("threads run and run while no virtual time passes\n{all}"));
            }
            self.note(&[1, thread as u64], String::new);
            return Some(thread);
        }
        None
    }

    fn happen(&mut self, step: Step<Due>) {
        match step {
            Step::Event(Due::Wake(ticket)) => self.wake(ticket),
            #[cfg(unix)]
            Step::Event(Due::Stream(id, event)) => self.happen_to(id, event),
            Step::Refused { sender, peer, is_closed: false, .. } => {
                self.note(&[4, u64::from(sender.port())], || {
                    format!("{sender} hears that {peer} cannot be reached")
                });
                self.post(sender, Item::Unreachable(peer));
            }
            Step::Refused { sender, peer, quoted, .. } => {
                self.note(&[2, u64::from(sender.port())], || {
                    format!("{sender} hears that nobody is at {peer}")
                });
                self.post(sender, Item::Refused(peer, quoted));
            }
            Step::Datagram { from, to, bytes } => {
                let ports = u64::from(from.port()) << 16 | u64::from(to.port());
                let facts = [3, ports, host(from) as u64, host(to) as u64, xxh3_64(&bytes)];
                self.note(&facts, || match dump(&bytes) {
                    Ok(dump) => format!("{from} -> {to}  {dump}"),
                    Err(why) => format!("{from} -> {to}  {why}"),
                });
                self.post(to, Item::Datagram(from, bytes));
            }
        }
    }

    /// Adds an event to the hash of the run's trace, and prints it if the run is verbose.
    pub(super) fn note(&mut self, facts: &[u64], say: impl FnOnce() -> String) {
        for fact in facts {
            self.hash = mix(self.hash ^ fact).wrapping_add(self.net.now());
        }
        if !self.verbose {
            return;
        }
        let said = say();
        if !said.is_empty() {
            println!("{:>12}  {said}", seconds(self.net.now()));
        }
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// Fails the run, and stops everything.
    pub(super) fn fail(&mut self, why: String) {
        if self.failure.is_some() || self.ending {
            return;
        }
        self.note(&[4], || format!("FAILED: {why}"));
        self.failure = Some(why);
        self.kill(0);
    }

    /// Returns a line for each thread that has not ended, farcall's threads last.
    fn who_waits(&self) -> String {
        let alive = |t: &&Thread| matches!(t.status, Status::Ready | Status::Waiting(_));
        let mut threads: Vec<&Thread> = self.threads.iter().filter(alive).collect();
        threads.sort_by_key(|thread| thread.name.starts_with("farcall-"));
        let line = |thread: &&Thread| {
            let machine = &self.processes[thread.process];
            let does = match thread.status {
                Status::Waiting(Waits::Datagram(at)) => format!("waits for a datagram at {at}"),
                Status::Waiting(Waits::Sources) => "waits for streams".to_owned(),
                Status::Waiting(Waits::Event) => "waits to be woken".to_owned(),
                Status::Waiting(Waits::Sleep) => "sleeps".to_owned(),
                Status::Waiting(Waits::Start) => "waits for a process to start".to_owned(),
                Status::Waiting(Waits::Crash) => "waits for a process to be gone".to_owned(),
                Status::Waiting(Waits::Processes) => "waits for the processes to end".to_owned(),
                _ if machine.paused => "is paused".to_owned(),
                _ => "could run".to_owned(),
            };
            format!("  {}: {} {does}\n", machine.name, thread.name)
        };
        threads.iter().map(line).collect::<String>().trim_end().to_owned()
    }
}

/// Threads.
impl State {
    /// Returns whether a start of one of farcall's threads fails.
    pub(super) fn lacks_thread(&mut self, process: usize, name: &str) -> bool {
        let lacks = self.rng.chance(self.thread_failures);
        if lacks {
            let whose = self.processes[process].name.clone();
            self.note(&[13, process as u64], || format!("{whose} cannot start {name}"));
        }
        lacks
    }

    /// Adds a thread that can run.
    pub(super) fn add_thread(&mut self, process: usize, name: &str, starter: Option<Ticket>) -> ThreadId {
        let place = self.ended.pop();
        let thread = Thread {
            name: name.to_owned(),
            process,
            token: System.event(),
            status: Status::Ready,
            // Tickets of the place's former threads stay out of date.
            ticket: place.map_or(0, |place| self.threads[place].ticket),
            killed: false,
            raised: 0,
            starter,
        };
        self.started += 1;
        let place = match place {
            Some(place) => {
                self.threads[place] = thread;
                place
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        };
        self.ready.push(place);
        place
    }

    /// Returns the ticket that will wake a thread which is about to wait.
    pub(super) fn ticket(&mut self, thread: ThreadId) -> Ticket {
        self.threads[thread].ticket += 1;
        Ticket { thread, number: self.threads[thread].ticket }
    }

    /// Returns the ticket of a thread's present wait.
    pub(super) fn present_ticket(&self, thread: ThreadId) -> Ticket {
        Ticket { thread, number: self.threads[thread].ticket }
    }

    /// Ends the wait of this ticket, unless it is over.
    pub(super) fn wake(&mut self, ticket: Ticket) {
        let thread = &mut self.threads[ticket.thread];
        if thread.ticket == ticket.number && matches!(thread.status, Status::Waiting(_)) {
            thread.status = Status::Ready;
            self.ready.push(ticket.thread);
        }
    }

    pub(super) fn wake_all(&mut self, tickets: Vec<Ticket>) {
        tickets.into_iter().for_each(|ticket| self.wake(ticket));
    }

    /// Notes that a thread ends with this status.
    pub(super) fn end(&mut self, thread: ThreadId, status: Status) {
        let ended = &mut self.threads[thread];
        ended.status = status;
        let (process, starter) = (ended.process, ended.starter.take());
        // The test's main thread ends once.
        if status == Status::Ended && thread != 0 {
            self.ended.push(thread);
        }
        let mourners = std::mem::take(&mut self.processes[process].mourners);
        self.wake_all(mourners);
        self.wake_all(starter.into_iter().collect());
        if thread == 0 {
            self.ending = true;
            (0..self.processes.len()).for_each(|process| self.kill(process));
        }
    }
}

/// Processes.
impl State {
    pub(super) fn add_process(&mut self, name: &str, main: Arc<Main>, server: bool) -> usize {
        let path = self.faults.path(Path::clean(0));
        let process = self.net.add_host(path);
        self.processes.push(Machine {
            name: name.to_owned(),
            main: Some(main),
            server,
            next_port: PORTS,
            ..Machine::default()
        });
        process
    }

    /// Begins a new life of a process that is not alive.
    pub(super) fn begin_life(&mut self, process: usize) {
        let origin = self.rng.spread(SECS, 1 << 50);
        // A port that is used again receives packets for the former life.
        let same_ports = self.rng.chance(500_000);
        let machine = &mut self.processes[process];
        (machine.life, machine.alive, machine.origin) = (machine.life + 1, true, origin);
        if same_ports {
            machine.next_port = PORTS;
        }
        let (name, life) = (machine.name.clone(), machine.life);
        self.note(&[5, process as u64], || {
            format!("{name} starts, life {life}, at {}", address(process, 0).ip())
        });
    }

    /// Stops a process: its sockets close, and its threads unwind when they are next to run.
    pub(super) fn kill(&mut self, process: usize) {
        let machine = &mut self.processes[process];
        if !std::mem::replace(&mut machine.alive, false) {
            return;
        }
        machine.paused = false;
        let mourners = std::mem::take(&mut machine.mourners);
        let held = std::mem::take(&mut machine.held);
        self.ready.extend(held);
        for index in 0..self.threads.len() {
            let thread = &mut self.threads[index];
            if thread.process != process {
                continue;
            }
            thread.killed = true;
            if matches!(thread.status, Status::Waiting(_)) {
                thread.status = Status::Ready;
                self.ready.push(index);
            }
        }
        for id in 0..self.sockets.len() {
            if self.sockets[id].process == process {
                self.close(id);
            }
        }
        #[cfg(unix)]
        self.close_sources(process);
        self.wake_all(mourners);
        let name = self.processes[process].name.clone();
        self.note(&[6, process as u64], || format!("{name} is gone"));
    }

    /// Returns whether a process still has threads that unwind.
    pub(super) fn has_threads(&self, process: usize) -> bool {
        let lives =
            |t: &Thread| t.process == process && !matches!(t.status, Status::Ended | Status::Abandoned);
        self.threads.iter().any(lives)
    }

    pub(super) fn pause(&mut self, process: usize) {
        self.note(&[7, process as u64], || "a process is paused".to_owned());
        self.processes[process].paused = self.processes[process].alive;
    }

    pub(super) fn resume(&mut self, process: usize) {
        self.note(&[8, process as u64], || "a process is resumed".to_owned());
        let machine = &mut self.processes[process];
        machine.paused = false;
        self.ready.append(&mut machine.held);
    }

    /// Returns whether this life of a process goes on.
    pub(super) fn lives(&self, process: usize, life: u32) -> bool {
        let machine = &self.processes[process];
        machine.alive && machine.life == life
    }

    /// Returns whether there are processes whose end is waited for.
    pub(super) fn any_to_wait_for(&self) -> bool {
        self.processes.iter().skip(1).any(|machine| machine.alive && !machine.server)
    }
}

/// Sockets.
impl State {
    /// Opens a socket. Port 0 asks for any port. Returns `None` if the port is taken.
    pub(super) fn open(
        &mut self,
        process: usize,
        port: u16,
        capacity: usize,
        batches: bool,
    ) -> Option<(usize, SocketAddr)> {
        let at = match port {
            0 => self.free_address(process),
            port => address(process, port),
        };
        if self.by_address.contains_key(&at) {
            return None;
        }
        let id = self.sockets.len();
        let (items, waiters) = (VecDeque::new(), Vec::new());
        self.sockets.push(Mailbox {
            address: at,
            process,
            open: true,
            items,
            bytes: 0,
            capacity,
            batches,
            waiters,
        });
        self.by_address.insert(at, id);
        self.net.bind(at);
        Some((id, at))
    }

    pub(super) fn free_address(&mut self, process: usize) -> SocketAddr {
        loop {
            let port = self.processes[process].next_port;
            self.processes[process].next_port = port.checked_add(1).unwrap_or(PORTS);
            let at = address(process, port);
            if !self.by_address.contains_key(&at) {
                return at;
            }
        }
    }

    pub(super) fn close(&mut self, id: usize) {
        let mailbox = &mut self.sockets[id];
        if !std::mem::replace(&mut mailbox.open, false) {
            return;
        }
        mailbox.items.clear();
        self.by_address.remove(&mailbox.address);
        self.net.unbind(mailbox.address);
    }

    /// Sends from a socket. A closed socket sends nothing.
    pub(super) fn send(&mut self, id: usize, to: SocketAddr, datagram: &[u8]) {
        if self.sockets[id].open {
            self.net.send(self.sockets[id].address, to, datagram);
        }
    }

    /// Takes the first datagram that has arrived at a socket. Datagrams of one sender and one size, the last
    /// perhaps shorter, can come as a batch, as Linux delivers them to a socket with UDP_GRO.
    pub(super) fn fetch(&mut self, id: usize, buffer: &mut [u8]) -> Option<Received> {
        let (from, bytes) = match self.sockets[id].items.pop_front()? {
            Item::Woken => return Some(Received::Woken),
            Item::Unreachable(peer) => return Some(Received::Unreachable(peer, None)),
            Item::Refused(peer, quoted) => {
                let len = quoted.len().min(buffer.len());
                buffer[..len].copy_from_slice(&quoted[..len]);
                return Some(Received::Refused(peer, len));
            }
            Item::Datagram(from, bytes) => (from, bytes),
        };
        let each = bytes.len();
        let mut len = self.unload(id, bytes, buffer);
        let mailbox = &self.sockets[id];
        if mailbox.items.is_empty() || !mailbox.batches || self.rng.chance(500_000) {
            return Some(Received::Datagrams { from, len, each: each.max(1) });
        }
        while let Some(Item::Datagram(next, more)) = self.sockets[id].items.front() {
            let size = more.len();
            if *next != from
                || size > each
                || size == 0
                || !len.is_multiple_of(each)
                || len + size > buffer.len()
            {
                break;
            }
            let Some(Item::Datagram(_, more)) = self.sockets[id].items.pop_front() else { break };
            len += self.unload(id, more, &mut buffer[len..]);
        }
        Some(Received::Datagrams { from, len, each: each.max(1) })
    }

    /// Copies a datagram that was taken from its socket. Returns how many bytes fitted.
    fn unload(&mut self, id: usize, bytes: Vec<u8>, buffer: &mut [u8]) -> usize {
        self.sockets[id].bytes -= bytes.len() + OVERHEAD;
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        self.net.recycle(bytes);
        len
    }

    /// Returns whether a datagram has arrived at a socket.
    #[cfg(unix)]
    pub(super) fn has_datagram(&self, id: usize) -> bool {
        let mailbox = &self.sockets[id];
        !mailbox.open || !mailbox.items.is_empty()
    }

    /// Adds a waiting thread to a socket.
    pub(super) fn await_datagram(&mut self, id: usize, ticket: Ticket) {
        enlist(&self.threads, &mut self.sockets[id].waiters, ticket);
    }

    /// Makes a thread that receives at a socket return.
    pub(super) fn rouse(&mut self, id: usize) {
        self.put(id, Item::Woken);
    }

    fn post(&mut self, to: SocketAddr, item: Item) {
        if let Some(id) = self.by_address.get(&to) {
            self.put(*id, item);
        }
    }

    fn put(&mut self, id: usize, item: Item) {
        let mailbox = &mut self.sockets[id];
        if !mailbox.open {
            return;
        }
        if let Item::Datagram(_, bytes) = &item {
            let bytes = bytes.len() + OVERHEAD;
            if mailbox.bytes + bytes > mailbox.capacity {
                return;
            }
            mailbox.bytes += bytes;
        }
        mailbox.items.push_back(item);
        let waiters = std::mem::take(&mut mailbox.waiters);
        self.wake_all(waiters);
    }
}

/// Returns virtual time as text.
pub(super) fn seconds(time: Nanos) -> String {
    format!("{:.6} s", time as f64 / SECS as f64)
}
