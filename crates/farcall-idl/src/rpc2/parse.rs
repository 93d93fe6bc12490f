//! Parses tokens into declarations: the grammar of `rp2gen`. Its words are the same in upper and lower case.

use super::Options;
use super::scan::unquoted;
use super::syntax::{self, *};
use super::tokens::Tokens;
use crate::text::reader::{self, Reader, State};
use crate::text::scan::{Kind, Token};
use crate::text::source::{Sources, Span};

/// The words of the language, which cannot be names.
const KEYWORDS: [&str; 13] = [
    "#define",
    "client",
    "in",
    "new_connection",
    "out",
    "prefix",
    "rpc2_enum",
    "rpc2_struct",
    "server",
    "subsystem",
    "timeout",
    "typedef",
    "#include",
];

/// Parses the text at that index of `sources`, with the files that it includes.
pub(super) fn parse(sources: &mut Sources, file: u32, options: &Options) -> reader::Parsed<syntax::Parsed> {
    let mut parser = Parser { tokens: Tokens::new(sources, file, options), state: State::new() };
    parser.advance()?;
    parser.file()
}

struct Parser<'s> {
    tokens: Tokens<'s>,
    state: State,
}

impl Reader for Parser<'_> {
    const FILE: &'static str = "a `.rpc2` file";

    fn next(&mut self) -> reader::Parsed<Token> {
        self.tokens.next()
    }

    fn sources(&self) -> &Sources {
        self.tokens.sources
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Parser<'_> {
    fn file(mut self) -> reader::Parsed<syntax::Parsed> {
        // A prefix distinguishes the C functions of a client and a server in one program. In Rust, client and
        // server have different types, so nothing becomes of it.
        while self.at_word("server") || self.at_word("client") {
            self.advance()?;
            self.keyword("prefix")?;
            self.string("a prefix in quotes")?;
            self.expect(b';')?;
        }
        let subsystem = self.subsystem()?;
        let timeout = self.timeout()?;
        if timeout.is_some() {
            self.expect(b';')?;
        }
        let mut declarations = Vec::new();
        while self.state.token.kind != Kind::End {
            declarations.push(self.declaration()?);
        }
        Ok(syntax::Parsed { subsystem, timeout, declarations, numbers: self.tokens.numbers })
    }

    fn subsystem(&mut self) -> reader::Parsed<Option<Subsystem>> {
        let docs = self.leading_docs();
        if !self.takes_word("subsystem")? {
            return Ok(None);
        }
        let at = self.state.token.at;
        let text = self.string("the subsystem's name in quotes")?;
        let numbers = match self.at(b';') {
            true => None,
            false => Some((
                self.number("the subsystem's number or `;`")?,
                self.number("the number of the protocol's version")?,
            )),
        };
        self.expect(b';')?;
        Ok(Some(Subsystem { name: Name { text, at, docs }, numbers }))
    }

    fn declaration(&mut self) -> reader::Parsed<Declaration> {
        let docs = self.leading_docs();
        self.count()?;
        if self.takes_word("#define")? {
            return self.define(docs);
        }
        if self.takes_word("typedef")? {
            return self.typedef(docs);
        }
        self.procedure(docs)
    }

    fn define(&mut self, docs: String) -> reader::Parsed<Declaration> {
        let mut name = self.identifier("a constant's name", docs)?;
        let value = match self.state.token.kind {
            Kind::Text => Value::Text(self.string("a text")?),
            Kind::Number => Value::Number(self.number("a number")?),
            _ => return Err(self.wrong("a number or a text in quotes should stand here")),
        };
        self.trailing_docs(&mut name.docs);
        Ok(Declaration::Define(name, value))
    }

    fn typedef(&mut self, docs: String) -> reader::Parsed<Declaration> {
        let body = if self.takes_word("rpc2_struct")? {
            Body::Struct(self.fields()?)
        } else if self.takes_word("rpc2_enum")? {
            Body::Enum(self.enumerators()?)
        } else {
            Body::Named(self.reference()?)
        };
        let mut name = self.identifier("the new type's name", docs)?;
        let bound = match self.takes(b'[')? {
            true => Some(self.number("the number of bytes")?),
            false => None,
        };
        if bound.is_some() {
            self.expect(b']')?;
        }
        self.end(&mut name.docs)?;
        Ok(Declaration::Typedef(Typedef { name, body, bound }))
    }

    fn fields(&mut self) -> reader::Parsed<Vec<Group>> {
        self.expect(b'{')?;
        let mut groups = Vec::new();
        loop {
            let docs = self.leading_docs();
            let ty = self.reference()?;
            self.count()?;
            // The comment belongs to the first of the names.
            let mut first = self.identifier("a field's name", docs)?;
            let mut others = Vec::new();
            while self.takes(b',')? {
                self.count()?;
                others.push(self.identifier("a field's name", String::new())?);
            }
            self.end(&mut first.docs)?;
            let names = std::iter::once(first).chain(others).collect();
            groups.push(Group { ty, names });
            if self.takes(b'}')? {
                return Ok(groups);
            }
        }
    }

    fn enumerators(&mut self) -> reader::Parsed<Vec<(Name, Number)>> {
        self.expect(b'{')?;
        let mut enumerators = Vec::new();
        loop {
            let docs = self.leading_docs();
            self.count()?;
            let mut name = self.identifier("an enumerator's name", docs)?;
            self.expect(b'=')?;
            if self.state.token.kind != Kind::Number {
                return Err(self.wrong("the enumerator's number should stand here"));
            }
            let number = self.number("a number")?;
            self.trailing_docs(&mut name.docs);
            let more = self.takes(b',')?;
            if more {
                self.trailing_docs(&mut name.docs);
            }
            enumerators.push((name, number));
            if !more {
                break;
            }
        }
        match self.takes(b'}')? {
            true => Ok(enumerators),
            false => Err(self.wrong("`,` or `}` should stand here")),
        }
    }

    /// Parses `opcode: name (parameters) timeout (seconds) NEW_CONNECTION;`.
    fn procedure(&mut self, docs: String) -> reader::Parsed<Declaration> {
        let opcode = match self.state.token.kind {
            Kind::Number => Some(self.number("an opcode")?),
            _ => None,
        };
        if opcode.is_some() {
            self.expect(b':')?;
        }
        let mut name = self.identifier("`typedef`, `#define` or a procedure's name", docs)?;
        let parameters = self.parameters()?;
        let timeout = self.timeout()?;
        let at = self.state.token.at;
        let new_connection = self.takes_word("new_connection")?.then_some(at);
        self.end(&mut name.docs)?;
        Ok(Declaration::Procedure(Procedure { name, opcode, parameters, timeout, new_connection }))
    }

    fn parameters(&mut self) -> reader::Parsed<Vec<Parameter>> {
        self.expect(b'(')?;
        let mut parameters = Vec::new();
        if self.takes(b')')? {
            return Ok(parameters);
        }
        loop {
            self.count()?;
            let usage = self.usage()?;
            let ty = self.reference()?;
            let name = self.identifier("a parameter's name", String::new())?;
            let is_array = self.takes(b'[')?;
            if is_array {
                self.expect(b']')?;
            }
            parameters.push(Parameter { usage, ty, name, is_array });
            if self.takes(b')')? {
                return Ok(parameters);
            }
            if !self.takes(b',')? {
                return Err(self.wrong("`,` or `)` should stand here"));
            }
        }
    }

    fn usage(&mut self) -> reader::Parsed<Usage> {
        if self.takes_word("out")? {
            return Ok(Usage::Out);
        }
        if !self.takes_word("in")? {
            return Err(self.wrong("`IN`, `OUT` or `IN OUT` should stand here"));
        }
        Ok(if self.takes_word("out")? { Usage::InOut } else { Usage::In })
    }

    /// Parses `timeout (seconds)` if it comes next.
    fn timeout(&mut self) -> reader::Parsed<Option<Number>> {
        if !self.takes_word("timeout")? {
            return Ok(None);
        }
        self.expect(b'(')?;
        let seconds = self.number("a number of seconds")?;
        self.expect(b')')?;
        Ok(Some(seconds))
    }

    fn reference(&mut self) -> reader::Parsed<Reference> {
        let Name { text, at, .. } = self.identifier("a type", String::new())?;
        Ok(Reference { name: text, at })
    }

    /// Parses a number or the name of one.
    fn number(&mut self, what: &str) -> reader::Parsed<Number> {
        if self.state.token.kind == Kind::Number {
            let number = Number { at: self.state.token.at, text: self.text().to_owned() };
            self.advance()?;
            return Ok(number);
        }
        let Name { text, at, .. } = self.identifier(what, String::new())?;
        Ok(Number { at, text })
    }

    fn string(&mut self, what: &str) -> reader::Parsed<String> {
        if self.state.token.kind != Kind::Text {
            return Err(self.wrong(format!("{what} should stand here")));
        }
        let text = unquoted(self.text());
        self.advance()?;
        Ok(text)
    }

    /// Parses a name that is no word of the language.
    fn identifier(&mut self, what: &str, docs: String) -> reader::Parsed<Name> {
        let word = self.word().to_ascii_lowercase();
        if KEYWORDS.contains(&word.as_str()) || word.starts_with('#') {
            let why = format!("{what} should stand here, and `{}` is a keyword", self.text());
            return Err(self.wrong(why));
        }
        self.name(what, docs)
    }

    fn keyword(&mut self, word: &str) -> reader::Parsed<()> {
        match self.takes_word(word)? {
            true => Ok(()),
            false => Err(self.wrong(format!("`{word}` should stand here"))),
        }
    }

    fn at_word(&self, word: &str) -> bool {
        self.word().eq_ignore_ascii_case(word)
    }

    fn takes_word(&mut self, word: &str) -> reader::Parsed<bool> {
        let found = self.at_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }
}

/// Returns the span of a parameter: from its type to its name.
pub(super) fn span_of(Parameter { ty, name, .. }: &Parameter) -> Span {
    ty.at.to(name.at)
}
