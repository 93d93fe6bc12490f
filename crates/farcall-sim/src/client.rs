//! A simulated client: one conversation with each server, and a user that makes calls.

mod exchanging;
mod posting;
mod sealed;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use farcall_proto::client::{self, CallId, CallProgress, Conversation, Lone, Outcome};
use farcall_proto::fuzzing::kinds::{CREDIT, DATA, MTU_ECHO, RESULT, SELECT, STATE, STOP, WELCOME};
use farcall_proto::{Failure, Kind, Route, Rule, Time, route};
use xxhash_rust::xxh3::xxh3_64;

use self::exchanging::Called;
use self::posting::Import;
use crate::clock::Clock;
use crate::ground::{Event, Ground};
use crate::memory::{FACTS, Head, OPEN, POSTED, READ, WRITE};
use crate::names::{NAME, OTHER};
use crate::net::{MICROS, MILLIS, Nanos, SECS, address};
use crate::oracle::{Call, Oracle, State};
use crate::server::SOCKET_BUFFER;

/// One client and its machine.
pub struct ClientNode {
    /// The number of the machine, which is also its host's.
    pub index: usize,
    /// The address from which its datagrams come, as the network sees it.
    pub address: SocketAddr,
    /// Its machine's clock.
    pub clock: Clock,
    /// The number of times that the process was started.
    pub life: u32,
    /// Whether the process is alive.
    pub alive: bool,
    /// Whether the process is stopped.
    pub stopped: bool,
    /// When the process last continued after a stop.
    pub resumed_at: Nanos,
    inbox: Vec<(SocketAddr, Vec<u8>)>,
    armed: Nanos,
    pub(crate) conversations: Vec<Option<Talk>>,
    /// The number of conversations that the process has begun.
    begun: u32,
    /// For how long the process is stopped between reading its clock and sending. `later` is how much later
    /// it sends.
    gap: Nanos,
    pub(crate) later: Nanos,
    /// Whether the client has been idle for long.
    rested: bool,
    /// The number of attempts in a row in which the user could make no call.
    in_vain: u32,
    /// The calls that ended in the datagram or timer being handled.
    ended: Vec<Ended>,
}

/// A conversation, and what its user knows of it.
pub(crate) struct Talk {
    pub(crate) core: Conversation,
    pub(crate) export: Option<u64>,
    /// The server's exported memory, if something was posted to it.
    pub(crate) import: Option<Import>,
    binding: bool,
    /// Whether the user asks for another name, for which no server's key is granted.
    asking: bool,
    /// The key of the server to which the user has bound, in a run with keys.
    bound_to: Option<[u8; 32]>,
    open: Vec<(usize, CallId)>,
    /// What the users of calls with exchanges know, by call.
    inside: BTreeMap<usize, Called>,
    /// The call on the fast path, if there is one.
    brief: Option<Briefly>,
    /// When something other than a timer last happened to the conversation.
    touched: Nanos,
    /// When the client last received from the server, as far as the client can know.
    heard: Nanos,
    /// When datagrams were refused since the server's last datagram, and how many datagrams had come from the
    /// server by then.
    refused: Vec<Nanos>,
    received: u64,
}

struct Briefly {
    call: usize,
    brief: Lone,
    /// When the call was sent.
    at: Time,
    /// The calling thread read the clock when it sent the call, so it knows `at`.
    looked: bool,
    args: Vec<u8>,
}

impl Talk {
    fn note_refusal(&mut self, at: Nanos) {
        if self.core.stats().received != self.received {
            self.received = self.core.stats().received;
            self.refused.clear();
        }
        self.refused.push(at);
    }

    /// Returns whether the server may be given up before the patience is over: after three refusals in half a
    /// second of its silence, by a clock that may run an eighth too fast.
    fn may_give_up(&self) -> bool {
        let half = SECS / 2 - SECS / 10;
        let [first, .., last] = self.refused[..] else { return false };
        self.refused.len() >= 3 && last - first >= half && self.core.stats().received == self.received
    }

    /// Returns the number of calls that the user waits for.
    fn calls(&self) -> usize {
        self.open.len() + usize::from(self.brief.is_some())
    }

    /// Returns the calls that the user waits for.
    fn open_calls(&self) -> impl Iterator<Item = usize> {
        self.open.iter().map(|(call, _)| *call).chain(self.brief.iter().map(|brief| brief.call))
    }

    /// Returns the calls that the user waits for and that were not sent yet.
    fn unsent(&mut self) -> Vec<usize> {
        let unsent = self.open.iter().filter(|(_, id)| self.core.progress(*id) == CallProgress::Unsent);
        unsent.map(|(call, _)| *call).collect()
    }

    /// Passes the call on the fast path to the conversation, because something other than its result has
    /// happened.
    fn go_on(&mut self, now: Time) {
        if let Some(Briefly { call, brief, at, looked, args }) = self.brief.take() {
            let sent = looked.then_some(at);
            self.open.push((call, self.core.go_on(now, brief, sent, call as u64, &args)));
        }
    }

    /// Returns the next timer: the conversation's, or that of the thread with a call on the fast path.
    fn timeout(&self) -> Option<Time> {
        let brief = self.brief.as_ref().map(|Briefly { brief, at, .. }| at.plus(brief.patience));
        [self.core.timeout(), brief].into_iter().flatten().min()
    }
}

enum Ended {
    Call {
        call: usize,
        rebind: bool,
        reply: Reply,
    },
    Bound(Option<u64>),
    /// The question for the name whose key no server has was answered, with an export or not.
    BoundOther(bool),
}

/// The outcome of a call about posted writes.
#[derive(Clone, Copy)]
pub(crate) enum Reply {
    /// The call returned the result of an access.
    Access(Head),
    Failed(Kind),
    Other,
}

/// The kind of a call.
#[derive(Clone, Copy)]
pub(crate) enum Op {
    /// Any procedure, or access.
    Any,
    /// Opens a stream for the posted writes of an import.
    Open(usize),
    /// Asks how far the posted writes of an import have come, in this stream.
    Posted(usize, u64),
}

/// The token of a bind. The tokens of calls are their numbers.
const BIND: u64 = u64::MAX;

/// The token of a bind to the name for which no server's key is granted.
const BIND_OTHER: u64 = u64::MAX - 1;

/// The longest time after its last event for which a conversation without outstanding calls sends anything.
const IDLE_AFTER: Nanos = 2 * SECS;

impl ClientNode {
    /// Makes a client on a machine of its own.
    pub fn new(index: usize, g: &mut Ground) -> ClientNode {
        let grain = if g.rng.chance(300_000) { 1_000_000 } else { 1 };
        let clock = Clock::new(&mut g.rng, 0, g.plan.drift, grain);
        ClientNode {
            index,
            address: address(index, 40_000),
            clock,
            life: 0,
            alive: false,
            stopped: false,
            resumed_at: 0,
            inbox: Vec::new(),
            armed: Nanos::MAX,
            conversations: Vec::new(),
            begun: 0,
            gap: 0,
            later: 0,
            rested: false,
            in_vain: 0,
            ended: Vec::new(),
        }
    }

    /// Starts the process.
    pub fn start(&mut self, g: &mut Ground) {
        self.life += 1;
        self.clock.go_on(g.now());
        (self.alive, self.stopped) = (true, false);
        self.conversations = (0..g.plan.servers).map(|_| None).collect();
        g.net.bind(self.address);
        let pause = g.rng.below(g.plan.pause);
        g.net.after(pause, Event::Act { client: self.index, life: self.life });
    }

    /// Kills the process, which loses all that it knew.
    pub fn crash(&mut self, g: &mut Ground) {
        let now = self.clock.read(g.now());
        for talk in self.conversations.iter_mut().flatten() {
            talk.go_on(now);
            talk.open.iter().for_each(|(call, _)| g.oracle.abandon(*call));
        }
        self.alive = false;
        self.armed = Nanos::MAX;
        self.conversations.clear();
        self.inbox.clear();
        g.net.unbind(self.address);
    }

    /// Moves the client to another address. Datagrams to the old address then reach no process.
    pub fn move_away(&mut self, g: &mut Ground) {
        g.net.unbind(self.address);
        self.address.set_port(self.address.port() + 1);
        g.net.bind(self.address);
    }

    /// Delivers a datagram to the client's socket.
    pub fn receive(&mut self, g: &mut Ground, from: SocketAddr, bytes: Vec<u8>) {
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
        let paused = self.clock.go_on(g.now());
        for talk in self.conversations.iter().flatten().filter(|_| paused > 0) {
            talk.open_calls().for_each(|call| g.oracle.client_paused(call, paused));
        }
        for (from, bytes) in std::mem::take(&mut self.inbox) {
            self.handle(g, from, bytes);
        }
        self.tick(g);
    }

    /// Delivers an ICMP error about a server's address. `quoted` is `None` unless the error says that nobody
    /// listens there.
    pub fn refused(&mut self, g: &mut Ground, server: usize, quoted: Option<&[u8]>, forged: bool) {
        if self.stopped {
            return;
        }
        let now = self.clock.read(g.now());
        if let Some(Some(talk)) = self.conversations.get_mut(server) {
            talk.touched = g.net.now();
            talk.go_on(now);
            if !forged {
                talk.note_refusal(g.net.now());
            }
            match quoted {
                Some(quoted) => talk.core.handle_refused(now, quoted),
                None => talk.core.handle_unreachable(now),
            }
        }
        self.settle(g);
    }

    /// Acts on a timer event, unless an earlier event has replaced it.
    pub fn wake(&mut self, g: &mut Ground) {
        if g.now() >= self.armed {
            self.tick(g);
        }
    }

    fn tick(&mut self, g: &mut Ground) {
        self.armed = Nanos::MAX;
        if self.stopped || !self.alive {
            return;
        }
        let (at, now) = (g.now(), self.clock.read(g.now()));
        for server in 0..self.conversations.len() {
            let Some(talk) = &mut self.conversations[server] else {
                continue;
            };
            if talk.timeout().is_none_or(|t| t > now) {
                continue;
            }
            talk.go_on(now);
            g.note(&[5, self.index as u64, server as u64], || format!("client {} timer", self.index));
            let (oracle, ended) = (&mut g.oracle, &mut self.ended);
            let heard = talk.heard;
            oracle.may_give_up = talk.may_give_up();
            talk.core.handle_timeout(now, &mut |event| take(oracle, ended, (at, heard), event));
            oracle.may_give_up = false;
            self.after_events(g, server);
        }
        self.settle(g);
        for talk in self.conversations.iter().flatten() {
            if talk.core.timeout().is_some_and(|t| t <= now) {
                g.oracle.violate("timers-move-on", at, || format!("client {}", self.index));
            }
        }
    }

    /// Makes the user do something, and plans the next action.
    pub fn act(&mut self, g: &mut Ground, life: u32) {
        if life != self.life || !self.alive || g.healed {
            return;
        }
        let before = g.budget;
        if !self.stopped {
            let server = g.rng.index(self.conversations.len());
            if g.rng.chance(g.plan.gap) {
                self.gap = g.rng.spread(MICROS, 100 * SECS);
                // A deliberate fault: the client reads the clock only after it has sent.
                let departs_late = g.plan.client.mutant.breaks(Rule::DepartedLate);
                self.later = if departs_late { 0 } else { self.gap };
            }
            self.use_server(g, server);
            self.settle(g);
            // A clock that is read too late would hide what a server did and forgot while its caller was
            // stopped. The gap is used only if a call was made: otherwise nothing can be forgotten, and a
            // server that no client can call would never stay up.
            if self.gap > 0 && g.budget < before && g.rng.chance(500_000) {
                let meanwhile = g.rng.below(self.gap);
                g.net.after(meanwhile, Event::Crash(server));
            }
            // A server that was idle for long may exchange its address with another one while it is called.
            if std::mem::take(&mut self.rested) && g.plan.moves > 0 && g.rng.chance(500_000) {
                let later = g.rng.spread(MICROS, 4 * g.plan.path.delay);
                g.net.after(later, Event::Move(server));
            }
            self.stop(g);
        }
        self.in_vain = if before == g.budget { self.in_vain + 1 } else { 0 };
        if g.budget == 0 {
            return;
        }
        // A user that can make no call tries more and more rarely. Each try may bring a fault, so a run in
        // which a path is cut for hours would not end otherwise.
        let least = match self.in_vain {
            0 => 0,
            times => (50 * MILLIS) << (times / 32).min(11),
        };
        if g.rng.chance(g.plan.chaos) {
            let later = g.rng.spread(1, 8 * g.plan.pause);
            g.net.after(later, Event::Chaos);
        }
        self.rested = g.rng.chance(g.plan.rest);
        let pause = if self.rested {
            g.rng.spread(SECS, 6 * 3600 * SECS)
        } else {
            g.rng.spread(g.plan.pause / 16, g.plan.pause)
        };
        g.net.after(pause.max(least), Event::Act { client: self.index, life });
    }

    /// Stops the process if a stop is due. Other events happen meanwhile.
    fn stop(&mut self, g: &mut Ground) {
        let gap = std::mem::take(&mut self.gap);
        self.later = 0;
        if gap == 0 {
            return;
        }
        g.net.faults.gaps += 1;
        g.note(&[20, self.index as u64, gap], || format!("client {} is stopped before it sends", self.index));
        self.stopped = true;
        g.net.after(gap, Event::Resume(self.index));
        for _ in 0..2 {
            let meanwhile = g.rng.below(gap);
            g.net.after(meanwhile, Event::Chaos);
        }
    }

    /// Returns the client's send time. The clock is read before the process is stopped and then sends.
    fn leaving(&self, g: &Ground) -> Time {
        self.clock.read(g.now() + self.gap - self.later)
    }

    /// Cancels a call for the user.
    pub fn cancel(&mut self, g: &mut Ground, call: usize) {
        if self.stopped {
            return;
        }
        let now = self.clock.read(g.now());
        for talk in self.conversations.iter_mut().flatten() {
            if talk.brief.as_ref().is_some_and(|brief| brief.call == call) {
                talk.go_on(now);
            }
            let Some((_, id)) = talk.open.iter().find(|(c, _)| *c == call) else {
                continue;
            };
            g.oracle.calls[call].cancelled = true;
            g.note(&[6, call as u64], || format!("client {} cancels call {call}", self.index));
            let id = *id;
            talk.go_on(now);
            talk.core.cancel(now, id);
        }
        self.settle(g);
    }

    fn use_server(&mut self, g: &mut Ground, server: usize) {
        let (at, now) = (g.now(), self.clock.read(g.now()));
        if g.rng.chance(3_000)
            && self.conversations[server].as_ref().is_some_and(|t| t.calls() == 0 && !t.binding && !t.asking)
        {
            self.conversations[server] = None;
        }
        if self.conversations[server].is_none() {
            self.begun += 1;
        }
        #[cfg(feature = "soak")]
        let config = || {
            crate::keys::client_config(
                &g.plan.client,
                g.plan.secret.as_ref(),
                self.index,
                self.life << 16 | self.begun,
            )
        };
        #[cfg(not(feature = "soak"))]
        let config = || g.plan.client.clone();
        let talk = self.conversations[server].get_or_insert_with(|| Talk {
            core: Conversation::new(config(), g.rng.next() | 1),
            export: None,
            import: None,
            binding: false,
            asking: false,
            bound_to: None,
            open: Vec::new(),
            inside: BTreeMap::new(),
            brief: None,
            touched: at,
            heard: 0,
            refused: Vec::new(),
            received: 0,
        });
        if talk.binding {
            return;
        }
        if talk.export.is_some() && talk.bound_to != talk.server_key() {
            // Another server answers at the address. What was bound is not there.
            talk.export = None;
        }
        if g.plan.scheme().is_some() && !talk.asking && talk.export.is_some() && g.rng.chance(20_000) {
            (talk.asking, talk.touched) = (true, at);
            talk.core.bind(now, OTHER, BIND_OTHER);
        }
        let Some(export) = talk.export else {
            (talk.binding, talk.touched) = (true, at);
            return talk.core.bind(now, NAME, BIND);
        };
        if g.rng.chance(g.plan.post) {
            self.post(g, server);
        }
        for _ in 0..g.rng.within(1, g.plan.burst) {
            // Now and then the user calls an export that does not exist.
            let export = if g.rng.chance(2_000) { g.rng.next() | 1 } else { export };
            self.call(g, server, export, Op::Any);
        }
    }

    /// Draws a call of this kind.
    fn draw(g: &mut Ground, between: (usize, usize), export: u64, op: Op) -> Call {
        let procedure = match op {
            Op::Any if g.rng.chance(g.plan.memory) => g.rng.pick(&[READ, READ, FACTS, WRITE, WRITE]),
            Op::Any => g.rng.within(1, 2) as u32,
            Op::Open(_) => OPEN,
            Op::Posted(..) => POSTED,
        };
        let args = g.plan.size(&mut g.rng);
        let mut call = Call::new(between, export, procedure, args, g.net.now());
        if call.is_access() {
            // A server that answers a reading at once recognises the reading by its arguments alone.
            call.args = args.max(16);
            call.result = g.plan.size(&mut g.rng).max(Head::LEN);
            call.exception = g.rng.chance(20_000);
        }
        (call.import, call.stream) = match op {
            Op::Any => (None, 0),
            Op::Open(import) => (Some(import), 0),
            Op::Posted(import, stream) => (Some(import), stream),
        };
        call.inside = matches!(op, Op::Any) && !call.is_access() && g.rng.chance(g.plan.inside);
        call.traced = call.args < 8 || g.rng.chance(100_000);
        call
    }

    /// Makes a call, if one may be made.
    pub(crate) fn call(&mut self, g: &mut Ground, server: usize, export: u64, op: Op) -> bool {
        let (at, now, leaves) = (g.now(), self.clock.read(g.now()), self.leaving(g));
        let Some(talk) = &mut self.conversations[server] else {
            return false;
        };
        if g.budget == 0 || talk.calls() >= g.plan.open || talk.bound_to != talk.server_key() {
            return false;
        }
        g.budget -= 1;
        let call = g.oracle.calls.len();
        let wait = g.plan.draw_deadline(&mut g.rng);
        let mut meant = ClientNode::draw(g, (self.index, server), export, op);
        meant.deadline = wait.map(|d| at + d);
        g.oracle.made(meant);
        let args = meant.args;
        g.note(&[7, call as u64], || {
            format!("client {} starts call {call} to server {server}, {args} bytes", self.index)
        });
        let mut body = talk.core.buffer();
        g.oracle.write_args(call, &mut body);
        let what = client::Call {
            export,
            procedure: meant.procedure,
            deadline: wait.map(|d| now + std::time::Duration::from_nanos(d)),
            trace: meant.traced.then(|| g.oracle.trace(call)),
            token: call as u64,
        };
        talk.touched = at;
        // The driver starts a call on the fast path if the calling thread is alone at its endpoint.
        let callee = (export, meant.procedure);
        let opens = talk.begin_inside(g, self.index, call);
        let plain = wait.is_none() && !meant.traced && !opens;
        let brief = plain && g.rng.chance(600_000);
        if let Some(brief) = brief.then(|| talk.core.start_lone(callee, &body, &mut g.scratch)).flatten() {
            g.send_after(self.later, self.address, address(server, 7000), brief.bytes);
            let looked = brief.timed || g.rng.chance(300_000);
            talk.brief = Some(Briefly { call, brief, at: leaves, looked, args: body });
            self.perhaps_cancel(g, call);
            return true;
        }
        match talk.core.start(|| now, &what, &mut body) {
            Ok(id) => {
                talk.open.push((call, id));
                // A call with exchanges is not detached, because its caller would have to go on sending in
                // them.
                if g.rng.chance(g.plan.detach) && !opens {
                    talk.core.detach(id, g.rng.chance(500_000));
                    g.oracle.calls[call].detached = true;
                }
            }
            Err(failure) => {
                talk.inside.remove(&call);
                g.oracle.failed(at, call, &failure, at);
                return false;
            }
        }
        self.perhaps_cancel(g, call);
        true
    }

    fn perhaps_cancel(&self, g: &mut Ground, call: usize) {
        if g.rng.chance(g.plan.cancel) {
            let later = if g.rng.chance(300_000) { 0 } else { g.rng.spread(1, 4 * g.plan.pause) };
            g.net.after(later, Event::Cancel { client: self.index, call });
        }
    }

    fn handle(&mut self, g: &mut Ground, from: SocketAddr, mut bytes: Vec<u8>) {
        let (at, now) = (g.now(), self.clock.read(g.now()));
        let server = crate::net::host(from);
        if server < g.plan.servers {
            g.server_reached(server, self.address);
        }
        let to = match route(&bytes) {
            None => None,
            Some(Route::Sender) => Some(server),
            Some(Route::Conversation(id)) => {
                let has = |talk: &Option<Talk>| talk.as_ref().is_some_and(|t| t.core.id() == id);
                self.conversations.iter().position(has)
            }
        };
        if let Some(server) = to
            && let Some(Some(talk)) = self.conversations.get_mut(server)
        {
            talk.touched = at;
            let digest = xxh3_64(&bytes);
            let Ok(opened) = talk.unseal(&mut bytes) else { return g.net.recycle(bytes) };
            // It may have come through somebody who saw it, from that one's address.
            g.server_reached(server, self.address);
            let (sealed, before) = (opened.is_some(), talk.core.stats());
            let (oracle, ended, when) = (&mut g.oracle, &mut self.ended, (at, talk.heard));
            // A process that was stopped while it waited does not know how late a result came
            // (docs/protocol.md 7.4).
            let dated = |oracle: &Oracle, call: usize| oracle.calls[call].sent > self.resumed_at;
            if let Some(Briefly { call, brief, at: sent, looked, .. }) = &talk.brief
                && let Some(body) =
                    talk.core.end_lone(|| now, brief, looked.then_some(*sent), (&bytes, opened))
            {
                if !looked || dated(oracle, *call) {
                    talk.heard = at;
                }
                end(oracle, ended, when, *call, Outcome::Result(body.into()));
                talk.brief = None;
                self.check_sealed(g, sealed.then_some(digest), &bytes);
                self.after_events(g, server);
                return g.net.recycle(bytes);
            }
            talk.go_on(now);
            talk.core.receive_opened(now, (&bytes, opened), &mut |event| take(oracle, ended, when, event));
            let after = talk.core.stats();
            let received = after.received > before.received;
            // In a run with keys, what is not sealed shows nothing.
            let counts = g.plan.scheme().is_none_or(|scheme| bytes[1] == scheme);
            if counts && received && is_word(&bytes, after.duplicates > before.duplicates) {
                talk.heard = at;
            }
            self.check_sealed(g, (sealed && received).then_some(digest), &bytes);
            self.after_events(g, server);
        }
        g.net.recycle(bytes);
    }

    /// Acts, for the user, on calls and binds that have ended.
    fn after_events(&mut self, g: &mut Ground, server: usize) {
        let ended = std::mem::take(&mut self.ended);
        for end in &ended {
            let Some(talk) = &mut self.conversations[server] else {
                break;
            };
            talk.touched = g.now();
            match *end {
                Ended::Bound(export) => {
                    (talk.binding, talk.export) = (false, export);
                    talk.check_bound(g, export.is_some(), NAME);
                    talk.bound_to = talk.server_key();
                }
                Ended::BoundOther(bound) => {
                    talk.asking = false;
                    talk.check_bound(g, bound, OTHER);
                }
                Ended::Call { call, rebind, reply } => {
                    talk.end_inside(g, call);
                    talk.open.retain(|(c, _)| *c != call);
                    if rebind && talk.export == Some(g.oracle.calls[call].export) {
                        talk.export = None;
                    }
                    let now = g.now();
                    let state = g.oracle.calls[call].state;
                    g.note(&[8, call as u64], || {
                        format!("client {}: call {call} has ended: {state:?}", self.index)
                    });
                    if now - self.resumed_at > 50 * MILLIS {
                        g.oracle.deadline_kept(now, call);
                    }
                    if g.oracle.calls[call].import.is_some() {
                        self.posts_end(g, server, call, reply);
                    } else if state == State::Returned
                        && let Some(export) = talk.export.filter(|_| g.rng.chance(g.plan.chain))
                    {
                        self.call(g, server, export, Op::Any);
                    }
                }
            }
        }
        self.ended = ended;
        self.ended.clear();
    }

    /// Sends everything that is ready, and sets the timer.
    fn settle(&mut self, g: &mut Ground) {
        let (at, now) = (g.now(), self.leaving(g));
        self.hear_inside(g);
        for server in 0..self.conversations.len() {
            let Some(talk) = &mut self.conversations[server] else {
                continue;
            };
            let begins = g.plan.moves > 0 && talk.core.stats().outstanding > 0;
            let unsent: Vec<usize> = match begins {
                true => talk.unsent(),
                false => Vec::new(),
            };
            let idle = talk.core.stats().outstanding == 0
                && !talk.binding
                && !talk.asking
                && at - talk.touched > IDLE_AFTER;
            let mut sent = 0;
            let flying = talk.core.stats().in_flight;
            while let Some(len) = talk.core.transmit(now, &mut g.scratch) {
                g.send_after(self.later, self.address, address(server, 7000), len);
                sent += 1;
                if sent > 100_000 {
                    return g.oracle.violate("sending-ends", at, || format!("client {}", self.index));
                }
            }
            let config = &g.plan.client;
            let window =
                if talk.core.has_company(now) { config.shared_local_window } else { config.local_window };
            if g.plan.is_local() && talk.core.stats().in_flight > flying.max(window) {
                let seen = (flying, talk.core.stats().in_flight);
                g.oracle.violate("local-window-is-kept", at, || {
                    format!("client {}: {seen:?}, {window}", self.index)
                });
            }
            for call in unsent {
                if talk
                    .open
                    .iter()
                    .any(|(open, id)| *open == call && talk.core.progress(*id) != CallProgress::Unsent)
                {
                    g.oracle.calls[call].sent = at;
                }
            }
            if idle && sent > 0 {
                g.oracle
                    .violate("idle-is-silent", at, || format!("client {} to server {server}", self.index));
            }
            if let Some(due) = talk.timeout() {
                let due = self.clock.when(at, due);
                if due < self.armed {
                    self.armed = due;
                    g.net.at(due, Event::Wake(self.index));
                }
            }
        }
    }

    /// Asserts at the end of the run that no call is outstanding and no timer runs.
    pub fn must_be_idle(&self, g: &mut Ground) {
        for talk in self.conversations.iter().flatten() {
            talk.core.audit();
            let stats = talk.core.stats();
            let left = (stats.outstanding, talk.core.timeout(), stats.in_flight, talk.core.has_news());
            if left != (0, None, 0, false) {
                let now = g.now();
                g.oracle.violate("memory-returns", now, || {
                    format!("client {}: outstanding, timeout, in flight, news are {left:?}", self.index)
                });
            }
        }
    }
}

/// The time, and the time at which the client last received from the server as far as the client can know.
type When = (Nanos, Nanos);

/// Reports to the oracle how a call ended, and keeps what the user needs to know.
fn take(oracle: &mut Oracle, ended: &mut Vec<Ended>, when: When, event: client::Event<'_>) {
    let (token, outcome) = match event {
        client::Event::Bound { token: BIND_OTHER, answer } => {
            return ended.push(Ended::BoundOther(answer.is_ok()));
        }
        client::Event::Bound { answer, .. } => {
            return ended.push(Ended::Bound(answer.ok().map(|bound| bound.export)));
        }
        client::Event::Ended { token, outcome, .. } => (token, outcome),
    };
    end(oracle, ended, when, token as usize, outcome);
}

fn end(oracle: &mut Oracle, ended: &mut Vec<Ended>, (at, heard): When, call: usize, outcome: Outcome<'_>) {
    if call >= oracle.calls.len() {
        return oracle.violate("ends-once", at, || format!("call {call} does not exist"));
    }
    use Kind::{Draining, NotExported, ServerRestarted, Unreachable};
    let rebinds = |kind: Kind| matches!(kind, ServerRestarted | NotExported | Draining | Unreachable);
    let rebind = matches!(&outcome, Outcome::Failed(Failure { kind, .. }) if rebinds(*kind));
    let reply = match &outcome {
        Outcome::Result(body) => Head::read(body).map_or(Reply::Other, |(head, _)| Reply::Access(head)),
        Outcome::Exception(_) => Reply::Other,
        Outcome::Failed(failure) => Reply::Failed(failure.kind),
    };
    match outcome {
        Outcome::Result(body) => oracle.returned(at, call, &body, false),
        Outcome::Exception(body) => oracle.returned(at, call, &body, true),
        Outcome::Failed(failure) => oracle.failed(at, call, &failure, heard),
    }
    ended.push(Ended::Call { call, rebind, reply });
}

/// Returns whether an accepted datagram shows that the server of the client's ticket is alive: a frame about
/// a call, or a requested welcome that grants something. A hint that the ticket is invalid does not show it.
fn is_word(datagram: &[u8], duplicate: bool) -> bool {
    // The offset of the length of the rest of the ticket. A nonce and a conversation identifier come before
    // it.
    const REST_AT: usize = 20 + 4 + 8 + 8 + 40;
    let rest = datagram.get(REST_AT..REST_AT + 4).and_then(|len| len.try_into().ok());
    let refused_at = REST_AT + 4 + rest.map_or(0, u32::from_be_bytes) as usize % 512 + 4;
    match datagram.get(20) {
        Some(&(RESULT | SELECT | STATE | MTU_ECHO | DATA | CREDIT | STOP)) => datagram[4..12] != [0; 8],
        Some(&WELCOME) => !duplicate && datagram.get(refused_at..refused_at + 2) == Some(&[0, 0]),
        _ => false,
    }
}
