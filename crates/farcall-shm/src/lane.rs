//! A lane: something long goes by parts, which one side fills while the other empties those before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Page;
use crate::copy::{append, put_at};
use crate::layout::{FETCHED, Flow, LANES, PART, PARTS, Part};

/// What a lane carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Arguments,
    Results,
}

/// Who fills a lane.
#[derive(Debug)]
pub struct Filler {
    page: Arc<Page>,
    way: Way,
    which: usize,
    /// This use of the lane.
    uses: u32,
    /// Parts that the other side may empty.
    parts: u32,
    /// Bytes of the next, which may be all that it has room for: it is not shown before a byte follows it. So
    /// the last part of all is emptied only by [`Emptier::finish`], and the lane is not over while its
    /// content is still needed.
    at: usize,
}

/// Who empties a lane.
#[derive(Debug)]
pub struct Emptier {
    page: Arc<Page>,
    way: Way,
    which: usize,
    uses: u32,
    parts: u32,
}

impl Filler {
    pub(crate) fn new(page: &Arc<Page>, way: Way, which: usize) -> Filler {
        Filler { page: page.clone(), way, which: which % LANES, uses: 0, parts: 0, at: 0 }
    }

    #[inline]
    fn flow(&self) -> &Flow {
        flow(&self.page, self.way, self.which)
    }

    /// Which lane.
    pub fn which(&self) -> usize {
        self.which
    }

    /// Begins something new.
    pub fn begin(&mut self) {
        (self.uses, self.parts, self.at) = (self.uses.wrapping_add(1), 0, 0);
        self.flow().filled.0.store(word(self.uses, self.parts), Ordering::Release);
    }

    /// Puts bytes in from the beginning, as many as there is room for now, and says how many. Parts that
    /// others follow can be emptied from now on, the last one when the other side is told the length of all.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() && self.has_room() {
            if self.at == PART {
                (self.parts, self.at) = (self.parts.wrapping_add(1), 0);
                self.flow().filled.0.store(word(self.uses, self.parts), Ordering::Release);
            }
            let len = (PART - self.at).min(bytes.len() - taken);
            self.put_at(&bytes[taken..taken + len]);
            (taken, self.at) = (taken + len, self.at + len);
        }
        taken
    }

    /// Puts bytes into the part that is being filled.
    #[inline]
    fn put_at(&self, bytes: &[u8]) {
        let part = self.parts as usize % PARTS;
        match self.way {
            Way::Arguments => self.page.lanes().put((self.which * PARTS + part) * PART + self.at, bytes),
            Way::Results => put_at(&self.page.shared().results[self.which].parts[part], self.at, bytes),
        }
    }

    /// Appends all that was put in, which stands there yet: arguments that were no more than a lane holds.
    pub(crate) fn copy(&self, into: &mut Vec<u8>) {
        self.page.lanes().append(self.which * PARTS * PART, self.len() as usize, into);
    }

    /// Whether there is room for a byte.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.ahead() < PARTS as u32
    }

    /// How many bytes there is room for.
    pub fn room(&self) -> usize {
        ((PARTS as u32).saturating_sub(self.ahead()) as usize * PART).saturating_sub(self.at % PART)
    }

    /// Parts that are full, as far as is known.
    #[inline]
    fn ahead(&self) -> u32 {
        let emptied = self.flow().emptied.parts.load(Ordering::Acquire);
        let emptied = if uses(emptied) == self.uses { emptied as u32 } else { 0 };
        let full = self.parts.wrapping_add(u32::from(self.at == PART));
        full.wrapping_sub(emptied)
    }

    /// How many bytes were put in.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        u64::from(self.parts) * PART as u64 + self.at as u64
    }

    /// Whether all was emptied, so that something new can begin.
    pub fn is_over(&self) -> bool {
        let parts = self.parts.wrapping_add(u32::from(self.at > 0));
        self.flow().emptied.parts.load(Ordering::Acquire) == word(self.uses, parts)
    }

    /// Sleeps until there may be room, or for `most`.
    pub(crate) fn sleep(&self, most: Duration) {
        let bell = &self.flow().emptied.bell;
        bell.lie_down();
        if !self.has_room() {
            bell.sleep(most);
        }
        bell.get_up();
    }
}

impl Emptier {
    /// Of what is in the lane now.
    pub(crate) fn new(page: &Arc<Page>, way: Way, which: usize) -> Emptier {
        let mut emptier = Emptier { page: page.clone(), way, which: which % LANES, uses: 0, parts: 0 };
        emptier.renew();
        emptier
    }

    #[inline]
    fn flow(&self) -> &Flow {
        flow(&self.page, self.way, self.which)
    }

    /// Turns to what is in the lane now. True: it is something new.
    pub fn renew(&mut self) -> bool {
        let uses = uses(self.flow().filled.0.load(Ordering::Acquire));
        let is_new = uses != self.uses;
        if is_new {
            (self.uses, self.parts) = (uses, 0);
        }
        is_new
    }

    /// Whether there is a whole part.
    #[inline]
    pub fn has_part(&self) -> bool {
        let filled = self.flow().filled.0.load(Ordering::Acquire);
        // (Behind the end of what was finished, `parts` counts one that was not whole.)
        uses(filled) == self.uses && (filled as u32).wrapping_sub(self.parts).cast_signed() > 0
    }

    /// Appends a part that is there, whole; `None` has it skipped.
    pub fn take(&mut self, into: Option<&mut Vec<u8>>) {
        if let Some(into) = into {
            self.append(PART, into);
        }
        self.parts = self.parts.wrapping_add(1);
        self.tell();
    }

    /// Appends what is left, when there are `len` bytes in all; `None` has it skipped. False: that cannot be.
    pub fn finish(&mut self, len: u64, mut into: Option<&mut Vec<u8>>) -> bool {
        let emptied = u64::from(self.parts) * PART as u64;
        let left = len.checked_sub(emptied).filter(|left| *left <= (PARTS * PART) as u64);
        let mut left = left.unwrap_or(0) as usize;
        while left > 0 {
            let part = left.min(PART);
            if let Some(into) = &mut into {
                self.append(part, into);
            }
            (self.parts, left) = (self.parts.wrapping_add(1), left - part);
        }
        self.tell();
        len >= emptied && len.div_ceil(PART as u64) == u64::from(self.parts)
    }

    /// Appends so many bytes of the part that is next.
    #[inline]
    fn append(&self, len: usize, into: &mut Vec<u8>) {
        let part = self.parts as usize % PARTS;
        match self.way {
            Way::Arguments => self.page.lanes().append((self.which * PARTS + part) * PART, len, into),
            Way::Results => append(&self.page.shared().results[self.which].parts[part], len, into),
        }
    }

    /// Says that all of `len` bytes were emptied, or are not wanted.
    pub(crate) fn skip(&mut self, len: u64) {
        self.parts = len.div_ceil(PART as u64) as u32;
        self.tell();
    }

    fn tell(&self) {
        let emptied = &self.flow().emptied;
        emptied.parts.store(word(self.uses, self.parts), Ordering::Release);
        if self.way == Way::Arguments {
            emptied.bell.ring();
        }
    }
}

#[inline]
fn flow(page: &Page, way: Way, which: usize) -> &Flow {
    let shared = page.shared();
    match way {
        Way::Arguments => &shared.arguments[which],
        Way::Results => &shared.results[which].flow,
    }
}

/// A part that a caller fetches by a lane of its own.
pub(crate) fn fetched(page: &Page, which: usize, part: usize) -> &Part {
    &page.shared().fetched[which % LANES][part % FETCHED]
}

#[inline]
fn word(uses: u32, parts: u32) -> u64 {
    u64::from(uses) << 32 | u64::from(parts)
}

#[inline]
fn uses(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_part_rings_for_the_caller_that_fills_arguments_only() {
        let page = Page::alone();
        for (way, rings) in [(Way::Arguments, true), (Way::Results, false)] {
            let (mut filler, bell) = (Filler::new(&page, way, 0), &flow(&page, way, 0).emptied.bell);
            filler.begin();
            filler.put(&vec![1; 2 * PART]);
            let mut emptier = Emptier::new(&page, way, 0);
            bell.lie_down();
            emptier.take(None);
            assert_eq!(bell.is_awake(), rings, "{way:?}");
            bell.lie_down();
            assert!(emptier.finish(2 * PART as u64, None));
            assert_eq!(bell.is_awake(), rings, "{way:?}");
        }
    }
}
