//! The page's backend over a real run: edits that wait, names, and the reset.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall::Runtime;
use farcall_olympus::model::Graph;
use farcall_olympus::page::{Backend as _, Changes, Command, RestartableRun, RunState};
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Run, Settings};
use farcall_olympus::text;

#[farcall::interface]
pub trait Gate {
    /// Returns when the gate is open.
    fn pass(&self) -> farcall::Result<()>;
}

#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate for Door {
    fn pass(&self) -> farcall::Result<()> {
        let open = self.open.lock().unwrap();
        drop(self.opened.wait_while(open, |open| !*open).unwrap());
        Ok(())
    }
}

fn graph(text: &str) -> Graph {
    text::parse("test", text).unwrap()
}

fn start(runtime: &Runtime, text: &str) -> RestartableRun {
    let procedures = Procedures::new(runtime);
    let of_runs = procedures.clone();
    let start = move |graph| {
        let settings = Settings { paused: true, ..Settings::default() };
        Run::start(graph, &of_runs, settings).map_err(|why| why.to_string())
    };
    RestartableRun::new(graph(text), procedures, start).unwrap()
}

/// Waits for changes until they are as a test wants.
fn until(run: &RestartableRun, wanted: impl Fn(&Changes) -> bool) -> Changes {
    let mut since = 0;
    loop {
        let changes = run.changes(since, Duration::from_secs(1));
        if wanted(&changes) {
            return changes;
        }
        // Asks for everything again, so that a test can look at any place.
        since = if changes.complete { changes.number } else { 0 };
    }
}

fn runtime() -> Runtime {
    Runtime::builder().registry(farcall::names::Memory::new()).build().unwrap()
}

const CALLS: &str = "place a = 1\nplace b\n\nnode n\n  in a\n  call Gate pass\n  out b\n";

#[test]
fn an_edit_waits_for_calls_that_are_under_way() {
    let runtime = runtime();
    let door = Arc::new(Door::default());
    let _export = runtime.export::<dyn Gate>("Gate", Arc::clone(&door) as _).unwrap();
    let run = start(&runtime, CALLS);
    run.command(Command::Resume).unwrap();
    until(&run, |changes| changes.counts.under_way == 1);
    run.apply(&graph(&format!("{CALLS}\nplace c = 7\n"))).unwrap();
    let waits = run.changes(0, Duration::ZERO);
    assert!(waits.note.is_some_and(|note| note.contains("under way")));
    assert!(!waits.places.contains_key("c"));
    let put = || Command::Put { place: "c".into(), token: 1.into() };
    assert!(run.command(put()).is_err());
    *door.open.lock().unwrap() = true;
    door.opened.notify_all();
    let done = until(&run, |changes| changes.places.contains_key("c") && changes.state == RunState::Quiet);
    assert_eq!((done.note, done.places["b"], done.places["c"]), (None, 1, 1));
    run.command(put()).unwrap();
    assert_eq!(run.tokens("c").unwrap(), [7, 1]);
}

#[test]
fn an_edit_of_a_run_that_is_not_paused_is_made_at_once() {
    let run = start(&runtime(), "place a\n");
    run.command(Command::Resume).unwrap();
    run.apply(&graph("place a\nplace b = 1\n\nnode move\n  in b\n  out a\n\nnode alone\n")).unwrap();
    let changes = until(&run, |changes| changes.places.get("a") == Some(&1));
    // A node without arcs would fire for ever.
    assert_eq!(changes.counts.ended, 1);
}

#[test]
fn a_reset_starts_the_graph_as_it_is_drawn_and_streams_notice_it() {
    let run = start(&runtime(), "place a = 1\nplace b\n\nnode move\n  in a\n  out b\n");
    run.command(Command::Step).unwrap();
    let moved = until(&run, |changes| changes.places.get("b") == Some(&1));
    run.command(Command::Reset).unwrap();
    let reset = run.changes(moved.number, Duration::from_secs(1));
    assert!(reset.complete);
    assert_eq!(reset.places.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1)]);
    assert_eq!(reset.state, RunState::Paused);
}
