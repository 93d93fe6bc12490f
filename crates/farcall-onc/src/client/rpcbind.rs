//! The client of a host's port mapper (rpcbind). It uses the newest of the versions 4, 3 and 2 that the port
//! mapper has.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use farcall::env::Time;
use farcall::{CallFailed, Kind, Ran};

use super::address::at_port;
use super::carrier::Address;
use super::{Builder, Client, spelled};
use crate::portmap::address::{from_universal, netid, to_universal};
use crate::portmap::protocol::{
    AddressEntry, Mapping, Portmap, PortmapClient, Rpcb, Rpcbind4, Rpcbind4Client, TCP, UDP,
};
use crate::portmap::{PORT, PROGRAM, SOCKET};

/// The port mapper of a host.
///
/// ```no_run
/// use farcall_onc::rpcbind::Rpcbind;
///
/// # fn main() -> farcall::Result<()> {
/// let rpcbind = Rpcbind::of("10.0.0.7")?;
/// for entry in rpcbind.entries()? {
///     println!("{} {} {} {}", entry.program, entry.version, entry.netid, entry.address);
/// }
/// println!("NFS over TCP is at {:?}", rpcbind.find(100_003, 3, true)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Rpcbind {
    client: Client,
    /// The port mapper's address; `None` if it is reached by a Unix socket.
    place: Option<SocketAddr>,
    stream: bool,
    /// The newest version to try: the port mapper has reported that it lacks the newer ones.
    newest: Arc<AtomicU32>,
    /// Until when all answers must have come, if they must.
    until: Option<Time>,
}

/// A version of the port mapper's protocol.
enum Version {
    /// Version 4, or version 3, which has only the first of version 4's procedures.
    Rpcbind(Rpcbind4Client, u32),
    Two(PortmapClient),
}

impl Rpcbind {
    /// Connects to the port mapper of a host, over TCP or, if that fails, over UDP. The port is 111 unless
    /// `HOST:PORT` names another.
    ///
    /// # Errors
    /// If there is no such host, or it has no port mapper.
    pub fn of(host: &str) -> Result<Rpcbind, CallFailed> {
        Rpcbind::with(&Client::builder(), host)
    }

    /// Connects to the port mapper of a host with these settings of the client.
    ///
    /// # Errors
    /// If there is no such host, or it has no port mapper.
    pub fn with(settings: &Builder, host: &str) -> Result<Rpcbind, CallFailed> {
        let (until, place) = (settings.connected_by(), at_port(host, PORT));
        let at = |network, untried| {
            Rpcbind::at(&settings.lasting(until, untried), &format!("{network}://{place}"))
        };
        at("tcp", 2).or_else(|_| {
            let rpcbind = at("udp", 1)?;
            // A socket of UDP is made although nobody receives at the other end.
            rpcbind.client.patient_until(until).check_null(PROGRAM, 2)?;
            Ok(rpcbind)
        })
    }

    /// Waits for answers until this time at most.
    pub(super) fn until(self, until: Time) -> Rpcbind {
        Rpcbind { until: Some(until), ..self }
    }

    /// Connects to this host's port mapper, by its Unix socket or, if that fails, at port 111. Programs can
    /// register only at their own host's port mapper, and at port 111 only from a port below 1024. A process
    /// that may use none can only ask.
    ///
    /// # Errors
    /// If this host has no port mapper.
    pub fn local() -> Result<Rpcbind, CallFailed> {
        let settings = Client::builder();
        Rpcbind::at(&settings, &format!("unix:{SOCKET}"))
            .or_else(|_| Rpcbind::with(&settings.clone().reserved_port(), "127.0.0.1"))
            .or_else(|_| Rpcbind::with(&settings, "127.0.0.1"))
    }

    /// Connects to the port mapper at an address, such as `udp://10.0.0.7:111`, with these settings.
    ///
    /// # Errors
    /// The errors of [`Builder::connect`].
    pub fn at(settings: &Builder, address: &str) -> Result<Rpcbind, CallFailed> {
        // A question to a port mapper may run twice, so one refused datagram is an answer, as a refused
        // connection is.
        let client = Builder { refused_tries: 1, ..settings.clone() }.connect(address)?;
        let place = match client.server() {
            Some(Address::Tcp(address) | Address::Udp(address)) => Some(*address),
            Some(Address::Unix(_)) | None => None,
        };
        let stream = !matches!(client.server(), Some(Address::Udp(_)));
        Ok(Rpcbind { client, place, stream, newest: Arc::new(AtomicU32::new(4)), until: None })
    }

    /// Makes the client use no newer version of the protocol than this: 4, 3 or 2.
    #[must_use]
    pub fn limited_to(self, newest: u32) -> Rpcbind {
        Rpcbind { newest: Arc::new(AtomicU32::new(newest)), ..self }
    }

    /// Returns the address at which a program is called, over TCP if `stream` and over UDP otherwise. If the
    /// host has the program only in another version, this may be that version's address; a call there fails
    /// and names the versions that the server has.
    ///
    /// # Errors
    /// If the host has no port mapper.
    pub fn find(&self, program: u32, version: u32, stream: bool) -> Result<Option<SocketAddr>, CallFailed> {
        let place = self.place.unwrap_or((Ipv4Addr::LOCALHOST, 0).into());
        let netid = netid(stream, place);
        let wanted = Rpcb { program, version, netid: netid.into(), ..Rpcb::default() };
        // GETADDR returns an address on the network by which the port mapper is asked (RFC 1833 section
        // 2.2.1).
        let same = self.place.is_some() && stream == self.stream;
        let text = self.ask(|rpcbind| match rpcbind {
            Version::Rpcbind(rpcbind, _) if same => rpcbind.get_address(wanted.clone()),
            Version::Rpcbind(rpcbind, 4) if self.place.is_some() => {
                let all = rpcbind.get_address_list(wanted.clone())?.all;
                Ok(all
                    .into_iter()
                    .find(|entry| entry.netid == netid)
                    .map(|entry| entry.address)
                    .unwrap_or_default())
            }
            Version::Rpcbind(rpcbind, _) => Ok(among(rpcbind.dump()?.all, &wanted)),
            Version::Two(portmap) => {
                let protocol = if stream { TCP } else { UDP };
                let port = portmap.get_port(Mapping { program, version, protocol, port: 0 })?;
                Ok(port_as_text(port))
            }
        })?;
        // Only the port is used, because the port mapper may know its host by an address that clients cannot
        // reach.
        Ok(from_universal(&text).filter(|found| found.port() != 0).map(|found| {
            let mut place = place;
            place.set_port(found.port());
            place
        }))
    }

    /// Returns all addresses of a program's version.
    ///
    /// # Errors
    /// If the host has no port mapper.
    pub fn addresses(&self, program: u32, version: u32) -> Result<Vec<AddressEntry>, CallFailed> {
        let wanted = Rpcb { program, version, ..Rpcb::default() };
        // GETADDRLIST returns the addresses of the address family by which the port mapper is asked.
        let listed = self.ask(|rpcbind| match rpcbind {
            Version::Rpcbind(rpcbind, 4) if self.place.is_some() => {
                rpcbind.get_address_list(wanted.clone()).map(|list| Some(list.all))
            }
            Version::Rpcbind(..) | Version::Two(_) => Ok(None),
        })?;
        if let Some(listed) = listed {
            return Ok(listed);
        }
        let all = self.entries()?.into_iter();
        Ok(all.filter(|entry| entry.program == program && entry.version == version).map(described).collect())
    }

    /// Returns all registered addresses. If the port mapper speaks only version 2, they have no owners.
    ///
    /// # Errors
    /// If the host has no port mapper.
    pub fn entries(&self) -> Result<Vec<Rpcb>, CallFailed> {
        self.ask(|rpcbind| match rpcbind {
            Version::Rpcbind(rpcbind, _) => Ok(rpcbind.dump()?.all),
            Version::Two(portmap) => Ok(portmap.dump()?.all.into_iter().filter_map(as_entry).collect()),
        })
    }

    /// Registers a program at an address of this host. Returns false if it is registered at another address.
    ///
    /// # Errors
    /// If the host has no port mapper.
    pub fn set(
        &self,
        program: u32,
        version: u32,
        stream: bool,
        address: SocketAddr,
    ) -> Result<bool, CallFailed> {
        let owner = rustix::process::geteuid().as_raw().to_string();
        let netid = netid(stream, address).into();
        let entry = Rpcb { program, version, netid, address: to_universal(address), owner };
        let protocol = if stream { TCP } else { UDP };
        let mapping = Mapping { program, version, protocol, port: address.port().into() };
        self.ask(|rpcbind| match rpcbind {
            Version::Rpcbind(rpcbind, _) => rpcbind.set(entry.clone()),
            Version::Two(portmap) => portmap.set(mapping),
        })
    }

    /// Removes a program's version from all networks. Returns false if it is not registered, or if this
    /// process may not remove it.
    ///
    /// # Errors
    /// If the host has no port mapper.
    pub fn unset(&self, program: u32, version: u32) -> Result<bool, CallFailed> {
        let owner = rustix::process::geteuid().as_raw().to_string();
        let entry = Rpcb { program, version, owner, ..Rpcb::default() };
        self.ask(|rpcbind| match rpcbind {
            Version::Rpcbind(rpcbind, _) => rpcbind.unset(entry.clone()),
            Version::Two(portmap) => portmap.unset(Mapping { program, version, protocol: 0, port: 0 }),
        })
    }

    /// Registers a program's version at these addresses. They replace the addresses that were registered
    /// before. The registration ends when the returned value is dropped.
    ///
    /// # Errors
    /// If the port mapper refuses the registration, or the host has no port mapper.
    pub fn register(
        &self,
        program: u32,
        version: u32,
        addresses: &[(bool, SocketAddr)],
    ) -> Result<Registration, CallFailed> {
        self.unset(program, version)?;
        let registration = Registration { rpcbind: self.clone(), program, version };
        for (stream, address) in addresses {
            if !self.set(program, version, *stream, *address)? {
                let (mapper, program) = (self.client.address(), spelled(program, version));
                let why = format!("{mapper} does not register {program} at {address}");
                return Err(CallFailed::new(Kind::NotPermitted, Ran::Yes).because(why));
            }
        }
        Ok(registration)
    }

    /// Calls `ask` with the newest version that the port mapper has. Tries an older version if the port
    /// mapper reports that it lacks the newer version or the procedure.
    fn ask<T>(&self, ask: impl Fn(&Version) -> farcall::Result<T>) -> Result<T, CallFailed> {
        loop {
            let newest = self.newest.load(Ordering::Relaxed);
            let client = match self.until {
                Some(until) => self.client.patient_until(until),
                None => self.client.clone(),
            };
            let version = match newest {
                3 | 4 => Version::Rpcbind(client.channel("Rpcbind", PROGRAM, newest).into(), newest),
                _ => Version::Two(client.bind::<dyn Portmap>()),
            };
            let why = match ask(&version) {
                Ok(answer) => return Ok(answer),
                Err(why) => CallFailed::from(why),
            };
            if !matches!(why.kind(), Kind::Mismatch | Kind::NoSuchProcedure) || newest <= 2 {
                return Err(why);
            }
            self.newest.store(newest - 1, Ordering::Relaxed);
        }
    }
}

/// The registration of a program's version. It ends when this is dropped.
#[derive(Debug)]
pub struct Registration {
    rpcbind: Rpcbind,
    program: u32,
    version: u32,
}

impl Registration {
    /// Ends the registration, and waits for the port mapper until this time at most. Sends nothing if that
    /// time has passed.
    pub(crate) fn end(mut self, until: Time) {
        self.rpcbind.until = Some(until);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // An error is ignored: if the port mapper is gone, there is nothing to remove.
        let _ = self.rpcbind.unset(self.program, self.version);
    }
}

impl fmt::Display for Rpcbind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpcbind at {}", self.client.address())
    }
}

/// Returns the address that is registered for a program's version on a network, or an empty text if there is
/// none.
fn among(all: Vec<Rpcb>, wanted: &Rpcb) -> String {
    let key = |entry: &Rpcb| (entry.program, entry.version, entry.netid.clone());
    all.into_iter().find(|entry| key(entry) == key(wanted)).map(|entry| entry.address).unwrap_or_default()
}

/// Returns, in the form of a universal address, the port that a port mapper of version 2 names. The host in
/// it is left open.
fn port_as_text(port: u32) -> String {
    let port = u16::try_from(port).unwrap_or(0);
    to_universal(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
}

fn as_entry(mapping: Mapping) -> Option<Rpcb> {
    let netid = match mapping.protocol {
        TCP => "tcp",
        UDP => "udp",
        _ => return None,
    };
    let Mapping { program, version, port, .. } = mapping;
    Some(Rpcb { program, version, netid: netid.into(), address: port_as_text(port), owner: String::new() })
}

/// Returns the entry by which version 4 describes an address.
fn described(entry: Rpcb) -> AddressEntry {
    let Rpcb { netid, address, .. } = entry;
    let (family, protocol) = match netid.as_str() {
        "udp" | "tcp" => ("inet", &netid[..]),
        "udp6" => ("inet6", "udp"),
        "tcp6" => ("inet6", "tcp"),
        _ => ("loopback", "-"),
    };
    let semantics = if protocol == "udp" { 1 } else { 3 };
    AddressEntry { address, semantics, family: family.into(), protocol: protocol.into(), netid }
}
