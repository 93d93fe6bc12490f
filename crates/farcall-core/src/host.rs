//! The hosts among which a server shares its connections and threads.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;

/// A host: an IPv4 address, the first 64 bits of an IPv6 address (one machine can have all addresses that
/// share them), or a user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// The host that has this IPv4 address.
    V4(u32),
    /// The host that has the IPv6 addresses with these first 64 bits.
    V6(u64),
    /// A user of this machine, if the system told which.
    User(Option<u32>),
}

/// A network of hosts: an IPv4 /16, the first 48 bits of an IPv6 address, this machine by its loopback
/// addresses, or its users. One machine can have all addresses of an IPv6 network, and any local process
/// those of 127.0.0.0/8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Network {
    /// The network that has the IPv4 addresses with these first 16 bits.
    V4(u16),
    /// The network that has the IPv6 addresses with these first 48 bits.
    V6(u64),
    /// This machine.
    Loopback,
    /// The users of this machine, as the system knows them.
    Users,
}

/// A host can have this many of what a server shares for each further one that the server has room for. So a
/// single host gets at most four fifths, and the rest is left for other hosts.
pub const HOST_SHARE: usize = 4;

/// Returns how many of `most` a single host can have: four fifths, but all of fewer than five.
pub fn most_of_host(most: usize) -> usize {
    if most <= HOST_SHARE { most } else { most / (HOST_SHARE + 1) * HOST_SHARE }
}

/// Returns how many of `most` the hosts of a single network can have: all but a sixteenth, and all of fewer
/// than five.
pub fn most_of_network(most: usize) -> usize {
    if most <= HOST_SHARE { most } else { most - (most / 16).max(1) }
}

impl Host {
    /// Returns the host of a peer, given its address or, if it has none because it came by a Unix socket, its
    /// user.
    pub fn of(address: Option<SocketAddr>, user: Option<u32>) -> Host {
        address.map_or(Host::User(user), |address| Host::at(address.ip()))
    }

    /// Returns the host that has an address.
    pub fn at(ip: IpAddr) -> Host {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Host::V4(ip.to_bits()),
            IpAddr::V6(ip) => Host::V6((ip.to_bits() >> 64) as u64),
        }
    }

    /// Returns the host's network.
    pub fn network(self) -> Network {
        match self {
            Host::V4(ip) if ip >> 24 == 127 => Network::Loopback,
            Host::V4(ip) => Network::V4((ip >> 16) as u16),
            // ::1.
            Host::V6(0) => Network::Loopback,
            Host::V6(half) => Network::V6(half >> 16),
            Host::User(_) => Network::Users,
        }
    }

    /// Returns a number for the host: the same as the protocol's for a host that has an address. A user's
    /// number can equal that of an IPv6 network, which is unlikely and harmless.
    pub fn number(self) -> NonZero<u64> {
        let number = match self {
            Host::V4(ip) => 0xffff << 32 | u64::from(ip),
            Host::V6(half) => half,
            Host::User(user) => 1 << 33 | u64::from(user.unwrap_or(u32::MAX)),
        };
        NonZero::new(number).unwrap_or(NonZero::<u64>::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Host {
        Host::of(Some(address.parse().unwrap()), None)
    }

    #[test]
    fn a_host_is_an_ipv4_address_64_bits_of_an_ipv6_address_or_a_user() {
        assert_eq!(at("10.0.0.7:1"), at("10.0.0.7:2"));
        assert_ne!(at("10.0.0.7:1"), at("10.0.0.8:1"));
        assert_eq!(at("10.0.0.7:1"), at("[::ffff:10.0.0.7]:1"));
        assert_eq!(at("[2001:db8::1]:1"), at("[2001:db8::f:0:0:1]:1"));
        assert_ne!(at("[2001:db8::1]:1"), at("[2001:db8:0:1::1]:1"));
        assert_ne!(Host::of(None, Some(7)), Host::of(None, Some(8)));
    }

    #[test]
    fn a_network_is_a_16_a_48_or_this_machine() {
        let network = |address| at(address).network();
        assert_eq!(network("10.0.0.7:1"), network("10.0.255.1:1"));
        assert_ne!(network("10.0.0.7:1"), network("10.1.0.7:1"));
        assert_eq!(network("[2001:db8:0:1::1]:1"), network("[2001:db8:0:ffff::1]:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:1::1]:1"));
        assert_eq!(network("127.0.0.1:1"), network("127.255.7.1:1"));
        assert_eq!(network("127.0.0.1:1"), network("[::1]:1"));
        assert_eq!(Host::of(None, Some(7)).network(), Host::of(None, Some(8)).network());
    }

    #[test]
    fn a_single_host_gets_four_fifths() {
        let shares = [1, 2, 4, 5, 10, 11, 1000].map(most_of_host);
        assert_eq!(shares, [1, 2, 4, 4, 8, 8, 800]);
    }

    #[test]
    fn the_hosts_of_a_single_network_leave_a_sixteenth() {
        assert_eq!([1, 2, 4, 5, 16, 256].map(most_of_network), [1, 2, 4, 4, 15, 240]);
    }
}
