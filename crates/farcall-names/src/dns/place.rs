//! The place of a registry in DNS, as users write it, and the servers to ask.

use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use super::domain::Domain;
use crate::{PlaceError, socket_address, socket_address_at};

/// The port of DNS servers.
const PORT: u16 = 53;

/// The most servers that are asked.
const MAX_SERVERS: usize = 3;

/// The file that names the system's servers (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The most bytes of that file that are read.
const MAX_RESOLV_CONF: usize = 64 << 10;

/// The place of a registry in DNS: `dns://DOMAIN[?server=IP[:PORT][,IP[:PORT]…]][&local-addresses]`.
pub(super) struct Place {
    pub(super) domain: Domain,
    pub(super) servers: Servers,
    /// Whether hosts may have loopback and link-local addresses.
    pub(super) accepts_local: bool,
    /// The place as it was written.
    text: String,
}

/// The servers to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    Given(Vec<SocketAddr>),
    /// Those of the system, as its file names them when they are asked.
    OfSystem,
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Place, PlaceError> {
        let wrong = |why: &str| {
            let why = format!("{why}; write dns://DOMAIN[?server=IP[:PORT],…][&local-addresses]");
            PlaceError { place: text.to_owned(), why }
        };
        let rest = text.strip_prefix("dns://").ok_or_else(|| wrong("it has another scheme"))?;
        let (domain, query) =
            rest.split_once('?').map_or((rest, None), |(domain, query)| (domain, Some(query)));
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        let domain = Domain::parse(domain).ok_or_else(|| wrong(&format!("{domain:?} is no domain")))?;
        let (mut servers, mut accepts_local) = (Servers::OfSystem, false);
        for word in query.into_iter().flat_map(|query| query.split('&')) {
            match word.strip_prefix("server=") {
                Some(given) => servers = given.parse().map_err(|why: String| wrong(&why))?,
                None if word == "local-addresses" => accepts_local = true,
                None => {
                    return Err(wrong(
                        "only \"server=\" and \"local-addresses\" may follow the question mark",
                    ));
                }
            }
        }
        Ok(Place { domain, servers, accepts_local, text: text.to_owned() })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Servers {
    /// What is wrong with the text.
    type Err = String;

    /// Parses `IP[:PORT][,IP[:PORT]…]`.
    fn from_str(text: &str) -> Result<Servers, String> {
        let server =
            |text| parse_server(text).ok_or_else(|| format!("{text:?} is no IP address of a server"));
        let servers = text.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
        if servers.len() > MAX_SERVERS {
            return Err("it has more than three servers".to_owned());
        }
        Ok(Servers::Given(servers))
    }
}

impl Servers {
    /// Returns the addresses of the servers, at least one and at most three.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        if let Servers::Given(servers) = self {
            return servers.clone();
        }
        let bytes =
            File::open(RESOLV_CONF).and_then(|file| crate::directory::read_bounded(file, MAX_RESOLV_CONF));
        let mut servers = parse_resolv_conf(&bytes.unwrap_or_default());
        if servers.is_empty() {
            // resolv.conf(5): the server is on this machine if the file names none.
            servers.push((Ipv4Addr::LOCALHOST, PORT).into());
        }
        servers
    }
}

/// Returns the first servers that the file of the system names. Passes over what it does not understand, and
/// network interfaces that there are not.
fn parse_resolv_conf(bytes: &[u8]) -> Vec<SocketAddr> {
    let text = String::from_utf8_lossy(bytes);
    let server = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let is_server = words.next() == Some("nameserver");
        socket_address_at(words.next().filter(|_| is_server)?, PORT)
    };
    text.lines().filter_map(server).take(MAX_SERVERS).collect()
}

/// Parses an IP address, with or without a port.
fn parse_server(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let with_port = || socket_address(text).filter(|socket| socket.port() != 0);
    socket_address_at(bare, PORT).or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_a_domain_and_servers() {
        let place: Place = "dns://Example.org.?server=10.0.0.1,[::1]:5353,::2".parse().unwrap();
        let servers = ["10.0.0.1:53", "[::1]:5353", "[::2]:53"].map(|server| server.parse().unwrap());
        assert_eq!((place.domain.as_str(), &place.servers), ("example.org", &Servers::Given(servers.into())));
        assert!(!place.accepts_local);
        let place: Place = "dns://store.ns.svc.cluster.local".parse().unwrap();
        assert_eq!((&place.servers, place.accepts_local), (&Servers::OfSystem, false));
        let place: Place = "dns://example.org?local-addresses".parse().unwrap();
        assert_eq!((&place.servers, place.accepts_local), (&Servers::OfSystem, true));
        let place: Place = "dns://example.org?server=10.0.0.1&local-addresses".parse().unwrap();
        assert!(place.servers != Servers::OfSystem && place.accepts_local);
        assert!((1..=MAX_SERVERS).contains(&place.servers.addresses().len()));
    }

    #[test]
    fn what_is_wrong_in_a_place_is_said() {
        for (place, why) in [
            ("http://a", "another scheme"),
            ("dns://", "no domain"),
            ("dns://10.0.0.1", "no domain"),
            ("dns://a b", "no domain"),
            ("dns://a/b", "no domain"),
            ("dns://a?b=c", "server="),
            ("dns://a?server=", "no IP address"),
            ("dns://a?server=b", "no IP address"),
            ("dns://a?server=10.0.0.1:0", "no IP address"),
            ("dns://a?server=1.1.1.1,1.1.1.1,1.1.1.1,1.1.1.1", "three"),
        ] {
            let found = place.parse::<Place>().err().unwrap().to_string();
            assert!(found.contains(why), "{place}: {found}");
        }
    }

    #[test]
    fn the_file_of_the_system_is_read_as_far_as_it_is_understood() {
        let text =
            b"# nameserver 1.1.1.1\nnameserver 10.0.0.1\nsearch a\nnameserver\nnameserver fe80::1%no-such-if\n\
            nameserver ::1 \nnameserver \xff\nnameserver 10.0.0.2\nnameserver 10.0.0.3\n";
        let expected = ["10.0.0.1:53", "[::1]:53", "10.0.0.2:53"].map(|server| server.parse().unwrap());
        assert_eq!(parse_resolv_conf(text), expected);
        assert_eq!(parse_resolv_conf(b""), []);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn servers_may_be_of_one_link() {
        let expected = ["[fe80::1%1]:53", "[fe80::2%1]:53"].map(|server| server.parse().unwrap());
        let text = b"nameserver fe80::1%lo\nnameserver fe80::9%no-such-if\nnameserver fe80::2%1\n";
        assert_eq!(parse_resolv_conf(text), expected);
        let place: Place = "dns://example.org?server=fe80::1%lo,[fe80::2%lo]:53".parse().unwrap();
        assert_eq!(place.servers, Servers::Given(expected.into()));
        assert!("dns://example.org?server=fe80::1%no-such-if".parse::<Place>().is_err());
    }
}
