//! Which comment belongs to what: one before it, or one after it in the same line.

use super::super::docs;
use super::Parser;
use crate::text::source::{Sources, Span};

/// The comments between a token and the next.
#[derive(Default)]
pub(super) struct Comments {
    /// The token before them.
    after: Span,
    all: Vec<Span>,
    /// How many of them were taken as belonging to what is before.
    taken: usize,
}

/// So many comments are looked at; more of them between two tokens mean nothing.
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

    /// Those that begin in the line of the token before, and go on below in the same column; not if `next`
    /// stands in that line.
    fn trailing(&mut self, sources: &Sources, next: Span) -> &[Span] {
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

    /// Those that stand directly above `next`, no blank line between, and were not taken by what is before.
    fn leading(&self, sources: &Sources, next: Span) -> &[Span] {
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
}

impl Parser<'_, '_> {
    /// What the comments before the next token say.
    pub(super) fn leading_docs(&mut self) -> String {
        let sources = &*self.preprocessor.sources;
        self.comments.trailing(sources, self.token.at);
        docs::clean(self.comments.leading(sources, self.token.at).iter().map(|span| sources.text(*span)))
    }

    /// Adds what the comments in the line of the last token say.
    pub(super) fn trailing_docs(&mut self, docs: &mut String) {
        let sources = &*self.preprocessor.sources;
        let more = docs::clean(
            self.comments.trailing(sources, self.token.at).iter().map(|span| sources.text(*span)),
        );
        if !docs.is_empty() && !more.is_empty() {
            docs.push_str("\n\n");
        }
        docs.push_str(&more);
    }
}
