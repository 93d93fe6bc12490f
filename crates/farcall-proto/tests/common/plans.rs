//! What both ends of random exchanges do, computed from the seed of the run.

use farcall_proto::Tail;

/// The longest item, in bytes.
const LONGEST: u64 = 60_000;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..4).for_each(|_| _ = random.below(2));
        random
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

/// The byte at a place of the direction that one end sends in an exchange of a call.
pub fn byte(token: u64, exchange: u32, from: End, at: u64) -> u8 {
    let direction = token * 512 + u64::from(exchange) * 2 + from as u64;
    ((at + direction * 7_919).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8
}

/// What one end does in one exchange.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The bytes that it sends; `None` if it does not send at all.
    pub sends: Option<u64>,
    /// It ends its direction; if not, the direction ends with the call.
    pub ends: bool,
    /// It sends only when it has taken all of the other end's direction.
    pub answers: bool,
    pub tail: Option<Tail>,
    /// It stops when it has taken so many bytes.
    pub stops_at: Option<u64>,
    /// It takes at most so many bytes at a time.
    pub takes: u64,
}

/// What both ends do in an exchange: the client, and the server.
pub fn plans(seed: u64, token: u64, exchange: u32) -> [Plan; 2] {
    let mut random = Random::new(seed ^ token << 20 ^ u64::from(exchange) << 40);
    let server_opens = exchange.is_multiple_of(2);
    let length = |random: &mut Random| match random.below(4) {
        0 => 4 * random.below(4),
        1 | 2 => 4 * random.below(1_000),
        _ => 4 * random.below(LONGEST / 4 + 1),
    };
    let mut plans: [Plan; 2] = Default::default();
    for plan in &mut plans {
        plan.takes = [100, 4_000, u64::MAX][random.below(3) as usize];
    }
    let (opener, other) = if server_opens { (1, 0) } else { (0, 1) };
    if server_opens && random.one_in(3) {
        // A question and its answer.
        for place in [opener, other] {
            plans[place].sends = Some(4 + length(&mut random) / 4 * 4);
            (plans[place].ends, plans[place].tail) = (true, Some(Tail::Question));
        }
        plans[other].answers = true;
        return plans;
    }
    for place in [opener, other] {
        let sends = place == opener || random.one_in(2);
        plans[place].sends = sends.then(|| length(&mut random));
        plans[place].ends = !random.one_in(6);
        plans[place].tail = Some(Tail::End);
        plans[place].stops_at = random.one_in(8).then(|| random.below(20_000));
        plans[place].answers = place == other && random.one_in(3);
    }
    plans
}
