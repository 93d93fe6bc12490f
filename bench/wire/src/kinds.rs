//! What is moved across the wire, and by which protocol.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The protocol that moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Peer {
    Farcall,
    /// TCP with this congestion control.
    Cubic,
    Bbr,
}

impl Peer {
    pub const ALL: [Peer; 3] = [Peer::Cubic, Peer::Farcall, Peer::Bbr];

    pub fn name(self) -> &'static str {
        match self {
            Peer::Farcall => "farcall",
            Peer::Cubic => "tcp-cubic",
            Peer::Bbr => "tcp-bbr",
        }
    }

    pub fn transport(self) -> &'static str {
        if self == Peer::Farcall { "udp" } else { "tcp" }
    }

    /// Returns the congestion control of TCP, by the kernel's name.
    pub fn control(self) -> Option<&'static str> {
        match self {
            Peer::Farcall => None,
            Peer::Cubic => Some("cubic"),
            Peer::Bbr => Some("bbr"),
        }
    }

    /// Returns whether this machine has it.
    pub fn is_here(self) -> bool {
        const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
        let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
        self.control().is_none_or(|control| available.split_whitespace().any(|known| known == control))
    }
}

/// What is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Null calls, one after another; over TCP a byte each way.
    Null,
    /// A result of this many bytes.
    Result(u64),
    /// An argument of this many bytes.
    Argument(u64),
    /// This many items of 8 bytes in one stream from the server.
    Items(u64),
    /// This many bytes as `Bulk` from the server.
    Bulk(u64),
    /// A file of this many bytes, by the command `farcall get`.
    Get(u64),
    /// A file of this many bytes, by the command `farcall put`.
    Put(u64),
}

/// The bytes of an item.
pub const ITEM_BYTES: u64 = 8;

const NAMES: [(&str, fn(u64) -> Kind); 6] = [
    ("result", Kind::Result),
    ("argument", Kind::Argument),
    ("items", Kind::Items),
    ("bulk", Kind::Bulk),
    ("get", Kind::Get),
    ("put", Kind::Put),
];

impl Kind {
    /// Returns the number of payload bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Kind::Null => 0,
            Kind::Items(items) => items * ITEM_BYTES,
            Kind::Result(bytes)
            | Kind::Argument(bytes)
            | Kind::Bulk(bytes)
            | Kind::Get(bytes)
            | Kind::Put(bytes) => bytes,
        }
    }

    /// Returns whether the client sends the payload.
    pub fn is_sent(self) -> bool {
        matches!(self, Kind::Argument(_) | Kind::Put(_))
    }

    /// Returns whether the command `farcall` moves it, in a process of its own for each time.
    pub fn is_by_command(self) -> bool {
        matches!(self, Kind::Get(_) | Kind::Put(_))
    }

    fn name(self) -> (&'static str, u64) {
        match self {
            Kind::Null => ("null", 0),
            Kind::Result(bytes) => ("result", bytes),
            Kind::Argument(bytes) => ("argument", bytes),
            Kind::Items(items) => ("items", items),
            Kind::Bulk(bytes) => ("bulk", bytes),
            Kind::Get(bytes) => ("get", bytes),
            Kind::Put(bytes) => ("put", bytes),
        }
    }

    /// Returns what a `k` and an `m` behind a number mean. Items are counted, so they have decimal thousands.
    fn units(name: &str) -> [(char, u64); 2] {
        if name == "items" { [('k', 1_000), ('m', 1_000_000)] } else { [('k', 1 << 10), ('m', 1 << 20)] }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number) = self.name();
        if *self == Kind::Null {
            return f.write_str(name);
        }
        let unit =
            Kind::units(name).into_iter().rfind(|(_, unit)| number.is_multiple_of(*unit) && number > 0);
        match unit {
            Some((letter, unit)) => write!(f, "{name}-{}{letter}", number / unit),
            None => write!(f, "{name}-{number}"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        if text == "null" {
            return Ok(Kind::Null);
        }
        let unknown =
            || format!("`null`, or one of result, argument, items, bulk, get, put with a size, not {text:?}");
        let (name, size) = text.split_once('-').ok_or_else(unknown)?;
        let (_, make) = NAMES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
        let unit = Kind::units(name).into_iter().find(|(letter, _)| size.ends_with(*letter));
        let digits = unit.map_or(size, |_| &size[..size.len() - 1]);
        let number: u64 = digits.parse().map_err(|_| unknown())?;
        let number = number.checked_mul(unit.map_or(1, |(_, unit)| unit)).ok_or_else(unknown)?;
        if number == 0 { Err(unknown()) } else { Ok(make(number)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for text in
            ["null", "result-1m", "argument-64m", "items-1m", "items-1500", "bulk-8k", "get-8m", "put-3"]
        {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        assert_eq!("result-1m".parse::<Kind>().unwrap().bytes(), 1 << 20);
        assert_eq!("items-1m".parse::<Kind>().unwrap().bytes(), 8_000_000);
        for text in ["", "result", "result-", "result-0", "results-1m", "get-1g", "put-99999999999999999999"]
        {
            assert!(text.parse::<Kind>().is_err(), "{text:?}");
        }
    }
}
