//! Graphs in files: text, PNML or JSON, and what is wrong with them.

use std::io::Read;
use std::path::{Path, PathBuf};

use farcall_olympus::location::Location;
use farcall_olympus::model::Graph;
use farcall_olympus::pnml;
use farcall_olympus::text::{self, Document};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::{remark, remark_on};
use crate::x_file::as_json;

/// The most bytes of a file.
const MAX_FILE_BYTES: u64 = pnml::MAX_BYTES as u64;

/// How a graph is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The text format
    Text,
    /// PNML, for other tools for Petri nets
    Pnml,
    /// JSON
    Json,
}

/// A graph, and the file that it was read from.
pub struct GraphFile {
    pub graph: Graph,
    pub format: Format,
    path: String,
    document: Option<Document>,
}

impl Format {
    /// Returns the format that the file's name says.
    pub fn of(path: &str) -> Format {
        match Path::new(path).extension().and_then(|extension| extension.to_str()) {
            Some("pnml" | "xml") => Format::Pnml,
            Some("json") => Format::Json,
            _ => Format::Text,
        }
    }

    /// Returns the graph in this format.
    pub fn print(self, graph: &Graph) -> Outcome<String> {
        match self {
            Format::Text => Ok(text::print(graph)),
            Format::Pnml => Ok(pnml::write(graph)),
            Format::Json => serde_json::to_string_pretty(graph).map_err(|why| Failure::new(why.to_string())),
        }
    }
}

impl GraphFile {
    /// Reads a graph; `-` is standard input. Tells on standard error what is wrong with a text.
    pub fn read(path: &str, json: bool) -> Outcome<GraphFile> {
        let bytes = read(path)?;
        let format = Format::of(path);
        let file = |graph, document| GraphFile { graph, format, path: path.to_owned(), document };
        match format {
            Format::Pnml => {
                let graph = pnml::read(&bytes).map_err(|why| Failure::new(why.to_string()).about(path))?;
                Ok(file(graph, None))
            }
            Format::Json => {
                let graph = serde_json::from_slice(&bytes);
                Ok(file(graph.map_err(|why| Failure::new(why.to_string()).about(path))?, None))
            }
            Format::Text => {
                let text = String::from_utf8(bytes)
                    .map_err(|_| Failure::new("a graph is text in UTF-8, and this is not").about(path))?;
                let document = Document::parse(path, &text).map_err(|faults| {
                    if !json {
                        faults.iter().for_each(remark_on);
                    }
                    let all = faults.iter().map(as_json).collect();
                    let count = faults.iter().count();
                    let noun = if count == 1 { "fault" } else { "faults" };
                    Failure::new(format!("{path} has {count} {noun}")).fact("faults", Value::Array(all))
                })?;
                Ok(file(document.graph.clone(), Some(document)))
            }
        }
    }

    /// Returns the directory that relative paths in the graph refer to.
    pub fn directory(&self) -> PathBuf {
        Path::new(&self.path).parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Tells on standard error something about a part of the graph, with its line if the file is text.
    pub fn tell(&self, location: Location, message: &str, warning: bool) {
        match &self.document {
            Some(document) => {
                let diagnostic = document.diagnostic(location, message);
                remark_on(&if warning { diagnostic.warning() } else { diagnostic });
            }
            None => {
                let word = if warning { "warning" } else { "error" };
                let part = location.describe(&self.graph);
                remark(&format!("{word}: {part}: {message}"));
            }
        }
    }

    /// Returns something about a part of the graph, for scripts.
    pub fn as_json(&self, location: Location, message: &str, warning: bool) -> Value {
        let part = location.describe(&self.graph);
        let mut all = json!({ "part": part, "location": location, "message": message, "warning": warning });
        if let Some(document) = &self.document {
            let diagnostic = document.diagnostic(location, message);
            (all["line"], all["column"]) = (diagnostic.line().into(), diagnostic.column().into());
        }
        all
    }
}

fn read(path: &str) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match path {
        "-" => std::io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes),
        path => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes))
        }
    };
    read.map_err(|why| Failure::from(why).about(path))?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(Failure::new(format!("{path} has more than {MAX_FILE_BYTES} bytes"))),
        false => Ok(bytes),
    }
}
