//! Parses tokens into declarations: the grammar of the Courier standard as the compilers of 4.3BSD and 4.4BSD
//! have it. `PROGRAM` without numbers is Cooper's form.

use super::scan::{FORMS, number, unquoted};
use super::syntax::*;
use crate::language::tree::Type;
use crate::text::reader::{Parsed, Reader, State};
use crate::text::scan::{Kind, Token};
use crate::text::simple_scan::SimpleScanner;
use crate::text::source::Sources;

/// The words of the language, which cannot be names.
pub(super) const KEYWORDS: [&str; 24] = [
    "ARRAY",
    "BEGIN",
    "BOOLEAN",
    "CARDINAL",
    "CHOICE",
    "DEPENDS",
    "END",
    "ERROR",
    "FALSE",
    "INTEGER",
    "LONG",
    "OF",
    "PROCEDURE",
    "PROGRAM",
    "RECORD",
    "REPORTS",
    "RETURNS",
    "SEQUENCE",
    "STRING",
    "TRUE",
    "TYPE",
    "UNSPECIFIED",
    "UPON",
    "VERSION",
];

/// Parses the text at that index of `sources`, which is one program.
pub(super) fn parse(sources: &Sources, file: u32) -> Parsed<Program> {
    let scanner = SimpleScanner::new(&FORMS, file, sources.get(file).text.clone());
    let mut parser = Parser { sources, scanner, state: State::new() };
    parser.advance()?;
    parser.program()
}

struct Parser<'s> {
    sources: &'s Sources,
    scanner: SimpleScanner,
    state: State,
}

impl Reader for Parser<'_> {
    const FILE: &'static str = "a `.cr` file";

    fn next(&mut self) -> Parsed<Token> {
        Ok(self.scanner.next())
    }

    fn sources(&self) -> &Sources {
        self.sources
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Parser<'_> {
    /// Parses `name: PROGRAM number VERSION number = BEGIN … END.`.
    fn program(&mut self) -> Parsed<Program> {
        let docs = self.leading_docs();
        let name = self.identifier("the program's name", docs)?;
        self.expect(b':')?;
        self.keyword("PROGRAM")?;
        let numbers = match self.state.token.kind {
            Kind::Number => {
                let program = self.whole_number("the program's number", u32::MAX)?;
                self.keyword("VERSION")?;
                Some((program, self.whole_number("the version's number", u32::from(u16::MAX))?))
            }
            _ if self.at(b'=') => None,
            _ => return Err(self.wrong("the program's number or `=` should stand here")),
        };
        self.expect(b'=')?;
        self.keyword("BEGIN")?;
        let dependencies = self.dependencies()?;
        let mut declarations = Vec::new();
        while self.word() != "END" {
            declarations.push(self.declaration()?);
        }
        self.advance()?;
        self.expect(b'.')?;
        match self.state.token.kind {
            Kind::End => Ok(Program { name, numbers, dependencies, declarations }),
            _ => Err(self.wrong("the program ended at `END.`, so nothing may follow")),
        }
    }

    /// Parses `DEPENDS UPON name (number) VERSION number, …;` if it comes next.
    fn dependencies(&mut self) -> Parsed<Vec<Dependency>> {
        let mut dependencies = Vec::new();
        if !self.takes_word("DEPENDS")? {
            return Ok(dependencies);
        }
        self.keyword("UPON")?;
        loop {
            self.count()?;
            let name = self.identifier("a program's name", String::new())?;
            self.expect(b'(')?;
            let number = self.whole_number("the program's number", u32::MAX)?;
            self.expect(b')')?;
            self.keyword("VERSION")?;
            let version = self.whole_number("the version's number", u32::from(u16::MAX))?;
            dependencies.push(Dependency { name, number, version });
            if !self.takes(b',')? {
                break;
            }
        }
        self.expect(b';')?;
        Ok(dependencies)
    }

    fn declaration(&mut self) -> Parsed<Declaration> {
        let docs = self.leading_docs();
        self.count()?;
        let mut name = self.identifier("a declaration's name or `END.`", docs)?;
        self.expect(b':')?;
        let (ty, value) = match self.takes_word("TYPE")? {
            true => {
                self.expect(b'=')?;
                (self.type_expression()?, None)
            }
            false => {
                let ty = self.type_expression()?;
                self.expect(b'=')?;
                (ty, Some(self.value()?))
            }
        };
        self.end(&mut name.docs)?;
        Ok(Declaration { name, ty, value })
    }

    fn type_expression(&mut self) -> Parsed<TypeExpression> {
        let start = self.state.token.at;
        self.deeper()?;
        let kind = self.type_kind()?;
        self.shallower();
        Ok(TypeExpression { at: start.to(self.state.before), kind })
    }

    fn type_kind(&mut self) -> Parsed<TypeKind> {
        if self.at(b'{') {
            return Ok(TypeKind::Enumeration(self.enumeration()?));
        }
        let word = self.word().to_owned();
        if !KEYWORDS.contains(&word.as_str()) {
            return match word.is_empty() {
                true => Err(self.wrong("a type should stand here")),
                false => Ok(TypeKind::Named(self.reference("a type")?)),
            };
        }
        if matches!(word.as_str(), "BEGIN" | "DEPENDS" | "END" | "OF" | "PROGRAM" | "REPORTS" | "RETURNS")
            || matches!(word.as_str(), "TRUE" | "FALSE" | "TYPE" | "UPON" | "VERSION")
        {
            return Err(self.wrong(format!("a type should stand here, not `{word}`")));
        }
        self.advance()?;
        Ok(match word.as_str() {
            "BOOLEAN" => TypeKind::Plain(Type::Bool),
            "CARDINAL" | "UNSPECIFIED" => TypeKind::Plain(Type::U16),
            "INTEGER" => TypeKind::Plain(Type::I16),
            "LONG" => TypeKind::Plain(self.long()?),
            "STRING" => TypeKind::String,
            "ARRAY" => {
                let size = self.size("the number of elements")?;
                TypeKind::Array(size, self.element()?)
            }
            "SEQUENCE" => {
                let max = if self.word() == "OF" { None } else { Some(self.size("a maximum or `OF`")?) };
                TypeKind::Sequence(max, self.element()?)
            }
            "RECORD" => match self.at(b'[') {
                true => TypeKind::Record(self.groups()?),
                false => return Err(self.wrong("`[` should stand here")),
            },
            "CHOICE" => TypeKind::Choice(self.choice()?),
            "ERROR" => TypeKind::Error(self.groups()?),
            _ => TypeKind::Procedure(self.procedure()?),
        })
    }

    /// Parses the word after `LONG`.
    fn long(&mut self) -> Parsed<Type> {
        let ty = match self.word() {
            "CARDINAL" | "UNSPECIFIED" => Type::U32,
            "INTEGER" => Type::I32,
            _ => return Err(self.wrong("`CARDINAL`, `INTEGER` or `UNSPECIFIED` should stand here")),
        };
        self.advance()?;
        Ok(ty)
    }

    /// Parses `OF type`.
    fn element(&mut self) -> Parsed<Box<TypeExpression>> {
        self.keyword("OF")?;
        Ok(Box::new(self.type_expression()?))
    }

    /// Parses a number or the name of a constant.
    fn size(&mut self, what: &str) -> Parsed<Value> {
        let start = self.state.token.at;
        let kind = match self.state.token.kind {
            Kind::Number => ValueKind::Number(self.number()?),
            Kind::Word => ValueKind::Name(self.reference(what)?),
            _ => return Err(self.wrong(format!("{what} should stand here"))),
        };
        Ok(Value { at: start.to(self.state.before), kind })
    }

    /// Parses `{a(0), b(1)}`.
    fn enumeration(&mut self) -> Parsed<Vec<Designator>> {
        self.expect(b'{')?;
        let mut all = Vec::new();
        loop {
            let docs = self.leading_docs();
            let mut designator = self.designator(docs)?;
            self.trailing_docs(&mut designator.name.docs);
            let more = self.separator(b'}')?;
            self.trailing_docs(&mut designator.name.docs);
            all.push(designator);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Parses `a` or `a(0)`.
    fn designator(&mut self, docs: String) -> Parsed<Designator> {
        self.count()?;
        let name = self.identifier("a name", docs)?;
        let number = match self.takes(b'(')? {
            true => {
                let number = self.size("a number")?;
                self.expect(b')')?;
                Some(number)
            }
            false => None,
        };
        Ok(Designator { name, number })
    }

    /// Parses `,`, and returns true; or the mark that ends a list, and returns false.
    fn separator(&mut self, end: u8) -> Parsed<bool> {
        if self.takes(b',')? {
            return Ok(true);
        }
        match self.takes(end)? {
            true => Ok(false),
            false => Err(self.wrong(format!("`,` or `{}` should stand here", char::from(end)))),
        }
    }

    /// Parses `[a, b: T, c: U]`. Returns nothing if there is no `[`, or nothing between the brackets.
    fn groups(&mut self) -> Parsed<Vec<Group>> {
        let mut groups = Vec::new();
        if !self.takes(b'[')? || self.takes(b']')? {
            return Ok(groups);
        }
        loop {
            let mut names = Vec::new();
            loop {
                let docs = self.leading_docs();
                self.count()?;
                names.push(self.identifier("a field's name", docs)?);
                if !self.takes(b',')? {
                    break;
                }
            }
            self.expect(b':')?;
            let ty = self.type_expression()?;
            let mut docs = names.last_mut().map(|last| std::mem::take(&mut last.docs)).unwrap_or_default();
            self.trailing_docs(&mut docs);
            let more = self.separator(b']')?;
            // A comment behind a field that ends its line is the field's.
            self.trailing_docs(&mut docs);
            if let Some(last) = names.last_mut() {
                last.docs = docs;
            }
            groups.push(Group { names, ty });
            if !more {
                return Ok(groups);
            }
        }
    }

    /// Parses `[enumeration] OF {a, b => T, c(2) => U}`.
    fn choice(&mut self) -> Parsed<Choice> {
        let enumeration =
            if self.word() == "OF" { None } else { Some(self.reference("an enumeration or `OF`")?) };
        self.keyword("OF")?;
        self.expect(b'{')?;
        let mut candidates = Vec::new();
        loop {
            let mut designators = Vec::new();
            loop {
                let docs = self.leading_docs();
                designators.push(self.designator(docs)?);
                if !self.takes(b',')? {
                    break;
                }
            }
            if !self.takes(b'=')? || !self.takes(b'>')? {
                return Err(self.wrong("`,` or `=>` should stand here"));
            }
            let ty = self.type_expression()?;
            let more = self.separator(b'}')?;
            if let Some(last) = designators.last_mut() {
                self.trailing_docs(&mut last.name.docs);
            }
            candidates.push(Candidate { designators, ty });
            if !more {
                return Ok(Choice { enumeration, candidates });
            }
        }
    }

    /// Parses `[arguments] RETURNS [results] REPORTS [errors]`, whose parts may all be missing.
    fn procedure(&mut self) -> Parsed<Procedure> {
        let arguments = self.groups()?;
        let results = match self.takes_word("RETURNS")? {
            true if self.at(b'[') => self.groups()?,
            true => return Err(self.wrong("`[` should stand here")),
            false => Vec::new(),
        };
        let mut reports = Vec::new();
        if self.takes_word("REPORTS")? {
            self.expect(b'[')?;
            loop {
                self.count()?;
                reports.push(self.reference("an error's name")?);
                if !self.separator(b']')? {
                    break;
                }
            }
        }
        Ok(Procedure { arguments, results, reports })
    }

    /// Parses `a` or `Program.a`.
    fn reference(&mut self, what: &str) -> Parsed<Reference> {
        let start = self.state.token.at;
        let first = self.identifier(what, String::new())?.text;
        let (program, name) = match self.takes(b'.')? {
            true => (Some(first), self.identifier("a name of that program", String::new())?.text),
            false => (None, first),
        };
        Ok(Reference { program, name, at: start.to(self.state.before) })
    }

    /// Parses a constant.
    fn value(&mut self) -> Parsed<Value> {
        let start = self.state.token.at;
        self.deeper()?;
        let kind = self.value_kind()?;
        self.shallower();
        Ok(Value { at: start.to(self.state.before), kind })
    }

    fn value_kind(&mut self) -> Parsed<ValueKind> {
        match self.state.token.kind {
            Kind::Number => return Ok(ValueKind::Number(self.number()?)),
            Kind::Text => {
                let text = unquoted(self.text());
                self.advance()?;
                return Ok(ValueKind::Text(text));
            }
            Kind::Mark(b'[') => return self.bracketed(),
            Kind::Word => {}
            _ => return Err(self.wrong("a constant should stand here")),
        }
        if self.takes_word("TRUE")? {
            return Ok(ValueKind::Bool(true));
        }
        if self.takes_word("FALSE")? {
            return Ok(ValueKind::Bool(false));
        }
        let name = self.reference("a constant")?;
        match self.state.token.kind {
            Kind::Number | Kind::Text | Kind::Word | Kind::Mark(b'[') => {
                Ok(ValueKind::Choice(name, Box::new(self.value()?)))
            }
            _ => Ok(ValueKind::Name(name)),
        }
    }

    /// Parses `[]`, `[x, y]`, or `[a, b: x, c: y]`. In the last two the first names look alike.
    fn bracketed(&mut self) -> Parsed<ValueKind> {
        self.expect(b'[')?;
        let mut elements = Vec::new();
        if self.takes(b']')? {
            return Ok(ValueKind::Elements(elements));
        }
        loop {
            self.count()?;
            elements.push(self.value()?);
            if self.at(b':') {
                break;
            }
            if !self.separator(b']')? {
                return Ok(ValueKind::Elements(elements));
            }
        }
        self.components(elements)
    }

    /// Parses a record by names, whose first names were taken for elements.
    fn components(&mut self, first: Vec<Value>) -> Parsed<ValueKind> {
        let mut names = Vec::new();
        for element in first {
            match element.kind {
                ValueKind::Name(Reference { program: None, name, at }) => {
                    names.push(Name { text: name, at, docs: String::new() });
                }
                _ => return self.refuse(element.at, "a field's name should stand here"),
            }
        }
        let mut components = Vec::new();
        loop {
            self.expect(b':')?;
            components.push((std::mem::take(&mut names), self.value()?));
            if !self.separator(b']')? {
                return Ok(ValueKind::Components(components));
            }
            loop {
                self.count()?;
                names.push(self.identifier("a field's name", String::new())?);
                if !self.takes(b',')? {
                    break;
                }
            }
        }
    }

    fn number(&mut self) -> Parsed<i128> {
        let Some(value) = number(self.text()) else {
            let why = "this is not a number: digits may be followed by `B` (octal), `X` (hexadecimal) or `D`";
            return Err(self.wrong(why));
        };
        self.advance()?;
        Ok(value)
    }

    /// Parses a number from 0 to `max`.
    fn whole_number(&mut self, what: &str, max: u32) -> Parsed<u32> {
        let at = self.state.token.at;
        if self.state.token.kind != Kind::Number {
            return Err(self.wrong(format!("{what} should stand here")));
        }
        let value = self.number()?;
        match u32::try_from(value).ok().filter(|value| *value <= max) {
            Some(value) => Ok(value),
            None => self.refuse(at, format!("{what} is between 0 and {max}")),
        }
    }

    /// Parses a name that is no word of the language.
    fn identifier(&mut self, what: &str, docs: String) -> Parsed<Name> {
        let word = self.word();
        if KEYWORDS.contains(&word) {
            let why = format!("{what} should stand here, and `{word}` is a word of the language");
            return Err(self.wrong(why));
        }
        self.name(what, docs)
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        match self.takes_word(word)? {
            true => Ok(()),
            false => Err(self.wrong(format!("`{word}` should stand here"))),
        }
    }

    fn takes_word(&mut self, word: &str) -> Parsed<bool> {
        let found = self.word() == word;
        if found {
            self.advance()?;
        }
        Ok(found)
    }
}
