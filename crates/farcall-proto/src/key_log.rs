//! Logs of secrets, by which captured datagrams of sealed conversations are read.
//!
//! A line of a log has the two ends' identifiers of a conversation, the client's first, and what opens its
//! datagrams, in hexadecimal digits.

use std::collections::HashMap;

use farcall_crypto::{End, Logged, Secrets};
use zeroize::Zeroizing;

use crate::dump::{Dump, NotOurs, dump, from_hex, scheme_of};
use crate::wire::{self, Layout, Opened};

/// Returns the line of a log for a conversation that begins with these secrets.
pub fn line_of(client: u64, server: u64, secrets: &Secrets) -> Zeroizing<String> {
    let mut line = Zeroizing::new(String::with_capacity(2 * 17 + 2 * Logged::BYTES + 1));
    line.push_str(&format!("{client:016x} {server:016x} "));
    for byte in Logged::of(secrets).to_bytes().iter() {
        let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
        line.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    line
}

/// The conversations of a log.
///
/// ```
/// use farcall_proto::key_log::KeyLog;
///
/// let mut log = KeyLog::default();
/// let why = log.add("0000000000000001 0000000000000002 0101").unwrap_err();
/// assert_eq!(why, "expected two identifiers of 16 and a secret of 68 hexadecimal digits");
/// ```
#[derive(Debug, Default)]
pub struct KeyLog {
    conversations: Vec<Logged>,
    /// Which conversations datagrams for an identifier may be of, and the end that sends them. A client keeps
    /// its identifier when it resumes.
    of: HashMap<u64, Vec<(usize, End)>>,
}

impl KeyLog {
    /// Adds a line of a log. Empty lines and lines that begin with # add nothing.
    ///
    /// # Errors
    /// When the line is none of these: what was expected.
    pub fn add(&mut self, line: &str) -> Result<(), String> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let expected = || "expected two identifiers of 16 and a secret of 68 hexadecimal digits".to_owned();
        let mut words = line.split_ascii_whitespace();
        let mut identifier = || u64::from_str_radix(words.next()?, 16).ok();
        let ends = identifier().zip(identifier());
        let secret = words.next().and_then(|digits| from_hex(digits).ok()).map(Zeroizing::new);
        let logged = secret.and_then(|secret| Logged::from_bytes(&secret));
        let (Some((client, server)), Some(logged), None) = (ends, logged, words.next()) else {
            return Err(expected());
        };
        let at = self.conversations.len();
        self.conversations.push(logged);
        self.of.entry(client).or_default().push((at, End::Server));
        self.of.entry(server).or_default().push((at, End::Client));
        Ok(())
    }

    /// Opens a datagram in place if a conversation of the log has sealed it.
    fn open(&mut self, datagram: &mut [u8]) -> Option<Opened> {
        let Layout { number, phase, clear } = Layout::read(datagram)?;
        let (header, _) = wire::peek(datagram).ok()?;
        let sealed = Zeroizing::new(datagram.to_vec());
        for (at, sender) in self.of.get(&header.conversation)?.iter().rev() {
            let opened = self.conversations[*at].open(*sender, (phase, number), datagram, clear);
            if let Some(phase) = opened {
                return Some(Opened { phase });
            }
            datagram.copy_from_slice(&sealed);
        }
        None
    }
}

/// Converts a datagram to text. If it is sealed, opens it by a log of secrets.
///
/// # Errors
/// As [`dump`], and when the log has no conversation that has sealed the datagram.
pub fn dump_with(datagram: &[u8], log: &mut KeyLog) -> Result<Dump, NotOurs> {
    if !scheme_of(datagram)?.has_secrets() || !wire::is_sealed(datagram) {
        return dump(datagram);
    }
    let mut copy = datagram.to_vec();
    match log.open(&mut copy) {
        Some(opened) => match wire::open(&copy, Some(opened), true) {
            Ok((header, body)) => Ok(Dump::new(header, copy.len(), body, false)),
            Err(wire::Malformed) => Err(NotOurs("a sealed datagram without frames".to_owned())),
        },
        None => dump(datagram).map_err(|NotOurs(why)| NotOurs(format!("{why}; the log has none for it"))),
    }
}
