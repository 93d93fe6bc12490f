//! The fuzz targets for graphs: their text, PNML, and the journals of their runs.

use farcall_olympus::check::check;
use farcall_olympus::model::Graph;
use farcall_olympus::rules::Rules;
use farcall_olympus::run::Past;
use farcall_olympus::text::Document;
use farcall_olympus::{draw, pnml, text};

/// Reads a graph, checks it, draws it, and prints it. What is printed must be the same graph.
pub fn olympus_text(data: &[u8]) {
    let given = String::from_utf8_lossy(data);
    let document = match Document::parse("some.olympus", &given) {
        Ok(document) => document,
        Err(why) => {
            assert!(why.iter().all(|each| each.line() > 0 && !each.message().is_empty()));
            return assert!(!why.to_string().is_empty());
        }
    };
    for finding in check(&document.graph) {
        assert!(!document.diagnostic(finding.location, finding.message).to_string().is_empty());
    }
    let printed = text::print(&document.graph);
    assert_eq!(text::parse("printed.olympus", &printed).unwrap(), document.graph, "{printed}");
    show(document.graph);
}

/// Reads a PNML document, and draws its graph. What is written of it must be the same graph.
pub fn olympus_pnml(data: &[u8]) {
    match pnml::read(data) {
        Ok(graph) => {
            assert_eq!(pnml::read(pnml::write(&graph).as_bytes()).unwrap(), graph);
            show(graph);
        }
        Err(why) => assert!(!why.to_string().is_empty()),
    }
}

/// Rebuilds a run from a journal. The interpreter that comes of it must be able to go on.
pub fn olympus_journal(data: &[u8]) {
    let past = match Past::read(data, Rules::standard()) {
        Ok(past) => past,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    let interpreter = past.interpreter();
    assert!(past.may_have_run().all(|firing| interpreter.firing(firing).is_some()));
    let mut next = interpreter.clone();
    for _ in 0..10 {
        let Some(id) = next.begin(std::time::Duration::MAX).map(|firing| firing.id) else { break };
        assert!(next.firing(id).is_some());
    }
}

fn show(mut graph: Graph) {
    draw::arrange(&mut graph);
    assert!(draw::svg(&graph, None).starts_with("<svg"));
}
