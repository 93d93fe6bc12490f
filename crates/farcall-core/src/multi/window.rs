//! Bounds the calls of a group that are under way, so that their replies have room: in the socket's buffer,
//! and in the queues of the path by which all of them come.
//!
//! Room belongs to replies that arrive. A member that hangs holds none for long. Its call gives its room back
//! when the replies of twice as many later calls have come as there is room for, or when nothing has come for
//! a while: then further members are called.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::mutant::{Mutant, Rule};
use crate::SharedPath;
use crate::env::Time;

/// How many bytes of a socket's buffer the smallest reply takes, including the kernel's book-keeping.
const MIN_REPLY_BYTES: usize = 1024;

/// How long calls hold room in the socket's buffer at least while no reply comes.
const MIN_HOLD: Duration = Duration::from_millis(20);

/// After this many pauses without a reply, twice as many members are called at once as before.
const PAUSES_PER_DOUBLING: u32 = 2;

/// The room for the replies of one group call.
pub(super) struct Window {
    /// How many bytes of the buffer the largest reply so far takes.
    largest_reply: usize,
    /// The size of the buffer in bytes.
    buffer: usize,
    /// The path that the members share, if it is known that they share one.
    path: Option<Arc<SharedPath>>,
    /// The first call that may hold room. Members are called in order, and all calls before this one have
    /// ended or have held room for long enough.
    held_from: usize,
    /// How many of the calls from there on have not ended.
    holding: usize,
    /// The calls before this index give their room back when `until_old` more replies have come.
    old_before: usize,
    until_old: usize,
    /// Since when there is no room and no reply has come; `None` if there was room at the last look.
    full_since: Option<Time>,
    /// Whether only the path has no room.
    is_path_full: bool,
    /// The longest time for which there was no room before a reply came.
    longest_pause: Duration,
    /// How many times in a row there was no room and no reply came.
    pauses: u32,
    mutant: Mutant,
}

impl Window {
    /// Returns the window of a buffer of this many bytes, for replies that come by this path.
    pub fn new(buffer: usize, path: Option<Arc<SharedPath>>, mutant: Mutant) -> Window {
        Window {
            largest_reply: MIN_REPLY_BYTES,
            buffer,
            path: path.filter(|_| !mutant.breaks(Rule::PathShared)),
            held_from: 0,
            holding: 0,
            old_before: 0,
            until_old: usize::MAX,
            full_since: None,
            is_path_full: false,
            longest_pause: Duration::ZERO,
            pauses: 0,
            mutant,
        }
    }

    /// Returns whether the replies of the calls that hold room, and of one more, have room. `called` is how
    /// many members were called.
    pub fn has_room(&mut self, called: usize, now: impl FnOnce() -> Time) -> bool {
        let fits_buffer = self.fits_buffer();
        if fits_buffer && self.fits_path() {
            self.full_since = None;
            return true;
        }
        let now = now();
        self.is_path_full = fits_buffer;
        let since = *self.full_since.get_or_insert_with(|| {
            self.path.iter().for_each(|path| path.note_limit());
            now
        });
        if now < since + self.hold() || self.mutant.breaks(Rule::HungHoldsNoRoom) {
            return false;
        }
        self.release(called);
        true
    }

    /// Returns when to look again whether there is room, although no reply has come.
    pub fn look_at(&self) -> Option<Time> {
        self.full_since
            .map(|since| since + self.hold())
            .filter(|_| !self.mutant.breaks(Rule::HungHoldsNoRoom))
    }

    /// Returns how many calls may hold room.
    pub fn size(&self) -> usize {
        let by_path = self.path.as_ref().map_or(usize::MAX, |path| path.window());
        (self.buffer / self.largest_reply).min(by_path).max(1)
    }

    /// Notes that the member at this index is called.
    #[inline]
    pub fn add(&mut self, index: usize, now: impl FnOnce() -> Time) {
        self.holding += 1;
        if let Some(path) = &self.path {
            path.add(now);
        }
        if self.until_old == usize::MAX {
            (self.old_before, self.until_old) = (index + 1, 2 * self.size());
        }
    }

    /// Notes that the call at this index has ended: with a reply of so many bytes, or by a failure at this end.
    /// `called` members were called, and `is_out` tells whose calls have not ended.
    #[inline]
    pub fn remove(
        &mut self,
        (index, reply): (usize, Option<usize>),
        called: usize,
        is_out: impl Fn(usize) -> bool,
        now: impl Fn() -> Time,
    ) {
        if index >= self.held_from {
            self.give_back(1);
        }
        if let Some(bytes) = reply {
            self.largest_reply = self.largest_reply.max(bytes + MIN_REPLY_BYTES);
            if let Some(path) = &self.path {
                path.replied(&now);
            }
        }
        if let Some(since) = &mut self.full_since {
            let now = now();
            self.longest_pause = self.longest_pause.max(now.since(*since));
            *since = now;
        }
        self.pauses = 0;
        self.until_old -= 1;
        if self.until_old == 0 {
            self.forget_old(called, is_out);
        }
    }

    /// Lets the calls that are out hold no more room.
    pub fn release(&mut self, called: usize) {
        self.give_back(self.holding);
        self.held_from = called;
        self.pauses = (self.pauses + 1).min(PAUSES_PER_DOUBLING * usize::BITS / 2);
        self.full_since = None;
    }

    /// Lets old calls hold no more room: as many replies have come since as twice fill the room.
    #[cold]
    fn forget_old(&mut self, called: usize, is_out: impl Fn(usize) -> bool) {
        let old: Range<usize> = self.held_from..self.old_before.max(self.held_from);
        if !self.mutant.breaks(Rule::HungHoldsNoRoom) {
            self.held_from = old.end;
            self.give_back(old.filter(|&index| is_out(index)).count());
        }
        (self.old_before, self.until_old) = (called, 2 * self.size());
    }

    fn give_back(&mut self, calls: usize) {
        self.holding -= calls;
        if let Some(path) = &self.path {
            path.remove(calls);
        }
    }

    fn fits_buffer(&self) -> bool {
        self.holding == 0 || self.holding.saturating_mul(self.largest_reply) < self.buffer
    }

    /// Returns whether the path has room for one more call. A caller that waits for nothing always calls a
    /// member, because other callers' calls may hang.
    #[inline]
    fn fits_path(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let window = path.window().saturating_mul(1 << (self.pauses / PAUSES_PER_DOUBLING));
        self.holding == 0 || path.under_way() < window
    }

    /// Returns how long calls hold room while no reply comes. Where replies are slow, they hold it for
    /// longer.
    fn hold(&self) -> Duration {
        match &self.path {
            Some(path) if self.is_path_full => path.lull(),
            _ => MIN_HOLD.max(2 * self.longest_pause),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.give_back(self.holding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = 212_992;

    fn at(ms: u64) -> Time {
        Time::from_nanos((1 + ms) * 1_000_000)
    }

    fn window(path: Option<&Arc<SharedPath>>) -> Window {
        Window::new(BUFFER, path.cloned(), Mutant::NONE)
    }

    /// Calls as many members as there is room for at this time. Returns how many were called in all.
    fn call(window: &mut Window, mut called: usize, ms: u64) -> usize {
        while window.has_room(called, || at(ms)) {
            window.add(called, || at(ms));
            called += 1;
        }
        called
    }

    /// The member at this index replies. Only member 0 hangs.
    fn reply(window: &mut Window, (index, bytes): (usize, usize), called: usize, ms: u64) {
        window.remove((index, Some(bytes)), called, |other| other == 0 || other > index, || at(ms));
    }

    #[test]
    fn calls_that_hang_hold_no_room_once_nothing_has_come_for_a_while() {
        let mut window = window(None);
        let first = call(&mut window, 0, 0);
        assert_eq!(first, BUFFER / 1024);
        assert_eq!(call(&mut window, first, 19), first);
        assert_eq!(window.look_at(), Some(at(20)));
        assert_eq!(call(&mut window, first, 20), 2 * first);
        // A reply to one of the first calls frees no room a second time.
        reply(&mut window, (3, 0), 2 * first, 21);
        assert_eq!(call(&mut window, 2 * first, 21), 2 * first);
        reply(&mut window, (first, 0), 2 * first, 22);
        assert_eq!(call(&mut window, 2 * first, 22), 2 * first + 1);
    }

    #[test]
    fn calls_that_hang_hold_no_room_once_many_later_ones_have_ended() {
        let mut window = window(None);
        let mut called = call(&mut window, 0, 0);
        for index in 1..3 * (BUFFER / 1024) {
            reply(&mut window, (index, 0), called, 1);
            called = call(&mut window, called, 1);
            let held = if index < 2 * (BUFFER / 1024) { 1 } else { 0 };
            assert_eq!(called - index - 1, BUFFER / 1024 - held, "{index}");
        }
    }

    #[test]
    fn as_many_long_replies_may_come_together_as_the_buffer_holds() {
        let mut window = window(None);
        window.add(0, || at(0));
        reply(&mut window, (0, 60_000), 1, 0);
        let called = call(&mut window, 1, 0);
        assert_eq!(called, 1 + 4);
        reply(&mut window, (1, 60_000), called, 1);
        assert_eq!(call(&mut window, called, 1), called + 1);
    }

    #[test]
    fn where_replies_are_slow_calls_hold_room_for_longer() {
        let mut window = window(None);
        let called = call(&mut window, 0, 0);
        reply(&mut window, (0, 1 << 20), called, 15);
        assert_eq!(window.look_at(), Some(at(45)));
        assert_eq!(call(&mut window, called, 44), called);
        assert!(window.has_room(called, || at(45)));
    }

    #[test]
    fn group_calls_share_the_room_of_a_path_and_give_it_back() {
        let path = Arc::new(SharedPath::default());
        let (mut one, mut other) = (window(Some(&path)), window(Some(&path)));
        let called = call(&mut one, 0, 0);
        assert_eq!((called, path.under_way()), (path.window(), path.window()));
        assert_eq!(call(&mut other, 0, 0), 1, "a call that has no other under way is never held up");
        drop(one);
        assert_eq!(call(&mut other, 1, 0), path.window());
        drop(other);
        assert_eq!(path.under_way(), 0);
    }

    #[test]
    fn a_thousand_members_that_do_not_reply_are_called_within_70_ms() {
        let path = Arc::new(SharedPath::default());
        let mut window = Window::new(1 << 20, Some(path), Mutant::NONE);
        let mut called = 0;
        for ms in 0..70 {
            called = call(&mut window, called, ms);
        }
        assert!(called >= 1000, "{called}");
    }
}
