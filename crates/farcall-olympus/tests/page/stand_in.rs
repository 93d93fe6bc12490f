//! A run that records what it is told, and changes as a test says.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall_olympus::model::{Graph, Token};
use farcall_olympus::page::{Backend, Changes, Command, Export, ExportedProcedure, Page, RunState, Settings};
use serde_json::{Value, json};

/// What was told to the run, and what it shows.
#[derive(Default)]
pub struct StandIn {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    graphs: Vec<Graph>,
    commands: Vec<Command>,
    changes: Changes,
}

impl StandIn {
    /// Serves a page for a new run.
    pub fn serve(graph: Graph, settings: Settings) -> (Arc<StandIn>, Page) {
        let run = Arc::new(StandIn::default());
        let marking =
            graph.places.iter().map(|place| (place.name.clone(), place.tokens.len() as u64)).collect();
        run.change(|changes| changes.marking = marking);
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

    fn firing(&self, id: u64) -> Option<Value> {
        (id == 7).then(|| json!({"node": "compile", "tokens": ["<b>a1f</b>"], "error": "<script>document.title='ran'</script>"}))
    }

    fn tokens(&self, place: &str, limit: usize) -> Option<Vec<Token>> {
        let told = self.told.lock().unwrap();
        let count = *told.changes.marking.get(place)?;
        Some((0..count.min(limit as u64)).map(|index| json!(format!("token {index}"))).collect())
    }

    fn exports(&self) -> Result<Vec<Export>, String> {
        let procedure = |name: &str, parameter: &str, result: &str| ExportedProcedure {
            name: name.into(),
            parameters: vec![(parameter.into(), "string".into())],
            result: Some(result.into()),
            ..ExportedProcedure::default()
        };
        let procedures =
            vec![procedure("fetch", "commit", "Source"), procedure("compile", "source", "Binary")];
        Ok(vec![Export { server: "Builder".into(), procedures, error: None }])
    }
}
