//! The texts that were read, and places in them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most that one file may hold; the largest in use have 200 KiB.
const MAX_FILE: usize = 4 << 20;
/// The most that all files together may hold, each counted as often as it is included.
const MAX_TOTAL: usize = 16 << 20;
/// The most files.
const MAX_FILES: usize = 1 << 10;

/// A piece of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Which text: its place in [`Sources`].
    pub file: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    /// From where this begins to where `last` ends, if both are in one text.
    pub fn to(self, last: Span) -> Span {
        if last.file == self.file && last.end >= self.start { Span { end: last.end, ..self } } else { self }
    }
}

/// A text, and where it is from.
pub(crate) struct Source {
    /// As messages name it.
    pub name: String,
    /// Where what it includes is looked for first.
    pub directory: PathBuf,
    pub text: Rc<str>,
    /// Where each line begins.
    lines: Vec<u32>,
    /// The directive that included it.
    pub included: Option<Span>,
}

/// All texts of one run.
#[derive(Default)]
pub(crate) struct Sources {
    all: Vec<Source>,
    total: usize,
    /// Those that were read from files.
    pub files: Vec<PathBuf>,
    /// The texts that macros put together.
    pasted: HashMap<String, Span>,
}

impl Sources {
    /// Takes a text in, and returns its place, or a message that says why there is no room for it.
    pub fn add(&mut self, name: &Path, text: &str, included: Option<Span>) -> Result<u32, String> {
        self.total = self.total.saturating_add(text.len());
        if text.len() > MAX_FILE || self.total > MAX_TOTAL || self.all.len() - self.pasted.len() >= MAX_FILES
        {
            let name = name.display();
            return Err(format!(
                "{name}: too large: a file may have {MAX_FILE} bytes, all together {MAX_TOTAL}"
            ));
        }
        let lines = std::iter::once(0)
            .chain(text.bytes().zip(1u32..).filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at));
        self.all.push(Source {
            name: name.display().to_string(),
            directory: name.parent().unwrap_or(Path::new("")).to_owned(),
            text: text.into(),
            lines: lines.collect(),
            included,
        });
        Ok(self.all.len() as u32 - 1)
    }

    /// Takes in what a macro put together, which is kept once; nothing if it is too much.
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
        });
        self.pasted.insert(text.to_owned(), span);
        Some(span)
    }

    /// Reads a file and takes it in, as [`Sources::add`] takes a text in. Bytes that are not UTF-8, as in old
    /// comments in Latin-1, become U+FFFD.
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

    /// The text at that place.
    pub fn get(&self, file: u32) -> &Source {
        &self.all[file as usize]
    }

    /// What stands there.
    pub fn text(&self, span: Span) -> &str {
        &self.get(span.file).text[span.start as usize..span.end as usize]
    }

    /// The line in which a byte stands, counted from 0.
    pub fn line(&self, file: u32, at: u32) -> usize {
        self.get(file).lines.partition_point(|start| *start <= at) - 1
    }

    /// Where in its line a byte stands, in bytes from 0.
    pub fn column(&self, file: u32, at: u32) -> u32 {
        at - self.get(file).lines[self.line(file, at)]
    }

    /// A line without its end, and where it begins.
    pub fn whole_line(&self, file: u32, line: usize) -> (&str, u32) {
        let source = self.get(file);
        let start = source.lines[line];
        let end = source.lines.get(line + 1).map_or(source.text.len(), |next| *next as usize);
        (source.text[start as usize..end].trim_end_matches(['\n', '\r']), start)
    }

    /// Looks for a file beside the one that asks, then in the directories that were given.
    pub fn search(&self, from: u32, wanted: &Path, directories: &[PathBuf]) -> Option<PathBuf> {
        let beside = std::iter::once(&self.get(from).directory);
        beside.chain(directories).map(|directory| directory.join(wanted)).find(|path| path.is_file())
    }
}
