//! Implements the part of the C preprocessor that `.x` files need: `#include`, `#if` and related directives,
//! `#define`.
//!
//! A macro that stands for a number is not replaced where it is used. It becomes a constant (RFC 4506 section
//! 4.17), because its name means more to readers of the generated code. Lines that begin with `%` are for C.
//! Their definitions and includes are noted, because the rest of the file can depend on them.

mod expression;
mod macros;
mod paste;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use self::macros::{Macro, Pending};
use super::Options;
use crate::text::diagnostic::Diagnostic;
use crate::text::scan::{Kind, Scanner, Token, unquoted};
use crate::text::source::{Sources, Span};

/// The maximum depth to which files include each other.
const MAX_DEPTH: usize = 32;
/// The maximum depth to which `#if`s nest in one file.
const MAX_CONDITIONALS: usize = 256;

/// The predefined macro, as in `rpcgen -h`, the pass of rpcgen that sees every type.
const PREDEFINED: &[(&str, &str)] = &[("RPC_HDR", "1")];

/// Reads a file and its included files as tokens. Leaves out the lines that `#if` excludes.
pub(super) struct Preprocessor<'a> {
    pub sources: &'a mut Sources,
    options: &'a Options,
    files: Vec<File>,
    macros: HashMap<String, Macro>,
    /// Tokens that replace macros and are still to be returned. The next one is last.
    pending: Vec<Pending>,
    /// The macros that are being replaced. A macro is not replaced again within its own replacement.
    active: HashSet<String>,
    /// The number of tokens that have come from macros.
    expanded: usize,
    /// The number of operands of macros that expressions have computed.
    computed: Cell<usize>,
    /// How deep the replacement of macros' arguments is nested now. While this is not zero, reading ends with
    /// the pending tokens and does not go on in the file.
    within_arguments: u32,
    /// The macros that stood for a number when they were used.
    pub numbers: HashMap<String, Number>,
    /// The definitions in `%` lines: for `%#define`, the name and its replacement; for `%typedef`, that word
    /// and the tokens after it.
    pub noted: Vec<(Token, Vec<Token>)>,
    /// The files that `%#include` and `import` lines name.
    pub imports: Vec<String>,
}

/// A macro that stands for a number.
#[derive(Clone)]
pub(super) struct Number {
    pub value: i128,
    /// The macro's name at its definition.
    pub at: Span,
    /// The comment in the line of the definition.
    pub comment: Option<Span>,
}

struct File {
    scanner: Scanner,
    conditionals: Vec<Conditional>,
}

impl File {
    fn new(sources: &Sources, file: u32) -> Self {
        File { scanner: Scanner::new(file, sources.get(file).text.clone()), conditionals: Vec::new() }
    }

    /// Returns whether `#if` leaves out the present line.
    fn skipping(&self) -> bool {
        self.conditionals.last().is_some_and(|each| each.skipping)
    }
}

/// An `#if` whose `#endif` has not been read.
struct Conditional {
    at: Span,
    /// Whether the present line is left out, because of this `#if` or an outer one.
    skipping: bool,
    /// Whether the remaining branches are left out: a branch was read, or the whole `#if` is left out.
    done: bool,
    /// Whether `#else` has occurred.
    last: bool,
}

impl<'a> Preprocessor<'a> {
    /// Makes a preprocessor that begins with the text at that index of `sources`.
    pub fn new(sources: &'a mut Sources, file: u32, options: &'a Options) -> Result<Self, Diagnostic> {
        let given = PREDEFINED.iter().map(|(name, value)| format!("#define {name} {value}\n"));
        let wanted = options
            .defines
            .iter()
            .map(|(name, value)| format!("#define {name} {value}").replace('\n', " ") + "\n");
        let text: String = given.chain(wanted).collect();
        let defines = sources.add(Path::new("<command line>"), &text, None).map_err(Diagnostic::nowhere)?;
        let mut this = Preprocessor {
            options,
            files: vec![File::new(sources, defines)],
            sources,
            macros: HashMap::new(),
            pending: Vec::new(),
            active: HashSet::new(),
            expanded: 0,
            computed: Cell::new(0),
            within_arguments: 0,
            numbers: HashMap::new(),
            noted: Vec::new(),
            imports: Vec::new(),
        };
        while this.next()?.kind != Kind::End {}
        this.files = vec![File::new(this.sources, file)];
        Ok(this)
    }

    /// Returns the next token, which may be a comment.
    pub fn next(&mut self) -> Result<Token, Diagnostic> {
        loop {
            let token = match self.next_pending() {
                Some(token) => token,
                None => match self.next_of_file()? {
                    Some(token) => token,
                    None => continue,
                },
            };
            if token.kind != Kind::Word || !self.replace(&token)? {
                return Ok(token);
            }
        }
    }

    /// Returns the next token of the present file. If a directive comes next, executes it and returns `None`.
    fn next_of_file(&mut self) -> Result<Option<Token>, Diagnostic> {
        let Some(file) = self.files.last_mut() else { return Ok(None) };
        let skipping = file.skipping();
        let token = file.scanner.next();
        match token.kind {
            Kind::End => return self.end_of_file(token),
            Kind::Mark(b'#') if token.first => self.directive(token)?,
            _ if skipping => {}
            Kind::Passed => self.passed(token)?,
            _ => return Ok(Some(token)),
        }
        Ok(None)
    }

    fn end_of_file(&mut self, end: Token) -> Result<Option<Token>, Diagnostic> {
        if let Some(open) = self.files.last().and_then(|file| file.conditionals.last()) {
            return self.refuse(open.at, "this has no `#endif`");
        }
        if self.files.len() == 1 {
            return Ok(Some(end));
        }
        self.files.pop();
        Ok(None)
    }

    fn directive(&mut self, mark: Token) -> Result<(), Diagnostic> {
        let skipping = self.files.last().is_some_and(File::skipping);
        let mut line = self.rest_of_line();
        if line.is_empty() || line[0].kind == Kind::Number {
            return Ok(());
        }
        let name = line.remove(0);
        let text = self.sources.text(name.text).to_owned();
        match text.as_str() {
            "if" | "ifdef" | "ifndef" => return self.begin(&text, name, &line, skipping),
            "elif" | "else" | "endif" => return self.turn(&text, name, &line),
            _ if skipping => {}
            "define" => self.define(&line)?,
            "undef" => self.undefine(&line),
            "include" | "import" => self.include(name, &line)?,
            "error" => {
                return self.refuse(
                    name.at,
                    "an `#error` directive: the file must not be read with these definitions",
                );
            }
            "pragma" | "ident" | "sccs" | "line" | "warning" => {}
            _ => return self.refuse(mark.at.to(name.at), "no such directive"),
        }
        Ok(())
    }

    /// Returns the remaining tokens of the present line. Comments come last.
    fn rest_of_line(&mut self) -> Vec<Token> {
        let mut line = Vec::new();
        let Some(file) = self.files.last_mut() else { return line };
        loop {
            let before = file.scanner.clone();
            let token = file.scanner.next();
            if token.kind == Kind::End || token.first {
                file.scanner = before;
                return line;
            }
            line.push(token);
        }
    }

    fn begin(&mut self, which: &str, name: Token, line: &[Token], skipping: bool) -> Result<(), Diagnostic> {
        let holds = match which {
            _ if skipping => false,
            "if" => self.condition(name, line)?,
            _ => {
                let Some(of) = meant(line).next().filter(|token| token.kind == Kind::Word) else {
                    return self.refuse(name.at, "the name of a macro should follow");
                };
                self.macros.contains_key(self.sources.text(of.text)) == (which == "ifdef")
            }
        };
        let Some(file) = self.files.last_mut() else { return Ok(()) };
        if file.conditionals.len() >= MAX_CONDITIONALS {
            return self.refuse(name.at, format!("more than {MAX_CONDITIONALS} nested `#if`s"));
        }
        file.conditionals.push(Conditional {
            at: name.at,
            skipping: !holds,
            done: holds || skipping,
            last: false,
        });
        Ok(())
    }

    /// Executes `#elif`, `#else` or `#endif`.
    fn turn(&mut self, which: &str, name: Token, line: &[Token]) -> Result<(), Diagnostic> {
        let Some(mut open) = self.files.last_mut().and_then(|file| file.conditionals.pop()) else {
            return self.refuse(name.at, "there is no `#if` before this");
        };
        if which == "endif" {
            return Ok(());
        }
        if open.last {
            return self.refuse(name.at, "this follows the `#else` of the same `#if`");
        }
        open.skipping = open.done || which == "elif" && !self.condition(name, line)?;
        open.done |= !open.skipping;
        open.last = which == "else";
        if let Some(file) = self.files.last_mut() {
            file.conditionals.push(open);
        }
        Ok(())
    }

    fn include(&mut self, name: Token, line: &[Token]) -> Result<(), Diagnostic> {
        let Some((wanted, at)) = self.included_name(line) else {
            return self.refuse(name.at, "`\"file\"` or `<file>` should follow");
        };
        if self.files.len() >= MAX_DEPTH {
            return self.refuse(at, format!("files include each other {MAX_DEPTH} deep"));
        }
        let Some(path) = self.sources.search(at.file, Path::new(&wanted), &self.options.include_dirs) else {
            let missing = Diagnostic::new(self.sources, at, format!("no file `{wanted}`"));
            return Err(missing.help(
                "files are looked for beside the file that includes them, and in the directories of `-I`",
            ));
        };
        let read = self.sources.read(&path, Some(at));
        let file = read.map_err(|message| Diagnostic::new(self.sources, at, message))?;
        self.files.push(File::new(self.sources, file));
        Ok(())
    }

    /// Returns the file that an `#include` names, and the place of the name.
    fn included_name(&self, line: &[Token]) -> Option<(String, Span)> {
        let first = meant(line).next()?;
        if first.kind == Kind::Text {
            return Some((unquoted(self.sources.text(first.text)), first.at));
        }
        let last = meant(line).find(|token| token.kind == Kind::Mark(b'>'))?;
        let name = Span { start: first.text.end, end: last.text.start, ..first.text };
        (first.kind == Kind::Mark(b'<'))
            .then(|| (self.sources.text(name).trim().to_owned(), first.at.to(last.at)))
    }

    /// Notes the definitions and includes of a `%` line. An included header can be generated from another
    /// `.x` file.
    fn passed(&mut self, token: Token) -> Result<(), Diagnostic> {
        let inner = Span { start: token.text.start + 1, ..token.text };
        let mut scanner = Scanner::of(inner, &self.sources.get(token.text.file).text);
        let mut next = || scanner.next();
        let mark = next();
        let name = if mark.kind == Kind::Mark(b'#') { next() } else { mark };
        let line: Vec<Token> =
            std::iter::from_fn(|| Some(next()).filter(|token| token.kind != Kind::End)).collect();
        match self.sources.text(name.text) {
            "typedef" => self.noted.push((name, meant(&line).copied().collect())),
            _ if mark.kind != Kind::Mark(b'#') => {}
            "include" => self.imports.extend(self.included_name(&line).map(|(name, _)| name)),
            "define" => self.note(&line),
            _ => {}
        }
        Ok(())
    }

    /// Returns a fault at `at`.
    fn refuse<T>(&self, at: Span, why: impl Into<String>) -> Result<T, Diagnostic> {
        Err(Diagnostic::new(self.sources, at, why))
    }
}

/// Returns the tokens of a line that are not comments.
fn meant(line: &[Token]) -> impl Iterator<Item = &Token> {
    line.iter().filter(|token| token.kind != Kind::Comment)
}
