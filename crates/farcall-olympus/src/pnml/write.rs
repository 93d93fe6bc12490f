//! Writes a graph as a place/transition net.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use super::{TOOL, VERSION, is_id, is_plain};
use crate::model::{Graph, Input, InputKind, Join, Node, Output, Place, Position, Procedure, Split};
use crate::xml::{Escaped, is_xml};

/// Returns the graph as a PNML document, from which [`read`](super::read) makes an equal graph.
///
/// Arcs to places that the graph does not have are left out.
///
/// ```
/// use farcall_olympus::model::{Graph, Place};
///
/// let place = Place { name: "ready".into(), tokens: vec![7.into()], ..Place::default() };
/// let graph = Graph { name: "small".into(), places: vec![place], ..Graph::default() };
/// let document = farcall_olympus::pnml::write(&graph);
/// assert_eq!(farcall_olympus::pnml::read(document.as_bytes()).unwrap(), graph);
/// ```
pub fn write(graph: &Graph) -> String {
    let ids = Ids::new(graph);
    let mut out = Writer { text: String::new(), depth: 0 };
    // A write to a string does not fail.
    let _ = document(&mut out, graph, &ids);
    out.text
}

/// The identifiers of places and nodes.
struct Ids {
    places: Vec<String>,
    nodes: Vec<String>,
    taken: HashSet<String>,
}

impl Ids {
    /// Chooses identifiers: the names, where they can be identifiers.
    fn new(graph: &Graph) -> Ids {
        let names = graph.places.iter().map(|place| &place.name);
        let names = names.chain(graph.nodes.iter().map(|node| &node.name));
        let mut taken = HashSet::new();
        // Which of the names are identifiers: the first of equal ones.
        let are_ids: Vec<bool> = names.map(|name| is_id(name) && taken.insert(name.clone())).collect();
        let mut ids = Ids { places: Vec::new(), nodes: Vec::new(), taken };
        let mut are_ids = are_ids.into_iter();
        let mut number = 0;
        for place in &graph.places {
            let id =
                if are_ids.next() == Some(true) { place.name.clone() } else { ids.free("p", &mut number) };
            ids.places.push(id);
        }
        for node in &graph.nodes {
            let id =
                if are_ids.next() == Some(true) { node.name.clone() } else { ids.free("t", &mut number) };
            ids.nodes.push(id);
        }
        ids
    }

    /// Returns an identifier that nothing has.
    fn free(&mut self, prefix: &str, number: &mut usize) -> String {
        loop {
            *number += 1;
            let id = format!("{prefix}{number}");
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}

fn document(out: &mut Writer, graph: &Graph, ids: &Ids) -> fmt::Result {
    out.text.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut free = Ids { places: Vec::new(), nodes: Vec::new(), taken: ids.taken.clone() };
    let mut number = 0;
    out.open("pnml", &[("xmlns", "http://www.pnml.org/version-2009/grammar/pnml")])?;
    let net = free.free("net", &mut number);
    out.open("net", &[("id", &net), ("type", "http://www.pnml.org/version-2009/grammar/ptnet")])?;
    let is_plain_name = is_plain(&graph.name);
    if is_plain_name {
        out.label("name", &graph.name)?;
    }
    out.own(true, |out| {
        if !is_plain_name && !graph.name.is_empty() {
            out.text("name", &graph.name)?;
        }
        if !graph.about.is_empty() {
            out.text("about", &graph.about)?;
        }
        Ok(())
    })?;
    out.open("page", &[("id", &free.free("page", &mut number))])?;
    for (place, id) in graph.places.iter().zip(&ids.places) {
        self::place(out, place, id)?;
    }
    for (node, id) in graph.nodes.iter().zip(&ids.nodes) {
        self::node(out, node, id)?;
    }
    for (node, id) in graph.nodes.iter().zip(&ids.nodes) {
        for input in &node.inputs {
            let Some(place) = ids.places.get(input.place.0 as usize) else { continue };
            self::input(out, input, &free.free("a", &mut number), (place, id))?;
        }
        for output in &node.outputs {
            let Some(place) = ids.places.get(output.place.0 as usize) else { continue };
            self::output(out, output, &free.free("a", &mut number), (id, place))?;
        }
    }
    out.close("page")?;
    out.close("net")?;
    out.close("pnml")
}

fn place(out: &mut Writer, place: &Place, id: &str) -> fmt::Result {
    out.open("place", &[("id", id)])?;
    let label = out.shown_name(&place.name, &place.label)?;
    out.graphics(place.at)?;
    if !place.tokens.is_empty() {
        out.label("initialMarking", &place.tokens.len().to_string())?;
    }
    let have_values = place.tokens.iter().any(|token| !token.is_null());
    let is_more = label || place.name != id || place.of.is_some() || place.capacity.is_some() || have_values;
    out.own(is_more, |out| {
        out.own_names((&place.name, &place.label), id, label)?;
        if let Some(of) = &place.of {
            out.text("type", of)?;
        }
        if let Some(capacity) = place.capacity {
            out.text("capacity", &capacity.to_string())?;
        }
        for token in place.tokens.iter().filter(|_| have_values) {
            out.json("token", &token.to_string())?;
        }
        Ok(())
    })?;
    out.close("place")
}

fn node(out: &mut Writer, node: &Node, id: &str) -> fmt::Result {
    out.open("transition", &[("id", id)])?;
    let label = out.shown_name(&node.name, &node.label)?;
    out.graphics(node.at)?;
    let rules = (node.join, node.split, node.priority) != (Join::All, Split::All, 0);
    let is_annotated = node.guard.is_some() || node.after.is_some() || node.call.is_some();
    out.own(label || node.name != id || rules || is_annotated, |out| {
        out.own_names((&node.name, &node.label), id, label)?;
        match node.join {
            Join::All => {}
            Join::Any => out.text("join", "any")?,
            Join::One => out.text("join", "one")?,
        }
        match node.split {
            Split::All => {}
            Split::Any => out.text("split", "any")?,
            Split::One => out.text("split", "one")?,
        }
        if let Some(guard) = &node.guard {
            out.text("guard", &guard.to_string())?;
        }
        if node.priority != 0 {
            out.text("priority", &node.priority.to_string())?;
        }
        if let Some(after) = node.after {
            out.text("after", &format!("{}.{:09}", after.as_secs(), after.subsec_nanos()))?;
        }
        node.call.as_ref().map_or(Ok(()), |call| procedure(out, call))
    })?;
    out.close("transition")
}

fn procedure(out: &mut Writer, call: &Procedure) -> fmt::Result {
    out.open("call", &[])?;
    out.text("server", &call.server)?;
    if let Some(definition) = &call.definition {
        out.text("definition", definition)?;
    }
    out.text("name", &call.name)?;
    if let Some(arguments) = &call.arguments {
        out.text("arguments", &arguments.to_string())?;
    }
    if call.idempotent {
        out.empty("idempotent", &[])?;
    }
    out.close("call")
}

fn input(out: &mut Writer, input: &Input, id: &str, ends: (&str, &str)) -> fmt::Result {
    out.open("arc", &[("id", id), ("source", ends.0), ("target", ends.1)])?;
    out.weight(input.weight)?;
    match input.kind {
        InputKind::Take => {}
        InputKind::Read => out.empty("type", &[("value", "read")])?,
        InputKind::Inhibit => out.empty("type", &[("value", "inhibitor")])?,
    }
    out.own(input.variable.is_some(), |out| {
        input.variable.as_ref().map_or(Ok(()), |variable| out.text("as", variable))
    })?;
    out.close("arc")
}

fn output(out: &mut Writer, output: &Output, id: &str, ends: (&str, &str)) -> fmt::Result {
    out.open("arc", &[("id", id), ("source", ends.0), ("target", ends.1)])?;
    out.weight(output.weight)?;
    let Output { value, condition, exception, .. } = output;
    out.own(value.is_some() || condition.is_some() || exception.is_some(), |out| {
        if let Some(value) = value {
            out.text("value", &value.to_string())?;
        }
        if let Some(condition) = condition {
            out.text("if", &condition.to_string())?;
        }
        exception.as_ref().map_or(Ok(()), |exception| out.text("on", exception))
    })?;
    out.close("arc")
}

/// A document that is being written.
struct Writer {
    text: String,
    /// How many elements have begun and not ended.
    depth: usize,
}

impl Writer {
    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) -> fmt::Result {
        self.tag(name, attributes, ">\n")?;
        self.depth += 1;
        Ok(())
    }

    fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) -> fmt::Result {
        self.tag(name, attributes, "/>\n")
    }

    fn tag(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) -> fmt::Result {
        write!(self.text, "{:1$}<{name}", "", self.depth * 2)?;
        for (name, value) in attributes {
            write!(self.text, " {name}=\"{}\"", Escaped(value))?;
        }
        self.text.write_str(end)
    }

    fn close(&mut self, name: &str) -> fmt::Result {
        self.depth -= 1;
        writeln!(self.text, "{:1$}</{name}>", "", self.depth * 2)
    }

    /// Writes one of the standard's labels.
    fn label(&mut self, name: &str, text: &str) -> fmt::Result {
        writeln!(self.text, "{:2$}<{name}><text>{}</text></{name}>", "", Escaped(text), self.depth * 2)
    }

    /// Writes the name that tools show. Returns whether the label is not exactly that, so that it has to be
    /// written once more.
    fn shown_name(&mut self, name: &str, label: &str) -> Result<bool, fmt::Error> {
        let shown = if label.is_empty() { name } else { label };
        self.label("name", shown)?;
        Ok(if label.is_empty() { !is_plain(name) } else { label == name || !is_plain(label) })
    }

    /// Writes this program's own elements of a name: the name, if it is not the identifier, and the label.
    fn own_names(&mut self, (name, label): (&str, &str), id: &str, is_label: bool) -> fmt::Result {
        if name != id {
            self.text("name", name)?;
        }
        if is_label { self.text("label", label) } else { Ok(()) }
    }

    fn graphics(&mut self, at: Option<Position>) -> fmt::Result {
        let Some(Position { x, y }) = at else { return Ok(()) };
        writeln!(self.text, "{:1$}<graphics><position x=\"{x}\" y=\"{y}\"/></graphics>", "", self.depth * 2)
    }

    fn weight(&mut self, weight: u32) -> fmt::Result {
        if weight == 1 { Ok(()) } else { self.label("inscription", &weight.to_string()) }
    }

    /// Writes this program's own elements, if there are any.
    fn own(&mut self, are_any: bool, inner: impl FnOnce(&mut Writer) -> fmt::Result) -> fmt::Result {
        if !are_any {
            return Ok(());
        }
        self.open("toolspecific", &[("tool", TOOL), ("version", VERSION)])?;
        inner(self)?;
        self.close("toolspecific")
    }

    /// Writes an own element with a text. A text that XML could change is written as a string of JSON.
    fn text(&mut self, name: &str, text: &str) -> fmt::Result {
        if is_plain(text) {
            let indent = self.depth * 2;
            return writeln!(self.text, "{:indent$}<{name}>{}</{name}>", "", Escaped(text));
        }
        let json = serde_json::Value::from(text).to_string();
        let indent = self.depth * 2;
        writeln!(self.text, "{:indent$}<{name} form=\"json\">{}</{name}>", "", Escaped(&ascii(&json)))
    }

    /// Writes an own element with JSON.
    fn json(&mut self, name: &str, json: &str) -> fmt::Result {
        let indent = self.depth * 2;
        writeln!(self.text, "{:indent$}<{name}>{}</{name}>", "", Escaped(&ascii(json)))
    }
}

/// Returns JSON in which characters that XML cannot have are escaped. They can only be in strings.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_xml(c) {
            true => text.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}")),
        }
    }
    text
}
