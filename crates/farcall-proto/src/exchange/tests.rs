//! Two ends of one call's exchanges, joined by queues that lose, repeat and reorder datagrams.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use crate::scheme::Scheme;
use crate::wire::{Frame, Frames, HEADER, Target};

const CALL: Position = Position { activity: 3, exchange: 0, sequence: 9 };
const WINDOW: u32 = 100_000;
const PATIENCE: u64 = 20_000_000;

thread_local! {
    /// How many exchanges this thread has looked at to find the one that is due first.
    pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }
}

/// The byte at a place of the direction that one end (by its lowest number) sends in an exchange.
fn byte(lowest: u32, exchange: u32, at: u64) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (exchange * 7 + lowest) as u8
}

/// What the user of one end knows of an exchange.
#[derive(Default)]
struct User {
    sent: u64,
    taken: u64,
    /// Its own direction has ended, or the other end's.
    ended: bool,
    all: bool,
    /// It has stopped, or the other end has.
    stops: bool,
    stopped: bool,
}

struct Side {
    /// The largest datagram that it sends.
    datagram: usize,
    exchanges: Exchanges,
    path: Path,
    number: u64,
    users: BTreeMap<u32, User>,
}

impl Side {
    fn new(lowest: u32, datagram: usize) -> Side {
        Side {
            datagram,
            exchanges: Exchanges::new(lowest, Mutant::NONE),
            path: Path::default(),
            number: 1,
            users: BTreeMap::new(),
        }
    }

    fn split(&mut self) -> (&mut Exchanges, Way<'_>) {
        let (path, number) = (&mut self.path, self.number);
        let (datagram, window, patience) = (self.datagram, WINDOW, PATIENCE);
        let way = Way { path, number, datagram, window, patience, again: 0, inserts: true, insert: None };
        (&mut self.exchanges, way)
    }

    fn write(&mut self, now: Time) -> Option<(u64, Vec<u8>)> {
        let mut out = vec![0; self.datagram];
        let mut writer = Writer::new(&mut out, self.datagram, Target::without_secrets(1, Scheme::Local));
        let (exchanges, mut way) = self.split();
        exchanges.write(now, CALL, &mut writer, &mut way);
        let (mut frames, insert) = (writer.written().to_vec(), way.insert.take());
        if let Some(Insert { at, bytes }) = insert {
            assert!(bytes.len() >= 8 << 10);
            frames.splice(at - HEADER..at - HEADER, bytes);
        }
        assert!(frames.len() <= self.datagram - HEADER - Scheme::Local.tag());
        self.number += 1;
        (!frames.is_empty()).then_some((self.number - 1, frames))
    }

    fn receive(&mut self, now: Time, number: u64, bytes: &[u8]) {
        let mut frames = Frames::new(bytes);
        while let Some(raw) = frames.next().unwrap() {
            let (exchanges, mut way) = self.split();
            let (exchange, news) = match raw.read().unwrap().unwrap() {
                Frame::Data(p, data) => {
                    (p.exchange, exchanges.on_data(number, p, &data, usize::MAX, &mut way).unwrap())
                }
                Frame::Credit(p, credit) => (p.exchange, exchanges.on_credit(now, p, &credit, &mut way)),
                Frame::Stop(p, reason) => {
                    (p.exchange, exchanges.on_stop(p, reason, usize::MAX, &mut way).unwrap())
                }
                frame => panic!("{frame:?}"),
            };
            let user = match news {
                Some(_) => self.users.entry(exchange).or_default(),
                None => continue,
            };
            if let Some(News::Stopped(reason)) = news {
                assert_eq!(reason, exchange);
                (user.ended, user.stopped) = (true, true);
            }
        }
    }

    /// One step of a user of an exchange.
    fn act(&mut self, random: &mut Random, number: u32, finishing: bool) {
        let lowest = self.exchanges.lowest;
        let Some(user) = self.users.get_mut(&number) else { return };
        let most = if random.below(8) == 0 { 8_000 } else { 40 };
        let len = 4 * random.below(most);
        if !user.ended && !finishing && random.below(2) == 0 {
            let bytes: Vec<u8> = (user.sent..user.sent + len).map(|at| byte(lowest, number, at)).collect();
            let long = Bytes::from(bytes);
            let short = if random.below(2) == 0 { long.clone() } else { long.slice(..8.min(long.len())) };
            let parts = (&short[..], &long.slice(short.len()..));
            let tail = if random.below(12) == 0 { Tail::End } else { Tail::More };
            let added = self.exchanges.add(number, parts, tail, WINDOW).expect("it is open");
            user.sent += added as u64;
            user.ended = tail == Tail::End && added == long.len();
        } else if finishing && !user.ended {
            user.ended = true;
            assert_eq!(self.exchanges.add(number, (&[], &Bytes::new()), Tail::End, WINDOW), Some(0));
        }
        if !user.stops && !user.all && !finishing && random.below(60) == 0 {
            user.stops = true;
            self.exchanges.stop(number, number);
        }
        if user.stops || user.all {
            return;
        }
        let mut into = Vec::new();
        let most = if finishing { usize::MAX } else { len as usize };
        let Some(all) = self.exchanges.take(number, &mut into, most, WINDOW) else { return };
        user.all = all;
        for found in into {
            assert_eq!(found, byte(3 - lowest, number, user.taken), "{number} at {}", user.taken);
            user.taken += 1;
        }
    }
}

fn run(seed: u64) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // Into the larger ones bytes are inserted.
    let datagram = [1200, 64_000, 9_000, 20_000][seed as usize % 4];
    let mut sides = [Side::new(1, datagram), Side::new(2, datagram)];
    let mut queue: Vec<(u64, usize, u64, Vec<u8>)> = Vec::new();
    let mut now = 1_000_000_000;
    let loss = [0, 5, 25][seed as usize % 3];
    for step in 0.. {
        assert!(step < 20_000, "seed {seed}: it does not end");
        let finishing = step > 300;
        let losing = step < 600;
        for at in [0, 1] {
            if !finishing && random.below(20) == 0 && sides[at].users.len() < 40 {
                let Side { exchanges, path, .. } = &mut sides[at];
                let number = exchanges.open(path).expect("few are open");
                sides[at].users.insert(number, User::default());
            }
            for number in sides[at].users.keys().copied().collect::<Vec<_>>() {
                sides[at].act(&mut random, number, finishing);
            }
            let time = Time::from_nanos(now);
            let (exchanges, mut way) = sides[at].split();
            exchanges.look(time, &mut way);
            while let Some((number, frames)) = sides[at].write(time) {
                let copies = if losing && random.below(100) < loss { 0 } else { 1 + random.below(20) / 19 };
                for _ in 0..copies {
                    let delay = 1_000_000 + if losing { random.below(1 + loss * 400_000) } else { 0 };
                    queue.push((now + delay, 1 - at, number, frames.clone()));
                }
            }
        }
        now += 1 + random.below(3_000_000);
        queue.sort_by_key(|(time, ..)| *time);
        let later = queue.partition_point(|(time, ..)| *time <= now);
        for (time, to, number, frames) in queue.drain(..later).collect::<Vec<_>>() {
            sides[to].receive(Time::from_nanos(time), number, &frames);
        }
        let memory = 40 * 2 * (2 * 2 * u64::from(WINDOW) + 50_000);
        assert!(sides.iter().all(|side| (side.exchanges.held() as u64) < memory), "seed {seed}");
        if finishing && queue.is_empty() && sides.iter().all(|side| side.exchanges.is_empty()) {
            break;
        }
    }
    for (at, side) in sides.iter().enumerate() {
        assert_eq!((side.path.in_flight, side.exchanges.due()), (0, None), "seed {seed}");
        for (number, user) in &side.users {
            let Some(other) = sides[1 - at].users.get(number) else { continue };
            assert!(user.stops || other.stopped || user.taken == other.sent, "seed {seed}: {number}");
        }
    }
}

#[test]
fn all_bytes_arrive_in_order_and_everything_ends() {
    (0..60).for_each(|seed| {
        println!("seed {seed}");
        run(seed);
    });
}

#[test]
fn however_a_direction_is_cut_it_keeps_no_more_than_its_pieces() {
    let mut inflow = Inflow::default();
    for offset in (8..12_000).step_by(8) {
        let data = Data { offset, bytes: &[7; 4], end: false, has_all: false, ask: false };
        inflow.receive(offset, &data, usize::MAX);
    }
    assert_eq!(inflow.beyond().count(), 256);
    assert!(inflow.memory() <= 256 * (96 + 8), "{} bytes", inflow.memory());
}

#[test]
fn a_frame_without_news_costs_no_more_with_many_open_exchanges() {
    // A datagram of 64 KiB has so many DATA without bytes.
    const FRAMES: u64 = 2_300;
    let mut side = Side::new(2, 1200);
    let (exchanges, mut way) = side.split();
    let mut comes = |number, exchange, bytes| {
        let data = Data { offset: 0, bytes, end: false, has_all: false, ask: false };
        exchanges.on_data(number, Position { exchange, ..CALL }, &data, usize::MAX, &mut way)
    };
    comes(1, 255, &[7; 4]).unwrap();
    LOOKED_AT.set(0);
    for number in 0..FRAMES {
        comes(3 + number, 1, &[]).unwrap();
    }
    assert!(LOOKED_AT.get() < 128, "{} exchanges looked at", LOOKED_AT.get());
}

/// Two ends, one of which sends in an exchange without end.
struct Endless {
    ends: [Side; 2],
    number: u32,
    now: u64,
}

impl Endless {
    /// Passes some milliseconds. Returns how many bytes the other end takes, which is none if all is lost.
    fn pass(&mut self, is_lost: bool) -> u32 {
        self.now += 2 * PATIENCE;
        let time = Time::from_nanos(self.now);
        let [sender, receiver] = &mut self.ends;
        let (exchanges, mut way) = sender.split();
        exchanges.look(time, &mut way);
        exchanges.add(self.number, (&[], &Bytes::from(vec![7; 1 << 20])), Tail::More, WINDOW);
        while let Some((number, frames)) = sender.write(time) {
            if !is_lost {
                receiver.receive(time, number, &frames);
            }
        }
        let mut taken = Vec::new();
        receiver.exchanges.take(self.number, &mut taken, usize::MAX, WINDOW);
        while let Some((number, frames)) = receiver.write(time) {
            sender.receive(time, number, &frames);
        }
        taken.len() as u32
    }
}

#[test]
fn a_new_direction_begins_with_the_credit_that_was_lent_and_goes_back_if_the_receiver_forgot_the_loan() {
    for forgets in [false, true] {
        let mut ends = [Side::new(1, 1200), Side::new(2, 1200)];
        let number = ends[0].exchanges.open(&Path::default()).unwrap();
        let mut endless = Endless { ends, number, now: 1_000_000_000 };
        assert_eq!(endless.ends[0].path.borrowed, 0);
        (0..20).for_each(|_| _ = endless.pass(false));
        let [sender, receiver] = &mut endless.ends;
        let lent = sender.path.borrowed;
        assert!(lent > WINDOW / 2 && lent <= receiver.path.lent, "{lent} of {} bytes", receiver.path.lent);
        receiver.path.lent = if forgets { 0 } else { receiver.path.lent };
        let number = sender.exchanges.open(&sender.path).unwrap();
        let bytes = Bytes::from(vec![7; 2 * WINDOW as usize]);
        let added = sender.exchanges.add(number, (&[], &bytes), Tail::More, WINDOW);
        assert_eq!(added, Some(lent as usize & !3), "the credit at the beginning");
        endless.number = number;
        let mut taken = 0;
        for _ in 0..20 {
            taken += endless.pass(false);
        }
        assert!(taken >= 2 * WINDOW, "{taken} bytes, the receiver forgets: {forgets}");
    }
}

#[test]
fn what_is_stuck_is_sent_in_small_datagrams_until_enough_has_arrived_each_time_twice_as_much() {
    let mut ends = [Side::new(1, 1200), Side::new(2, 1200)];
    let number = ends[0].exchanges.open(&Path::default()).unwrap();
    let mut endless = Endless { ends, number, now: 1_000_000_000 };
    assert!(endless.pass(false) > 0 && !endless.ends[0].exchanges.stuck);
    for expected in [SMALL_BYTES, 2 * SMALL_BYTES, 4 * SMALL_BYTES] {
        (0..20).for_each(|_| assert_eq!(endless.pass(true), 0));
        let mut taken = 0;
        while endless.ends[0].exchanges.stuck {
            assert!(taken < expected + 2 * WINDOW, "{taken} of {expected} bytes");
            taken += endless.pass(false);
        }
        assert!(taken >= expected, "{taken} of {expected} bytes");
    }
}
