//! Finds the source address of answers, for a socket that is bound to all addresses of its host: the address
//! to which the peer sent its question.
//!
//! The system would choose the source address by the route. But a peer, or a firewall on the way, accepts an
//! answer only from the address that was asked. Usually all peers ask at the same address of the host. Then
//! an answer needs no lookup and no lock.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::lock;

/// The host's address at which each peer asks.
#[derive(Default)]
pub(super) struct Answers {
    /// The first address at which a peer asked. All peers that are not among `others` ask there.
    usual: OnceLock<IpAddr>,
    /// Whether a peer has ever asked at another address.
    has_others: AtomicBool,
    others: Mutex<Others>,
}

/// The peers that ask at another address than the usual one. A peer is forgotten when `MAX_OTHERS` other
/// peers have asked since it did. It is noted again when it asks again.
#[derive(Default)]
struct Others {
    recent: HashMap<SocketAddr, IpAddr>,
    before: HashMap<SocketAddr, IpAddr>,
}

/// The greatest number of peers in each of the two tables.
const MAX_OTHERS: usize = 16_384;

impl Answers {
    /// Notes that a datagram of `from` arrived at this address of the host.
    pub(super) fn note(&self, from: SocketAddr, at: IpAddr) {
        if at.is_multicast() {
            return;
        }
        if *self.usual.get_or_init(|| at) != at {
            self.has_others.store(true, Ordering::Relaxed);
            return lock(&self.others).put(from, at);
        }
        if self.has_others.load(Ordering::Relaxed) {
            lock(&self.others).remove(&from);
        }
    }

    /// Returns the address from which to answer `to`, or `None` if that address is unknown, or of the other
    /// address family than `to`.
    pub(super) fn source(&self, to: &SocketAddr) -> Option<IpAddr> {
        let other = if self.has_others.load(Ordering::Relaxed) { lock(&self.others).get(to) } else { None };
        let source = other.or_else(|| self.usual.get().copied())?;
        (source.is_ipv4() == to.is_ipv4()).then_some(source)
    }
}

impl Others {
    fn put(&mut self, peer: SocketAddr, at: IpAddr) {
        if self.recent.insert(peer, at).is_none() && self.recent.len() >= MAX_OTHERS {
            self.before = std::mem::take(&mut self.recent);
        }
    }

    fn remove(&mut self, peer: &SocketAddr) {
        self.recent.remove(peer);
        self.before.remove(peer);
    }

    fn get(&self, peer: &SocketAddr) -> Option<IpAddr> {
        self.recent.get(peer).or_else(|| self.before.get(peer)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 7000))
    }

    #[test]
    fn each_peer_is_answered_from_the_address_that_it_asked_last() {
        let (answers, [one, two, six]) = (Answers::default(), ["10.0.0.1", "10.0.0.2", "fd00::1"]);
        let [one, two, six]: [IpAddr; 3] = [one, two, six].map(|ip| ip.parse().unwrap());
        assert_eq!(answers.source(&peer(1)), None);
        answers.note(peer(1), one);
        answers.note(peer(2), two);
        answers.note("[fd00::2]:7000".parse().unwrap(), six);
        assert_eq!([1, 2, 3].map(|number| answers.source(&peer(number))), [Some(one), Some(two), Some(one)]);
        assert_eq!(answers.source(&"[fd00::2]:7000".parse().unwrap()), Some(six));
        assert_eq!(
            answers.source(&"[fd00::3]:7000".parse().unwrap()),
            None,
            "an address of the other family"
        );
        answers.note(peer(2), one);
        answers.note(peer(1), two);
        assert_eq!([1, 2].map(|number| answers.source(&peer(number))), [Some(two), Some(one)]);
    }

    #[test]
    fn what_is_kept_of_any_number_of_peers_is_bounded() {
        let (answers, at) = (Answers::default(), [1u8, 2].map(|last| IpAddr::from([10, 0, 0, last])));
        answers.note(peer(0), at[0]);
        for number in 1..=3 * MAX_OTHERS as u32 {
            answers.note(peer(number), at[1]);
            assert_eq!(answers.source(&peer(number)), Some(at[1]));
        }
        let others = lock(&answers.others);
        assert!(others.recent.len() + others.before.len() <= 2 * MAX_OTHERS);
    }
}
