//! Parses the text that names a server: an address, or a host with or without a port.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use super::carrier::Address;

/// A host, and perhaps a port, as a text names them.
pub(super) struct Place<'a> {
    /// The host, without the brackets that an IPv6 address has before a port.
    pub(super) host: &'a str,
    pub(super) port: Option<&'a str>,
}

impl Place<'_> {
    /// Parses `[HOST]:PORT`, `[HOST]`, `HOST:PORT` or `HOST`. A text with several colons and no brackets is
    /// an IPv6 address.
    pub(super) fn of(text: &str) -> Place<'_> {
        if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return Place { host, port: rest.strip_prefix(':') };
        }
        match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => Place { host, port: Some(port) },
            _ => Place { host: text, port: None },
        }
    }
}

/// Returns `HOST:PORT`, with this port unless the text names one.
pub(super) fn at_port(text: &str, port: u16) -> String {
    match Place::of(text) {
        Place { port: Some(_), .. } => text.to_owned(),
        Place { host, .. } if host.contains(':') => format!("[{host}]:{port}"),
        Place { host, .. } => format!("{host}:{port}"),
    }
}

/// Returns the addresses that a text with a network and a port, or a Unix path, names.
pub(super) fn addresses(address: &str) -> io::Result<Vec<Address>> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    match address.split_once("://") {
        Some(("tcp", place)) => Ok(resolve(place)?.map(Address::Tcp).collect()),
        Some(("udp", place)) => Ok(resolve(place)?.map(Address::Udp).collect()),
        _ => Err(invalid("an address is tcp://HOST:PORT, udp://HOST:PORT or unix:PATH")),
    }
}

/// Resolves `HOST:PORT`. The host may name the interface of a link-local address: `fe80::1%eth0`.
fn resolve(place: &str) -> io::Result<impl Iterator<Item = SocketAddr>> {
    let Place { host, port: Some(port) } = Place::of(place) else { return Err(invalid("it names no port")) };
    let port: u16 = port.parse().map_err(|_| invalid("its port is no number up to 65535"))?;
    (host, port).to_socket_addrs()
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_follows_a_host_of_any_family() {
        for (text, host, port) in [
            ("::1", "::1", None),
            ("[::1]", "::1", None),
            ("[::1]:2049", "::1", Some("2049")),
            ("fe80::1%eth0", "fe80::1%eth0", None),
            ("[fe80::1%2]:111", "fe80::1%2", Some("111")),
            ("localhost", "localhost", None),
            ("localhost:1", "localhost", Some("1")),
            ("10.0.0.7:1", "10.0.0.7", Some("1")),
            ("", "", None),
            ("[", "[", None),
        ] {
            let place = Place::of(text);
            assert_eq!((place.host, place.port), (host, port), "{text}");
        }
        assert_eq!(at_port("::1", 111), "[::1]:111");
        assert_eq!(at_port("[::1]", 111), "[::1]:111");
        assert_eq!(at_port("[::1]:9", 111), "[::1]:9");
        assert_eq!(at_port("host", 111), "host:111");
    }

    #[test]
    fn an_address_keeps_the_interface_that_it_names() {
        let found = addresses("udp://[fe80::7%1]:111").unwrap();
        let [Address::Udp(SocketAddr::V6(found))] = found[..] else { panic!("{found:?}") };
        assert_eq!((found.scope_id(), found.port()), (1, 111));
        for wrong in
            ["tcp://[::1]", "tcp://::1", "tcp://localhost:x", "tcp://localhost:65536", "udp://[::1]x:1"]
        {
            assert!(addresses(wrong).is_err(), "{wrong}");
        }
    }
}
