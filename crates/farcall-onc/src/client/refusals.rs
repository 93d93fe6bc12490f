//! Decides what a client does when the system reports that the server's port is refused: when to try again,
//! and when to give up.
//!
//! A refusal (ICMP port unreachable, RFC 792) does not say whether a call ran. If the network duplicated a
//! datagram, the first copy may have run, and the second may have been refused because the server had ended
//! meanwhile. So a refusal only brings the next try forward, and repeated refusals end the calls with
//! `Ran::Maybe`.
//!
//! Anybody can forge a refusal. One that quotes a datagram counts only if it quotes a call that is under way,
//! whose identifier only somebody on the path of the call can see.

use std::time::Duration;

use farcall::env::Time;

/// The pause after a refusal before the next try. Several refusals within this time count as one.
const RETRY_AFTER: Duration = Duration::from_millis(250);
/// The number of refused tries that end the calls, unless the client says otherwise. The last is at least
/// 500 ms after the first.
pub(crate) const REFUSALS_TO_GIVE_UP: u32 = 3;
/// The longest time between two refusals in a row. If more time passes, tries between them were not refused.
const LONGEST_GAP: Duration = Duration::from_secs(3);

/// The refusals since the last datagram from the server.
#[derive(Debug)]
pub(crate) struct Refusals {
    /// The number that ends the calls.
    to_give_up: u32,
    count: u32,
    /// When the last refusal was counted.
    last: Option<Time>,
}

/// What the client does after a refusal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A refusal of this try was counted before. The next try is at this time at the latest.
    Retry(Time),
    /// The first refusal of a try. The next try is at this time at the latest.
    FirstRetry(Time),
    /// The server is considered gone.
    GiveUp,
}

impl Refusals {
    /// Returns the state before any refusal. `to_give_up` refused tries end the calls.
    pub(crate) fn until(to_give_up: u32) -> Refusals {
        Refusals { to_give_up, count: 0, last: None }
    }

    /// Notes a datagram from the server.
    #[inline]
    pub(crate) fn heard(&mut self) {
        self.count = 0;
    }

    /// Returns when to make the next try, if a refusal has been counted. A thread asks this whenever it
    /// begins to receive, because the refusal may have come to another thread, which no longer receives.
    #[inline]
    pub(crate) fn next_try(&self, now: Time) -> Option<Time> {
        let last = self.last.filter(|_| self.count > 0)?;
        (now.since(last) <= LONGEST_GAP).then(|| last + RETRY_AFTER)
    }

    /// Counts a refused datagram, and returns what follows.
    pub(crate) fn refused(&mut self, now: Time) -> Next {
        let gap = self.last.map_or(Duration::MAX, |last| now.since(last));
        if gap > LONGEST_GAP {
            self.count = 0;
        }
        if let Some(last) = self.last.filter(|_| self.count > 0 && gap < RETRY_AFTER) {
            return Next::Retry(last + RETRY_AFTER);
        }
        self.count += 1;
        self.last = Some(now);
        if self.count < self.to_give_up {
            return Next::FirstRetry(now + RETRY_AFTER);
        }
        self.count = 0;
        Next::GiveUp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_tries_in_a_row_over_half_a_second_are_enough() {
        let (mut refusals, start) = (Refusals::until(REFUSALS_TO_GIVE_UP), Time::from_nanos(1_000_000_000));
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(refusals.refused(at(0)), Next::FirstRetry(at(250)));
        assert_eq!(refusals.refused(at(1)), Next::Retry(at(250)), "of a datagram that left with it");
        assert_eq!(refusals.refused(at(250)), Next::FirstRetry(at(500)));
        assert_eq!(refusals.refused(at(499)), Next::Retry(at(500)));
        assert_eq!(refusals.next_try(at(499)), Some(at(500)), "whoever receives");
        assert_eq!(refusals.refused(at(500)), Next::GiveUp);
        assert_eq!(refusals.next_try(at(500)), None, "nothing is left to be tried");
        assert_eq!(
            refusals.refused(at(501)),
            Next::FirstRetry(at(751)),
            "the next call has tries of its own"
        );
    }

    #[test]
    fn one_refused_try_is_enough_for_a_client_that_says_so() {
        let mut refusals = Refusals::until(1);
        assert_eq!(refusals.refused(Time::from_nanos(0)), Next::GiveUp);
    }

    #[test]
    fn a_word_of_the_server_or_tries_that_are_not_refused_begin_it_anew() {
        let (mut refusals, start) = (Refusals::until(REFUSALS_TO_GIVE_UP), Time::from_nanos(1_000_000_000));
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(refusals.refused(at(0)), Next::FirstRetry(at(250)));
        assert_eq!(refusals.refused(at(300)), Next::FirstRetry(at(550)));
        refusals.heard();
        assert_eq!(refusals.refused(at(550)), Next::FirstRetry(at(800)));
        assert_eq!(refusals.refused(at(800)), Next::FirstRetry(at(1050)));
        assert_eq!(refusals.refused(at(3801)), Next::FirstRetry(at(4051)));
    }
}
