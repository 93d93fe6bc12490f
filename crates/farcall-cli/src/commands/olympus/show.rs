//! `farcall olympus show`: draws a graph as a picture.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall_olympus::draw;
use serde_json::json;

use super::graph_file::GraphFile;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say_document};

/// Draw a graph with its tokens as a picture in SVG, for light and dark surroundings
///
/// What has no position in the file is drawn in layers, from the left to the right.
#[derive(Debug, Args)]
pub struct Show {
    /// The graph
    #[arg(value_hint = ValueHint::FilePath)]
    graph: String,

    /// The file to write [default: standard output]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

impl Show {
    pub fn run(&self, output: &Output) -> Outcome {
        let file = GraphFile::read(&self.graph, output.is_json())?;
        let picture = draw::svg(&file.graph, None);
        match &self.output {
            Some(path) => {
                std::fs::write(path, picture).map_err(|why| Failure::from(why).about(path.display()))
            }
            None if output.is_json() => output.line(|| json!({ "svg": picture }), String::new),
            None => say_document(picture.trim_end()),
        }
    }
}
