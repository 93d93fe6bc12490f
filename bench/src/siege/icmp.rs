//! Forged ICMP and ICMPv6 errors. Whoever knows a server's address can send them: they only need to quote a
//! datagram that the server might have sent.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use socket2::{Domain, Protocol, Socket, Type};

use crate::hostile::harm::Dice;

/// SOCK_RAW of Linux.
const RAW: i32 = 3;
const UDP: u8 = 17;
/// How many types of ICMP and ICMPv6 there are, and how many codes each has that Linux may know.
const TYPES: u64 = 256;
const CODES: u64 = 16;
/// The types that become errors of sockets: every second message has one of these.
const ERRORS: [u8; 7] = [1, 2, 3, 4, 5, 11, 12];

/// Two raw sockets.
pub struct Forger {
    v4: Socket,
    v6: Socket,
}

impl Forger {
    pub fn new() -> Result<Forger> {
        let raw = |domain, protocol| {
            Socket::new(domain, Type::from(RAW), Some(protocol)).context("raw sockets take root")
        };
        Ok(Forger { v4: raw(Domain::IPV4, Protocol::ICMPV4)?, v6: raw(Domain::IPV6, Protocol::ICMPV6)? })
    }

    /// Sends a server a message of any type and code about a datagram that it might have sent to anybody.
    pub fn forge(&self, server: SocketAddr, dice: &mut Dice) {
        let kind = match dice.below(2) {
            0 => ERRORS[dice.below(ERRORS.len() as u64) as usize],
            _ => dice.below(TYPES) as u8,
        };
        let port = dice.next() as u16;
        // The unused field, or the size of datagrams that pass.
        let mut message = vec![kind, dice.below(CODES) as u8, 0, 0, 0, 0, 2, 64];
        let socket = match server.ip() {
            IpAddr::V4(from) => {
                let near = [127, 0, 0, dice.below(32) as u8];
                let to = if dice.below(2) == 0 { near.into() } else { Ipv4Addr::from(dice.next() as u32) };
                message.extend(header_v4(from, to));
                &self.v4
            }
            IpAddr::V6(from) => {
                message.extend(header_v6(from, Ipv6Addr::LOCALHOST));
                &self.v6
            }
        };
        [server.port(), port, LENGTH, 0].iter().for_each(|word| message.extend(word.to_be_bytes()));
        message.extend([0x5a; LENGTH as usize - 8]);
        if server.is_ipv4() {
            let sum = checksum(&message);
            message[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        // The system may refuse it, as it may any datagram.
        let _ = socket.send_to(&message, &SocketAddr::new(server.ip(), 0).into());
    }
}

/// The length of the quoted datagram, with its header.
const LENGTH: u16 = 72;

fn header_v4(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend((20 + LENGTH).to_be_bytes());
    header.extend([0, 1, 0x40, 0, 64, UDP, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(LENGTH.to_be_bytes());
    header.extend([UDP, 64]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// Returns the Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |two: &[u8]| u32::from(two[0]) << 8 | two.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
