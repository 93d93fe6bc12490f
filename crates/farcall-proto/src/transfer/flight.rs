//! The fragments of one message, or of a direction of an exchange, that are under way.
//!
//! A path can hold tens of thousands of fragments, and while one is missing, each that comes causes a report.
//! So a report costs the fragments that it tells of, and not those under way.

use std::collections::VecDeque;

use crate::Time;

/// A transmission of a range of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The position of this transmission among all of the message, from 1.
    pub order: u64,
    /// The number of the datagram.
    pub number: u64,
    pub start: u64,
    pub end: u64,
    /// When the datagram was sent.
    pub at: Time,
    /// Whether the bytes were sent before, and counted as lost.
    pub again: bool,
}

impl Sent {
    /// Returns the number of bytes.
    pub fn len(&self) -> u32 {
        (self.end - self.start) as u32
    }
}

/// The fragments that were sent and are neither acknowledged nor counted as lost.
#[derive(Debug, Default)]
pub(super) struct Flight {
    /// Fragments of bytes that were sent only once. The order of their bytes is that in which they were sent.
    first: VecDeque<Sent>,
    /// Fragments of bytes that counted as lost before, in the order in which they were sent.
    again: VecDeque<Sent>,
}

impl Flight {
    /// Returns the number of fragments.
    pub fn len(&self) -> usize {
        self.first.len() + self.again.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn clear(&mut self) {
        *self = Flight::default();
    }

    /// Adds a fragment that is being sent.
    pub fn push(&mut self, sent: Sent) {
        match sent.again {
            true => self.again.push_back(sent),
            false => self.first.push_back(sent),
        }
    }

    /// Returns the number of the newest fragment's datagram.
    pub fn newest(&self) -> Option<u64> {
        self.first.back().into_iter().chain(self.again.back()).map(|sent| sent.number).max()
    }

    /// Takes out the fragments that have arrived: those before `through`, and those within one of `ranges`.
    /// Tells each to `arrived`. Returns how many bytes of other fragments have arrived: a receiver that lacks
    /// room can have kept only the beginning of one.
    pub fn acknowledge(
        &mut self,
        through: u64,
        ranges: impl Iterator<Item = (u64, u64)> + Clone,
        mut arrived: impl FnMut(&Sent),
    ) -> u32 {
        while let Some(sent) = self.first.front().filter(|sent| sent.end <= through) {
            arrived(sent);
            self.first.pop_front();
        }
        let mut kept = self.first.front_mut().map_or(0, |sent| shorten(sent, through));
        for (from, to) in ranges.clone() {
            let begin = self.first.partition_point(|sent| sent.start < from);
            let end = self.first.partition_point(|sent| sent.end <= to);
            if begin < end {
                self.first.drain(begin..end).for_each(|sent| arrived(&sent));
            }
        }
        if !self.again.is_empty() {
            self.again.retain_mut(|sent| {
                let whole = sent.end <= through
                    || ranges.clone().any(|(from, to)| from <= sent.start && sent.end <= to);
                match whole {
                    true => arrived(sent),
                    false => kept += shorten(sent, through),
                }
                !whole
            });
        }
        kept
    }

    /// Takes out the fragments that are lost, and tells each to `lost`. A fragment that was sent before a
    /// lost one is lost, too.
    pub fn lose(&mut self, is_lost: impl Fn(&Sent) -> bool, mut lost: impl FnMut(&Sent)) {
        for sent in [&mut self.first, &mut self.again] {
            while let Some(first) = sent.front().filter(|first| is_lost(first)) {
                lost(first);
                sent.pop_front();
            }
        }
    }
}

#[cfg(test)]
impl Flight {
    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.first.iter().chain(&self.again)
    }
}

/// Takes the bytes before `through` off a fragment. Returns how many there were.
fn shorten(sent: &mut Sent, through: u64) -> u32 {
    let kept = through.saturating_sub(sent.start).min(sent.end - sent.start);
    sent.start += kept;
    kept as u32
}
