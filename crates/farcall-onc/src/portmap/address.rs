//! Universal addresses (RFC 1833 section 2.1; RFC 5665 section 5.2.3), which express an address and a port as
//! text.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// Returns the universal address of a socket address, such as `10.0.0.7.8.1`. The last two numbers are the
/// port's bytes, and the text before them is the host. A link-local address is written without its interface,
/// because another host numbers its interfaces differently.
pub fn to_universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    let mut text = address.ip().to_string();
    // Writing to a `String` does not fail.
    let _ = write!(text, ".{high}.{low}");
    text
}

/// Parses a universal address, with the number of an interface if the text has one (`fe80::1%2.0.111`).
/// Returns `None` if the text is not an Internet address.
pub fn from_universal(text: &str) -> Option<SocketAddr> {
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    match host.contains(':') {
        true => format!("[{host}]:{port}").parse().ok(),
        false => Some(SocketAddr::new(host.parse().ok()?, port)),
    }
}

/// Returns the name of a network: `udp`, `tcp`, `udp6` or `tcp6`.
pub fn netid(stream: bool, address: SocketAddr) -> &'static str {
    match (stream, address.is_ipv4()) {
        (false, true) => "udp",
        (true, true) => "tcp",
        (false, false) => "udp6",
        (true, false) => "tcp6",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_texts_and_texts_addresses() {
        for (text, address) in [
            ("127.0.0.1.8.1", "127.0.0.1:2049"),
            ("0.0.0.0.0.111", "0.0.0.0:111"),
            ("::1.255.255", "[::1]:65535"),
        ] {
            assert_eq!(from_universal(text), Some(address.parse().unwrap()));
            assert_eq!(to_universal(address.parse().unwrap()), text);
        }
    }

    #[test]
    fn an_interface_is_understood_and_not_said() {
        let address: SocketAddr = "[fe80::1%2]:111".parse().unwrap();
        assert_eq!(from_universal("fe80::1%2.0.111"), Some(address));
        assert_eq!(to_universal(address), "fe80::1.0.111");
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "1.2",
            "/run/rpcbind.sock",
            "127.0.0.1.256.1",
            "127.0.0.1.-1.1",
            "localhost.1.1",
            "127.0.0.1.1",
            "..",
            "1.2.3.4.5.6.7",
            "::1]:5.0.1",
            "fe80::1%.0.1",
        ] {
            assert_eq!(from_universal(text), None, "{text}");
        }
    }
}
