//! Tests documents as other tools write them.

use farcall_olympus::model::{Graph, InputKind, Position};
use farcall_olympus::pnml::read;

/// Returns the document of a net with this content.
fn net(content: &str) -> String {
    format!(
        "<pnml><net id=\"n\" type=\"http://www.pnml.org/version-2009/grammar/ptnet\">\n{content}\n</net></pnml>"
    )
}

fn read_net(content: &str) -> Graph {
    read(net(content).as_bytes()).unwrap()
}

/// Returns the error of a net with this content, without the line of the net itself.
fn refused(content: &str) -> String {
    let error = read(net(content).as_bytes()).unwrap_err();
    format!("{}:{} {}", error.line - 1, error.column, error.what)
}

#[test]
fn pages_are_one_graph_and_reference_nodes_are_resolved() {
    let graph = read_net(
        r#"<page id="g1">
             <place id="p"><initialMarking><text> 3 </text></initialMarking></place>
             <page id="g2"><transition id="t"/><referencePlace id="r1" ref="r2"/></page>
           </page>
           <page id="g3"><referencePlace id="r2" ref="p"/><referenceTransition id="r3" ref="t"/>
             <arc id="a1" source="r2" target="r3"><inscription><text>2</text></inscription></arc>
             <arc id="a2" source="t" target="r1"/>
           </page>"#,
    );
    assert_eq!((graph.places.len(), graph.nodes.len()), (1, 1));
    let node = &graph.nodes[0];
    assert_eq!((node.inputs[0].place.0, node.inputs[0].weight), (0, 2));
    assert_eq!((node.outputs[0].place.0, node.outputs[0].weight), (0, 1));
    assert_eq!(graph.places[0].tokens.len(), 3);
}

#[test]
fn names_of_any_form_become_names_and_labels() {
    let graph = read_net(
        r#"<name><text>Dining philosophers</text></name><page id="g">
             <place id="_1"><name><text>fork &amp; knife</text></name></place>
             <place id="_2"><name><text>fork   knife</text></name></place>
             <place id="_3"/><place id="_4"><name><text>ready</text></name></place>
             <transition id="ready"/></page>"#,
    );
    let names: Vec<_> =
        graph.places.iter().map(|place| (place.name.as_str(), place.label.as_str())).collect();
    assert_eq!(
        names,
        [("fork_knife", "fork & knife"), ("fork_knife_2", "fork   knife"), ("x3", ""), ("ready", "")]
    );
    assert_eq!(graph.nodes[0].name, "ready_2");
    assert_eq!((graph.name.as_str(), graph.about.as_str()), ("Dining_philosophers", "Dining philosophers"));
}

#[test]
fn the_ways_to_write_the_type_of_an_arc() {
    let graph = read_net(
        r#"<page id="g"><place id="p"/><transition id="t"/>
             <arc id="a1" source="p" target="t"><type value="inhibitor"/></arc>
             <arc id="a2" source="p" target="t"><type><text>read</text></type></arc>
             <arc id="a3" source="p" target="t"><arctype><text>normal</text></arctype></arc>
             <arc id="a4" source="t" target="p"><type value="test"/></arc>
           </page>"#,
    );
    let kinds: Vec<InputKind> = graph.nodes[0].inputs.iter().map(|input| input.kind).collect();
    assert_eq!(kinds, [InputKind::Inhibit, InputKind::Read, InputKind::Take, InputKind::Read]);
    assert!(graph.nodes[0].outputs.is_empty());
}

#[test]
fn older_documents_are_read() {
    let document = b"<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>
        <pnml><net id=\"Net-One\" type=\"P/T net\">
        <place id=\"P0\"><graphics><position x=\"90.4\" y=\"-12.5\"/></graphics>
          <name><value>caf\xe9</value></name><initialMarking><value>Default,2</value></initialMarking>
          <capacity><value>0</value></capacity></place>
        <place id=\"P1\"><capacity><value>4</value></capacity></place>
        <transition id=\"T0\"><rate><value>1.0</value></rate></transition>
        <arc id=\"P0 to T0\" source=\"P0\" target=\"T0\"><inscription><value>Default,2</value></inscription>
          <arcpath id=\"000\" x=\"1\" y=\"2\" curvePoint=\"false\"/><type value=\"normal\"/></arc>
        </net></pnml>";
    let graph = read(document).unwrap();
    assert_eq!(graph.places[0].label, "café");
    assert_eq!(graph.places[0].at, Some(Position { x: 90, y: -13 }));
    assert_eq!(graph.places[0].tokens.len(), 2);
    assert_eq!((graph.places[0].capacity, graph.places[1].capacity), (None, Some(4)));
    assert_eq!(graph.nodes[0].inputs[0].weight, 2);
}

#[test]
fn what_would_change_the_meaning_is_refused_with_its_place() {
    let of = |arc: &str| refused(&format!("<place id=\"p\"/><transition id=\"t\"/>\n  {arc}"));
    assert_eq!(of("<arc source=\"p\" target=\"q\"/>"), "2:3 nothing has the id \"q\"");
    assert_eq!(of("<arc source=\"p\"/>"), "2:3 this <arc> has no target");
    assert_eq!(of("<arc source=\"p\" target=\"p\"/>"), "2:3 an arc goes between a place and a transition");
    assert_eq!(
        of("<arc source=\"p\" target=\"t\"><type value=\"reset\"/></arc>"),
        "2:30 arcs of the type \"reset\" are not known"
    );
    assert_eq!(
        of("<arc source=\"t\" target=\"p\"><type value=\"inhibitor\"/></arc>"),
        "2:3 an inhibitor arc goes from a place to a transition"
    );
    assert_eq!(
        of("<arc source=\"p\" target=\"t\"><inscription><text>0</text></inscription></arc>"),
        "2:3 the weight of an arc is at least 1"
    );
    assert_eq!(
        of("<arc source=\"p\" target=\"t\"><inscription><text>x+1</text></inscription></arc>"),
        "2:30 \"x+1\" is not a number of at most 4294967295"
    );
    assert_eq!(refused("<place/>"), "1:1 this <place> has no id");
    assert_eq!(refused("<place id=\"a\"/>\n<page id=\"a\"/>"), "2:1 the id \"a\" is there twice");
    let circle = "<referencePlace id=\"a\" ref=\"b\"/><referencePlace id=\"b\" ref=\"a\"/>";
    assert!(
        refused(&format!("{circle}<transition id=\"t\"/><arc source=\"a\" target=\"t\"/>"))
            .ends_with("this reference leads to itself")
    );
    let of = |document: &str| read(document.as_bytes()).unwrap_err().to_string();
    assert_eq!(
        of("<pnml><net id=\"n\" type=\"http://www.pnml.org/version-2009/grammar/symmetricnet\"/></pnml>"),
        "line 1, column 7: only place/transition nets are read, and this is a high-level net"
    );
    assert_eq!(
        of("<pnml><net id=\"n\"/>\n<net id=\"m\"/></pnml>"),
        "line 2, column 1: the document has a second net, and a graph is one net"
    );
    assert_eq!(of("<html/>"), "line 1, column 1: this is <html>, not <pnml>");
    assert_eq!(of("<pnml>\n  <net>"), "line 2, column 3: this element does not end");
    assert_eq!(of(""), "line 1, column 1: the document has no element");
}
