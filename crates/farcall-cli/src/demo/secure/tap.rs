//! A forwarder between one client and one server that looks for a secret in each datagram, and changes each
//! fifth one.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::failure::Outcome;

/// One datagram of so many is changed.
const CHANGED: u64 = 5;

/// What the forwarder has seen.
#[derive(Default)]
pub struct Seen {
    passed: AtomicU64,
    changed: AtomicU64,
    read: AtomicU64,
}

impl Seen {
    /// Returns the number of datagrams, of changed ones, and of those with the secret in them.
    pub fn counts(&self) -> [u64; 3] {
        [&self.passed, &self.changed, &self.read].map(|count| count.load(Relaxed))
    }

    /// Looks at a datagram, and perhaps changes a bit in it.
    fn pass(&self, datagram: &mut [u8], secret: &[u8]) {
        let number = self.passed.fetch_add(1, Relaxed);
        let is_readable = datagram.windows(secret.len()).any(|part| part == secret);
        self.read.fetch_add(u64::from(is_readable), Relaxed);
        if number % CHANGED == CHANGED - 1 && !datagram.is_empty() {
            let place = fastrand::usize(..datagram.len());
            datagram[place] ^= 1 << fastrand::u8(..8);
            self.changed.fetch_add(1, Relaxed);
        }
    }
}

/// Forwards to a server for as long as this process lives. Returns the forwarder's address, and what it sees.
pub fn start(to: SocketAddr, secret: &'static [u8]) -> Outcome<(SocketAddr, Arc<Seen>)> {
    let bind = || UdpSocket::bind("127.0.0.1:0").map(Arc::new);
    let (front, back) = (bind()?, bind()?);
    back.connect(to)?;
    let address = front.local_addr()?;
    let seen = Arc::<Seen>::default();
    // The client's address is the source of the first datagram.
    let client = Arc::new(OnceLock::new());
    let (from, to, known, watch) = (front.clone(), back.clone(), client.clone(), seen.clone());
    std::thread::spawn(move || {
        forward(&from, |datagram, sender| {
            known.get_or_init(|| sender);
            watch.pass(datagram, secret);
            // A datagram that the system refuses is lost.
            let _ = to.send(datagram);
        });
    });
    let watch = seen.clone();
    std::thread::spawn(move || {
        forward(&back, |datagram, _| {
            let Some(client) = client.get() else { return };
            watch.pass(datagram, secret);
            let _ = front.send_to(datagram, client);
        });
    });
    Ok((address, seen))
}

fn forward(from: &UdpSocket, send: impl Fn(&mut [u8], SocketAddr)) {
    let mut buffer = vec![0; 65_536];
    loop {
        // An error is an ICMP report about an earlier datagram.
        let Ok((length, sender)) = from.recv_from(&mut buffer) else { continue };
        send(&mut buffer[..length], sender);
    }
}
