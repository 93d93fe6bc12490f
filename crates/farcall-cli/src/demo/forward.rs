//! The demo's bad network: a process that forwards datagrams between one client and one server, and on the way loses
//! some and repeats others, by a seed.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use clap::Args;
use fastrand::Rng;
use serde_json::json;

use crate::failure::Outcome;
use crate::output::say;

/// A forwarder.
#[derive(Debug, Args)]
pub struct Forward {
    /// The server
    to: SocketAddr,
    /// Where chance begins
    #[arg(long)]
    seed: u64,
    /// Of a hundred datagrams, how many are lost
    #[arg(long)]
    loss: u8,
    /// Of a hundred datagrams, how many arrive twice
    #[arg(long)]
    repetition: u8,
}

/// The second copy of a datagram comes after so many others.
const LATER: usize = 32;

#[derive(Default)]
struct Counts {
    received: AtomicU64,
    lost: AtomicU64,
    repeated: AtomicU64,
}

impl Forward {
    /// Forwards until the standard input ends. Its first line says where, its last one what happened.
    pub fn run(&self) -> Outcome {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
        let back = Arc::new(UdpSocket::bind("127.0.0.1:0")?);
        back.connect(self.to)?;
        say(json!({ "address": front.local_addr()? }))?;

        let counts = Arc::new(Counts::default());
        // Its first datagram says where the client is.
        let client = Arc::new(OnceLock::new());
        let (out, home) = (self.fate(0, &counts), self.fate(1, &counts));
        let (from, to, known) = (front.clone(), back.clone(), client.clone());
        std::thread::spawn(move || {
            out.forward(&from, |datagram, sender| {
                known.get_or_init(|| sender);
                // What the system does not take is lost too.
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
        super::wait_for_end();
        let [received, lost, repeated] =
            [&counts.received, &counts.lost, &counts.repeated].map(|count| count.load(Ordering::Relaxed));
        say(json!({ "received": received, "lost": lost, "repeated": repeated }))
    }

    fn fate(&self, direction: u64, counts: &Arc<Counts>) -> Fate {
        let seed = self.seed.wrapping_mul(2).wrapping_add(direction);
        Fate {
            chance: Rng::with_seed(seed),
            loss: self.loss,
            repetition: self.repetition,
            counts: counts.clone(),
            later: VecDeque::new(),
        }
    }
}

/// What happens to the datagrams of one direction.
struct Fate {
    chance: Rng,
    loss: u8,
    repetition: u8,
    counts: Arc<Counts>,
    /// Second copies.
    later: VecDeque<(Vec<u8>, SocketAddr)>,
}

impl Fate {
    fn forward(mut self, from: &UdpSocket, send: impl Fn(&[u8], SocketAddr)) {
        let mut buffer = vec![0; 65_536];
        loop {
            // An error is what ICMP says of something sent earlier.
            let Ok((length, sender)) = from.recv_from(&mut buffer) else { continue };
            self.counts.received.fetch_add(1, Ordering::Relaxed);
            if self.chance.u8(..100) < self.loss {
                self.counts.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            send(&buffer[..length], sender);
            if self.chance.u8(..100) < self.repetition {
                self.counts.repeated.fetch_add(1, Ordering::Relaxed);
                self.later.push_back((buffer[..length].to_vec(), sender));
            }
            if self.later.len() > LATER
                && let Some((copy, sender)) = self.later.pop_front()
            {
                send(&copy, sender);
            }
        }
    }
}
