//! Hostile clients. The server has accepted them, and they consume its time and memory by everything that the
//! protocol allows them to send.
use std::net::{SocketAddr, UdpSocket};

use farcall_proto::client::{Call, Conversation, Event, Outcome};
use farcall_proto::{ClientConfig, MAX_DATAGRAM};

use super::formed::now;
use super::frames::{ACK, BIND, CANCEL, Datagram, MTU_PROBE, POST, PROBE, SELECT};
use super::target::{GIVE, NAME, PARK, SEGMENT, SEGMENT_BYTES, STALL, TAKE};

/// The kinds of hostile datagrams, drawn with equal probability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Fragments of calls of the activities with the highest numbers.
    Highest,
    /// First fragments far from the beginning of the arguments.
    Ahead,
    /// Arguments of which every second piece, or the last piece, is missing.
    Gaps,
    /// Thousands of PROBEs.
    Probes,
    /// CANCELs of random calls.
    Cancels,
    /// Calls whose long results are never fetched.
    Unfetched,
    /// Calls with results of 1,000 bytes, each repeated as often as it fits into the datagram.
    Again,
    /// BINDs whose answers are not used.
    Binds,
    /// Reads of 1 MiB each, many at the same time.
    Reads,
    /// Writes, many at the same time.
    Writes,
    /// Posted writes, in order and out of order.
    Posts,
    /// Calls that wait, in a procedure that is marked `#[blocking]`.
    Parked,
    /// Calls that wait, in a procedure that is not marked `#[blocking]`.
    Stalled,
    /// Invalid ACKs and SELECTs, other sizes, random bytes.
    Words,
    /// The client abandons its conversation, with everything that the server keeps for it, and begins
    /// another. Only one draw in eight does so, because it takes several datagrams. The other draws are
    /// `words`.
    Anew,
    /// A connection for shared memory on which nothing is sent, instead of a datagram.
    Silent,
}

const HIGHEST: u32 = 16_383;
/// The procedure numbers of accesses to segments (docs/memory-protocol.md).
const READ: u32 = 0xffff_8000;
const FACTS: u32 = 0xffff_8001;
const WRITE: u32 = 0xffff_4000;
const OPEN: u32 = 0xffff_4002;

/// For the kind [`Kind::Gaps`]: the length that unfinished arguments claim to have, the bytes of each piece,
/// and how many pieces of a call are sent.
const TOTAL: u32 = 8 << 20;
const PIECE: u32 = 1_000;
const PIECES: u32 = 250;

/// One connection of a hostile client.
pub struct Talk {
    socket: UdpSocket,
    server: SocketAddr,
    local: bool,
    state: State,
    buffer: Vec<u8>,
}

enum State {
    /// Connects, so that the server learns of the client.
    Meeting(Box<Meeting>),
    Known(Box<Known>),
}

struct Meeting {
    core: Conversation,
    export: Option<u64>,
    memory: Option<u64>,
    generation: Option<u64>,
    stream: Option<u64>,
    /// The server's identifier of the conversation.
    id: u64,
    failed: bool,
}

/// The state that is needed to write datagrams by hand.
struct Known {
    id: u64,
    export: u64,
    memory: u64,
    generation: u64,
    stream: u64,
    number: u64,
    sequence: u64,
    posted: u64,
    /// The call whose arguments do not end: its activity, its number and the next piece.
    gaps: (u32, u64, u32),
}

impl Talk {
    pub fn new(socket: UdpSocket, server: SocketAddr, dice: &mut Dice) -> Talk {
        let local = server.ip().is_loopback();
        let state = State::Meeting(Box::new(Meeting::new(local, dice)));
        Talk { socket, server, local, state, buffer: vec![0; MAX_DATAGRAM] }
    }

    /// Receives datagrams, and continues the handshake if it is not over. Returns whether another handshake
    /// begins, because the server has forgotten the conversation.
    pub fn receive(&mut self, sizes: &mut Vec<u32>, dice: &mut Dice) -> bool {
        let mut forgotten = false;
        while let Ok((len, _)) = self.socket.recv_from(&mut self.buffer) {
            let datagram = &self.buffer[..len];
            match &mut self.state {
                State::Meeting(meeting) => meeting.receive(datagram),
                // The datagram is a CHALLENGE or a STALE.
                State::Known(_) => forgotten |= matches!(datagram.get(20), Some(3 | 4)),
            }
        }
        if let State::Meeting(meeting) = &mut self.state {
            forgotten |= meeting.step();
            while let Some(len) = meeting.core.transmit(now(), &mut self.buffer) {
                meeting.id = self.buffer[4..12].try_into().map_or(0, u64::from_be_bytes);
                sizes.push(len as u32);
                // A datagram that the system refuses is lost, like any datagram.
                let _ = self.socket.send_to(&self.buffer[..len], self.server);
            }
            if let Some(known) = meeting.known() {
                self.state = State::Known(Box::new(known));
            }
        }
        if forgotten {
            self.meet(dice);
        }
        forgotten
    }

    /// Leaves the conversation, if there is one, and begins another.
    pub fn meet(&mut self, dice: &mut Dice) {
        self.state = State::Meeting(Box::new(Meeting::new(self.local, dice)));
    }

    /// Sends a datagram of this kind if the server has accepted the client. Returns whether it did.
    pub fn harm(&mut self, kind: Kind, dice: &mut Dice, sizes: &mut Vec<u32>) -> bool {
        let State::Known(known) = &mut self.state else { return false };
        let datagram = known.datagram(kind, dice, self.local);
        sizes.push(datagram.len() as u32);
        // A datagram that the system refuses is lost, like any datagram.
        let _ = self.socket.send_to(&datagram, self.server);
        true
    }
}

impl Meeting {
    fn new(local: bool, dice: &mut Dice) -> Meeting {
        let config = ClientConfig { loopback: local, ..ClientConfig::default() };
        let mut core = Conversation::new(config, dice.next() | 1);
        core.bind(now(), NAME, 0);
        core.bind(now(), &format!("Memory/{SEGMENT}"), 1);
        Meeting { core, export: None, memory: None, generation: None, stream: None, id: 0, failed: false }
    }

    fn receive(&mut self, datagram: &[u8]) {
        let Meeting { core, export, memory, generation, stream, failed, .. } = self;
        core.receive(now(), datagram, &mut |event| match event {
            Event::Bound { token: 0, answer: Ok(bound) } => *export = Some(bound.export),
            Event::Bound { answer: Ok(bound), .. } => *memory = Some(bound.export),
            Event::Ended { token, outcome: Outcome::Result(body), .. } => {
                let word = body.first_chunk().copied().map(u64::from_be_bytes);
                *(if token == u64::from(FACTS) { &mut *generation } else { &mut *stream }) = word;
            }
            Event::Bound { .. } | Event::Ended { .. } => *failed = true,
        });
    }

    /// Makes the next call of the handshake. Returns whether the handshake has failed.
    fn step(&mut self) -> bool {
        if let (Some(export), 0) = (self.memory, self.core.stats().outstanding) {
            let next = match (self.generation, self.stream) {
                (None, _) => Some((FACTS, Vec::new())),
                (Some(generation), None) => Some((OPEN, generation.to_be_bytes().to_vec())),
                _ => None,
            };
            if let Some((procedure, mut arguments)) = next {
                let call = Call { export, procedure, deadline: None, trace: None, token: procedure.into() };
                self.failed |= self.core.start(now, &call, &mut arguments).is_err();
            }
        }
        if self.core.timeout().is_some_and(|due| due <= now()) {
            let failed = &mut self.failed;
            self.core.handle_timeout(now(), &mut |_| *failed = true);
        }
        self.failed
    }

    fn known(&self) -> Option<Known> {
        Some(Known {
            id: self.id,
            export: self.export?,
            memory: self.memory?,
            generation: self.generation?,
            stream: self.stream?,
            number: 1 << 40,
            sequence: 1 << 20,
            posted: 0,
            gaps: (0, 1 << 20, 0),
        })
    }
}

impl Known {
    fn datagram(&mut self, kind: Kind, dice: &mut Dice, local: bool) -> Vec<u8> {
        self.number += 1;
        if kind == Kind::Binds {
            return bind(dice);
        }
        let mut datagram = Datagram::new(self.id, self.number, local);
        match kind {
            Kind::Highest => self.fragment(&mut datagram, HIGHEST - dice.below(16) as u32, 0, 16),
            Kind::Ahead => self.several(dice, 20, |known, dice| {
                known.fragment(&mut datagram, dice.below(u64::from(HIGHEST)) as u32, TOTAL - 64, 40)
            }),
            Kind::Gaps => self.several(dice, 50, |known, dice| known.piece(&mut datagram, dice)),
            Kind::Probes => self.ask(&mut datagram, dice, PROBE),
            Kind::Cancels => self.ask(&mut datagram, dice, CANCEL),
            Kind::Unfetched => self.several(dice, 4, |known, dice| {
                let bytes = 20_000 + dice.below(240_000) as u32;
                known.call(&mut datagram, 2_000 + dice.below(2_000) as u32, GIVE, &bytes.to_be_bytes())
            }),
            Kind::Again => self.again(&mut datagram, dice),
            Kind::Reads => self.several(dice, 200, |known, dice| known.read(&mut datagram, dice)),
            Kind::Writes => self.several(dice, 8, |known, dice| known.write(&mut datagram, dice)),
            Kind::Posts => self.several(dice, 50, |known, dice| known.post(&mut datagram, dice)),
            Kind::Parked => self.several(dice, 4, |known, dice| {
                known.call(&mut datagram, 8_000 + dice.below(4_000) as u32, PARK, &[])
            }),
            Kind::Stalled => self.call(&mut datagram, 12_000 + dice.below(1_000) as u32, STALL, &[]),
            Kind::Words | Kind::Anew | Kind::Silent | Kind::Binds => self.words(&mut datagram, dice),
        }
        datagram.finish()
    }

    /// Writes at least one frame of this kind.
    fn several(&mut self, dice: &mut Dice, most: u64, mut one: impl FnMut(&mut Known, &mut Dice)) {
        (0..=dice.below(most)).for_each(|_| one(self, dice));
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn call(&mut self, datagram: &mut Datagram, activity: u32, procedure: u32, arguments: &[u8]) {
        let sequence = self.next();
        datagram.call((activity, sequence), self.export, procedure, arguments);
    }

    fn fragment(&mut self, datagram: &mut Datagram, activity: u32, offset: u32, len: u32) {
        let sequence = self.next();
        datagram.fragment((activity, sequence), self.export, TAKE, (offset, len, TOTAL));
    }

    /// Writes the next piece of arguments that never end. Of half of the calls, every second piece is
    /// missing.
    fn piece(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        let (activity, sequence, piece) = self.gaps;
        let step = 1 + activity % 2;
        if datagram.has_room(PIECE as usize + 64) {
            let at = (piece * step * PIECE, PIECE, TOTAL);
            datagram.fragment((activity, sequence), self.export, TAKE, at);
            self.gaps.2 += 1;
        }
        if self.gaps.2 == PIECES {
            self.gaps = (dice.below(2_000) as u32, self.next(), 0);
        }
    }

    /// Writes thousands of frames about calls, of which some exist.
    fn ask(&mut self, datagram: &mut Datagram, dice: &mut Dice, kind: u8) {
        for _ in 0..=dice.below(2_900) {
            let sequence = self.sequence - dice.below(100);
            datagram.about(kind, 0, (dice.below(u64::from(HIGHEST) + 1) as u32, sequence), &[]);
        }
    }

    /// Writes a call with a result of 1,000 bytes, and repeats it as often as it fits.
    fn again(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        let (activity, sequence) = (4_000 + dice.below(64) as u32, self.next());
        for _ in 0..=dice.below(1_000) {
            datagram.call((activity, sequence), self.export, GIVE, &1_000u32.to_be_bytes());
        }
    }

    /// Writes a read of 1 MiB, in ranges.
    fn read(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        let mut arguments = self.generation.to_be_bytes().to_vec();
        for range in 0..16u64 {
            arguments.extend((range << 16).to_be_bytes());
            arguments.extend((1u32 << 16).to_be_bytes());
        }
        let sequence = self.next();
        datagram.call((5_000 + dice.below(1_000) as u32, sequence), self.memory, READ, &arguments);
    }

    /// Writes a write of some kilobytes to the upper half, with notice.
    fn write(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        let mut arguments = self.generation.to_be_bytes().to_vec();
        arguments.extend(upper(dice).to_be_bytes());
        [1, 6_000u32].iter().for_each(|word| arguments.extend(word.to_be_bytes()));
        arguments.resize(arguments.len() + 6_000, 9);
        let sequence = self.next();
        datagram.call((6_000 + dice.below(1_000) as u32, sequence), self.memory, WRITE, &arguments);
    }

    /// Writes a posted write, usually the next of its stream.
    fn post(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        let ahead = if dice.below(10) == 0 { dice.below(1_000) } else { 0 };
        let number = self.posted + ahead;
        self.posted += u64::from(ahead == 0);
        let mut body = Vec::with_capacity(1_100);
        [self.memory, self.stream, number, self.generation, upper(dice)]
            .iter()
            .for_each(|word| body.extend(word.to_be_bytes()));
        [1, 1_000u32].iter().for_each(|word| body.extend(word.to_be_bytes()));
        body.resize(body.len() + 1_000, 9);
        if datagram.has_room(body.len() + 8) {
            datagram.frame(POST, 0, &body);
        }
    }

    /// Writes frames that no honest client sends.
    fn words(&mut self, datagram: &mut Datagram, dice: &mut Dice) {
        match dice.below(4) {
            0 => {
                let mut body = (dice.next() >> 1).to_be_bytes().to_vec();
                body.extend((dice.next() as u32).to_be_bytes());
                (0..=dice.below(100)).for_each(|_| datagram.frame(ACK, 0, &body));
            }
            1 => {
                for _ in 0..=dice.below(100) {
                    let words: Vec<u8> = (0..4).flat_map(|_| dice.next().to_be_bytes()).collect();
                    let position = (2_000 + dice.below(2_000) as u32, self.sequence - dice.below(100));
                    datagram.about(SELECT, 1, position, &words);
                }
            }
            2 => (0..=dice.below(100))
                .for_each(|_| datagram.frame(MTU_PROBE, 0, &(dice.next() as u32).to_be_bytes())),
            _ => {
                let body: Vec<u8> = (0..=dice.below(100)).flat_map(|_| dice.next().to_be_bytes()).collect();
                datagram.frame(dice.next() as u8, dice.next() as u8, &body);
            }
        }
    }
}

/// Writes a BIND of a client that never sends again.
fn bind(dice: &mut Dice) -> Vec<u8> {
    let mut body = dice.next().to_be_bytes().to_vec();
    body.extend(dice.next().to_be_bytes());
    [1u16, 1].iter().for_each(|word| body.extend(word.to_be_bytes()));
    // It has both schemes, all procedures, a name that fills the field, and no handshake.
    [3, 0, NAME.len() as u32].iter().for_each(|word| body.extend(word.to_be_bytes()));
    body.extend(NAME.as_bytes());
    body.resize(body.len().next_multiple_of(4), 0);
    body.extend([0; 4]);
    let mut datagram = Datagram::new(0, dice.next(), false);
    datagram.frame(BIND, 0, &body);
    // It is padded to 1,200 bytes, so that the answer may be as long.
    let left = 1_200 - 20 - 4 - body.len() - 8 - 4;
    datagram.frame(0, 0, &vec![0; left & !3]);
    datagram.finish()
}

/// Returns a random offset in the segment's upper half.
fn upper(dice: &mut Dice) -> u64 {
    SEGMENT_BYTES / 2 + 8 * dice.below(100_000)
}

/// SplitMix64. The draws need to be irregular; nothing else is required.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
