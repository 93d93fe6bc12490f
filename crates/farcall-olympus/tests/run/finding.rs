//! Tests of finding procedures: checks of graphs, listings, and servers of ONC RPC and Courier.

use std::sync::Arc;

use farcall_olympus::check::Finding;
use farcall_olympus::location::Location;
use farcall_olympus::model::NodeId;
use farcall_olympus::procedures::Procedures;
use farcall_olympus::run::{Run, Settings};
use serde_json::{Value, json};

use super::common::{Worker, World, is_quiet, model, tokens};

fn findings(
    world: &World,
    call: Value,
    input: Value,
    output: Value,
    to: &str,
) -> Vec<(Location, String, bool)> {
    let graph = json!({
        "places": [{ "name": "from", "type": input["type"] }, { "name": "to", "type": to }],
        "nodes": [{
            "name": "node",
            "in": [{ "place": 0, "as": "n" }],
            "call": call,
            "out": [output],
        }],
    });
    let found = world.procedures().check(&model(&graph));
    found.into_iter().map(|Finding { location, message, warning }| (location, message, warning)).collect()
}

#[test]
fn a_check_names_what_does_not_fit() {
    let world = World::new();
    let _export = world.export("Work/one", &Arc::new(Worker::default()));
    let (node, number, text) = (NodeId(0), json!({ "type": "u64" }), json!({ "type": "string" }));
    let call =
        |name: &str, arguments: &str| json!({ "server": "Work", "name": name, "arguments": arguments });
    let result = || json!({ "place": 1, "value": "result" });
    let one = |found: Vec<(Location, String, bool)>| {
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    };

    assert_eq!(findings(&world, call("next", "[n]"), number.clone(), result(), "u64"), []);
    assert_eq!(findings(&world, call("next", "[n + 1]"), text.clone(), result(), "u32"), []);
    let (at, why, _) = one(findings(&world, call("next", "[n]"), text.clone(), result(), "u64"));
    assert_eq!((at, why.as_str()), (Location::Call(node), "argument number is u64, and n is string"));
    let (at, why, _) = one(findings(&world, call("next", "[n]"), number.clone(), result(), "string"));
    assert_eq!(
        (at, why.as_str()),
        (Location::Output(node, 0), "the result is u64, and the place holds string")
    );
    let (_, why, _) =
        one(findings(&world, call("next", "{\"number\": -1}"), number.clone(), result(), "u64"));
    assert!(why.contains("argument number") && why.contains("-1"), "{why}");
    let (_, why, _) = one(findings(&world, call("next", "[n, n]"), number.clone(), result(), "u64"));
    assert!(why.contains("2 arguments: next(number: u64)"), "{why}");
    let (_, why, warning) = one(findings(&world, call("none", "[n]"), number.clone(), result(), "u64"));
    assert!(why.contains("no procedure none") && warning, "{why}");
    let raised = json!({ "place": 1, "on": "Even" });
    let (at, why, _) = one(findings(&world, call("next", "[n]"), number.clone(), raised, "u64"));
    assert!(at == Location::Output(node, 0) && why.contains("One, Other"), "{why}");
    let raised = json!({ "place": 1, "on": "*" });
    let (_, why, _) = one(findings(&world, call("twice", "[\"a\"]"), number, raised, "u64"));
    assert!(why.contains("declares no exception"), "{why}");
    let nobody = json!({ "server": "Nobody", "name": "none" });
    let (at, why, warning) = one(findings(&world, nobody, text, result(), "u64"));
    assert!(at == Location::Call(node) && why.contains("no such name") && warning, "{why}");
}

#[test]
fn what_is_exported_is_listed_with_its_procedures() {
    let world = World::new();
    let worker = Arc::new(Worker::default());
    let _exports = [world.export("Work/one", &worker), world.export("Work/two", &worker)];
    let exports = world.procedures().exports().unwrap();
    assert_eq!(exports.len(), 1);
    assert_eq!(
        (exports[0].name.as_str(), exports[0].instances.as_slice()),
        ("Work", &["one".into(), "two".into()][..])
    );
    let next = exports[0].procedures.iter().find(|procedure| procedure.name == "next").unwrap();
    assert_eq!(
        (next.signature.as_str(), next.arguments.as_slice()),
        ("next(number: u64) -> u64 raises Odd", &["number".into()][..])
    );
}

#[farcall::interface(program = 0x2000_0778, version = 2)]
trait Note {
    #[procedure(1)]
    fn note(&self, number: u32) -> farcall::Result<u32>;
}

struct Notes;

impl Note for Notes {
    fn note(&self, number: u32) -> farcall::Result<u32> {
        Ok(number + 1)
    }
}

fn through(world: &World, procedures: &Procedures, call: &Value) {
    let graph = json!({
        "places": [{ "name": "from", "tokens": [1, 2] }, { "name": "to" }],
        "nodes": [{
            "name": "note",
            "in": [{ "place": 0, "as": "n" }],
            "call": call,
            "out": [{ "place": 1, "value": "result" }],
        }],
    });
    let _ = world;
    assert_eq!(procedures.check(&model(&graph)), []);
    let run = Run::start(model(&graph), procedures, Settings::default()).unwrap();
    is_quiet(&run);
    assert_eq!(tokens(&run, "to"), [2, 3]);
}

/// A node's procedure may belong to a server of ONC RPC or Courier, which its file describes.
#[test]
fn servers_of_onc_rpc_and_courier_are_called_by_their_files() {
    let directory = std::env::temp_dir().join(format!("olympus-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file =
        "program NOTES {\n version TWO { unsigned int NOTE(unsigned int) = 1; } = 2;\n} = 0x20000778;\n";
    std::fs::write(directory.join("notes.x"), file).unwrap();
    let file = "Notes: PROGRAM 536872824 VERSION 2 =\nBEGIN\n    note: PROCEDURE [number: LONG CARDINAL] RETURNS [result: LONG CARDINAL] = 1;\nEND.\n";
    std::fs::write(directory.join("notes.cr"), file).unwrap();
    let world = World::new();
    let procedures = world.procedures().in_directory(&directory);

    let onc = farcall_onc::Server::builder().program::<dyn Note>(Arc::new(Notes));
    let onc = onc.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    for address in [format!("udp://{}", onc.udp().unwrap()), format!("tcp://{}", onc.tcp().unwrap())] {
        let call = json!({ "server": address, "definition": "notes.x", "name": "NOTE", "arguments": "[n]" });
        through(&world, &procedures, &call);
    }
    let courier = farcall_courier::Server::builder().program::<dyn Note>(Arc::new(Notes));
    let courier = courier.tcp("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let address = format!("tcp://{}", courier.addresses()[0]);
    let call = json!({ "server": address, "definition": "notes.cr", "name": "note", "arguments": "[n]" });
    through(&world, &procedures, &call);

    let call = json!({ "server": "udp://127.0.0.1:9", "definition": "none.x", "name": "NOTE" });
    let graph = json!({ "places": [], "nodes": [{ "name": "note", "call": call }] });
    let findings = procedures.check(&model(&graph));
    assert!(findings.len() == 1 && !findings[0].warning, "{findings:?}");
    std::fs::remove_dir_all(&directory).unwrap();
}
