//! Tests signals and streams of calls by description: `call`, `describe` and `multi`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farcall::{Export, Result, Runtime, Stream};

use crate::common::Place;

/// Keeps bytes.
#[farcall::interface]
pub trait Store {
    /// Returns how many bytes are free then.
    fn put(&self, bytes: u64) -> Result<u64, TooLarge>;
    fn below(&self, limit: u64, end: Option<u64>) -> Result<Stream<Row, TooLarge>, TooLarge>;
    fn sum(&self, name: &str, numbers: Stream<u64>) -> Result<u64>;
    fn count(&self, rows: Stream<Row>) -> Result<u32>;
    fn doubled(&self, numbers: Stream<u64>) -> Result<Stream<u64>>;
    fn endless(&self) -> Result<Stream<u64>>;
    /// So many bytes are needed.
    ///
    /// The answer is how many were made free.
    #[signal]
    fn full(&self, needed: u64, row: Row) -> u64;
    #[signal]
    fn note(&self, text: &str);
}

#[derive(farcall::Xdr)]
pub struct Row {
    pub number: u64,
    pub text: String,
}

#[derive(Debug, farcall::Xdr)]
pub struct TooLarge {
    pub most: u64,
}

#[derive(Default)]
struct Server {
    /// How often `endless` was left.
    ended: Arc<AtomicU64>,
}

fn row(number: u64) -> Row {
    Row { number, text: "x".repeat(number as usize % 3) }
}

impl Store for Server {
    fn put(&self, bytes: u64) -> Result<u64, TooLarge> {
        StoreSignals::note("begins")?;
        let freed = StoreSignals::full(bytes, row(1))?;
        freed.checked_sub(bytes).ok_or_else(|| TooLarge { most: freed }.into())
    }

    fn below(&self, limit: u64, end: Option<u64>) -> Result<Stream<Row, TooLarge>, TooLarge> {
        if limit == 0 {
            return Err(TooLarge { most: 0 }.into());
        }
        let rows = (0..limit).map(|number| Ok(row(number)));
        Ok(Stream::new(rows.chain(end.map(|most| Err(TooLarge { most }.into())))))
    }

    fn sum(&self, name: &str, numbers: Stream<u64>) -> Result<u64> {
        let numbers: u64 = numbers.sum::<Result<u64>>()?;
        Ok(numbers + name.len() as u64)
    }

    fn count(&self, rows: Stream<Row>) -> Result<u32> {
        Ok(rows.count() as u32)
    }

    fn doubled(&self, numbers: Stream<u64>) -> Result<Stream<u64>> {
        Ok(Stream::new(numbers.map(|number| Ok(2 * number?))))
    }

    fn endless(&self) -> Result<Stream<u64>> {
        struct Counts(Arc<AtomicU64>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let counts = Counts(self.ended.clone());
        Ok(Stream::of((0..).inspect(move |_| {
            let _ = &counts;
        })))
    }
}

/// Exports the server from this process.
fn export(place: &Place) -> (Export, Arc<AtomicU64>) {
    let registry = farcall::names::File::at(place.registry());
    let runtime = Runtime::builder().registry(registry).build().unwrap();
    let server = Server::default();
    let ended = server.ended.clone();
    (runtime.export::<dyn Store>("Store", Arc::new(server)).unwrap(), ended)
}

#[test]
fn signals_are_answered_by_the_command_line() {
    let place = Place::new();
    let _export = export(&place);
    let put = |on: &[&str]| {
        let on = on.iter().flat_map(|on| ["--on", on]);
        place.run(&["call", "Store", "put", "10"].into_iter().chain(on).collect::<Vec<_>>())
    };
    assert_eq!(put(&["note=null", "full=25"]).ok(), "\"15\"\n");
    assert_eq!(put(&["note=null", "full=\"10\""]).ok(), "\"0\"\n");
    let said = put(&["note=null", "full=5"]);
    assert_eq!((said.code, said.out.as_str()), (3, "{\"exception\":{\"most\":\"5\"}}\n"));

    let said = put(&["note=null", "full=unwind"]);
    assert_eq!((said.code, said.out.as_str()), (5, ""), "{said:?}");
    let raised = "the server raised full {\"needed\":\"10\",\"row\":{\"number\":\"1\",\"text\":\"x\"}}";
    assert!(said.err.contains(raised) && said.err.contains("; it ran"), "{said:?}");
    let said = put(&["full=unwind"]);
    assert_eq!(said.code, 5);
    let nothing = "the server raised note {\"text\":\"begins\"}, and nothing answers it";
    assert!(said.err.contains(nothing) && said.err.contains("hint: `farcall call --on"), "{said:?}");
}

#[test]
fn an_answer_that_is_none_is_refused_before_the_call() {
    let place = Place::new();
    let _export = export(&place);
    for (on, why) in [
        (&["--on", "full"][..], "expected SIGNAL=VALUE"),
        (&["--on", "ful=1"], "Store has no signal ful"),
        (&["--on", "full=many"], "--on full: "),
        (&["--on", "full=-1"], "expected u64, found -1"),
        (&["--on", "full=1", "--on", "full=2"], "two answers to the signal full"),
    ] {
        let said = place.run(&[&["call", "Store", "put", "10"], on].concat());
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(why), "{said:?}");
    }
    let batch = ["call", "Store", "put", "--batch", "--on", "note=null", "--on", "full=4"];
    let said = place.run_with(&batch, b"1\n2\n");
    assert_eq!(said.ok(), "{\"result\":\"3\"}\n{\"result\":\"2\"}\n");
}

#[test]
fn a_stream_that_is_the_result_is_lines_of_json() {
    let place = Place::new();
    let _export = export(&place);
    let below = |arguments: &str| place.run(&["call", "Store", "below", arguments]);
    let rows = "{\"number\":\"0\",\"text\":\"\"}\n{\"number\":\"1\",\"text\":\"x\"}\n";
    assert_eq!(below("{\"limit\": 2}").ok(), rows);
    assert_eq!(below("{\"limit\": 5000}").json().len(), 5000);
    let said = below("[2, 9]");
    assert_eq!((said.code, said.out), (3, format!("{rows}{{\"exception\":{{\"most\":\"9\"}}}}\n")));
    let said = below("[0, null]");
    assert_eq!((said.code, said.out.as_str()), (3, "{\"exception\":{\"most\":\"0\"}}\n"));
    for flag in [["--expect", "number=1"], ["--fail", "number=1"]] {
        let said = place.run(&["call", "Store", "below", "[2, 9]", flag[0], flag[1]]);
        assert!(said.code == 2 && said.err.contains("a stream"), "{said:?}");
    }
    let said = place.run(&["call", "Store", "below", "--batch"]);
    assert!(said.code == 2 && said.err.contains("streams"), "{said:?}");
    let said = place.run(&["multi", "Store", "below", "[1, null]"]);
    assert!(said.code == 2 && said.err.contains("streams"), "{said:?}");
}

#[test]
fn a_reader_that_ends_ends_the_stream() {
    let place = Place::new();
    let (_export, ended) = export(&place);
    let mut started = place.start(&["call", "Store", "endless"]);
    assert_eq!(started.first, "\"0\"");
    assert_eq!(started.line(), "\"1\"");
    started.close_output();
    assert_eq!(started.wait(), 1);
    while ended.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn an_argument_that_is_a_stream_is_an_array_or_lines() {
    let place = Place::new();
    let _export = export(&place);
    let run = |procedure: &str, arguments: &str| place.run(&["call", "Store", procedure, arguments]);
    assert_eq!(run("sum", r#"{"name": "abc", "numbers": [1, "2", 3]}"#).ok(), "\"9\"\n");
    assert_eq!(run("sum", r#"["abc", []]"#).ok(), "\"3\"\n");
    assert_eq!(run("count", r#"{"rows": [{"number": 1, "text": "a"}]}"#).ok(), "1\n");
    assert_eq!(run("doubled", "[[1, 2]]").ok(), "\"2\"\n\"4\"\n");
    let lines = |procedure: &str, arguments: &str, input: &str| {
        place.run_with(&["call", "Store", procedure, arguments], input.as_bytes())
    };
    assert_eq!(lines("sum", r#"{"name": "abc", "numbers": "-"}"#, "1\n\n2\n").ok(), "\"6\"\n");
    assert_eq!(lines("count", "-", "{\"number\": 1, \"text\": \"a\"}\n").ok(), "1\n");
    assert_eq!(lines("sum", "-", r#"{"name": "ab", "numbers": [1]}"#).ok(), "\"3\"\n");
    let many: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(lines("doubled", "-", &many).json().len(), 10_000);

    for (procedure, arguments, why) in [
        ("sum", r#"{"name": "abc"}"#, "numbers is missing"),
        ("sum", r#"["abc", 7]"#, "numbers is an array"),
        ("sum", r#"["abc", [1, -1]]"#, "item 2 of numbers: at "),
        ("sum", r#"{"nam": "abc", "numbers": []}"#, "nam"),
    ] {
        let said = run(procedure, arguments);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(why) && said.err.contains("numbers: stream<u64>"), "{said:?}");
    }
    for procedure in ["count", "doubled"] {
        let said = lines(procedure, "-", "{\"number\": 1, \"text\": \"a\"}\nnothing\n");
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("of standard input: ") && !said.out.contains("1\n"), "{said:?}");
    }
    let example = place.run(&["call", "Store", "sum", "--example", "--json"]).ok();
    assert_eq!(example, "{\"name\":\"\",\"numbers\":[]}\n");
}

#[test]
fn items_pass_as_soon_as_they_are_written() {
    let place = Place::new();
    let _export = export(&place);
    let mut command = place.command(&["call", "Store", "doubled", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    for number in 0..20 {
        writeln!(input, "{number}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("\"{}\"", 2 * number));
    }
    drop(input);
    assert!(lines.next().is_none() && child.wait().unwrap().success());
}

#[test]
fn signals_and_streams_are_described() {
    let place = Place::new();
    let _export = export(&place);
    let text = place.run(&["describe", "Store"]).ok();
    for line in [
        "      2  below(limit: u64, end: u64?) -> stream<Row> raises TooLarge",
        "      3  sum(name: string<>, numbers: stream<u64>) -> u64",
        "    /// So many bytes are needed.",
        "    signal full(needed: u64, row: Row) -> u64",
        "    signal note(text: string<>)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in {text}");
    }
    let json = &place.run(&["--json", "describe", "Store"]).json()[0];
    assert_eq!(json["signals"][0]["signature"], "full(needed: u64, row: Row) -> u64");
    let description = place.run(&["describe", "Store", "--json"]).ok();
    place.write("store.json", &description);
    assert_eq!(place.run(&["check", "store.json", "Store"]).ok(), "no difference\n");
}
