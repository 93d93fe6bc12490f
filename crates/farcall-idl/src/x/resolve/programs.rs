//! Resolves programs, versions and procedures: their numbers, arguments and results.

use std::collections::HashMap;

use super::super::syntax::*;
use super::super::tree::{Argument, Procedure, Program, Version};
use super::{Resolver, named};
use crate::text::source::Span;

/// The message for a number of a program, version or procedure that is out of range.
const NUMBERS: &str = "this number must be between 0 and 4294967295";

impl Resolver<'_> {
    pub(super) fn programs(&mut self) -> Vec<Program> {
        let own = &self.syntax.programs[..self.own.programs];
        own.iter().filter_map(|item| self.program(item)).collect()
    }

    /// Resolves a program. If the program's number is unknown or out of range, reports an error and returns
    /// `None`. Leaves out a version or procedure without a valid number.
    fn program(&mut self, item: &ProgramItem) -> Option<Program> {
        let number = self.number(item.scope, &item.number, u32::MAX, NUMBERS)?;
        let mut seen = HashMap::new();
        let mut versions = Vec::new();
        for version in &item.versions {
            versions.extend(self.version(item.scope, version, &mut seen));
        }
        Some(Program { module: None, named: named(&item.name), number, versions })
    }

    fn version(
        &mut self,
        scope: ScopeId,
        item: &VersionItem,
        versions: &mut HashMap<u32, Span>,
    ) -> Option<Version> {
        let number = self.number(scope, &item.number, u32::MAX, NUMBERS)?;
        self.once(versions, number, item.number.at, "this program has a version of this number already");
        let mut seen = HashMap::new();
        let mut procedures = Vec::new();
        for procedure in &item.procedures {
            let Some(number) = self.number(scope, &procedure.number, u32::MAX, NUMBERS) else { continue };
            self.once(
                &mut seen,
                number,
                procedure.number.at,
                "this version has a procedure of this number already",
            );
            procedures.push(self.procedure(scope, procedure, number));
        }
        Some(Version { named: named(&item.name), number, procedures })
    }

    fn procedure(&mut self, scope: ScopeId, item: &ProcedureItem, number: u32) -> Procedure {
        let mut arguments = Vec::new();
        for each in &item.arguments {
            if each.is_void() && item.arguments.len() > 1 {
                self.fault(each.at, "`void` stands for no arguments at all");
            }
            if !each.is_void() {
                let name = Some(each.name.text.clone()).filter(|name| !name.is_empty());
                arguments.push(Argument { name, declared: self.declared(scope, each) });
            }
        }
        let result = self.declared(scope, &item.result);
        Procedure { named: named(&item.name), number, arguments, result, exception: None, deadline_ms: None }
    }

    fn once(&mut self, seen: &mut HashMap<u32, Span>, number: u32, at: Span, why: &str) {
        if let Some(first) = seen.insert(number, at) {
            self.again(at, first, why);
        }
    }
}
