//! What people write for a server: an address, or a host of which the port mapper is asked.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use farcall::stub::Program;
use farcall::{CallFailed, Kind, Ran};

use super::carrier::Address;
use super::{Builder, Client, spelled};
use crate::rpcbind::{PORT, Rpcbind};

/// The user-stub of a program, by a client with the default settings.
///
/// ```no_run
/// # #[farcall::interface(program = 0x2000_0001, version = 1)]
/// # pub trait Calculator { fn twice(&self, number: u32) -> farcall::Result<u32>; }
/// # fn main() -> farcall::Result<()> {
/// let calculator = farcall_onc::import::<dyn Calculator>("10.0.0.7")?;
/// assert_eq!(calculator.twice(21)?, 42);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Builder::find`].
pub fn import<T: ?Sized + Program>(address: &str) -> Result<T::Client, CallFailed> {
    Ok(Client::builder().find(address, T::PROGRAM, T::VERSION)?.bind::<T>())
}

impl Builder {
    /// A client of the server that has a program. If `address` has no port (`tcp://HOST`, `udp://HOST`, or just `HOST`),
    /// the host's port mapper is asked for it; where the network is not named, for TCP before UDP. `HOST:PORT` is one of
    /// TCP. A host is a name or an address: `::1`, and with a port `[::1]:2049`.
    ///
    /// # Errors
    /// If the host has no port mapper or that does not know the program, else as [`Builder::connect`].
    pub fn find(&self, address: &str, program: u32, version: u32) -> Result<Client, CallFailed> {
        let (networks, place) = match address.split_once("://") {
            Some(("tcp", place)) => (&[true][..], place),
            Some(("udp", place)) => (&[false][..], place),
            Some(_) => return self.connect(address),
            None if address.starts_with("unix:") => return self.connect(address),
            None => (&[true, false][..], address),
        };
        let Place { host, port: None } = Place::of(place) else {
            return if place == address {
                self.connect(&format!("tcp://{place}"))
            } else {
                self.connect(address)
            };
        };
        let mut failed = None;
        for stream in networks {
            match self.find_over(host, *stream, program, version) {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => {}
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.unwrap_or_else(|| {
            let why = format!("the port mapper of {host} does not know {}", spelled(program, version));
            CallFailed::new(Kind::NotExported, Ran::No).because(why)
        }))
    }

    fn find_over(
        &self,
        host: &str,
        stream: bool,
        program: u32,
        version: u32,
    ) -> Result<Option<Client>, CallFailed> {
        let network = if stream { "tcp" } else { "udp" };
        let mapper = at_port(host, self.mapper_port.unwrap_or(PORT));
        let plain = Builder { spin: self.spin, connecting: self.connecting, ..Builder::default() };
        let plain = plain.patience(self.settings.patience);
        let rpcbind = Rpcbind::at(&plain, &format!("{network}://{mapper}"))?;
        match rpcbind.find(program, version, stream)? {
            Some(found) if stream => self.connect_to(Address::Tcp(found)).map(Some),
            Some(found) => self.connect_to(Address::Udp(found)).map(Some),
            None => Ok(None),
        }
    }
}

/// A host and perhaps a port, as people write them.
struct Place<'a> {
    /// Without the brackets that an address of IPv6 has before a port.
    host: &'a str,
    port: Option<&'a str>,
}

impl Place<'_> {
    /// `[HOST]:PORT`, `[HOST]`, `HOST:PORT` or `HOST`; of more colons than one and no brackets, an address of IPv6.
    fn of(text: &str) -> Place<'_> {
        if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            return Place { host, port: rest.strip_prefix(':') };
        }
        match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => Place { host, port: Some(port) },
            _ => Place { host: text, port: None },
        }
    }
}

/// A host as addresses have it that end in a port: this one, unless it names one itself.
pub(crate) fn at_port(text: &str, port: u16) -> String {
    match Place::of(text) {
        Place { port: Some(_), .. } => text.to_owned(),
        Place { host, .. } if host.contains(':') => format!("[{host}]:{port}"),
        Place { host, .. } => format!("{host}:{port}"),
    }
}

/// What an address that says everything says.
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

/// Where a host's port is. The interface of a link-local address (`fe80::1%eth0`) is part of it.
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
