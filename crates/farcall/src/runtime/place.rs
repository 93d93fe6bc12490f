//! What must be resolved before a name can be bound: a host or a service.

use std::fmt;

use farcall_names::{Host, Label, Name};

/// A host with a port, or a service, whose SRV records have hosts and ports.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Host(Host, u16),
    Service(Host),
}

impl Place {
    /// Returns the place in a name, with the type and the instance. `None` if nothing must be resolved.
    pub(super) fn in_name(name: &Name) -> Option<(Place, &Label, Option<&Label>)> {
        match name {
            Name::AtHost { host, port, type_name, instance } => {
                Some((Place::Host(host.clone(), *port), type_name, instance.as_ref()))
            }
            Name::AtService { service, type_name, instance } => {
                Some((Place::Service(service.clone()), type_name, instance.as_ref()))
            }
            _ => None,
        }
    }

    /// Returns the name of the host or the service.
    pub(super) fn host(&self) -> &Host {
        match self {
            Place::Host(host, _) | Place::Service(host) => host,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host(host, _) => write!(f, "the host {host}"),
            Place::Service(service) => write!(f, "the service {service}"),
        }
    }
}
