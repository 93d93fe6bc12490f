//! What C alone was told by `%` lines, as far as it is understood: the file may mean it.

use super::super::syntax::*;
use super::{Parsed, Parser};
use crate::text::scan::{Kind, Token};

impl Parser<'_, '_> {
    /// `%#define NAME number`, `%#define name type`, `%typedef type name;`. What is anything else is passed
    /// over.
    pub(super) fn lent(&mut self) -> Parsed<()> {
        for (name, body) in std::mem::take(&mut self.preprocessor.noted) {
            let text = self.preprocessor.sources.text(name.text).to_owned();
            if text == "typedef" {
                self.lent_type(&body, None);
                continue;
            }
            let name = Name { text, at: name.at, docs: String::new() };
            match self.lent_number(&body) {
                Some(number) => {
                    self.lend(&name, &number)?;
                    // It may be the name of a type as well.
                    if matches!(number.expression, Expression::Name(_)) {
                        self.lent_type(&body, Some(name));
                    }
                }
                None => self.lent_type(&body, Some(name)),
            }
        }
        self.preprocessor.put(&[]);
        Ok(())
    }

    fn lent_number(&mut self, body: &[Token]) -> Option<Amount> {
        self.preprocessor.put(body);
        self.advance().ok()?;
        let number = self.amount().ok();
        number.filter(|_| self.token.kind == Kind::End)
    }

    /// Only another name for a type: what C calls a pointer or an array may be anything on the wire.
    fn lent_type(&mut self, body: &[Token], name: Option<Name>) {
        self.preprocessor.put(body);
        let types = self.syntax.types.len();
        if self.advance().is_err() {
            return;
        }
        let declaration = self.declaration();
        let ended = self.token.kind == Kind::End || self.at(b';');
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
        // More of them than may be declared are of no use.
        let _ = self.push(declaration.name.clone(), BodyItem::Alias(declaration));
    }

    /// A name that stands for a number besides what else it is.
    pub(super) fn lend(&mut self, name: &Name, number: &Amount) -> Parsed<()> {
        self.count()?;
        let value = ConstantValue::Amount(number.clone());
        self.syntax.constants.push(ConstantItem { lent: true, name: name.clone(), scope: self.scope, value });
        Ok(())
    }
}
