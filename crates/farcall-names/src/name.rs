//! Parses the names that users write: type, instance, address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use farcall_base::canonical;

use crate::socket_address;

/// The maximum length of a [`Label`] in bytes.
pub const MAX_LABEL: usize = 128;

/// The maximum length of a type and an instance together, with the `/` between them, in bytes. An importer
/// sends both in one field, which has no more room.
pub const MAX_EXPORT: usize = 255;

/// The maximum length of a [`Name`] in bytes.
pub const MAX_NAME: usize = 512;

/// A name to bind to: a type, an instance of a type, or an address.
///
/// These are the three binding times of Birrell & Nelson 1984, section 2.3.
///
/// ```
/// use farcall_names::{Address, Name};
///
/// let Name::At { address: Address::Udp(socket), type_name, .. } = "udp://[::1]:7000/FileAccess/ebbets".parse()? else {
///     unreachable!()
/// };
/// assert_eq!((socket.port(), type_name.as_str()), (7000, "FileAccess"));
///
/// let wrong = "FileAccess/eb bets".parse::<Name>().unwrap_err();
/// assert_eq!(
///     wrong.to_string(),
///     "in the name \"FileAccess/eb bets\", at byte 13: ' ' may not stand in an instance; \
///      letters, digits, '.', '_' and '-' may"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Name {
    /// `FileAccess`: any instance of that type.
    Type(Label),
    /// `FileAccess/ebbets`: that instance.
    Instance {
        /// The type.
        type_name: Label,
        /// The instance.
        instance: Label,
    },
    /// `udp://10.0.0.7:7000/FileAccess`: the export at that address; no registry is asked.
    At {
        /// The address.
        address: Address,
        /// The type.
        type_name: Label,
        /// The instance, if the name has one; otherwise any instance at that address.
        instance: Option<Label>,
    },
    /// `udp://ebbets.example.org:7000/FileAccess`: the export at one of the addresses that the host has when
    /// the name is bound; no registry is asked.
    AtHost {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// The type.
        type_name: Label,
        /// The instance, if the name has one; otherwise any instance at that address.
        instance: Option<Label>,
    },
    /// `farcall://_store._udp.example.org/Store`: the export at one of the targets that these SRV records of
    /// DNS have when the name is bound; no registry is asked.
    AtService {
        /// The name of the SRV records: a service, the protocol `_udp`, and a domain.
        service: Host,
        /// The type.
        type_name: Label,
        /// The instance, if the name has one; otherwise any instance at that address.
        instance: Option<Label>,
    },
}

/// The address of an export and the carrier of its calls: a URL's scheme and authority.
///
/// Future carriers will be further variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// `udp://10.0.0.7:7000`.
    Udp(SocketAddr),
    /// `shm://127.0.0.1:7000`: the server at that address, on this machine, through shared memory.
    Shm(SocketAddr),
}

/// The name of a type or of an instance, known to be well-formed.
///
/// It has from 1 to [`MAX_LABEL`] bytes: ASCII letters, digits, `.`, `_` and `-`, the first one a letter, a
/// digit or `_`. Case matters. So a label needs no quotes in a URL, a path, a line of text or a database key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(Box<str>);

/// The name of a host, known to be well-formed (RFC 952, RFC 1123 section 2.1).
///
/// It has at most 253 bytes, and dots separate its parts. Each part has from 1 to 63 ASCII letters, digits,
/// `_` and `-`, and neither begins nor ends with `-`. The last part is not a number: a text that ends with a
/// number is, or was meant to be, an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(Box<str>);

/// An error in a name, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    name: Box<str>,
    at: usize,
    fault: Fault,
}

/// The kind of an error in a name. `part` says which part of the name has the error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The part is missing.
    Empty {
        /// The name of the part, such as `"a type"`.
        part: &'static str,
    },
    /// The part has more bytes than are allowed.
    TooLong {
        /// The name of the part, such as `"a type"`.
        part: &'static str,
        /// The most bytes that are allowed.
        limit: usize,
    },
    /// This character may not stand in the part.
    Character {
        /// The name of the part, such as `"a type"`.
        part: &'static str,
        /// The character.
        found: char,
    },
    /// This character may not begin the part.
    Start {
        /// The name of the part, such as `"a type"`.
        part: &'static str,
        /// The character.
        found: char,
    },
    /// Something follows the instance.
    TooManyParts,
    /// No carrier has this scheme.
    UnknownScheme(String),
    /// This scheme belongs to a carrier that this version does not have.
    ReservedScheme(&'static str),
    /// The scheme is not followed by `//`.
    NoSlashes,
    /// The address is not an IP address with a port, nor, where that is allowed, a host's name with a port.
    Address,
    /// The address has no port.
    NoPort,
    /// This machine has no network interface of the name that the address has.
    Interface,
    /// The port is 0, at which no server can be reached.
    PortZero,
    /// It is not the name of SRV records.
    Service,
}

/// The scheme of names that are bound by SRV records.
const SERVICE_SCHEME: &str = "farcall";

/// The schemes of future carriers. A name with one of them gets an error of its own.
const RESERVED: [&str; 2] = ["tcp", "inproc"];

/// A parsed part of a name, or the place and the kind of the error in it.
type Found<T> = Result<T, (usize, Fault)>;

/// A part of a name, with its place in bytes.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    at: usize,
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        name(text).map_err(|(at, fault)| NameError::new(text, at, fault))
    }
}

/// Parses a name: `label ["/" label]` or `address "/" label ["/" label]`.
fn name(text: &str) -> Found<Name> {
    if text.len() > MAX_NAME {
        return Err((MAX_NAME, Fault::TooLong { part: "a name", limit: MAX_NAME }));
    }
    let whole = Part { text, at: 0 };
    if !has_scheme(text) {
        let (type_name, instance) = interface(whole)?;
        return Ok(match instance {
            Some(instance) => Name::Instance { type_name, instance },
            None => Name::Type(type_name),
        });
    }
    if let (Part { text: SERVICE_SCHEME, .. }, Some(rest)) = whole.split(':') {
        return at_service(rest);
    }
    let (scheme, authority) = authority(whole)?;
    let (socket, rest) = authority.split('/');
    let place = place(scheme, text.starts_with("udp:"), socket)?;
    let (type_name, instance) = interface(rest.unwrap_or(socket.end()))?;
    Ok(match place {
        Place::Address(address) => Name::At { address, type_name, instance },
        Place::Host(host, port) => Name::AtHost { host, port, type_name, instance },
    })
}

/// Parses the part of a name after `farcall:`.
fn at_service(rest: Part<'_>) -> Found<Name> {
    let Some(text) = rest.text.strip_prefix("//") else {
        return Err((rest.at, Fault::NoSlashes));
    };
    let (service, rest) = Part { text, at: rest.at + 2 }.split('/');
    let is_service = |host: &Host| {
        let mut parts = host.as_str().split('.');
        let is_service = parts.next().is_some_and(|part| part.len() > 1 && part.starts_with('_'));
        let is_udp = parts.next().is_some_and(|part| part.eq_ignore_ascii_case("_udp"));
        is_service && is_udp && parts.next().is_some()
    };
    let Some(host) = Host::parse(service.text).filter(is_service) else {
        return Err((service.at, Fault::Service));
    };
    let (type_name, instance) = interface(rest.unwrap_or(service.end()))?;
    Ok(Name::AtService { service: host, type_name, instance })
}

/// Returns whether a name has a scheme. A colon before the first slash can only end a scheme, because labels
/// have none.
fn has_scheme(text: &str) -> bool {
    text.split('/').next().is_some_and(|first| first.contains(':'))
}

/// The constructor of the addresses with a scheme.
type Scheme = fn(SocketAddr) -> Address;

/// The address or host of a name.
enum Place {
    Address(Address),
    Host(Host, u16),
}

/// Parses an address. If `takes_host` is true, a host and a port are accepted too.
fn place(scheme: Scheme, takes_host: bool, part: Part<'_>) -> Found<Place> {
    match address_with_port(part) {
        Err((at, Fault::Address)) if takes_host => host_and_port(part).unwrap_or(Err((at, Fault::Address))),
        socket => socket.map(|socket| Place::Address(scheme(socket))),
    }
}

/// Parses a host and a port. Returns `None` if the text is not of that form. Returns an error if the port is
/// missing or 0.
fn host_and_port(part: Part<'_>) -> Option<Found<Place>> {
    let (host, port) = part.split(':');
    let host = Host::parse(host.text)?;
    let port = match port.map(|port| port.text) {
        None | Some("") => return Some(Err((part.end().at, Fault::NoPort))),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        Some(_) => return None,
    };
    Some(if port == 0 { Err((part.at, Fault::PortZero)) } else { Ok(Place::Host(host, port)) })
}

/// Returns the scheme, and the part after `://`.
fn authority(whole: Part<'_>) -> Found<(Scheme, Part<'_>)> {
    let (scheme, rest) = whole.split(':');
    if let Some(reserved) = RESERVED.iter().find(|s| **s == scheme.text) {
        return Err((scheme.at, Fault::ReservedScheme(reserved)));
    }
    let (address, rest): (Scheme, _) = match (scheme.text, rest) {
        ("udp", Some(rest)) => (Address::Udp, rest),
        ("shm", Some(rest)) => (Address::Shm, rest),
        _ => return Err((scheme.at, Fault::UnknownScheme(scheme.text.to_owned()))),
    };
    let Some(text) = rest.text.strip_prefix("//") else {
        return Err((rest.at, Fault::NoSlashes));
    };
    Ok((address, Part { text, at: rest.at + 2 }))
}

fn address_with_port(part: Part<'_>) -> Found<SocketAddr> {
    let at = part.at;
    match socket_address::socket_address(part.text) {
        Some(socket) if socket.port() == 0 => Err((at, Fault::PortZero)),
        Some(socket) => Ok(socket),
        None if part.text.is_empty() => Err((at, Fault::Empty { part: "an address" })),
        None if is_portless(part.text) => Err((part.end().at, Fault::NoPort)),
        None if names_interface(part.text) => Err((at, Fault::Interface)),
        None => Err((at, Fault::Address)),
    }
}

/// Returns whether a text with a port is an IPv6 address with the name of a network interface.
fn names_interface(text: &str) -> bool {
    let bare = text.strip_prefix('[').and_then(|text| text.split_once("]:"));
    bare.is_some_and(|(host, port)| port.parse::<u16>().is_ok() && socket_address::names_interface(host))
}

fn is_portless(text: &str) -> bool {
    let bare = text.strip_suffix(':').unwrap_or(text);
    let bracketed = bare.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    bare.parse::<IpAddr>().is_ok()
        || bracketed
            .is_some_and(|t| socket_address::socket_address_at(t, 1).is_some_and(|found| found.is_ipv6()))
}

/// Parses a type, and an instance if there is one.
fn interface(part: Part<'_>) -> Found<(Label, Option<Label>)> {
    let (type_name, rest) = part.split('/');
    let type_name = label(type_name, "a type")?;
    let Some(rest) = rest else {
        return Ok((type_name, None));
    };
    let (instance, beyond) = rest.split('/');
    let at = instance.at;
    let instance = label(instance, "an instance")?;
    let most = MAX_EXPORT - 1 - type_name.as_str().len();
    if instance.as_str().len() > most {
        return Err((at + most, Fault::TooLong { part: "a type with its instance", limit: MAX_EXPORT }));
    }
    match beyond {
        Some(beyond) => Err((beyond.at - 1, Fault::TooManyParts)),
        None => Ok((type_name, Some(instance))),
    }
}

fn label(label: Part<'_>, part: &'static str) -> Found<Label> {
    let Part { text, at } = label;
    let Some(first) = text.chars().next() else {
        return Err((at, Fault::Empty { part }));
    };
    let strange = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if let Some((offset, found)) = text.char_indices().find(|(_, c)| strange(*c)) {
        return Err((at + offset, Fault::Character { part, found }));
    }
    if matches!(first, '.' | '-') {
        return Err((at, Fault::Start { part, found: first }));
    }
    if text.len() > MAX_LABEL {
        return Err((at + MAX_LABEL, Fault::TooLong { part, limit: MAX_LABEL }));
    }
    Ok(Label(text.into()))
}

impl<'a> Part<'a> {
    /// Returns the parts before and after the first separator.
    fn split(self, separator: char) -> (Self, Option<Self>) {
        match self.text.split_once(separator) {
            None => (self, None),
            Some((before, after)) => {
                let at = self.at + before.len() + separator.len_utf8();
                (Self { text: before, at: self.at }, Some(Self { text: after, at }))
            }
        }
    }

    /// Returns the empty part after this one.
    fn end(self) -> Self {
        Self { text: "", at: self.at + self.text.len() }
    }
}

impl Label {
    /// Returns the label's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Label {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        label(Part { text, at: 0 }, "a type or an instance")
            .map_err(|(at, fault)| NameError::new(text, at, fault))
    }
}

impl Host {
    /// Returns the name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse(text: &str) -> Option<Host> {
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            (1..=63).contains(&part.len())
                && part.bytes().all(is_plain)
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        // Resolvers read a name that ends with a number as an IPv4 address in an old notation.
        let is_number = |part: &str| match part.strip_prefix("0x").or_else(|| part.strip_prefix("0X")) {
            Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
            None => part.bytes().all(|byte| byte.is_ascii_digit()),
        };
        let is_host = text.len() <= 253
            && text.split('.').all(is_part)
            && !text.rsplit('.').next().is_some_and(is_number);
        is_host.then(|| Host(text.into()))
    }
}

impl FromStr for Address {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        authority(Part { text, at: 0 })
            .and_then(|(scheme, socket)| address_with_port(socket).map(scheme))
            .map_err(|(at, fault)| NameError::new(text, at, fault))
    }
}

impl Address {
    /// Returns the socket address to which datagrams are sent, in [canonical] form.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp(socket) | Self::Shm(socket) => Some(canonical(*socket)),
        }
    }
}

impl NameError {
    fn new(name: &str, at: usize, fault: Fault) -> Self {
        Self { name: name.into(), at, fault }
    }

    /// Returns the kind of the error.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Returns the place of the error, in bytes from the beginning of the name.
    pub fn at(&self) -> usize {
        self.at
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(type_name) => write!(f, "{type_name}"),
            Self::Instance { type_name, instance } => write!(f, "{type_name}/{instance}"),
            Self::AtHost { host, port, type_name, instance } => {
                write!(f, "udp://{host}:{port}/{type_name}")?;
                instance.as_ref().map_or(Ok(()), |instance| write!(f, "/{instance}"))
            }
            Self::AtService { service, type_name, instance } => {
                write!(f, "{SERVICE_SCHEME}://{service}/{type_name}")?;
                instance.as_ref().map_or(Ok(()), |instance| write!(f, "/{instance}"))
            }
            Self::At { address, type_name, instance: None } => write!(f, "{address}/{type_name}"),
            Self::At { address, type_name, instance: Some(instance) } => {
                write!(f, "{address}/{type_name}/{instance}")
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(socket) => write!(f, "udp://{socket}"),
            Self::Shm(socket) => write!(f, "shm://{socket}"),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Self {
        Self::Udp(socket)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Label {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name can come from anywhere and have any length, so it is shown escaped and shortened.
        const MAX_SHOWN_CHARS: usize = 80;
        let shown: String = self.name.chars().take(MAX_SHOWN_CHARS).collect();
        let more = if shown.len() < self.name.len() { "..." } else { "" };
        write!(f, "in the name {shown:?}{more}, at byte {}: {}", self.at, self.fault)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { part } => write!(f, "{part} is missing"),
            Self::TooLong { part, limit } => write!(f, "{part} has at most {limit} bytes"),
            Self::Character { part, found } => {
                write!(f, "{found:?} may not stand in {part}; letters, digits, '.', '_' and '-' may")
            }
            Self::Start { part, found } => {
                write!(f, "{part} may not begin with {found:?}, but with a letter, a digit or '_'")
            }
            Self::TooManyParts => f.write_str("nothing may follow the instance"),
            Self::UnknownScheme(scheme) => {
                let shown: String = scheme.chars().take(16).collect();
                write!(f, "{shown:?} is not a scheme; write an address as in udp://10.0.0.7:7000/FileAccess")
            }
            Self::ReservedScheme(scheme) => {
                write!(f, "this version of farcall has no carrier for {scheme:?}; use \"udp\" or \"shm\"")
            }
            Self::NoSlashes => f.write_str("\"//\" is missing, as in udp://10.0.0.7:7000/FileAccess"),
            Self::Address => f.write_str(
                "an IP address with a port is expected, such as 10.0.0.7:7000 or [::1]:7000; udp:// also takes a host's name, \
                 such as ebbets.example.org:7000",
            ),
            Self::NoPort => f.write_str("the port is missing, as in 10.0.0.7:7000 or [::1]:7000"),
            Self::Interface => f.write_str("this machine has no network interface of that name"),
            Self::PortZero => f.write_str("no server can be reached at port 0"),
            Self::Service => f.write_str(
                "the name of SRV records is expected, without a port, such as _store._udp.example.org",
            ),
        }
    }
}

impl std::error::Error for NameError {}
