//! What passes inside the calls of a run: signals, streams and bulk. What each end does in an exchange
//! follows from the call and the exchange alone, so both ends and the oracle know what to expect.

use farcall_proto::Tail;

use crate::net::{MILLIS, Nanos, SECS};
use crate::rng::{Rng, mix};

/// The most bytes that a user adds to a direction at once.
pub const CHUNK: u64 = 20_000;

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
    /// After how many steps each user does nothing for long, and how long, if it does.
    pub halts: [Option<(u32, Nanos)>; 2],
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
        let (awaits, says_no) = (rng.chance(500_000), rng.chance(30_000));
        let mut halt = || rng.chance(10_000).then(|| (rng.within(1, 4) as u32, rng.spread(SECS, 40 * SECS)));
        Habits { opens, awaits, pauses, stalls, halts: [halt(), halt()], says_no }
    }
}

/// Counts a step of a user. Returns until when the user does nothing, if it is to stall now; otherwise 0.
pub fn halt(halts: &mut Option<(u32, Nanos)>, now: Nanos) -> Nanos {
    let Some((steps, time)) = halts else { return 0 };
    *steps -= 1;
    let until = if *steps == 0 { now + *time } else { 0 };
    halts.take_if(|(steps, _)| *steps == 0);
    until
}

/// What one end does in one exchange.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The bytes that it sends; `None` if it does not send at all.
    pub sends: Option<u64>,
    /// It ends its direction. If not, the direction ends with the call.
    pub ends: bool,
    /// It is done only when the other end takes no more, as a procedure is that tells its caller of changes
    /// until the caller has seen enough.
    pub until_stopped: bool,
    /// It sends only when it has taken all of the other end's direction.
    pub answers: bool,
    /// It stops when it has taken so many bytes.
    pub stops_at: Option<u64>,
    /// The most bytes that it takes at once.
    pub takes: u64,
    /// The most bytes that it adds at once. If this is little, it adds more only when all it added before has
    /// arrived.
    pub adds: u64,
}

impl Part {
    /// Returns what comes behind the last byte.
    pub fn tail(&self, is_question: bool) -> Tail {
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
            until_stopped: false,
            takes: 0,
            adds: rng.pick(&[CHUNK, CHUNK, most]),
        };
    }
    for place in [opener, other] {
        let least = parts[1 - place].sends.unwrap_or_default() / 30;
        parts[place].takes = rng.pick(&[least + 100, least + 4_000, u64::MAX]);
    }
    // Nothing waits for what a client sends: its call ends with the procedure.
    let [client, server] = &mut parts;
    let chance = mix(key ^ u64::from(exchange) << 32 ^ 1 << 41);
    if let Some(len) = server.sends.filter(|_| !server.ends && chance.is_multiple_of(2)) {
        server.until_stopped = true;
        client.stops_at = Some((chance >> 1) % (len + 1));
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
