//! The messages about names that are used but declared nowhere.

use super::Resolver;
use super::lookup::{BUILTIN_VALUES, builtin_types};
use crate::nearest;
use crate::text::diagnostic::{Diagnostic, Undeclared};
use crate::text::source::Span;

/// Keywords that begin a type.
const TYPE_WORDS: [&str; 13] = [
    "bool", "char", "double", "enum", "float", "hyper", "int", "long", "opaque", "short", "string", "struct",
    "unsigned",
];

impl Resolver<'_> {
    /// Reports an undeclared type. An undeclared type counts as declared in Rust only if the user says so,
    /// because it could also be a misspelt name.
    pub(super) fn undeclared_type(&mut self, at: Span, name: &str) {
        let known = self.types.keys().map(|(_, declared)| *declared).chain(builtin_types()).chain(TYPE_WORDS);
        let similar = self.similar(name, known);
        let otherwise = format!(
            "declare it in Rust: `external(\"{name}\")` in `include_x!`, `--external {name}` on the command line"
        );
        self.tell_undeclared(at, "type", similar, otherwise, Undeclared::Type(name.to_owned()));
    }

    /// Reports an undeclared constant. The value of a constant is always needed.
    pub(super) fn undeclared_constant(&mut self, at: Span, name: String) {
        let macros = self.numbers.iter().flat_map(|numbers| numbers.keys()).map(String::as_str);
        let declared = self.values.keys().map(|(_, declared)| *declared).chain(macros);
        let known = declared.chain(BUILTIN_VALUES.iter().map(|(known, _)| *known));
        let similar = self.similar(name.rsplit("::").next().unwrap_or(&name), known);
        let otherwise = format!(
            "give its value: `define = \"{name}=VALUE\"` in `include_x!`, `-D {name}=VALUE` on the command line"
        );
        self.tell_undeclared(at, "constant", similar, otherwise, Undeclared::Constant(name));
    }

    fn similar<'n>(&self, name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
        if self.suggestions > 0 { nearest(name, known).map(str::to_owned) } else { None }
    }

    fn tell_undeclared(
        &mut self,
        at: Span,
        kind: &str,
        similar: Option<String>,
        otherwise: String,
        what: Undeclared,
    ) {
        self.suggestions = self.suggestions.saturating_sub(1);
        let (Undeclared::Type(name) | Undeclared::Constant(name)) = &what;
        let message = format!("no {kind} `{name}` is declared");
        let similar = similar.map(|similar| format!("a similar name is declared: `{similar}`"));
        let elsewhere = format!(
            "if another file declares it, give that file's directory as `-I DIRECTORY`; if only C does, {otherwise}"
        );
        self.push(|sources| {
            let fault = Diagnostic::new(sources, at, message).about_undeclared(what);
            similar.into_iter().chain([elsewhere]).fold(fault, Diagnostic::help)
        });
    }
}
