//! Parses socket addresses as users write them: an IPv6 address of one link may name its network interface.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The most bytes of an interface's name (IFNAMSIZ of Linux and the BSDs, with its zero).
const MAX_INTERFACE: usize = 15;

/// Parses `ADDRESS:PORT`: what [`SocketAddr`] parses, and the name of a network interface where that takes
/// its number, as in `[fe80::1%eth0]:7000` (RFC 4007, section 11). Returns `None` if the text is no address,
/// or if this machine has no such interface now. Never asks a name server.
///
/// ```
/// let numbered = farcall_names::socket_address("[fe80::1%1]:7000").unwrap();
/// assert_eq!(numbered, "[fe80::1%1]:7000".parse().unwrap());
/// assert_eq!(farcall_names::socket_address("[fe80::1%no-such-if]:7000"), None);
/// ```
pub fn socket_address(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
        scoped(host, port.parse().ok()?)
    })
}

/// Parses an IP address without a port, which may name its network interface by a number or a name.
pub fn socket_address_at(host: &str, port: u16) -> Option<SocketAddr> {
    let numbered = || format!("[{host}]:{port}").parse().ok();
    let ip = host.parse::<IpAddr>().ok();
    ip.map(|ip| SocketAddr::new(ip, port)).or_else(numbered).or_else(|| scoped(host, port))
}

/// Returns whether the text is an IPv6 address with the name of a network interface.
pub(crate) fn names_interface(host: &str) -> bool {
    let Some((address, interface)) = host.split_once('%') else { return false };
    let is_name = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'[' | b']');
    address.parse::<Ipv6Addr>().is_ok()
        && (1..=MAX_INTERFACE).contains(&interface.len())
        && interface.bytes().all(is_name)
}

/// Parses an IPv6 address with the name of a network interface. The system's resolver knows the interfaces;
/// it asks nobody about a text that is an address.
fn scoped(host: &str, port: u16) -> Option<SocketAddr> {
    let found = names_interface(host).then(|| (host, port).to_socket_addrs().ok()).flatten()?;
    // A number that the system does not know as one would be an interface's name.
    found.into_iter().find(|found| matches!(found, SocketAddr::V6(v6) if v6.scope_id() != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn an_address_may_name_its_interface() {
        let expected: SocketAddr = "[fe80::1%1]:7000".parse().unwrap();
        assert_eq!(socket_address("[fe80::1%lo]:7000"), Some(expected));
        assert_eq!(socket_address("[fe80::1%1]:7000"), Some(expected));
        assert_eq!(socket_address_at("fe80::1%lo", 7000), Some(expected));
        assert_eq!(socket_address_at("fe80::1%1", 7000), Some(expected));
        assert_eq!(socket_address_at("10.0.0.1", 7), Some("10.0.0.1:7".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_is_asked_of_nobody() {
        for wrong in [
            "",
            "localhost:7000",
            "[localhost%lo]:7000",
            "[fe80::1%lo]",
            "[fe80::1%lo]:",
            "[fe80::1%lo]:65536",
            "[fe80::1%]:7000",
            "[fe80::1%l/o]:7000",
            "[fe80::1%lo%lo]:7000",
            "[fe80::1%lo x]:7000",
            "fe80::1%lo:7000",
            "[10.0.0.1%lo]:7000",
            "[fe80::1%an-interface-of-32-characters..]:7000",
        ] {
            assert_eq!(socket_address(wrong), None, "{wrong}");
        }
    }
}
