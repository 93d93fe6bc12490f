//! An input read as a script: steps that the protocol's targets take one after the other.
//!
//! A step is one byte that says which, and its operands. Any bytes are a script: operands that are
//! missing are zero, texts are as long as what is left. [`Writer`] makes scripts, for seeds.

use std::time::Duration;

use farcall_proto::Tail;

/// Reads steps.
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    /// A script of these bytes.
    pub fn new(rest: &'a [u8]) -> Script<'a> {
        Script { rest }
    }

    /// The number of the next step; none at the end.
    pub fn step(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.step().unwrap_or(0)
    }

    /// A text: two bytes of length, the more significant first, then so many.
    pub fn text(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()) << 8 | usize::from(self.byte());
        let (text, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        text
    }

    /// One of `items`, if there are any.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let place = usize::from(self.byte());
        items.get(place.checked_rem(items.len())?).copied()
    }

    /// How a message in an exchange goes on.
    pub fn tail(&mut self) -> Tail {
        [Tail::More, Tail::End, Tail::Question][usize::from(self.byte() % 3)]
    }

    /// From a nanosecond to half a minute, by powers of two.
    pub fn duration(&mut self) -> Duration {
        Duration::from_nanos(1 << (self.byte() % 36))
    }

    /// Bytes of no meaning, a multiple of four, at most 16 KiB.
    pub fn filling(&mut self) -> Vec<u8> {
        let quarter = usize::from(self.byte());
        vec![0x5a; if quarter < 128 { quarter * 4 } else { (quarter - 127) * 128 }]
    }
}

/// Writes scripts.
#[derive(Default)]
pub struct Writer(
    /// The script so far.
    pub Vec<u8>,
);

impl Writer {
    /// A step with operands.
    pub fn step(&mut self, step: u8, operands: &[u8]) -> &mut Writer {
        self.0.push(step);
        self.0.extend(operands);
        self
    }

    /// A text, as [`Script::text`] reads it.
    pub fn text(&mut self, text: &[u8]) -> &mut Writer {
        self.0.extend((text.len() as u16).to_be_bytes());
        self.0.extend(text);
        self
    }
}
