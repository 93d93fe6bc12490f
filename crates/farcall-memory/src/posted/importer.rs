//! The importer's end: the posted writes that the exporter has not acknowledged.
//!
//! The exporter does the writes of a stream in order, so its answer is one number. The importer lets go of the writes that
//! are done. If the exporter lacks a write that had left before the question, that one and all behind it are sent again
//! (go-back-N: the exporter keeps nothing of what came too early).

use std::collections::VecDeque;

use farcall_core::Kind;

use super::Faults;

/// The writes that one import has posted. `F` is why it posts nothing more.
#[derive(Debug)]
pub struct Posts<F> {
    faults: Faults,
    /// The stream of the import; `None` before the first posted write.
    stream: Option<u64>,
    /// The number of the next posted write.
    next: u64,
    /// The number of the first write that is not acknowledged.
    first: u64,
    /// The writes that are not acknowledged, each as it is sent.
    kept: VecDeque<Vec<u8>>,
    /// Why it is not known whether the posted writes were done.
    failed: Option<F>,
}

/// The most writes that are unacknowledged.
const MAX_KEPT: usize = 64;
/// After this many answers in a row that report no progress the importer gives up.
const MAX_VAIN_ANSWERS: u32 = 100;

/// A question, asked until all writes are done that had left before.
#[derive(Debug)]
pub struct Asking {
    stream: u64,
    /// The first write that need not be done.
    end: u64,
    /// How far it had come at the last answer, and how often it has not come further.
    reached: u64,
    vain: u32,
}

/// Whether a question that failed for that reason may be asked again: that there was no time left, or that it was not served
/// this time, has lost nothing.
pub fn may_ask_again(why: Kind) -> bool {
    matches!(why, Kind::Deadline | Kind::Cancelled | Kind::Local | Kind::Overloaded)
}

impl Asking {
    /// The stream that is asked about.
    pub fn stream(&self) -> u64 {
        self.stream
    }
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All writes are done that had left before the question.
    Done,
    /// A write is lacking: all that are [kept](Posts::kept) are to be sent again, then the question is to be asked again.
    Again,
    /// A write is lacking at the exporter, and so many answers in a row reported no progress that none is
    /// expected.
    Vain,
    /// The exporter has done more writes than were posted.
    Nonsense,
}

impl<F: Clone> Posts<F> {
    /// Nothing was posted yet.
    pub fn new(faults: Faults) -> Posts<F> {
        Posts { faults, stream: None, next: 0, first: 0, kept: VecDeque::new(), failed: None }
    }

    /// Takes in that a stream was opened. Where another thread has opened one before, that one is used.
    pub fn opened(&mut self, stream: u64) {
        self.stream.get_or_insert(stream);
    }

    /// The stream, and the number that the next write has in it.
    pub fn next(&self) -> Option<(u64, u64)> {
        Some((self.stream?, self.next))
    }

    /// Whether as many writes are unacknowledged as may be. Before it posts more the importer asks, until at most
    /// [half](Posts::HALF) are.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MAX_KEPT
    }

    /// See [`Posts::is_full`].
    pub const HALF: usize = MAX_KEPT / 2;

    /// Takes in that the next write has left, as these bytes.
    pub fn left(&mut self, post: Vec<u8>) {
        self.next += 1;
        self.kept.push_back(post);
    }

    /// The writes that are not known to be done, in order.
    pub fn kept(&self) -> impl Iterator<Item = &[u8]> {
        self.kept.iter().map(|post| &post[..])
    }

    /// Returns what to ask until at most `most` of the writes that were posted before are unacknowledged, if anything is
    /// to be asked.
    pub fn ask(&self, most: usize) -> Option<Asking> {
        let end = self.next.saturating_sub(most as u64);
        let asking = |stream| Asking { stream, end, reached: self.first, vain: 0 };
        self.stream.filter(|_| self.first < end).map(asking)
    }

    /// Takes in that the exporter says it has done all writes below `next`, and refused none.
    pub fn heard(&mut self, asking: &mut Asking, next: u64) -> Answer {
        if next > self.next {
            return Answer::Nonsense;
        }
        while self.first < next && self.kept.pop_front().is_some() {
            self.first += 1;
        }
        if next >= asking.end || self.faults.believes_flush {
            return Answer::Done;
        }
        asking.vain = if next > asking.reached { 0 } else { asking.vain + 1 };
        asking.reached = asking.reached.max(next);
        if asking.vain >= MAX_VAIN_ANSWERS { Answer::Vain } else { Answer::Again }
    }

    /// Ends posting for that reason.
    pub fn fail(&mut self, why: F) {
        self.kept.clear();
        self.failed = Some(why);
    }

    /// Succeeds while writes may be posted.
    ///
    /// # Errors
    /// With the reason for which posting was ended.
    pub fn check(&self) -> Result<(), F> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_let_go_and_what_is_lacking_is_sent_again() {
        let mut posts = Posts::<()>::new(Faults::default());
        assert!(posts.ask(0).is_none() && posts.next().is_none());
        posts.opened(7);
        posts.opened(8);
        for number in 0..4 {
            assert_eq!(posts.next(), Some((7, number)));
            posts.left(vec![number as u8]);
        }
        let mut asking = posts.ask(1).unwrap();
        assert_eq!(asking.stream(), 7);
        posts.left(vec![4]);
        assert_eq!(posts.heard(&mut asking, 2), Answer::Again);
        assert_eq!(posts.kept().collect::<Vec<_>>(), [[2], [3], [4]]);
        assert_eq!(posts.heard(&mut asking, 1), Answer::Again, "an older answer");
        assert_eq!(posts.heard(&mut asking, 3), Answer::Done, "the last may lack");
        assert_eq!(posts.heard(&mut asking, 5), Answer::Done, "the last is there, too");
        assert_eq!(posts.heard(&mut asking, 6), Answer::Nonsense);
        assert!(posts.ask(2).is_none());
    }

    #[test]
    fn a_question_for_which_there_was_no_room_is_asked_again() {
        assert!(
            [Kind::Overloaded, Kind::Local, Kind::Deadline, Kind::Cancelled].into_iter().all(may_ask_again)
        );
        assert!(
            ![Kind::Unreachable, Kind::ServerRestarted, Kind::NotExported].into_iter().any(may_ask_again)
        );
    }

    #[test]
    fn it_is_full_at_64_and_given_up_after_100_answers_in_vain() {
        let mut posts = Posts::<&str>::new(Faults::default());
        posts.opened(1);
        for _ in 0..MAX_KEPT {
            assert!(!posts.is_full());
            posts.left(Vec::new());
        }
        assert!(posts.is_full());
        let mut asking = posts.ask(Posts::<&str>::HALF).unwrap();
        assert_eq!(posts.heard(&mut asking, 1), Answer::Again);
        assert!((1..MAX_VAIN_ANSWERS).all(|_| posts.heard(&mut asking, 1) == Answer::Again));
        assert_eq!(posts.heard(&mut asking, 1), Answer::Vain);
        assert_eq!(posts.heard(&mut asking, 32), Answer::Done, "at most half are unacknowledged");
        posts.fail("vain");
        assert_eq!((posts.check(), posts.kept().count()), (Err("vain"), 0));
    }
}
