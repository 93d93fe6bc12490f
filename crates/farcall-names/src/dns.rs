//! A registry in DNS, which can only be read: SRV records (RFC 2782).

mod cache;
mod domain;
mod lookup;
mod message;
mod place;
mod reader;
mod resolver;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Entry, Error, Host, Label, Listing, PlaceError, Registration, Registry, Result};
use cache::Cache;
use lookup::Service;
use place::{Place, Servers};
use resolver::Resolver;

/// A registry in DNS, which can only be read: SRV records name the exporters of a type.
///
/// The instances of the type `Store` are the targets of `_store._udp.example.org`. The type is in lower case
/// there; a type that has a `.` or more than 62 letters is not in DNS. An instance is called as the first
/// part of the target's host: `ebbets.example.org` is `Store/ebbets`, or `Store/ebbets-7000` if several ports
/// of that host are targets. That name is made up, so the exporter is asked for the type alone
/// ([`Entry::by_type`]), and may export it under any name.
///
/// Of several priorities, only the targets with the lowest number count, as RFC 2782 demands: others are
/// found once no target of a lower number has an address. Weights do not count: a channel that balances calls
/// measures how fast each server answers.
///
/// An answer is kept until its time to live has ended (at least a second, at most an hour; if a name does not
/// exist, as long as its zone says, or 5 s). [`Registry::version`] never waits for DNS: if an answer has
/// ended, a thread asks anew. If DNS is away, the last answer stays. [`Registry::list`] has only what has
/// been asked for, because DNS cannot be listed.
///
/// A loopback or link-local address counts only for `localhost`, because DNS of others could else lead calls
/// to servers of the caller's own machine. `local-addresses` in the place lets every host have one.
///
/// Publishing and withdrawing fail with [`Error::NotPermitted`]. Clones share one cache.
///
/// ```no_run
/// use farcall_names::{Dns, Registry};
///
/// let registry = Dns::at("dns://example.org")?;
/// for entry in registry.instances(&"Store".parse()?)? {
///     println!("{} at {}", entry.name(), entry.address);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Dns(Arc<Shared>);

/// What clones share.
struct Shared {
    place: Place,
    cache: Arc<Cache>,
}

impl Dns {
    /// Returns the registry at `dns://DOMAIN[?server=IP[:PORT][,IP[:PORT]…]][&local-addresses]` (if servers
    /// are not written, `?local-addresses`). If no servers are written, those of `/etc/resolv.conf` are
    /// asked; of more than three, the first three. The port is 53 if none is written, and an IPv6 address
    /// with a port is written `[::1]:53`. Nothing is asked before the first use.
    ///
    /// # Errors
    /// If the place is not written like that.
    pub fn at(place: &str) -> std::result::Result<Dns, PlaceError> {
        let place: Place = place.parse()?;
        let resolver = Resolver::new(place.servers.clone());
        let (domain, accepts_local) = (place.domain.clone(), place.accepts_local);
        let look_up = move |type_name: &Label, within| match Service::of_type(type_name, &domain) {
            Some(service) => lookup::look_up(&resolver, &service, lookup::Terms { within, accepts_local }),
            None => Ok(lookup::Found::nothing()),
        };
        Ok(Dns(Arc::new(Shared { place, cache: Arc::new(Cache::new(look_up)) })))
    }

    fn refuse<T>(&self) -> Result<T> {
        let why = "it is read-only: change the SRV records of the domain".to_owned();
        Err(Error::NotPermitted { registry: self.0.place.to_string(), why })
    }
}

/// Returns the addresses of the targets of a service. Blocks for `within` at most, and for 5 s at most.
/// `accepts_local` lets every host have loopback and link-local addresses.
///
/// # Errors
/// A text that says why there are none.
pub(crate) fn resolve(
    service: &Host,
    within: Duration,
    servers: Option<&str>,
    accepts_local: bool,
) -> std::result::Result<Vec<SocketAddr>, String> {
    let servers = match servers {
        Some(servers) => servers.parse().map_err(|why| format!("the servers of DNS: {why}"))?,
        None => Servers::OfSystem,
    };
    let service = Service::named(service).ok_or("it is no service")?;
    let found = lookup::look_up(&Resolver::new(servers), &service, lookup::Terms { within, accepts_local })?;
    match found.unresolved.into_values().next() {
        Some(why) if found.entries.is_empty() => Err(why),
        _ => Ok(found.entries.iter().flat_map(Entry::sockets).collect()),
    }
}

/// Finds the instances of a type by messages of any bytes. For the fuzz target.
pub(crate) fn fuzz(messages: &[u8]) {
    lookup::fuzz(messages);
}

impl Registry for Dns {
    fn publish(&self, _: &Entry) -> Result<Registration> {
        self.refuse()
    }

    fn is_published_to(&self) -> bool {
        false
    }

    fn withdraw(&self, _: &Label, _: &Label) -> Result<bool> {
        self.refuse()
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.instances_within(type_name, Duration::MAX)
    }

    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        let unavailable = |why| Error::Unavailable { registry: self.0.place.to_string(), why };
        self.0.cache.instances(type_name, within).map_err(unavailable)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        self.lookup_within(type_name, instance, Duration::MAX)
    }

    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        let instances = self.instances_within(type_name, within)?;
        Ok(instances.into_iter().find(|entry| entry.instance == *instance))
    }

    fn keeps_deadlines(&self) -> bool {
        true
    }

    /// Returns the entries of the types that have been asked for, as far as they are known.
    fn list(&self) -> Result<Listing> {
        Ok(self.0.cache.list())
    }

    fn version(&self) -> Result<u64> {
        Ok(self.0.cache.version())
    }
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dns").field(&self.0.place.to_string()).finish()
    }
}
