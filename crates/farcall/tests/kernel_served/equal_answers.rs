//! Frames of every kind, answered by the XDP program as by the server in user space, or passed on to it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::stub::Dispatched;
use farcall_memory::{AccessHandler, Accessor, READINGS, readable_words};
use farcall_proto::client::{Call, Conversation, Event};
use farcall_proto::server::{Export, Finish, Reading, Request, Server};
use farcall_proto::{BASE_DATAGRAM, ClientConfig, Failure, Kind, Ran, ServerConfig, Time, fuzzing};
use farcall_xdp::{Kernel, MAX_READ_BYTES};
use farcall_xdr::{Decoder, Encoder};

use xxhash_rust::xxh3::xxh3_64;

use super::common;
use super::frames::{Checksum, ETHERNET, delivered, frame, mend_ipv4, mend_udp};

const EXPORT: u64 = 0x0123_4567_89ab_cdef;
const GENERATION: u64 = 77;
/// Not whole pages, so that there is memory behind the segment.
const SEGMENT_BYTES: u64 = 4000;

/// Where the sequence is in the frame of a call.
const SEQUENCE: std::ops::Range<usize> = 12..20;

/// A client's conversation with the server, as both the server and the program know it.
struct Talk {
    from: SocketAddr,
    to: SocketAddr,
    /// The server's identifier of the conversation, and the client's.
    server: u64,
    client: u64,
    sequence: u64,
    number: u64,
}

/// The server in user space and the program, with the same segment.
struct Both {
    server: Server,
    memory: Arc<dyn AccessHandler>,
    kernel: Kernel,
    talks: u64,
}

impl Both {
    /// Fails with the reason why there can be no program.
    fn new() -> Result<Both, String> {
        let kernel = Kernel::load(&[]).map_err(|why| why.to_string())?;
        let array = kernel.array(SEGMENT_BYTES as usize).map_err(|why| why.to_string())?;
        let words: Arc<[AtomicU64]> = (0..SEGMENT_BYTES / 8).map(|word| AtomicU64::new(!word << 7)).collect();
        for (to, from) in array.words().iter().zip(&*words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        kernel.offer(EXPORT, &array, GENERATION).map_err(|why| why.to_string())?;
        // The program has its own reference to the array.
        drop(array);
        let mut server = Server::new(ServerConfig::default(), Time::default(), [7; 32]);
        let (type_name, instance) = ("Memory".to_owned(), "Load".to_owned());
        server.export(Export { id: EXPORT, type_name, instance, procedures: Vec::new() });
        let env: Arc<dyn farcall::env::Env> = Arc::new(farcall::System);
        let memory = readable_words(words, GENERATION, &env);
        Ok(Both { server, memory, kernel, talks: 0 })
    }

    /// Returns the answers of the server in user space.
    fn serve(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let (now, out) = (Time::default(), &mut [0; BASE_DATAGRAM]);
        let memory = &self.memory;
        let reading = Reading::peek(datagram, None).and_then(|reading| {
            self.server.answer_reading(now, &from, reading, out, |reading, room| {
                if reading.export != EXPORT {
                    None
                } else {
                    memory.read(None, reading.procedure, reading.args, room)
                }
            })
        });
        if let Some(answer) = reading {
            return Some(out[..answer.len].to_vec());
        }
        let mut calls = Vec::new();
        self.server.receive(now, from, datagram, &mut |request| {
            if let Request::Call(call) = request {
                calls.push(call.into_owned());
            }
        });
        for call in calls {
            let (by, mut result) = (&mut Accessor::default(), Vec::new());
            let (mut arguments, mut reply) = (Decoder::new(&call.args), Encoder::new(&mut result));
            let finish = match self.memory.access(by, call.procedure, &mut arguments, &mut reply) {
                Dispatched::Result => Finish::Result,
                Dispatched::Exception => Finish::Exception,
                _ => Failure::new(Kind::Other, Ran::No).into(),
            };
            self.server.finish(now, call.key, finish, &mut result, &mut []);
        }
        let mut last = None;
        while let Some(answer) = self.server.transmit(now, out) {
            last = Some(out[..answer.len].to_vec());
        }
        last
    }

    /// Begins a conversation, and tells the program of it after its first read.
    fn talk(&mut self, ipv6: bool) -> Talk {
        self.talks += 1;
        let port = 1024 + (self.talks % 60_000) as u16;
        let (from, to) = match ipv6 {
            true => (SocketAddr::new([0xfd00, 0, 0, 0, 0, 0, 0, 2].into(), port), "[fd00::1]:7000"),
            false => (SocketAddr::new([10, 0, 0, 2].into(), port), "10.0.0.1:7000"),
        };
        let (now, out) = (Time::default(), &mut [0; BASE_DATAGRAM]);
        let mut client = Conversation::new(ClientConfig::default(), self.talks << 8 | 3);
        client.bind(now, "Memory/Load", 1);
        let mut bound = false;
        while !bound {
            let len = client.transmit(now, out).expect("a question");
            let answer = self.serve(from, &out[..len]).expect("an answer");
            client.receive(now, &answer, &mut |event| bound |= matches!(event, Event::Bound { .. }));
        }
        let call = Call { export: EXPORT, procedure: READINGS, ..Call::default() };
        let mut arguments = arguments(GENERATION, 0, 8);
        client.start(Time::default, &call, &mut arguments).expect("a call");
        let len = client.transmit(now, out).expect("the call");
        let answer = self.serve(from, &out[..len]).expect("its result");
        let word = |bytes: &[u8]| u64::from_be_bytes(*bytes[4..].first_chunk().unwrap());
        let (server, client) = (word(out), word(&answer));
        let talk = Talk { from, to: to.parse().unwrap(), server, client, sequence: 2, number: 1 << 20 };
        let conversation = farcall_xdp::Conversation {
            server,
            client,
            sequence: talk.sequence,
            address: from,
            server_port: talk.to.port(),
        };
        self.kernel.admit(&conversation).unwrap();
        talk
    }
}

fn arguments(generation: u64, offset: u64, bytes: u32) -> Vec<u8> {
    [&generation.to_be_bytes()[..], &offset.to_be_bytes(), &bytes.to_be_bytes()].concat()
}

impl Talk {
    /// Returns the frames of a datagram with one CALL.
    fn call(&self, sequence: u64, export: u64, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let mut call = vec![0x10, 0];
        call.extend((28 + arguments.len() as u16).to_be_bytes());
        call.extend([0; 8]);
        call.extend(sequence.to_be_bytes());
        call.extend(export.to_be_bytes());
        call.extend(procedure.to_be_bytes());
        call.extend(arguments);
        call
    }

    fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        self.number += 1;
        fuzzing::seal(self.server, self.number, frames)
    }
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Returns an offset and a length, often at an edge.
fn range(random: &mut Random) -> (u64, u32) {
    let most = MAX_READ_BYTES as u32;
    let len = match random.below(8) {
        0 => random.of(&[0, most, most + 1, most + 8, 1 << 20, 1 << 31, u32::MAX]),
        _ => random.below(MAX_READ_BYTES + 1) as u32,
    };
    let offset = match random.below(8) {
        0 => random.of(&[u64::MAX, 1 << 63, 1 << 32, SEGMENT_BYTES, u64::MAX - u64::from(len)]),
        1 => (SEGMENT_BYTES + random.next() % 9).wrapping_sub(4 + u64::from(len)),
        _ => random.next() % SEGMENT_BYTES,
    };
    (offset, len)
}

/// How many kinds of frames there are. Half of them are right.
const KINDS: usize = 22;

/// Returns a frame with a datagram of the conversation: a right read, or one that is wrong in some way.
fn some_frame(talk: &mut Talk, random: &mut Random) -> Vec<u8> {
    let checksum = random.of(&[Checksum::Right, Checksum::Right, Checksum::Partial, Checksum::Zero]);
    let kind = random.below(KINDS);
    let frames = some_frames(talk, random, kind);
    let mut datagram = talk.datagram(&frames);
    if kind == 5 {
        // A field of the header, or of the tag.
        let at = random.of(&[0, 1, 2, 4, 11, 12, datagram.len() - 8, datagram.len() - 1]);
        datagram[at] ^= 1 << random.below(8);
        if random.below(2) == 0 {
            let (body, tag) = datagram.split_last_chunk_mut().unwrap();
            *tag = xxh3_64(body).to_be_bytes();
        }
    }
    let mut from = talk.from;
    if kind == 6 {
        from.set_port(from.port() ^ 1 << random.below(10));
    }
    let mut bytes = frame(from, talk.to, &datagram, checksum);
    match kind {
        7 => bytes.truncate(ETHERNET + random.below(bytes.len() - ETHERNET)),
        8 => bytes.extend((0..1 + random.below(40)).map(|_| random.next() as u8)),
        9 => (0..1 + random.below(3)).for_each(|_| {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }),
        // A field of the network's or the transport's header, with right checksums.
        10 => {
            let at = random.below(8 + if talk.from.is_ipv4() { 20 } else { 40 });
            bytes[ETHERNET + at] ^= 1 << random.below(8);
            if talk.from.is_ipv4() {
                mend_ipv4(&mut bytes);
            }
            mend_udp(&mut bytes, checksum);
        }
        _ => {}
    }
    bytes
}

/// Returns the frames of a datagram: one right read, or what the first kinds have instead.
fn some_frames(talk: &mut Talk, random: &mut Random, kind: usize) -> Vec<u8> {
    let sequence = match random.below(16) {
        // One from before the program was told of the conversation.
        0 => 1,
        _ => {
            talk.sequence += 1;
            talk.sequence
        }
    };
    let (offset, len) = range(random);
    let mut right = talk.call(sequence, EXPORT, READINGS, &arguments(GENERATION, offset, len));
    match kind {
        0 => {
            let generation = random.of(&[0, GENERATION - 1, GENERATION + 1, u64::MAX, GENERATION << 32]);
            talk.call(sequence, EXPORT, READINGS, &arguments(generation, offset, len))
        }
        1 => {
            let export = random.of(&[0, EXPORT + 1, EXPORT.swap_bytes()]);
            let procedure = random.of(&[READINGS, READINGS + 1, READINGS + 2, 0xffff_4000, 0xffff_4001, 1]);
            talk.call(sequence, export, procedure, &arguments(GENERATION, offset, len))
        }
        // Several ranges, or half of one.
        2 => {
            let mut long = arguments(GENERATION, offset, len);
            let first = long[8..].to_vec();
            long.extend((0..random.below(3)).flat_map(|_| first.clone()));
            long.truncate((8 + random.below(40)) & !3);
            talk.call(sequence, EXPORT, READINGS, &long)
        }
        // A field of the frames, before the tag is made.
        3 => {
            let at = random.below(right.len());
            if SEQUENCE.contains(&at) {
                // No client uses a sequence for two calls.
                let none: u64 = random.of(&[0, 1 << 63, u64::MAX]);
                right[SEQUENCE].copy_from_slice(&none.to_be_bytes());
            } else {
                right[at] = random.of(&[0, 1, 2, 8, 0xff, right[at] ^ 0x10]);
            }
            right
        }
        // Another frame beside it.
        4 => {
            let ack = [&[0x80, 0, 0, 12][..], &[0; 12]].concat();
            if random.below(2) == 0 { [ack, right].concat() } else { [right, ack].concat() }
        }
        _ => right,
    }
}

#[test]
fn the_kernel_answers_100_000_frames_as_the_server_does_or_passes_them_on() {
    let mut both = match Both::new() {
        Ok(both) => both,
        Err(why) => return common::skip(&format!("frames for the XDP program: {why}")),
    };
    let seed = std::env::var("FARCALL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(22);
    println!("FARCALL_SEED={seed}");
    let mut random = Random(seed);
    let (mut answered, mut only_served, mut numbers) = (0, 0, HashSet::new());
    let mut talk = both.talk(false);
    for case in 0..100_000 {
        if case % 64 == 0 {
            talk = both.talk(random.below(2) == 0);
        }
        let asked = some_frame(&mut talk, &mut random);
        let there = delivered(&asked).filter(|there| there.to.port() == talk.to.port());
        let expected = there.and_then(|there| both.serve(there.from, there.payload));
        let Some(sent) = both.kernel.run(&asked).unwrap() else {
            only_served += u64::from(expected.is_some());
            continue;
        };
        answered += 1;
        let context = format!("case {case} of seed {seed}: {asked:02x?}");
        assert_eq!((&sent[..6], &sent[6..12]), (&asked[6..12], &asked[..6]), "{context}");
        let back = delivered(&sent).unwrap_or_else(|| panic!("{context}: {sent:02x?}"));
        let there = delivered(&asked).unwrap_or_else(|| panic!("nothing was delivered, {context}"));
        assert_eq!((back.from, back.to), (there.to, there.from), "{context}");
        let expected = expected.unwrap_or_else(|| panic!("the server does not answer, {context}"));
        let number = u64::from_be_bytes(*back.payload[12..].first_chunk().unwrap());
        assert!(number >= 1 << 62 && numbers.insert((talk.server, number)), "{context}");
        assert_eq!(back.payload, fuzzing::seal(talk.client, number, fuzzing::frames(&expected)), "{context}");
    }
    println!("{answered} were answered by the kernel, {only_served} only by the server");
    assert!(answered > 30_000 && only_served > 10_000, "{answered} {only_served}");
}

#[test]
fn a_call_that_comes_again_reaches_the_server_every_other_time_and_an_old_one_always() {
    let mut both = match Both::new() {
        Ok(both) => both,
        Err(why) => return common::skip(&format!("frames for the XDP program: {why}")),
    };
    let mut talk = both.talk(false);
    let mut read = |sequence: u64| {
        let frames = talk.call(sequence, EXPORT, READINGS, &arguments(GENERATION, 8, 32));
        let datagram = talk.datagram(&frames);
        let asked = frame(talk.from, talk.to, &datagram, Checksum::Right);
        both.kernel.run(&asked).unwrap().is_some()
    };
    let sequences = [3, 3, 3, 3, 4, 4, 3, 2, 4, 9, 8, 9];
    let answered = sequences.map(&mut read);
    assert_eq!(answered, [true, false, true, false, true, false, false, false, true, true, false, false]);
}

/// The segment is revoked, offered as another generation, or forgotten.
#[test]
fn nothing_is_answered_of_a_generation_that_is_over_or_of_a_forgotten_conversation() {
    let mut both = match Both::new() {
        Ok(both) => both,
        Err(why) => return common::skip(&format!("frames for the XDP program: {why}")),
    };
    let mut talk = both.talk(true);
    let server = talk.server;
    let mut read = |kernel: &Kernel, generation| {
        talk.sequence += 1;
        let frames = talk.call(talk.sequence, EXPORT, READINGS, &arguments(generation, 0, 8));
        let datagram = talk.datagram(&frames);
        kernel.run(&frame(talk.from, talk.to, &datagram, Checksum::Right)).unwrap().is_some()
    };
    let kernel = &both.kernel;
    assert!(read(kernel, GENERATION));
    let other = kernel.array(8).unwrap();
    kernel.offer(EXPORT, &other, GENERATION + 1).unwrap();
    assert_eq!([GENERATION, GENERATION + 1].map(|generation| read(kernel, generation)), [false, true]);
    assert_eq!((other.answered(), other.words()[0].load(Ordering::Relaxed)), (1, 0));
    kernel.withhold(EXPORT, &other);
    assert_eq!([GENERATION, GENERATION + 1, 0].map(|generation| read(kernel, generation)), [false; 3]);
    kernel.offer(EXPORT, &other, GENERATION + 2).unwrap();
    assert!(read(kernel, GENERATION + 2));
    assert_eq!(kernel.answered(server), Some(3));
    kernel.forget(server);
    assert_eq!((read(kernel, GENERATION + 2), kernel.answered(server)), (false, None));
}
