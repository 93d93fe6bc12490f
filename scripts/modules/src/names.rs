//! Finds the module that defines what a path names, through imports and re-exports.

use std::collections::BTreeMap;

use crate::tree::{Module, Names};

/// More imports than this in a row lead in a circle.
const MAX_STEPS: usize = 64;

/// All modules of all crates, by path.
pub struct World(pub BTreeMap<Names, Module>);

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Module(Names),
    /// An item, by the module that defines it.
    Item(Names),
}

impl World {
    /// The module that defines what `path`, written in the module `at`, names. None if no crate of ours does.
    pub fn definer(&self, at: &[String], path: &[String]) -> Option<Names> {
        match self.meaning(at, path, MAX_STEPS)? {
            Meaning::Item(module) => Some(module),
            // A word that happens to be the name of a module is a variable.
            Meaning::Module(_) if path.len() == 1 => None,
            Meaning::Module(module) => Some(module),
        }
    }

    fn meaning(&self, at: &[String], path: &[String], steps: usize) -> Option<Meaning> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut meaning = match first.as_str() {
            "crate" | "$crate" => Meaning::Module(at[..1].to_vec()),
            "self" => Meaning::Module(at.to_vec()),
            "super" => Meaning::Module(at[..at.len().checked_sub(1)?].to_vec()),
            name => self.name(at, name, steps).or_else(|| self.krate(name))?,
        };
        while let Some((name, further)) = rest.split_first() {
            // Behind an item stand its variants and associated items.
            let Meaning::Module(module) = &meaning else { return Some(meaning) };
            meaning = match name.as_str() {
                "super" => Meaning::Module(module[..module.len().checked_sub(1)?].to_vec()),
                name => self.name(module, name, steps)?,
            };
            rest = further;
        }
        Some(meaning)
    }

    /// What a name means in a module.
    fn name(&self, at: &[String], name: &str, steps: usize) -> Option<Meaning> {
        let steps = steps.checked_sub(1)?;
        let module = self.0.get(at)?;
        if module.items.contains(name) {
            return Some(Meaning::Item(at.to_vec()));
        }
        let child = [at, &[name.to_owned()]].concat();
        if self.0.contains_key(&child) {
            return Some(Meaning::Module(child));
        }
        if let Some(path) = module.imports.get(name) {
            // `use proto as proto` of a crate: the name is not looked up in what imports it.
            let own = path.len() == 1 && path[0] == name;
            return if own { self.krate(name) } else { self.meaning(at, path, steps) };
        }
        module.globs.iter().find_map(|glob| match self.meaning(at, glob, steps)? {
            Meaning::Module(module) => self.name(&module, name, steps),
            Meaning::Item(_) => None,
        })
    }

    fn krate(&self, name: &str) -> Option<Meaning> {
        let path = vec![name.to_owned()];
        self.0.contains_key(&path).then_some(Meaning::Module(path))
    }
}
