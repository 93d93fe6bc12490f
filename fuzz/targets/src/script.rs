//! Reads an input as a script: steps that the protocol's targets take one after the other.
//!
//! A step is a byte that says which step it is, followed by its operands. Any bytes are a script: missing
//! operands are zero, and a text ends where the input ends. [`Writer`] makes scripts for seeds.

use std::time::Duration;

use farcall_proto::Tail;

/// Reads a script.
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    /// Reads these bytes as a script.
    pub fn new(rest: &'a [u8]) -> Script<'a> {
        Script { rest }
    }

    /// Returns the number of the next step, or `None` at the end of the script.
    pub fn step(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Returns the next byte, or zero at the end of the script.
    pub fn byte(&mut self) -> u8 {
        self.step().unwrap_or(0)
    }

    /// Returns a text: two bytes of length, the more significant first, and then the bytes of the text.
    pub fn text(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        text
    }

    /// Returns one of `items`, if there are any. A byte chooses which.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let place = usize::from(self.byte());
        items.get(place.checked_rem(items.len())?).copied()
    }

    /// Returns how a message in an exchange goes on. A byte chooses.
    pub fn tail(&mut self) -> Tail {
        [Tail::More, Tail::End, Tail::Question][usize::from(self.byte() % 3)]
    }

    /// Returns a power of two in nanoseconds, up to half a minute. A byte is the exponent.
    pub fn duration(&mut self) -> Duration {
        Duration::from_nanos(1 << (self.byte() % 36))
    }

    /// Returns bytes without meaning. A byte chooses how many: a multiple of four, at most 16 KiB.
    pub fn filling(&mut self) -> Vec<u8> {
        let quarter = usize::from(self.byte());
        vec![0x5a; if quarter < 128 { quarter * 4 } else { (quarter - 127) * 128 }]
    }
}

/// Writes a script.
#[derive(Default)]
pub struct Writer(
    /// The script so far.
    pub Vec<u8>,
);

impl Writer {
    /// Adds a step with operands.
    pub fn step(&mut self, step: u8, operands: &[u8]) -> &mut Writer {
        self.0.push(step);
        self.0.extend(operands);
        self
    }

    /// Adds a text, as [`Script::text`] reads it.
    pub fn text(&mut self, text: &[u8]) -> &mut Writer {
        self.0.extend((text.len() as u16).to_be_bytes());
        self.0.extend(text);
        self
    }
}
