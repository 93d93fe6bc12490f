//! What a server remembers of handshakes that it has computed, so that it computes each only once: which proofs
//! of addresses were used, and its last answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::hosts::{HostName, NetworkName};
use crate::Time;
use crate::wire::Ticket;

/// How long a ticket proves that its client is at its address, after it was given.
pub(super) const PROOF_LIFE: Duration = Duration::from_secs(60);

/// The maximum number of proofs of one generation. There are two generations.
const MAX_PROOFS: usize = 1 << 18;

/// The maximum number of answers that are kept, and for how long.
const MAX_ANSWERS: usize = 256;
const ANSWER_LIFE: Duration = Duration::from_secs(10);

/// Names a proof: a part of its MAC (message authentication code), which was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProofName(u64);

impl ProofName {
    pub fn of(proof: &Ticket<'_>) -> ProofName {
        ProofName(proof.mac.0.first_chunk().map_or(0, |part| u64::from_be_bytes(*part)))
    }
}

/// The proofs for which a handshake was computed. Of a generation that is forgotten the server remembers only
/// how late its proofs can be, and accepts no proof that is not later.
#[derive(Debug)]
pub(super) struct Proofs {
    current: BTreeSet<ProofName>,
    former: BTreeSet<ProofName>,
    /// When the current generation began, and the last date of a ticket before.
    since: Time,
    before: u64,
    /// The last date of a ticket before the former generation began.
    floor: u64,
}

impl Proofs {
    pub fn new(now: Time) -> Proofs {
        Proofs { current: BTreeSet::new(), former: BTreeSet::new(), since: now, before: 0, floor: 0 }
    }

    /// Returns whether a handshake was computed for this proof, or whether this is no longer known.
    pub fn is_used(&self, proof: &Ticket<'_>) -> bool {
        let name = ProofName::of(proof);
        proof.issued <= self.floor || self.current.contains(&name) || self.former.contains(&name)
    }

    /// Notes that a handshake is computed for this proof. `last` is the date of the ticket that was issued last.
    pub fn note_use(&mut self, now: Time, name: ProofName, last: u64) {
        if now.since(self.since) >= PROOF_LIFE || self.current.len() >= MAX_PROOFS {
            self.former = std::mem::take(&mut self.current);
            (self.floor, self.before, self.since) = (self.before, last, now);
        }
        self.current.insert(name);
    }
}

/// An answer to a handshake that was computed, as it was sent.
#[derive(Debug)]
struct Kept {
    to: SocketAddr,
    question: Question,
    datagram: Arc<[u8]>,
    at: Time,
}

/// Names a BIND that was computed: its proof, and a hash of all of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub proof: ProofName,
    pub body: u64,
}

/// The last answers to handshakes. A client whose answer was lost asks again, and gets the same answer.
#[derive(Debug, Default)]
pub(super) struct Answers {
    kept: VecDeque<Kept>,
    /// How many of them are for each network and for each host.
    networks: BTreeMap<NetworkName, u32>,
    hosts: BTreeMap<HostName, u32>,
}

impl Answers {
    /// Returns the answer to a BIND from this address.
    pub fn find(&self, now: Time, from: &SocketAddr, question: Question) -> Option<&Arc<[u8]>> {
        let is = |kept: &&Kept| kept.question == question && kept.to == *from;
        let kept = self.kept.iter().find(is)?;
        (now.since(kept.at) < ANSWER_LIFE).then_some(&kept.datagram)
    }

    /// Keeps an answer. If there are too many, the network makes way that has most, then the host; of this host
    /// the oldest answer.
    pub fn keep(&mut self, now: Time, to: SocketAddr, question: Question, datagram: &[u8]) {
        while self.kept.front().is_some_and(|kept| now.since(kept.at) >= ANSWER_LIFE) {
            self.remove(0);
        }
        if self.kept.len() >= MAX_ANSWERS {
            let rank = |kept: &Kept| {
                let host = HostName::at(&kept.to);
                (self.networks.get(&host.network()), self.hosts.get(&host))
            };
            let most = self.kept.iter().enumerate().rev().max_by_key(|(_, kept)| rank(kept));
            if let Some((at, _)) = most {
                self.remove(at);
            }
        }
        let host = HostName::at(&to);
        *self.networks.entry(host.network()).or_default() += 1;
        *self.hosts.entry(host).or_default() += 1;
        self.kept.push_back(Kept { to, question, datagram: datagram.into(), at: now });
    }

    /// Forgets all answers.
    pub fn clear(&mut self) {
        *self = Answers::default();
    }

    fn remove(&mut self, at: usize) {
        let Some(Kept { to, .. }) = self.kept.remove(at) else { return };
        let host = HostName::at(&to);
        remove_one(&mut self.networks, host.network());
        remove_one(&mut self.hosts, host);
    }
}

fn remove_one<N: Ord>(counts: &mut BTreeMap<N, u32>, name: N) {
    if let Some(count) = counts.get_mut(&name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Mac;

    fn seconds(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    fn proof(issued: u64) -> Ticket<'static> {
        let mut mac = [0; 16];
        mac[..8].copy_from_slice(&issued.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        Ticket { client: 1, incarnation: 1, issued, mac: Mac(mac), rest: Vec::new().into() }
    }

    #[test]
    fn a_proof_is_used_once_also_when_it_was_forgotten_that_it_was_used() {
        let mut proofs = Proofs::new(seconds(0));
        let mut issued = 0;
        for second in 0..1_000 {
            for _ in 0..3 {
                issued += 1;
                assert!(!proofs.is_used(&proof(issued)), "{issued} was issued just now");
                proofs.note_use(seconds(second), ProofName::of(&proof(issued)), issued);
            }
            assert!((1..=issued).all(|issued| proofs.is_used(&proof(issued))), "in second {second}");
            assert!(proofs.current.len() + proofs.former.len() <= 2 * 3 * 61);
        }
        // A proof that was not used is good for its life.
        let late = issued + 1;
        for second in 1_000..1_060 {
            proofs.note_use(seconds(second), ProofName::of(&proof(late + second)), late + second);
            assert!(!proofs.is_used(&proof(late)), "after {} s", second - 1_000);
        }
    }

    #[test]
    fn answers_are_bounded_and_whoever_has_most_makes_way() {
        let mut answers = Answers::default();
        let question = |body| Question { proof: ProofName(7), body };
        let one: SocketAddr = "192.0.2.1:1".parse().unwrap();
        answers.keep(seconds(1), one, question(0), b"one");
        for body in 1..=2_000 {
            let many = SocketAddr::from(([10, 1, body as u8, 1], 9));
            answers.keep(seconds(2), many, question(body), b"many");
            assert!(answers.find(seconds(2), &many, question(body)).is_some());
            assert_eq!(answers.find(seconds(2), &one, question(body)), None, "to another address");
        }
        assert_eq!(answers.kept.len(), MAX_ANSWERS);
        assert_eq!(answers.find(seconds(2), &one, question(0)).map(|answer| &**answer), Some(&b"one"[..]));
        assert_eq!(answers.find(seconds(11), &one, question(0)), None, "it is too old");
        answers.keep(seconds(20), one, question(1), b"new");
        assert_eq!((answers.kept.len(), answers.hosts.len(), answers.networks.len()), (1, 1, 1));
    }
}
