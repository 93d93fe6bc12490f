//! A simulated server: the protocol's server, with a user that executes procedures.

mod exchanging;
#[cfg(feature = "soak")]
mod handshakes;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use farcall_memory::posted::{Streams, Write};
use farcall_proto::secure::{Opened, seal_by};
use farcall_proto::server::{CallKey, Export, Finish, Incoming, Insert, Reading, Request, Server, Transmit};
use farcall_proto::{Failure, Fingerprint, Kind, News, Ran, Time};
use xxhash_rust::xxh3::xxh3_64;

use self::exchanging::Doing;
use crate::clock::Clock;
use crate::ground::{Event, Ground};
use crate::hostile::{addresses, answered_by};
use crate::memory::{FORGOTTEN, Head, KNOWN, OPEN, POSTED, Post, REFUSED};
use crate::names::{NAME, OTHER};
use crate::net::{FORGER, Nanos, SECS, address, host, network};

/// One server and its machine.
pub struct ServerNode {
    /// The number of the machine, which is also its host's.
    pub index: usize,
    /// The server's address.
    pub address: SocketAddr,
    /// Its machine's clock.
    pub clock: Clock,
    /// The protocol's server, while the process is alive.
    pub core: Option<Server>,
    /// How often the process was started.
    pub life: u32,
    /// Whether the process is stopped.
    pub stopped: bool,
    /// Since when the process has been dead.
    pub dead_since: Nanos,
    export: u64,
    /// The streams of posted writes to the server's exported memory.
    streams: Streams<()>,
    inbox: Vec<(SocketAddr, Vec<u8>)>,
    /// When the server last received from each conversation.
    heard: HashMap<u64, Nanos>,
    resumed_at: Nanos,
    /// The time of the earliest timer event in the queue.
    armed: Nanos,
    /// Requests of the protocol's server that were not handled yet.
    asked: Vec<Ask>,
    /// Calls that were taken and are not finished, by this server's own numbers.
    jobs: Vec<(u64, Job)>,
    taken: u64,
    waiting: VecDeque<u64>,
    executing: usize,
    #[cfg(feature = "soak")]
    handshakes: handshakes::Handshakes,
    /// The most bytes that may answer the datagram just received, if the hostile peer sent it.
    answers: Option<usize>,
}

/// The number of datagrams that the socket buffer of a stopped process holds.
pub const SOCKET_BUFFER: usize = 256;

/// After this many datagrams of a run a server counts again what it keeps.
const AUDITED: u64 = 128;

/// The difference of the identifiers of a server's two exports.
const OTHER_EXPORT: u64 = 1 << 40;

/// The longest time from the sending of an outcome until the sending is noted.
const NOTED: Nanos = 200_000;

enum Ask {
    Call(Job),
    Post(u64, Vec<u8>),
    Cancel(CallKey),
}

struct Job {
    key: CallKey,
    call: usize,
    /// Whether the call was executed before.
    again: bool,
    deadline: Option<farcall_proto::Time>,
    executing: bool,
    /// What the procedure does in the exchanges of the call, while it is executed.
    doing: Option<Box<Doing>>,
    /// News of its exchanges that came before that.
    early: Vec<(u32, News)>,
}

impl ServerNode {
    /// Makes a server on a machine of its own, which is not started yet.
    pub fn new(index: usize, g: &mut Ground) -> ServerNode {
        let grain = if g.rng.chance(300_000) { 1_000_000 } else { 1 };
        let clock = Clock::new(&mut g.rng, 0, g.plan.drift, grain);
        ServerNode {
            index,
            address: address(index, 7000),
            clock,
            core: None,
            life: 0,
            stopped: false,
            dead_since: 0,
            export: 0,
            streams: Streams::new(g.plan.streams, g.plan.posting),
            inbox: Vec::new(),
            heard: HashMap::new(),
            resumed_at: 0,
            armed: Nanos::MAX,
            asked: Vec::new(),
            jobs: Vec::new(),
            taken: 0,
            waiting: VecDeque::new(),
            executing: 0,
            #[cfg(feature = "soak")]
            handshakes: handshakes::Handshakes::default(),
            answers: None,
        }
    }

    /// Starts the process: a new incarnation that knows nothing.
    pub fn start(&mut self, g: &mut Ground) {
        let mut secret = [0; 32];
        g.rng.fill(&mut secret);
        self.clock.go_on(g.now());
        let now = self.clock.read(g.now());
        self.life += 1;
        #[cfg(feature = "soak")]
        let config =
            crate::keys::server_config(&g.plan.server, g.plan.secret.as_ref(), self.index, self.life);
        #[cfg(not(feature = "soak"))]
        let config = g.plan.server.clone();
        self.core = Some(Server::new(config, now, secret));
        g.oracle.born(g.net.now(), self.index);
        self.stopped = false;
        self.export_anew(g);
        g.server_forgot(self.index);
        g.net.bind(self.address);
    }

    /// Kills the process, which loses all that it knew.
    pub fn crash(&mut self, g: &mut Ground) {
        self.count_evictions(g);
        g.net.unbind(self.address);
        self.core = None;
        self.dead_since = g.now();
        self.armed = Nanos::MAX;
        self.inbox.clear();
        self.asked.clear();
        self.jobs.clear();
        self.waiting.clear();
        self.executing = 0;
        #[cfg(feature = "soak")]
        self.forget_handshake();
    }

    /// Returns whether the process is alive and not stopped.
    pub fn runs(&self) -> bool {
        self.core.is_some() && !self.stopped
    }

    /// Restores the machine and its clock to `snapshot`, which was taken at `then`. The machine forgets what
    /// the network has delivered since.
    pub fn restore(&mut self, g: &mut Ground, snapshot: ServerNode, then: Nanos) {
        if self.core.is_none() {
            g.net.bind(self.address);
        }
        let (address, mut taken) = (self.address, self.taken);
        *self = ServerNode { address, armed: Nanos::MAX, resumed_at: g.now(), ..snapshot };
        self.clock.pause(then);
        self.clock.go_on(g.now());
        #[cfg(feature = "soak")]
        self.disarm_handshakes();
        // Running jobs go on under new numbers, so that no pending event ends them.
        for (number, job) in &mut self.jobs {
            taken += 1;
            job.doing.iter_mut().for_each(|doing| doing.wake_at = 0);
            match self.waiting.iter_mut().find(|waits| *waits == number) {
                Some(waits) => *waits = taken,
                None => {
                    let most = if job.executing { g.plan.slowest } else { NOTED };
                    let takes = g.rng.spread(1, most);
                    g.net.after(takes, Event::Done { server: self.index, job: taken });
                }
            }
            *number = taken;
        }
        self.taken = taken;
        self.settle(g);
    }

    /// Adds the conversations that this life forgot to the counts.
    pub fn count_evictions(&self, g: &mut Ground) {
        if let Some(core) = &self.core {
            g.net.faults.evictions += core.stats().evicted;
        }
    }

    /// Withdraws the export, if there is one, and offers it under a new identifier.
    pub fn export_anew(&mut self, g: &mut Ground) {
        let Some(core) = &mut self.core else { return };
        if self.export != 0 {
            core.withdraw(self.export);
            core.withdraw(self.export ^ OTHER_EXPORT);
        }
        self.export = g.rng.next() | 1;
        g.oracle.exported(self.index, self.export);
        self.streams = Streams::new(g.plan.streams, g.plan.posting);
        core.export(Export {
            id: self.export,
            type_name: NAME.into(),
            instance: String::new(),
            procedures: [1, 2].map(|n| Fingerprint { number: n, types: n.into(), name: n.into() }).into(),
        });
        if g.plan.scheme().is_some() {
            // A client must not bind to this one, because the server's key is not granted for its name.
            let other = self.export ^ OTHER_EXPORT;
            let (type_name, instance) = (OTHER.into(), String::new());
            core.export(Export { id: other, type_name, instance, procedures: Vec::new() });
        }
    }

    /// Refuses new calls, and tells the clients.
    pub fn drain(&mut self, g: &mut Ground) {
        let now = self.clock.read(g.now());
        let Some(core) = &mut self.core else { return };
        core.drain(now, None);
        core.tell_drain(None);
        self.settle(g);
    }

    /// Returns how many calls the user has not finished.
    pub fn busy(&self) -> usize {
        self.executing + self.waiting.len()
    }

    /// Delivers a datagram to the server's socket.
    pub fn receive(&mut self, g: &mut Ground, from: SocketAddr, bytes: Vec<u8>) {
        let from = g.seen(from);
        if !self.stopped {
            self.handle(g, from, bytes);
            return self.settle(g);
        }
        if self.inbox.len() < SOCKET_BUFFER {
            self.inbox.push((from, bytes));
        }
    }

    /// Continues the stopped process. It first receives the datagrams that have come meanwhile, then acts on
    /// timers.
    pub fn resume(&mut self, g: &mut Ground) {
        (self.stopped, self.resumed_at) = (false, g.now());
        g.oracle.server_paused(self.index, self.clock.go_on(g.net.now()));
        for (from, bytes) in std::mem::take(&mut self.inbox) {
            self.handle(g, from, bytes);
        }
        self.answers = None;
        self.tick(g);
    }

    /// Acts on a timer event, unless an earlier event has replaced it.
    pub fn wake(&mut self, g: &mut Ground) {
        if g.now() >= self.armed {
            self.tick(g);
        }
    }

    fn tick(&mut self, g: &mut Ground) {
        self.armed = Nanos::MAX;
        if self.stopped {
            return;
        }
        let now = self.clock.read(g.now());
        let Some(core) = &mut self.core else { return };
        if core.timeout().is_some_and(|t| t <= now) {
            g.note(&[2, self.index as u64], || format!("server {} timer", self.index));
            core.handle_timeout(now);
            let forsaken: Vec<CallKey> = std::iter::from_fn(|| core.next_forsaken()).collect();
            // All of them are marked by now: when one ends, another one may be executed in its place.
            forsaken.iter().for_each(|key| self.note_forsaken(g, *key));
            forsaken.into_iter().for_each(|key| self.give_up(g, key));
        }
        self.settle(g);
        if self.core.as_ref().and_then(Server::timeout).is_some_and(|t| t <= now) {
            g.oracle.violate("timers-move-on", g.net.now(), || format!("server {}", self.index));
        }
    }

    /// Ends a procedure, unless its process died or the call was given up.
    pub fn done(&mut self, g: &mut Ground, job: u64) {
        if self.stopped {
            return g.net.after(SECS, Event::Done { server: self.index, job });
        }
        if self.is_doing(job) {
            self.act_inside(g, job);
            return self.settle(g);
        }
        if let Some(job) = self.remove(job) {
            match g.oracle.calls[job.call].is_access() {
                true => self.execute_access(g, job),
                false => self.finish_executed(g, job),
            }
            self.settle(g);
        }
    }

    fn handle(&mut self, g: &mut Ground, from: SocketAddr, mut bytes: Vec<u8>) {
        let now = self.clock.read(g.now());
        if self.core.is_none() {
            return;
        }
        g.server_received(self.index, from, bytes.len());
        let kept = self.kept(g);
        let harms = g.plan.hostile && host(from) == g.hostile() && from.port() < FORGER;
        let answers = answered_by(&bytes).filter(|_| harms);
        let stats = self.core.as_ref().map(|core| *core.stats()).unwrap_or_default();
        let before = (stats.received, stats.challenges + stats.stale);
        let digest = xxh3_64(&bytes);
        let Ok(opened) = self.unseal(now, from, &mut bytes) else { return g.net.recycle(bytes) };
        let unsealed = g.plan.scheme().is_some() && opened.is_none();
        if self.answer(g, from, &bytes, opened).is_some() {
            self.note_heard(g.now(), from, &bytes, before);
            if opened.is_some() {
                g.acted_upon(self.index, digest);
            }
            return g.net.recycle(bytes);
        }
        let Some(core) = &mut self.core else { return };
        let export = self.export;
        let (oracle, asked, index, at) = (&mut g.oracle, &mut self.asked, self.index, g.net.now());
        let mut call = |incoming: Incoming<'_>| {
            let call = oracle.arrived(at, index, export, &incoming)?;
            let Incoming { key, deadline, again, .. } = incoming;
            Some(Ask::Call(Job {
                key,
                call,
                again,
                deadline,
                executing: false,
                doing: None,
                early: Vec::new(),
            }))
        };
        let lone = core.receive_call(now, || now, &from, (&bytes, opened), &mut |request| match request {
            Request::Call(incoming) => asked.extend(call(incoming)),
            Request::Post(export, bytes, _) => asked.push(Ask::Post(export, bytes.to_vec())),
            Request::Cancel(key) => asked.push(Ask::Cancel(key)),
        });
        if let Some(incoming) = lone {
            asked.extend(call(incoming));
        }
        if unsealed && !self.asked.is_empty() {
            g.oracle.violate("nothing-unsealed-is-believed", at, || format!("server {index}"));
        }
        if opened.is_some() && self.core.as_ref().is_some_and(|core| core.stats().received > before.0) {
            g.acted_upon(index, digest);
        }
        let evicted = self.check_kept(g, kept, bytes.len());
        // Callers of evicted calls are told about the eviction.
        self.answers = answers.map(|answers| answers + 80 * evicted as usize);
        if !unsealed {
            self.note_heard(g.now(), from, &bytes, before);
        }
        g.net.recycle(bytes);
        for ask in std::mem::take(&mut self.asked) {
            match ask {
                Ask::Call(job) if g.oracle.calls[job.call].is_access() => self.access(g, job),
                Ask::Call(job) => self.take(g, job),
                Ask::Post(export, bytes) => self.post(g, export, &bytes),
                Ask::Cancel(key) => self.give_up(g, key),
            }
        }
    }

    /// Opens a datagram in place if it is sealed.
    ///
    /// # Errors
    /// If it does not open.
    fn unseal(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) -> Result<Option<Opened>, ()> {
        #[cfg(feature = "soak")]
        if farcall_proto::secure::is_sealed(datagram) {
            let core = self.core.as_mut().ok_or(())?;
            let cipher = core.cipher(now, &from, datagram).ok_or(())?;
            let opened = farcall_proto::secure::open(&cipher, datagram);
            if opened.is_none() {
                core.note_unopened(now, datagram);
            }
            return opened.map(Some).ok_or(());
        }
        let _ = (now, from, datagram);
        Ok(None)
    }

    /// Answers a reading at once, if the protocol allows that.
    fn answer(
        &mut self,
        g: &mut Ground,
        from: SocketAddr,
        bytes: &[u8],
        opened: Option<Opened>,
    ) -> Option<()> {
        let (at, now) = (g.now(), self.clock.read(g.now()));
        let core = self.core.as_mut()?;
        let (oracle, index, export) = (&mut g.oracle, self.index, self.export);
        let read = |reading: Reading<'_>, room: &mut [u8]| oracle.read(at, index, export, &reading, room);
        let t = core.answer_reading(now, &from, Reading::peek(bytes, opened)?, &mut g.scratch, read)?;
        self.send(g, &t);
        Some(())
    }

    /// Seals what was written into the scratch buffer, and sends it.
    fn send(&self, g: &mut Ground, t: &Transmit) {
        seal_by(&t.cipher, &mut g.scratch[..t.len]);
        g.server_sent(self.index, t.to, t.len);
        g.send(self.address, t.to, t.len);
    }

    /// Executes an access at once, or after other calls.
    fn access(&mut self, g: &mut Ground, job: Job) {
        if !g.rng.chance(g.plan.deferred) {
            return self.execute_access(g, job);
        }
        self.taken += 1;
        self.jobs.push((self.taken, job));
        g.net.after(g.rng.below(NOTED), Event::Done { server: self.index, job: self.taken });
    }

    fn execute_access(&mut self, g: &mut Ground, job: Job) {
        let call = g.oracle.calls[job.call];
        self.check_mark(g, &job);
        let (importer, principal) = (None, None);
        // No two calls have the same number, so it does for a random one.
        let number = 1 + job.call as u64;
        let head = match call.procedure {
            OPEN if !call.exception => {
                Head { word: self.streams.open(importer, principal, number), ..Head::default() }
            }
            POSTED => match self.streams.posted(principal, call.stream) {
                Some((word, None)) => Head { word, status: KNOWN, ..Head::default() },
                Some((word, Some(()))) => Head { word, status: REFUSED, ..Head::default() },
                None => Head { status: FORGOTTEN, ..Head::default() },
            },
            _ => Head::default(),
        };
        g.note(&[18, self.index as u64, job.call as u64], || {
            format!("server {} accesses memory for call {}", self.index, job.call)
        });
        g.oracle.access(g.net.now(), job.call, head);
        g.last_done = g.now();
        self.finish(g, job, if call.exception { Finish::Exception } else { Finish::Result });
    }

    /// Does a posted write, if it is the next of its stream.
    fn post(&mut self, g: &mut Ground, export: u64, bytes: &[u8]) {
        let Some((post, _)) = Post::read(bytes) else { return };
        let refuses = g.rng.chance(g.plan.refuse / 10);
        let (at, oracle, whose) = (g.net.now(), &mut g.oracle, (self.index, export));
        self.streams.post(None, post.stream, post.number, || {
            oracle.post(at, whose, bytes, refuses);
            if refuses { Write::Refused(()) } else { Write::Done }
        });
        g.note(&[19, self.index as u64, post.number], || format!("server {} got {post:?}", self.index));
    }

    /// Checks that the protocol states correctly whether a call was given up.
    fn check_mark(&self, g: &mut Ground, job: &Job) {
        let is = self.core.as_ref().is_some_and(|core| core.is_given_up(job.key));
        g.oracle.given_up(g.net.now(), job.call, is);
    }

    /// Checks that the protocol knows which calls are over for their callers.
    pub fn must_know_ended(&self, g: &mut Ground, since: Nanos) {
        let Some(core) = &self.core else { return };
        for (_, job) in &self.jobs {
            g.oracle.is_known_to_be_over(g.net.now(), job.call, since, core.is_given_up(job.key));
        }
    }

    /// Executes a call, queues it, or refuses it.
    fn take(&mut self, g: &mut Ground, job: Job) {
        let room = self.executing < g.plan.workers || self.waiting.len() < g.plan.queue;
        if !room || g.rng.chance(g.plan.refuse) {
            return self.refuse(g, job, Kind::Overloaded);
        }
        self.taken += 1;
        self.jobs.push((self.taken, job));
        if self.executing < g.plan.workers {
            return self.execute(g, self.taken);
        }
        self.waiting.push_back(self.taken);
    }

    fn remove(&mut self, number: u64) -> Option<Job> {
        let at = self.jobs.iter().position(|(n, _)| *n == number)?;
        Some(self.jobs.swap_remove(at).1)
    }

    fn execute(&mut self, g: &mut Ground, number: u64) {
        let now = self.clock.read(g.now());
        let Some(mut job) = self.remove(number) else {
            return;
        };
        if job.deadline.is_some_and(|d| d <= now) {
            self.refuse(g, job, Kind::Deadline);
            return self.next(g);
        }
        self.check_mark(g, &job);
        job.executing = true;
        self.executing += 1;
        let (size, exception) = (g.plan.size(&mut g.rng), g.rng.chance(100_000));
        g.note(&[3, self.index as u64, job.call as u64], || {
            format!("server {} executes call {}", self.index, job.call)
        });
        g.oracle.execute(g.net.now(), job.call, size, exception);
        if g.oracle.calls[job.call].inside {
            return self.begin_inside(g, number, job);
        }
        let (takes, client) = (g.plan.duration(&mut g.rng), g.oracle.calls[job.call].client);
        if takes == 0 {
            return self.finish_executed(g, job);
        }
        self.jobs.push((number, job));
        g.net.after(takes, Event::Done { server: self.index, job: number });
        // Some callers die while their call is executed for long; the server then gives the call up.
        if g.plan.chaos > 0 && takes > 2 * g.plan.client.patience.as_nanos() as Nanos && g.rng.chance(400_000)
        {
            let soon = g.rng.below(takes / 4);
            g.net.after(soon, Event::Crash(client));
        }
    }

    fn finish_executed(&mut self, g: &mut Ground, job: Job) {
        self.executing -= 1;
        g.last_done = g.now();
        self.check_silence(g, &job);
        self.check_mark(g, &job);
        if let Some(failure) = job.doing.as_ref().and_then(|doing| doing.failure()) {
            self.finish(g, job, failure.into());
        } else if g.rng.chance(2_000) {
            self.finish(g, job, Failure::new(Kind::Nested, Ran::Yes).into());
        } else if g.oracle.calls[job.call].exception {
            self.finish(g, job, Finish::Exception);
        } else {
            self.finish(g, job, Finish::Result);
        }
        self.next(g);
    }

    /// Starts the next waiting call, if a worker is free.
    fn next(&mut self, g: &mut Ground) {
        if self.executing < g.plan.workers
            && let Some(number) = self.waiting.pop_front()
        {
            self.execute(g, number);
        }
    }

    fn refuse(&mut self, g: &mut Ground, job: Job, kind: Kind) {
        g.note(&[4, self.index as u64, job.call as u64], || {
            format!("server {} refuses call {}: {kind}", self.index, job.call)
        });
        g.oracle.refuse(job.call);
        self.finish(g, job, Failure::new(kind, Ran::No).into());
    }

    /// Notes that a call was given up because its client was silent.
    fn note_forsaken(&self, g: &mut Ground, key: CallKey) {
        let Some((_, job)) = self.jobs.iter().find(|(_, job)| job.key == key) else { return };
        let silent = g.now().saturating_sub(self.heard.get(&key.conversation).copied().unwrap_or_default());
        g.note(&[21, self.index as u64, job.call as u64], || {
            format!("server {} gives call {} up: its client is silent", self.index, job.call)
        });
        g.oracle.forsaken(g.net.now(), job.call, silent);
    }

    /// Checks, at the end of a job, that its client was not silent for too long.
    fn check_silence(&self, g: &mut Ground, job: &Job) {
        let heard = self.heard.get(&job.key.conversation).copied().unwrap_or_default();
        let silent = g.now().saturating_sub(heard.max(self.resumed_at));
        g.oracle.goes_on(g.net.now(), job.call, silent);
    }

    /// Notes the time at which a datagram of a known conversation arrived from its client. A forger's
    /// datagram does not count, even if it is too broken to be challenged.
    fn note_heard(&mut self, now: Nanos, from: SocketAddr, bytes: &[u8], before: (u64, u64)) {
        let Some(core) = &self.core else { return };
        let after = (core.stats().received, core.stats().challenges + core.stats().stale);
        if let Some(conversation) = bytes.get(4..12).and_then(|id| id.try_into().ok())
            && after.0 > before.0
            && after.1 == before.1
            && from.port() < FORGER
        {
            self.heard.insert(u64::from_be_bytes(conversation), now);
        }
    }

    /// Gives a call up for its caller: a waiting call or access is refused, and an executing one may stop
    /// early.
    fn give_up(&mut self, g: &mut Ground, key: CallKey) {
        let found = self.jobs.iter().find(|(_, job)| job.key == key);
        let Some(&(number, Job { call, again, executing, .. })) = found else { return };
        if executing {
            g.oracle.calls[call].told = true;
            self.give_up_inside(g, number);
            if g.rng.chance(500_000)
                && let Some(job) = self.remove(number)
            {
                self.executing -= 1;
                self.finish(g, job, Failure::new(Kind::Cancelled, Ran::Yes).into());
                self.next(g);
            }
            return;
        }
        let Some(job) = self.remove(number) else { return };
        if again {
            return self.finish(g, job, Failure::new(Kind::Cancelled, Ran::Yes).into());
        }
        self.waiting.retain(|n| *n != number);
        self.refuse(g, job, Kind::Cancelled);
    }

    fn finish(&mut self, g: &mut Ground, job: Job, finish: Finish) {
        let Some(core) = &mut self.core else { return };
        let now = self.clock.read(g.net.now());
        let mut payload = core.buffer(now, 0);
        if !matches!(finish, Finish::Failed(_)) {
            g.oracle.write_result(job.call, &mut payload);
        }
        // The user gives every other long result in parts.
        let third = payload.len() / 3;
        if third > g.plan.server.max_datagram && job.call % 2 == 1 {
            let tail = payload.split_off(2 * third);
            let insert = Insert { at: third, bytes: payload.split_off(third).into() };
            payload.extend(tail);
            return core.finish_around(now, job.key, finish, &mut payload, insert);
        }
        if let Some(t) = core.finish(now, job.key, finish, &mut payload, &mut g.scratch) {
            self.send(g, &t);
        }
    }

    /// Sends everything that is ready, and sets the timer.
    fn settle(&mut self, g: &mut Ground) {
        let (at, now) = (g.now(), self.clock.read(g.now()));
        self.hear_inside(g);
        let Some(core) = &mut self.core else { return };
        if g.sent.is_multiple_of(AUDITED) {
            core.audit();
        }
        drop(core.take_loose());
        let (mut sent, mut answered) = (0, 0);
        while let Some(mut t) = core.transmit(now, &mut g.scratch) {
            if t.insert.is_some() || t.cipher.is_some() {
                let datagram = t.gather(&g.scratch);
                t.len = datagram.len();
                g.scratch[..t.len].copy_from_slice(&datagram);
            }
            answered += if host(t.to) == g.hostile() { t.len } else { 0 };
            g.server_sent(self.index, t.to, t.len);
            if g.plan.anonymous {
                g.make_refusal_anonymous(t.len);
            }
            g.send(self.address, t.to, t.len);
            sent += 1;
            if sent > 100_000 {
                return g.oracle.violate("sending-ends", at, || format!("server {}", self.index));
            }
        }
        let (flying, window) = (core.local_in_flight(), g.plan.server.local_window);
        if flying > window {
            g.oracle.violate("local-window-is-kept", at, || {
                format!("server {}: {flying} of {window}", self.index)
            });
        }
        if let Some(most) = self.answers.take().filter(|most| answered > *most) {
            g.oracle.violate("answers-are-bounded", at, || format!("{answered} bytes, not {most}"));
        }
        let config = &g.plan.server;
        // The latest message may exceed its budget. So may one result that is being sent in fragments, if it
        // is the only one.
        let budget = config.held_budget
            + config.held_budget.max(config.max_datagram.min(g.plan.largest as usize + 64))
            + config.reassembly_budget
            + config.sending_budget.max(g.plan.largest as usize);
        if core.conversations() > config.max_conversations || core.held_bytes() > budget {
            let seen = (core.conversations(), core.held_bytes());
            g.oracle.violate("memory-is-bounded", at, || format!("server {} holds {seen:?}", self.index));
        }
        if let Some(due) = core.timeout() {
            let due = self.clock.when(at, due);
            if due < self.armed {
                self.armed = due;
                g.net.at(due, Event::Wake(self.index));
            }
        }
        #[cfg(feature = "soak")]
        self.arm_handshakes(g);
    }

    /// Returns the bytes of arriving arguments of each host, if there is a hostile peer, and how often a
    /// message was evicted.
    fn kept(&self, g: &Ground) -> Option<(KeptArguments, u64)> {
        let core = self.core.as_ref().filter(|_| g.plan.hostile)?;
        let clients = (g.plan.servers..g.hostile()).map(|host| address(host, 0).ip());
        let hosts = clients.chain(addresses(g.hostile())).map(|ip| g.seen(SocketAddr::new(ip, 0)).ip());
        let kept = hosts.map(|ip| (ip, core.kept_for(ip).arguments));
        Some((KeptArguments(kept.collect()), core.stats().evicted_calls))
    }

    /// Checks that the memory which the hostile peer makes the server keep is bounded by the bytes that the
    /// peer sent, and that the network which uses most memory loses it first, and of its hosts the one that
    /// uses most.
    fn check_kept(&self, g: &mut Ground, before: Option<(KeptArguments, u64)>, len: usize) -> u64 {
        let (Some(core), Some((before, evicted))) = (&self.core, before) else { return 0 };
        let (at, budget) = (g.now(), g.plan.server.reassembly_budget);
        let Some((after, _)) = self.kept(g) else { return 0 };
        let kept = addresses(g.hostile()).map(|ip| core.kept_for(g.seen(SocketAddr::new(ip, 0)).ip()));
        let kept = kept.fold((0, 0), |(arguments, activities), host| {
            (arguments + host.arguments, activities + host.activities)
        });
        let sent = g.harm(self.index);
        // Each frame of 44 bytes may begin a call, which counts 256 bytes, and be a piece of its own; an
        // activity far ahead counts 64.
        if kept.0 > 10 * sent || kept.1 > 4 * sent {
            g.oracle.violate("memory-is-what-was-sent", at, || format!("{kept:?} for {sent} bytes"));
        }
        if after.0.iter().map(|(_, bytes)| bytes).sum::<usize>() > budget {
            g.oracle.violate("memory-is-bounded", at, || format!("{after:?} of {budget} bytes of arguments"));
        }
        let (paid, times) = (core.stats().paid, core.stats().evicted_calls - evicted);
        // The bytes of one datagram may have made its host the one with most memory, because a buffer doubles
        // when it grows. Hosts and networks are compared in thousandths of the budget.
        let margin = 20 * len + budget / 500;
        if let Some(paid) = paid.filter(|_| times == 1) {
            let is_less = |[had, most]: [usize; 2]| 2 * had + margin < most;
            if is_less(before.of_network(paid.ip())) || is_less(before.of_host(paid.ip())) {
                g.oracle.violate("who-has-most-pays", at, || format!("{paid} paid: {before:?}"));
            }
        }
        times
    }

    /// Asserts at the end of the run that the server keeps nothing and no timer runs.
    pub fn must_be_idle(&self, g: &mut Ground) {
        let Some(core) = &self.core else { return };
        let held = (core.held_bytes(), core.exchange_bytes(), core.news());
        let left = (held, core.unfinished(), core.timeout(), self.busy() + self.jobs.len());
        core.audit();
        if left != ((0, 0, 0), 0, None, 0) {
            let now = g.now();
            g.oracle.violate("memory-returns", now, || {
                format!("server {}: held, unfinished, timeout, busy are {left:?}", self.index)
            });
        }
    }
}

/// The bytes of arriving arguments that a server keeps for each host.
#[derive(Debug)]
struct KeptArguments(Vec<(IpAddr, usize)>);

impl KeptArguments {
    /// Returns how much is kept for the network of a host, and the most that is kept for any network.
    fn of_network(&self, host: IpAddr) -> [usize; 2] {
        let of = |of| self.0.iter().filter(|(ip, _)| network(*ip) == of).map(|(_, bytes)| bytes).sum();
        [of(network(host)), self.0.iter().map(|(ip, _)| of(network(*ip))).max().unwrap_or(0)]
    }

    /// Returns how much is kept for a host, and the most that is kept for any host of its network.
    fn of_host(&self, of: IpAddr) -> [usize; 2] {
        let mates = self.0.iter().filter(|(ip, _)| network(*ip) == network(of));
        let own = self.0.iter().filter(|(ip, _)| *ip == of);
        [own.map(|(_, bytes)| *bytes).sum(), mates.map(|(_, bytes)| *bytes).max().unwrap_or(0)]
    }
}
