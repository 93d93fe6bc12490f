//! Ethernet frames of UDP datagrams: makes them, and takes them apart as a network stack does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
const UDP: u8 = 17;

/// What the field of the UDP checksum has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Checksum {
    Right,
    /// The sum of the pseudo-header: the rest is left to hardware, which veth does not have.
    Partial,
    Zero,
}

/// Returns the frame of a datagram. Both addresses are of one family.
pub fn frame(from: SocketAddr, to: SocketAddr, payload: &[u8], checksum: Checksum) -> Vec<u8> {
    let mut frame = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]].concat();
    let len = (8 + payload.len()) as u16;
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + len).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, 64, UDP, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            mend_ipv4(&mut frame);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 1, 2, 3]);
            frame.extend(len.to_be_bytes());
            frame.extend([UDP, 64]);
            frame.extend(from.octets());
            frame.extend(to.octets());
        }
        _ => panic!("{from} and {to} are of two families"),
    }
    frame.extend([from.port(), to.port(), len, 0].iter().flat_map(|field| field.to_be_bytes()));
    frame.extend(payload);
    mend_udp(&mut frame, checksum);
    frame
}

/// Writes the checksum of the IPv4 header.
pub fn mend_ipv4(frame: &mut [u8]) {
    frame[ETHERNET + 10..ETHERNET + 12].fill(0);
    let sum = !folded(sum(&frame[ETHERNET..ETHERNET + 20]));
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the UDP checksum of a frame whose lengths are right.
pub fn mend_udp(frame: &mut [u8], checksum: Checksum) {
    let (at, pseudo) = transport(frame);
    frame[at + 6..at + 8].fill(0);
    let field = match checksum {
        Checksum::Zero => 0,
        Checksum::Partial => folded(pseudo),
        Checksum::Right => match !folded(pseudo + sum(&frame[at..])) {
            0 => 0xffff,
            sum => sum,
        },
    };
    frame[at + 6..at + 8].copy_from_slice(&field.to_be_bytes());
}

/// Returns the offset of the UDP header, and the sum of the pseudo-header, of a frame without options.
fn transport(frame: &[u8]) -> (usize, u64) {
    let (at, addresses) = match frame[ETHERNET - 2..ETHERNET] {
        [8, 0] => (ETHERNET + 20, &frame[ETHERNET + 12..ETHERNET + 20]),
        _ => (ETHERNET + 40, &frame[ETHERNET + 8..ETHERNET + 40]),
    };
    (at, sum(addresses) + u64::from(UDP) + (frame.len() - at) as u64)
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The datagram that a network stack delivers of a frame.
#[derive(Debug, PartialEq)]
pub struct Delivered<'f> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: &'f [u8],
}

/// Takes a frame apart. Returns `None` if a network stack delivers no datagram of it, or not of it alone.
pub fn delivered(frame: &[u8]) -> Option<Delivered<'_>> {
    let ((from, to), transport, pseudo, optional) = match frame.get(ETHERNET - 2..ETHERNET)? {
        [8, 0] => {
            let ip = frame.get(ETHERNET..ETHERNET + 20)?;
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let is_plain = ip[0] == 0x45 && ip[6] & 0x3f == 0 && ip[7] == 0 && ip[9] == UDP;
            if !is_plain || folded(sum(ip)) != 0xffff || total < 20 {
                return None;
            }
            let address = |at: usize| Ipv4Addr::from(*ip[at..].first_chunk::<4>().unwrap());
            let transport = frame.get(ETHERNET + 20..ETHERNET + total)?;
            ((IpAddr::V4(address(12)), IpAddr::V4(address(16))), transport, sum(&ip[12..20]), true)
        }
        [0x86, 0xdd] => {
            let ip = frame.get(ETHERNET..ETHERNET + 40)?;
            let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            if ip[0] >> 4 != 6 || ip[6] != UDP {
                return None;
            }
            let address = |at: usize| Ipv6Addr::from(*ip[at..].first_chunk::<16>().unwrap());
            let transport = frame.get(ETHERNET + 40..ETHERNET + 40 + len)?;
            ((IpAddr::V6(address(8)), IpAddr::V6(address(24))), transport, sum(&ip[8..40]), false)
        }
        _ => return None,
    };
    let field = |at: usize| Some(u16::from_be_bytes(*transport.get(at..)?.first_chunk()?));
    let (from, to) = (SocketAddr::new(from, field(0)?), SocketAddr::new(to, field(2)?));
    let len = usize::from(field(4)?);
    let payload = transport.get(8..len)?;
    let pseudo = pseudo + u64::from(UDP) + len as u64;
    let is_right = match field(6)? {
        0 => optional,
        check => folded(pseudo + sum(&transport[..len])) == 0xffff || check == folded(pseudo),
    };
    is_right.then_some(Delivered { from, to, payload })
}

#[test]
fn a_frame_is_taken_apart_as_it_was_made() {
    for (from, to) in [("10.0.0.2:9", "10.0.0.1:7"), ("[fd00::2]:9", "[fd00::1]:7")] {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        for checksum in [Checksum::Right, Checksum::Partial] {
            let mut frame = frame(from, to, b"ninebytes", checksum);
            assert_eq!(delivered(&frame), Some(Delivered { from, to, payload: b"ninebytes" }));
            *frame.last_mut().unwrap() ^= 1;
            assert_eq!(delivered(&frame).is_some(), checksum == Checksum::Partial);
        }
        assert_eq!(delivered(&frame(from, to, b"", Checksum::Zero)).is_some(), from.is_ipv4());
    }
}
