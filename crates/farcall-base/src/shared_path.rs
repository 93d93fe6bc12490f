//! Congestion control for calls to many servers whose replies share a path: how many of them may be under
//! way.
//!
//! A client learns the path's rate from the replies of all servers together, because a router's queue does
//! not know to which call a packet belongs. The window begins small. It doubles each round while replies then
//! come faster, as in the startup of BBR (Cardwell and others 2016): once a larger window only lengthens the
//! queue, replies come no faster. A round trip tells less, because it contains the time of the procedure.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Time, lock};

/// How many calls may be under way on a path of which nothing is known, as in RFC 6928.
const INITIAL_WINDOW: usize = 10;

/// How many calls may be under way on any path.
const MIN_WINDOW: usize = 4;

/// The largest window, in calls. A client has no more calls outstanding than a few tens of thousands.
const MAX_WINDOW: usize = 1 << 20;

/// After so many rounds in which replies come no faster, the larger window is of no use. (BBR takes as many.
/// Where servers take times by chance, one round tells little.)
const ROUNDS_BEFORE_STEADY: u32 = 3;

/// After so many rounds with a steady window, twice the window is tried.
const STEADY_ROUNDS: u32 = 8;

/// If no reply comes for as long as this many replies take at the path's rate, the path's queue is empty.
const REPLIES_IN_A_LULL: u64 = 8;

/// The bounds of that time, and how long it is while no rate is known.
const MIN_LULL: Duration = Duration::from_millis(1);
const MAX_LULL: Duration = Duration::from_millis(20);
const FIRST_LULL: Duration = Duration::from_millis(5);

/// If more than one in this many calls of a round had to be sent again, and more than this many, the path is
/// congested.
const LOST_ONE_IN: usize = 8;
const MOST_LOST: usize = 2;

/// A path that the replies of many servers share, and the calls that are under way on it. A short call counts
/// as much as a longer one: where routers are slow, they are so for each packet.
#[derive(Debug)]
pub struct SharedPath {
    /// How many calls are under way, except those that are known to be held up elsewhere.
    under_way: AtomicUsize,
    /// How many calls may be under way.
    window: AtomicUsize,
    /// How many replies have come.
    replies: AtomicUsize,
    /// The number of replies at which the round ends.
    round_ends: AtomicUsize,
    /// How many calls of the round were answered only after they were sent again.
    lost: AtomicUsize,
    /// How long a reply takes at the present window, in nanoseconds. 0 while that is not known.
    pace: AtomicU64,
    rounds: Mutex<Rounds>,
}

/// What is known of the rounds. In a round as many replies come as the window had calls at its beginning.
#[derive(Debug, Default)]
struct Rounds {
    /// How many replies had come when the round began, and when that was.
    before: usize,
    begun: Time,
    /// Whether the path was idle when the round began, so that the first reply took a round trip.
    from_idle: bool,
    /// Whether a call waited for room in the window in this round.
    is_limited: bool,
    /// Whether the window stays as it is, because a larger one was of no use.
    is_steady: bool,
    /// How long a reply took at the window before the present one, in nanoseconds; 0 if that is not known.
    former_pace: u64,
    /// The rounds with the present window, their replies, and their time in nanoseconds.
    rounds: u32,
    replies: u64,
    nanos: u64,
}

impl Rounds {
    /// Begins to count the rounds with another window. A reply takes `former_pace` with the present one.
    fn change_window(&mut self, former_pace: u64) {
        (self.former_pace, self.rounds, self.replies, self.nanos) = (former_pace, 0, 0, 0);
    }
}

impl Default for SharedPath {
    fn default() -> SharedPath {
        SharedPath {
            under_way: AtomicUsize::new(0),
            window: AtomicUsize::new(INITIAL_WINDOW),
            replies: AtomicUsize::new(0),
            round_ends: AtomicUsize::new(INITIAL_WINDOW),
            lost: AtomicUsize::new(0),
            pace: AtomicU64::new(0),
            rounds: Mutex::default(),
        }
    }
}

impl SharedPath {
    /// Returns how many calls may be under way.
    #[inline]
    pub fn window(&self) -> usize {
        self.window.load(Ordering::Relaxed)
    }

    /// Returns how many calls are under way.
    #[inline]
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Notes that a call is sent. The clock is read only if no other call is under way.
    #[inline]
    pub fn add(&self, now: impl FnOnce() -> Time) {
        if self.under_way.fetch_add(1, Ordering::Relaxed) == 0 {
            self.begin(now());
        }
    }

    /// Notes that calls are not under way on the path any more: they have ended, or nothing of them can be in
    /// its queue.
    #[inline]
    pub fn remove(&self, calls: usize) {
        self.under_way.fetch_sub(calls, Ordering::Relaxed);
    }

    /// Notes that a reply has come. The clock is read only at the end of a round.
    #[inline]
    pub fn replied(&self, now: impl FnOnce() -> Time) {
        let replies = self.replies.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if self.is_over(replies) {
            self.end_round(now());
        }
    }

    /// Notes that the reply to a call came only after the call was sent again, and that the server had not
    /// said meanwhile that it executes the call: a datagram was lost, or held up in a queue.
    #[cold]
    pub fn note_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a call waits for room in the window.
    #[cold]
    pub fn note_limit(&self) {
        lock(&self.rounds).is_limited = true;
    }

    /// Returns how long no reply must come before it is certain that the calls under way wait for their
    /// servers, not for the path.
    pub fn lull(&self) -> Duration {
        match self.pace.load(Ordering::Relaxed) {
            0 => FIRST_LULL,
            pace => Duration::from_nanos(pace.saturating_mul(REPLIES_IN_A_LULL)).clamp(MIN_LULL, MAX_LULL),
        }
    }

    /// Begins a round after the path was idle.
    #[cold]
    fn begin(&self, now: Time) {
        let rounds = &mut *lock(&self.rounds);
        let replies = self.replies.load(Ordering::Relaxed).wrapping_sub(rounds.before);
        self.forget_if_congested(rounds, replies);
        self.begin_round(rounds, now, true);
    }

    fn begin_round(&self, rounds: &mut Rounds, now: Time, from_idle: bool) {
        let replies = self.replies.load(Ordering::Relaxed);
        (rounds.before, rounds.begun, rounds.from_idle) = (replies, now, from_idle);
        rounds.is_limited = false;
        self.lost.store(0, Ordering::Relaxed);
        self.round_ends.store(replies.wrapping_add(self.window()), Ordering::Relaxed);
    }

    /// Returns whether this many replies end the round.
    #[inline]
    fn is_over(&self, replies: usize) -> bool {
        replies.wrapping_sub(self.round_ends.load(Ordering::Relaxed)) < usize::MAX / 2
    }

    #[cold]
    fn end_round(&self, now: Time) {
        let rounds = &mut *lock(&self.rounds);
        let replies = self.replies.load(Ordering::Relaxed);
        if !self.is_over(replies) {
            // Another thread has ended the round.
            return;
        }
        let replies = replies.wrapping_sub(rounds.before);
        let took = now.nanos_since(rounds.begun);
        if !self.forget_if_congested(rounds, replies) && rounds.is_limited {
            self.judge(rounds, replies as u64, took);
        }
        self.begin_round(rounds, now, false);
    }

    /// Chooses the next window, after a round of these replies in which calls waited for room.
    fn judge(&self, rounds: &mut Rounds, replies: u64, took: u64) {
        rounds.rounds += 1;
        let pace = match rounds.from_idle {
            // It is not known how much of the round was a round trip. So it can show only that the larger
            // window is of use.
            true if rounds.former_pace == 0 || rounds.is_steady => return,
            true => took / replies.max(1),
            false => {
                rounds.replies += replies;
                rounds.nanos = rounds.nanos.saturating_add(took);
                rounds.nanos / rounds.replies.max(1)
            }
        }
        .max(1);
        let is_faster = pace.saturating_mul(5) <= rounds.former_pace.saturating_mul(4);
        if rounds.is_steady && rounds.rounds < STEADY_ROUNDS {
            self.pace.store(pace, Ordering::Relaxed);
        } else if rounds.is_steady || rounds.former_pace == 0 || is_faster {
            self.pace.store(pace, Ordering::Relaxed);
            self.set_window(2 * self.window());
            rounds.change_window(pace);
            rounds.is_steady = false;
        } else if rounds.rounds >= ROUNDS_BEFORE_STEADY && !rounds.from_idle {
            // Half of the window has brought almost as many replies in the same time.
            self.set_window(self.window() / 2);
            rounds.change_window(pace);
            rounds.is_steady = true;
        }
    }

    /// Forgets what was learned if too many calls of a round of this many replies were sent again.
    fn forget_if_congested(&self, rounds: &mut Rounds, replies: usize) -> bool {
        let is_congested = self.lost.load(Ordering::Relaxed) > MOST_LOST.max(replies / LOST_ONE_IN);
        if is_congested {
            self.set_window((self.window() / 2).min(INITIAL_WINDOW));
            self.pace.store(0, Ordering::Relaxed);
            rounds.change_window(0);
            rounds.is_steady = false;
        }
        is_congested
    }

    fn set_window(&self, calls: usize) {
        self.window.store(calls.clamp(MIN_WINDOW, MAX_WINDOW), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: u64 = 1_000;

    /// A router that forwards a reply to the client in each `pace` nanoseconds, and drops those for which its
    /// queue has no room. Every procedure takes `procedure` nanoseconds. The client sends a call again if no
    /// reply has come within `RETRY`.
    struct Router {
        pace: u64,
        queue: u64,
        procedure: u64,
        now: u64,
        free_at: u64,
    }

    const RETRY: u64 = 20_000 * MICROS;

    impl Router {
        fn new(pace: u64, procedure: u64) -> Router {
            Router { pace, queue: 25, procedure, now: MICROS, free_at: 0 }
        }

        /// Makes a group call of this many members. Returns how many calls were sent again.
        fn call(&mut self, path: &SharedPath, members: usize) -> usize {
            let (mut called, mut again) = (0, 0);
            // When each reply comes to the router, with whether it is of a call that was sent again.
            let mut replies = std::collections::BinaryHeap::new();
            let mut arrivals = std::collections::BinaryHeap::new();
            let mut missing = members;
            while missing > 0 {
                while called < members && path.under_way() < path.window() {
                    path.add(|| Time::from_nanos(self.now));
                    replies.push(std::cmp::Reverse((self.now + self.procedure, false)));
                    called += 1;
                }
                if called < members {
                    path.note_limit();
                }
                let reply = replies.peek().map_or(u64::MAX, |reply| reply.0.0);
                let arrival = arrivals.peek().map_or(u64::MAX, |&std::cmp::Reverse((at, _))| at);
                self.now = reply.min(arrival);
                if arrival <= reply {
                    let Some(std::cmp::Reverse((_, again))) = arrivals.pop() else { unreachable!() };
                    if again {
                        path.note_lost();
                    }
                    path.remove(1);
                    path.replied(|| Time::from_nanos(self.now));
                    missing -= 1;
                    continue;
                }
                let Some(std::cmp::Reverse((_, sent_again))) = replies.pop() else { unreachable!() };
                if self.free_at.saturating_sub(self.now) > self.queue * self.pace {
                    again += 1;
                    replies.push(std::cmp::Reverse((self.now + RETRY, true)));
                    continue;
                }
                self.free_at = self.free_at.max(self.now) + self.pace;
                arrivals.push(std::cmp::Reverse((self.free_at, sent_again)));
            }
            again
        }
    }

    #[test]
    fn behind_a_slow_router_few_calls_are_sent_again_and_the_router_is_never_idle_for_long() {
        for procedure in [0, 2_000 * MICROS, 10_000 * MICROS] {
            for members in [100, 400] {
                let (path, mut router) = (SharedPath::default(), Router::new(800 * MICROS, procedure));
                let again = router.call(&path, members);
                assert!(again * 4 <= members, "{procedure} ns, {members}: {again} again");
                let began = router.now;
                let again = router.call(&path, members);
                assert!(again * 4 <= members, "{procedure} ns, {members}: {again} again");
                let took = (router.now - began) / MICROS;
                let least = members as u64 * 800 + procedure / MICROS;
                assert!(took * 10 <= least * 14, "{procedure} ns, {members}: {took} of {least} µs");
            }
        }
    }

    #[test]
    fn where_nothing_is_slow_but_the_servers_the_window_soon_holds_the_whole_group() {
        let (path, mut router) = (SharedPath::default(), Router::new(3 * MICROS, 50_000 * MICROS));
        router.queue = 1 << 20;
        for _ in 0..5 {
            router.call(&path, 300);
        }
        assert!(path.window() >= 300, "{}", path.window());
    }

    #[test]
    fn a_window_that_is_too_large_for_a_path_that_became_slow_is_forgotten() {
        let (path, mut fast) = (SharedPath::default(), Router::new(3 * MICROS, 2_000 * MICROS));
        fast.queue = 1 << 20;
        for _ in 0..8 {
            fast.call(&path, 400);
        }
        assert!(path.window() >= 320, "{}", path.window());
        let mut slow = Router::new(800 * MICROS, 2_000 * MICROS);
        slow.now = fast.now;
        for _ in 0..3 {
            slow.call(&path, 400);
        }
        assert!(slow.call(&path, 400) <= 40, "{}", path.window());
    }

    #[test]
    fn a_lull_is_as_long_as_eight_replies_take_but_bounded() {
        let path = SharedPath::default();
        assert_eq!(path.lull(), FIRST_LULL);
        for (pace, lull) in [(1, 1_000), (200 * MICROS, 1_600), (u64::MAX, 20_000)] {
            path.pace.store(pace, Ordering::Relaxed);
            assert_eq!(path.lull(), Duration::from_micros(lull));
        }
    }
}
