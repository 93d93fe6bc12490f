//! Parses the text that names a server: an address, or a host with or without a port.

use std::path::Path;
use std::sync::Arc;

use farcall::env::{Env, Time};
use farcall::resolve::resolve;
use farcall::{CallFailed, Kind, Ran};

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

/// Returns the addresses that a text with a network and a port, or a Unix path, names. Waits for the resolver
/// until `until` at most.
///
/// # Errors
/// The text is no such address, or the host is unknown or not known in time.
pub(super) fn addresses(env: &Arc<dyn Env>, address: &str, until: Time) -> Result<Vec<Address>, CallFailed> {
    let refused = |why: &str| CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("{address}: {why}"));
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    match address.split_once("://") {
        Some((network @ ("tcp" | "udp"), place)) => {
            let (host, port) = host_and_port(place).map_err(refused)?;
            // The host may name the interface of a link-local address: `fe80::1%eth0`.
            let found = resolve(env, host, port, until).map_err(|why| {
                let why_not = format!("{address}: {}", why.detail());
                why.because(why_not)
            })?;
            let whole = if network == "tcp" { Address::Tcp } else { Address::Udp };
            Ok(found.into_iter().map(whole).collect())
        }
        _ => Err(refused("an address is tcp://HOST:PORT, udp://HOST:PORT or unix:PATH")),
    }
}

/// Returns whether a text names its host, so that only a resolver knows the address.
pub(super) fn names_host(address: &str) -> bool {
    let Some((_, place)) = address.split_once("://") else { return false };
    let Place { host, .. } = Place::of(place);
    let scoped = || format!("[{host}]:0").parse::<std::net::SocketAddr>().is_ok();
    !address.starts_with("unix:") && host.parse::<std::net::IpAddr>().is_err() && !scoped()
}

fn host_and_port(place: &str) -> Result<(&str, u16), &'static str> {
    let Place { host, port: Some(port) } = Place::of(place) else { return Err("it names no port") };
    Ok((host, port.parse().map_err(|_| "its port is no number up to 65535")?))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use farcall::System;

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
        let env: Arc<dyn Env> = Arc::new(System);
        let addresses = |text| addresses(&env, text, env.now() + Duration::from_secs(60));
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
