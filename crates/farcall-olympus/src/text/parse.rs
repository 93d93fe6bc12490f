//! Reads graphs from text.

use std::collections::HashMap;
use std::ops::Range;

use farcall_base::{room, work};
use serde_json::Value;

use super::line::{Fault, Line, word_length};
use super::print::is_definition;
use super::{Diagnostic, Diagnostics};
use super::{MAX_ERRORS, MAX_FILE_BYTES, MAX_TOKENS};
use crate::duration;
use crate::location::Location;
use crate::marking::MAX_PLACE_TOKENS;
use crate::model::{Graph, Input, InputKind, Join, Node, NodeId, Output, Place, PlaceId, Procedure, Split};

/// Reads a graph, and where its parts are.
pub fn parse(file: &str, text: &str) -> Result<(Graph, HashMap<Location, Range<usize>>), Diagnostics> {
    if text.len() > MAX_FILE_BYTES {
        let message = format!("a graph has at most {MAX_FILE_BYTES} bytes");
        return Err(Diagnostic::in_text(file, "", 0..0, message).into());
    }
    let mut parser = Parser::default();
    // Arcs may name places that are declared below them, so the places are read first.
    for phase in [Phase::Places, Phase::Nodes] {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            work::steps(1 + line.len() / 4);
            let begun = Line::new(line.trim_end_matches(['\n', '\r']), start);
            start += line.len();
            if parser.faults.len() < MAX_ERRORS
                && !begun.is_done()
                && let Err(fault) = parser.line(begun, phase)
            {
                parser.faults.push(fault);
            }
        }
    }
    if parser.faults.is_empty() {
        return Ok((parser.graph, parser.locations));
    }
    parser.faults.sort_by_key(|fault| fault.at.start);
    let show = |fault: Fault| Diagnostic::in_text(file, text, fault.at, fault.message);
    Err(parser.faults.into_iter().map(show).collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Places,
    Nodes,
}

#[derive(Default)]
struct Parser {
    graph: Graph,
    locations: HashMap<Location, Range<usize>>,
    faults: Vec<Fault>,
    places: HashMap<String, PlaceId>,
    nodes: HashMap<String, NodeId>,
    tokens: usize,
    /// Whether the name of the graph, and what it is about, were read.
    has_name: bool,
    has_about: bool,
}

/// What a line of a node may begin with.
const PARTS: [&str; 10] =
    ["in", "read", "inhibit", "out", "guard", "priority", "after", "join", "split", "call"];

impl Parser {
    fn line(&mut self, mut line: Line<'_>, phase: Phase) -> Result<(), Fault> {
        let keyword = match line.peek_word() {
            "" => return Err(line.fault_here("a line begins with a word, as place, node, in or out")),
            word => word,
        };
        line.advance(keyword.len());
        let of_places = matches!(keyword, "graph" | "about" | "place");
        if of_places != (phase == Phase::Places) {
            return Ok(());
        }
        match keyword {
            "graph" => {
                if std::mem::replace(&mut self.has_name, true) {
                    return Err(line.fault("the graph has a name already"));
                }
                self.graph.name = line.name("the name of the graph")?;
                self.locations.insert(Location::Graph, line.so_far());
                line.end()
            }
            "about" => {
                if std::mem::replace(&mut self.has_about, true) {
                    return Err(line.fault("the graph has a line about already"));
                }
                let quoted = line.rest().starts_with('"');
                self.graph.about = if quoted { line.string("a text")? } else { line.free_text().to_owned() };
                line.end()
            }
            "place" => self.place(&mut line),
            "node" => self.node(&mut line),
            _ => self.part(keyword, &mut line),
        }
    }

    fn place(&mut self, line: &mut Line<'_>) -> Result<(), Fault> {
        let id = PlaceId(self.graph.places.len() as u32);
        let mut place = Place { name: line.name("the name of the place")?, ..Place::default() };
        self.locations.insert(Location::Place(id), line.last());
        if self.places.insert(place.name.clone(), id).is_some() {
            return Err(line.fault(format!("there are two places {}", place.name)));
        }
        // (Arcs may go to the place even if something is wrong with it.)
        self.graph.places.push(place.clone());
        if line.accept_sign(':') {
            place.of = Some(line.text("a type", &['='])?.0);
            self.locations.insert(Location::Type(id), line.last());
        }
        while !line.is_done() && !line.rest().starts_with('=') {
            match line.peek_word() {
                "capacity" if place.capacity.is_none() => {
                    line.accept("capacity");
                    place.capacity = Some(line.number("a number of tokens")?);
                }
                "tokens" if place.tokens.is_empty() => {
                    line.accept("tokens");
                    let count: u32 = line.number("a number of tokens")?;
                    self.count_tokens(count as usize, line)?;
                    let reserved = room::reserve_exact(&mut place.tokens, count as usize);
                    reserved.map_err(|why| line.fault(why.to_string()))?;
                    place.tokens.resize(count as usize, Value::Null);
                }
                "label" if place.label.is_empty() => {
                    line.accept("label");
                    place.label = line.string("a label")?;
                }
                "at" if place.at.is_none() => {
                    line.accept("at");
                    place.at = Some(line.position()?);
                }
                _ => {
                    return Err(
                        line.fault_here("capacity, tokens, label, at or = was expected here, each once")
                    );
                }
            }
        }
        if !line.is_done() && !place.tokens.is_empty() {
            return Err(line.fault_here("the place has tokens already"));
        }
        if line.accept_sign('=') {
            loop {
                let token = line.expression()?;
                let value = token.evaluate(&crate::expression::NoVariables);
                place.tokens.push(value.map_err(|error| line.fault(format!("this is no value: {error}")))?);
                self.count_tokens(1, line)?;
                if !line.accept_sign(',') {
                    break;
                }
            }
        }
        line.end()?;
        self.graph.places[id.0 as usize] = place;
        Ok(())
    }

    fn count_tokens(&mut self, more: usize, line: &Line<'_>) -> Result<(), Fault> {
        self.tokens = self.tokens.saturating_add(more);
        if self.tokens <= MAX_TOKENS {
            return Ok(());
        }
        Err(line.fault(format!("the places of a graph have at most {MAX_TOKENS} tokens")))
    }

    fn node(&mut self, line: &mut Line<'_>) -> Result<(), Fault> {
        let id = NodeId(self.graph.nodes.len() as u32);
        let name = line.name("the name of the node")?;
        let at = line.last();
        self.locations.insert(Location::Node(id), at.clone());
        self.graph.nodes.push(Node { name: name.clone(), ..Node::default() });
        let named = |what: &str| Fault { at: at.clone(), message: format!("there is {what} {name} already") };
        if self.places.contains_key(&name) {
            return Err(named("a place"));
        }
        if self.nodes.insert(name.clone(), id).is_some() {
            return Err(named("a node"));
        }
        let node = &mut self.graph.nodes[id.0 as usize];
        while !line.is_done() {
            match line.peek_word() {
                "label" if node.label.is_empty() => {
                    line.accept("label");
                    node.label = line.string("a label")?;
                }
                "at" if node.at.is_none() => {
                    line.accept("at");
                    node.at = Some(line.position()?);
                }
                _ => return Err(line.fault_here("label or at was expected here, each once")),
            }
        }
        Ok(())
    }

    /// Reads a line that belongs to a node.
    fn part(&mut self, keyword: &str, line: &mut Line<'_>) -> Result<(), Fault> {
        if !PARTS.contains(&keyword) {
            let parts = PARTS.join(", ");
            return Err(line.fault(format!("graph, about, place, node, {parts} was expected here")));
        }
        let Some(id) = self.graph.nodes.len().checked_sub(1).map(|at| NodeId(at as u32)) else {
            return Err(line.fault("this line belongs to a node, but there is no line `node NAME` before it"));
        };
        let twice = |there: bool, line: &Line<'_>| {
            if there { Err(line.fault(format!("the node has a line {keyword} already"))) } else { Ok(()) }
        };
        let node = &mut self.graph.nodes[id.0 as usize];
        match keyword {
            "in" => return self.input(id, InputKind::Take, line),
            "read" => return self.input(id, InputKind::Read, line),
            "inhibit" => return self.input(id, InputKind::Inhibit, line),
            "out" => return self.output(id, line),
            "guard" => {
                twice(node.guard.is_some(), line)?;
                node.guard = Some(line.expression()?);
                self.locations.insert(Location::Guard(id), line.last());
            }
            "priority" => {
                twice(node.priority != 0, line)?;
                node.priority = line.number("a whole number")?;
            }
            "after" => {
                twice(node.after.is_some(), line)?;
                let text = &line.rest()[..word_length(line.rest())];
                let time = duration::parse(text).map_err(|message| line.fault_here(message))?;
                node.after = Some(time);
                line.advance(text.len());
            }
            "join" => {
                node.join = match line.word("all, any or one")? {
                    "all" => Join::All,
                    "any" => Join::Any,
                    "one" => Join::One,
                    _ => return Err(line.fault("all, any or one was expected here")),
                }
            }
            "split" => {
                node.split = match line.word("all, any or one")? {
                    "all" => Split::All,
                    "any" => Split::Any,
                    "one" => Split::One,
                    _ => return Err(line.fault("all, any or one was expected here")),
                }
            }
            "call" => {
                twice(node.call.is_some(), line)?;
                node.call = Some(call(line)?);
                self.locations.insert(Location::Call(id), line.so_far());
            }
            _ => {}
        }
        line.end()
    }

    fn input(&mut self, id: NodeId, kind: InputKind, line: &mut Line<'_>) -> Result<(), Fault> {
        let place = self.arc(line)?;
        let mut input = Input { place, weight: weight(line)?, kind, variable: None };
        if line.accept("as") {
            if kind == InputKind::Inhibit {
                return Err(line.fault("an inhibitor has no tokens that a variable could stand for"));
            }
            input.variable = Some(line.name("the name of a variable")?);
        }
        let inputs = &mut self.graph.nodes[id.0 as usize].inputs;
        inputs.push(input);
        self.locations.insert(Location::Input(id, inputs.len() as u32 - 1), line.so_far());
        line.end()
    }

    fn output(&mut self, id: NodeId, line: &mut Line<'_>) -> Result<(), Fault> {
        let place = self.arc(line)?;
        let weight = weight(line)?;
        let mut output = Output { place, weight, value: None, condition: None, exception: None };
        while !line.is_done() {
            if output.value.is_none() && line.accept_sign('=') {
                output.value = Some(line.expression()?);
            } else if output.condition.is_none() && line.accept("if") {
                output.condition = Some(line.expression()?);
            } else if output.exception.is_none() && line.accept("on") {
                output.exception = Some(line.text("the name of an exception or *", &['='])?.0);
            } else {
                return Err(line.fault_here("=, if or on was expected here, each once"));
            }
        }
        let outputs = &mut self.graph.nodes[id.0 as usize].outputs;
        outputs.push(output);
        self.locations.insert(Location::Output(id, outputs.len() as u32 - 1), line.so_far());
        Ok(())
    }

    fn arc(&mut self, line: &mut Line<'_>) -> Result<PlaceId, Fault> {
        let name = line.name("the name of a place")?;
        self.places.get(&name).copied().ok_or_else(|| line.fault(format!("there is no place {name}")))
    }
}

fn weight(line: &mut Line<'_>) -> Result<u32, Fault> {
    if !line.accept_sign('*') {
        return Ok(1);
    }
    let weight = line.number("a number of tokens")?;
    if (1..=MAX_PLACE_TOKENS).contains(&weight) {
        return Ok(weight);
    }
    Err(line.fault(format!("an arc moves from 1 to {MAX_PLACE_TOKENS} tokens")))
}

fn call(line: &mut Line<'_>) -> Result<Procedure, Fault> {
    let server = line.text("the name or the address of a server", &[])?.0;
    let has_file = line.accept("file") || is_definition(&line.rest()[..word_length(line.rest())]);
    let definition = has_file.then(|| line.text("the name of a .x or .cr file", &[])).transpose()?;
    let definition = definition.map(|(file, _)| file);
    let name = line.text("the name of a procedure", &[])?.0;
    let mut call = Procedure { server, definition, name, arguments: None, idempotent: false };
    let mut after = line.clone();
    let no_arguments = line.is_done() || after.accept("idempotent") && after.is_done();
    if !no_arguments {
        call.arguments = Some(line.expression()?);
    }
    call.idempotent = line.accept("idempotent");
    Ok(call)
}
