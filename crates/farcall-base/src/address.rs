//! The form in which farcall compares socket addresses.

use std::net::SocketAddr;

/// Returns an address in the form in which addresses are compared. An IPv4 address that is written as IPv6
/// (`::ffff:127.0.0.1`, RFC 4291 section 2.5.5.2) becomes an IPv4 address. Sockets of both families report
/// addresses so.
#[inline]
pub fn canonical(socket: SocketAddr) -> SocketAddr {
    let SocketAddr::V6(v6) = socket else { return socket };
    v6.ip().to_ipv4_mapped().map_or(socket, |ip| SocketAddr::new(ip.into(), v6.port()))
}
