//! The names that users write, taken apart: type, instance, address.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use farcall_base::canonical;

/// The most bytes of a [`Label`].
pub const MAX_LABEL: usize = 128;

/// The most bytes of a type and an instance together, with the `/` between them: by both an exporter is asked
/// for what it exports, in a field that is no longer.
pub const MAX_EXPORT: usize = 255;

/// The most bytes of a [`Name`].
pub const MAX_NAME: usize = 512;

/// What to bind to: a type, an instance of it, or an address.
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
    /// `udp://10.0.0.7:7000/FileAccess`: what is exported at that address; no registry is asked.
    At {
        /// The address.
        address: Address,
        /// The type.
        type_name: Label,
        /// The instance, if the name gives one; else any at that address.
        instance: Option<Label>,
    },
    /// `udp://ebbets.example.org:7000/FileAccess`: what is exported at one of the addresses that the host has
    /// when the name is bound; no registry is asked.
    AtHost {
        /// The host.
        host: Host,
        /// The port.
        port: u16,
        /// The type.
        type_name: Label,
        /// The instance, if the name gives one; else any at that address.
        instance: Option<Label>,
    },
}

/// Where something is exported, and what carries the calls: a URL's scheme and authority.
///
/// Carriers to come (TCP, in-process) have their place here.
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
/// It has from 1 to [`MAX_LABEL`] bytes: ASCII letters, digits, `.`, `_` and `-`, the first one a
/// letter, a digit or `_`. Case matters. So a label can stand in a URL, a path, a line of text or a
/// key of a database without being quoted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label(Box<str>);

/// The name of a host, known to be well-formed (RFC 952, RFC 1123 section 2.1).
///
/// It has at most 253 bytes in parts with a dot between them: from 1 to 63 ASCII letters, digits, `_` and
/// `-`, no `-` first or last. What ends in a number is an address, or was meant to be one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(Box<str>);

/// What is wrong with a name, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    name: Box<str>,
    at: usize,
    fault: Fault,
}

/// What is wrong with a name. `part` says in which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The part is missing.
    Empty {
        /// Such as `"a type"`.
        part: &'static str,
    },
    /// The part has more bytes than are allowed.
    TooLong {
        /// Such as `"a type"`.
        part: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// This character may not stand in the part.
    Character {
        /// Such as `"a type"`.
        part: &'static str,
        /// The character.
        found: char,
    },
    /// This character may not begin the part.
    Start {
        /// Such as `"a type"`.
        part: &'static str,
        /// The character.
        found: char,
    },
    /// There is something after the instance.
    TooManyParts,
    /// No carrier has this scheme.
    UnknownScheme(String),
    /// This scheme belongs to a carrier that this version does not have.
    ReservedScheme(&'static str),
    /// The scheme is not followed by `//`.
    NoSlashes,
    /// The address is no IP address with a port; nor, where that may stand, a host's name with one.
    Address,
    /// The address has no port.
    NoPort,
    /// The port is 0, at which nobody can be reached.
    PortZero,
}

/// The schemes of carriers that are to come: a name with one gets an error of its own.
const RESERVED: [&str; 2] = ["tcp", "inproc"];

/// An error that does not yet know in which name it is.
type Found<T> = Result<T, (usize, Fault)>;

/// A part of a name, which knows where it stands.
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

/// name = label ["/" label] / address "/" label ["/" label]
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
    let (carrier, authority) = authority(whole)?;
    let (socket, rest) = authority.split('/');
    let place = place(carrier, socket)?;
    let (type_name, instance) = interface(rest.unwrap_or(socket.end()))?;
    Ok(match place {
        Place::Address(address) => Name::At { address, type_name, instance },
        Place::Host(host, port) => Name::AtHost { host, port, type_name, instance },
    })
}

/// A colon in front of any slash can only end a scheme: labels have none.
fn has_scheme(text: &str) -> bool {
    text.split('/').next().is_some_and(|first| first.contains(':'))
}

/// What carries calls to a socket address.
#[derive(Clone, Copy)]
enum Carrier {
    Udp,
    Shm,
}

impl Carrier {
    fn to(self, socket: SocketAddr) -> Address {
        match self {
            Carrier::Udp => Address::Udp(socket),
            Carrier::Shm => Address::Shm(socket),
        }
    }
}

/// What a name may have in front of the type.
enum Place {
    Address(Address),
    Host(Host, u16),
}

/// An address, or a host and a port.
fn place(carrier: Carrier, part: Part<'_>) -> Found<Place> {
    match (socket_address(part), carrier) {
        (Ok(socket), _) => Ok(Place::Address(carrier.to(socket))),
        (Err((at, Fault::Address)), Carrier::Udp) => host_and_port(part).unwrap_or(Err((at, Fault::Address))),
        (Err(fault), Carrier::Udp | Carrier::Shm) => Err(fault),
    }
}

/// A host and a port, or what is wrong with the port; nothing if there is no host.
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

/// What stands before `://`, and what follows it.
fn authority(whole: Part<'_>) -> Found<(Carrier, Part<'_>)> {
    let (scheme, rest) = whole.split(':');
    if let Some(reserved) = RESERVED.iter().find(|s| **s == scheme.text) {
        return Err((scheme.at, Fault::ReservedScheme(reserved)));
    }
    let (carrier, rest) = match (scheme.text, rest) {
        ("udp", Some(rest)) => (Carrier::Udp, rest),
        ("shm", Some(rest)) => (Carrier::Shm, rest),
        _ => return Err((scheme.at, Fault::UnknownScheme(scheme.text.to_owned()))),
    };
    let Some(text) = rest.text.strip_prefix("//") else {
        return Err((rest.at, Fault::NoSlashes));
    };
    Ok((carrier, Part { text, at: rest.at + 2 }))
}

fn socket_address(part: Part<'_>) -> Found<SocketAddr> {
    let at = part.at;
    match part.text.parse::<SocketAddr>() {
        Ok(socket) if socket.port() == 0 => Err((at, Fault::PortZero)),
        Ok(socket) => Ok(socket),
        Err(_) if part.text.is_empty() => Err((at, Fault::Empty { part: "an address" })),
        Err(_) if is_portless(part.text) => Err((part.end().at, Fault::NoPort)),
        Err(_) => Err((at, Fault::Address)),
    }
}

fn is_portless(text: &str) -> bool {
    let bare = text.strip_suffix(':').unwrap_or(text);
    let bracketed = bare.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    bare.parse::<IpAddr>().is_ok() || bracketed.is_some_and(|t| t.parse::<Ipv6Addr>().is_ok())
}

/// A type, and an instance if there is one.
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
    /// What stands before the separator, and what stands after it if it occurs.
    fn split(self, separator: char) -> (Self, Option<Self>) {
        match self.text.split_once(separator) {
            None => (self, None),
            Some((before, after)) => {
                let at = self.at + before.len() + separator.len_utf8();
                (Self { text: before, at: self.at }, Some(Self { text: after, at }))
            }
        }
    }

    /// The empty part behind this one.
    fn end(self) -> Self {
        Self { text: "", at: self.at + self.text.len() }
    }
}

impl Label {
    /// The label's text.
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
    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Host> {
        let is_part = |part: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            (1..=63).contains(&part.len())
                && part.bytes().all(is_plain)
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        // Resolvers take these for addresses of IPv4 in old spellings.
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
            .and_then(|(carrier, socket)| socket_address(socket).map(|socket| carrier.to(socket)))
            .map_err(|(at, fault)| NameError::new(text, at, fault))
    }
}

impl Address {
    /// The socket to which datagrams go, in [canonical] form.
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

    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// Where in the name, in bytes from its beginning.
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
        // A name may come from anywhere and be of any length: show it escaped, and not all of it.
        const SHOWN: usize = 80;
        let shown: String = self.name.chars().take(SHOWN).collect();
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
                write!(f, "{shown:?} is no scheme; an address is written as in udp://10.0.0.7:7000/FileAccess")
            }
            Self::ReservedScheme(scheme) => {
                write!(f, "this version of farcall has no carrier for {scheme:?}, only \"udp\"")
            }
            Self::NoSlashes => f.write_str("\"//\" is missing, as in udp://10.0.0.7:7000/FileAccess"),
            Self::Address => f.write_str(
                "an IP address with a port is wanted, such as 10.0.0.7:7000 or [::1]:7000; udp:// takes a host's name too, \
                 such as ebbets.example.org:7000",
            ),
            Self::NoPort => f.write_str("the port is missing, as in 10.0.0.7:7000 or [::1]:7000"),
            Self::PortZero => f.write_str("nobody can be reached at port 0"),
        }
    }
}

impl std::error::Error for NameError {}
