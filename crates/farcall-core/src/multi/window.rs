//! Bounds the calls of a group that are under way, so that their replies have room: in the socket's buffer,
//! and in the queues of the path by which all of them come.
//!
//! Room belongs to replies that arrive. A member that hangs holds none for long. Its call gives its room back
//! when the replies of twice as many later calls have come as there is room for, or when nothing has come for
//! a while; on the path also when it was sent long ago. Then further members are called.

use std::sync::Arc;
use std::time::Duration;

use crate::SharedPath;
use crate::broken::{Mutant, Rule};
use crate::env::Time;

/// How many bytes of a socket's buffer the smallest reply takes, including the kernel's book-keeping.
const MIN_REPLY_BYTES: usize = 1024;

/// How long calls hold room in the socket's buffer at least while no reply comes.
const MIN_HOLD: Duration = Duration::from_millis(20);

/// After this many pauses without a reply, twice as many members are called at once as before.
const PAUSES_PER_DOUBLING: u32 = 2;

/// How long after its sending a call holds room on the path at least, and twice that at most. By then it has
/// been sent again, so it waits for its server, or is lost.
const MAX_AGE: Duration = Duration::from_millis(20);

/// The room for the replies of one group call.
pub(super) struct Window {
    /// How many bytes of the buffer the largest reply so far takes.
    largest_reply: usize,
    /// The size of the buffer in bytes.
    buffer: usize,
    in_buffer: Holders,
    /// The path that the members share, if it is known that they share one.
    path: Option<Arc<SharedPath>>,
    on_path: Holders,
    /// The calls before this index are old when `until_old` more replies have come. On the path they are old
    /// `MAX_AGE` after `marked`, too.
    old_before: usize,
    until_old: usize,
    marked: Option<Time>,
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

/// The calls that hold room.
#[derive(Default)]
struct Holders {
    /// The first call that may hold room. Members are called in order, and all calls before this one have
    /// ended or have held room for long enough.
    from: usize,
    /// How many of the calls from there on have not ended.
    count: usize,
}

impl Holders {
    /// Lets the calls before an index hold no more room. Returns how many did.
    fn release(&mut self, before: usize, is_out: impl Fn(usize) -> bool) -> usize {
        let released = (self.from..before).filter(|&index| is_out(index)).count();
        self.from = self.from.max(before);
        self.count -= released;
        released
    }
}

impl Window {
    /// Returns the window of a buffer of this many bytes, for replies that come by this path.
    pub fn new(buffer: usize, path: Option<Arc<SharedPath>>, mutant: Mutant) -> Window {
        Window {
            largest_reply: MIN_REPLY_BYTES,
            buffer,
            in_buffer: Holders::default(),
            path: path.filter(|_| !mutant.breaks(Rule::PathShared)),
            on_path: Holders::default(),
            old_before: 0,
            until_old: usize::MAX,
            marked: None,
            full_since: None,
            is_path_full: false,
            longest_pause: Duration::ZERO,
            pauses: 0,
            mutant,
        }
    }

    /// Returns whether the replies of the calls that hold room, and of one more, have room. `called` members
    /// were called, and `is_out` tells whose calls have not ended.
    pub fn has_room(
        &mut self,
        called: usize,
        is_out: impl Fn(usize) -> bool,
        now: impl FnOnce() -> Time,
    ) -> bool {
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
        if self.mutant.breaks(Rule::HungHoldsNoRoom) {
            return false;
        }
        if now >= since + self.hold() {
            self.release(called, is_out);
            return true;
        }
        if self.marked.is_some_and(|marked| now >= marked + MAX_AGE) {
            self.forget_on_path(self.old_before, &is_out);
            self.mark(called);
            self.marked = Some(now);
        }
        let has_room = fits_buffer && self.fits_path();
        if has_room {
            self.full_since = None;
        }
        has_room
    }

    /// Returns when to look again whether there is room, although no reply has come.
    pub fn look_at(&self) -> Option<Time> {
        let since = self.full_since.filter(|_| !self.mutant.breaks(Rule::HungHoldsNoRoom))?;
        let age = self.marked.filter(|_| self.is_path_full).map(|marked| marked + MAX_AGE);
        age.into_iter().chain([since + self.hold()]).min()
    }

    /// Returns how many calls may hold room.
    pub fn size(&self) -> usize {
        let by_path = self.path.as_ref().map_or(usize::MAX, |path| path.window());
        (self.buffer / self.largest_reply).min(by_path).max(1)
    }

    /// Notes that the member at this index is called.
    #[inline]
    pub fn add(&mut self, index: usize, now: impl Fn() -> Time) {
        self.in_buffer.count += 1;
        if let Some(path) = &self.path {
            self.on_path.count += 1;
            path.add(&now);
            if self.marked.is_none() {
                self.marked = Some(now());
            }
        }
        if self.until_old == usize::MAX {
            self.mark(index + 1);
        }
    }

    /// Notes that the call at this index has ended: with a reply of so many bytes, or by a failure at this
    /// end. `called` members were called, and `is_out` tells whose calls have not ended.
    #[inline]
    pub fn remove(
        &mut self,
        (index, reply): (usize, Option<usize>),
        called: usize,
        is_out: impl Fn(usize) -> bool,
        now: impl Fn() -> Time,
    ) {
        if index >= self.in_buffer.from {
            self.in_buffer.count -= 1;
        }
        if let Some(path) = &self.path {
            if index >= self.on_path.from {
                self.on_path.count -= 1;
                path.remove(1);
            }
            if reply.is_some() {
                path.replied(&now);
            }
        }
        if let Some(bytes) = reply {
            self.largest_reply = self.largest_reply.max(bytes + MIN_REPLY_BYTES);
        }
        if let Some(since) = &mut self.full_since {
            let now = now();
            self.longest_pause = self.longest_pause.max(now.since(*since));
            *since = now;
        }
        self.pauses = 0;
        self.until_old -= 1;
        if self.until_old == 0 {
            self.forget_old(called, is_out, now);
        }
    }

    /// Lets the calls that are out hold no more room, because no reply comes.
    pub fn release(&mut self, called: usize, is_out: impl Fn(usize) -> bool) {
        self.forget_on_path(called, &is_out);
        if !self.is_path_full {
            self.in_buffer.release(called, &is_out);
        }
        self.pauses = (self.pauses + 1).min(PAUSES_PER_DOUBLING * usize::BITS / 2);
        self.full_since = None;
    }

    /// Lets old calls hold no more room: as many replies have come since as twice fill the room.
    #[cold]
    fn forget_old(&mut self, called: usize, is_out: impl Fn(usize) -> bool, now: impl Fn() -> Time) {
        if !self.mutant.breaks(Rule::HungHoldsNoRoom) {
            self.in_buffer.release(self.old_before, &is_out);
            self.forget_on_path(self.old_before, &is_out);
        }
        self.mark(called);
        self.marked = self.path.is_some().then(now);
    }

    /// Begins to wait until the calls before this index are old.
    fn mark(&mut self, called: usize) {
        (self.old_before, self.until_old) = (called, 2 * self.size());
    }

    fn forget_on_path(&mut self, before: usize, is_out: impl Fn(usize) -> bool) {
        if let Some(path) = &self.path {
            path.remove(self.on_path.release(before, is_out));
        }
    }

    fn fits_buffer(&self) -> bool {
        let held = self.in_buffer.count;
        held == 0 || held.saturating_mul(self.largest_reply) < self.buffer
    }

    /// Returns whether the path has room for one more call. A caller that waits for nothing always calls a
    /// member, because other callers' calls may hang.
    #[inline]
    fn fits_path(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let window = path.window().saturating_mul(1 << (self.pauses / PAUSES_PER_DOUBLING));
        self.on_path.count == 0 || path.under_way() < window
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
        if let Some(path) = &self.path {
            path.remove(self.on_path.count);
        }
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

    /// Only member 0 hangs, and the members after `last` have not replied yet.
    fn out_after(last: usize) -> impl Fn(usize) -> bool {
        move |index| index == 0 || index > last
    }

    /// Calls as many members as there is room for at this time. Returns how many were called in all.
    fn call(window: &mut Window, mut called: usize, ms: u64) -> usize {
        while window.has_room(called, |_| true, || at(ms)) {
            window.add(called, || at(ms));
            called += 1;
        }
        called
    }

    /// The member at this index replies.
    fn reply(window: &mut Window, (index, bytes): (usize, usize), called: usize, ms: u64) {
        window.remove((index, Some(bytes)), called, out_after(index), || at(ms));
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
        assert!(window.has_room(called, |index| index > 0, || at(45)));
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
