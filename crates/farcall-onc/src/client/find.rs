//! Finds the server of a program, at an address or by asking a host's port mapper.

use farcall::stub::Program;
use farcall::{CallFailed, Kind, Ran};

use super::address::Place;
use super::moving::{Mapped, Moving, Whereabouts};
use super::{Builder, Client, spelled};

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
    /// UDP is taken for an address that names no network only if the server answers there: a client of a dead
    /// server could not say that its calls did not run.
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
            let mapped = Mapped { host: host.to_owned(), stream: *stream, program, version };
            // A refused connection says that no call can run there. Datagrams must not make that uncertain.
            let checks = networks.len() > 1 && !stream;
            match self.lasting(until, untried).find_mapped(mapped, checks) {
                Ok(Some(client)) => return Ok(client),
                Ok(None) => {}
                Err(why) => failed = failed.or(Some(why)),
            }
        }
        Err(failed.unwrap_or_else(|| {
            let why = format!("the port mapper of {host} does not know {}", spelled(program, version));
            CallFailed::new(Kind::NotExported, Ran::No).because(why)
        }))
    }

    /// Returns a client of the server that a host's port mapper names; `None` if it knows none. `checks` says
    /// that the server must answer.
    fn find_mapped(&self, mapped: Mapped, checks: bool) -> Result<Option<Client>, CallFailed> {
        let until = self.connected_by();
        let Some((first, carrier)) = self.reach_mapped(&mapped, until)? else { return Ok(None) };
        let (program, version) = (mapped.program, mapped.version);
        if checks {
            let asking = self.lasting(until, 1).plain().connect_to(first.clone())?;
            asking.patient_until(until).check_null(program, version)?;
        }
        self.settle(Moving::new(self, Whereabouts::Mapped(mapped), first), carrier, until).map(Some)
    }
}
