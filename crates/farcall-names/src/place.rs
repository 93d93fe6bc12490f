//! Opens the registry that a setting names.

use std::sync::Arc;

use crate::{File, Memory, PlaceError, Registry, StaticFile};

/// Opens the registry at a place, as `FARCALL_REGISTRY` names it: `memory`, a directory,
/// `etcd://HOST[:PORT][,HOST…][/PREFIX]` (feature `etcd`), or one that can only be read: `file:///PATH`
/// ([`StaticFile`]), or `dns://DOMAIN[?server=IP[:PORT],…]` (feature `dns`). `setting` looks up further
/// settings by their names: `FARCALL_ETCD_USER`, `FARCALL_ETCD_PASSWORD` and `FARCALL_DNS_SERVER`.
///
/// Nothing is asked before the first use of the registry.
///
/// ```
/// let registry = farcall_names::open("/tmp/names", |setting| std::env::var(setting).ok())?;
/// assert!(farcall_names::open("nfs://host", |_| None).is_err());
/// # Ok::<(), farcall_names::PlaceError>(())
/// ```
///
/// # Errors
/// If the place is written wrongly, or is of a kind that this build does not have.
pub fn open(
    place: &str,
    setting: impl Fn(&'static str) -> Option<String>,
) -> Result<Arc<dyn Registry>, PlaceError> {
    match place.split_once("://") {
        None if place == "memory" => Ok(Arc::new(Memory::new())),
        None => Ok(Arc::new(File::at(place))),
        Some(("etcd", _)) => etcd(place, setting),
        Some(("dns", _)) => dns(place, setting),
        Some(("file", path)) => static_file(place, path),
        Some((scheme, _)) => Err(PlaceError {
            place: place.to_owned(),
            why: format!(
                "no registry has the scheme {scheme:?}; write memory, a directory, file://…, dns://… or etcd://…"
            ),
        }),
    }
}

fn static_file(place: &str, path: &str) -> Result<Arc<dyn Registry>, PlaceError> {
    if !path.starts_with('/') {
        let why = "a third slash is missing before the path, as in file:///etc/farcall/names";
        return Err(PlaceError { place: place.to_owned(), why: why.to_owned() });
    }
    Ok(Arc::new(StaticFile::at(path)))
}

#[cfg(feature = "etcd")]
fn etcd(
    place: &str,
    setting: impl Fn(&'static str) -> Option<String>,
) -> Result<Arc<dyn Registry>, PlaceError> {
    let builder = crate::Etcd::builder(place)?;
    let builder = match (setting("FARCALL_ETCD_USER"), setting("FARCALL_ETCD_PASSWORD")) {
        (Some(user), Some(password)) => builder.user(user, password),
        (None, None) => builder,
        _ => {
            let why = "FARCALL_ETCD_USER and FARCALL_ETCD_PASSWORD go together, and one of them is not set";
            return Err(PlaceError { place: place.to_owned(), why: why.to_owned() });
        }
    };
    Ok(Arc::new(builder.build()))
}

#[cfg(not(feature = "etcd"))]
fn etcd(place: &str, _: impl Fn(&'static str) -> Option<String>) -> Result<Arc<dyn Registry>, PlaceError> {
    let why = "this build has no etcd (the feature `etcd`)";
    Err(PlaceError { place: place.to_owned(), why: why.to_owned() })
}

#[cfg(feature = "dns")]
fn dns(
    place: &str,
    setting: impl Fn(&'static str) -> Option<String>,
) -> Result<Arc<dyn Registry>, PlaceError> {
    let servers = setting("FARCALL_DNS_SERVER").filter(|_| !place.contains('?'));
    let place = servers.map_or_else(|| place.to_owned(), |servers| format!("{place}?server={servers}"));
    Ok(Arc::new(crate::Dns::at(&place)?))
}

#[cfg(not(feature = "dns"))]
fn dns(place: &str, _: impl Fn(&'static str) -> Option<String>) -> Result<Arc<dyn Registry>, PlaceError> {
    let why = "this build has no DNS (the feature `dns`)";
    Err(PlaceError { place: place.to_owned(), why: why.to_owned() })
}
