//! Tests `farcall multi`, which calls every instance of a type at once.

use std::sync::Arc;

use crate::common::Place;
use farcall::{Export, Runtime};
use serde_json::{Value, json};

#[farcall::interface]
pub trait Scale {
    /// The weight of something; heavy things no scale takes.
    #[idempotent]
    fn weigh(&self, what: &str) -> farcall::Result<u32, TooHeavy>;

    /// Ends when it is cancelled, on all scales but the first.
    #[blocking]
    fn settle(&self) -> farcall::Result<u32>;

    /// Ends when it is cancelled; on the first scale, which is too weak for what lies on it, with an
    /// exception.
    #[blocking]
    fn hold(&self) -> farcall::Result<u32, TooHeavy>;
}

#[derive(Debug, farcall::Xdr)]
pub struct TooHeavy {
    pub most: u32,
}

struct Server(u32);

impl Scale for Server {
    fn weigh(&self, what: &str) -> farcall::Result<u32, TooHeavy> {
        match what {
            "feather" => Ok(self.0),
            "stone" if self.0 > 1 => Ok(100 + self.0),
            _ => Err(TooHeavy { most: self.0 }.into()),
        }
    }

    fn settle(&self) -> farcall::Result<u32> {
        let context = farcall::context();
        while self.0 > 0 && !context.is_cancelled() {
            std::thread::yield_now();
        }
        Ok(self.0)
    }

    fn hold(&self) -> farcall::Result<u32, TooHeavy> {
        if self.0 == 0 {
            return Err(TooHeavy { most: 0 }.into());
        }
        Ok(self.settle()?)
    }
}

/// Exports `count` scales from this process, each from a runtime of its own.
fn scales(place: &Place, count: u32) -> Vec<Export> {
    let export = |number| {
        let registry = farcall::names::File::at(place.registry());
        let runtime = Runtime::builder().registry(registry).build().unwrap();
        runtime.export::<dyn Scale>(&format!("Scale/s{number}"), Arc::new(Server(number))).unwrap()
    };
    (0..count).map(export).collect()
}

/// Returns the lines of JSON, sorted by member, without their times.
fn lines(text: &str) -> Vec<Value> {
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.sort_by_key(|line| line["member"].as_str().unwrap().to_owned());
    for line in &mut lines {
        line.as_object_mut().unwrap().remove("ms");
    }
    lines
}

#[test]
fn each_member_has_a_line_with_its_result() {
    let place = Place::new();
    let _exports = scales(&place, 3);
    let said = place.run(&["multi", "Scale", "weigh", r#"["feather"]"#, "--json"]);
    let expected: Vec<Value> =
        (0..3).map(|n| json!({ "member": format!("Scale/s{n}"), "result": n })).collect();
    assert_eq!(lines(&said.ok()), expected);
    let text = place.run(&["multi", "Scale", "weigh", r#"["feather"]"#]).ok();
    let mut lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    lines.sort();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines.iter().zip(["0", "1", "2"]).all(|(line, value)| line.last() == Some(&value)), "{text}");
}

#[test]
fn exceptions_are_shown_and_the_exit_code_says_so() {
    let place = Place::new();
    let _exports = scales(&place, 3);
    let said = place.run(&["multi", "Scale", "weigh", r#"["stone"]"#, "--json"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(lines(&said.out)[1], json!({ "member": "Scale/s1", "exception": { "most": 1 } }));
    assert!(said.err.contains("1 of 3 members gave a result, and 3 were needed"), "{said:?}");
    // Only one result is requested.
    let said = place.run(&["multi", "Scale", "weigh", r#"["stone"]"#, "--first", "--json"]).ok();
    assert!(said.contains(r#""result":102"#), "{said}");
    let said = place.run(&["multi", "Scale", "weigh", r#"["stone"]"#, "--quorum", "2"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.contains("and 2 were needed"), "{said:?}");
}

#[test]
fn of_fewer_members_than_results_are_wanted_nobody_is_called() {
    let place = Place::new();
    let _exports = scales(&place, 3);
    let said = place.run(&["multi", "Scale", "weigh", r#"["feather"]"#, "--quorum", "4"]);
    assert_eq!((said.code, &said.out[..]), (4, ""), "{said:?}");
    assert!(said.err.contains("4 members are needed, but there are only 3"), "{said:?}");
}

#[test]
fn nobody_is_waited_for_when_there_cannot_be_as_many_results_as_are_wanted() {
    let place = Place::new();
    let _exports = scales(&place, 3);
    let said = place.run(&["multi", "Scale", "hold", "--quorum", "3", "--json"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(lines(&said.out)[0], json!({ "member": "Scale/s0", "exception": { "most": 0 } }));
    assert_eq!(lines(&said.out)[2], json!({ "member": "Scale/s2", "abandoned": "Maybe" }));
    assert!(said.err.contains("0 of 3 members gave a result, and 3 were needed"), "{said:?}");
}

#[test]
fn those_that_do_not_answer_are_not_waited_for() {
    let place = Place::new();
    let _exports = scales(&place, 3);
    let said = place.run(&["multi", "Scale", "settle", "--first", "--json"]).ok();
    assert_eq!(lines(&said)[0], json!({ "member": "Scale/s0", "result": 0 }));
    // If the first member answers before all are called, the others are never called.
    let abandoned = &lines(&said)[2];
    assert_eq!(abandoned["member"], "Scale/s2");
    assert!(abandoned["abandoned"] == "Maybe" || abandoned["abandoned"] == "No", "{said}");
    // Whether one of them answers in time depends on the machine.
    let said = place.run(&["multi", "Scale", "settle", "--within", "1", "--quorum", "2"]);
    assert!(said.code == 4 || said.code == 5, "{said:?}");
    assert!(said.out.contains("was not waited for") && said.err.contains("of 3 members"), "{said:?}");
}

#[test]
fn a_member_that_is_gone_is_only_its_own_failure() {
    let place = Place::new();
    let mut exports = scales(&place, 2);
    // Its name is published by hand, so it stays in the registry.
    let gone = exports.pop().unwrap();
    let registry = farcall::names::File::at(place.registry());
    let entry = farcall::names::Registry::list(&registry).unwrap();
    let entry = entry.entries.iter().find(|entry| entry.name() == "Scale/s1").unwrap().clone();
    drop(gone);
    let kept = farcall::names::Registry::publish(&registry, &entry).unwrap();
    let said = place.run(&["multi", "Scale", "weigh", r#"["feather"]"#, "--json", "--within", "5"]);
    assert!(said.code == 4 || said.code == 5, "{said:?}");
    let lines = lines(&said.out);
    assert_eq!(lines[0], json!({ "member": "Scale/s0", "result": 0 }));
    assert!(lines[1].get("failed").is_some() || lines[1].get("abandoned").is_some(), "{said:?}");
    drop(kept);
}

#[test]
fn nonsense_is_explained() {
    let place = Place::new();
    let _exports = scales(&place, 1);
    let said = place.run(&["multi", "Scale", "weight", "{}"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("hint: it has weigh, settle, hold"), "{said:?}");
    let said = place.run(&["multi", "Balance", "weigh"]);
    assert_eq!(said.code, 4);
    assert!(said.err.contains("hint: "), "{said:?}");
    assert_eq!(place.run(&["multi", "Scale", "weigh", "--first", "--quorum", "1"]).code, 2);
}
