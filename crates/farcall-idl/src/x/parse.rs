//! Parses tokens into declarations (RFC 4506 section 6.3, RFC 5531 section 12.3, and the extensions of
//! `rpcgen` and other compilers).
//!
//! The parser recurses only where types or namespaces are declared within each other. That depth is limited.

mod c_lines;
mod comments;
mod declaration;
mod program;

use self::comments::Comments;
use super::preprocess::Preprocessor;
use super::syntax::*;
use crate::text::diagnostic::Diagnostic;
use crate::text::scan::{Kind, Token, unquoted};
use crate::text::source::Span;

/// The maximum depth to which types, namespaces and expressions nest.
const MAX_DEPTH: u32 = 64;
/// The maximum number of declarations in one run. Constants, types, fields, enumerators and procedures count.
const MAX_DECLARED: usize = 1 << 18;
/// The maximum number of namespaces.
const MAX_SCOPES: usize = 1 << 10;
/// The maximum depth to which namespaces nest.
const MAX_SCOPES_DEEP: usize = 16;
/// The maximum length of a name in bytes.
const MAX_NAME: usize = 1024;

type Parsed<T> = Result<T, Diagnostic>;

/// Parses the preprocessor's remaining tokens.
pub(super) struct Parser<'p, 'o> {
    preprocessor: &'p mut Preprocessor<'o>,
    /// The next token.
    token: Token,
    /// The end of the previous token.
    before: Span,
    comments: Comments,
    syntax: &'p mut Syntax,
    scope: ScopeId,
    depth: u32,
    declared: usize,
}

/// Parses all tokens of the preprocessor, and adds the declarations to `syntax`. Returns how many
/// declarations of each kind `syntax` then has, all of them the file's own.
pub(super) fn parse(preprocessor: &mut Preprocessor, syntax: &mut Syntax) -> Parsed<Own> {
    // There is no token before the first one, so no comment belongs to it.
    let nowhere = Span { file: u32::MAX, start: 0, end: 0 };
    let mut parser = Parser {
        preprocessor,
        token: Token { kind: Kind::End, text: nowhere, at: nowhere, first: true },
        before: nowhere,
        comments: Comments::default(),
        syntax,
        scope: 0,
        depth: 0,
        declared: 0,
    };
    parser.advance()?;
    while parser.token.kind != Kind::End {
        parser.definition()?;
    }
    let Syntax { constants, types, programs, .. } = &parser.syntax;
    let own = Own { constants: constants.len(), types: types.len(), programs: programs.len() };
    parser.c_lines()?;
    Ok(own)
}

impl Parser<'_, '_> {
    fn definition(&mut self) -> Parsed<()> {
        let docs = self.leading_docs();
        if self.takes(b';')? {
            return Ok(());
        }
        match self.word() {
            "const" => self.constant(docs),
            "typedef" => self.alias(docs),
            "enum" | "struct" | "union" => self.tagged(docs),
            "program" => self.program(docs),
            "namespace" => self.namespace(),
            // Directives of other dialects, for example the name of a package in another language.
            "package" | "pragma" | "import" | "using" => self.directive(),
            _ => {
                let what = "a definition should begin here: `const`, `typedef`, `enum`, `struct`, `union` or `program`";
                Err(self.wrong(what))
            }
        }
    }

    /// Parses `const NAME = value;`.
    fn constant(&mut self, docs: String) -> Parsed<()> {
        self.advance()?;
        let mut name = self.name("the constant's name", docs)?;
        self.expect(b'=')?;
        let value = match self.token.kind {
            Kind::Text => {
                let text = unquoted(self.text());
                self.advance()?;
                ConstantValue::Text(text)
            }
            _ => ConstantValue::Amount(self.amount()?),
        };
        self.end(&mut name.docs)?;
        self.count()?;
        self.syntax.constants.push(ConstantItem { is_implied: false, name, scope: self.scope, value });
        Ok(())
    }

    /// Parses `typedef T name;`, where `T` may be declared in place.
    fn alias(&mut self, docs: String) -> Parsed<()> {
        self.advance()?;
        let before = self.syntax.types.len();
        let mut declaration = self.declaration()?;
        declaration.name.docs = docs;
        self.named(&declaration)?;
        self.end(&mut declaration.name.docs)?;
        // `typedef struct { … } name;` names the struct.
        if let (Specifier::Inline(place), Shape::One) = (&declaration.specifier, &declaration.shape)
            && *place >= before
            && self.syntax.types[*place].name.text.is_empty()
        {
            self.syntax.types[*place].name = declaration.name;
            return Ok(());
        }
        let name = declaration.name.clone();
        self.push(name, BodyItem::Alias(declaration)).map(drop)
    }

    /// Parses `enum NAME { … };`, `struct` and `union`.
    fn tagged(&mut self, docs: String) -> Parsed<()> {
        let keyword = self.word().to_owned();
        self.advance()?;
        // In erpcgen's dialect, `struct *name { … };` is a pointer to the struct.
        let optional = keyword == "struct" && self.takes(b'*')?;
        let name = self.name("the type's name", docs)?;
        if keyword == "struct" && self.takes(b';')? {
            return Ok(());
        }
        let place = self
            .body(&keyword, if optional { Name { at: name.at, ..Name::default() } } else { name.clone() })?;
        let mut docs = std::mem::take(&mut self.syntax.types[place].name.docs);
        self.end(&mut docs)?;
        self.syntax.types[place].name.docs = docs;
        if optional {
            let at = name.at;
            let pointer = Declaration {
                name: name.clone(),
                specifier: Specifier::Inline(place),
                shape: Shape::Optional,
                at,
            };
            self.push(name, BodyItem::Alias(pointer))?;
        }
        Ok(())
    }

    /// Parses `namespace a { … }` and `namespace a::b { … }`.
    fn namespace(&mut self) -> Parsed<()> {
        self.advance()?;
        let path = self.path()?;
        let outer = self.scope;
        if self.scopes_deep() + path.parts.len() > MAX_SCOPES_DEEP {
            return self.refuse(path.at, "namespaces are nested too deep");
        }
        for name in path.parts {
            let again = self
                .syntax
                .scopes
                .iter()
                .skip(1)
                .position(|scope| scope.outer == self.scope && scope.name == name);
            self.scope = match again {
                Some(place) => place + 1,
                None if self.syntax.scopes.len() >= MAX_SCOPES => {
                    return Err(self.wrong("too many namespaces"));
                }
                None => {
                    self.syntax.scopes.push(Scope { name, outer: self.scope });
                    self.syntax.scopes.len() - 1
                }
            };
        }
        let open = self.token.at;
        self.expect(b'{')?;
        self.deeper()?;
        while !self.takes(b'}')? {
            if self.token.kind == Kind::End {
                return self.refuse(open, "this `{` is not closed");
            }
            self.definition()?;
        }
        self.depth -= 1;
        self.scope = outer;
        self.takes(b';').map(drop)
    }

    fn scopes_deep(&self) -> usize {
        std::iter::successors(Some(self.scope), |scope| Some(self.syntax.scopes[*scope].outer))
            .take_while(|scope| *scope != 0)
            .count()
    }

    /// Skips to the next `;`. Notes the file of `import "file";`.
    fn directive(&mut self) -> Parsed<()> {
        let import = self.word() == "import";
        while !self.takes(b';')? {
            match self.token.kind {
                Kind::End => return Err(self.wrong("`;` is missing")),
                Kind::Text if import => {
                    let file = unquoted(self.text());
                    self.preprocessor.imports.push(file);
                }
                _ => {}
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Parses a constant expression, usually a number or a name.
    fn amount(&mut self) -> Parsed<Amount> {
        let start = self.token.at;
        let expression = self.expression()?;
        Ok(Amount { expression, at: start.to(self.before) })
    }

    /// Adds a declared type, and returns its index.
    fn push(&mut self, name: Name, body: BodyItem) -> Parsed<usize> {
        self.count()?;
        self.syntax.types.push(TypeItem { name, scope: self.scope, body });
        Ok(self.syntax.types.len() - 1)
    }

    fn count(&mut self) -> Parsed<()> {
        self.declared += 1;
        if self.declared > MAX_DECLARED {
            Err(self.wrong(format!("more than {MAX_DECLARED} declarations")))
        } else {
            Ok(())
        }
    }

    fn deeper(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            Err(self.wrong(format!("nested more than {MAX_DEPTH} deep")))
        } else {
            Ok(())
        }
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
        self.before = self.token.at;
        self.comments.begin(self.before);
        loop {
            let token = self.preprocessor.next()?;
            if token.kind != Kind::Comment {
                self.token = token;
                return Ok(());
            }
            self.comments.push(token.text);
        }
    }

    /// Returns the next token's characters.
    fn text(&self) -> &str {
        self.preprocessor.sources.text(self.token.text)
    }

    /// Returns the next token if it is a word.
    fn word(&self) -> &str {
        if self.token.kind == Kind::Word { self.text() } else { "" }
    }

    /// Returns whether the next token is this punctuation character.
    fn at(&self, mark: u8) -> bool {
        self.token.kind == Kind::Mark(mark)
    }

    /// Skips this punctuation character if it comes next, and returns whether it did.
    fn takes(&mut self, mark: u8) -> Parsed<bool> {
        let found = self.at(mark);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect(&mut self, mark: u8) -> Parsed<()> {
        if self.takes(mark)? {
            return Ok(());
        }
        let what = format!("`{}` should stand here", char::from(mark));
        let (sources, before, at) = (&*self.preprocessor.sources, self.before, self.token.at);
        let line = |at: u32| sources.line(before.file, at);
        if self.token.kind == Kind::Stray || before.file != at.file || line(before.end) == line(at.start) {
            return Err(self.wrong(what));
        }
        // A missing `;` is reported at the end of the line that lacks it.
        let end = Span { start: before.end, ..before };
        Err(Diagnostic::new(sources, end, what))
    }

    /// Parses a name. `what` says what it names, for the message if there is no name.
    fn name(&mut self, what: &str, docs: String) -> Parsed<Name> {
        if self.token.kind != Kind::Word {
            return Err(self.wrong(format!("{what} should stand here")));
        }
        if self.text().len() > MAX_NAME {
            return Err(self.wrong(format!("a name has at most {MAX_NAME} characters")));
        }
        let name = Name { text: self.text().to_owned(), at: self.token.at, docs };
        self.advance()?;
        Ok(name)
    }

    /// Fails with a message about the tokens at `at`.
    fn refuse<T>(&self, at: Span, why: impl Into<String>) -> Parsed<T> {
        Err(Diagnostic::new(self.preprocessor.sources, at, why))
    }

    /// Returns a message about the next token.
    fn wrong(&self, what: impl Into<String>) -> Diagnostic {
        let sources = &*self.preprocessor.sources;
        let what = match (self.token.kind, sources.text(self.token.text)) {
            (Kind::Stray, text) if text.starts_with("/*") => "this comment has no end".to_owned(),
            (Kind::Stray, "\"" | "'") => "this quote is not closed in its line".to_owned(),
            (Kind::Stray, _) => "this character cannot stand in an `.x` file".to_owned(),
            (Kind::End, _) => format!("{}, but the file ends", what.into()),
            _ => what.into(),
        };
        Diagnostic::new(sources, self.token.at, what)
    }
}
