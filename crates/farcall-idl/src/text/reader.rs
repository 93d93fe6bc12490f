//! What the parsers of all languages do alike: they look one token ahead, expect punctuation, read names, and
//! give each declaration its comments.

use super::comments::Comments;
use super::diagnostic::Diagnostic;
use super::scan::{Kind, Token};
use super::source::{Sources, Span};

/// The maximum depth to which types, namespaces and expressions nest.
pub(crate) const MAX_DEPTH: u32 = 64;
/// The maximum number of declarations in one run. Constants, types, fields, enumerators and procedures count.
const MAX_DECLARED: usize = 1 << 18;
/// The maximum length of a name in bytes.
const MAX_NAME: usize = 1024;

pub(crate) type Parsed<T> = Result<T, Diagnostic>;

/// The name of a declaration.
#[derive(Clone, Default)]
pub(crate) struct Name {
    pub text: String,
    pub at: Span,
    pub docs: String,
}

/// The place that a parser has reached.
pub(crate) struct State {
    /// The next token.
    pub token: Token,
    /// The end of the previous token.
    pub before: Span,
    comments: Comments,
    depth: u32,
    declared: usize,
}

impl State {
    /// Returns the state before the first token.
    pub fn new() -> State {
        // There is no token before the first one, so no comment belongs to it.
        let nowhere = Span { file: u32::MAX, start: 0, end: 0 };
        let token = Token { kind: Kind::End, text: nowhere, at: nowhere, first: true };
        State { token, before: nowhere, comments: Comments::default(), depth: 0, declared: 0 }
    }
}

/// A parser of tokens.
pub(crate) trait Reader {
    /// How messages call a file of the language: "an `.x` file".
    const FILE: &'static str;

    /// Returns the token after the next one, which may be a comment.
    fn next(&mut self) -> Parsed<Token>;
    fn sources(&self) -> &Sources;
    fn state(&self) -> &State;
    fn state_mut(&mut self) -> &mut State;

    /// Counts a declaration: a constant, a type, a field, an enumerator or a procedure.
    fn count(&mut self) -> Parsed<()> {
        self.state_mut().declared += 1;
        if self.state().declared > MAX_DECLARED {
            Err(self.wrong(format!("more than {MAX_DECLARED} declarations")))
        } else {
            Ok(())
        }
    }

    /// Counts a level of nesting. [`Reader::shallower`] ends it.
    fn deeper(&mut self) -> Parsed<()> {
        self.state_mut().depth += 1;
        if self.state().depth > MAX_DEPTH {
            Err(self.wrong(format!("nested more than {MAX_DEPTH} deep")))
        } else {
            Ok(())
        }
    }

    /// Ends the level of nesting that [`Reader::deeper`] began.
    fn shallower(&mut self) {
        self.state_mut().depth -= 1;
    }

    /// Parses `;` and the comment after it.
    fn end(&mut self, docs: &mut String) -> Parsed<()> {
        self.trailing_docs(docs);
        self.expect(b';')?;
        self.trailing_docs(docs);
        Ok(())
    }

    /// Moves to the next token that is not a comment.
    fn advance(&mut self) -> Parsed<()> {
        let before = self.state().token.at;
        self.state_mut().before = before;
        self.state_mut().comments.begin(before);
        loop {
            let token = self.next()?;
            let state = self.state_mut();
            if token.kind != Kind::Comment {
                state.token = token;
                return Ok(());
            }
            state.comments.push(token.text);
        }
    }

    /// Returns the next token's characters.
    fn text(&self) -> &str {
        self.sources().text(self.state().token.text)
    }

    /// Returns the next token if it is a word.
    fn word(&self) -> &str {
        if self.state().token.kind == Kind::Word { self.text() } else { "" }
    }

    /// Returns whether the next token is this punctuation character.
    fn at(&self, mark: u8) -> bool {
        self.state().token.kind == Kind::Mark(mark)
    }

    /// Skips this punctuation character if it comes next, and returns whether it did.
    fn takes(&mut self, mark: u8) -> Parsed<bool> {
        let found = self.at(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Skips this punctuation character, which must come next.
    fn expect(&mut self, mark: u8) -> Parsed<()> {
        if self.takes(mark)? {
            return Ok(());
        }
        let what = format!("`{}` should stand here", char::from(mark));
        let (sources, before, at) = (self.sources(), self.state().before, self.state().token.at);
        let line = |at: u32| sources.line(before.file, at);
        if self.state().token.kind == Kind::Stray
            || before.file != at.file
            || line(before.end) == line(at.start)
        {
            return Err(self.wrong(what));
        }
        // A missing `;` is reported at the end of the line that lacks it.
        let end = Span { start: before.end, ..before };
        Err(Diagnostic::new(sources, end, what))
    }

    /// Parses a name. `what` says what it names, for the message if there is no name.
    fn name(&mut self, what: &str, docs: String) -> Parsed<Name> {
        if self.state().token.kind != Kind::Word {
            return Err(self.wrong(format!("{what} should stand here")));
        }
        if self.text().len() > MAX_NAME {
            return Err(self.wrong(format!("a name has at most {MAX_NAME} characters")));
        }
        let name = Name { text: self.text().to_owned(), at: self.state().token.at, docs };
        self.advance()?;
        Ok(name)
    }

    /// Fails with a message about the tokens at `at`.
    fn refuse<T>(&self, at: Span, why: impl Into<String>) -> Parsed<T> {
        Err(Diagnostic::new(self.sources(), at, why))
    }

    /// Returns a message about the next token.
    fn wrong(&self, what: impl Into<String>) -> Diagnostic {
        let sources = self.sources();
        let what = match (self.state().token.kind, sources.text(self.state().token.text)) {
            (Kind::Stray, text) if text.starts_with("/*") => "this comment has no end".to_owned(),
            (Kind::Stray, "\"" | "'") => "this quote is not closed in its line".to_owned(),
            (Kind::Stray, _) => format!("this character cannot stand in {}", Self::FILE),
            (Kind::End, _) => format!("{}, but the file ends", what.into()),
            _ => what.into(),
        };
        Diagnostic::new(sources, self.state().token.at, what)
    }

    /// Returns the text of the comments before the next token.
    fn leading_docs(&mut self) -> String {
        self.docs(Comments::leading)
    }

    /// Adds the text of the comments that belong to the last token.
    fn trailing_docs(&mut self, docs: &mut String) {
        let more = self.docs(Comments::trailing);
        if !docs.is_empty() && !more.is_empty() {
            docs.push_str("\n\n");
        }
        docs.push_str(&more);
    }

    /// Returns the text that `of` selects from the comments between the last token and the next.
    fn docs(&mut self, of: fn(&mut Comments, &Sources, Span) -> String) -> String {
        let mut comments = std::mem::take(&mut self.state_mut().comments);
        let docs = of(&mut comments, self.sources(), self.state().token.at);
        self.state_mut().comments = comments;
        docs
    }
}
