//! Parses declarations, types, and constant expressions.

use super::super::syntax::*;
use super::super::tree::Type;
use super::Parser;
use crate::text::diagnostic::Diagnostic;
use crate::text::reader::{MAX_DEPTH, Parsed, Reader};
use crate::text::scan::{Kind, number, unquoted};
use crate::text::source::Span;

impl Parser<'_, '_> {
    /// Parses `T *name`, `T name`, `T name[n]` or `T name<n>`, where the name may be missing.
    pub(super) fn declaration(&mut self) -> Parsed<Declaration> {
        let start = self.state.token.at;
        let specifier = self.specifier()?;
        let pointer = self.takes(b'*')?;
        let before_name = self.suffix(pointer)?;
        let name = match self.state.token.kind {
            Kind::Word => self.name("a name", String::new())?,
            _ => Name { at: start, ..Name::default() },
        };
        let after_name = self.suffix(pointer)?;
        let shape = match (before_name, after_name) {
            (Some(_), Some(_)) => return Err(self.misplaced(start)),
            (Some(shape), None) | (None, Some(shape)) => shape,
            (None, None) if pointer => Shape::Optional,
            (None, None) => Shape::One,
        };
        if matches!(self.state.token.kind, Kind::Mark(b'[' | b'<' | b'*')) {
            return Err(self.misplaced(start));
        }
        Ok(Declaration { name, specifier, shape, at: start.to(self.state.before) })
    }

    fn misplaced(&self, start: Span) -> Diagnostic {
        Diagnostic::new(
            self.preprocessor.sources,
            start.to(self.state.token.at),
            "a declaration takes only one of `*`, `[…]` and `<…>`",
        )
        .help("give the inner type a name by `typedef`, and use that name")
    }

    /// Parses `[n]`, `<n>` or `<>`.
    fn suffix(&mut self, pointer: bool) -> Parsed<Option<Shape>> {
        let start = self.state.token.at;
        if self.takes(b'[')? {
            let size = self.amount()?;
            self.expect(b']')?;
            return if pointer { Err(self.misplaced(start)) } else { Ok(Some(Shape::Fixed(size))) };
        }
        if !self.takes(b'<')? {
            return Ok(None);
        }
        let max = if self.at(b'>') { None } else { Some(self.amount()?) };
        self.expect(b'>')?;
        if pointer { Err(self.misplaced(start)) } else { Ok(Some(Shape::Variable(max))) }
    }

    /// Refuses a declaration without a name where one is required.
    pub(super) fn named(&self, declaration: &Declaration) -> Parsed<()> {
        if declaration.name.text.is_empty() { Err(self.wrong("a name should stand here")) } else { Ok(()) }
    }

    /// Parses a type, without `*`, `[…]` and `<…>`.
    fn specifier(&mut self) -> Parsed<Specifier> {
        let word = self.word().to_owned();
        match word.as_str() {
            "enum" | "struct" | "union" => return self.tag(&word),
            "unsigned" | "signed" | "char" | "short" | "int" | "long" | "hyper" | "quad" => {
                return self.number_type();
            }
            "" if self.at(b':') => return Ok(Specifier::Named(self.path()?)),
            "" => return Err(self.wrong("a type should stand here")),
            "const" | "typedef" | "case" | "default" | "switch" => {
                return Err(self.wrong("a type should stand here, not a keyword"));
            }
            _ => {}
        }
        let specifier = match word.as_str() {
            "void" => Specifier::Void,
            // libevpl's `zcopaque` means only that the data is not copied.
            "opaque" | "zcopaque" => Specifier::Opaque,
            "string" => Specifier::String,
            "float" => Specifier::Plain(Type::F32),
            "double" => Specifier::Plain(Type::F64),
            "quadruple" => Specifier::Plain(Type::Quadruple),
            "bool" => Specifier::Plain(Type::Bool),
            _ => return Ok(Specifier::Named(self.path()?)),
        };
        self.advance()?;
        Ok(specifier)
    }

    /// Parses C's words for integers, in any order. `unsigned` alone is `unsigned int`.
    fn number_type(&mut self) -> Parsed<Specifier> {
        let (mut unsigned, mut bits, mut longs) = (false, 32, 0);
        loop {
            match self.word() {
                "unsigned" => unsigned = true,
                "signed" | "int" => {}
                "char" => bits = 8,
                "short" => bits = 16,
                "hyper" | "quad" => bits = 64,
                "long" => {
                    longs += 1;
                    // XDR's long has 32 bits, C's `long long` has 64.
                    bits = if longs > 1 { 64 } else { bits };
                }
                _ => break,
            }
            self.advance()?;
        }
        Ok(Specifier::Plain(match (bits, unsigned) {
            (8, false) => Type::I8,
            (8, true) => Type::U8,
            (16, false) => Type::I16,
            (16, true) => Type::U16,
            (64, false) => Type::I64,
            (64, true) => Type::U64,
            (_, false) => Type::I32,
            (_, true) => Type::U32,
        }))
    }

    /// Parses `struct tag`, or `struct [tag] { … }` in line.
    fn tag(&mut self, keyword: &str) -> Parsed<Specifier> {
        self.advance()?;
        let opens = |this: &Self| this.at(b'{') || keyword == "union" && this.word() == "switch";
        if opens(self) {
            // The type is later named after the declaration that contains it.
            let name = Name { at: self.state.before, ..Name::default() };
            return Ok(Specifier::Inline(self.body(keyword, name)?));
        }
        let path = self.path()?;
        if !opens(self) {
            return Ok(Specifier::Named(path));
        }
        let name = Name { text: path.parts.join("_"), at: path.at, docs: String::new() };
        Ok(Specifier::Inline(self.body(keyword, name)?))
    }

    /// Parses `{ … }` of a struct or an enumeration, or `switch … { … }` of a union. Returns the type's
    /// index.
    pub(super) fn body(&mut self, keyword: &str, mut name: Name) -> Parsed<usize> {
        self.deeper()?;
        let switch = if keyword == "union" { Some(self.switch()?) } else { None };
        let open = self.state.token.at;
        self.expect(b'{')?;
        self.trailing_docs(&mut name.docs);
        let body = match switch {
            Some(switch) => self.arms(switch, open)?,
            None if keyword == "enum" => BodyItem::Enum(self.enumerators()?),
            None => BodyItem::Struct(self.fields(open)?),
        };
        self.shallower();
        self.push(name, body)
    }

    fn fields(&mut self, open: Span) -> Parsed<Vec<Declaration>> {
        let mut fields = Vec::new();
        while let Some(docs) = self.next_within(open)? {
            fields.push(self.field(docs)?);
        }
        Ok(fields)
    }

    fn field(&mut self, docs: String) -> Parsed<Declaration> {
        self.count()?;
        let mut field = self.declaration()?;
        if !field.is_void() {
            self.named(&field)?;
        }
        field.name.docs = docs;
        self.end(&mut field.name.docs)?;
        Ok(field)
    }

    fn enumerators(&mut self) -> Parsed<Vec<(Name, Option<Amount>)>> {
        let mut all = Vec::new();
        loop {
            let docs = self.leading_docs();
            if self.takes(b'}')? {
                return Ok(all);
            }
            self.count()?;
            let mut name = self.name("an enumerator or `}`", docs)?;
            self.trailing_docs(&mut name.docs);
            let value = if self.takes(b'=')? { Some(self.amount()?) } else { None };
            self.trailing_docs(&mut name.docs);
            let more = self.takes(b',')?;
            if more {
                self.trailing_docs(&mut name.docs);
            }
            all.push((name, value));
            if !more {
                if !self.at(b'}') {
                    return Err(self.wrong("`,` or `}` should stand here"));
                }
                self.advance()?;
                return Ok(all);
            }
        }
    }

    /// Parses `switch (T name)`.
    fn switch(&mut self) -> Parsed<Declaration> {
        if self.word() != "switch" {
            return Err(self.wrong("`switch` should stand here"));
        }
        self.advance()?;
        self.expect(b'(')?;
        let switch = self.declaration()?;
        self.named(&switch)?;
        self.expect(b')')?;
        Ok(switch)
    }

    fn arms(&mut self, switch: Declaration, open: Span) -> Parsed<BodyItem> {
        let mut union = UnionItem { switch, arms: Vec::new(), default: None };
        while let Some(mut docs) = self.next_within(open)? {
            let labels_at = self.state.token.at;
            let (labels, default) = self.labels(&mut docs)?;
            let field_docs = self.leading_docs();
            let field = self.field(field_docs)?;
            let field = if field.is_void() { None } else { Some(field) };
            match default {
                true if union.default.is_some() => {
                    return self.refuse(labels_at, "a second `default`");
                }
                true => union.default = Some(field),
                false => union.arms.push(ArmItem { labels, declaration: field, docs }),
            }
        }
        Ok(BodyItem::Union(Box::new(union)))
    }

    /// Parses `case a: case b:`. Also returns whether `default:` is among them. Then the other labels mean
    /// nothing, because `default` covers them.
    fn labels(&mut self, docs: &mut String) -> Parsed<(Vec<Amount>, bool)> {
        let mut labels = Vec::new();
        let mut default = false;
        loop {
            match self.word() {
                "case" => {
                    self.advance()?;
                    self.count()?;
                    labels.push(self.amount()?);
                }
                "default" => {
                    self.advance()?;
                    default = true;
                }
                _ if labels.is_empty() && !default => {
                    return Err(self.wrong("`case`, `default` or `}` should stand here"));
                }
                _ => return Ok((labels, default)),
            }
            self.expect(b':')?;
            self.trailing_docs(docs);
        }
    }

    /// Returns the text of the comments before the next part, or nothing if `}` comes next.
    fn next_within(&mut self, open: Span) -> Parsed<Option<String>> {
        let docs = self.leading_docs();
        if self.takes(b'}')? {
            return Ok(None);
        }
        match self.state.token.kind {
            Kind::End => self.refuse(open, "this `{` is not closed"),
            _ => Ok(Some(docs)),
        }
    }

    /// Parses `a`, `a::b` or `::a`. A single `:` that follows does not belong to the name.
    pub(super) fn path(&mut self) -> Parsed<Path> {
        let start = self.state.token.at;
        let mut path = Path { absolute: false, parts: Vec::new(), at: start };
        if self.at(b':') {
            self.advance()?;
            self.expect(b':')?;
            path.absolute = true;
        }
        loop {
            path.parts.push(self.name("a name", String::new())?.text);
            path.at = start.to(self.state.before);
            if !self.at_scope() {
                return Ok(path);
            }
            self.advance()?;
            self.expect(b':')?;
            if path.parts.len() >= MAX_DEPTH as usize {
                return Err(self.wrong("this name has too many parts"));
            }
        }
    }

    /// Returns whether `::` comes next: two colons with nothing between them.
    fn at_scope(&self) -> bool {
        let after = Span {
            start: self.state.token.text.end,
            end: self.state.token.text.end + 1,
            ..self.state.token.text
        };
        let text = &self.preprocessor.sources.get(after.file).text;
        self.at(b':') && text.as_bytes().get(after.start as usize) == Some(&b':')
    }

    /// Parses sums of products of numbers and names.
    pub(super) fn expression(&mut self) -> Parsed<Expression> {
        self.deeper()?;
        let mut left = self.product()?;
        let mut operators = 0;
        while let Kind::Mark(operator @ (b'+' | b'-' | b'|')) = self.state.token.kind {
            operators += 1;
            if operators > MAX_DEPTH {
                return Err(self.wrong(format!("more than {MAX_DEPTH} operators in a row")));
            }
            self.advance()?;
            left = Expression::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
        self.shallower();
        Ok(left)
    }

    fn product(&mut self) -> Parsed<Expression> {
        let left = self.operand()?;
        let Kind::Mark(operator @ (b'*' | b'/')) = self.state.token.kind else { return Ok(left) };
        self.advance()?;
        Ok(Expression::Binary(operator, Box::new(left), Box::new(self.operand()?)))
    }

    fn operand(&mut self) -> Parsed<Expression> {
        let expression = match self.state.token.kind {
            Kind::Number => match number(self.text()) {
                Some(value) => Expression::Number(value),
                None => return Err(self.wrong("this is not a number, or it does not fit into 64 bits")),
            },
            Kind::Character => {
                let value = unquoted(self.text()).chars().next().map_or(0, u32::from);
                Expression::Number(value.into())
            }
            Kind::Mark(b'-') => {
                self.advance()?;
                self.deeper()?;
                let operand = self.operand()?;
                self.shallower();
                return Ok(Expression::Negative(Box::new(operand)));
            }
            Kind::Mark(b'(') => {
                self.advance()?;
                let inner = self.expression()?;
                self.expect(b')')?;
                return Ok(inner);
            }
            Kind::Word | Kind::Mark(b':') => return Ok(Expression::Name(self.path()?)),
            _ => return Err(self.wrong("a number or a constant's name should stand here")),
        };
        self.advance()?;
        Ok(expression)
    }
}
