//! A forwarder between two sockets that loses and repeats datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

/// Pseudo-random numbers (xorshift64).
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Starts forwarding datagrams between one client and one server, and returns the forwarder's address. It
/// loses a tenth of the datagrams each way and repeats a tenth.
pub fn wire(server: SocketAddr) -> SocketAddr {
    let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
    let (front, back) = (bind(), bind());
    back.connect(server).unwrap();
    let address = front.local_addr().unwrap();
    let client = Arc::new(Mutex::new(None));
    let pass = |mut chance: Chance, send: &mut dyn FnMut()| match chance.below(10) {
        0 => chance,
        fate => {
            (0..1 + u64::from(fate == 1)).for_each(|_| send());
            chance
        }
    };
    let (f, b, c) = (front.clone(), back.clone(), client.clone());
    std::thread::spawn(move || {
        let (mut buffer, mut chance) = ([0; 65536], Chance(0x5eed));
        while let Ok((len, from)) = f.recv_from(&mut buffer) {
            *c.lock().unwrap() = Some(from);
            chance = pass(chance, &mut || drop(b.send(&buffer[..len])));
        }
    });
    std::thread::spawn(move || {
        let (mut buffer, mut chance) = ([0; 65536], Chance(0xc0de));
        while let Ok(len) = back.recv(&mut buffer) {
            let Some(client) = *client.lock().unwrap() else { continue };
            chance = pass(chance, &mut || drop(front.send_to(&buffer[..len], client)));
        }
    });
    address
}
