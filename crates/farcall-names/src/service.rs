//! Resolves the SRV records that a name names.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::Host;

/// Returns the addresses of the targets of a service's SRV records, as [`Name::AtService`](crate::Name) names
/// them: those of the lowest priority that has addresses. Blocks for `within` at most, and for 5 s at most.
/// Each server of DNS gets a share of that time. `setting` looks up settings by
/// their names: `FARCALL_DNS_SERVER` names the servers of DNS, as in `10.0.0.53,[::1]:5353`, and without it
/// the system's are asked; `FARCALL_DNS_LOCAL_ADDRESSES=1` lets every host have loopback and link-local
/// addresses, which else count for `localhost` alone.
///
/// # Errors
/// DNS does not answer, or a setting is written wrongly. [`io::ErrorKind::Unsupported`] if this build has no
/// DNS (the feature `dns`).
#[cfg(feature = "dns")]
pub fn resolve_service(
    service: &Host,
    within: Duration,
    setting: impl Fn(&'static str) -> Option<String>,
) -> io::Result<Vec<SocketAddr>> {
    let accepts_local = crate::place::accepts_local(&setting).map_err(io::Error::other)?;
    let servers = setting("FARCALL_DNS_SERVER");
    crate::dns::resolve(service, within, servers.as_deref(), accepts_local).map_err(io::Error::other)
}

/// Fails with [`io::ErrorKind::Unsupported`], because this build has no DNS (the feature `dns`).
///
/// # Errors
/// Always.
#[cfg(not(feature = "dns"))]
pub fn resolve_service(
    _: &Host,
    _: Duration,
    _: impl Fn(&'static str) -> Option<String>,
) -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this build has no DNS (the feature `dns`)"))
}

#[cfg(all(test, not(feature = "dns")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_dns_says_so() {
        let service = Host::parse("_store._udp.example.org").unwrap();
        let refused = resolve_service(&service, Duration::ZERO, |_| None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
        let place = crate::open("dns://example.org", |_| None).err().unwrap();
        for said in [refused.to_string(), place.to_string()] {
            assert!(said.contains("the feature `dns`"), "{said}");
        }
    }
}
