//! What passes inside the calls of a run: signals, streams and bulk. What each end does in an exchange follows
//! from the call and the exchange alone, so both ends and the oracle know what to expect.

use farcall_proto::{News, Tail};

use crate::net::{MILLIS, Nanos, SECS};
use crate::oracle::Oracle;
use crate::rng::{Rng, mix};

/// The most bytes that a user adds to a direction at once.
const CHUNK: u64 = 20_000;

/// The reason that a user gives for taking no more of an exchange.
const STOPS: u32 = 0x5a5a;

/// After this time a user tries again to open an exchange, if too many are open.
pub const RETRY: Nanos = 20 * MILLIS;

/// One of the two ends of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The caller's.
    Client,
    /// The procedure's.
    Server,
}

impl End {
    /// Returns the other end.
    pub fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// How both ends treat a call with exchanges.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// How many exchanges the client opens, and the server.
    pub opens: [u32; 2],
    /// The procedure does not end before it has heard of all exchanges that the client opens.
    pub awaits: bool,
    /// How long each user pauses between two steps.
    pub pauses: [Nanos; 2],
    /// How long each user does nothing at first.
    pub stalls: [Nanos; 2],
    /// The procedure ends with a failure that says that it did not run.
    pub says_no: bool,
}

impl Habits {
    /// Returns the habits of the call with this key.
    pub fn of(key: u64) -> Habits {
        let mut rng = Rng::new(key);
        let opens = |rng: &mut Rng| match rng.below(100) {
            0 => 70,
            1..40 => 0,
            _ => rng.within(1, 3) as u32,
        };
        let opens = [opens(&mut rng), opens(&mut rng)];
        let pauses = [(); 2].map(|()| rng.pick(&[0, 0, MILLIS, 5 * MILLIS, 200 * MILLIS]));
        let stalls = [(); 2].map(|()| if rng.chance(50_000) { rng.spread(MILLIS, 5 * SECS) } else { 0 });
        Habits { opens, awaits: rng.chance(500_000), pauses, stalls, says_no: rng.chance(30_000) }
    }
}

/// What one end does in one exchange.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The bytes that it sends; `None` if it does not send at all.
    pub sends: Option<u64>,
    /// It ends its direction. If not, the direction ends with the call.
    ends: bool,
    /// It sends only when it has taken all of the other end's direction.
    answers: bool,
    /// It stops when it has taken so many bytes.
    stops_at: Option<u64>,
    /// The most bytes that it takes at once.
    takes: u64,
    /// The most bytes that it adds at once. If these are few, they wait until what was added before has arrived.
    adds: u64,
}

impl Part {
    fn tail(&self, is_question: bool) -> Tail {
        match (self.ends, is_question) {
            (false, _) => Tail::More,
            (true, true) => Tail::Question,
            (true, false) => Tail::End,
        }
    }
}

/// Returns whether an exchange is a signal: the server's question, and the client's answer.
pub fn is_signal(key: u64, exchange: u32) -> bool {
    exchange.is_multiple_of(2) && mix(key ^ u64::from(exchange)) % 5 < 2
}

/// Returns whether the answer to a signal unwinds the procedure.
pub fn unwinds(key: u64, exchange: u32) -> bool {
    is_signal(key, exchange) && mix(key ^ u64::from(exchange) ^ 1 << 40).is_multiple_of(8)
}

/// Returns what the client and the server do in an exchange.
pub fn parts(key: u64, exchange: u32) -> [Part; 2] {
    let mut rng = Rng::new(key ^ u64::from(exchange) << 32);
    let many = Habits::of(key).opens.iter().any(|opens| *opens > 3);
    let length = |rng: &mut Rng| match rng.below(40) {
        0 if !many => 4 * rng.below(50_000),
        1..5 if !many => 4 * rng.below(8_000),
        5..24 => 4 * rng.below(500),
        _ => 4 * rng.below(8),
    };
    let (opener, other) = if exchange.is_multiple_of(2) { (1, 0) } else { (0, 1) };
    let mut parts: [Part; 2] = Default::default();
    if is_signal(key, exchange) {
        for part in &mut parts {
            let sends = Some(4 + length(&mut rng));
            *part = Part { sends, ends: true, takes: u64::MAX, adds: CHUNK, ..Part::default() };
        }
        parts[other].answers = true;
        return parts;
    }
    for place in [opener, other] {
        let sends = (place == opener || rng.chance(500_000)).then(|| length(&mut rng));
        let most = if sends.is_some_and(|len| len < 8_000) { 200 } else { CHUNK };
        parts[place] = Part {
            sends,
            ends: sends == Some(0) || !rng.chance(150_000),
            answers: place == other && parts[opener].ends && rng.chance(300_000),
            stops_at: rng.chance(120_000).then(|| rng.below(20_000)),
            takes: 0,
            adds: rng.pick(&[CHUNK, CHUNK, most]),
        };
    }
    for place in [opener, other] {
        let least = parts[1 - place].sends.unwrap_or_default() / 30;
        parts[place].takes = rng.pick(&[least + 100, least + 4_000, u64::MAX]);
    }
    parts
}

/// Appends `len` bytes of the direction that one end of a call sends in an exchange, from `start` on.
pub fn content((key, exchange, from): (u64, u32, End), start: u64, len: u64, out: &mut Vec<u8>) {
    let direction = mix(key ^ u64::from(exchange) << 33 ^ (from as u64 + 1) << 32);
    let mut word = 0;
    for at in start..start + len {
        if at.is_multiple_of(8) || at == start {
            word = mix(direction ^ (at / 8));
        }
        out.push((word >> (8 * (at % 8))) as u8);
    }
}

/// What the user of one end does with its end of the call.
pub trait Verbs {
    /// The end.
    const END: End;
    /// Adds bytes to a direction.
    fn send_in(&mut self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize>;
    /// Takes bytes that have come.
    fn take_from(&mut self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool>;
    /// Takes no more.
    fn stop(&mut self, exchange: u32, reason: u32);
    /// Returns whether bytes that were added have not arrived, as far as is known. If so, [`News::Room`] comes.
    fn awaits_credit(&mut self, exchange: u32) -> bool;
}

/// What the user of one end knows of an exchange.
#[derive(Clone, Debug)]
pub struct User {
    part: Part,
    /// The bytes that the other end sends, if it sends any.
    comes: Option<u64>,
    is_signal: bool,
    sent: u64,
    taken: u64,
    /// Its own direction has ended, or is not to be sent.
    ended: bool,
    /// The other end's direction has ended, and all of it was taken.
    all: bool,
    /// It takes no more.
    stopped: bool,
    was_stopped: bool,
    can_take: bool,
    can_send: bool,
}

impl User {
    /// Makes the user of one end, who knows of the exchange and has done nothing.
    pub fn new(key: u64, exchange: u32, end: End) -> User {
        let [client, server] = parts(key, exchange);
        let (part, other) = if end == End::Client { (client, server) } else { (server, client) };
        User {
            comes: other.sends,
            is_signal: is_signal(key, exchange),
            sent: 0,
            taken: 0,
            ended: part.sends.is_none(),
            all: false,
            stopped: false,
            was_stopped: false,
            can_take: false,
            can_send: true,
            part,
        }
    }

    /// Acts on news about the exchange. Returns what is wrong with it, if anything is.
    pub fn hear(&mut self, news: News, exchange: u32) -> Option<&'static str> {
        match news {
            News::Came => self.can_take = true,
            News::Room => self.can_send = true,
            News::Stopped(reason) => {
                let again = std::mem::replace(&mut self.was_stopped, true);
                self.ended = true;
                return (again || reason != exchange ^ STOPS)
                    .then_some("a stop is told once, with its reason");
            }
        }
        None
    }

    /// Returns whether the user has done all that it does in the exchange.
    pub fn is_done(&self) -> bool {
        let sent = self.ended || self.part.sends == Some(self.sent) && !self.part.ends;
        let taken = self.all || self.stopped || self.comes.is_none_or(|comes| self.taken >= comes);
        sent && taken
    }

    /// Returns whether the user has taken all of the other end's direction.
    pub fn has_all(&self) -> bool {
        self.all
    }

    /// Does what can be done now. Returns whether there is more to do at once.
    pub fn step<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) -> bool {
        if self.part.stops_at.is_some_and(|at| self.taken >= at) && !self.stopped && !self.all {
            self.stopped = true;
            oracle.stops(call, exchange, V::END);
            verbs.stop(exchange, exchange ^ STOPS);
        }
        if self.can_take && !self.stopped {
            self.take(verbs, oracle, (now, call), exchange);
        }
        self.send(verbs, oracle, (now, call), exchange);
        self.can_take && !self.stopped || self.may_send()
    }

    fn take<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) {
        let (mut into, most) = (Vec::new(), self.part.takes.min(1 << 30) as usize);
        let Some(all) = verbs.take_from(exchange, &mut into, most) else {
            // The call has ended or was given up.
            (self.can_take, self.all) = (false, true);
            return;
        };
        self.can_take = into.len() == most;
        oracle.takes(now, call, (exchange, V::END.other()), self.taken, &into);
        self.taken += into.len() as u64;
        if all && !std::mem::replace(&mut self.all, true) {
            (self.can_take, self.can_send) = (false, true);
            if self.is_signal {
                oracle.handles(now, call, exchange, V::END);
            }
        }
    }

    fn may_send(&self) -> bool {
        let comes_later = self.part.answers && !self.all && !self.stopped;
        let sent = self.part.sends == Some(self.sent) && !self.part.ends;
        self.can_send && !self.ended && !sent && !comes_later
    }

    fn send<V: Verbs>(
        &mut self,
        verbs: &mut V,
        oracle: &mut Oracle,
        (now, call): (Nanos, usize),
        exchange: u32,
    ) {
        if self.was_stopped && std::mem::take(&mut self.can_send) {
            if verbs.send_in(exchange, &[0; 4], Tail::More).is_some() {
                oracle.violate("a-stop-is-obeyed", now, || format!("call {call}, exchange {exchange}"));
            }
            return;
        }
        let Some(len) = self.part.sends.filter(|_| self.may_send()) else { return };
        let more = (len - self.sent).min(self.part.adds);
        let mut bytes = Vec::with_capacity(more as usize);
        content((oracle.token(call), exchange, V::END), self.sent, more, &mut bytes);
        let last = self.sent + more == len;
        let tail = if last { self.part.tail(self.is_signal) } else { Tail::More };
        let Some(added) = verbs.send_in(exchange, &bytes, tail) else {
            self.ended = true;
            return;
        };
        self.sent += added as u64;
        self.can_send = added == bytes.len();
        self.ended = last && self.can_send && self.part.ends;
        oracle.sends(now, call, (exchange, V::END), self.sent);
        if self.can_send && !self.ended && self.part.adds < CHUNK {
            self.can_send = !verbs.awaits_credit(exchange);
        }
    }
}
