//! Tests that no document makes the reader panic, or allocate or work without bound.

use farcall_olympus::model::{Graph, Input, InputKind, Node, Place, PlaceId};
use farcall_olympus::pnml::{MAX_DEPTH, MAX_TOKENS, read, write};
use proptest::collection::vec;
use proptest::prelude::*;

/// Words of which random documents are made: what the reader looks for, and what XML has.
const WORDS: [&str; 30] = [
    "<pnml>",
    "</pnml>",
    "<net id='n'>",
    "</net>",
    "<page id='g'>",
    "</page>",
    "<place id='p'>",
    "</place>",
    "<place id='q'/>",
    "<transition id='t'/>",
    "<arc source='p' target='t'>",
    "</arc>",
    "<referencePlace id='r' ref='r'/>",
    "<type value='inhibitor'/>",
    "<inscription><text>",
    "</text></inscription>",
    "<toolspecific tool='farcall-olympus' version='1'>",
    "</toolspecific>",
    "<token>",
    "</token>",
    "<after>",
    "</after>",
    "18446744073709551616",
    "1.5",
    "{\"a\":",
    "&amp;",
    "&#0;",
    "<![CDATA[",
    "]]>",
    "<!--",
];

proptest! {
    #[test]
    fn random_bytes_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn random_documents_do_no_harm(words in vec(prop::sample::select(&WORDS[..]), 0..40)) {
        let _ = read(words.concat().as_bytes());
        let _ = read(format!("<pnml><net id='x'>{}</net></pnml>", words.concat()).as_bytes());
    }

    #[test]
    fn damaged_documents_do_no_harm(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut document = write(&example()).into_bytes();
        let at = at.index(document.len());
        match cut {
            true => document.truncate(at),
            false => document[at] = byte,
        }
        let _ = read(&document);
    }
}

fn example() -> Graph {
    let input = Input { place: PlaceId(0), weight: 2, kind: InputKind::Read, variable: Some("x".into()) };
    Graph {
        name: "example".into(),
        about: " two\nlines ".into(),
        places: vec![Place { name: "a".into(), tokens: vec![1.5.into(), "<".into()], ..Place::default() }],
        nodes: vec![Node { name: "b".into(), inputs: vec![input], priority: -1, ..Node::default() }],
    }
}

fn refused(document: &str) -> String {
    read(document.as_bytes()).unwrap_err().what
}

#[test]
fn document_type_definitions_are_refused() {
    let bomb =
        "<!DOCTYPE pnml [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><pnml><net id='n'>&b;</net></pnml>";
    assert_eq!(refused(bomb), "document type definitions are not read");
    assert_eq!(refused("<pnml>&b;</pnml>"), "this reference stands for nothing");
}

#[test]
fn what_is_kept_has_bounds() {
    let deep = format!("<pnml>{}", "<page>".repeat(1_000_000));
    assert_eq!(refused(&deep), format!("more than {MAX_DEPTH} elements contain one another"));
    let tokens = "<place id='p'><initialMarking><text>4000000000</text></initialMarking></place>";
    assert_eq!(
        refused(&format!("<pnml><net>{tokens}</net></pnml>")),
        format!("the places have more than {MAX_TOKENS} tokens")
    );
    // None of these takes a time that grows with the square of the length.
    let attributes: String = (0..200_000).map(|number| format!(" xmlns:a{number}='{number}'")).collect();
    assert_eq!(refused(&format!("<pnml{attributes}/>")), "the document has no net");
    let names: String = (0..50_000).map(|number| format!("<place id='{number}'/>")).collect();
    let graph = read(format!("<pnml><net id='n'>{names}</net></pnml>").as_bytes()).unwrap();
    assert_eq!(graph.places.len(), 50_000);
    let chain: String =
        (0..50_000).map(|number| format!("<referencePlace id='{number}' ref='{}'/>", number + 1)).collect();
    let arcs = "<arc source='0' target='t'/>";
    let long = format!("<pnml><net><transition id='t'/>{chain}<place id='50000'/>{arcs}</net></pnml>");
    assert_eq!(read(long.as_bytes()).unwrap().nodes[0].inputs.len(), 1);
}
