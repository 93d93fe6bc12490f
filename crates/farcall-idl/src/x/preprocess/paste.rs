//! Makes the replacement of a macro: its body, with arguments inserted, quoted (`#`) and pasted (`##`) as in
//! C (ISO/IEC 9899 section 6.10.3).

use super::Preprocessor;
use super::macros::Pending;
use crate::text::diagnostic::Diagnostic;
use crate::text::scan::{Kind, Scanner, Token};

/// The maximum depth to which macros nest in the arguments of macros.
const MAX_DEPTH: u32 = 32;
/// The maximum length of a word that `##` makes, in bytes.
const MAX_PASTED: usize = 1 << 10;

/// The names of a macro's parameters, each with its argument.
type Arguments<'a> = (&'a [String], &'a [Vec<Token>]);

impl Preprocessor<'_> {
    /// Returns the replacement of the macro `name`. `arguments` is `None` for a macro without parameters.
    pub(super) fn substituted(
        &mut self,
        name: &Token,
        body: &[Token],
        arguments: Option<Arguments<'_>>,
    ) -> Result<Vec<Token>, Diagnostic> {
        let mut out: Vec<Token> = Vec::new();
        // Whether the left operand of the next `##` is an argument without tokens.
        let mut left_is_empty = true;
        let mut at = 0;
        while at < body.len() {
            let pastes = at > 0 && self.is_paste(body, at);
            if pastes {
                at += 2;
            }
            let Some(token) = body.get(at) else {
                return self.refuse(name.at, "there is nothing after `##` in this macro");
            };
            let as_written = pastes || self.is_paste(body, at + 1);
            let (mut piece, taken) = self.piece(name, body, at, token, arguments, as_written)?;
            at += taken;
            let right_is_empty = piece.is_empty();
            if pastes
                && !left_is_empty
                && let Some(first) = piece.first_mut()
                && let Some(last) = out.pop()
            {
                *first = self.pasted(name, last, *first)?;
            }
            out.extend(piece);
            left_is_empty = right_is_empty && (left_is_empty || !pastes);
            self.count_expanded(name, 1)?;
        }
        Ok(out)
    }

    /// Returns the replacement of the next token of a body, and how many tokens of the body were used: two
    /// for `#` with its argument, otherwise one. If `as_written`, because `##` stands next to it, an argument
    /// is inserted as it is written. Otherwise the macros in it are replaced first.
    fn piece(
        &mut self,
        name: &Token,
        body: &[Token],
        at: usize,
        token: &Token,
        arguments: Option<Arguments<'_>>,
        as_written: bool,
    ) -> Result<(Vec<Token>, usize), Diagnostic> {
        if token.kind == Kind::Mark(b'#') && arguments.is_some() {
            let argument = body.get(at + 1).and_then(|next| self.argument(next, arguments));
            let Some(argument) = argument else {
                return self.refuse(name.at, "`#` in this macro does not stand before an argument");
            };
            let quoted = self.quoted(name, argument)?;
            return Ok((vec![quoted], 2));
        }
        let piece = match self.argument(token, arguments) {
            None => vec![*token],
            Some(argument) if as_written => argument.to_vec(),
            Some(argument) => self.replaced(name, argument)?,
        };
        self.count_expanded(name, piece.len())?;
        Ok((piece, 1))
    }

    /// Returns whether `##` is at this position.
    fn is_paste(&self, body: &[Token], at: usize) -> bool {
        match body.get(at..at + 2) {
            Some([a, b]) => {
                a.kind == Kind::Mark(b'#') && b.kind == Kind::Mark(b'#') && a.text.end == b.text.start
            }
            _ => false,
        }
    }

    /// Returns the argument of a parameter. A missing argument is empty.
    fn argument<'a>(&self, token: &Token, arguments: Option<Arguments<'a>>) -> Option<&'a [Token]> {
        let (names, given) = arguments?;
        let is_it = |name: &String| token.kind == Kind::Word && name == self.sources.text(token.text);
        let place = names.iter().position(is_it)?;
        Some(given.get(place).map_or(&[], Vec::as_slice))
    }

    /// Returns an argument with its macros replaced, without regard to what follows it.
    fn replaced(&mut self, name: &Token, argument: &[Token]) -> Result<Vec<Token>, Diagnostic> {
        if self.within_arguments >= MAX_DEPTH {
            return self.refuse(name.at, "macros within arguments of macros are nested too deep");
        }
        let rest = std::mem::take(&mut self.pending);
        self.pending.extend(argument.iter().rev().map(|token| Pending::Token(*token)));
        self.within_arguments += 1;
        let mut out = Vec::new();
        let mut fault = None;
        while let Some(token) = self.next_pending() {
            let replaced = if token.kind == Kind::Word { self.replace(&token) } else { Ok(false) };
            match replaced {
                Ok(true) => {}
                Ok(false) => out.push(token),
                Err(why) => {
                    fault = Some(why);
                    break;
                }
            }
        }
        self.within_arguments -= 1;
        self.pending = rest;
        fault.map_or(Ok(out), Err)
    }

    /// Pastes two tokens into one.
    fn pasted(&mut self, name: &Token, left: Token, right: Token) -> Result<Token, Diagnostic> {
        let text = format!("{}{}", self.sources.text(left.text), self.sources.text(right.text));
        let span = if text.len() > MAX_PASTED { None } else { self.sources.paste(&text) };
        if let Some(span) = span {
            let mut scanner = Scanner::of(span, &self.sources.get(span.file).text);
            let (token, after) = (scanner.next(), scanner.next());
            if after.kind == Kind::End && !matches!(token.kind, Kind::Comment | Kind::Stray | Kind::End) {
                return Ok(Token { at: name.at, first: false, ..token });
            }
        }
        let shown: String = text.chars().take(64).collect();
        self.refuse(name.at, format!("`##` makes `{shown}` of two words, which is not a valid word"))
    }

    /// Returns an argument as a text in quotes.
    fn quoted(&mut self, name: &Token, argument: &[Token]) -> Result<Token, Diagnostic> {
        let mut text = String::from("\"");
        let mut end = None;
        for token in argument {
            if end.is_some_and(|end| end != (token.text.file, token.text.start)) {
                text.push(' ');
            }
            end = Some((token.text.file, token.text.end));
            let written = self.sources.text(token.text);
            match token.kind {
                Kind::Text | Kind::Character => text += &written.replace('\\', "\\\\").replace('"', "\\\""),
                _ => text += written,
            }
            if text.len() > MAX_PASTED {
                break;
            }
        }
        text.push('"');
        let span = if text.len() > MAX_PASTED { None } else { self.sources.paste(&text) };
        let Some(span) = span else {
            return self.refuse(name.at, "`#` in this macro makes a text that is too long");
        };
        Ok(Token { kind: Kind::Text, text: span, at: name.at, first: false })
    }
}
