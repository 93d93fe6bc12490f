//! Random runs of exchanges through both ends, with every datagram in the test's hands.
//!
//! A run has one or two clients and a server. Calls are made at once in several activities; in each call both
//! ends open exchanges, send in them and take from them. Datagrams are lost, come twice and out of order;
//! calls are cancelled or have deadlines; a server restarts, or a client vanishes. What each end of an
//! exchange does is computed from the run's seed, the call and the exchange, so both ends know what to
//! expect.
//!
//! A seed that fails is printed. `FARCALL_SEED=n` runs it alone.

mod common;
#[path = "common/loans.rs"]
mod loans;
#[path = "common/plans.rs"]
mod plans;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use common::{EXPORT, FIRST_CREDIT, Told};
use farcall_proto::client::{Call, CallId, Conversation};
use farcall_proto::server::{CallKey, Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Failure, Kind, Mutant, News, Ran, ServerConfig, Tail, Time};
use loans::Loans;
use plans::{End, Plan, Random, byte, plans};

/// How many seeds are run.
const RUNS: u64 = 80;

/// The most datagrams of both ends in a run, as a mean. Correct ends need about 590; ends that resend what
/// has already arrived need more than 800.
const MAX_MEAN_DATAGRAMS: usize = 800;

/// A run's calls have ended after so long, and all that the server kept of them is gone after that long more.
const ENDS_WITHIN: Duration = Duration::from_secs(300);
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(90);

/// The most datagrams of a run, of both ends together.
const MOST_DATAGRAMS: usize = 60_000;

/// What the user of one end knows of an exchange.
#[derive(Debug, Default)]
struct User {
    plan: Plan,
    /// What the other end had lent when this one learned of the exchange, perhaps in another conversation.
    loan: u64,
    sent: u64,
    taken: u64,
    /// Its own direction has ended, or is not to be sent.
    ended: bool,
    /// The other end's direction has ended, and all of it was taken.
    all: bool,
    /// It takes no more.
    stopped: bool,
    /// The other end takes no more.
    was_stopped: bool,
    /// News has told that something can be taken, or sent.
    can_take: bool,
    can_send: bool,
}

/// The tokens of one client's calls are fewer.
const CALLS_OF_CLIENT: u64 = 100;

/// Returns which client makes the call with this token.
fn place_of(token: u64) -> usize {
    ((token - 1) / CALLS_OF_CLIENT) as usize
}

/// What one step of a user needs of its end.
trait Verbs {
    const END: End;
    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize>;
    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool>;
    fn stop(&mut self, exchange: u32, reason: u32);
}

impl User {
    fn new(plan: Plan, loan: u64) -> User {
        User { ended: plan.sends.is_none(), can_send: true, plan, loan, ..User::default() }
    }

    fn hear(&mut self, news: News, exchange: u32) {
        match news {
            News::Came => self.can_take = true,
            News::Room => self.can_send = true,
            News::Stopped(reason) => {
                assert_eq!(reason, exchange ^ 0x5a5a, "the reason of a stop");
                assert!(!self.was_stopped, "a stop is told twice");
                (self.was_stopped, self.ended) = (true, true);
            }
        }
    }

    /// Whether it waits for nothing but the other end's bytes, and has none of them to take.
    fn has_sent(&self) -> bool {
        self.ended || self.plan.sends == Some(self.sent) && !self.plan.ends
    }

    fn step<V: Verbs>(&mut self, verbs: &mut V, token: u64, exchange: u32) {
        if self.plan.stops_at.is_some_and(|at| self.taken >= at) && !self.stopped && !self.all {
            self.stopped = true;
            verbs.stop(exchange, exchange ^ 0x5a5a);
        }
        if self.can_take && !self.all && !self.stopped {
            let (mut into, most) = (Vec::new(), self.plan.takes.min(1 << 30) as usize);
            // The exchange may be over, or its call may have ended.
            match verbs.take_from(exchange, &mut into, most) {
                None => (self.can_take, self.all) = (false, true),
                Some(all) => (self.can_take, self.all) = (into.len() == most, all),
            }
            let from = if V::END == End::Client { End::Server } else { End::Client };
            for found in into {
                let expected = byte(token, exchange, from, self.taken);
                assert_eq!(found, expected, "call {token}, exchange {exchange}, byte {}", self.taken);
                self.taken += 1;
            }
        }
        let may = self.can_send && !self.ended && (!self.plan.answers || self.all || self.stopped);
        if let Some(len) = self.plan.sends.filter(|_| may && !self.has_sent()) {
            let end = len.min(self.sent + 20_000);
            let bytes: Vec<u8> = (self.sent..end).map(|at| byte(token, exchange, V::END, at)).collect();
            let last = end == len && self.plan.ends;
            let tail = self.plan.tail.filter(|_| last).unwrap_or(Tail::More);
            let Some(added) = verbs.send_in(exchange, &bytes, tail) else {
                self.ended = true;
                return;
            };
            self.sent += added as u64;
            self.can_send = added == bytes.len();
            self.ended = last && added == bytes.len();
        }
    }
}

struct AtClient<'a> {
    client: &'a mut Conversation,
    id: CallId,
    told: &'a mut Vec<(u64, Told)>,
}

impl Verbs for AtClient<'_> {
    const END: End = End::Client;

    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.client.send_in(self.id, exchange, bytes, tail)
    }

    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        let told = &mut *self.told;
        self.client.take_from(self.id, exchange, into, most, &mut |event| told.push(common::note(event)))
    }

    fn stop(&mut self, exchange: u32, reason: u32) {
        let told = &mut *self.told;
        self.client.stop_exchange(self.id, exchange, reason, &mut |event| told.push(common::note(event)));
    }
}

struct AtServer<'a> {
    server: &'a mut Server,
    key: CallKey,
}

impl Verbs for AtServer<'_> {
    const END: End = End::Server;

    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize> {
        self.server.send_in(self.key, exchange, bytes, tail)
    }

    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool> {
        self.server.take_from(self.key, exchange, into, most)
    }

    fn stop(&mut self, exchange: u32, reason: u32) {
        self.server.stop_exchange(self.key, exchange, reason);
    }
}

/// A call as its caller knows it.
struct Called {
    id: CallId,
    users: BTreeMap<u32, User>,
    next: Time,
    pause: u64,
    opens: u32,
    cancels_at: Option<Time>,
    /// It was given up. Its result may come without what was to come before it.
    cancelled: bool,
}

/// A call as the server's user knows it.
struct Executed {
    key: CallKey,
    token: u64,
    users: BTreeMap<u32, User>,
    next: Time,
    pause: u64,
    opens: u32,
    /// It finishes then at the latest, whatever its exchanges do.
    latest: Time,
    given_up: bool,
    refuses: bool,
}

/// What the server's user had sent when it finished a call, by exchange.
type Sent = BTreeMap<u32, (u64, bool)>;

struct Client {
    conversation: Conversation,
    at: SocketAddr,
    calls: BTreeMap<u64, Called>,
    told: Vec<(u64, Told)>,
    /// What was lent in its conversation.
    loans: Loans,
    /// How many further calls it makes.
    left: u64,
    /// It is gone, with all of its calls.
    gone: bool,
    vanishes: Option<Time>,
}

struct Run {
    seed: u64,
    random: Random,
    now: Time,
    clients: Vec<Client>,
    server: Server,
    executed: BTreeMap<u64, Executed>,
    /// Calls that were ever executed, that returned, and with what before their results.
    ran: BTreeSet<u64>,
    refused: BTreeSet<u64>,
    finished: BTreeMap<u64, Sent>,
    outcomes: BTreeMap<u64, Told>,
    /// Datagrams under way: when they arrive, at the server or at a client, and whose they are.
    net: BTreeMap<(Time, u64), (End, usize, Vec<u8>)>,
    datagrams: usize,
    loss: u64,
    delay: u64,
    largest: usize,
    narrows: Option<(Time, usize)>,
    restarts: Option<Time>,
    mutant: Mutant,
}

const MS: u64 = 1_000_000;

impl Run {
    fn new(seed: u64, mutant: Mutant) -> Run {
        let mut random = Random::new(seed);
        let now = Time::from_nanos(1_000 * MS);
        let later = |random: &mut Random| now.plus(random.below(1_500) * MS);
        let clients = 1 + random.below(2);
        let vanishes = (clients == 2 && random.one_in(2)).then(|| later(&mut random));
        let restarts = random.one_in(5).then(|| later(&mut random));
        let largest = [1_200, 1_500, 9_000, 65_535][random.below(4) as usize];
        let narrows = random.one_in(5).then(|| (later(&mut random), 1_200));
        let clients = (0..clients).map(|n| Client {
            conversation: Conversation::new(ClientConfig { mutant, ..ClientConfig::default() }, 0xc11e + n),
            at: SocketAddr::from(([10, 0, 0, 1 + n as u8], 1_000)),
            calls: BTreeMap::new(),
            told: Vec::new(),
            loans: Loans::default(),
            left: 3 + random.below(6),
            gone: false,
            vanishes: vanishes.filter(|_| n == 1),
        });
        let clients = clients.collect();
        let mut run = Run {
            seed,
            now,
            clients,
            server: Server::new(ServerConfig { mutant, ..ServerConfig::default() }, now, [7; 32]),
            executed: BTreeMap::new(),
            ran: BTreeSet::new(),
            refused: BTreeSet::new(),
            finished: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            net: BTreeMap::new(),
            datagrams: 0,
            loss: [0, 20, 20][random.below(3) as usize],
            delay: [1, 3, 20][random.below(3) as usize] * MS,
            largest,
            narrows,
            restarts,
            random,
            mutant,
        };
        run.export();
        run
    }

    fn export(&mut self) {
        let procedures = vec![common::fingerprint(1, 11)];
        let [type_name, instance] = ["Store", "one"].map(String::from);
        self.server.export(Export { id: EXPORT, type_name, instance, procedures });
    }

    /// A pause between two steps of a user: some are slow.
    fn pause(random: &mut Random) -> u64 {
        [1, 5, 5, 300][random.below(4) as usize] * MS
    }

    fn start(&mut self, place: usize) {
        let (random, client) = (&mut self.random, &mut self.clients[place]);
        client.left -= 1;
        let token = 1 + place as u64 * CALLS_OF_CLIENT + client.left;
        let deadline = random.one_in(8).then(|| self.now.plus(random.below(3_000) * MS));
        let cancels_at = random.one_in(8).then(|| self.now.plus(random.below(1_000) * MS));
        let call = Call { export: EXPORT, procedure: 1, deadline, trace: None, token };
        let mut args = token.to_be_bytes().to_vec();
        args.resize(8 + 4 * [0, 10, 2_000][random.below(3) as usize], 0);
        let now = self.now;
        let id = client.conversation.start(|| now, &call, &mut args).expect("few calls are outstanding");
        let opens = random.below(4) as u32;
        let called = Called {
            id,
            users: BTreeMap::new(),
            next: now,
            pause: Run::pause(random),
            opens,
            cancels_at,
            cancelled: false,
        };
        client.calls.insert(token, called);
    }

    /// Lets a client do one step.
    fn act_at_client(&mut self, place: usize) {
        let (now, seed) = (self.now, self.seed);
        if self.clients[place].left > 0 && self.clients[place].calls.len() < 4 {
            self.start(place);
        }
        let Run { random, clients, .. } = self;
        let Client { conversation, calls, told, loans, .. } = &mut clients[place];
        let loan = loans.to(End::Client);
        for (token, called) in &mut *calls {
            if called.cancels_at.is_some_and(|at| at <= now) {
                (called.cancels_at, called.cancelled) = (None, true);
                conversation.cancel(now, called.id);
            }
            if now < called.next {
                continue;
            }
            called.next = now.plus(1 + random.below(called.pause));
            if called.opens > 0
                && let Some(exchange) = conversation.open_exchange(called.id)
            {
                called.opens -= 1;
                assert!(exchange % 2 == 1);
                called.users.insert(exchange, User::new(plans(seed, *token, exchange)[0].clone(), loan));
            }
            let id = called.id;
            for (exchange, user) in &mut called.users {
                user.step(&mut AtClient { client: conversation, id, told }, *token, *exchange);
            }
        }
        while let Some((_, token, exchange, news)) = conversation.next_news() {
            let Some(called) = calls.get_mut(&token) else { continue };
            let plan = || plans(seed, token, exchange)[0].clone();
            called.users.entry(exchange).or_insert_with(|| User::new(plan(), loan)).hear(news, exchange);
        }
        self.judge(place);
    }

    fn act_at_server(&mut self) {
        let (now, seed) = (self.now, self.seed);
        let Run { random, server, executed, clients, .. } = self;
        let loan = |token: u64| clients[place_of(token)].loans.to(End::Server);
        while let Some((key, exchange, news)) = server.next_news() {
            let Some(call) = executed.values_mut().find(|call| call.key == key) else { continue };
            let plan = || plans(seed, call.token, exchange)[1].clone();
            let user = || User::new(plan(), loan(call.token));
            call.users.entry(exchange).or_insert_with(user).hear(news, exchange);
        }
        let mut over = Vec::new();
        for call in executed.values_mut() {
            if now < call.next {
                continue;
            }
            call.next = now.plus(1 + random.below(call.pause));
            if call.opens > 0
                && let Some(exchange) = server.open_exchange(call.key)
            {
                call.opens -= 1;
                assert!(exchange % 2 == 0);
                let plan = plans(seed, call.token, exchange)[1].clone();
                call.users.insert(exchange, User::new(plan, loan(call.token)));
            }
            for (exchange, user) in &mut call.users {
                user.step(&mut AtServer { server, key: call.key }, call.token, *exchange);
            }
            let done = call.opens == 0
                && call.users.values().all(|user| user.has_sent() && (user.all || user.stopped));
            if done || call.given_up || call.latest <= now {
                over.push(call.token);
            }
        }
        for token in over {
            self.finish(token);
        }
    }

    fn finish(&mut self, token: u64) {
        let call = self.executed.remove(&token).expect("it is executed");
        let began = |(exchange, user): (&u32, &User)| {
            let begins = user.sent > 0 || user.ended || exchange.is_multiple_of(2);
            begins.then_some((*exchange, (user.sent, user.was_stopped)))
        };
        self.finished.insert(call.token, call.users.iter().filter_map(began).collect());
        let mut payload = call.token.to_be_bytes().to_vec();
        payload.resize(if self.random.one_in(4) { 20_000 } else { 8 }, 0);
        let finish = match call.refuses {
            true => Failure::new(Kind::Overloaded, Ran::No).into(),
            false => Finish::Result,
        };
        if call.refuses {
            self.refused.insert(call.token);
        }
        let mut out = vec![0; 65_536];
        let sent = self.server.finish(self.now, call.key, finish, &mut payload, &mut out);
        if let Some(sent) = sent {
            self.send(End::Client, sent.to, out[..sent.len].to_vec());
        }
    }

    /// Checks how calls of a client have ended.
    fn judge(&mut self, place: usize) {
        for (token, told) in std::mem::take(&mut self.clients[place].told) {
            let called = self.clients[place].calls.remove(&token).expect("a call ends once");
            match &told {
                Told::Result(bytes) => {
                    assert_eq!(bytes[..8], token.to_be_bytes(), "call {token}: its own result");
                    let sent = &self.finished[&token];
                    for (exchange, (sent, stopped)) in sent {
                        let user = called.users.get(exchange);
                        let taken = user.map_or(0, |user| user.taken);
                        let complete = called.cancelled
                            || *stopped
                            || user.is_some_and(|user| user.stopped)
                            || taken == *sent;
                        assert!(
                            complete,
                            "call {token}, exchange {exchange}: {taken} of {sent} bytes before the result"
                        );
                    }
                }
                Told::Failed(kind, ran) => {
                    let touched = called.users.values().any(|user| user.taken > 0 || user.was_stopped);
                    let truly = !self.ran.contains(&token) || self.refused.contains(&token) && !touched;
                    assert!(*ran != Ran::No || truly, "call {token} ran: {kind:?}");
                    let expected = match kind {
                        Kind::Cancelled | Kind::Deadline => true,
                        Kind::Overloaded => self.refused.contains(&token),
                        Kind::ServerRestarted => self.restarts.is_some(),
                        _ => false,
                    };
                    assert!(expected, "call {token}: {told:?}");
                }
                told => panic!("call {token}: {told:?}"),
            }
            assert!(self.outcomes.insert(token, told).is_none(), "call {token} ends twice");
        }
    }

    fn send(&mut self, to: End, address: SocketAddr, datagram: Vec<u8>) {
        self.datagrams += 1;
        let place = self.clients.iter().position(|client| client.at == address).expect("a client's address");
        self.clients[place].loans.sent(to, &datagram);
        if self.clients[place].gone || datagram.len() > self.largest || self.random.below(100) < self.loss {
            return;
        }
        let copies = 1 + u64::from(self.random.one_in(20));
        for _ in 0..copies {
            let at = self.now.plus(MS / 10 + self.random.below(self.delay));
            self.net.insert(
                (at, self.net.len() as u64 + self.random.below(1 << 32)),
                (to, place, datagram.clone()),
            );
        }
    }

    fn transmit(&mut self) {
        let mut out = vec![0; 65_536];
        for place in 0..self.clients.len() {
            let at = self.clients[place].at;
            while !self.clients[place].gone
                && let Some(len) = self.clients[place].conversation.transmit(self.now, &mut out)
            {
                self.send(End::Server, at, out[..len].to_vec());
            }
        }
        while let Some(sent) = self.server.transmit(self.now, &mut out) {
            self.send(End::Client, sent.to, out[..sent.len].to_vec());
        }
    }

    fn arrive(&mut self) {
        while let Some(first) = self.net.first_entry()
            && first.key().0 <= self.now
        {
            let (to, place, datagram) = first.remove();
            let now = self.now;
            if to == End::Client {
                let client = &mut self.clients[place];
                let told = &mut client.told;
                if !client.gone {
                    client.conversation.receive(now, &datagram, &mut |event| told.push(common::note(event)));
                }
                self.judge(place);
                continue;
            }
            let (mut calls, mut cancelled) = (Vec::new(), Vec::new());
            self.server.receive(now, self.clients[place].at, &datagram, &mut |request| match request {
                Request::Call(call) => {
                    calls.push((call.key, u64::from_be_bytes(call.args[..8].try_into().expect("a token"))));
                }
                Request::Cancel(key) => cancelled.push(key),
                Request::Post(..) => panic!("nobody posts"),
            });
            for (key, token) in calls {
                assert!(self.ran.insert(token), "call {token} is executed twice");
                let random = &mut self.random;
                let latest = now.plus((500 + random.below(8_000)) * MS);
                let (pause, opens) = (Run::pause(random), random.below(4) as u32);
                let (users, refuses) = (BTreeMap::new(), random.one_in(10));
                let call =
                    Executed { key, token, users, next: now, pause, opens, latest, given_up: false, refuses };
                self.executed.insert(token, call);
            }
            for key in cancelled {
                self.give_up(key);
                let (opened, mut into) = (self.server.open_exchange(key), Vec::new());
                let taken = self.server.take_from(key, 1, &mut into, 1);
                assert_eq!((opened, taken), (None, None), "exchanges of a call that was given up");
            }
        }
    }

    fn give_up(&mut self, key: CallKey) {
        if let Some(call) = self.executed.values_mut().find(|call| call.key == key) {
            call.given_up = true;
        }
    }

    fn tick(&mut self) {
        let now = self.now;
        if self.restarts.is_some_and(|at| at <= now) && !self.executed.is_empty() {
            let config = ServerConfig { mutant: self.mutant, ..ServerConfig::default() };
            self.server = Server::new(config, now, [9; 32]);
            self.export();
            self.executed.clear();
            // Restarts no more, and stays `Some` because it has restarted.
            self.restarts = Some(Time::from_nanos(u64::MAX));
        }
        if let Some((_, largest)) = self.narrows.filter(|(at, _)| *at <= now) {
            self.largest = largest;
        }
        for place in 0..self.clients.len() {
            let client = &mut self.clients[place];
            if client.vanishes.is_some_and(|at| at <= now) && !client.gone {
                client.gone = true;
                client.calls.clear();
            }
            if client.gone {
                continue;
            }
            if client.conversation.timeout().is_some_and(|at| at <= now) {
                let told = &mut client.told;
                client.conversation.handle_timeout(now, &mut |event| told.push(common::note(event)));
            }
            self.judge(place);
        }
        if self.server.timeout().is_some_and(|at| at <= now) {
            self.server.handle_timeout(now);
            while let Some(key) = self.server.next_forsaken() {
                self.give_up(key);
            }
        }
    }

    /// The next time at which anything happens.
    fn next(&self) -> Option<Time> {
        let live = || self.clients.iter().filter(|client| !client.gone);
        let calls = live().flat_map(|client| client.calls.values()).map(|called| called.next);
        let timers = live().filter_map(|client| client.conversation.timeout());
        let executed = self.executed.values().map(|call| call.next);
        let others = [self.net.keys().next().map(|(at, _)| *at), self.server.timeout()];
        let vanishing = live().filter_map(|client| client.vanishes);
        let starting = live().any(|client| client.left > 0 && client.calls.len() < 4).then_some(self.now);
        calls
            .chain(timers)
            .chain(executed)
            .chain(vanishing)
            .chain(starting)
            .chain(others.into_iter().flatten())
            .min()
    }

    fn step(&mut self) {
        self.tick();
        self.arrive();
        for place in 0..self.clients.len() {
            if !self.clients[place].gone {
                self.act_at_client(place);
            }
        }
        self.act_at_server();
        self.check_credit();
        self.transmit();
    }

    /// Checks that no user could send more than its receiver's user lets it: the first credit, or five times
    /// as many bytes as were taken, or what the receiver had lent before in the conversation.
    fn check_credit(&self) {
        let calls =
            self.clients.iter().flat_map(|c| c.calls.iter().map(|(token, call)| (token, call, &c.loans)));
        for (token, called, loans) in calls {
            let Some(executed) = self.executed.get(token) else { continue };
            for exchange in called.users.keys().chain(executed.users.keys()) {
                let ends = [called.users.get(exchange), executed.users.get(exchange)];
                for (sender, [from, to]) in [(End::Client, ends), (End::Server, [ends[1], ends[0]])] {
                    let (sent, loan) = from.map_or((0, 0), |user| (user.sent, user.loan));
                    let loan = loan.max(loans.to(sender));
                    let taken = to.map_or(0, |user| user.taken);
                    let most = (taken + (4 * taken).max(FIRST_CREDIT.into())).max(loan);
                    assert!(
                        sent <= most,
                        "call {token}, exchange {exchange}: {sent} bytes were sent of {most}"
                    );
                }
            }
        }
    }

    fn advance(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        self.now = next.max(self.now.plus(1_000));
        true
    }

    fn is_done(&self) -> bool {
        self.clients.iter().all(|client| client.gone || client.left == 0 && client.calls.is_empty())
    }

    /// The calls that have not ended, as both ends see them, for the message of a failure.
    fn what_is_left(&self) -> String {
        let calls = self.clients.iter().flat_map(|client| &client.calls);
        let at_client = calls.map(|(token, call)| format!("client {token}: {:#?}\n", call.users));
        let at_server =
            self.executed.values().map(|call| format!("server {}: {:#?}\n", call.token, call.users));
        let of = |client: &Client| {
            let kept = self.server.kept_for(client.at.ip());
            format!("{:?}\n{kept:?}\n", client.conversation.stats())
        };
        let stats = self.clients.iter().map(of);
        at_client.chain(at_server).chain(stats).chain([format!("finished {:?}", self.finished)]).collect()
    }

    /// Returns how many datagrams the calls took.
    fn go(mut self) -> usize {
        let began = self.now;
        let mut steps = 0;
        while !self.is_done() {
            self.step();
            steps += 1;
            if steps % 16 == 0 {
                self.server.audit();
                self.clients.iter().for_each(|client| client.conversation.audit());
            }
            if self.now.since(began) >= ENDS_WITHIN {
                panic!("a call does not end\n{}", self.what_is_left());
            }
            assert!(self.datagrams < MOST_DATAGRAMS, "too many datagrams");
            assert!(self.advance() || self.is_done(), "a call waits for nothing");
        }
        // From now on nothing is lost. The clients are idle, and the server forgets.
        self.loss = 0;
        let (datagrams, ended) = (std::mem::take(&mut self.datagrams), self.now);
        loop {
            self.step();
            self.server.audit();
            if self.now.since(ended) >= FORGOTTEN_WITHIN || !self.advance() {
                break;
            }
        }
        // The server resends a window a second to a client that has vanished, until it gives up.
        assert!(self.datagrams < 2_000, "{} datagrams when all calls had ended", self.datagrams);
        for client in &self.clients {
            let kept = self.server.kept_for(client.at.ip());
            assert_eq!(
                (kept.exchanges, kept.results, kept.sending, kept.arguments),
                (0, 0, 0, 0),
                "{kept:?}"
            );
            let stats = client.conversation.stats();
            assert!(client.gone || (stats.in_flight, stats.outstanding) == (0, 0), "{stats:?}");
            assert!(client.gone || client.conversation.timeout().is_none());
        }
        assert_eq!((self.server.unfinished(), self.server.timeout()), (0, None));
        datagrams
    }
}

/// Runs seeds from 0 on, or the one of `FARCALL_SEED`.
fn run_all(runs: u64, mutant: Mutant) {
    let only = std::env::var("FARCALL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(0..runs, |seed: u64| seed..seed + 1);
    let of = |seed| Run::new(seed, mutant).go();
    let datagrams: usize = seeds.inspect(|seed| println!("seed {seed}")).map(of).sum();
    assert!(only.is_some() || datagrams <= runs as usize * MAX_MEAN_DATAGRAMS, "{datagrams} datagrams");
}

#[test]
fn bytes_arrive_in_order_results_come_after_them_and_nothing_is_kept() {
    run_all(RUNS, Mutant::NONE);
}

/// Whether a run with this fault fails.
#[cfg(feature = "mutants")]
fn is_noticed(mutant: Mutant) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let run = |seed| catch_unwind(AssertUnwindSafe(|| Run::new(seed, mutant).go()));
    let datagrams: Result<usize, _> = (0..RUNS).map(run).sum();
    datagrams.map_or(true, |datagrams| datagrams > RUNS as usize * MAX_MEAN_DATAGRAMS)
}

#[cfg(feature = "mutants")]
#[test]
fn every_broken_rule_of_exchanges_is_noticed() {
    // The failures are expected, so their messages are not shown.
    std::panic::set_hook(Box::new(|_| {}));
    let rules = farcall_proto::Rule::OF_EXCHANGES.iter();
    let unnoticed = rules.filter(|rule| !is_noticed(Mutant::of(**rule)));
    let names: Vec<_> = unnoticed.map(|rule| rule.name()).collect();
    drop(std::panic::take_hook());
    assert!(names.is_empty(), "not noticed: {names:?}");
}
