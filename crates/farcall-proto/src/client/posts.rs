//! Posted writes at the importer, which keeps those that the exporter has not acknowledged
//! (docs/memory-protocol.md, "Posted writes").
//!
//! The exporter does the writes of a stream in order, so its answer is one number: what it has done is let go, and if it lacks what
//! had left before it was asked, that and all behind it is sent again (go-back-N: the exporter keeps nothing of what came too early).

use std::collections::VecDeque;

use crate::{Kind, Mutant, Rule};

/// The writes that one import has posted. `F` is why nothing more is.
#[derive(Debug)]
pub struct Posts<F> {
    mutant: Mutant,
    /// None before the first.
    stream: Option<u64>,
    /// The number of the write that is posted next.
    next: u64,
    /// Those that are not acknowledged, the first one's number, and each as it is sent.
    first: u64,
    kept: VecDeque<Vec<u8>>,
    /// Nobody is to believe that what was posted before was written.
    failed: Option<F>,
}

/// So many writes may be unacknowledged.
const MOST: usize = 64;
/// After so many answers in a row by which nothing was done nothing will be.
const VAIN: u32 = 100;

/// Who asks until all is done that had left before.
#[derive(Debug)]
pub struct Asking {
    stream: u64,
    /// The first write that need not be done.
    end: u64,
    /// How far it had come at the last answer, and how often it has not come further.
    reached: u64,
    vain: u32,
}

/// Whether a question that failed so may be asked again: who has no time left, or was not served this time, has lost nothing yet.
pub fn may_ask_again(why: Kind) -> bool {
    matches!(why, Kind::Deadline | Kind::Cancelled | Kind::Local | Kind::Overloaded)
}

impl Asking {
    /// The stream that is asked about.
    pub fn stream(&self) -> u64 {
        self.stream
    }
}

/// What an answer means to who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All that had left before is done.
    Done,
    /// Something is lacking: all that is [kept](Posts::kept) is to be sent again, then asked once more.
    Again,
    /// A write is lacking at the exporter, and so many answers in a row reported no progress that none is
    /// expected.
    Vain,
    /// The exporter has done more than was posted.
    Nonsense,
}

impl<F: Clone> Posts<F> {
    /// Nothing was posted yet.
    pub fn new(mutant: Mutant) -> Posts<F> {
        Posts { mutant, stream: None, next: 0, first: 0, kept: VecDeque::new(), failed: None }
    }

    /// A stream was opened for it. Another may have been before; then nobody uses this one.
    pub fn opened(&mut self, stream: u64) {
        self.stream.get_or_insert(stream);
    }

    /// The stream, and the number that the next write has in it.
    pub fn next(&self) -> Option<(u64, u64)> {
        Some((self.stream?, self.next))
    }

    /// Whether as many are unacknowledged as may be: who posts more asks first, until no more than [half](Posts::HALF) are.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= MOST
    }

    /// See [`Posts::is_full`].
    pub const HALF: usize = MOST / 2;

    /// The next write has left, as that.
    pub fn left(&mut self, post: Vec<u8>) {
        self.next += 1;
        self.kept.push_back(post);
    }

    /// What is not known to be done, in order.
    pub fn kept(&self) -> impl Iterator<Item = &[u8]> {
        self.kept.iter().map(|post| &post[..])
    }

    /// What is to be asked until no more than `most` are unacknowledged of those that were posted before, if anything is.
    pub fn ask(&self, most: usize) -> Option<Asking> {
        let end = self.next.saturating_sub(most as u64);
        let asking = |stream| Asking { stream, end, reached: self.first, vain: 0 };
        self.stream.filter(|_| self.first < end).map(asking)
    }

    /// The exporter has done all writes below `next`, it says, and refused none.
    pub fn heard(&mut self, asking: &mut Asking, next: u64) -> Answer {
        if next > self.next {
            return Answer::Nonsense;
        }
        while self.first < next && self.kept.pop_front().is_some() {
            self.first += 1;
        }
        if next >= asking.end || self.mutant.breaks(Rule::FlushBelieves) {
            return Answer::Done;
        }
        asking.vain = if next > asking.reached { 0 } else { asking.vain + 1 };
        asking.reached = asking.reached.max(next);
        if asking.vain >= VAIN { Answer::Vain } else { Answer::Again }
    }

    /// Nothing more is posted.
    pub fn fail(&mut self, why: F) {
        self.kept.clear();
        self.failed = Some(why);
    }

    /// Why nothing more is posted, if that is so.
    ///
    /// # Errors
    /// With that.
    pub fn check(&self) -> Result<(), F> {
        self.failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_is_let_go_and_what_is_lacking_is_sent_again() {
        let mut posts = Posts::<()>::new(Mutant::NONE);
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
        let mut posts = Posts::<&str>::new(Mutant::NONE);
        posts.opened(1);
        for _ in 0..MOST {
            assert!(!posts.is_full());
            posts.left(Vec::new());
        }
        assert!(posts.is_full());
        let mut asking = posts.ask(Posts::<&str>::HALF).unwrap();
        assert_eq!(posts.heard(&mut asking, 1), Answer::Again);
        assert!((1..VAIN).all(|_| posts.heard(&mut asking, 1) == Answer::Again));
        assert_eq!(posts.heard(&mut asking, 1), Answer::Vain);
        assert_eq!(posts.heard(&mut asking, 32), Answer::Done, "at most half are unacknowledged");
        posts.fail("vain");
        assert_eq!((posts.check(), posts.kept().count()), (Err("vain"), 0));
    }
}
