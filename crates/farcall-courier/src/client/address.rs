//! Parses the text that names a server.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use farcall::env::{Address, Env};
use farcall::{CallFailed, Kind, Ran};

/// Returns the addresses that `tcp://HOST:PORT` or `unix:PATH` names.
pub(crate) fn addresses(env: &dyn Env, text: &str) -> io::Result<Vec<Address>> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    let Some(place) = text.strip_prefix("tcp://") else {
        return Err(invalid("an address is tcp://HOST:PORT or unix:PATH"));
    };
    Ok(resolve(env, place)?.into_iter().map(Address::Tcp).collect())
}

/// Returns the address that `udp://HOST:PORT` names. If the host has several it is the first, because UDP
/// cannot tell which of them answers.
///
/// # Errors
/// The text is no such address, or the host is unknown.
pub(crate) fn udp_address(env: &dyn Env, text: &str) -> Result<SocketAddr, CallFailed> {
    let refused = |why: String| CallFailed::new(Kind::NoSuchName, Ran::No).because(why);
    let Some(place) = text.strip_prefix("udp://") else {
        return Err(refused(format!("{text}: an address is udp://HOST:PORT")));
    };
    let found = resolve(env, place).map_err(|why| refused(format!("{text}: {why}")))?;
    found.first().copied().ok_or_else(|| refused(text.to_owned()))
}

/// Returns the addresses of `HOST:PORT`.
fn resolve(env: &dyn Env, place: &str) -> io::Result<Vec<SocketAddr>> {
    // An address is no name, which only a resolver knows.
    if let Ok(address) = place.parse() {
        return Ok(vec![address]);
    }
    let Some((host, port)) = place.rsplit_once(':') else { return Err(invalid("it names no port")) };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().map_err(|_| invalid("its port is no number up to 65535"))?;
    env.resolve(host, port)
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
