//! The place of an etcd registry, as users write it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::{Label, PlaceError};

/// The port at which etcd serves clients if the place names none.
const PORT: u16 = 2379;

/// The prefix of all keys if the place names none.
const PREFIX: &str = "farcall";

/// The most endpoints of a place.
const MAX_ENDPOINTS: usize = 32;

/// The place of a registry in etcd: `etcd://HOST[:PORT][,HOST[:PORT]…][/PREFIX]`, or `etcds://…` for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// The base of each endpoint's URLs, as in `http://10.0.0.1:2379`.
    pub(super) endpoints: Vec<String>,
    /// The first part of all keys, as in `farcall`.
    pub(super) prefix: String,
    /// The place as it was written.
    text: String,
}

/// By what etcd admits this client.
#[derive(Clone, Default)]
pub(super) struct Access {
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "etcd-tls")]
    pub(super) tls: Option<super::tls::EtcdTls>,
}

/// A user of etcd.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl FromStr for Location {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Location, PlaceError> {
        let wrong = |why: String| {
            let why = format!("{why}; write etcd://HOST[:PORT][,HOST…][/PREFIX], or etcds://… for TLS");
            PlaceError { place: text.to_owned(), why }
        };
        let (scheme, rest) = match text.split_once("://") {
            Some(("etcd", rest)) => ("http", rest),
            Some(("etcds", rest)) if cfg!(feature = "etcd-tls") => ("https", rest),
            Some(("etcds", _)) => {
                let why = "this build has no TLS to etcd (the feature `etcd-tls`)".to_owned();
                return Err(PlaceError { place: text.to_owned(), why });
            }
            _ => return Err(wrong("it has another scheme".into())),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        for part in prefix.split('/') {
            part.parse::<Label>().map_err(|why| wrong(format!("its prefix: {why}")))?;
        }
        let endpoints = hosts.split(',').map(|host| Ok(format!("{scheme}://{}", authority(host)?)));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        if endpoints.len() > MAX_ENDPOINTS {
            return Err(wrong(format!(
                "it has {} hosts; at most {MAX_ENDPOINTS} are allowed",
                endpoints.len()
            )));
        }
        Ok(Location { endpoints, prefix: prefix.to_owned(), text: text.to_owned() })
    }
}

impl Location {
    /// Returns the addresses of the hosts that are written as addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.endpoints.iter().filter_map(|endpoint| {
            let socket: std::net::SocketAddr = endpoint.split_once("://")?.1.parse().ok()?;
            Some(socket.ip())
        })
    }

    /// Returns whether all hosts are this machine, as they are written.
    pub(super) fn is_local(&self) -> bool {
        let named = |endpoint: &String| endpoint.contains("://localhost:");
        let local = self.addresses().filter(|address| address.to_canonical().is_loopback()).count();
        local + self.endpoints.iter().filter(|endpoint| named(endpoint)).count() == self.endpoints.len()
    }

    /// Returns whether the place asks for TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.text.starts_with("etcds:")
    }

    /// Returns the error that something is wrong with the place.
    pub(super) fn wrong(&self, why: &str) -> PlaceError {
        PlaceError { place: self.text.clone(), why: why.to_owned() }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Returns the host and port as a URL has them.
fn authority(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it names no host".to_owned());
    }
    let bracketed_end = text.rfind(']');
    let (host, port) = match text.rfind(':') {
        Some(colon) if bracketed_end.is_none_or(|end| end < colon) => {
            (&text[..colon], Some(&text[colon + 1..]))
        }
        _ => (text, None),
    };
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| format!("{port:?} is no port")))?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        }
    };
    if !is_host {
        return Err(format!("{host:?} is no host"));
    }
    Ok(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_hosts_ports_and_a_prefix() {
        let place: Location = "etcd://10.0.0.1,[::1]:4001,etcd-2.example.org/team/farcall".parse().unwrap();
        let endpoints =
            ["http://10.0.0.1:2379", "http://[::1]:4001", "http://etcd-2.example.org:2379"].map(String::from);
        assert_eq!((&place.endpoints[..], &place.prefix[..]), (&endpoints[..], "team/farcall"));
        assert_eq!(place.addresses().count(), 2);
        assert_eq!("etcd://a".parse::<Location>().unwrap().prefix, PREFIX);
    }

    #[test]
    fn a_place_with_tls_needs_the_feature() {
        let place = "etcds://10.0.0.1/team".parse::<Location>();
        if cfg!(feature = "etcd-tls") {
            let place = place.unwrap();
            assert_eq!(place.endpoints, ["https://10.0.0.1:2379"]);
            assert!(place.is_secure() && place.addresses().count() == 1);
        } else {
            assert!(place.unwrap_err().to_string().contains("etcd-tls"));
        }
    }

    #[test]
    fn what_is_wrong_in_a_place_is_said() {
        for (place, why) in [
            ("http://a", "another scheme"),
            ("etcdss://a", "another scheme"),
            ("etcd://", "names no host"),
            ("etcd://a,,b", "names no host"),
            ("etcd://a:70000", "no port"),
            ("etcd://a b", "no host"),
            ("etcd://[10.0.0.1]", "no host"),
            ("etcd://a/x y", "prefix"),
            ("etcd://a/x//y", "prefix"),
        ] {
            let found = place.parse::<Location>().unwrap_err().to_string();
            assert!(found.contains(why), "{place}: {found}");
        }
    }
}
