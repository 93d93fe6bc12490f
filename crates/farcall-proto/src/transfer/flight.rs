//! The fragments of one message, or of a direction of an exchange, that are under way.
//!
//! A path can hold tens of thousands of fragments, and while one is missing, each that comes causes a report.
//! So a report costs the fragments that it tells of, and not those under way.

use std::collections::{BTreeMap, VecDeque};

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
    /// Fragments of bytes that counted as lost before.
    again: Repeated,
}

/// Fragments in any order of their bytes. They do not overlap.
#[derive(Debug, Default)]
struct Repeated {
    /// In the order in which they were sent.
    sent: BTreeMap<u64, Sent>,
    /// Where each begins, with its order.
    starts: BTreeMap<u64, u64>,
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
            true => self.again.push(sent),
            false => self.first.push_back(sent),
        }
    }

    /// Returns the number of the newest fragment's datagram.
    pub fn newest(&self) -> Option<u64> {
        let again = self.again.sent.last_key_value().map(|(_, sent)| sent.number);
        self.first.back().map(|sent| sent.number).max(again)
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
            self.again.take_within(0, through, &mut arrived);
            kept += self.again.shorten(through);
            ranges.for_each(|(from, to)| self.again.take_within(from, to, &mut arrived));
        }
        kept
    }

    /// Takes out the fragments that are lost, and tells each to `lost`. A fragment that was sent before a
    /// lost one is lost, too.
    pub fn lose(&mut self, is_lost: impl Fn(&Sent) -> bool, mut lost: impl FnMut(&Sent)) {
        while let Some(first) = self.first.front().filter(|first| is_lost(first)) {
            lost(first);
            self.first.pop_front();
        }
        while let Some(first) = self.again.sent.first_entry().filter(|first| is_lost(first.get())) {
            let first = first.remove();
            self.again.starts.remove(&first.start);
            lost(&first);
        }
    }
}

impl Repeated {
    fn len(&self) -> usize {
        self.sent.len()
    }

    fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    fn push(&mut self, sent: Sent) {
        self.starts.insert(sent.start, sent.order);
        self.sent.insert(sent.order, sent);
    }

    /// Takes out the fragments within a range of bytes, and tells each to `arrived`.
    fn take_within(&mut self, from: u64, to: u64, arrived: &mut impl FnMut(&Sent)) {
        while from < to
            && let Some((&start, &order)) = self.starts.range(from..to).next()
            && let Some(sent) = self.sent.get(&order).filter(|sent| sent.end <= to)
        {
            arrived(sent);
            self.sent.remove(&order);
            self.starts.remove(&start);
        }
    }

    /// Takes the bytes before `through` off the fragment that has some. Returns how many there were.
    fn shorten(&mut self, through: u64) -> u32 {
        let Some((&start, &order)) = self.starts.range(..through).next_back() else { return 0 };
        let Some(sent) = self.sent.get_mut(&order) else { return 0 };
        let kept = shorten(sent, through);
        self.starts.remove(&start);
        self.starts.insert(sent.start, order);
        kept
    }
}

#[cfg(test)]
impl Flight {
    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.first.iter().chain(self.again.sent.values())
    }
}

/// Takes the bytes before `through` off a fragment. Returns how many there were.
fn shorten(sent: &mut Sent, through: u64) -> u32 {
    let kept = through.saturating_sub(sent.start).min(sent.end - sent.start);
    sent.start += kept;
    kept as u32
}
