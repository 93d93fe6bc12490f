//! Chooses the addresses to publish for a server. Callers must be able to use these addresses, even if the
//! server is bound to all addresses of its host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use farcall_names::MAX_ADDRESSES;

use super::Inner;
use crate::{CallFailed, Kind, Ran};

impl Inner {
    /// Returns the addresses to publish for a server that is bound to `bound`, at least one and at most
    /// [`MAX_ADDRESSES`].
    ///
    /// # Errors
    /// When the server is bound to a loopback address, and other machines read the registry; or when it is
    /// bound to all addresses of its host, no setting names the addresses to publish, and
    /// none can be guessed.
    pub(super) fn advertised(&self, bound: SocketAddr) -> Result<Vec<SocketAddr>, CallFailed> {
        if !self.settings.advertise.is_empty() {
            let at_port = |address: &SocketAddr| match address.port() {
                0 => SocketAddr::new(address.ip(), bound.port()),
                _ => *address,
            };
            return Ok(self.settings.advertise.iter().map(at_port).collect());
        }
        if bound.ip().is_loopback() && self.registry.is_shared() {
            let why = format!(
                "the server listens at {bound}, where only its own machine can call it, but other machines read \
                 the registry: name an address by the builder's `address()`, or FARCALL_ADDRESS (or publish \
                 this one by `advertise()`, or FARCALL_ADVERTISE)"
            );
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        if !bound.ip().is_unspecified() {
            return Ok(vec![bound]);
        }
        let guessed = self.guess(bound.ip());
        if guessed.is_empty() {
            let why = format!(
                "the server listens at all addresses of its host ({bound}), but callers need one of \
                 them, and none can be guessed: name one by the builder's `advertise()`, or FARCALL_ADVERTISE"
            );
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        Ok(guessed.into_iter().map(|ip| SocketAddr::new(ip, bound.port())).collect())
    }

    /// Returns the addresses from which this machine sends to the registry. Callers that use this registry
    /// can probably reach the server at these.
    fn guess(&self, wildcard: IpAddr) -> Vec<IpAddr> {
        let mut sources = Vec::new();
        for route in self.registry.routes() {
            let source = self.source_towards(route.to_canonical(), wildcard);
            sources.extend(source.filter(|source| !sources.contains(source)));
        }
        sources.truncate(MAX_ADDRESSES);
        sources
    }

    /// Returns the address from which this machine sends to an address of the registry.
    fn source_towards(&self, route: IpAddr, wildcard: IpAddr) -> Option<IpAddr> {
        let (loopback_v4, loopback_v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        // An IPv6 socket also receives IPv4 datagrams. An IPv4 socket receives no IPv6 datagrams.
        let routes = match (route.is_loopback(), wildcard.is_ipv6()) {
            (true, true) => vec![loopback_v6, loopback_v4],
            (true, false) => vec![loopback_v4],
            (false, both) => Vec::from_iter(Some(route).filter(|route| both || route.is_ipv4())),
        };
        let mut sources = routes.into_iter().filter_map(|route| self.env.source_address(route).ok());
        sources.find(|source| names_one_host(*source))
    }
}

/// Returns whether the address names one host, and is no address of a single link, which is of use only
/// together with a network interface. A loopback address passes: it names the caller's own host, on which the
/// server may be.
pub(super) fn names_one_host(ip: IpAddr) -> bool {
    let is_of_one_link = match ip {
        IpAddr::V4(ip) => ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_unspecified() && !ip.is_multicast() && !is_of_one_link
}
