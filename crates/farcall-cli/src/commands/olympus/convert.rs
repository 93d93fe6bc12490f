//! `farcall olympus convert`: writes a graph in another format.

use clap::{Args, ValueHint};
use serde_json::json;

use super::graph_file::{Format, GraphFile};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say_document};

/// Write a graph in another format: PNML as text, text as PNML, or what --to or the name of the file says
///
/// PNML is what other tools for Petri nets read. They see places, nodes, arcs, weights and the number of
/// tokens; what else the graph has is kept in elements that they pass over.
#[derive(Debug, Args)]
pub struct Convert {
    /// The graph
    #[arg(value_hint = ValueHint::FilePath)]
    graph: String,

    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<String>,

    /// The format to write [default: that of FILE's name; else PNML for text, and text for others]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
}

impl Convert {
    pub fn run(&self, output: &Output) -> Outcome {
        let file = GraphFile::read(&self.graph, output.is_json())?;
        let other = if file.format == Format::Text { Format::Pnml } else { Format::Text };
        let format = self.to.or(self.output.as_deref().map(Format::of)).unwrap_or(other);
        let written = format.print(&file.graph)?;
        match &self.output {
            Some(path) => std::fs::write(path, written).map_err(|why| Failure::from(why).about(path)),
            None if output.is_json() => output.line(|| json!({ "graph": written }), String::new),
            None => say_document(written.trim_end()),
        }
    }
}
