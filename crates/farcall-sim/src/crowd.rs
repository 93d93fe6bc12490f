//! Many short calls at once over one path: how many end, and how many datagrams the path's queue drops.

use std::net::SocketAddr;

use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, Mutant, ServerConfig, Time};

use crate::net::{Nanos, Net, Path, Step, address};
use crate::rng::Rng;

/// Calls to keep outstanding, and the path for them.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// How many calls are outstanding at any time.
    pub outstanding: usize,
    /// The bytes of each call's arguments and of its result. They are a multiple of four.
    pub bytes: usize,
    /// How long the procedure takes.
    pub takes: Nanos,
    /// For how long calls are made.
    pub time: Nanos,
    /// The path, both ways.
    pub path: Path,
    /// The seed of the network.
    pub seed: u64,
    /// A deliberate fault of both ends.
    pub mutant: Mutant,
}

/// What became of the calls and of their datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Crowded {
    /// How many calls ended with the right result.
    pub ended: u64,
    /// How many calls ended otherwise.
    pub failed: u64,
    /// How many datagrams both ends sent.
    pub sent: u64,
    /// How many of them the path's queues dropped.
    pub dropped: u64,
    /// How many calls the client sent again.
    pub repeated: u64,
}

enum Timer {
    Client,
    Server,
    /// A procedure ends.
    Finish(CallKey, Vec<u8>),
    /// The time is over.
    End,
}

const CLIENT: (usize, u16) = (0, 40_000);
const SERVER: (usize, u16) = (1, 7000);

struct Ends {
    net: Net<Timer>,
    client: Conversation,
    server: Server,
    armed: [Nanos; 2],
    out: Vec<u8>,
    arguments: Vec<u8>,
    takes: Nanos,
    ended: u64,
    failed: u64,
}

impl Crowd {
    /// Binds, and makes calls for the time.
    pub fn run(&self) -> Crowded {
        let mut rng = Rng::new(self.seed);
        let mut net = Net::new(rng.fork(), 2, 0);
        net.paths().fill(self.path);
        net.bind(address(CLIENT.0, CLIENT.1));
        net.bind(address(SERVER.0, SERVER.1));
        net.after(self.time, Timer::End);
        let mutant = self.mutant;
        let settings = ServerConfig { mutant, ..ServerConfig::default() };
        let mut server = Server::new(settings, Time::from_nanos(1), [7; 32]);
        let (type_name, instance) = ("Crowd".to_string(), String::new());
        let procedures = vec![Fingerprint { number: 1, types: 1, name: 0 }];
        server.export(Export { id: 1, type_name, instance, procedures });
        let settings = ClientConfig { mutant, ..ClientConfig::default() };
        let mut client = Conversation::new(settings, rng.next() | 1);
        client.bind(Time::from_nanos(1), "Crowd", 0);
        let mut arguments = vec![0; self.bytes];
        rng.fill(&mut arguments);
        let mut ends = Ends {
            net,
            client,
            server,
            armed: [Nanos::MAX; 2],
            out: vec![0; 1 << 16],
            arguments,
            takes: self.takes,
            ended: 0,
            failed: 0,
        };
        ends.pass(self.outstanding);
        let (client, server) = (ends.client.stats(), ends.server.stats());
        Crowded {
            ended: ends.ended,
            failed: ends.failed,
            sent: client.sent + server.sent,
            dropped: ends.net.faults.congested,
            repeated: client.retransmitted,
        }
    }
}

impl Ends {
    fn pass(&mut self, outstanding: usize) {
        let (mut bound, mut free) = (false, outstanding);
        self.settle();
        while let Some((at, step)) = self.net.step() {
            let now = Time::from_nanos(at + 1);
            let mut outcomes = Vec::new();
            let mut note = |event: Event<'_>| match event {
                Event::Bound { .. } => bound = true,
                Event::Ended { outcome: Outcome::Result(result), .. } => outcomes.push(result.into_owned()),
                Event::Ended { .. } => outcomes.push(Vec::new()),
            };
            match step {
                Step::Datagram { to, bytes, .. } if to == address(CLIENT.0, CLIENT.1) => {
                    self.client.receive(now, &bytes, &mut note);
                    self.net.recycle(bytes);
                }
                Step::Datagram { from, bytes, .. } => self.serve(now, from, bytes),
                Step::Refused { .. } => {}
                Step::Event(Timer::End) => break,
                Step::Event(Timer::Finish(key, result)) => self.finish(now, key, result),
                Step::Event(Timer::Client) => {
                    self.armed[0] = Nanos::MAX;
                    self.client.handle_timeout(now, &mut note);
                }
                Step::Event(Timer::Server) => {
                    self.armed[1] = Nanos::MAX;
                    self.server.handle_timeout(now);
                }
            }
            for result in outcomes {
                let right = u64::from(result == self.arguments);
                (self.ended, self.failed, free) = (self.ended + right, self.failed + 1 - right, free + 1);
            }
            while bound && free > 0 {
                free -= 1;
                let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 1 };
                let started = self.client.start(|| now, &call, &mut self.arguments.clone());
                started.expect("so many calls may be outstanding");
            }
            self.settle();
        }
    }

    fn serve(&mut self, now: Time, from: SocketAddr, bytes: Vec<u8>) {
        let mut calls = Vec::new();
        self.server.receive(now, from, &bytes, &mut |request| {
            if let Request::Call(call) = request {
                calls.push((call.key, call.args.to_vec()));
            }
        });
        self.net.recycle(bytes);
        for (key, arguments) in calls {
            match self.takes {
                0 => self.finish(now, key, arguments),
                takes => self.net.after(takes, Timer::Finish(key, arguments)),
            }
        }
    }

    fn finish(&mut self, now: Time, key: CallKey, mut result: Vec<u8>) {
        self.server.finish(now, key, Finish::Result, &mut result, &mut []);
    }

    /// Sends everything that is ready, and sets the timers.
    fn settle(&mut self) {
        let at = self.net.now();
        let now = Time::from_nanos(at + 1);
        let (client, server) = (address(CLIENT.0, CLIENT.1), address(SERVER.0, SERVER.1));
        while let Some(len) = self.client.transmit(now, &mut self.out) {
            self.net.send(client, server, &self.out[..len]);
        }
        while let Some(t) = self.server.transmit(now, &mut self.out) {
            self.net.send(server, t.to, &self.out[..t.len]);
        }
        let due = [self.client.timeout(), self.server.timeout()].into_iter().zip([true, false]);
        for (armed, (due, is_client)) in self.armed.iter_mut().zip(due) {
            let Some(due) = due.map(|t| t.as_nanos().saturating_sub(1).max(at)) else { continue };
            if due < *armed {
                *armed = due;
                self.net.at(due, if is_client { Timer::Client } else { Timer::Server });
            }
        }
    }
}
