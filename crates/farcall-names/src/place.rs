//! Opens the registry that a setting names.

use std::sync::Arc;

use crate::{File, Memory, PlaceError, Registry, StaticFile};

/// Opens the registry at a place, as `FARCALL_REGISTRY` names it: `memory`, a directory,
/// `etcd://HOST[:PORT][,HOST…][/PREFIX]` (feature `etcd`), `etcds://…` for TLS (feature `etcd-tls`), or one
/// that can only be read: `file:///PATH` ([`StaticFile`]), or
/// `dns://DOMAIN[?server=IP[:PORT],…][&local-addresses]` (feature `dns`). `setting` looks up further settings by their names: `FARCALL_ETCD_USER` and
/// `FARCALL_ETCD_PASSWORD`; for TLS the PEM files `FARCALL_ETCD_CA` (the authorities, needed),
/// `FARCALL_ETCD_CERT` and `FARCALL_ETCD_KEY` (this client's certificate and its private key); and
/// `FARCALL_DNS_SERVER` and `FARCALL_DNS_LOCAL_ADDRESSES`.
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
/// If the place is written wrongly, is of a kind that this build does not have, or a file for TLS cannot be
/// used.
pub fn open(
    place: &str,
    setting: impl Fn(&'static str) -> Option<String>,
) -> Result<Arc<dyn Registry>, PlaceError> {
    match place.split_once("://") {
        None if place == "memory" => Ok(Arc::new(Memory::new())),
        None => Ok(Arc::new(File::at(place))),
        Some(("etcd" | "etcds", _)) => etcd(place, setting),
        Some(("dns", _)) => dns(place, setting),
        Some(("file", path)) => static_file(place, path),
        Some((scheme, _)) => Err(wrong(
            place,
            format!(
                "no registry has the scheme {scheme:?}; write memory, a directory, file://…, dns://… or etcd://…"
            ),
        )),
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
    let builder = match pair(place, &setting, "FARCALL_ETCD_USER", "FARCALL_ETCD_PASSWORD")? {
        Some((user, password)) => builder.user(user, password),
        None => builder,
    };
    Ok(Arc::new(with_tls(place, builder, &setting)?.build()))
}

/// Sets what TLS needs, if the place asks for TLS. Settings for TLS with a place that is without TLS are
/// refused, because whoever set them relies on TLS.
#[cfg(feature = "etcd")]
fn with_tls(
    place: &str,
    builder: crate::EtcdBuilder,
    setting: &impl Fn(&'static str) -> Option<String>,
) -> Result<crate::EtcdBuilder, PlaceError> {
    let authorities = setting("FARCALL_ETCD_CA");
    let certificate = pair(place, setting, "FARCALL_ETCD_CERT", "FARCALL_ETCD_KEY")?;
    if !place.starts_with("etcds:") {
        let name = match (&authorities, &certificate) {
            (Some(_), _) => "FARCALL_ETCD_CA",
            (None, Some(_)) => "FARCALL_ETCD_CERT",
            (None, None) => return Ok(builder),
        };
        return Err(wrong(place, format!("{name} is set, but the place is without TLS; write etcds://…")));
    }
    let why = "TLS needs FARCALL_ETCD_CA, a PEM file of the authorities to trust";
    let authorities = authorities.ok_or_else(|| wrong(place, why))?;
    secured(builder, &authorities, certificate).map_err(|why| wrong(place, why))
}

#[cfg(feature = "etcd-tls")]
fn secured(
    builder: crate::EtcdBuilder,
    authorities: &str,
    certificate: Option<(String, String)>,
) -> Result<crate::EtcdBuilder, String> {
    let about = |setting, why: crate::EtcdTlsError| format!("{setting}: {why}");
    let tls = crate::EtcdTls::trusting(authorities).map_err(|why| about("FARCALL_ETCD_CA", why))?;
    let tls = match certificate {
        Some((certificate, key)) => tls
            .certificate(certificate, key)
            .map_err(|why| about("FARCALL_ETCD_CERT and FARCALL_ETCD_KEY", why))?,
        None => tls,
    };
    builder.tls(tls).map_err(|why| why.why)
}

/// Without the feature no builder has a place with TLS.
#[cfg(all(feature = "etcd", not(feature = "etcd-tls")))]
fn secured(
    _: crate::EtcdBuilder,
    _: &str,
    _: Option<(String, String)>,
) -> Result<crate::EtcdBuilder, String> {
    Err("this build has no TLS to etcd (the feature `etcd-tls`)".to_owned())
}

/// Returns two settings that go together.
#[cfg(feature = "etcd")]
fn pair(
    place: &str,
    setting: &impl Fn(&'static str) -> Option<String>,
    first: &'static str,
    second: &'static str,
) -> Result<Option<(String, String)>, PlaceError> {
    match (setting(first), setting(second)) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        _ => Err(wrong(place, format!("{first} and {second} go together, and one of them is not set"))),
    }
}

#[cfg(not(feature = "etcd"))]
fn etcd(place: &str, _: impl Fn(&'static str) -> Option<String>) -> Result<Arc<dyn Registry>, PlaceError> {
    Err(wrong(place, "this build has no etcd (the feature `etcd`)"))
}

fn wrong(place: &str, why: impl Into<String>) -> PlaceError {
    PlaceError { place: place.to_owned(), why: why.into() }
}

#[cfg(feature = "dns")]
fn dns(
    place: &str,
    setting: impl Fn(&'static str) -> Option<String>,
) -> Result<Arc<dyn Registry>, PlaceError> {
    let servers = setting("FARCALL_DNS_SERVER").filter(|_| !place.contains("server="));
    let accepts_local = accepts_local(&setting).map_err(|why| wrong(place, why))?;
    let mut place = place.to_owned();
    let mut add = |word: &str| {
        place.push(if place.contains('?') { '&' } else { '?' });
        place.push_str(word);
    };
    servers.into_iter().for_each(|servers| add(&format!("server={servers}")));
    accepts_local.then(|| add("local-addresses"));
    Ok(Arc::new(crate::Dns::at(&place)?))
}

/// Returns whether the settings let every host in DNS have loopback and link-local addresses.
///
/// # Errors
/// If the setting is neither `1` nor `0` nor empty.
#[cfg(feature = "dns")]
pub(crate) fn accepts_local(setting: impl Fn(&'static str) -> Option<String>) -> Result<bool, String> {
    const NAME: &str = "FARCALL_DNS_LOCAL_ADDRESSES";
    match setting(NAME).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{NAME} is {other:?}; write 1 or 0")),
    }
}

#[cfg(not(feature = "dns"))]
fn dns(place: &str, _: impl Fn(&'static str) -> Option<String>) -> Result<Arc<dyn Registry>, PlaceError> {
    Err(wrong(place, "this build has no DNS (the feature `dns`)"))
}
