//! What the page asks for and does, as the browser sends it.

use farcall_olympus::model::{Graph, Node, Place};
use farcall_olympus::page::{Command, Page, Settings};
use serde_json::{Value, json};

use crate::http::{Answer, exchange, request};
use crate::stand_in::{StandIn, stopped};

pub fn send(page: &Page, line: &str, body: &str) -> Answer {
    let (host, token) = (page.address().to_string(), format!("Bearer {}", page.token()));
    let headers = [("Host", host.as_str()), ("Authorization", &token), ("Content-Type", "application/json")];
    exchange(page.address(), &request(line, &headers, body))
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn edit(page: &Page, version: u64, edits: Value) -> Answer {
    send(page, "POST /api/edit", &json!({"version": version, "edits": edits}).to_string())
}

fn graph(page: &Page) -> Graph {
    serde_json::from_value(json_of(&send(page, "GET /api/graph", ""))["graph"].clone()).unwrap()
}

#[test]
fn edits_name_places_and_nodes() {
    let (run, page) = StandIn::serve(Graph { name: "g".into(), ..Graph::default() }, Settings::default());
    let edits = json!([
        {"do": "place", "name": "a", "place": {"name": "a", "tokens": [1, null]}},
        {"do": "place", "name": "b", "place": {"name": "b", "capacity": 2}},
        {"do": "node", "name": "n", "node": {"name": "n", "in": [{"place": "b"}, {"place": "a", "as": "x"}], "out": [{"place": "b"}]}},
        {"do": "move", "name": "n", "at": {"x": 10, "y": 20}},
    ]);
    assert_eq!(json_of(&edit(&page, 1, edits))["version"], 2);
    assert_eq!(run.graphs().last(), Some(&graph(&page)));

    // The place has another name and keeps its arcs; an index changes when a place before it goes.
    let edits = json!([
        {"do": "place", "name": "b", "place": {"name": "c"}},
        {"do": "remove", "name": "a"},
    ]);
    assert_eq!(edit(&page, 2, edits).status, 200);
    let drawn = graph(&page);
    assert_eq!(drawn.places.iter().map(|place| &*place.name).collect::<Vec<_>>(), ["c"]);
    assert_eq!(drawn.nodes[0].inputs.len(), 1);
    assert_eq!(drawn.nodes[0].inputs[0].place.0, 0);
    assert_eq!(drawn.nodes[0].outputs[0].place.0, 0);
}

#[test]
fn an_edit_of_an_older_version_and_an_edit_that_cannot_be_made_change_nothing() {
    let (_run, page) = StandIn::serve(Graph { name: "g".into(), ..Graph::default() }, Settings::default());
    let place = |name: &str| json!({"do": "place", "name": name, "place": {"name": name}});
    assert_eq!(edit(&page, 1, json!([place("a")])).status, 200);
    assert_eq!(edit(&page, 1, json!([place("b")])).status, 409);
    let before = graph(&page);
    for broken in [
        json!([place("b"), {"do": "remove", "name": "nothing"}]),
        json!([place("b"), {"do": "place", "name": "b", "place": {"name": "a"}}]),
        json!([place("b"), {"do": "node", "name": "n", "node": {"name": "n", "in": [{"place": "nothing"}]}}]),
        json!([{"do": "node", "name": "n", "node": {"name": "n", "in": [{"place": 7}]}}]),
        json!([{"do": "node", "name": "a", "node": {"name": "a"}}]),
        json!([{"do": "place", "name": "b", "place": {"name": ""}}]),
        json!([{"do": "place", "name": "b", "place": {"name": "b", "colour": "red"}}]),
    ] {
        assert_eq!(edit(&page, 2, broken.clone()).status, 400, "{broken}");
        assert_eq!(graph(&page), before, "{broken}");
    }
}

#[test]
fn a_graph_is_replaced_and_read_back() {
    let (run, page) = StandIn::serve(Graph::default(), Settings::default());
    let place = |name: &str| Place { name: name.into(), ..Place::default() };
    let new = Graph { name: "new".into(), places: vec![place("a"), place("b")], ..Graph::default() };
    assert_eq!(send(&page, "PUT /api/graph", &serde_json::to_string(&new).unwrap()).status, 200);
    let kept = send(&page, "GET /api/graph.json", "");
    assert_eq!(serde_json::from_str::<Graph>(&kept.body).unwrap(), graph(&page));
    assert_eq!(run.graphs().len(), 1);
    for broken in [
        r#"{"name": "x", "places": [{"name": "a"}, {"name": "a"}]}"#,
        r#"{"name": "x", "places": [], "nodes": [{"name": "n", "in": [{"place": 3}]}]}"#,
        "nonsense",
    ] {
        assert_eq!(send(&page, "PUT /api/graph", broken).status, 400, "{broken}");
    }
    assert_eq!(graph(&page).name, "new");
}

#[test]
fn commands_reach_the_run() {
    let place = Place { name: "ä b".into(), tokens: vec![json!(1)], ..Place::default() };
    let node = Node { name: "n".into(), ..Node::default() };
    let graph = Graph { name: "g".into(), places: vec![place], nodes: vec![node], ..Graph::default() };
    let (run, page) = StandIn::serve(graph, Settings::default());
    for command in [
        r#"{"do":"step"}"#,
        r#"{"do":"pace","pace":{"scaled":0.5}}"#,
        r#"{"do":"put","place":"ä b","token":{"x":1}}"#,
        r#"{"do":"decide","firing":7,"decision":{"return":null}}"#,
    ] {
        assert_eq!(send(&page, "POST /api/command", command).status, 200, "{command}");
    }
    assert_eq!(send(&page, "POST /api/command", r#"{"do":"dance"}"#).status, 400);
    assert_eq!(run.commands().len(), 4);
    assert_eq!(run.commands()[0], Command::Step);
    assert_eq!(json_of(&send(&page, "GET /api/tokens?place=%C3%A4%20b", "")), json!(["token 0 <b>bold</b>"]));
    assert_eq!(send(&page, "GET /api/tokens?place=none", "").status, 404);
    run.stop(stopped(7, "n", "it broke"));
    assert_eq!(json_of(&send(&page, "GET /api/firing?id=7", ""))["error"], "it broke");
    assert_eq!(json_of(&send(&page, "GET /api/stopped", ""))[0]["firing"], 7);
    assert_eq!(send(&page, "GET /api/firing?id=8", "").status, 404);
    assert_eq!(json_of(&send(&page, "GET /api/exports", ""))[0]["name"], "Builder");
}
