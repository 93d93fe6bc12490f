//! All clients of a server come back at once after it was started anew, with tickets of its former
//! incarnation.
//!
//! The time is simulated. The server is one processor: each datagram takes it some time, and each handshake
//! more. As in a server, one thread receives and another computes handshakes, which has a sixth of the
//! other's weight. Datagrams that come meanwhile wait in its socket's queue, and are lost when the queue is
//! full.
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use farcall_bench_method::{alloc, conditions};
use farcall_proto::server::Computed;
use farcall_proto::{Kind, ServerConfig, Time};

use crate::world::{Client, Ended, World, is_wait};

#[derive(Debug, clap::Args)]
pub struct Returning {
    /// The number of clients.
    #[arg(long, default_value_t = 100_000)]
    clients: usize,
    /// How many datagrams the server's socket holds.
    #[arg(long, default_value_t = 1_800)]
    queue: usize,
    /// How long the server works on a datagram, in microseconds.
    #[arg(long, default_value_t = 3)]
    datagram: u64,
    /// How long the server computes a handshake, in microseconds.
    #[arg(long, default_value_t = 300)]
    handshake: u64,
    /// The time within which all clients call again, in milliseconds.
    #[arg(long, default_value_t = 0)]
    within: u64,
}

/// The time that a datagram takes from one end to the other.
const DELAY: Duration = Duration::from_micros(100);

/// How many times the weight of the thread that computes handshakes the other one has.
const WEIGHT: u64 = 6;

/// The longest time that is simulated.
const LIMIT: Duration = Duration::from_secs(600);

/// What happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client's timer is due, or the client begins.
    Timer(usize),
    ToServer(usize, Vec<u8>),
    ToClient(usize, Vec<u8>),
    /// The server has done what it was doing.
    Free,
    /// A handshake may be computed again, if the server does nothing.
    Due,
}

/// Measures, prints, and fails if a requirement is not met.
pub fn run(returning: &Returning) -> Result<()> {
    let mut world = World::new(ServerConfig::default());
    let count = returning.clients;
    let clients = (0..count).map(|_| world.converse()).collect::<Result<Vec<Client>>>()?;
    world.now = world.now + Duration::from_secs(5);
    world.executed = HashMap::with_capacity(2 * count);
    world.restart();
    // The clients' first calls begin when the server serves already.
    world.now = world.now + Duration::from_secs(2);
    let mut run = Run::new(world, clients, returning);
    run.run()?;
    run.tell();
    conditions::conditions(&[]).iter().for_each(|line| println!("{line}"));
    let unreachable = run.failed.keys().filter(|(kind, _)| kind.contains("Unreachable")).count();
    ensure!(unreachable == 0, "clients were told that the server is unreachable");
    ensure!(run.done.len() == count, "{} of {count} clients are back", run.done.len());
    ensure!(run.world.executed_twice() == 0, "calls were executed twice");
    Ok(())
}

struct Run<'r> {
    world: World,
    clients: Vec<Client>,
    settings: &'r Returning,
    began: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    counted: u64,
    /// What waits in the server's socket, and whether the server works.
    queue: VecDeque<(usize, Vec<u8>)>,
    works: bool,
    /// The handshake that is computed.
    computing: Option<Computed>,
    /// For how long datagrams and handshakes were worked on, in microseconds, since no datagram waited.
    spent: (u64, u64),
    /// Which client has an address.
    by_address: HashMap<SocketAddr, usize>,
    /// When each client's timer is set to, and the one for a handshake.
    timers: Vec<Option<Time>>,
    due: Option<Time>,
    /// When each client was back.
    done: BTreeMap<usize, Duration>,
    /// How many datagrams told each client to wait.
    waits: Vec<u32>,
    arrived: u64,
    lost: u64,
    longest_queue: usize,
    /// The failures of calls, with their numbers.
    failed: BTreeMap<(String, String), u64>,
    /// The bytes that the server has allocated and not freed, and the most of them for each conversation that
    /// it knows.
    kept: i64,
    kept_by_waiting: i64,
}

impl<'r> Run<'r> {
    fn new(world: World, clients: Vec<Client>, settings: &'r Returning) -> Run<'r> {
        let (began, count) = (world.now, clients.len());
        let by_address = clients.iter().enumerate().map(|(at, client)| (client.from, at)).collect();
        let mut run = Run {
            world,
            clients,
            settings,
            began,
            events: BinaryHeap::new(),
            counted: 0,
            queue: VecDeque::new(),
            works: false,
            computing: None,
            spent: (0, 0),
            by_address,
            timers: vec![None; count],
            due: None,
            done: BTreeMap::new(),
            waits: vec![0; count],
            arrived: 0,
            lost: 0,
            longest_queue: 0,
            failed: BTreeMap::new(),
            kept: 0,
            kept_by_waiting: 0,
        };
        for client in 0..count {
            let after = Duration::from_micros(settings.within * 1_000 * client as u64 / count as u64);
            run.set_timer(client, began + after);
        }
        run
    }

    fn at(&mut self, time: Time, event: Event) {
        self.counted += 1;
        self.events.push(Reverse((time, self.counted, event)));
    }

    /// Sets a client's timer. An earlier setting is forgotten.
    fn set_timer(&mut self, client: usize, due: Time) {
        if self.timers[client].replace(due) != Some(due) {
            self.at(due, Event::Timer(client));
        }
    }

    fn run(&mut self) -> Result<()> {
        let mut begun = vec![false; self.clients.len()];
        while self.done.len() < self.clients.len()
            && let Some(Reverse((now, _, event))) = self.events.pop()
        {
            self.world.now = now;
            if now.since(self.began) > LIMIT {
                break;
            }
            if self.world.server.timeout().is_some_and(|due| due <= now) {
                self.world.server.handle_timeout(now);
            }
            match event {
                Event::Timer(client) if self.timers[client] != Some(now) => {}
                Event::Timer(client) => {
                    self.timers[client] = None;
                    if !std::mem::replace(&mut begun[client], true) {
                        self.clients[client].start(now)?;
                    }
                    let ended = self.clients[client].tick(now);
                    self.go_on(client, ended)?;
                }
                Event::ToClient(client, datagram) => {
                    self.waits[client] += u32::from(is_wait(&datagram));
                    let ended = self.clients[client].hear(now, vec![datagram]);
                    self.go_on(client, ended)?;
                }
                Event::ToServer(client, datagram) => {
                    self.arrived += 1;
                    if self.queue.len() >= self.settings.queue {
                        self.lost += 1;
                        continue;
                    }
                    self.queue.push_back((client, datagram));
                    self.longest_queue = self.longest_queue.max(self.queue.len());
                    if !std::mem::replace(&mut self.works, true) {
                        self.at(now, Event::Free);
                    }
                }
                Event::Free => self.work(),
                Event::Due if self.due != Some(now) => {}
                Event::Due => {
                    self.due = None;
                    if !std::mem::replace(&mut self.works, true) {
                        self.work();
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends what the server was doing, and lets it compute a handshake or work on a datagram.
    fn work(&mut self) {
        let now = self.world.now;
        if let Some(computed) = self.computing.take() {
            let live = alloc::live_bytes();
            alloc::counting(true);
            let answer = self.world.finish(computed);
            alloc::counting(false);
            let sent = answer.as_ref().map_or(0, |(_, datagram)| datagram.capacity());
            self.kept += alloc::live_bytes() - live - sent as i64;
            if let Some((to, datagram)) = answer
                && let Some(client) = self.by_address.get(&to)
            {
                self.at(now + DELAY, Event::ToClient(*client, datagram));
            }
        }
        if self.queue.is_empty() {
            self.spent = (0, 0);
        }
        let has_turn = self.queue.is_empty() || self.spent.1 * WEIGHT <= self.spent.0;
        if has_turn && let Some(handshake) = self.world.server.next_handshake(now) {
            self.computing = Some(handshake.compute());
            self.spent.1 += self.settings.handshake;
            return self.at(now + Duration::from_micros(self.settings.handshake), Event::Free);
        }
        let Some((client, datagram)) = self.queue.pop_front() else {
            self.works = false;
            let due = self.world.server.handshake_due().map(|due| due.max(now + Duration::from_micros(1)));
            if let Some(due) = due
                && self.due.replace(due) != Some(due)
            {
                self.at(due, Event::Due);
            }
            return;
        };
        self.serve(client, datagram);
    }

    /// Lets the server work on a datagram.
    fn serve(&mut self, client: usize, mut datagram: Vec<u8>) {
        let known = self.world.server.conversations();
        let live = alloc::live_bytes();
        alloc::counting(true);
        let answers = self.world.serve(self.clients[client].from, &mut datagram);
        alloc::counting(false);
        // The answers are on their way, and not the server's any more.
        let sent =
            answers.iter().map(Vec::capacity).sum::<usize>() + answers.capacity() * size_of::<Vec<u8>>();
        let kept = alloc::live_bytes() - live - sent as i64;
        if self.world.server.conversations() == known {
            self.kept_by_waiting += kept;
        }
        self.kept += kept;
        self.spent.0 += self.settings.datagram;
        let end = self.world.now + Duration::from_micros(self.settings.datagram);
        for answer in answers {
            self.at(end + DELAY, Event::ToClient(client, answer));
        }
        self.at(end, Event::Free);
    }

    /// Sends what a client has to send, and notes how its call has ended.
    fn go_on(&mut self, client: usize, ended: Option<Ended>) -> Result<()> {
        let now = self.world.now;
        match ended {
            Some(Ended::Returned) => _ = self.done.insert(client, now.since(self.began)),
            Some(Ended::Failed(kind, ran)) => {
                *self.failed.entry((format!("{kind:?}"), format!("{ran:?}"))).or_default() += 1;
                // The client calls again, unless it was told that there is no server.
                if kind != Kind::Unreachable {
                    self.clients[client].start(now)?;
                }
            }
            _ => {}
        }
        for datagram in self.clients[client].sends(now) {
            self.at(now + DELAY, Event::ToServer(client, datagram));
        }
        if !self.done.contains_key(&client)
            && let Some(due) = self.clients[client].core.timeout()
        {
            self.set_timer(client, due.max(now + Duration::from_micros(1)));
        }
        Ok(())
    }

    fn tell(&self) {
        let mut times: Vec<Duration> = self.done.values().copied().collect();
        times.sort();
        let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len() - 1));
        let waited = self.waits.iter().filter(|waits| **waits > 0).count();
        let waits: u64 = self.waits.iter().map(|waits| u64::from(*waits)).sum();
        println!(
            "{} clients call within {} ms after the restart: {} are back; half after {:?}, the last after {:?} of \
             virtual time; {waited} were told to wait, {waits} times in all, one of them {} times; calls that \
             failed: {:?}; {} handshakes; {} datagrams came, {} were lost because {} were in the queue; the \
             server kept {} bytes for datagrams that led to no conversation, {:.1} for each conversation; calls \
             executed twice: {}",
            self.clients.len(),
            self.settings.within,
            self.done.len(),
            at(0.5),
            at(1.0),
            self.waits.iter().max().unwrap_or(&0),
            self.failed,
            self.world.handshakes(),
            self.arrived,
            self.lost,
            self.longest_queue,
            self.kept_by_waiting,
            self.kept as f64 / self.world.server.conversations().max(1) as f64,
            self.world.executed_twice()
        );
    }
}
