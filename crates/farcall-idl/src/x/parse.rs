//! Parses tokens into declarations (RFC 4506 section 6.3, RFC 5531 section 12.3, and the extensions of
//! `rpcgen` and other compilers).
//!
//! The parser recurses only where types or namespaces are declared within each other. That depth is limited.

mod c_lines;
mod declaration;
mod program;

use std::collections::HashMap;

use super::preprocess::Preprocessor;
use super::syntax::*;
use crate::text::reader::{Parsed, Reader, State};
use crate::text::scan::{Kind, Token, unquoted};
use crate::text::source::Sources;

/// The maximum number of namespaces.
const MAX_SCOPES: usize = 1 << 10;
/// The maximum depth to which namespaces nest.
const MAX_SCOPES_DEEP: usize = 16;
/// Parses the preprocessor's remaining tokens.
pub(super) struct Parser<'p, 'o> {
    preprocessor: &'p mut Preprocessor<'o>,
    state: State,
    syntax: &'p mut Syntax,
    scope: ScopeId,
    /// The namespaces by the one around them and their name.
    namespaces: HashMap<(ScopeId, String), ScopeId>,
}

/// Parses all tokens of the preprocessor, and adds the declarations to `syntax`. Returns how many
/// declarations of each kind `syntax` then has, all of them the file's own.
pub(super) fn parse(preprocessor: &mut Preprocessor, syntax: &mut Syntax) -> Parsed<Own> {
    let namespaces =
        (0..).zip(&syntax.scopes).skip(1).map(|(place, scope)| ((scope.outer, scope.name.clone()), place));
    let namespaces = namespaces.collect();
    let mut parser = Parser { preprocessor, state: State::new(), syntax, scope: 0, namespaces };
    parser.advance()?;
    while parser.state.token.kind != Kind::End {
        parser.definition()?;
    }
    let Syntax { constants, types, programs, .. } = &parser.syntax;
    let own = Own { constants: constants.len(), types: types.len(), programs: programs.len() };
    parser.c_lines()?;
    Ok(own)
}

impl Reader for Parser<'_, '_> {
    const FILE: &'static str = "an `.x` file";

    fn next(&mut self) -> Parsed<Token> {
        self.preprocessor.next()
    }

    fn sources(&self) -> &Sources {
        self.preprocessor.sources
    }

    fn state(&self) -> &State {
        &self.state
    }

    fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }
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
        let value = match self.state.token.kind {
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
            let again = self.namespaces.get(&(self.scope, name.clone())).copied();
            self.scope = match again {
                Some(place) => place,
                None if self.syntax.scopes.len() >= MAX_SCOPES => {
                    return Err(self.wrong("too many namespaces"));
                }
                None => {
                    let place = self.syntax.scopes.len();
                    self.namespaces.insert((self.scope, name.clone()), place);
                    self.syntax.scopes.push(Scope { name, outer: self.scope });
                    place
                }
            };
        }
        let open = self.state.token.at;
        self.expect(b'{')?;
        self.deeper()?;
        while !self.takes(b'}')? {
            if self.state.token.kind == Kind::End {
                return self.refuse(open, "this `{` is not closed");
            }
            self.definition()?;
        }
        self.shallower();
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
            match self.state.token.kind {
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
        let start = self.state.token.at;
        let expression = self.expression()?;
        Ok(Amount { expression, at: start.to(self.state.before) })
    }

    /// Adds a declared type, and returns its index.
    fn push(&mut self, name: Name, body: BodyItem) -> Parsed<usize> {
        self.count()?;
        self.syntax.types.push(TypeItem { name, scope: self.scope, body });
        Ok(self.syntax.types.len() - 1)
    }
}
