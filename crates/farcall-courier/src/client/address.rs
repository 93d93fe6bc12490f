//! Parses the text that names a server.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::{Address, Env, Time};
use farcall::resolve::resolve;
use farcall::{CallFailed, Kind, Ran};

/// How long the name of a host that is called by UDP may take to resolve.
const RESOLVE_TIME: Duration = Duration::from_secs(10);

/// Returns the addresses that `tcp://HOST:PORT` or `unix:PATH` names.
/// Waits for the resolver until `until` at most.
///
/// # Errors
/// The text is no such address, or the host is unknown or not known in time.
pub(crate) fn addresses(env: &Arc<dyn Env>, text: &str, until: Time) -> Result<Vec<Address>, CallFailed> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    let Some(place) = text.strip_prefix("tcp://") else {
        return Err(refused(text, "an address is tcp://HOST:PORT or unix:PATH"));
    };
    Ok(find(env, text, place, until)?.into_iter().map(Address::Tcp).collect())
}

/// Returns the address that `udp://HOST:PORT` names. If the host has several it is the first, because UDP
/// cannot tell which of them answers.
///
/// # Errors
/// The text is no such address, or the host is unknown.
pub(crate) fn udp_address(env: &Arc<dyn Env>, text: &str) -> Result<SocketAddr, CallFailed> {
    let Some(place) = text.strip_prefix("udp://") else {
        return Err(refused(text, "an address is udp://HOST:PORT"));
    };
    let found = find(env, text, place, env.now() + RESOLVE_TIME)?;
    found.first().copied().ok_or_else(|| refused(text, "the host has no address"))
}

/// Returns the addresses of `HOST:PORT`.
fn find(env: &Arc<dyn Env>, text: &str, place: &str, until: Time) -> Result<Vec<SocketAddr>, CallFailed> {
    let (host, port) = place.rsplit_once(':').ok_or_else(|| refused(text, "it names no port"))?;
    let port = port.parse().map_err(|_| refused(text, "its port is no number up to 65535"))?;
    resolve(env, host, port, until).map_err(|why| {
        let detail = format!("{text}: {}", why.detail());
        why.because(detail)
    })
}

/// Returns until when a connection that is begun now may take, if it may take `connecting`: the deadline of
/// the call holds too that this thread serves.
pub(crate) fn connected_by(env: &dyn Env, connecting: Duration) -> Time {
    let left = farcall::context().remaining();
    env.now() + left.map_or(connecting, |left| left.min(connecting))
}

/// Returns until when the first of these addresses may be tried: for its share of the time until `until`.
pub(crate) fn share(env: &dyn Env, until: Time, untried: usize) -> Time {
    let now = env.now();
    now + until.since(now) / u32::try_from(untried).unwrap_or(u32::MAX).max(1)
}

fn refused(text: &str, why: &str) -> CallFailed {
    CallFailed::new(Kind::NoSuchName, Ran::No).because(format!("{text}: {why}"))
}
