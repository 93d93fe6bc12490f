//! The attacker on the path, in runs with keys. It sees every datagram, and repeats, reflects, splices,
//! shortens, forges and misdirects them. It has no key.

use std::net::SocketAddr;

use farcall_proto::fuzzing::{kinds, seal};

use crate::net::Net;
use crate::rng::Rng;

/// How many datagrams the attacker remembers, and how many questions (BIND) besides.
const REMEMBERED: usize = 64;
const QUESTIONS: usize = 16;

/// Bytes of a datagram's header, and of the tag of a sealed datagram.
const HEADER: usize = 20;
const TAG: usize = 16;

/// A datagram that the attacker has seen.
type Seen = (SocketAddr, SocketAddr, Vec<u8>);

/// The attacker.
#[derive(Default)]
pub struct Attacker {
    seen: Vec<Seen>,
    questions: Vec<Seen>,
}

impl Attacker {
    /// Sees a datagram, and acts with a chance in parts per million. Returns whether the datagram may go on.
    pub fn see<E>(
        &mut self,
        (rng, net): (&mut Rng, &mut Net<E>),
        chance: u32,
        (from, to): (SocketAddr, SocketAddr),
        datagram: &[u8],
    ) -> bool {
        remember(rng, &mut self.seen, REMEMBERED, (from, to, datagram));
        if datagram.get(HEADER) == Some(&kinds::BIND) && datagram[1] == 0 {
            remember(rng, &mut self.questions, QUESTIONS, (from, to, datagram));
        }
        if !rng.chance(chance) || datagram.len() < HEADER + TAG {
            return true;
        }
        let (old_from, old_to, old) = self.seen[rng.index(self.seen.len())].clone();
        let mut bytes = datagram.to_vec();
        let faults = &mut net.faults;
        match rng.below(9) {
            0 => {
                faults.repeated += 1;
                net.send(old_from, old_to, &old);
            }
            1 => {
                faults.reflected += 1;
                if rng.chance(500_000) {
                    bytes[4..12].copy_from_slice(&old[4..12]);
                }
                net.send(to, from, &bytes);
            }
            2 => {
                faults.spliced += 1;
                net.send(from, to, &splice(rng, &bytes, &old));
            }
            3 => {
                faults.shortened += 1;
                bytes.truncate(rng.index(bytes.len()));
                net.send(from, to, &bytes);
            }
            4 => {
                faults.downgraded += 1;
                net.send(from, to, &downgrade(rng, bytes));
            }
            5 => {
                faults.misdirected += 1;
                let (from, to) = if rng.chance(500_000) { (old_from, to) } else { (from, old_to) };
                net.send(from, to, &bytes);
            }
            6 => {
                faults.invented += 1;
                net.send(from, to, &invent(rng, &bytes));
            }
            7 if !self.questions.is_empty() => {
                faults.asked_again += 1;
                let (asker, asked, question) = self.questions[rng.index(self.questions.len())].clone();
                let asker = if rng.chance(300_000) { old_from } else { asker };
                net.send(asker, asked, &question);
            }
            _ => {
                faults.swallowed += 1;
                return false;
            }
        }
        true
    }
}

fn remember(
    rng: &mut Rng,
    list: &mut Vec<Seen>,
    most: usize,
    (from, to, datagram): (SocketAddr, SocketAddr, &[u8]),
) {
    let seen = (from, to, datagram.to_vec());
    if list.len() < most {
        return list.push(seen);
    }
    // Old ones are kept for long, some for ever.
    if rng.chance(200_000) {
        let at = rng.index(most);
        list[at] = seen;
    }
}

/// Puts parts of two datagrams together: the head of one and the frames of the other, or all frames of both.
fn splice(rng: &mut Rng, one: &[u8], other: &[u8]) -> Vec<u8> {
    let cut = match rng.below(3) {
        0 => HEADER,
        1 => one.len() - TAG,
        _ => rng.index(one.len()),
    };
    let (head, tail) = (&one[..cut], other.get(HEADER.min(cut)..).unwrap_or_default());
    let mut spliced = [head, tail].concat();
    spliced.truncate(60_000);
    spliced
}

/// Makes a sealed datagram one of the open scheme with the right checksum, or one of another level.
fn downgrade(rng: &mut Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes[1] < 2 || rng.chance(200_000) {
        bytes[1] ^= 1;
        return bytes;
    }
    let frames = bytes[HEADER..bytes.len() - TAG].to_vec();
    seal(word(&bytes, 4), word(&bytes, 12), &frames)
}

/// Makes a datagram of the open scheme with the right checksum, for the conversation of another one.
fn invent(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let (conversation, number) = (word(bytes, 4), rng.next());
    let (activity, sequence) = (rng.below(3) as u32, rng.below(40));
    let about = |kind: u8, more: &[u8]| {
        let mut frame = vec![kind, 0];
        frame.extend((16 + more.len() as u16).to_be_bytes());
        frame.extend(activity.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(sequence.to_be_bytes());
        frame.extend(more);
        frame
    };
    let frames = match rng.below(5) {
        0 => about(kinds::CANCEL, &[]),
        1 => about(kinds::CALL, &[7; 20]),
        2 => about(kinds::RESULT, &[0; 8]),
        3 => [&[kinds::CHALLENGE, 0, 0, 16][..], &bytes[4..12], &bytes[12..20]].concat(),
        _ => {
            let reason = rng.within(1, 4) as u8;
            [&[kinds::STALE, 0, 0, 24][..], &bytes[4..12], &bytes[12..20], &[0, 0, 0, reason, 0, 0, 0, 0]]
                .concat()
        }
    };
    seal(if rng.chance(300_000) { 0 } else { conversation }, number, &frames)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word))
}
