//! Forges ICMP messages about a socket's datagrams, in a network namespace of the test's own.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::{env, fs};

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

/// Set in the process that runs a test in a network namespace of its own.
const INSIDE: &str = "FARCALL_TEST_ICMP_NAMESPACE";

pub const UDP: u8 = 17;
pub const TCP: u8 = 6;

/// Runs the test of this name again in a network namespace of its own. Returns whether this is that second
/// run. Says that the test is skipped if there can be no such namespace.
pub fn enter(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let script = "ip link set lo up && exec \"$0\" \"$@\"";
    let network = || {
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", script]);
        command
    };
    if !network().arg("true").output().is_ok_and(|probe| probe.status.success()) {
        // Not by `eprintln!`, whose output the test harness captures.
        let _ = writeln!(std::io::stderr(), "skipped: {test}: no network of its own");
        return false;
    }
    let mut again = network();
    again.arg(env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{said}{}", String::from_utf8_lossy(&output.stderr));
    false
}

/// The types and codes of ICMP and ICMPv6 that become errors of sockets in some version of Linux.
pub fn kinds(of: IpAddr) -> Vec<(u8, u8)> {
    let types: &[u8] = if of.is_ipv4() { &[3, 4, 11, 12] } else { &[1, 2, 3, 4, 5, 100, 127] };
    types.iter().flat_map(|kind| (0..=15).map(|code| (*kind, code))).collect()
}

/// Every type and code.
pub fn all_kinds() -> impl Iterator<Item = (u8, u8)> + Clone {
    (0..=255).flat_map(|kind| (0..=15).map(move |code| (kind, code)))
}

/// Returns the ports of this network namespace's UDP sockets.
pub fn udp_ports() -> Vec<u16> {
    ["/proc/net/udp", "/proc/net/udp6"].into_iter().flat_map(ports).collect()
}

/// Returns the ports of this network namespace's TCP sockets.
pub fn tcp_ports() -> Vec<u16> {
    ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(ports).collect()
}

fn ports(table: &str) -> Vec<u16> {
    let table = fs::read_to_string(table).unwrap_or_default();
    let port = |line: &str| {
        let local = line.split_whitespace().nth(1)?;
        u16::from_str_radix(local.rsplit(':').next()?, 16).ok()
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// Raw sockets.
pub struct Forger {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl Forger {
    pub fn new() -> Forger {
        let raw = |family, protocol| socket(family, SocketType::RAW, Some(protocol)).unwrap();
        Forger { v4: raw(AddressFamily::INET, ipproto::ICMP), v6: raw(AddressFamily::INET6, ipproto::ICMPV6) }
    }

    /// Sends `victim` an ICMP message which claims that a datagram from it to `peer` has failed. The datagram
    /// is one of this protocol, whose contents the forger does not know.
    pub fn forge(&self, (kind, code): (u8, u8), victim: SocketAddr, peer: SocketAddr, protocol: u8) {
        self.forge_quoting((kind, code), victim, peer, (protocol, &[0x5a; 64]));
    }

    /// The same with these contents.
    pub fn forge_quoting(
        &self,
        (kind, code): (u8, u8),
        victim: SocketAddr,
        peer: SocketAddr,
        (protocol, contents): (u8, &[u8]),
    ) {
        let mut message = vec![kind, code, 0, 0, 0, 0, 0x05, 0];
        let mut segment: Vec<u8> = [victim.port().to_be_bytes(), peer.port().to_be_bytes()].concat();
        match protocol {
            UDP => segment.extend([((contents.len() + 8) as u16).to_be_bytes(), [0, 0]].concat()),
            // A sequence number, an acknowledgement, and the length of the header.
            _ => segment.extend([0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]),
        }
        segment.extend(contents);
        match (victim.ip(), peer.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                message.extend(header_v4(from, to, protocol, segment.len()));
                message.extend(segment);
                let sum = checksum(&message);
                message[2..4].copy_from_slice(&sum.to_be_bytes());
                let _ = sendto(&self.v4, &message, SendFlags::empty(), &SocketAddr::new(victim.ip(), 0));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                message.extend(header_v6(from, to, protocol, segment.len()));
                message.extend(segment);
                // The kernel computes the checksum.
                let _ = sendto(&self.v6, &message, SendFlags::empty(), &SocketAddr::new(victim.ip(), 0));
            }
            _ => panic!("{victim} and {peer} are of different families"),
        }
    }

    /// Sends each of these ports, at loopback addresses, messages of these kinds about the others.
    pub fn flood(
        &self,
        here: IpAddr,
        ports: &[u16],
        protocol: u8,
        kinds: impl Iterator<Item = (u8, u8)> + Clone,
    ) {
        let pairs = ports.iter().flat_map(|victim| ports.iter().map(move |peer| (*victim, *peer)));
        for (victim, peer) in pairs.filter(|(victim, peer)| victim != peer) {
            let [victim, peer] = [victim, peer].map(|port| SocketAddr::new(here, port));
            kinds.clone().for_each(|kind| self.forge(kind, victim, peer, protocol));
        }
    }
}

fn header_v4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, len: usize) -> Vec<u8> {
    let total = (20 + len) as u16;
    let mut header = vec![0x45, 0, (total >> 8) as u8, total as u8, 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend(from.octets());
    header.extend(to.octets());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn header_v6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, len: usize) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, (len >> 8) as u8, len as u8, protocol, 64];
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// The checksum of the Internet (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
