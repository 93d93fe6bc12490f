//! Runs graphs whose nodes are served by real processes, some of which are killed.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use farcall::Runtime;
use farcall_olympus::interpreter::Decision;
use farcall_olympus::journal::Journal;
use farcall_olympus::model::Graph;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::rules::Rules;
use farcall_olympus::run::{Command as Order, Outcome, Past, Run, Settings, State};
use farcall_olympus::text;
use serde_json::{Value, json};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A process that serves. It is killed when this is dropped.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// The first line that it printed.
    first: String,
}

impl Worker {
    /// Starts a process, and waits until it says that it is ready.
    fn start(command: &mut Command) -> Worker {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().expect("it says that it is ready").unwrap();
        Worker { child, lines, first }
    }

    /// Waits for the next line.
    fn line(&mut self) -> String {
        self.lines.next().expect("it says more").unwrap()
    }

    /// Kills the process at once, and returns what else it had said.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.lines.by_ref().map(|line| line.unwrap()).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory with a registry that the processes of a test share.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn registry(&self) -> PathBuf {
        self.0.path().join("registry")
    }

    /// Starts one of this crate's servers.
    fn worker(&self, role: &str, instance: &str) -> Worker {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcall-workers"));
        // A worker that is not there any more is noticed soon.
        command.env("FARCALL_REGISTRY", self.registry()).env("FARCALL_PATIENCE_MS", "500");
        Worker::start(command.args([role, instance]))
    }

    fn procedures(&self) -> Procedures {
        let registry = farcall::names::File::at(self.registry());
        let runtime = Runtime::builder().registry(registry).patience(Duration::from_millis(500)).build();
        Procedures::new(&runtime.unwrap()).in_directory(&Path::new(HERE).join("graphs"))
    }
}

fn graph(name: &str) -> String {
    std::fs::read_to_string(Path::new(HERE).join("graphs").join(format!("{name}.olympus"))).unwrap()
}

fn parsed(graph: &str) -> Graph {
    text::parse("graph", graph).unwrap_or_else(|why| panic!("{why}"))
}

/// Returns the tokens of a place at the end.
fn tokens(graph: &Graph, state: &State, place: &str) -> Vec<Value> {
    state.places[graph.place(place).unwrap().0 as usize].tokens.clone()
}

fn settings() -> Settings {
    Settings { max_pause: Duration::from_millis(100), ..Settings::default() }
}

#[test]
fn the_pipeline_publishes_each_commit_once() {
    let place = Place::new();
    let builder = place.worker("builder", "one");
    let _testers = ["amber", "beech", "cedar"].map(|machine| place.worker("tester", machine));
    let graph = parsed(&graph("pipeline").replace("\"b2c\"", "\"b2c\", \"broken\", \"d4e\""));
    let run = Run::start(graph.clone(), &place.procedures(), settings()).unwrap();
    assert_eq!(run.wait(), Outcome::Quiet, "{:?}", run.state().stopped);
    let state = run.state();
    let released = ["a1f", "b2c", "d4e"].map(|commit| format!("release of {commit}.bin"));
    assert_eq!(tokens(&graph, &state, "released"), released);
    let failed = tokens(&graph, &state, "failed");
    assert_eq!(failed, [json!({ "line": 1, "message": "\"print broken\" is not understood" })]);
    assert_eq!(tokens(&graph, &state, "free"), [Value::Null]);
    drop(run);
    assert_eq!(builder.kill(), ["a1f", "b2c", "d4e"].map(|commit| format!("published {commit}.bin")));
}

#[test]
fn the_pipeline_survives_the_death_of_a_worker_in_a_call() {
    let place = Place::new();
    let builder = place.worker("builder", "one");
    let _testers = ["amber", "cedar"].map(|machine| place.worker("tester", machine));
    let mut beech = place.worker("hanging-tester", "beech");
    let graph = parsed(&graph("pipeline"));
    let run = Run::start(graph.clone(), &place.procedures(), settings()).unwrap();
    // The process dies while it tests, and another one takes its name.
    assert_eq!(beech.line(), "testing a1f.bin");
    beech.kill();
    let _successor = place.worker("tester", "beech");
    assert_eq!(run.wait(), Outcome::Quiet, "{:?}", run.state().stopped);
    let state = run.state();
    assert_eq!(tokens(&graph, &state, "released"), ["release of a1f.bin", "release of b2c.bin"]);
    drop(run);
    assert_eq!(builder.kill(), ["published a1f.bin", "published b2c.bin"]);
}

#[test]
fn another_builder_goes_on_when_the_first_one_dies() {
    let place = Place::new();
    let first = place.worker("builder", "one");
    let mut amber = place.worker("hanging-tester", "amber");
    let _testers = ["beech", "cedar"].map(|machine| place.worker("tester", machine));
    let graph = parsed(&graph("pipeline"));
    let run = Run::start(graph.clone(), &place.procedures(), settings()).unwrap();
    assert_eq!(amber.line(), "testing a1f.bin");
    // The first commit is compiled, and nothing is published yet.
    assert_eq!(first.kill(), Vec::<String>::new());
    let second = place.worker("builder", "two");
    amber.kill();
    let _successor = place.worker("tester", "amber");
    // `publish` may have been asked of the dead builder. Then the node stops, because only somebody who has
    // looked can say that nothing was published.
    while let Outcome::Stopped(firings) = run.wait() {
        for record in run.state().stopped {
            assert_eq!((record.name.as_str(), record.ran), ("publish", Some("maybe")), "{record:?}");
            run.command(Order::Decide { firing: record.firing, decision: Decision::Retry }).unwrap();
        }
        assert!(!firings.is_empty());
    }
    assert_eq!(tokens(&graph, &run.state(), "released").len(), 2);
    drop(run);
    assert_eq!(second.kill(), ["published a1f.bin", "published b2c.bin"]);
}

#[test]
fn a_run_goes_on_from_its_journal() {
    let place = Place::new();
    let builder = place.worker("builder", "one");
    let mut amber = place.worker("hanging-tester", "amber");
    let _testers = ["beech", "cedar"].map(|machine| place.worker("tester", machine));
    let graph = parsed(&graph("pipeline"));
    let path = place.0.path().join("run.journal");
    let journal = Some(Journal::create(&path).unwrap());
    let run = Run::start(graph.clone(), &place.procedures(), Settings { journal, ..settings() }).unwrap();
    assert_eq!(amber.line(), "testing a1f.bin");
    // What a killed interpreter leaves is its journal.
    let copy = place.0.path().join("copy.journal");
    std::fs::copy(&path, &copy).unwrap();
    drop(run);
    amber.kill();
    let _successor = place.worker("tester", "amber");
    let past = Past::open(&copy, Rules::standard()).unwrap();
    assert!(past.may_have_run().count() >= 1);
    let run = Run::resume(past, &place.procedures(), settings()).unwrap();
    assert_eq!(run.wait(), Outcome::Quiet, "{:?}", run.state().stopped);
    assert_eq!(tokens(&graph, &run.state(), "released"), ["release of a1f.bin", "release of b2c.bin"]);
    drop(run);
    assert_eq!(builder.kill(), ["published a1f.bin", "published b2c.bin"]);
}

#[test]
fn nodes_are_written_in_three_languages() {
    let place = Place::new();
    let Some(count) = in_c(&place) else { return };
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("python3 cannot be run");
    }
    let _cleaner = place.worker("cleaner", "any");
    let count = Worker::start(&mut Command::new(count));
    let grade = Worker::start(Command::new("python3").arg(Path::new(HERE).join("grade.py")));
    let text = graph("three-languages").replace("7701", &count.first).replace("7702", &grade.first);
    let graph = parsed(&text);
    let run = Run::start(graph.clone(), &place.procedures(), settings()).unwrap();
    assert_eq!(run.wait(), Outcome::Quiet, "{:?}", run.state().stopped);
    let mut grades = tokens(&graph, &run.state(), "grades");
    grades.sort_by_key(ToString::to_string);
    assert_eq!(grades, ["empty", "long", "short"]);
}

/// Makes the server in C. If that is impossible, prints why the test is skipped.
fn in_c(place: &Place) -> Option<PathBuf> {
    let made = make(place.0.path());
    made.inspect_err(|why| skip(why)).ok()
}

fn make(out: &Path) -> Result<PathBuf, String> {
    std::fs::copy(Path::new(HERE).join("count.x"), out.join("count.x")).map_err(|why| why.to_string())?;
    for (flag, file) in [("-h", "count.h"), ("-m", "count_svc.c"), ("-c", "count_xdr.c")] {
        run(Command::new("rpcgen").args(["-C", "-N", flag, "-o", file, "count.x"]).current_dir(out))?;
    }
    let mut gcc = Command::new("gcc");
    gcc.args(["-w", "-I", ".", "-I", "/usr/include/tirpc", "-o", "count"]);
    gcc.arg(Path::new(HERE).join("count.c")).args(["count_svc.c", "count_xdr.c", "-ltirpc", "-lpthread"]);
    run(gcc.current_dir(out))?;
    Ok(out.join("count"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|why| format!("{name} cannot be run: {why}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn skip(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: nodes in three languages: {why}");
}
