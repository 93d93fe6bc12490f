//! The demo's bad network: forwards datagrams between one client and one server, and loses some and repeats
//! others, according to a seed.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use fastrand::Rng;

use crate::failure::Outcome;

/// The percentages of datagrams, in each direction, that are lost and that arrive twice.
pub const LOSS: u8 = 20;
pub const REPETITION: u8 = 20;

/// How many other datagrams come before the second copy of a datagram.
const REPETITION_DISTANCE: usize = 32;

/// The counts of the forwarder.
#[derive(Default)]
pub struct Counts {
    pub received: AtomicU64,
    pub lost: AtomicU64,
    pub repeated: AtomicU64,
}

/// Forwards to a server for as long as this process lives. Returns the forwarder's address, and the counts.
pub fn start(to: SocketAddr, seed: u64) -> Outcome<(SocketAddr, Arc<Counts>)> {
    let front = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
    let back = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
    back.connect(to)?;
    let address = front.local_addr()?;

    let counts = Arc::new(Counts::default());
    // The client's address is the source of the first datagram.
    let client = Arc::new(OnceLock::new());
    let (out, home) = (Direction::new(seed, 0, &counts), Direction::new(seed, 1, &counts));
    let (from, to, known) = (front.clone(), back.clone(), client.clone());
    std::thread::spawn(move || {
        out.forward(&from, |datagram, sender| {
            known.get_or_init(|| sender);
            // A datagram that the system refuses is lost too.
            let _ = to.send(datagram);
        });
    });
    std::thread::spawn(move || {
        home.forward(&back, |datagram, _| {
            if let Some(client) = client.get() {
                let _ = front.send_to(datagram, client);
            }
        });
    });
    Ok((address, counts))
}

/// The datagrams of one direction.
struct Direction {
    chance: Rng,
    counts: Arc<Counts>,
    /// The second copies that are still to be sent.
    later: VecDeque<(Vec<u8>, SocketAddr)>,
}

impl Direction {
    fn new(seed: u64, direction: u64, counts: &Arc<Counts>) -> Direction {
        let chance = Rng::with_seed(seed.wrapping_mul(2).wrapping_add(direction));
        Direction { chance, counts: counts.clone(), later: VecDeque::new() }
    }

    fn forward(mut self, from: &UdpSocket, send: impl Fn(&[u8], SocketAddr)) {
        let mut buffer = vec![0; 65_536];
        loop {
            // An error is an ICMP report about an earlier datagram.
            let Ok((length, sender)) = from.recv_from(&mut buffer) else { continue };
            self.counts.received.fetch_add(1, Relaxed);
            if self.chance.u8(..100) < LOSS {
                self.counts.lost.fetch_add(1, Relaxed);
                continue;
            }
            send(&buffer[..length], sender);
            if self.chance.u8(..100) < REPETITION {
                self.counts.repeated.fetch_add(1, Relaxed);
                self.later.push_back((buffer[..length].to_vec(), sender));
            }
            if self.later.len() > REPETITION_DISTANCE
                && let Some((copy, sender)) = self.later.pop_front()
            {
                send(&copy, sender);
            }
        }
    }
}
