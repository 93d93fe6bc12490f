//! Parses programs, versions and procedures (RFC 5531 section 12.3).

use super::super::syntax::*;
use super::Parser;
use crate::text::reader::{Parsed, Reader};

impl Parser<'_, '_> {
    /// Parses `program NAME { … } = number;`.
    pub(super) fn program(&mut self, docs: String) -> Parsed<()> {
        self.advance()?;
        let mut name = self.name("the program's name", docs)?;
        self.expect(b'{')?;
        self.trailing_docs(&mut name.docs);
        let mut versions = Vec::new();
        loop {
            let docs = self.leading_docs();
            match self.word() {
                "version" => versions.push(self.version(docs)?),
                _ if self.at(b'}') => break,
                _ => return Err(self.wrong("`version` or `}` should stand here")),
            }
        }
        self.expect(b'}')?;
        let number = self.numbered(&mut name)?;
        self.imply(&name, &number)?;
        self.syntax.programs.push(ProgramItem { name, scope: self.scope, number, versions });
        Ok(())
    }

    fn version(&mut self, docs: String) -> Parsed<VersionItem> {
        self.advance()?;
        let mut name = self.name("the version's name", docs)?;
        self.expect(b'{')?;
        self.trailing_docs(&mut name.docs);
        let mut procedures = Vec::new();
        loop {
            let docs = self.leading_docs();
            if self.takes(b'}')? {
                break;
            }
            procedures.push(self.procedure(docs)?);
        }
        let number = self.numbered(&mut name)?;
        self.imply(&name, &number)?;
        Ok(VersionItem { name, number, procedures })
    }

    /// Parses `T NAME(T, T) = number;`.
    fn procedure(&mut self, docs: String) -> Parsed<ProcedureItem> {
        self.count()?;
        let mut result = self.declaration()?;
        let mut name = std::mem::take(&mut result.name);
        if name.text.is_empty() {
            return Err(self.wrong("the procedure's name should stand here"));
        }
        name.docs = docs;
        self.expect(b'(')?;
        let mut arguments = Vec::new();
        while !self.at(b')') {
            self.count()?;
            arguments.push(self.declaration()?);
            if !self.takes(b',')? && !self.at(b')') {
                return Err(self.wrong("`,` or `)` should stand here"));
            }
        }
        self.expect(b')')?;
        let number = self.numbered(&mut name)?;
        self.imply(&name, &number)?;
        Ok(ProcedureItem { name, number, arguments, result })
    }

    /// Parses `= number;`.
    fn numbered(&mut self, name: &mut Name) -> Parsed<Amount> {
        self.expect(b'=')?;
        let number = self.amount()?;
        self.end(&mut name.docs)?;
        Ok(number)
    }
}
