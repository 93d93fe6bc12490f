//! Transfers long messages or streams over one path, one after another, and measures how long that takes and
//! what it costs.

use std::net::SocketAddr;

use farcall_proto::client::{Call, CallId, Conversation, Event, Outcome};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, Mutant, ServerConfig, Tail, Time};

use crate::net::{Nanos, Net, Path, SECS, Step, address};
use crate::rng::Rng;

/// What the bytes of a transfer are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// The result of a call.
    #[default]
    Result,
    /// The arguments of a call.
    Arguments,
    /// What the server sends in an exchange, as a stream of items or bulk data is.
    Down,
    /// What the client sends in an exchange.
    Up,
}

/// Transfers to make, and the path for them.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// The size of each transfer in bytes. It is a multiple of four.
    pub bytes: usize,
    /// What the bytes are.
    pub load: Load,
    /// How many transfers follow one another in the conversation, at least one.
    pub transfers: u32,
    /// The path, both ways.
    pub path: Path,
    /// The seed of the network.
    pub seed: u64,
    /// A deliberate fault of both ends.
    pub mutant: Mutant,
}

/// The cost of all transfers.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Virtual time from the first call's start to its end. The client has bound before.
    pub elapsed: Nanos,
    /// How long the last call took.
    pub last: Nanos,
    /// The bytes and the datagrams that the server sent.
    pub sent: (u64, u64),
    /// The bytes and the datagrams that the client sent.
    pub client_sent: (u64, u64),
    /// How many calls, fragments and pieces of exchanges the two ends sent again.
    pub repeated: u64,
    /// Whether all transfers arrived, unchanged.
    pub intact: bool,
    /// The virtual time for which both ends were watched after the last call's end.
    pub watched: Nanos,
    /// The number of datagrams that the two ends sent after the first ten seconds of `watched`.
    pub idle_datagrams: u64,
}

#[derive(Clone, Copy)]
enum Timer {
    Client,
    Server,
    /// The watch is over.
    End,
}

struct Pair {
    net: Net<Timer>,
    client: Conversation,
    server: Server,
    armed: [Nanos; 2],
    out: Vec<u8>,
    load: Load,
    body: Vec<u8>,
    /// When the call began, its names at both ends, and how its user's end of an exchange goes on.
    began: Nanos,
    id: Option<CallId>,
    key: Option<CallKey>,
    sent: usize,
    came: Vec<u8>,
    /// How many transfers are still to begin, how long each took, and how many were intact.
    left: u32,
    took: Vec<Nanos>,
    intact: usize,
    /// How many binds the client sent again, which does not count.
    binds: u64,
    ended: Option<Nanos>,
    late: u64,
}

const CLIENT: (usize, u16) = (0, 40_000);
const SERVER: (usize, u16) = (1, 7000);

/// What a call sends of which the arguments, or the result, are not the transfer.
const SHORT: &[u8] = b"send it!";

/// How long both ends are watched after the last call.
const WATCHED: Nanos = 3600 * SECS;

impl Bulk {
    /// Binds, makes the calls, and then watches both ends for an hour.
    pub fn run(&self) -> Transfer {
        let mut rng = Rng::new(self.seed);
        let mut net = Net::new(rng.fork(), 2, 0);
        net.paths().fill(self.path);
        net.bind(address(CLIENT.0, CLIENT.1));
        net.bind(address(SERVER.0, SERVER.1));
        let mutant = self.mutant;
        let settings = ServerConfig { mutant, ..ServerConfig::default() };
        let mut server = Server::new(settings, Time::from_nanos(1), [7; 32]);
        let (type_name, instance) = ("Bulk".to_string(), String::new());
        server.export(Export {
            id: 1,
            type_name,
            instance,
            procedures: vec![Fingerprint { number: 1, types: 1, name: 0 }],
        });
        let settings = ClientConfig { mutant, ..ClientConfig::default() };
        let client = Conversation::new(settings, rng.next() | 1);
        let mut body = vec![0; self.bytes];
        rng.fill(&mut body);
        let mut pair = Pair {
            net,
            client,
            server,
            armed: [Nanos::MAX; 2],
            out: vec![0; 1 << 16],
            load: self.load,
            body,
            began: 0,
            id: None,
            key: None,
            sent: 0,
            came: Vec::new(),
            left: self.transfers,
            took: Vec::new(),
            intact: 0,
            binds: 0,
            ended: None,
            late: 0,
        };
        pair.transfer()
    }
}

impl Pair {
    fn transfer(&mut self) -> Transfer {
        self.client.bind(Time::from_nanos(1), "Bulk", 0);
        self.settle();
        while let Some((at, step)) = self.net.step() {
            let now = Time::from_nanos(at + 1);
            match step {
                Step::Datagram { to, bytes, .. } if to == address(CLIENT.0, CLIENT.1) => {
                    let mut ended = Ended::default();
                    self.client.receive(now, &bytes, &mut |event| ended.note(event));
                    self.net.recycle(bytes);
                    self.on_end(at, ended);
                }
                Step::Datagram { from, bytes, .. } => self.serve(now, from, bytes),
                Step::Refused { .. } => {}
                Step::Event(Timer::End) => break,
                Step::Event(Timer::Client) => {
                    self.armed[0] = Nanos::MAX;
                    let mut ended = Ended::default();
                    self.client.handle_timeout(now, &mut |event| ended.note(event));
                    self.on_end(at, ended);
                }
                Step::Event(Timer::Server) => {
                    self.armed[1] = Nanos::MAX;
                    self.server.handle_timeout(now);
                }
            }
            self.pass_inside(at);
            self.settle();
        }
        let (client, server) = (self.client.stats(), self.server.stats());
        let whole = self.ended.is_some();
        let took = |at: Option<&Nanos>| at.copied().filter(|_| whole).unwrap_or(Nanos::MAX);
        Transfer {
            elapsed: took(self.took.first()),
            last: took(self.took.last()),
            sent: (server.bytes_sent, server.sent),
            client_sent: (client.bytes_sent, client.sent),
            repeated: server.retransmitted + client.retransmitted - self.binds,
            intact: whole && self.intact == self.took.len(),
            watched: WATCHED,
            idle_datagrams: self.late,
        }
    }

    /// Starts the next call, if there is one.
    fn start(&mut self, at: Nanos) {
        let Some(left) = self.left.checked_sub(1) else {
            self.ended = Some(at);
            return self.net.after(WATCHED, Timer::End);
        };
        let mut arguments = if self.load == Load::Arguments { self.body.clone() } else { SHORT.to_vec() };
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 1 };
        let now = Time::from_nanos(at + 1);
        let id = self.client.start(|| now, &call, &mut arguments).expect("nothing is outstanding");
        (self.left, self.began, self.id, self.key) = (left, at, Some(id), None);
        (self.sent, self.came) = (0, Vec::new());
        if self.load == Load::Up {
            self.client.open_exchange(id);
        }
    }

    /// Notes how a call ended, and starts the next one.
    fn on_end(&mut self, at: Nanos, ended: Ended) {
        if ended.is_bound {
            self.binds = self.client.stats().retransmitted;
            return self.start(at);
        }
        let Some(result) = ended.result else { return };
        let intact = match self.load {
            Load::Result => result == self.body,
            Load::Arguments => result == SHORT,
            Load::Down | Load::Up => result == SHORT && self.came == self.body,
        };
        self.intact += usize::from(intact);
        self.took.push(at - self.began);
        self.start(at);
    }

    fn serve(&mut self, now: Time, from: SocketAddr, bytes: Vec<u8>) {
        let (mut asked, body, load) = (None, &self.body, self.load);
        self.server.receive(now, from, &bytes, &mut |request| {
            if let Request::Call(call) = request {
                let expected = if load == Load::Arguments { body } else { SHORT };
                asked = (call.args == expected).then_some(call.key);
            }
        });
        self.net.recycle(bytes);
        let Some(key) = asked else { return };
        self.key = Some(key);
        match self.load {
            Load::Result => self.finish(now, key, &self.body.clone()),
            Load::Arguments => self.finish(now, key, SHORT),
            Load::Down => _ = self.server.open_exchange(key),
            Load::Up => {}
        }
    }

    fn finish(&mut self, now: Time, key: CallKey, result: &[u8]) {
        self.key = None;
        let sent = self.server.finish(now, key, Finish::Result, &mut result.to_vec(), &mut self.out);
        if let Some(t) = sent {
            self.net.send(address(SERVER.0, SERVER.1), t.to, &self.out[..t.len]);
        }
    }

    /// Sends and takes as much in the call's exchange as is possible.
    fn pass_inside(&mut self, at: Nanos) {
        let (now, Some(id)) = (Time::from_nanos(at + 1), self.id) else { return };
        while self.client.next_news().is_some() {}
        while self.server.next_news().is_some() {}
        let rest = &self.body[self.sent..];
        match (self.load, self.key) {
            (Load::Down, key) => {
                if let Some(key) = key
                    && let Some(sent) = self.server.send_in(key, 2, rest, Tail::End)
                {
                    self.sent += sent;
                    if sent == rest.len() {
                        self.finish(now, key, SHORT);
                    }
                }
                let mut ended = Ended::default();
                let sink = &mut |event: Event<'_>| ended.note(event);
                self.client.take_from(id, 2, &mut self.came, usize::MAX, sink);
                self.on_end(at, ended);
            }
            (Load::Up, key) => {
                self.sent += self.client.send_in(id, 1, rest, Tail::End).unwrap_or(0);
                if let Some(key) = key
                    && self.server.take_from(key, 1, &mut self.came, usize::MAX) == Some(true)
                {
                    self.finish(now, key, SHORT);
                }
            }
            (Load::Result | Load::Arguments, _) => {}
        }
    }

    /// Sends everything that is ready, and sets the timers.
    fn settle(&mut self) {
        let at = self.net.now();
        let now = Time::from_nanos(at + 1);
        let (client, server) = (address(CLIENT.0, CLIENT.1), address(SERVER.0, SERVER.1));
        let before = self.client.stats().sent + self.server.stats().sent;
        while let Some(len) = self.client.transmit(now, &mut self.out) {
            self.net.send(client, server, &self.out[..len]);
        }
        while let Some(t) = self.server.transmit(now, &mut self.out) {
            self.net.send(server, t.to, &self.out[..t.len]);
        }
        if self.ended.is_some_and(|ended| at > ended + 10 * SECS) {
            self.late += self.client.stats().sent + self.server.stats().sent - before;
        }
        let due = [(self.client.timeout(), Timer::Client), (self.server.timeout(), Timer::Server)];
        for (armed, (due, timer)) in self.armed.iter_mut().zip(due) {
            let Some(due) = due.map(|t| t.as_nanos().saturating_sub(1).max(at)) else {
                continue;
            };
            if due < *armed {
                *armed = due;
                self.net.at(due, timer);
            }
        }
    }
}

/// What the client was told.
#[derive(Default)]
struct Ended {
    is_bound: bool,
    result: Option<Vec<u8>>,
}

impl Ended {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Bound { .. } => self.is_bound = true,
            Event::Ended { outcome: Outcome::Result(result), .. } => self.result = Some(result.into_owned()),
            Event::Ended { .. } => self.result = Some(Vec::new()),
        }
    }
}
