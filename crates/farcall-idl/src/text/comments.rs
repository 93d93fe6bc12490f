//! Decides which declaration a comment belongs to: the one before it in the same line, or the one after it.

use super::docs;
use super::source::{Sources, Span};

/// The comments between a token and the next.
#[derive(Default)]
pub(crate) struct Comments {
    /// The token before the comments.
    after: Span,
    all: Vec<Span>,
    /// How many of the comments belong to the token before them.
    taken: usize,
}

/// The maximum number of comments between two tokens that are examined.
const MAX_COMMENTS: usize = 256;

impl Comments {
    pub fn begin(&mut self, after: Span) {
        self.after = after;
        self.all.clear();
        self.taken = 0;
    }

    pub fn push(&mut self, comment: Span) {
        if self.all.len() == MAX_COMMENTS {
            self.all.remove(0);
            self.taken = 0;
        }
        self.all.push(comment);
    }

    /// Returns the comments that belong to the token before them: the first begins in that token's line, and
    /// the others follow below in the same column. If the first ends in the line of `next`, there are none.
    fn trailing_spans(&mut self, sources: &Sources, next: Span) -> &[Span] {
        let Some(first) = self.all.first().copied() else { return &[] };
        let line = |at: u32| sources.line(first.file, at);
        let own_line = next.file != first.file || line(next.start) > line(first.end);
        if first.file != self.after.file || line(first.start) != line(self.after.end) || !own_line {
            return &[];
        }
        let column = sources.column(first.file, first.start);
        let together = |pair: &[Span]| {
            pair[1].file == first.file
                && line(pair[1].start) == line(pair[0].end) + 1
                && sources.column(first.file, pair[1].start) == column
        };
        self.taken = 1 + self.all.windows(2).take_while(|pair| together(pair)).count();
        &self.all[..self.taken]
    }

    /// Returns the comments directly above `next`, without a blank line, that do not belong to the token
    /// before.
    fn leading_spans(&self, sources: &Sources, next: Span) -> &[Span] {
        let left = &self.all[self.taken..];
        let (mut begin, mut below) = (left.len(), next);
        for (place, comment) in left.iter().enumerate().rev() {
            let near = comment.file == below.file
                && sources.line(below.file, below.start) <= sources.line(below.file, comment.end) + 1;
            if !near {
                break;
            }
            (begin, below) = (place, *comment);
        }
        &left[begin..]
    }

    /// Returns the text of the comments before `next`, without those that belong to the token before them.
    pub fn leading(&mut self, sources: &Sources, next: Span) -> String {
        self.trailing_spans(sources, next);
        docs::clean(self.leading_spans(sources, next).iter().map(|span| sources.text(*span)))
    }

    /// Returns the text of the comments that belong to the token before them.
    pub fn trailing(&mut self, sources: &Sources, next: Span) -> String {
        docs::clean(self.trailing_spans(sources, next).iter().map(|span| sources.text(*span)))
    }
}
