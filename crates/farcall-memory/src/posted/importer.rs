//! The importer's end of posted writes, which are sent to a segment without waiting for an answer. It keeps
//! the writes that the exporter has not acknowledged.
//!
//! The exporter executes the writes of a stream in order, so its answer to a question is one number: the
//! first write that it has not executed. The importer drops the writes before that. If the exporter lacks a
//! write that was sent before the question, the importer sends that write and all later ones again
//! (go-back-N: the exporter keeps no write that arrives too early).

use std::collections::VecDeque;

use farcall_core::Kind;

use super::Faults;

/// The posted writes of one import. `F` is the type of the reason for which it posts nothing more.
#[derive(Debug)]
pub struct Posts<F> {
    faults: Faults,
    /// The stream of the import; `None` before the first posted write.
    stream: Option<u64>,
    /// The number of the next posted write.
    next: u64,
    /// The number of the first unacknowledged write.
    first: u64,
    /// The unacknowledged writes, encoded.
    unacknowledged: VecDeque<Vec<u8>>,
    /// Why posting has ended, if it has.
    failed: Option<F>,
}

/// The most unacknowledged writes.
const MAX_UNACKNOWLEDGED: usize = 64;
/// The most answers in a row without progress. After these the importer gives up.
const MAX_FRUITLESS_ANSWERS: u32 = 100;

/// A question, which is asked until all writes that were sent before it are executed.
#[derive(Debug)]
pub struct Asking {
    stream: u64,
    /// The number of the first write about which the question does not ask.
    end: u64,
    /// The highest number in an answer so far.
    reached: u64,
    /// How many answers in a row have reported no progress.
    fruitless: u32,
}

/// Returns whether a question that failed for this reason may be asked again. It may if the time ran out, or
/// if the exporter did not serve the question this time.
pub fn may_ask_again(why: Kind) -> bool {
    matches!(why, Kind::Deadline | Kind::Cancelled | Kind::Local | Kind::Overloaded)
}

impl Asking {
    /// Returns the stream that is asked about.
    pub fn stream(&self) -> u64 {
        self.stream
    }
}

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All writes that were sent before the question are executed.
    Done,
    /// The exporter lacks a write. Send all [unacknowledged](Posts::unacknowledged) writes again, then ask
    /// again.
    SendAgain,
    /// The exporter lacks a write, and so many answers in a row have reported no progress that none is
    /// expected any more.
    NoProgress,
    /// The exporter claims to have executed more writes than were posted.
    Impossible,
}

impl<F: Clone> Posts<F> {
    /// Returns the state of an import that has posted nothing.
    pub fn new(faults: Faults) -> Posts<F> {
        Posts { faults, stream: None, next: 0, first: 0, unacknowledged: VecDeque::new(), failed: None }
    }

    /// Notes that a stream was opened. If another thread has opened a stream before, that stream is used.
    pub fn opened(&mut self, stream: u64) {
        self.stream.get_or_insert(stream);
    }

    /// Returns the stream, and the number of the next write in it.
    pub fn next(&self) -> Option<(u64, u64)> {
        Some((self.stream?, self.next))
    }

    /// Returns whether as many writes as are permitted are unacknowledged. If so, before the importer posts
    /// another write, it asks until at most [`Posts::MAX_AFTER_WAIT`] are unacknowledged.
    pub fn is_full(&self) -> bool {
        self.unacknowledged.len() >= MAX_UNACKNOWLEDGED
    }

    /// The most writes that are still unacknowledged when posting goes on after a wait.
    pub const MAX_AFTER_WAIT: usize = MAX_UNACKNOWLEDGED / 2;

    /// Notes that the next write was sent, as these bytes.
    pub fn sent(&mut self, post: Vec<u8>) {
        self.next += 1;
        self.unacknowledged.push_back(post);
    }

    /// Returns the unacknowledged writes, in order.
    pub fn unacknowledged(&self) -> impl Iterator<Item = &[u8]> {
        self.unacknowledged.iter().map(|post| &post[..])
    }

    /// Returns the question to ask until at most `most` of the earlier writes are unacknowledged, if more are
    /// unacknowledged now.
    pub fn ask(&self, most: usize) -> Option<Asking> {
        let end = self.next.saturating_sub(most as u64);
        let asking = |stream| Asking { stream, end, reached: self.first, fruitless: 0 };
        self.stream.filter(|_| self.first < end).map(asking)
    }

    /// Handles the exporter's answer that it has executed all writes below `next`, and refused none.
    pub fn acknowledge(&mut self, asking: &mut Asking, next: u64) -> Answer {
        if next > self.next {
            return Answer::Impossible;
        }
        while self.first < next && self.unacknowledged.pop_front().is_some() {
            self.first += 1;
        }
        if next >= asking.end || self.faults.believes_flush {
            return Answer::Done;
        }
        asking.fruitless = if next > asking.reached { 0 } else { asking.fruitless + 1 };
        asking.reached = asking.reached.max(next);
        if asking.fruitless >= MAX_FRUITLESS_ANSWERS { Answer::NoProgress } else { Answer::SendAgain }
    }

    /// Ends posting for that reason.
    pub fn fail(&mut self, why: F) {
        self.unacknowledged.clear();
        self.failed = Some(why);
    }

    /// Returns `Ok` while writes may be posted.
    ///
    /// # Errors
    /// The reason for which posting has ended.
    pub fn check(&self) -> Result<(), F> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executed_writes_are_dropped_and_lacking_ones_are_sent_again() {
        let mut posts = Posts::<()>::new(Faults::default());
        assert!(posts.ask(0).is_none() && posts.next().is_none());
        posts.opened(7);
        posts.opened(8);
        for number in 0..4 {
            assert_eq!(posts.next(), Some((7, number)));
            posts.sent(vec![number as u8]);
        }
        let mut asking = posts.ask(1).unwrap();
        assert_eq!(asking.stream(), 7);
        posts.sent(vec![4]);
        assert_eq!(posts.acknowledge(&mut asking, 2), Answer::SendAgain);
        assert_eq!(posts.unacknowledged().collect::<Vec<_>>(), [[2], [3], [4]]);
        assert_eq!(posts.acknowledge(&mut asking, 1), Answer::SendAgain, "an older answer");
        assert_eq!(posts.acknowledge(&mut asking, 3), Answer::Done, "the last may lack");
        assert_eq!(posts.acknowledge(&mut asking, 5), Answer::Done, "the last is there, too");
        assert_eq!(posts.acknowledge(&mut asking, 6), Answer::Impossible);
        assert!(posts.ask(2).is_none());
    }

    #[test]
    fn a_question_that_was_not_served_is_asked_again() {
        assert!(
            [Kind::Overloaded, Kind::Local, Kind::Deadline, Kind::Cancelled].into_iter().all(may_ask_again)
        );
        assert!(
            ![Kind::Unreachable, Kind::ServerRestarted, Kind::NotExported].into_iter().any(may_ask_again)
        );
    }

    #[test]
    fn it_is_full_at_64_writes_and_gives_up_after_100_answers_without_progress() {
        let mut posts = Posts::<&str>::new(Faults::default());
        posts.opened(1);
        for _ in 0..MAX_UNACKNOWLEDGED {
            assert!(!posts.is_full());
            posts.sent(Vec::new());
        }
        assert!(posts.is_full());
        let mut asking = posts.ask(Posts::<&str>::MAX_AFTER_WAIT).unwrap();
        assert_eq!(posts.acknowledge(&mut asking, 1), Answer::SendAgain);
        assert!((1..MAX_FRUITLESS_ANSWERS).all(|_| posts.acknowledge(&mut asking, 1) == Answer::SendAgain));
        assert_eq!(posts.acknowledge(&mut asking, 1), Answer::NoProgress);
        assert_eq!(posts.acknowledge(&mut asking, 32), Answer::Done, "at most half are unacknowledged");
        posts.fail("no progress");
        assert_eq!((posts.check(), posts.unacknowledged().count()), (Err("no progress"), 0));
    }
}
