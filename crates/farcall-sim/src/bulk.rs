//! Transfers one large result over a path that loses datagrams both ways, and measures how long that takes
//! and what it costs.

use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, ServerConfig, Time};

use crate::net::{Nanos, Net, Path, SECS, Step, address};
use crate::rng::Rng;

/// A transfer to make, and the path for it.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// The size of the result in bytes.
    pub bytes: usize,
    /// The path, both ways.
    pub path: Path,
    /// The seed of the network.
    pub seed: u64,
}

/// The cost of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Virtual time from the call's start to its end.
    pub elapsed: Nanos,
    /// The bytes and the datagrams that the server sent.
    pub sent: (u64, u64),
    /// The bytes and the datagrams that the client sent.
    pub client_sent: (u64, u64),
    /// Whether the result arrived, unchanged.
    pub intact: bool,
    /// The virtual time for which both ends were watched after the call's end.
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
    ended: Option<Nanos>,
    late: u64,
}

const CLIENT: (usize, u16) = (0, 40_000);
const SERVER: (usize, u16) = (1, 7000);

impl Bulk {
    /// Makes the call, and then watches both ends for an hour.
    pub fn run(&self) -> Transfer {
        let mut rng = Rng::new(self.seed);
        let mut net = Net::new(rng.fork(), 2, 0);
        net.paths().fill(self.path);
        net.bind(address(CLIENT.0, CLIENT.1));
        net.bind(address(SERVER.0, SERVER.1));
        let mut server = Server::new(ServerConfig::default(), Time::from_nanos(1), [7; 32]);
        let (type_name, instance) = ("Bulk".to_string(), String::new());
        server.export(Export {
            id: 1,
            type_name,
            instance,
            procedures: vec![Fingerprint { number: 1, types: 1, name: 0 }],
        });
        let client = Conversation::new(ClientConfig::default(), rng.next() | 1);
        let (out, armed) = (vec![0; 1 << 16], [Nanos::MAX; 2]);
        let mut pair = Pair { net, client, server, armed, out, ended: None, late: 0 };
        let mut body = vec![0; self.bytes];
        rng.fill(&mut body);
        pair.transfer(&body)
    }
}

impl Pair {
    fn transfer(&mut self, body: &[u8]) -> Transfer {
        let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 1 };
        let now = Time::from_nanos(1);
        self.client.start(|| now, &call, &mut b"send it!".to_vec()).expect("nothing is outstanding");
        self.settle();
        let mut intact = false;
        let watched = 3600 * SECS;
        while let Some((at, step)) = self.net.step() {
            match step {
                Step::Datagram { to, bytes, .. } if to == address(CLIENT.0, CLIENT.1) => {
                    self.client.receive(Time::from_nanos(at + 1), &bytes, &mut ended(&mut intact, body));
                    self.net.recycle(bytes);
                }
                Step::Datagram { from, bytes, .. } => self.serve(at, from, bytes, body),
                Step::Refused { .. } => {}
                Step::Event(Timer::End) => break,
                Step::Event(Timer::Client) => {
                    self.armed[0] = Nanos::MAX;
                    let now = Time::from_nanos(at + 1);
                    self.client.handle_timeout(now, &mut ended(&mut intact, body));
                }
                Step::Event(Timer::Server) => {
                    self.armed[1] = Nanos::MAX;
                    self.server.handle_timeout(Time::from_nanos(at + 1));
                }
            }
            self.settle();
            if self.ended.is_none() && self.client.stats().outstanding == 0 {
                self.ended = Some(at);
                self.net.after(watched, Timer::End);
            }
        }
        let (client, server) = (self.client.stats(), self.server.stats());
        Transfer {
            elapsed: self.ended.unwrap_or(Nanos::MAX),
            sent: (server.bytes_sent, server.sent),
            client_sent: (client.bytes_sent, client.sent),
            intact,
            watched,
            idle_datagrams: self.late,
        }
    }

    fn serve(&mut self, at: Nanos, from: std::net::SocketAddr, bytes: Vec<u8>, body: &[u8]) {
        let now = Time::from_nanos(at + 1);
        let mut asked = None;
        self.server.receive(now, from, &bytes, &mut |request| {
            if let Request::Call(call) = request {
                asked = Some(call.key);
            }
        });
        self.net.recycle(bytes);
        let Some(key) = asked else { return };
        let sent = self.server.finish(now, key, Finish::Result, &mut body.to_vec(), &mut self.out);
        if let Some(t) = sent {
            self.net.send(address(SERVER.0, SERVER.1), t.to, &self.out[..t.len]);
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

/// Returns a sink that notes how the call ended.
fn ended<'a>(intact: &'a mut bool, body: &'a [u8]) -> impl FnMut(Event<'_>) + use<'a> {
    move |event| {
        if let Event::Ended { outcome: Outcome::Result(result), .. } = event {
            *intact = *result == *body;
        }
    }
}
