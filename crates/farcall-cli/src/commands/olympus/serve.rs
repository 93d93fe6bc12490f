//! `farcall olympus serve`: the page in a browser on which a graph is drawn, run and watched.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use clap::{Args, ValueHint};
use farcall_olympus::journal::Journal;
use farcall_olympus::model::Graph;
use farcall_olympus::page::{self, Page, RestartableRun};
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{DEFAULT_BOUND, Run, Settings};
use serde_json::json;

use super::graph_file::GraphFile;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::remote::runtime;

/// Serve a page in the browser on which a graph is drawn, run and watched, and print its URL
///
/// The page listens on 127.0.0.1 only. Who knows the URL may call whatever this command may call. The run
/// begins paused. The page edits a graph in memory, not in the file; it can save the graph as a file.
#[derive(Debug, Args)]
pub struct Serve {
    /// The graph [default: an empty one]
    #[arg(value_hint = ValueHint::FilePath)]
    graph: Option<String>,

    /// The TCP port [default: a free one]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// The most calls under way at once
    #[arg(long, value_name = "CALLS", default_value_t = DEFAULT_BOUND)]
    bound: usize,

    /// The number by which nodes that could fire at once are chosen [default: in the order in which they
    /// could]
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    seed: u64,

    /// Record the first run in a journal, a new file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    journal: Option<PathBuf>,
}

impl Serve {
    pub fn run(&self, output: &Output) -> Outcome {
        let (graph, directory) = match &self.graph {
            Some(path) => {
                let file = GraphFile::read(path, output.is_json())?;
                let directory = file.directory();
                (file.graph, directory)
            }
            None => (Graph::default(), PathBuf::new()),
        };
        if self.bound == 0 {
            return Err(Failure::usage("at least 1 call must be possible at once"));
        }
        let procedures = Procedures::new(&runtime()?).in_directory(&directory);
        let journal = self.journal.as_deref().map(Journal::create).transpose();
        // A journal has one run. When the page starts the run again, that one is not recorded.
        let journal = Mutex::new(journal.map_err(|why| Failure::new(why.to_string()))?);
        let (bound, seed) = (self.bound, self.seed);
        let found = procedures.clone();
        let start = move |graph: Graph| {
            let journal = journal.lock().unwrap_or_else(PoisonError::into_inner).take();
            let settings = Settings { bound, seed, journal, paused: true, ..Settings::default() };
            Run::start(graph, &found, settings).map_err(|why| why.to_string())
        };
        let backend = RestartableRun::new(graph.clone(), procedures, start).map_err(Failure::new)?;
        let (interrupted, interruption) = mpsc::channel();
        // Sending fails only if the receiver is gone, and then the command is ending anyway.
        let handler = move || interrupted.send(()).unwrap_or_default();
        ctrlc::set_handler(handler).map_err(|why| Failure::new(why.to_string()))?;
        let settings = page::Settings { port: self.port, ..page::Settings::default() };
        let page = Page::serve(graph, Arc::new(backend), settings)
            .map_err(|why| Failure::from(why).about(format!("the page at port {}", self.port)))?;
        output.line(|| json!({ "url": page.url(), "pid": std::process::id() }), || page.url())?;
        // Receiving fails only if the handler is dropped, which never happens.
        let _ = interruption.recv();
        Ok(())
    }
}
