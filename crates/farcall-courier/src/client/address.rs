//! Parses the text that names a server.

use std::io;
use std::path::Path;

use farcall::env::{Address, Env};

/// Returns the addresses that `tcp://HOST:PORT` or `unix:PATH` names.
pub(crate) fn addresses(env: &dyn Env, text: &str) -> io::Result<Vec<Address>> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    let Some(place) = text.strip_prefix("tcp://") else {
        return Err(invalid("an address is tcp://HOST:PORT or unix:PATH"));
    };
    // An address is no name, which only a resolver knows.
    if let Ok(address) = place.parse() {
        return Ok(vec![Address::Tcp(address)]);
    }
    let Some((host, port)) = place.rsplit_once(':') else { return Err(invalid("it names no port")) };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().map_err(|_| invalid("its port is no number up to 65535"))?;
    let found = env.resolve(host, port)?;
    Ok(found.into_iter().map(Address::Tcp).collect())
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
