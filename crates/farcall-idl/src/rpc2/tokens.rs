//! The tokens of a file and of the files that it includes. Notes the numbers that text between `%{` and `%}`
//! defines for C, because array bounds and time-outs can be such names.

use std::collections::HashMap;
use std::path::Path;

use super::Options;
use super::scan::{FORMS, unquoted};
use crate::text::diagnostic::Diagnostic;
use crate::text::reader::Parsed;
use crate::text::scan::{Kind, Token, number};
use crate::text::simple_scan::SimpleScanner;
use crate::text::source::Sources;

/// The maximum depth to which files include each other. That of rp2gen is 4.
const MAX_DEPTH: usize = 16;

pub(super) struct Tokens<'a> {
    pub sources: &'a mut Sources,
    options: &'a Options,
    /// The files that are being read, the innermost last.
    files: Vec<SimpleScanner>,
    /// The numbers of C: from the options, and from text for C.
    pub numbers: HashMap<String, i128>,
}

impl<'a> Tokens<'a> {
    pub fn new(sources: &'a mut Sources, file: u32, options: &'a Options) -> Self {
        let files = vec![SimpleScanner::new(&FORMS, file, sources.get(file).text.clone())];
        let given = options.defines.iter();
        let numbers = given.filter_map(|(name, value)| Some((name.clone(), signed(value)?))).collect();
        Tokens { sources, options, files, numbers }
    }

    /// Returns the next token, which may be a comment.
    pub fn next(&mut self) -> Parsed<Token> {
        loop {
            let token = self.raw();
            match token.kind {
                Kind::End if self.files.len() > 1 => {
                    self.files.pop();
                }
                Kind::Passed => self.note(token),
                Kind::Word if self.sources.text(token.text).eq_ignore_ascii_case("#include") => {
                    self.include(token)?;
                }
                _ => return Ok(token),
            }
        }
    }

    fn raw(&mut self) -> Token {
        // The outermost file is never taken away.
        self.files.last_mut().map_or_else(|| unreachable!("there is a file"), SimpleScanner::next)
    }

    fn include(&mut self, directive: Token) -> Parsed<()> {
        let name = self.raw();
        if name.kind != Kind::Text {
            return Err(Diagnostic::new(self.sources, directive.at, "`\"file\"` should follow"));
        }
        if self.files.len() > MAX_DEPTH {
            let why = format!("files include each other {MAX_DEPTH} deep");
            return Err(Diagnostic::new(self.sources, name.at, why));
        }
        let wanted = unquoted(self.sources.text(name.text));
        let found = self.sources.search(name.at.file, Path::new(&wanted), &self.options.include_dirs);
        let Some(path) = found else {
            let help = "files are looked for beside the file that includes them, and in the directories that \
                        `-I DIRECTORY` (on the command line) and `include = \"directory\"` (in \
                        `include_rpc2!`) name";
            return Err(Diagnostic::new(self.sources, name.at, format!("no file `{wanted}`")).help(help));
        };
        let read = self.sources.read(&path, Some(name.at));
        let file = read.map_err(|message| Diagnostic::new(self.sources, name.at, message))?;
        self.files.push(SimpleScanner::new(&FORMS, file, self.sources.get(file).text.clone()));
        Ok(())
    }

    /// Notes the lines `#define NAME number` of a text for C. The first definition of a name counts, and
    /// those of the options count before all others.
    fn note(&mut self, token: Token) {
        let text = self.sources.text(token.text);
        let defined = text.lines().filter_map(|line| {
            let mut words = line.trim_start().strip_prefix('#')?.split_ascii_whitespace();
            let (directive, name, value) = (words.next()?, words.next()?, words.next()?);
            Some((name.to_owned(), signed(value)?)).filter(|_| directive == "define")
        });
        for (name, value) in defined.collect::<Vec<_>>() {
            self.numbers.entry(name).or_insert(value);
        }
    }
}

/// Returns the value of a number in C's notation, which may be negative.
pub(super) fn signed(text: &str) -> Option<i128> {
    match text.strip_prefix('-') {
        Some(digits) => number(digits).map(|value| -value),
        None => number(text),
    }
}
