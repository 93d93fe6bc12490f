//! Chooses the address to publish for a server. Callers must be able to use this address, even if the server
//! is bound to all addresses of its host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Inner;
use crate::{CallFailed, Kind, Ran};

impl Inner {
    /// Returns the address to publish for a server that is bound to `bound`.
    ///
    /// # Errors
    /// When the server is bound to all addresses of its host, no setting names the address to publish, and
    /// none can be guessed.
    pub(super) fn advertised(&self, bound: SocketAddr) -> Result<SocketAddr, CallFailed> {
        if let Some(mut address) = self.settings.advertise {
            if address.port() == 0 {
                address.set_port(bound.port());
            }
            return Ok(address);
        }
        if !bound.ip().is_unspecified() {
            return Ok(bound);
        }
        let guessed = self.guess(bound.ip()).ok_or_else(|| {
            let why = format!(
                "the server listens at all addresses of its host ({bound}), but callers need one of \
                 them, and none can be guessed: name one by the builder's `advertise()`, or FARCALL_ADVERTISE"
            );
            CallFailed::new(Kind::Local, Ran::No).because(why)
        })?;
        Ok(SocketAddr::new(guessed, bound.port()))
    }

    /// Returns the address from which this machine sends to the registry. Callers that use this registry can
    /// probably reach the server at that address.
    fn guess(&self, wildcard: IpAddr) -> Option<IpAddr> {
        let route = self.registry.route()?.to_canonical();
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
