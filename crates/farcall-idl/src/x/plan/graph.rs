//! How the types of a tree refer to one another: what is a linked list, what contains itself, what is too deep.

use super::{DEPTH, Refused, option};
use crate::x::tree::{Body, Declared, Field, Specification, Type};

/// The type behind other names; names that go in circles are left somewhere on the circle.
pub fn stripped<'t>(specification: &'t Specification, ty: &'t Type) -> &'t Type {
    let mut stripped = ty;
    for _ in 0..=specification.types.len() {
        match stripped {
            Type::Defined(item) => match &specification.types[*item].body {
                Body::Alias(Declared::One(ty)) => stripped = ty,
                _ => break,
            },
            _ => break,
        }
    }
    stripped
}

/// The declaration behind other names.
fn declaration<'t>(specification: &'t Specification, declared: &'t Declared) -> &'t Declared {
    let Declared::One(ty) = declared else { return declared };
    match stripped(specification, ty) {
        Type::Defined(item) => match &specification.types[*item].body {
            Body::Alias(declared) => declared,
            _ => declared,
        },
        _ => declared,
    }
}

/// Whether a struct is the node of a linked list: its last field, and no other, is an optional pointer to itself.
pub fn is_list(specification: &Specification, index: usize) -> bool {
    let Body::Struct(fields) = &specification.types[index].body else { return false };
    let points_here = |field: &Field| match declaration(specification, &field.declared) {
        Declared::Optional(ty) => *stripped(specification, ty) == Type::Defined(index),
        _ => false,
    };
    match fields.split_last() {
        Some((last, others)) => points_here(last) && !others.iter().any(points_here),
        None => false,
    }
}

/// Refuses what no value can have or nobody can compile, and says which second names contain themselves.
pub fn check(specification: &Specification) -> Result<Vec<bool>, Refused> {
    let types = &specification.types;
    let every: Vec<Vec<usize>> = types.iter().map(|ty| mentioned(&ty.body, true)).collect();
    let components = Components::of(&every);
    if let Some(deep) = components.deeper_than(DEPTH) {
        let name = &types[deep].named.name;
        return Err(Refused(format!(
            "`{name}` refers to types that refer to types, deeper than {DEPTH} of them"
        )));
    }
    let always = types.iter().map(|ty| match &ty.body {
        Body::Union(_) => Vec::new(),
        body => mentioned(body, false),
    });
    let always: Vec<Vec<usize>> = always.collect();
    let components = Components::of(&always);
    if let Some(endless) = (0..types.len()).find(|index| components.is_cyclic(*index, &always)) {
        return Err(Refused(format!("a `{}` contains itself, without end", types[endless].named.name)));
    }
    let names = types.iter().zip(&every).map(|(ty, mentioned)| match is_name(specification, &ty.body) {
        true => mentioned.iter().copied().filter(|to| is_name(specification, &types[*to].body)).collect(),
        false => Vec::new(),
    });
    let names: Vec<Vec<usize>> = names.collect();
    let components = Components::of(&names);
    Ok((0..types.len()).map(|index| components.is_cyclic(index, &names)).collect())
}

/// Whether no new Rust type is made of it.
fn is_name(specification: &Specification, body: &Body) -> bool {
    match body {
        Body::Alias(_) => true,
        Body::Union(union) => option(specification, union).is_some(),
        _ => false,
    }
}

/// The definitions that a value of this one consists of; also those that it may do without, if `may`.
fn mentioned(body: &Body, may: bool) -> Vec<usize> {
    let in_declared = |declared: &Declared| match declared {
        Declared::One(Type::Defined(item)) => Some(*item),
        Declared::Array { element: Type::Defined(item), size } if may || *size > 0 => Some(*item),
        Declared::Optional(Type::Defined(item)) | Declared::List { element: Type::Defined(item), .. }
            if may =>
        {
            Some(*item)
        }
        _ => None,
    };
    match body {
        Body::Alias(declared) => in_declared(declared).into_iter().collect(),
        Body::Enum(_) => Vec::new(),
        Body::Struct(fields) => fields.iter().filter_map(|field| in_declared(&field.declared)).collect(),
        Body::Union(union) => {
            let fields = union.arms.iter().map(|arm| &arm.field).chain(&union.default).flatten();
            let discriminant = match union.discriminant {
                Type::Defined(item) => Some(item),
                _ => None,
            };
            discriminant.into_iter().chain(fields.filter_map(|field| in_declared(&field.declared))).collect()
        }
    }
}

/// The strongly connected components of a graph, by Tarjan's algorithm.
pub struct Components {
    /// Of each node. Of two components, the one that is referred to has the smaller number.
    pub of: Vec<usize>,
    /// How many nodes each has.
    sizes: Vec<usize>,
    /// How many nodes stand below each other at most, from this component down.
    heights: Vec<usize>,
}

/// Not yet.
const NEW: usize = usize::MAX;

impl Components {
    pub fn of(edges: &[Vec<usize>]) -> Components {
        let mut components =
            Components { of: vec![NEW; edges.len()], sizes: Vec::new(), heights: Vec::new() };
        let (mut order, mut low) = (vec![NEW; edges.len()], vec![0; edges.len()]);
        let (mut open, mut next) = (Vec::new(), 0);
        for root in 0..edges.len() {
            // The nodes on the way here, each with how many of its edges have been followed. A file may be long: no recursion.
            let mut way = if order[root] == NEW { vec![(root, 0)] } else { Vec::new() };
            while let Some((node, followed)) = way.pop() {
                if followed == 0 {
                    (order[node], low[node]) = (next, next);
                    next += 1;
                    open.push(node);
                }
                if let Some(to) = edges[node].get(followed) {
                    way.push((node, followed + 1));
                    match order[*to] {
                        NEW => way.push((*to, 0)),
                        seen if components.of[*to] == NEW => low[node] = low[node].min(seen),
                        _ => {}
                    }
                    continue;
                }
                if low[node] == order[node] {
                    let at = open.iter().rposition(|member| *member == node).unwrap_or_default();
                    components.close(&open.split_off(at), edges);
                }
                if let Some((parent, _)) = way.last() {
                    low[*parent] = low[*parent].min(low[node]);
                }
            }
        }
        components
    }

    fn close(&mut self, members: &[usize], edges: &[Vec<usize>]) {
        let below = members.iter().flat_map(|member| &edges[*member]).map(|to| self.of[*to]);
        let below = below.filter_map(|component| self.heights.get(component)).max();
        self.heights.push(below.unwrap_or(&0) + members.len());
        members.iter().for_each(|member| self.of[*member] = self.sizes.len());
        self.sizes.push(members.len());
    }

    /// Whether one can go from the node back to it.
    pub fn is_cyclic(&self, node: usize, edges: &[Vec<usize>]) -> bool {
        self.sizes[self.of[node]] > 1 || edges[node].contains(&node)
    }

    fn deeper_than(&self, depth: usize) -> Option<usize> {
        (0..self.of.len()).find(|node| self.heights[self.of[*node]] > depth)
    }
}
