//! Tests of journals: a run that was killed at any moment goes on, and loses and doubles no token.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_olympus::interpreter::Decision;
use farcall_olympus::journal::{Journal, Record, Storage};
use farcall_olympus::rules::Rules;
use farcall_olympus::run::{Command, Outcome, Past, Run, Settings};
use serde_json::{Value, json};

use super::common::{Worker, World, is_quiet, model, tokens, until};

/// A storage that survives its writer.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Vec<u8>>>);

impl Storage for Disk {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }
}

impl Disk {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        farcall_olympus::journal::read(&*self.bytes(), |record| {
            records.push(record);
            Ok(())
        })
        .unwrap();
        records
    }

    fn past(&self) -> Past {
        Past::read(&*self.bytes(), Rules::standard()).unwrap().with_journal(Journal::over(self.clone()))
    }
}

fn settings(disk: &Disk) -> Settings {
    let journal = Some(Journal::over(disk.clone()));
    Settings { journal, max_pause: Duration::from_millis(20), bound: 4, seed: 5, ..Settings::default() }
}

/// Two steps, the first by a call, the second timed.
fn graph(procedure: &str, count: u64) -> Value {
    let numbers: Vec<u64> = (0..count).collect();
    json!({
        "places": [
            { "name": "from", "tokens": numbers },
            { "name": "middle", "capacity": 3 },
            { "name": "to" },
        ],
        "nodes": [
            {
                "name": "call",
                "in": [{ "place": 0, "as": "n" }],
                "call": { "server": "Work", "name": procedure, "arguments": "[n]" },
                "out": [{ "place": 1, "value": "result" }],
            },
            {
                "name": "later",
                "after": "1s",
                "in": [{ "place": 1, "as": "n" }],
                "out": [{ "place": 2, "value": "n" }],
            },
        ],
    })
}

/// The journal is cut at each of its lines, as if the interpreter had been killed there, and the run goes on.
#[test]
fn a_run_goes_on_from_any_line_of_its_journal() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    worker.gate.open();
    let _export = world.export("Work/one", &worker);
    let disk = Disk::default();
    let run = world.run(&graph("slow_again", 6), settings(&disk));
    is_quiet(&run);
    drop(run);
    let whole = disk.bytes();
    let wanted: Vec<Value> = (0..6).map(Value::from).collect();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').map(|at| at + 1).collect();
    assert!(ends.len() > 6 * 5, "{}", String::from_utf8_lossy(&whole));
    for end in ends {
        let cut = Disk(Arc::new(Mutex::new(whole[..end].to_vec())));
        let past = cut.past();
        let under_way = past.may_have_run().count();
        assert!(under_way <= 4);
        let run = Run::resume(past, &world.procedures(), settings(&cut)).unwrap();
        is_quiet(&run);
        assert_eq!(tokens(&run, "to"), wanted, "after {end} bytes");
        // The journal of the resumed run is whole, too.
        drop(run);
        let counts = cut.past().interpreter().marking().counts();
        assert_eq!(counts, [0, 0, 6]);
    }
}

/// What was under way is shown, and not called again, unless that does no harm.
#[test]
fn what_was_under_way_may_have_run() {
    for again in [false, true] {
        let world = World::new();
        let worker = Arc::new(Worker::default());
        let _export = world.export("Work/one", &worker);
        let disk = Disk::default();
        let run = world.run(&graph(if again { "slow_again" } else { "slow" }, 2), settings(&disk));
        until(&run, "two calls", |state| state.counts.under_way == 2);
        let called =
            |record: &Record| matches!(record, Record::Call { .. } | Record::Begin { calls: true, .. });
        while disk.records().iter().filter(|record| called(record)).count() < 2 {
            run.changes(run.state().number, Duration::from_millis(1));
        }
        drop(run);
        worker.gate.open();
        assert_eq!(disk.past().may_have_run().count(), 2);
        let run = Run::resume(disk.past(), &world.procedures(), settings(&disk)).unwrap();
        if again {
            is_quiet(&run);
            assert_eq!(tokens(&run, "to"), [0, 1]);
            continue;
        }
        let Some(Outcome::Stopped(firings)) = run.wait_for(Duration::from_secs(60)) else {
            panic!("{:?}", run.state())
        };
        assert_eq!(firings.len(), 2);
        for shown in run.state().stopped {
            assert_eq!(shown.ran, Some("maybe"));
            assert!(shown.error.unwrap().contains("the interpreter ended"));
        }
    }
}

/// Why firings have stopped, whether their procedures ran and how often they were called is not forgotten.
#[test]
fn what_has_stopped_is_shown_the_same_after_a_resume() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let node = |place: u64, procedure: &str, result: &str| {
        json!({
            "name": format!("{procedure}{place}"),
            "in": [{ "place": place, "as": "n" }],
            "call": { "server": "Work/one", "name": procedure, "arguments": "[n]" },
            "out": [{ "place": 5, "value": result }],
        })
    };
    let place = |number: u64| json!({ "name": format!("p{number}"), "tokens": [7] });
    let mut graph = json!({
        "places": (0..6).map(place).collect::<Vec<_>>(),
        "nodes": [
            node(0, "twice", "result"),
            node(1, "next", "result"),
            node(2, "slow", "result"),
            node(3, "slow", "result.none"),
            node(4, "twice", "result.none"),
        ],
    });
    graph["nodes"][4]["call"]["arguments"] = json!("[\"text\"]");
    let disk = Disk::default();
    let procedures = world.procedures().within(Duration::from_millis(50));
    let run = Run::start(model(&graph), &procedures, settings(&disk)).unwrap();
    let Some(Outcome::Stopped(stopped)) = run.wait_for(Duration::from_secs(60)) else {
        panic!("{:?}", run.state())
    };
    let shown = |run: &Run| {
        let mut stopped = run.state().stopped;
        stopped.sort_by_key(|firing| firing.node);
        stopped
    };
    // Somebody decides what the one may have returned; then its output cannot be computed.
    let slow = shown(&run)[3].firing;
    run.command(Command::Decide { firing: slow, decision: Decision::Return(json!(1)) }).unwrap();
    let before = shown(&run);
    let ran: Vec<_> = before.iter().map(|firing| firing.ran.unwrap()).collect();
    assert_eq!(ran, ["no", "yes", "maybe", "maybe", "yes"]);
    assert_eq!(before.iter().map(|firing| firing.attempts).collect::<Vec<_>>(), [1; 5]);
    drop(run);
    let past = disk.past();
    assert_eq!(past.interpreter().under_way_count(), stopped.len());
    let run = Run::resume(past, &procedures, settings(&disk)).unwrap();
    assert_eq!(shown(&run), before);
    run.command(Command::Decide { firing: slow, decision: Decision::Retry }).unwrap();
    until(&run, "it has stopped again", |state| state.counts.stopped > 0);
    assert_eq!(shown(&run)[3].attempts, 2);
    worker.gate.open();
}

#[test]
fn what_users_did_is_replayed() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let disk = Disk::default();
    let run = world.run(&graph("next", 5), Settings { paused: true, ..settings(&disk) });
    let from = run.graph().place("from").unwrap();
    run.command(Command::Take { place: from, count: 2 }).unwrap();
    run.command(Command::Put { place: from, tokens: vec![json!(8)] }).unwrap();
    let mut edited = graph("next", 0);
    edited["places"].as_array_mut().unwrap().insert(0, json!({ "name": "first", "tokens": ["x"] }));
    for node in 0..2 {
        for arcs in ["in", "out"] {
            let place = &mut edited["nodes"][node][arcs][0]["place"];
            *place = (place.as_u64().unwrap() + 1).into();
        }
    }
    run.command(Command::Edit(Box::new(model(&edited)))).unwrap();
    run.command(Command::Resume).unwrap();
    let Some(Outcome::Stopped(stopped)) = run.wait_for(Duration::from_secs(60)) else {
        panic!("{:?}", run.state())
    };
    let decision = Decision::Discard;
    run.command(Command::Decide { firing: stopped[0], decision }).unwrap();
    is_quiet(&run);
    let state = run.state();
    drop(run);
    let past = disk.past();
    let marking = past.interpreter().marking();
    assert_eq!(marking.counts(), state.places.iter().map(|place| place.count).collect::<Vec<_>>());
    assert_eq!(past.interpreter().graph().places.len(), 4);
}

/// Nothing may be called whose start is not written.
#[test]
fn a_run_ends_when_its_journal_cannot_be_written() {
    struct Full(usize);
    impl Storage for Full {
        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            self.0 += 1;
            if self.0 > 2 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let journal = Some(Journal::over(Full(0)));
    let run = world.run(&graph("slow", 5), Settings { journal, ..Settings::default() });
    let outcome = run.wait_for(Duration::from_secs(60));
    assert!(matches!(outcome, Some(Outcome::JournalFailed(_))), "{outcome:?}");
    assert_eq!(worker.begun.load(std::sync::atomic::Ordering::SeqCst), 0);
}

/// A command that cannot be recorded ends the run too: its records may be written in part.
#[test]
fn a_run_ends_when_a_command_cannot_be_recorded() {
    struct Once(usize);
    impl Storage for Once {
        fn append(&mut self, _: &[u8]) -> io::Result<()> {
            self.0 += 1;
            if self.0 == 2 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }
    }
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _export = world.export("Work/one", &worker);
    let journal = Some(Journal::over(Once(0)));
    let run = world.run(&graph("slow", 5), Settings { journal, paused: true, ..Settings::default() });
    let from = run.graph().place("from").unwrap();
    assert!(run.command(Command::Put { place: from, tokens: vec![json!(8)] }).is_err());
    let _ = run.command(Command::Resume);
    let outcome = run.wait_for(Duration::from_secs(60));
    assert!(matches!(outcome, Some(Outcome::JournalFailed(_))), "{outcome:?}");
    assert_eq!(worker.begun.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_journal_in_a_file_is_of_one_process_and_is_gone_on_with() {
    let path: PathBuf = std::env::temp_dir().join(format!("olympus-run-{}", std::process::id()));
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let journal = Some(Journal::create(&path).unwrap());
    let words = json!({
        "places": [{ "name": "from", "tokens": [2, 4] }, { "name": "to" }],
        "nodes": [{
            "name": "call",
            "in": [{ "place": 0, "as": "n" }],
            "call": { "server": "Work", "name": "next", "arguments": "[n]" },
            "out": [{ "place": 1, "value": "result" }],
        }],
    });
    let run = world.run(&words, Settings { journal, ..Settings::default() });
    is_quiet(&run);
    assert!(Past::open(&path, Rules::standard()).unwrap_err().to_string().contains("another process"));
    run.command(Command::Stop).unwrap();
    drop(run);
    // The thread of the run closes the file when it ends.
    let past = loop {
        match Past::open(&path, Rules::standard()) {
            Ok(past) => break past,
            Err(why) => assert!(why.to_string().contains("another process"), "{why}"),
        }
        std::thread::yield_now();
    };
    let run = Run::resume(past, &world.procedures(), Settings::default()).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [3, 5]);
    std::fs::remove_file(&path).unwrap();
}
