//! The net: its objects in the order in which the document has them, and the arcs between them.

use std::collections::HashMap;

use farcall_base::work;

use super::names::Names;
use super::{
    Error, Graph, Id, InputKind, MAX_TOKENS, Tree, after, join, kind, label, number, own, own_expression,
    own_text, own_value, place, position, procedure, split,
};
use crate::model::{Input, Node, NodeId, Output, PlaceId};

/// A net that is being read.
pub struct Reading<'t> {
    tree: &'t Tree<'t>,
    net: Id,
    /// What this program wrote about the net. A net of another tool has none.
    own: Option<Id>,
    places: Vec<Id>,
    nodes: Vec<Id>,
    arcs: Vec<Id>,
    objects: HashMap<&'t str, Object>,
    names: Names,
}

/// What an identifier stands for.
#[derive(Clone, Copy)]
enum Object {
    Place(PlaceId),
    Node(NodeId),
    /// An element that stands for the object whose identifier its attribute `ref` has.
    Reference(Id),
    /// The net, a page or an arc.
    Other,
}

impl<'t> Reading<'t> {
    /// Finds the objects of a net.
    pub fn new(tree: &'t Tree<'t>, net: Id) -> Result<Reading<'t>, Error> {
        let (places, nodes, arcs) = (Vec::new(), Vec::new(), Vec::new());
        let (objects, names) = (HashMap::new(), Names::default());
        let own = own(tree, net)?;
        let mut reading = Reading { tree, net, own, places, nodes, arcs, objects, names };
        reading.find(net)?;
        Ok(reading)
    }

    /// Finds the objects of a net or of a page. Pages contain one another at most [`super::super::MAX_DEPTH`]
    /// times.
    fn find(&mut self, container: Id) -> Result<(), Error> {
        let tree = self.tree;
        for element in tree.children(container) {
            let object = match tree.name(element) {
                "place" => {
                    self.places.push(element);
                    Object::Place(PlaceId(self.places.len() as u32 - 1))
                }
                "transition" => {
                    self.nodes.push(element);
                    Object::Node(NodeId(self.nodes.len() as u32 - 1))
                }
                "arc" => {
                    self.arcs.push(element);
                    Object::Other
                }
                "referencePlace" | "referenceTransition" => Object::Reference(element),
                "page" => {
                    self.find(element)?;
                    Object::Other
                }
                _ => continue,
            };
            let Some(id) = tree.attribute(element, "id") else {
                // Only what arcs and references name needs an identifier.
                if matches!(object, Object::Other) {
                    continue;
                }
                return Err(tree.error(element, format!("this <{}> has no id", tree.name(element))));
            };
            if self.objects.insert(id, object).is_some() {
                return Err(tree.error(element, format!("the id {id:?} is there twice")));
            }
        }
        Ok(())
    }

    pub fn graph(mut self) -> Result<Graph, Error> {
        let mut graph = self.heading()?;
        let tree = self.tree;
        let mut tokens_left = MAX_TOKENS;
        for element in std::mem::take(&mut self.places) {
            let mut place = place(tree, element, &mut tokens_left)?;
            (place.name, place.label) = self.names_of(element)?;
            graph.places.push(place);
        }
        for element in std::mem::take(&mut self.nodes) {
            let node = self.node(element)?;
            graph.nodes.push(node);
        }
        for arc in std::mem::take(&mut self.arcs) {
            self.arc(arc, &mut graph)?;
        }
        Ok(graph)
    }

    /// Returns a graph that has only the name of the net, and what it is for.
    fn heading(&mut self) -> Result<Graph, Error> {
        let (tree, net) = (self.tree, self.net);
        let title = label(tree, net, "name").map(|(_, text)| text).filter(|text| !text.is_empty());
        if self.own.is_some() {
            let name = match own_text(tree, self.own, "name")? {
                Some(name) => name,
                None => title.unwrap_or_default().to_owned(),
            };
            let about = own_text(tree, self.own, "about")?.unwrap_or_default();
            return Ok(Graph { name, about, ..Graph::default() });
        }
        let given = title.or(tree.attribute(net, "id")).unwrap_or("net");
        let name = Names::default().give(given);
        let about = if name == given { String::new() } else { given.to_owned() };
        Ok(Graph { name, about, ..Graph::default() })
    }

    /// Returns the name and the label of a place or node.
    fn names_of(&mut self, element: Id) -> Result<(String, String), Error> {
        let tree = self.tree;
        let id = tree.attribute(element, "id").unwrap_or_default();
        let shown = label(tree, element, "name").map(|(_, text)| text).unwrap_or_default();
        if self.own.is_some() {
            let own = own(tree, element)?;
            let name = own_text(tree, own, "name")?.unwrap_or_else(|| id.to_owned());
            let label = match own_text(tree, own, "label")? {
                Some(label) => label,
                None if shown == name => String::new(),
                None => shown.to_owned(),
            };
            return Ok((name, label));
        }
        let name = self.names.give(if shown.is_empty() { id } else { shown });
        let label = if shown == name { String::new() } else { shown.to_owned() };
        Ok((name, label))
    }

    fn node(&mut self, element: Id) -> Result<Node, Error> {
        let tree = self.tree;
        let own = own(tree, element)?;
        let (name, label) = self.names_of(element)?;
        Ok(Node {
            name,
            label,
            join: join(tree, own)?,
            split: split(tree, own)?,
            inputs: Vec::new(),
            outputs: Vec::new(),
            guard: own_expression(tree, own, "guard")?,
            priority: own_value(tree, own, "priority")?.unwrap_or(0),
            after: after(tree, own)?,
            call: procedure(tree, own)?,
            at: position(tree, element)?,
        })
    }

    /// Adds an arc to the node at one of its ends.
    fn arc(&mut self, arc: Id, graph: &mut Graph) -> Result<(), Error> {
        let tree = self.tree;
        if let Some(coloured) = tree.child(arc, "hlinscription") {
            let why = "only place/transition nets are read, and this arc has an expression";
            return Err(tree.error(coloured, why));
        }
        let weight = number(tree, arc, "inscription")?.unwrap_or(1);
        if weight == 0 {
            return Err(tree.error(arc, "the weight of an arc is at least 1"));
        }
        let kind = kind(tree, arc)?;
        let own = own(tree, arc)?;
        match (self.end(arc, "source")?, self.end(arc, "target")?) {
            (Object::Place(place), Object::Node(node)) => {
                let variable = own_text(tree, own, "as")?;
                graph.nodes[node.0 as usize].inputs.push(Input { place, weight, kind, variable });
            }
            // Some tools draw an arc that only reads in the other direction.
            (Object::Node(node), Object::Place(place)) if kind == InputKind::Read => {
                graph.nodes[node.0 as usize].inputs.push(Input { place, weight, kind, variable: None });
            }
            (Object::Node(_), Object::Place(_)) if kind == InputKind::Inhibit => {
                return Err(tree.error(arc, "an inhibitor arc goes from a place to a transition"));
            }
            (Object::Node(node), Object::Place(place)) => {
                let output = Output {
                    place,
                    weight,
                    value: own_expression(tree, own, "value")?,
                    condition: own_expression(tree, own, "if")?,
                    exception: own_text(tree, own, "on")?,
                };
                graph.nodes[node.0 as usize].outputs.push(output);
            }
            _ => return Err(tree.error(arc, "an arc goes between a place and a transition")),
        }
        Ok(())
    }

    /// Returns the object at an end of an arc.
    fn end(&mut self, arc: Id, end: &str) -> Result<Object, Error> {
        let tree = self.tree;
        let (mut element, mut attribute) = (arc, end);
        let mut followed = Vec::new();
        // A chain of more references than there are objects is a circle.
        for _ in 0..=self.objects.len() {
            let Some(id) = tree.attribute(element, attribute) else {
                return Err(tree.error(element, format!("this <{}> has no {attribute}", tree.name(element))));
            };
            work::step();
            match self.objects.get(id).copied() {
                Some(Object::Reference(next)) => {
                    followed.push(id);
                    (element, attribute) = (next, "ref");
                }
                Some(object) => {
                    // Another arc need not follow these references again.
                    self.objects.extend(followed.into_iter().map(|id| (id, object)));
                    return Ok(object);
                }
                None => return Err(tree.error(element, format!("nothing has the id {id:?}"))),
            }
        }
        Err(tree.error(element, "this reference leads to itself"))
    }
}
