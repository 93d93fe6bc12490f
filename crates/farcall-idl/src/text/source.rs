//! The texts that were read, and places in them.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use farcall_base::work;

/// The maximum size of one file in bytes. The largest files in use have 200 KiB.
const MAX_FILE: usize = 4 << 20;
/// The maximum size of all files together in bytes. A file counts as often as it is included.
const MAX_TOTAL: usize = 16 << 20;
/// The maximum number of files. A file counts as often as it is included.
const MAX_FILES: usize = 1 << 10;

/// A piece of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The index of the text in [`Sources`].
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// Returns the span from the beginning of this one to the end of `last`, or only this one if `last` is in
    /// another text.
    pub fn to(self, last: Span) -> Span {
        if last.file == self.file && last.end >= self.start { Span { end: last.end, ..self } } else { self }
    }
}

/// A text, and its origin.
pub(crate) struct Source {
    /// The name of the text in messages.
    pub name: String,
    /// The directory that is searched first for files that the text includes.
    pub directory: PathBuf,
    pub text: Rc<str>,
    /// The offset at which each line begins.
    lines: Vec<u32>,
    /// The `#include` directive that included the text, if one did.
    pub included: Option<Span>,
    /// The byte of which the column was counted last, the byte at which its line begins, and the column in
    /// characters. Messages about one long line count on from there.
    counted: Cell<(u32, u32, usize)>,
}

/// All texts of one run.
#[derive(Default)]
pub(crate) struct Sources {
    all: Vec<Source>,
    total: usize,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// The texts that macros have produced, and where each is in `all`.
    pasted: HashMap<String, Span>,
}

impl Sources {
    /// Adds a text and returns its index, or a message that says which limit is exceeded.
    pub fn add(&mut self, name: &Path, text: &str, included: Option<Span>) -> Result<u32, String> {
        self.total = self.total.saturating_add(text.len());
        let shown = name.display();
        if text.len() > MAX_FILE || self.total > MAX_TOTAL {
            return Err(format!(
                "{shown}: too large: a file may have {MAX_FILE} bytes, all files together {MAX_TOTAL}"
            ));
        }
        if self.all.len() - self.pasted.len() >= MAX_FILES {
            return Err(format!("{shown}: too many files: there may be at most {MAX_FILES}"));
        }
        let lines = std::iter::once(0)
            .chain(text.bytes().zip(1u32..).filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at));
        self.all.push(Source {
            name: shown.to_string(),
            directory: name.parent().unwrap_or(Path::new("")).to_owned(),
            text: text.into(),
            lines: lines.collect(),
            included,
            counted: Cell::default(),
        });
        Ok(self.all.len() as u32 - 1)
    }

    /// Adds a text that a macro has produced, once for equal texts. Returns `None` if a limit is exceeded.
    pub fn paste(&mut self, text: &str) -> Option<Span> {
        if let Some(known) = self.pasted.get(text) {
            return Some(*known);
        }
        self.total = self.total.saturating_add(text.len());
        if self.total > MAX_TOTAL {
            return None;
        }
        let span = Span { file: self.all.len() as u32, start: 0, end: text.len() as u32 };
        self.all.push(Source {
            name: "<macro>".into(),
            directory: PathBuf::new(),
            text: text.into(),
            lines: vec![0],
            included: None,
            counted: Cell::default(),
        });
        self.pasted.insert(text.to_owned(), span);
        Some(span)
    }

    /// Reads a file and adds it as [`Sources::add`] does. Bytes that are not UTF-8, as in old comments in
    /// Latin-1, become U+FFFD.
    pub fn read(&mut self, path: &Path, included: Option<Span>) -> Result<u32, String> {
        use std::io::Read;
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes))
            .map_err(|why| format!("{}: {why}", path.display()))?;
        let source = self.add(path, &String::from_utf8_lossy(&bytes), included)?;
        if !self.files.iter().any(|file| file == path) {
            self.files.push(path.into());
        }
        Ok(source)
    }

    /// Returns the text of that index.
    pub fn get(&self, file: u32) -> &Source {
        &self.all[file as usize]
    }

    /// Returns the characters of a span.
    pub fn text(&self, span: Span) -> &str {
        &self.get(span.file).text[span.start as usize..span.end as usize]
    }

    /// Returns the line of a byte, counted from 0.
    pub fn line(&self, file: u32, at: u32) -> usize {
        self.get(file).lines.partition_point(|start| *start <= at) - 1
    }

    /// Returns the column of a byte: the number of bytes before it in its line.
    pub fn column(&self, file: u32, at: u32) -> u32 {
        at - self.get(file).lines[self.line(file, at)]
    }

    /// Returns the column of a byte in characters, counted from 1.
    pub fn column_in_characters(&self, file: u32, at: u32) -> usize {
        let source = self.get(file);
        let start = source.lines[self.line(file, at)];
        let (from, known) = match source.counted.get() {
            (last, line, column) if line == start && start < last && last <= at => (last, column),
            _ => (start, 1),
        };
        work::steps((at - from) as usize / 16);
        let more = source.text.get(from as usize..at as usize).unwrap_or_default();
        let column = known + more.chars().count();
        source.counted.set((at, start, column));
        column
    }

    /// Returns a line without its end, and the offset of its first byte.
    pub fn whole_line(&self, file: u32, line: usize) -> (&str, u32) {
        let source = self.get(file);
        let start = source.lines[line];
        let end = source.lines.get(line + 1).map_or(source.text.len(), |next| *next as usize);
        (source.text[start as usize..end].trim_end_matches(['\n', '\r']), start)
    }

    /// Looks for a file next to the including file, then in the given directories.
    pub fn search(&self, from: u32, wanted: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
        let beside = std::iter::once(&self.get(from).directory);
        beside.chain(directories).map(|directory| directory.join(wanted)).find(|path| path.is_file())
    }
}
