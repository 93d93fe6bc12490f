//! Tests `farcall olympus` as users run it.

use std::fmt;
use std::sync::Arc;

use farcall::names::File;
use farcall::{Export, Runtime};
use serde_json::{Value, json};

use crate::common::Place;

const COUNTING: &str = "
graph counting
place words: string = \"one\", \"three\"
place lengths
node measure
  in words as word
  call Ruler length [word]
  out lengths = result
";

#[derive(Debug, farcall::Xdr)]
struct TooLong {
    limit: u32,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "longer than {}", self.limit)
    }
}

impl std::error::Error for TooLong {}

#[farcall::interface]
trait Ruler {
    fn length(&self, word: &str) -> farcall::Result<u32, TooLong>;
}

struct Inches;

impl Ruler for Inches {
    fn length(&self, word: &str) -> farcall::Result<u32, TooLong> {
        match word.len() {
            length @ 0..10 => Ok(length as u32),
            _ => Err(TooLong { limit: 9 }.into()),
        }
    }
}

/// Exports a ruler in the registry of a place.
fn export(place: &Place) -> Export {
    let runtime = Runtime::builder().registry(File::at(place.registry())).build().unwrap();
    runtime.export::<dyn Ruler>("Ruler/one", Arc::new(Inches)).unwrap()
}

#[test]
fn a_run_calls_the_procedures_of_nodes_and_ends() {
    let place = Place::new();
    place.write("counting.olympus", COUNTING);
    let _export = export(&place);
    let said = place.run(&["olympus", "run", "counting.olympus"]).ok();
    assert!(said.starts_with("counting  as fast as possible"), "{said}");
    assert!(said.lines().any(|line| line.trim_start().starts_with("2  lengths")), "{said}");
    let said =
        place.run(&["--json", "olympus", "run", "counting.olympus", "--bound", "1", "--seed", "5"]).json();
    assert_eq!(said[0]["graph"]["name"], "counting");
    let last = said.last().unwrap();
    assert_eq!((&last["outcome"], &last["state"]["counts"]["ended"]), (&json!("quiet"), &json!(2)));
    let mut lengths = last["state"]["places"][1]["tokens"].as_array().unwrap().clone();
    lengths.sort_by_key(Value::as_u64);
    assert_eq!(lengths, [3, 5]);
}

#[test]
fn exit_codes_say_why_a_node_has_stopped() {
    let place = Place::new();
    let _export = export(&place);
    let run = |from: &str, to: &str| {
        place.write("stops.olympus", COUNTING.replace(from, to));
        place.run(&["olympus", "run", "stops.olympus"])
    };
    let raised = run("three", "three hundred");
    assert_eq!(raised.code, 3, "{raised:?}");
    assert!(raised.err.contains("measure has stopped: exception TooLong"), "{raised:?}");
    let refused = run("[word]", "[1]");
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(refused.err.contains("the arguments of length"), "{refused:?}");
    place.write("waits.olympus", COUNTING.replace("Ruler", "Nobody"));
    let ended = place.run(&["olympus", "run", "waits.olympus", "--end-after", "0.3"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.err.contains("measure: no such name: nobody exports Nobody"), "{ended:?}");
    assert_eq!(place.run(&["olympus", "run", "waits.olympus", "--pace", "0"]).code, 2);
    assert_eq!(place.run(&["olympus", "run", "waits.olympus", "--bound", "0"]).code, 2);
}

#[test]
fn check_names_the_line_of_what_is_wrong() {
    let place = Place::new();
    place.write("good.olympus", COUNTING);
    let offline = place.run(&["olympus", "check", "--offline", "good.olympus"]).ok();
    assert_eq!(offline, "2 places, 1 node: nothing is wrong\n");
    let missing = place.run(&["olympus", "check", "good.olympus"]);
    assert_eq!(missing.code, 0, "{missing:?}");
    assert!(
        missing.err.contains("nobody exports Ruler") && missing.err.contains("good.olympus:7:3"),
        "{missing:?}"
    );
    place.write("bad.olympus", COUNTING.replace("in words", "in wards"));
    let bad = place.run(&["olympus", "check", "bad.olympus"]);
    assert_eq!(bad.code, 1);
    assert!(bad.err.contains("there is no place wards") && bad.err.contains("bad.olympus:6:6"), "{bad:?}");
    place.write("unknown.olympus", COUNTING.replace("[word]", "[ward]"));
    let unknown = place.run(&["--json", "olympus", "check", "--offline", "unknown.olympus"]);
    assert_eq!(unknown.code, 1);
    let finding: Value = serde_json::from_str(unknown.out.lines().next().unwrap()).unwrap();
    assert_eq!((&finding["line"], &finding["warning"]), (&json!(7), &json!(false)), "{finding}");
    let unread = place.run(&["olympus", "run", "nowhere.olympus"]);
    assert_eq!(unread.code, 1);
    assert!(unread.err.contains("nowhere.olympus"), "{unread:?}");
}

#[test]
fn graphs_are_drawn_and_converted() {
    let place = Place::new();
    place.write("counting.olympus", COUNTING);
    let picture = place.run(&["olympus", "show", "counting.olympus"]).ok();
    assert!(picture.starts_with("<svg ") && picture.contains(">measure</text>"), "{picture}");
    place.run(&["olympus", "show", "counting.olympus", "-o", "counting.svg"]).ok();
    assert_eq!(place.read("counting.svg"), picture.as_bytes());
    let pnml = place.run(&["olympus", "convert", "counting.olympus"]).ok();
    assert!(pnml.contains("<pnml ") && pnml.contains("<initialMarking><text>2</text>"), "{pnml}");
    place.write("counting.pnml", &pnml);
    place.run(&["olympus", "convert", "counting.pnml", "-o", "again.json"]).ok();
    let text = place.run(&["olympus", "convert", "again.json"]).ok();
    assert_eq!(text, place.run(&["olympus", "convert", "counting.olympus", "--to", "text"]).ok());
    assert_eq!(text, place.run_with(&["olympus", "convert", "-", "--to", "text"], text.as_bytes()).ok());
    let broken = place.write("broken.pnml", "<pnml>\n<net id='n'><place/></net></pnml>");
    let said = place.run(&["olympus", "show", broken.to_str().unwrap()]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("line 2, column 13: this <place> has no id"), "{said:?}");
}

#[test]
fn a_recorded_run_goes_on() {
    let place = Place::new();
    place.write("counting.olympus", COUNTING);
    let record = ["olympus", "record", "counting.olympus", "a.journal", "--end-after", "0.2"];
    assert_eq!(place.run(&record).code, 1);
    let again = place.run(&record);
    assert_eq!(again.code, 1, "a journal is not overwritten: {again:?}");
    let before = place.run(&["--json", "olympus", "replay", "a.journal"]).json();
    assert_eq!(before[0]["places"][0]["name"], "words");
    assert_eq!(before[0]["places"][0]["tokens"].as_array().unwrap().len(), 2);
    let _export = export(&place);
    place.run(&["olympus", "replay", "a.journal", "--resume"]).ok();
    let after = place.run(&["--json", "olympus", "replay", "a.journal"]).json();
    assert_eq!(after[0]["places"][0]["tokens"], json!([]));
    assert_eq!(after[0]["places"][1]["tokens"].as_array().unwrap().len(), 2);
    let text = place.run(&["olympus", "replay", "a.journal"]).ok();
    assert_eq!(text, "  TOKENS  PLACE\n       2  lengths\n");
    let records = place.run(&["olympus", "replay", "a.journal", "--records"]).json();
    assert!(records[0]["graph"].is_object());
    place.write("stops.olympus", COUNTING.replace("[word]", "[1]"));
    assert_eq!(place.run(&["olympus", "record", "stops.olympus", "b.journal"]).code, 4);
    let stopped = place.run(&["--json", "olympus", "replay", "b.journal"]).json();
    assert_eq!(stopped[0]["under_way"][0]["ran"], "no");
    assert_eq!(place.run(&["olympus", "replay", "b.journal", "--resume"]).code, 4);
    place.write("damaged.journal", "{}\n");
    assert_eq!(place.run(&["olympus", "replay", "damaged.journal"]).code, 1);
}
