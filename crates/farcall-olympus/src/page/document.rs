//! The graph as it is drawn, and small edits of it.
//!
//! An edit names places and nodes by their names: indices change when something is removed.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{Graph, Node, Place, PlaceId, Position};

/// The most places and nodes of a graph that is drawn.
const MAX_ITEMS: usize = 200_000;

/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 256;

/// The graph as it is drawn.
pub(super) struct Document {
    /// The graph.
    pub(super) graph: Graph,
    /// Counts the changes. An edit says which version it changes, so that two pages do not undo each other's
    /// work.
    pub(super) version: u64,
    names: HashMap<String, Item>,
}

#[derive(Clone, Copy)]
enum Item {
    Place(usize),
    Node(usize),
}

/// Something in a graph that keeps it from being interpreted, or that is probably not meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The place or the node where it is, if it is in one.
    pub item: Option<String>,
    /// What is wrong.
    pub message: String,
    /// Whether the graph can be interpreted in spite of it.
    pub warning: bool,
}

/// A small change of a graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Edit {
    /// Names the graph.
    Graph { name: String, about: String },
    /// Adds a place, or replaces the place of that name; the new one may have another name.
    Place { name: String, place: Place },
    /// Adds a node, or replaces the node of that name. Its arcs name places instead of numbering them.
    Node { name: String, node: Value },
    /// Moves a place or a node.
    Move { name: String, at: Position },
    /// Removes a place with its arcs, or a node.
    Remove { name: String },
}

impl Edit {
    /// Tells whether the edit changes how the graph is interpreted.
    pub(super) fn changes_meaning(&self) -> bool {
        !matches!(self, Edit::Move { .. } | Edit::Graph { .. })
    }
}

impl Document {
    /// Draws a graph.
    pub(super) fn new(graph: Graph) -> Document {
        let mut document = Document { graph, version: 1, names: HashMap::new() };
        document.index();
        document
    }

    /// Replaces the whole graph.
    pub(super) fn replace(&mut self, graph: Graph) -> Result<(), String> {
        if graph.places.len() + graph.nodes.len() > MAX_ITEMS {
            return Err(format!("the graph has more than {MAX_ITEMS} places and nodes"));
        }
        for node in &graph.nodes {
            let places =
                node.inputs.iter().map(|arc| arc.place).chain(node.outputs.iter().map(|arc| arc.place));
            if places.into_iter().any(|place| place.0 as usize >= graph.places.len()) {
                return Err(format!(
                    "node {}: an arc goes to a place that the graph does not have",
                    node.name
                ));
            }
        }
        let names =
            graph.places.iter().map(|place| &place.name).chain(graph.nodes.iter().map(|node| &node.name));
        let mut seen = std::collections::HashSet::new();
        for name in names {
            check_name(name)?;
            if !seen.insert(name) {
                return Err(format!("two places or nodes have the name {name}"));
            }
        }
        self.graph = graph;
        self.version += 1;
        self.index();
        Ok(())
    }

    /// Makes all edits, or none of them if one cannot be made.
    pub(super) fn edit(&mut self, edits: Vec<Edit>) -> Result<(), String> {
        // A single edit changes nothing if it fails; before several, keep what there was.
        let before = (edits.len() > 1).then(|| self.graph.clone());
        for edit in edits {
            if let Err(error) = self.make(edit) {
                if let Some(before) = before {
                    self.graph = before;
                    self.index();
                }
                return Err(error);
            }
        }
        self.version += 1;
        Ok(())
    }

    fn make(&mut self, edit: Edit) -> Result<(), String> {
        match edit {
            Edit::Graph { name, about } => {
                check_name(&name)?;
                self.graph.name = name;
                self.graph.about = about;
            }
            Edit::Place { name, place } => self.set_place(&name, place)?,
            Edit::Node { name, node } => self.set_node(&name, node)?,
            Edit::Move { name, at } => match self.names.get(&name) {
                Some(&Item::Place(index)) => self.graph.places[index].at = Some(at),
                Some(&Item::Node(index)) => self.graph.nodes[index].at = Some(at),
                None => return Err(format!("the graph has no place and no node {name}")),
            },
            Edit::Remove { name } => self.remove(&name)?,
        }
        Ok(())
    }

    fn set_place(&mut self, name: &str, place: Place) -> Result<(), String> {
        self.check_new_name(name, &place.name)?;
        let index = match self.names.get(name) {
            Some(&Item::Place(index)) => index,
            Some(Item::Node(_)) => return Err(format!("{name} is a node")),
            None => self.graph.places.len(),
        };
        self.names.remove(name);
        self.names.insert(place.name.clone(), Item::Place(index));
        match self.graph.places.get_mut(index) {
            Some(there) => *there = place,
            None => self.graph.places.push(place),
        }
        Ok(())
    }

    fn set_node(&mut self, name: &str, mut node: Value) -> Result<(), String> {
        for arcs in ["in", "out"] {
            for arc in node.get_mut(arcs).and_then(Value::as_array_mut).into_iter().flatten() {
                let Some(place) = arc.get_mut("place") else { continue };
                let to = place.as_str().unwrap_or_default();
                let Some(&Item::Place(index)) = self.names.get(to) else {
                    return Err(format!("node {name}: the graph has no place {to:?}"));
                };
                *place = index.into();
            }
        }
        let node: Node = serde_json::from_value(node).map_err(|error| format!("node {name}: {error}"))?;
        self.check_new_name(name, &node.name)?;
        let index = match self.names.get(name) {
            Some(&Item::Node(index)) => index,
            Some(Item::Place(_)) => return Err(format!("{name} is a place")),
            None => self.graph.nodes.len(),
        };
        self.names.remove(name);
        self.names.insert(node.name.clone(), Item::Node(index));
        match self.graph.nodes.get_mut(index) {
            Some(there) => *there = node,
            None => self.graph.nodes.push(node),
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), String> {
        match self.names.get(name) {
            Some(&Item::Node(index)) => {
                self.graph.nodes.remove(index);
            }
            Some(&Item::Place(index)) => {
                self.graph.places.remove(index);
                let index = PlaceId(index as u32);
                for node in &mut self.graph.nodes {
                    node.inputs.retain(|arc| arc.place != index);
                    node.outputs.retain(|arc| arc.place != index);
                    let inputs = node.inputs.iter_mut().map(|arc| &mut arc.place);
                    for place in inputs.chain(node.outputs.iter_mut().map(|arc| &mut arc.place)) {
                        if *place > index {
                            place.0 -= 1;
                        }
                    }
                }
            }
            None => return Err(format!("the graph has no place and no node {name}")),
        }
        self.index();
        Ok(())
    }

    fn check_new_name(&self, old: &str, new: &str) -> Result<(), String> {
        check_name(new)?;
        if old != new && self.names.contains_key(new) {
            return Err(format!("there is a place or a node {new} already"));
        }
        if !self.names.contains_key(old) && self.names.len() >= MAX_ITEMS {
            return Err(format!("the graph has {MAX_ITEMS} places and nodes, which is the most"));
        }
        Ok(())
    }

    fn index(&mut self) {
        self.names.clear();
        for (index, place) in self.graph.places.iter().enumerate() {
            self.names.insert(place.name.clone(), Item::Place(index));
        }
        for (index, node) in self.graph.nodes.iter().enumerate() {
            self.names.insert(node.name.clone(), Item::Node(index));
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    match name.len() {
        0 => Err("a name is empty".into()),
        1..=MAX_NAME_BYTES => Ok(()),
        _ => Err(format!("a name has more than {MAX_NAME_BYTES} bytes")),
    }
}
