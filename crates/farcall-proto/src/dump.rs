//! Converts datagrams to text, for people who read captures.
//!
//! ```
//! use farcall_proto::dump::{dump, from_hex};
//!
//! // A probe in conversation 9 whose tag was cut off.
//! let datagram = from_hex("01000000 0000000000000009 0000000000000005 14000010 00000000 00000000 0000000000000003");
//! let why = dump(&datagram.unwrap()).unwrap_err();
//! assert_eq!(why.to_string(), "no tag of 8 bytes that fits the 32 before it");
//! ```

use std::fmt;
use std::time::Duration;

use crate::scheme::Scheme;
use crate::wire::{
    self, Bind, Credit, Data, Drain, Ended, Frame, Frames, Handshake, Header, Position, Ticket, Welcome,
};

/// The header and the frames of a datagram, as text.
#[derive(Debug)]
pub struct Dump {
    header: Header,
    len: usize,
    frames: Vec<String>,
    /// Whether nobody has checked who wrote the datagram.
    is_unchecked: bool,
    /// Whether there are more frames, which could not be read.
    malformed: bool,
}

/// Why bytes are not a datagram of this protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotOurs(pub(crate) String);

impl fmt::Display for NotOurs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotOurs {}

/// Converts a datagram to text.
///
/// # Errors
/// When the datagram is too short, has another wire version, is encrypted, or has a wrong tag.
pub fn dump(datagram: &[u8]) -> Result<Dump, NotOurs> {
    let scheme = scheme_of(datagram)?;
    if !scheme.has_secrets() {
        let Ok((header, body)) = wire::open(datagram, None, true) else {
            let before = datagram.len() - Scheme::Open.tag();
            return Err(NotOurs(format!("no tag of 8 bytes that fits the {before} before it")));
        };
        return Ok(Dump::new(header, datagram.len(), body, false));
    }
    // At this level, and in answers to BIND, everything is in the clear.
    let is_clear = scheme == Scheme::Authenticated || !wire::is_sealed(datagram);
    if is_clear && let Ok((header, body)) = wire::peek(datagram) {
        return Ok(Dump::new(header, datagram.len(), body, true));
    }
    Err(NotOurs(format!("security scheme {}, which needs keys", datagram[1])))
}

/// Returns the scheme of a datagram that may be ours.
pub(crate) fn scheme_of(datagram: &[u8]) -> Result<Scheme, NotOurs> {
    if datagram.len() < wire::HEADER + Scheme::Open.tag() {
        return Err(NotOurs(format!("{} bytes: too short for a header and a tag", datagram.len())));
    }
    if datagram[0] != wire::VERSION {
        return Err(NotOurs(format!("wire version {}, not {}", datagram[0], wire::VERSION)));
    }
    Scheme::of(datagram[1]).ok_or_else(|| NotOurs(format!("security scheme {} is not known", datagram[1])))
}

impl Dump {
    /// Converts the frames of a datagram to text.
    pub(crate) fn new(header: Header, len: usize, body: &[u8], is_unchecked: bool) -> Dump {
        let mut dump = Dump { header, len, frames: Vec::new(), is_unchecked, malformed: false };
        let mut frames = Frames::new(body);
        while let Some(raw) = frames.next().transpose() {
            match raw.and_then(|raw| raw.read()) {
                Ok(Some(frame)) => dump.frames.push(text(&frame)),
                Ok(None) => {}
                Err(wire::Malformed) => {
                    dump.malformed = true;
                    break;
                }
            }
        }
        dump
    }

    /// Returns the receiver's identifier of the conversation, or zero if the sender does not know it.
    pub fn conversation(&self) -> u64 {
        self.header.conversation
    }

    /// Returns the datagram's number.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// Returns whether the datagram is sealed, and nobody has checked the seal.
    pub fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Returns the frames, a line each, without padding.
    pub fn frames(&self) -> &[String] {
        &self.frames
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { conversation, number, scheme } = self.header;
        let scheme = match scheme {
            Scheme::Open => "",
            Scheme::Local => ", local",
            Scheme::Authenticated => ", authenticated",
            Scheme::Secure => ", secure",
        };
        let seal = if self.is_unchecked { ", seal not checked" } else { "" };
        write!(f, "to {conversation:016x} number {number} ({} bytes{scheme}{seal})", self.len)?;
        for frame in &self.frames {
            write!(f, "\n  {frame}")?;
        }
        if self.malformed {
            write!(f, "\n  malformed from here on")?;
        }
        Ok(())
    }
}

fn text(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Bind(b) => bind(b),
        Frame::Welcome(w) if w.refused != 0 => {
            format!("WELCOME refused: {}, nonce {:x}{}", crate::Kind::from_code(w.refused), w.nonce, ended(w))
        }
        Frame::Welcome(w) => format!(
            "WELCOME conversation {:016x}, nonce {:x}, scheme {}, export {:016x}, {} of {} procedures, you are {}{}{}",
            w.conversation,
            w.nonce,
            w.scheme,
            w.export,
            w.procedures().count(),
            w.total,
            w.seen,
            ended(w),
            handshake(&w.handshake)
        ),
        Frame::Challenge(conversation) => {
            format!("CHALLENGE conversation {conversation:016x}: show your ticket")
        }
        Frame::Stale(s) => format!("STALE conversation {:016x}: {:?}", s.conversation, s.reason),
        Frame::Ticket(Ticket { client, incarnation, issued, .. }) => {
            format!("TICKET client {client:016x}, incarnation {incarnation:016x}, issued {issued}")
        }
        Frame::Call(head, part) => {
            let deadline = head.meta.deadline.map(|d| format!(", deadline in {:?}", Duration::from_nanos(d)));
            let trace = head.meta.trace.map(|t| format!(", trace {:032x}", u128::from_be_bytes(t.trace)));
            let patience = head.meta.patience.map(|d| format!(", patience {:?}", Duration::from_nanos(d)));
            let silence =
                head.meta.silence.map(|d| format!(", may be silent for {:?}", Duration::from_nanos(d)));
            format!(
                "CALL {} export {:016x} procedure {}{}{}{}{}{}: {}",
                name(head.position),
                head.export,
                head.procedure,
                deadline.unwrap_or_default(),
                trace.unwrap_or_default(),
                patience.unwrap_or_default(),
                silence.unwrap_or_default(),
                if head.meta.detached { ", detached" } else { "" },
                bytes(part)
            )
        }
        Frame::Result(head, directions, part) => {
            let behind = match directions {
                0 => String::new(),
                directions => format!(", after {directions} directions"),
            };
            format!("RESULT {} {:?}{behind}: {}", name(head.position), head.status, bytes(part))
        }
        Frame::Select(position, s) => format!(
            "SELECT {} through {}, limit {}, beyond {:?}{}",
            name(*position),
            s.extent.through,
            s.extent.limit,
            s.ranges().collect::<Vec<_>>(),
            if s.pull { ", waited in vain" } else { "" }
        ),
        Frame::Cancel(position) => format!("CANCEL {}", name(*position)),
        Frame::Probe { position, detached: false } => format!("PROBE {}", name(*position)),
        Frame::Probe { position, detached: true } => format!("PROBE {}, detached", name(*position)),
        Frame::State(position, progress) => format!("STATE {} {progress:?}", name(*position)),
        Frame::MtuProbe(size) => format!("MTU-PROBE {size}"),
        Frame::MtuEcho(size) => format!("MTU-ECHO {size}"),
        Frame::Post(export, bytes) => format!("POST export {export:016x}: {} bytes", bytes.len()),
        Frame::Data(position, d) => data(*position, d),
        Frame::Credit(position, c) => credit(*position, c),
        Frame::Stop(position, reason) => format!("STOP {}, reason {reason}", name(*position)),
        Frame::Drain(Drain { conversation, export, through }) => {
            let of = if *export == 0 { "all exports".into() } else { format!("export {export:016x}") };
            format!("DRAIN of {of} in conversation {conversation:016x}, after call {through}")
        }
        Frame::Wanted(position) => format!("WANTED {}: is it?", name(*position)),
        Frame::UserProof(proof) => format!("USER-PROOF by the secret {:016x}", proof.secret),
        Frame::Ack(ack) => format!("ACK below {}, datagrams of {}", ack.low, ack.datagram),
    }
}

/// Returns the text of a DATA frame.
fn data(position: Position, d: &Data<'_>) -> String {
    format!(
        "DATA {} {} bytes from {}{}{}{}",
        name(position),
        d.bytes.len(),
        d.offset,
        if d.end { ", the last" } else { "" },
        if d.has_all { ", has all" } else { "" },
        if d.ask { ", asks" } else { "" }
    )
}

/// Returns the text of a CREDIT frame.
fn credit(position: Position, c: &Credit<'_>) -> String {
    format!(
        "CREDIT {} through {}, limit {}, beyond {:?}{}{}",
        name(position),
        c.select.extent.through,
        c.select.extent.limit,
        c.select.ranges().collect::<Vec<_>>(),
        if c.all { ", needs no more" } else { "" },
        if c.lent > 0 { ", lends" } else { "" }
    )
}

/// Returns the text of a BIND frame.
fn bind(b: &Bind<'_>) -> String {
    let name = String::from_utf8_lossy(b.name);
    let renew = b.renew.as_ref();
    let renew = renew.map(|(conversation, ..)| format!(", renewing the ticket of {conversation:016x}"));
    format!(
        "BIND {name:?} from client {:016x}, nonce {:x}, schemes {:x}, procedures from {}{}{}",
        b.client,
        b.nonce,
        b.schemes,
        b.from,
        renew.unwrap_or_default(),
        handshake(&b.handshake)
    )
}

fn ended(w: &Welcome<'_>) -> String {
    let Some(Ended { reason, age }) = w.ended else { return String::new() };
    format!(", the ticket has ended: {reason:?}, age {:?}", Duration::from_nanos(age))
}

fn handshake(h: &Handshake<'_>) -> String {
    if *h == Handshake::default() {
        return String::new();
    }
    let end = h.offset as usize + h.part.len();
    format!(", handshake {} to {end} of {}, has {}", h.offset, h.total, h.through)
}

fn name(p: Position) -> String {
    match p.exchange {
        0 => format!("{}.{}", p.activity, p.sequence),
        exchange => format!("{}.{}/{exchange}", p.activity, p.sequence),
    }
}

fn bytes(part: &wire::Part<'_>) -> String {
    let len = part.bytes.len();
    match part.fragment {
        None => format!("{len} bytes"),
        Some(f) => {
            let asks = if f.ask { ", asks" } else { "" };
            format!("bytes {} to {} of {}{asks}", f.offset, f.offset as usize + len, f.total)
        }
    }
}

/// Returns the bytes that hexadecimal digits stand for. White space is ignored.
///
/// # Errors
/// When a character is not a hexadecimal digit, or the last byte has only one digit.
pub fn from_hex(text: &str) -> Result<Vec<u8>, NotOurs> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for (at, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        let Some(digit) = c.to_digit(16) else {
            return Err(NotOurs(format!("character {} is {c:?}, not a hexadecimal digit", at + 1)));
        };
        match high.take() {
            None => high = Some(digit),
            Some(h) => bytes.push((h << 4 | digit) as u8),
        }
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(NotOurs("an odd number of hexadecimal digits".into())),
    }
}
