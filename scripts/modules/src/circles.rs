//! Draws the arrows between modules and finds the circles among them.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::World;
use crate::tree::Names;

/// One module uses what another defines, and the path by which it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    pub from: Names,
    pub to: Names,
    pub path: Names,
}

/// Modules with one parent, each of which uses all others, perhaps through still others.
#[derive(Debug)]
pub struct Circle {
    pub parent: Names,
    pub children: Vec<String>,
    /// The arrows that make it.
    pub arrows: Vec<Arrow>,
}

/// What uses what, from module to module.
pub fn arrows(world: &World) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for module in world.0.values() {
        for path in &module.paths {
            let Some(to) = world.definer(&module.path, path) else { continue };
            if to != module.path {
                arrows.push(Arrow { from: module.path.clone(), to, path: path.clone() });
            }
        }
    }
    arrows
}

/// For each module, the circles among its children, each taken with all below it.
pub fn circles(world: &World, arrows: &[Arrow]) -> Vec<Circle> {
    let mut found = Vec::new();
    for parent in world.0.keys() {
        let inner: Vec<(&str, &str, &Arrow)> = arrows
            .iter()
            .filter_map(|arrow| Some((child(parent, &arrow.from)?, child(parent, &arrow.to)?, arrow)))
            .filter(|(from, to, _)| from != to)
            .collect();
        let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to, _) in &inner {
            next.entry(from).or_default().insert(to);
        }
        for children in components(&next) {
            let inside = |name: &str| children.contains(name);
            found.push(Circle {
                parent: parent.clone(),
                children: children.iter().map(|name| (*name).to_owned()).collect(),
                arrows: inner
                    .iter()
                    .filter(|(from, to, _)| inside(from) && inside(to))
                    .map(|(_, _, arrow)| (*arrow).clone())
                    .collect(),
            });
        }
    }
    found
}

/// The child of `parent` that is `module` or above it.
fn child<'a>(parent: &[String], module: &'a [String]) -> Option<&'a str> {
    module.strip_prefix(parent)?.first().map(String::as_str)
}

/// The sets of two or more names each of which reaches all others.
fn components<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<BTreeSet<&'a str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|name| (*name, reached(next, name))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (name, to) in &reach {
        if !to.contains(name) || seen.contains(name) {
            continue;
        }
        let both: BTreeSet<&str> = to
            .iter()
            .copied()
            .filter(|other| reach.get(other).is_some_and(|back| back.contains(name)))
            .collect();
        seen.extend(both.iter().copied());
        found.push(both);
    }
    found
}

/// What can be reached from `name` by one arrow or more.
fn reached<'a>(next: &BTreeMap<&'a str, BTreeSet<&'a str>>, name: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(name).into_iter().flatten().copied().collect();
    while let Some(name) = open.pop() {
        if reached.insert(name) {
            open.extend(next.get(name).into_iter().flatten().copied());
        }
    }
    reached
}
