//! A run that records what it is told, and changes as a test says.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall_olympus::interpreter::FiringId;
use farcall_olympus::model::{Graph, NodeId, Token};
use farcall_olympus::page::{Backend, Changes, Command, NodeCounts, Page, RunState, Settings};
use farcall_olympus::procedures::{Exported, ExportedProcedure};
use farcall_olympus::run::{Counts, FiringRecord, Pace, Stage};
use serde_json::json;

/// What was told to the run, and what it shows.
pub struct StandIn {
    told: Mutex<Told>,
    changed: Condvar,
}

struct Told {
    graphs: Vec<Graph>,
    commands: Vec<Command>,
    changes: Changes,
    stopped: Vec<FiringRecord>,
}

impl StandIn {
    /// Serves a page for a new run.
    pub fn serve(graph: Graph, settings: Settings) -> (Arc<StandIn>, Page) {
        let changes = Changes {
            number: 1,
            state: RunState::Paused,
            note: None,
            pace: Pace::Fast,
            complete: true,
            places: graph
                .places
                .iter()
                .map(|place| (place.name.clone(), place.tokens.len() as u32))
                .collect(),
            nodes: BTreeMap::new(),
            counts: Counts::default(),
            firings_per_second: 0.0,
        };
        let told = Told { graphs: Vec::new(), commands: Vec::new(), changes, stopped: Vec::new() };
        let run = Arc::new(StandIn { told: Mutex::new(told), changed: Condvar::new() });
        let page = Page::serve(graph, Arc::clone(&run) as Arc<dyn Backend>, settings).expect("a page");
        (run, page)
    }

    /// Returns how often something was called.
    pub fn calls(&self) -> usize {
        let told = self.told.lock().unwrap();
        told.graphs.len() + told.commands.len()
    }

    pub fn commands(&self) -> Vec<Command> {
        self.told.lock().unwrap().commands.clone()
    }

    pub fn graphs(&self) -> Vec<Graph> {
        self.told.lock().unwrap().graphs.clone()
    }

    /// Stops a firing, beside those that are stopped.
    pub fn stop(&self, firing: FiringRecord) {
        self.told.lock().unwrap().stopped.push(firing.clone());
        let counts = NodeCounts { begun: 1, stopped: 1, error: firing.error, ..NodeCounts::default() };
        self.change(|changes| {
            changes.counts.stopped += 1;
            changes.nodes.insert(firing.name, counts);
        });
    }

    /// Changes what the run shows.
    pub fn change(&self, change: impl FnOnce(&mut Changes)) {
        let mut told = self.told.lock().unwrap();
        change(&mut told.changes);
        told.changes.number += 1;
        told.changes.complete = true;
        self.changed.notify_all();
    }
}

impl Backend for StandIn {
    fn apply(&self, graph: &Graph) -> Result<(), String> {
        self.told.lock().unwrap().graphs.push(graph.clone());
        Ok(())
    }

    fn command(&self, command: Command) -> Result<(), String> {
        self.change(|changes| match command {
            Command::Resume => changes.state = RunState::Running,
            Command::Pause => changes.state = RunState::Paused,
            _ => {}
        });
        self.told.lock().unwrap().commands.push(command);
        Ok(())
    }

    fn changes(&self, since: u64, wait: Duration) -> Changes {
        let told = self.told.lock().unwrap();
        let same = |told: &mut Told| told.changes.number <= since;
        let (told, _) = self.changed.wait_timeout_while(told, wait, same).unwrap();
        told.changes.clone()
    }

    fn stopped(&self) -> Vec<FiringRecord> {
        self.told.lock().unwrap().stopped.clone()
    }

    fn firing(&self, id: u64) -> Option<FiringRecord> {
        self.stopped().into_iter().find(|firing| firing.firing == FiringId(id))
    }

    fn tokens(&self, place: &str) -> Option<Vec<Token>> {
        let count = *self.told.lock().unwrap().changes.places.get(place)?;
        Some((0..count.min(20)).map(|index| json!(format!("token {index} <b>bold</b>"))).collect())
    }

    fn exports(&self) -> Result<Vec<Exported>, String> {
        let procedure = |name: &str, argument: &str, result: &str| ExportedProcedure {
            name: name.into(),
            signature: format!("{name}({argument}: string) -> {result}"),
            arguments: vec![argument.into()],
            docs: "<i>Does</i> it.".into(),
            idempotent: name == "fetch",
        };
        let procedures =
            vec![procedure("fetch", "commit", "Source"), procedure("compile", "source", "Binary")];
        Ok(vec![Exported { name: "Builder".into(), instances: vec!["fast".into()], procedures, error: None }])
    }
}

/// Returns a firing that stopped.
pub fn stopped(firing: u64, name: &str, error: &str) -> FiringRecord {
    FiringRecord {
        firing: FiringId(firing),
        node: NodeId(0),
        name: name.into(),
        stage: Stage::Stopped,
        tokens: vec![json!("a1f"), json!({"<b>": 1})],
        arguments: Some(json!(["a1f"])),
        attempts: 1,
        error: Some(error.into()),
        exception: None,
        left_out: None,
        ran: Some("maybe"),
        began: 1.25,
    }
}
