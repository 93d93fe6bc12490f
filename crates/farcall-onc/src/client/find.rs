//! Finds the server of a program, at an address or by asking a host's port mapper.

use farcall::env::ConnectOptions;
use farcall::stub::Program;
use farcall::{CallFailed, Kind, Ran};

use super::address::{Place, at_port};
use super::carrier::Address;
use super::rpcbind::Rpcbind;
use super::{Builder, Client, spelled};
use crate::portmap::PORT;

/// Finds the program's server, and returns a user-stub for it. The stub calls through a [`Client`] with the
/// default settings.
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
/// The errors of [`Builder::find`].
pub fn import<T: ?Sized + Program>(address: &str) -> Result<T::Client, CallFailed> {
    Ok(Client::builder().find(address, T::PROGRAM, T::VERSION)?.bind::<T>())
}

impl Builder {
    /// Returns a client of the server that has a program. If `address` has no port (`tcp://HOST`,
    /// `udp://HOST`, or just `HOST`), asks the host's port mapper for the port. If `address` names no
    /// network, TCP is tried before UDP. `HOST:PORT` means TCP. A host is a name or an address: `::1`, and
    /// with a port `[::1]:2049`.
    ///
    /// # Errors
    /// If the host has no port mapper, or its port mapper does not know the program. Otherwise the errors of
    /// [`Builder::connect`].
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
        let (mut failed, until) = (None, self.connected_by());
        for (untried, stream) in (1..=networks.len()).rev().zip(networks) {
            match self.lasting(until, untried).find_over(host, *stream, program, version) {
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
        let socket = ConnectOptions { reserved_port: false, ..self.socket };
        let (env, connecting, until) = (self.env.clone(), self.connecting, self.connected_by());
        let plain = Builder { env, socket, connecting, ..Builder::default() };
        let plain = plain.patience(self.settings.patience);
        let rpcbind = Rpcbind::at(&plain, &format!("{network}://{mapper}"))?.until(until);
        // Only the port mapper was asked, whatever became of that.
        let found = rpcbind.find(program, version, stream).map_err(|why| why.but_ran(Ran::No))?;
        match found {
            Some(found) if stream => self.lasting(until, 1).connect_to(Address::Tcp(found)).map(Some),
            Some(found) => self.lasting(until, 1).connect_to(Address::Udp(found)).map(Some),
            None => Ok(None),
        }
    }
}
