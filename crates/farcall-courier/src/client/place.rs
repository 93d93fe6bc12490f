//! Where a server is: the text that names it, and the address at which it was found last.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use farcall::env::{Address, Env, Time};
use farcall::{CallFailed, Kind, Ran};

use super::address::{addresses, share, udp_address};
use super::connection::Fault;
use crate::link::Patience;

/// The place of a server. Each connection looks again where its host is, so that a server that has moved is
/// found.
pub(crate) struct Place {
    text: String,
    /// The address at which the server was found last.
    found: Mutex<Option<Address>>,
}

impl Place {
    /// Makes a place of `tcp://HOST:PORT`, `unix:PATH` or `udp://HOST:PORT`.
    pub(crate) fn new(text: &str) -> Place {
        Place { text: text.to_owned(), found: Mutex::default() }
    }

    /// Connects to the first address of the place that `connect` can connect to. Each gets its share of the
    /// time.
    ///
    /// # Errors
    /// The place is written wrongly, its host is unknown, or `connect` has failed at each address.
    pub(crate) fn connect<T>(
        &self,
        env: &Arc<dyn Env>,
        until: Time,
        patience: Patience<'_>,
        connect: impl Fn(&Address, Patience<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let all = self.addresses(addresses(env, &self.text, until))?;
        let why = format!("{}: the host has no address", self.text);
        let mut failed = Fault { kind: Kind::NoSuchName, ran: Ran::No, why };
        for (untried, address) in (1..=all.len()).rev().zip(all) {
            let until = Some(share(&**env, until, untried));
            match connect(&address, Patience { until, ..patience }) {
                Ok(connected) => {
                    self.note(address);
                    return Ok(connected);
                }
                Err(why) => failed = Fault { why: format!("{address}: {}", why.why), ..why },
            }
        }
        Err(failed)
    }

    /// Returns the address of the place, which is one of UDP.
    ///
    /// # Errors
    /// The place is written wrongly, or its host is unknown.
    pub(crate) fn udp(&self, env: &Arc<dyn Env>) -> Result<SocketAddr, Fault> {
        let found = udp_address(env, &self.text).map(|address| vec![Address::Udp(address)]);
        match self.addresses(found)?.pop() {
            Some(Address::Udp(address)) => {
                self.note(Address::Udp(address));
                Ok(address)
            }
            _ => Err(Fault { kind: Kind::NoSuchName, ran: Ran::No, why: self.text.clone() }),
        }
    }

    /// Returns the addresses that were found, or else the former one: a resolver may be away while the server
    /// is there.
    fn addresses(&self, found: Result<Vec<Address>, CallFailed>) -> Result<Vec<Address>, Fault> {
        found.or_else(|why| match self.last() {
            Some(former) if why.kind() != Kind::Deadline => Ok(vec![former]),
            _ => Err(Fault { kind: why.kind(), ran: Ran::No, why: why.detail().to_owned() }),
        })
    }

    fn last(&self) -> Option<Address> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, address: Address) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last() {
            Some(address) => address.fmt(f),
            None => f.write_str(&self.text),
        }
    }
}
