//! What people write for a server: an address, or a host of which the port mapper is asked.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use farcall::stub::Program;
use farcall::{CallFailed, Kind, Ran};

use super::carrier::Address;
use super::{Builder, Client};
use crate::rpcbind::query::at_port;
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
    /// the host's port mapper is asked for it; where the network is not named, for TCP before UDP.
    ///
    /// # Errors
    /// If the host has no port mapper or that does not know the program, else as [`Builder::connect`].
    pub fn find(&self, address: &str, program: u32, version: u32) -> Result<Client, CallFailed> {
        let (networks, host) = match address.split_once("://") {
            _ if is_whole(address) => return self.connect(address),
            Some(("tcp", host)) => (&[true][..], host),
            Some(("udp", host)) => (&[false][..], host),
            Some(_) => return self.connect(address),
            None => (&[true, false][..], address),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut failed = None;
        for stream in networks {
            match self.find_over(host, *stream, program, version) {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => {}
                Err(why) => failed = Some(why),
            }
        }
        Err(failed.unwrap_or_else(|| {
            let why = format!("the port mapper of {host} does not know program {program}, version {version}");
            CallFailed::new(Kind::NotExported, Ran::No).because(why)
        }))
    }

    fn find_over(&self, host: &str, stream: bool, program: u32, version: u32) -> Result<Option<Client>, CallFailed> {
        let network = if stream { "tcp" } else { "udp" };
        let mapper = at_port(host, self.mapper_port.unwrap_or(PORT));
        let plain = Builder { spin: self.spin, connecting: self.connecting, ..Builder::default() };
        let rpcbind = Rpcbind::at(&plain, &format!("{network}://{mapper}"))?;
        match rpcbind.find(program, version, stream)? {
            Some(found) if stream => self.connect_to(Address::Tcp(found)).map(Some),
            Some(found) => self.connect_to(Address::Udp(found)).map(Some),
            None => Ok(None),
        }
    }
}

/// Whether an address says everything.
fn is_whole(address: &str) -> bool {
    let Some((_, host)) = address.split_once("://") else { return address.starts_with("unix:") };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.contains(':') && bare.parse::<IpAddr>().is_err()
}

/// What an address that says everything says.
pub(super) fn addresses(address: &str) -> io::Result<Vec<Address>> {
    if let Some(path) = address.strip_prefix("unix:") {
        return Ok(vec![Address::Unix(Path::new(path.strip_prefix("//").unwrap_or(path)).into())]);
    }
    let all = |host: &str, to: fn(SocketAddr) -> Address| Ok(host.to_socket_addrs()?.map(to).collect());
    match address.split_once("://") {
        Some(("tcp", host)) => all(host, Address::Tcp),
        Some(("udp", host)) => all(host, Address::Udp),
        _ => {
            let why = "an address is tcp://HOST:PORT, udp://HOST:PORT or unix:PATH";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}
