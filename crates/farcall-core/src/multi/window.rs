//! Bounds the calls of a group whose replies may come together, so that these fit into the socket's buffer.
//!
//! Room belongs to replies that arrive. A member that hangs holds none for long: when nothing has come for a
//! while, the calls that are out hold no more room, and further members are called.

use std::time::Duration;

use crate::env::Time;

/// How many bytes of a socket's buffer the smallest reply takes, including the kernel's book-keeping.
const MIN_REPLY_BYTES: usize = 1024;

/// How long calls hold room at least while no reply comes.
const MIN_HOLD: Duration = Duration::from_millis(20);

/// The room that a socket's buffer has for replies.
pub(super) struct Window {
    /// How many bytes of the buffer the largest reply so far takes.
    largest_reply: usize,
    /// The size of the buffer in bytes.
    buffer: usize,
    /// The first call that may hold room. Members are called in order, and all calls before this one have
    /// ended or have held room for long enough.
    held_from: usize,
    /// How many of the calls from there on have not ended.
    holding: usize,
    /// Since when there is no room and no reply has come; `None` if there was room at the last look.
    full_since: Option<Time>,
    /// The longest time for which there was no room before a reply came.
    longest_pause: Duration,
}

impl Window {
    /// Returns the window of a buffer of this many bytes.
    pub fn new(buffer: usize) -> Window {
        Window {
            largest_reply: MIN_REPLY_BYTES,
            buffer,
            held_from: 0,
            holding: 0,
            full_since: None,
            longest_pause: Duration::ZERO,
        }
    }

    /// Returns whether the replies of the calls that hold room, and of one more, fit into the buffer.
    /// `called` is how many members were called.
    pub fn has_room(&mut self, called: usize, now: impl FnOnce() -> Time) -> bool {
        if self.fits() {
            self.full_since = None;
            return true;
        }
        let now = now();
        let since = *self.full_since.get_or_insert(now);
        if now < since + self.hold() {
            return false;
        }
        (self.held_from, self.holding, self.full_since) = (called, 0, None);
        true
    }

    /// Returns when to look again whether there is room, although no reply has come.
    pub fn look_at(&self) -> Option<Time> {
        self.full_since.map(|since| since + self.hold())
    }

    /// Notes that the member at this index is called.
    #[inline]
    pub fn add(&mut self) {
        self.holding += 1;
    }

    /// Notes that the call at this index has ended with a reply of this many bytes.
    #[inline]
    pub fn remove(&mut self, index: usize, bytes: usize, now: impl FnOnce() -> Time) {
        if index >= self.held_from {
            self.holding -= 1;
        }
        self.largest_reply = self.largest_reply.max(bytes + MIN_REPLY_BYTES);
        if let Some(since) = &mut self.full_since {
            let now = now();
            self.longest_pause = self.longest_pause.max(now.since(*since));
            *since = now;
        }
    }

    fn fits(&self) -> bool {
        self.holding == 0 || self.holding.saturating_mul(self.largest_reply) < self.buffer
    }

    /// Returns how long calls hold room while no reply comes. Where replies are slow, they hold it for
    /// longer.
    fn hold(&self) -> Duration {
        MIN_HOLD.max(2 * self.longest_pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: usize = 212_992;

    fn at(ms: u64) -> Time {
        Time::from_nanos((1 + ms) * 1_000_000)
    }

    /// Calls as many members as there is room for at this time. Returns how many were called in all.
    fn call(window: &mut Window, mut called: usize, ms: u64) -> usize {
        while window.has_room(called, || at(ms)) {
            window.add();
            called += 1;
        }
        called
    }

    #[test]
    fn calls_that_hang_hold_no_room_once_nothing_has_come_for_a_while() {
        let mut window = Window::new(BUFFER);
        let first = call(&mut window, 0, 0);
        assert_eq!(first, BUFFER / 1024);
        assert_eq!(call(&mut window, first, 19), first);
        assert_eq!(window.look_at(), Some(at(20)));
        assert_eq!(call(&mut window, first, 20), 2 * first);
        // A reply to one of the first calls frees no room a second time.
        window.remove(3, 0, || at(21));
        assert_eq!(call(&mut window, 2 * first, 21), 2 * first);
        window.remove(first, 0, || at(22));
        assert_eq!(call(&mut window, 2 * first, 22), 2 * first + 1);
    }

    #[test]
    fn as_many_long_replies_may_come_together_as_the_buffer_holds() {
        let mut window = Window::new(BUFFER);
        window.add();
        window.remove(0, 60_000, || at(0));
        let called = call(&mut window, 1, 0);
        assert_eq!(called, 1 + 4);
        window.remove(1, 60_000, || at(1));
        assert_eq!(call(&mut window, called, 1), called + 1);
    }

    #[test]
    fn where_replies_are_slow_calls_hold_room_for_longer() {
        let mut window = Window::new(BUFFER);
        let called = call(&mut window, 0, 0);
        window.remove(0, 1 << 20, || at(15));
        assert_eq!(window.look_at(), Some(at(45)));
        assert_eq!(call(&mut window, called, 44), called);
        assert!(window.has_room(called, || at(45)));
    }
}
