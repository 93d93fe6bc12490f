//! Writes graphs as text.

use std::fmt::Write;

use serde_json::Value;

use super::line::{NAME_ENDS, word_length};
use crate::duration;
use crate::expression::Expression;
use crate::model::{Graph, Input, InputKind, Join, Node, Output, Place, PlaceId, Position, Procedure, Split};

/// Writes a graph.
pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    // (Writing to a string does not fail.)
    let _ = write_graph(graph, &mut out);
    out
}

fn write_graph(graph: &Graph, out: &mut String) -> std::fmt::Result {
    if !graph.name.is_empty() {
        writeln!(out, "graph {}", name(&graph.name))?;
    }
    if !graph.about.is_empty() {
        writeln!(out, "about {}", free(&graph.about))?;
    }
    if !out.is_empty() && !graph.places.is_empty() {
        out.push('\n');
    }
    for place in &graph.places {
        write_place(place, out)?;
    }
    for node in &graph.nodes {
        if !out.is_empty() {
            out.push('\n');
        }
        write_node(graph, node, out)?;
    }
    Ok(())
}

fn write_place(place: &Place, out: &mut String) -> std::fmt::Result {
    write!(out, "place {}", name(&place.name))?;
    if let Some(of) = &place.of {
        write!(out, ": {}", text(of, &['='], false))?;
    }
    if let Some(capacity) = place.capacity {
        write!(out, " capacity {capacity}")?;
    }
    write_head(&place.label, place.at, out)?;
    if place.tokens.is_empty() {
        return writeln!(out);
    }
    if place.tokens.iter().all(Value::is_null) {
        return writeln!(out, " tokens {}", place.tokens.len());
    }
    let tokens: Vec<String> = place.tokens.iter().map(value).collect();
    writeln!(out, " = {}", tokens.join(", "))
}

fn write_head(label: &str, at: Option<Position>, out: &mut String) -> std::fmt::Result {
    if !label.is_empty() {
        write!(out, " label {}", Value::from(label))?;
    }
    if let Some(at) = at {
        write!(out, " at {} {}", at.x, at.y)?;
    }
    Ok(())
}

fn write_node(graph: &Graph, node: &Node, out: &mut String) -> std::fmt::Result {
    write!(out, "node {}", name(&node.name))?;
    write_head(&node.label, node.at, out)?;
    out.push('\n');
    match node.join {
        Join::All => {}
        Join::Any => out.push_str("  join any\n"),
        Join::One => out.push_str("  join one\n"),
    }
    for input in &node.inputs {
        write_input(graph, input, out)?;
    }
    if let Some(guard) = &node.guard {
        writeln!(out, "  guard {guard}")?;
    }
    if node.priority != 0 {
        writeln!(out, "  priority {}", node.priority)?;
    }
    if let Some(after) = node.after {
        writeln!(out, "  after {}", duration::print(after))?;
    }
    if let Some(call) = &node.call {
        write_call(call, out)?;
    }
    match node.split {
        Split::All => {}
        Split::Any => out.push_str("  split any\n"),
        Split::One => out.push_str("  split one\n"),
    }
    node.outputs.iter().try_for_each(|output| write_output(graph, output, out))
}

fn write_input(graph: &Graph, input: &Input, out: &mut String) -> std::fmt::Result {
    let kind = match input.kind {
        InputKind::Take => "in",
        InputKind::Read => "read",
        InputKind::Inhibit => "inhibit",
    };
    write!(out, "  {kind} {}", place(graph, input.place))?;
    if input.weight != 1 {
        write!(out, " *{}", input.weight)?;
    }
    if let Some(variable) = &input.variable {
        write!(out, " as {}", name(variable))?;
    }
    writeln!(out)
}

fn write_output(graph: &Graph, output: &Output, out: &mut String) -> std::fmt::Result {
    write!(out, "  out {}", place(graph, output.place))?;
    if output.weight != 1 {
        write!(out, " *{}", output.weight)?;
    }
    if let Some(exception) = &output.exception {
        write!(out, " on {}", text(exception, &['='], false))?;
    }
    if let Some(condition) = &output.condition {
        write!(out, " if {condition}")?;
    }
    if let Some(value) = &output.value {
        write!(out, " = {value}")?;
    }
    writeln!(out)
}

fn write_call(call: &Procedure, out: &mut String) -> std::fmt::Result {
    write!(out, "  call {}", text(&call.server, &[], false))?;
    match &call.definition {
        Some(file) if is_definition(file) && !text(file, &[], false).starts_with('"') => {
            write!(out, " {file}")?
        }
        Some(file) => write!(out, " file {}", text(file, &[], false))?,
        None => {}
    }
    write!(out, " {}", text(&call.name, &[], is_definition(&call.name) || call.name == "file"))?;
    if let Some(arguments) = &call.arguments {
        write!(out, " {}", argument(arguments))?;
    }
    writeln!(out, "{}", if call.idempotent { " idempotent" } else { "" })
}

/// Returns whether a word between a server and a procedure is the name of a definition.
pub fn is_definition(word: &str) -> bool {
    word.ends_with(".x") || word.ends_with(".cr")
}

/// Writes arguments so that they do not begin with what could belong to the line.
fn argument(arguments: &Expression) -> String {
    let text = arguments.to_string();
    if text.starts_with("idempotent") { format!("({text})") } else { text }
}

/// Writes a value as an expression that has this value.
fn value(value: &Value) -> String {
    value.to_string()
}

fn place(graph: &Graph, id: PlaceId) -> String {
    graph.places.get(id.0 as usize).map_or_else(|| format!("\"?{}\"", id.0), |place| name(&place.name))
}

fn name(name: &str) -> String {
    text(name, &NAME_ENDS, false)
}

/// Writes a text as it is if it would be read as one word, else in quotation marks.
fn text(text: &str, ends: &[char], quoted: bool) -> String {
    let plain = !text.is_empty() && word_length(text) == text.len() && !text.contains(ends);
    if plain && !quoted { text.to_owned() } else { Value::from(text).to_string() }
}

fn free(text: &str) -> String {
    let plain = text.trim() == text
        && !text.starts_with(['"', '#'])
        && !text.contains(" #")
        && !text.contains("\t#")
        && !text.chars().any(|c| c.is_control());
    if plain { text.to_owned() } else { Value::from(text).to_string() }
}
