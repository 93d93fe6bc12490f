//! Servers that may move: a host's name may lead to another address later, and a port mapper to another port.
//! Whenever the client needs a new connection, it finds its server again.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farcall::env::{ConnectOptions, Time};
use farcall::resolve::resolve;
use farcall::stub::{InterfaceId, Procedure};
use farcall::{CallFailed, Kind, Never, Ran};

use super::address::addresses;
use super::carrier::{self, Address, Carrier, Dial, Plain};
use super::rpcbind::Rpcbind;
use super::{Builder, Client};
use crate::portmap::{PORT, PROGRAM};

/// Where a server is found.
#[derive(Clone, Debug)]
pub(super) enum Whereabouts {
    /// At a host's name and a port, such as `tcp://server.example:2049`.
    Named { address: String, stream: bool },
    /// Where the port mapper of a host says.
    Mapped(Mapped),
}

/// A program, and the host that has it. The host's port mapper knows its port.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) host: String,
    pub(super) stream: bool,
    pub(super) program: u32,
    pub(super) version: u32,
}

/// Dials a server where it is found each time.
pub(super) struct Moving {
    builder: Builder,
    whereabouts: Whereabouts,
    /// Where the server was when the client was made.
    first: Address,
    /// Where it was found last. It is tried there if nobody can be asked.
    last: Mutex<Address>,
}

/// An address, and a carrier to the server there.
pub(super) type Reached = (Address, Box<dyn Carrier>);

/// The null procedure, which every program has, and which does nothing (RFC 5531 section 12).
static NULL: Procedure = Procedure {
    number: 0,
    name: "null",
    interface: InterfaceId::NONE,
    idempotent: true,
    blocking: false,
    uncancelled: false,
    exchanges: false,
    deadline: None,
};

impl Moving {
    pub(super) fn new(builder: &Builder, whereabouts: Whereabouts, first: Address) -> Moving {
        let last = Mutex::new(first.clone());
        Moving { builder: builder.clone(), whereabouts, first, last }
    }

    fn find(&self, until: Time) -> Result<Reached, CallFailed> {
        match &self.whereabouts {
            Whereabouts::Named { address, .. } => {
                let found = addresses(&self.builder.env, address, until)?;
                self.builder.reach(found, until)
            }
            Whereabouts::Mapped(mapped) => match self.builder.reach_mapped(mapped, until)? {
                Some(reached) => Ok(reached),
                None => Err(CallFailed::new(Kind::NotExported, Ran::No)),
            },
        }
    }

    fn is_stream(&self) -> bool {
        match &self.whereabouts {
            Whereabouts::Named { stream, .. } => *stream,
            Whereabouts::Mapped(mapped) => mapped.stream,
        }
    }
}

impl Dial for Moving {
    fn dial(&self, within: Option<Duration>) -> io::Result<Box<dyn Carrier>> {
        let now = self.builder.env.now();
        let time = within.map_or(self.builder.connecting, |within| within.min(self.builder.connecting));
        // Half of the time is for the last address, if the resolver or the port mapper is silent.
        let why = match self.find(now + time / 2) {
            Ok((address, carrier)) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = address;
                return Ok(carrier);
            }
            Err(why) => why,
        };
        let address = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.builder.reach(vec![address], now + time).map(|(_, carrier)| carrier).map_err(|_| {
            let is_late = why.kind() == Kind::Deadline;
            if is_late { io::ErrorKind::TimedOut.into() } else { io::Error::other(why) }
        })
    }

    fn is_datagrams(&self) -> bool {
        !self.is_stream()
    }

    fn address(&self) -> String {
        match &self.whereabouts {
            Whereabouts::Named { address, .. } => address.clone(),
            Whereabouts::Mapped(Mapped { host, stream, .. }) => {
                format!("{}://{host}", if *stream { "tcp" } else { "udp" })
            }
        }
    }

    fn server(&self) -> Option<&Address> {
        Some(&self.first)
    }

    fn may_move(&self) -> bool {
        true
    }
}

impl Builder {
    /// Connects to the first of these addresses where a server is, each of which gets a share of the time. A
    /// datagram reaches nobody for certain, so of several UDP addresses the first is taken whose server
    /// answers; or the first of all, if none does.
    pub(super) fn reach(&self, found: Vec<Address>, until: Time) -> Result<Reached, CallFailed> {
        let is_one_of_several = found.len() > 1;
        let mut failed = CallFailed::new(Kind::NoSuchName, Ran::No).because("the host has no address");
        for (untried, address) in (1..=found.len()).rev().zip(&found) {
            let share = self.lasting(until, untried);
            let is_datagrams = matches!(address, Address::Udp(_));
            let there = if is_datagrams && is_one_of_several { share.ask(address) } else { Ok(()) };
            match there.and_then(|()| share.carrier_to(address, is_one_of_several)) {
                Ok(carrier) => return Ok((address.clone(), carrier)),
                Err(why) => failed = why,
            }
        }
        match found.into_iter().next() {
            Some(address @ Address::Udp(_)) if is_one_of_several => {
                self.carrier_to(&address, false).map(|carrier| (address, carrier))
            }
            _ => Err(failed),
        }
    }

    /// Connects to the server of a program where its host's port mapper says. Returns `None` if the port
    /// mapper does not know the program.
    pub(super) fn reach_mapped(&self, mapped: &Mapped, until: Time) -> Result<Option<Reached>, CallFailed> {
        let Mapped { host, stream, program, version } = mapped;
        let whole = if *stream { Address::Tcp } else { Address::Udp };
        let mappers = resolve(&self.env, host, self.mapper_port.unwrap_or(PORT), until)?;
        let mut failed = CallFailed::new(Kind::NoSuchName, Ran::No).because(host.clone());
        for (untried, mapper) in (1..=mappers.len()).rev().zip(mappers) {
            let share = self.lasting(until, untried);
            let until = share.connected_by();
            // Only the port mapper is asked, whatever becomes of that.
            let found = Rpcbind::at(&share.plain(), &whole(mapper).to_string())
                .and_then(|rpcbind| rpcbind.until(until).find(*program, *version, *stream))
                .map_err(|why| why.but_ran(Ran::No));
            match found {
                Ok(Some(found)) => match self.reach(vec![whole(found)], until) {
                    Ok(reached) => return Ok(Some(reached)),
                    Err(why) => failed = why,
                },
                Ok(None) => return Ok(None),
                Err(why) => failed = why,
            }
        }
        Err(failed)
    }

    /// Connects a plain socket. Waits until the connection is made, if `settles`.
    fn carrier_to(&self, address: &Address, settles: bool) -> Result<Box<dyn Carrier>, CallFailed> {
        let refused = |why: io::Error| {
            CallFailed::new(Kind::Unreachable, Ran::No).because(format!("{address}: {why}")).caused_by(why)
        };
        let until = self.connected_by();
        let left = || until.since(self.env.now());
        if left().is_zero() {
            return Err(refused(io::ErrorKind::TimedOut.into()));
        }
        let plain = Plain { env: self.env.clone(), address: address.clone(), options: self.socket };
        let carrier = plain.dial(Some(left())).map_err(refused)?;
        if settles && !plain.is_datagrams() {
            carrier::settle(&*self.env, &*carrier, left()).map_err(refused)?;
        }
        Ok(carrier)
    }

    /// Checks that something answers calls at an address, by a call that every server understands.
    fn ask(&self, address: &Address) -> Result<(), CallFailed> {
        let client = self.plain().patience(Some(self.connecting)).connect_to(address.clone())?;
        client.check_null(PROGRAM, 2)
    }

    /// Returns settings for questions that the client asks on its own: without the user's credentials.
    pub(super) fn plain(&self) -> Builder {
        let socket = ConnectOptions { reserved_port: false, ..self.socket };
        let plain =
            Builder { env: self.env.clone(), socket, connecting: self.connecting, ..Builder::default() };
        plain.patience(self.settings.patience)
    }
}

impl Client {
    /// Checks that a server answers, by the null procedure of a program. It need not have the program.
    ///
    /// # Errors
    /// Nothing answers. Nothing of the user's ran.
    pub(super) fn check_null(&self, program: u32, version: u32) -> Result<(), CallFailed> {
        let answer = self.program(program, version).call::<(), Never>(&NULL, &|_| Ok(()));
        match answer.map_err(CallFailed::from) {
            Err(why) if matches!(why.kind(), Kind::Unreachable | Kind::Deadline | Kind::Local) => {
                Err(why.but_ran(Ran::No))
            }
            _ => Ok(()),
        }
    }
}
