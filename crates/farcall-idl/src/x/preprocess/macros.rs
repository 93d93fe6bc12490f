//! `#define`: stores macros, and replaces their uses.

use farcall_base::work;

use super::{Number, Preprocessor, meant};
use crate::text::diagnostic::Diagnostic;
use crate::text::scan::{Kind, Token};

/// The maximum number of tokens that macros produce in one run.
const MAX_EXPANDED: usize = 1 << 16;
/// The maximum number of arguments of a macro.
const MAX_ARGUMENTS: usize = 32;

/// The definition of a macro.
pub(super) struct Macro {
    /// The parameters, if the macro takes arguments.
    pub parameters: Option<Vec<String>>,
    pub body: Vec<Token>,
    /// The number, if the macro stands for one.
    number: Option<Number>,
}

/// Something that is to be read before the rest of the file.
pub(super) enum Pending {
    Token(Token),
    /// The end of this macro's replacement.
    Leave(String),
}

impl Macro {
    /// Returns the number that the macro stands for, if it does.
    pub fn value(&self) -> Option<i128> {
        self.number.as_ref().map(|number| number.value)
    }
}

impl Preprocessor<'_> {
    /// Executes `#define`, with the rest of its line.
    pub(super) fn define(&mut self, line: &[Token]) -> Result<(), Diagnostic> {
        let mut rest = meant(line).copied().collect::<Vec<_>>().into_iter().peekable();
        let Some(name) = rest.next().filter(|token| token.kind == Kind::Word) else {
            let at = line.first().map_or(Default::default(), |token| token.at);
            return self.refuse(at, "a macro's name should stand here");
        };
        let mut parameters = None;
        if rest.next_if(|token| token.kind == Kind::Mark(b'(') && token.text.start == name.text.end).is_some()
        {
            let inside: Vec<Token> =
                rest.by_ref().take_while(|token| token.kind != Kind::Mark(b')')).collect();
            let words = inside.iter().filter(|token| token.kind == Kind::Word);
            parameters =
                Some(words.map(|token| self.sources.text(token.text).to_owned()).collect::<Vec<_>>());
            if parameters.as_ref().is_some_and(|all| all.len() > MAX_ARGUMENTS) {
                return self.refuse(name.at, format!("a macro has at most {MAX_ARGUMENTS} parameters"));
            }
        }
        let body: Vec<Token> = rest.collect();
        let value = if parameters.is_none() { self.number(&body) } else { None };
        self.check_computed(name.at)?;
        let comment = line.iter().rev().find(|token| token.kind == Kind::Comment).map(|token| token.text);
        let number = value.map(|value| Number { value, at: name.at, comment });
        self.macros.insert(self.sources.text(name.text).to_owned(), Macro { parameters, body, number });
        Ok(())
    }

    /// Notes the macro of a `%#define` line. The line is for C, but the file can use the name too.
    pub(super) fn note(&mut self, line: &[Token]) {
        let mut rest = meant(line).copied();
        let Some(name) = rest.next().filter(|token| token.kind == Kind::Word) else { return };
        let body: Vec<Token> = rest.collect();
        if body.first().is_some_and(|first| first.text.start > name.text.end) {
            self.noted.push((name, body));
        }
    }

    /// Replaces the pending tokens by these.
    pub fn put(&mut self, tokens: &[Token]) {
        self.pending.clear();
        self.active.clear();
        self.pending.extend(tokens.iter().rev().map(|token| Pending::Token(*token)));
    }

    /// Executes `#undef`.
    pub(super) fn undefine(&mut self, line: &[Token]) {
        if let Some(name) = meant(line).next() {
            self.macros.remove(self.sources.text(name.text));
        }
    }

    pub(super) fn next_pending(&mut self) -> Option<Token> {
        loop {
            match self.pending.pop()? {
                Pending::Token(token) => return Some(token),
                Pending::Leave(name) => self.active.remove(&name),
            };
        }
    }

    /// Replaces a use of a macro. Returns false if the word is not a macro or is not replaced.
    pub(super) fn replace(&mut self, token: &Token) -> Result<bool, Diagnostic> {
        let name = self.sources.text(token.text).to_owned();
        let Some(known) = self.macros.get(&name).filter(|_| !self.active.contains(&name)) else {
            return Ok(false);
        };
        if let Some(number) = &known.number {
            let first = self.numbers.entry(name.clone()).or_insert_with(|| number.clone());
            // If the name stood for another number earlier in the file, it cannot become a constant, so it is
            // replaced by the number.
            if first.value == number.value {
                return Ok(false);
            }
        }
        let body = match known.parameters.clone() {
            None => {
                let body = known.body.clone();
                self.substituted(token, &body, None)?
            }
            Some(_) if !self.called() => return Ok(false),
            Some(parameters) => {
                let body = known.body.clone();
                let arguments = self.arguments(token)?;
                self.substituted(token, &body, Some((&parameters, &arguments)))?
            }
        };
        self.count_expanded(token, body.len() + 1)?;
        self.active.insert(name.clone());
        self.pending.push(Pending::Leave(name));
        let placed = body.into_iter().map(|each| Token { at: token.at, first: false, ..each });
        self.pending.extend(placed.rev().map(Pending::Token));
        Ok(true)
    }

    /// Returns whether `(` comes next.
    fn called(&self) -> bool {
        let pending = self.pending.iter().rev().find_map(|each| match each {
            Pending::Token(token) => Some(token.kind),
            Pending::Leave(_) => None,
        });
        let next = pending.or_else(|| {
            let mut ahead = self.files.last()?.scanner.clone();
            std::iter::repeat_with(|| ahead.next().kind).find(|kind| *kind != Kind::Comment)
        });
        let next = if self.within_arguments > 0 { pending } else { next };
        next == Some(Kind::Mark(b'('))
    }

    /// Returns the tokens between the parentheses, divided at the commas.
    fn arguments(&mut self, name: &Token) -> Result<Vec<Vec<Token>>, Diagnostic> {
        let mut arguments = vec![Vec::new()];
        let mut open = 0u32;
        loop {
            let token = match self.next_pending() {
                Some(token) => token,
                None if self.within_arguments > 0 => Token { kind: Kind::End, ..*name },
                None => self.files.last_mut().map_or(*name, |file| file.scanner.next()),
            };
            match token.kind {
                Kind::Comment | Kind::Passed => continue,
                Kind::End => {
                    return self.refuse(name.at, "the `)` after the arguments of this macro is missing");
                }
                Kind::Mark(b'(') => open += 1,
                Kind::Mark(b')') => open -= 1,
                _ => {}
            }
            match token.kind {
                Kind::Mark(b')') if open == 0 => return Ok(arguments),
                Kind::Mark(b'(') if open == 1 => {}
                Kind::Mark(b',') if open == 1 && arguments.len() < MAX_ARGUMENTS => {
                    arguments.push(Vec::new())
                }
                _ => arguments.last_mut().into_iter().for_each(|last| last.push(token)),
            }
        }
    }

    /// Counts the tokens that macros produce, and refuses too many.
    pub(super) fn count_expanded(&mut self, at: &Token, tokens: usize) -> Result<(), Diagnostic> {
        work::steps(tokens);
        self.expanded = self.expanded.saturating_add(tokens);
        if self.expanded <= MAX_EXPANDED {
            return Ok(());
        }
        self.refuse(at.at, format!("macros expand to more than {MAX_EXPANDED} tokens"))
    }
}
