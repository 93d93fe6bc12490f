//! Interprets lines that begin with `%`. They are meant for C, but the file can use names that they define.

use super::super::syntax::*;
use super::Parser;
use crate::text::reader::{Parsed, Reader};
use crate::text::scan::{Kind, Token};

impl Parser<'_, '_> {
    /// Handles `%#define NAME number`, `%#define name type` and `%typedef type name;`. Ignores all other
    /// lines.
    pub(super) fn c_lines(&mut self) -> Parsed<()> {
        for (name, body) in std::mem::take(&mut self.preprocessor.noted) {
            let text = self.preprocessor.sources.text(name.text).to_owned();
            if text == "typedef" {
                self.c_type(&body, None);
                continue;
            }
            let name = Name { text, at: name.at, docs: String::new() };
            match self.c_number(&body) {
                Some(number) => {
                    self.imply(&name, &number)?;
                    // The name can be that of a type instead.
                    if matches!(number.expression, Expression::Name(_)) {
                        self.c_type(&body, Some(name));
                    }
                }
                None => self.c_type(&body, Some(name)),
            }
        }
        self.preprocessor.put(&[]);
        Ok(())
    }

    fn c_number(&mut self, body: &[Token]) -> Option<Amount> {
        self.preprocessor.put(body);
        self.advance().ok()?;
        let number = self.amount().ok();
        number.filter(|_| self.state.token.kind == Kind::End)
    }

    /// Accepts only another name for a type. A pointer or an array of C has no defined wire form.
    fn c_type(&mut self, body: &[Token], name: Option<Name>) {
        self.preprocessor.put(body);
        let types = self.syntax.types.len();
        if self.advance().is_err() {
            return;
        }
        let declaration = self.declaration();
        let ended = self.state.token.kind == Kind::End || self.at(b';');
        self.syntax.types.truncate(types);
        let Ok(mut declaration) = declaration else { return };
        let plain = matches!(declaration.specifier, Specifier::Plain(_) | Specifier::Named(_));
        if !ended
            || !plain
            || !matches!(declaration.shape, Shape::One)
            || name.is_some() != declaration.name.text.is_empty()
        {
            return;
        }
        declaration.name = name.unwrap_or(declaration.name);
        // `push` fails only at the limit of declarations. Then the parser itself reports it.
        let _ = self.push(declaration.name.clone(), BodyItem::Alias(declaration));
    }

    /// Declares a name as a number too, in addition to its other meanings.
    pub(super) fn imply(&mut self, name: &Name, number: &Amount) -> Parsed<()> {
        self.count()?;
        let value = ConstantValue::Amount(number.clone());
        self.syntax.constants.push(ConstantItem {
            is_implied: true,
            name: name.clone(),
            scope: self.scope,
            value,
        });
        Ok(())
    }
}
