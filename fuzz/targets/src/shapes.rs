//! Inputs that grow: each shape is one hostile way in which an input of a fuzz target can get longer.
//!
//! A reader is linear if an input of twice the length takes about twice the work. The test `linear` makes each
//! shape in two sizes and compares the work.

mod courier_files;
mod descriptions;
mod graphs;
mod keys;
mod names_files;
mod protocols;
mod registries;
mod rpc2_files;
mod x_files;

/// A way in which the input of a fuzz target grows.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The fuzz target that reads the input.
    pub target: &'static str,
    /// What the input has many of.
    pub name: &'static str,
    /// Makes an input with `n` of them.
    pub make: fn(n: usize) -> Vec<u8>,
}

/// Returns all shapes.
pub fn all() -> Vec<Shape> {
    let languages = [x_files::SHAPES, courier_files::SHAPES, rpc2_files::SHAPES].concat();
    let registries = [names_files::SHAPES, registries::SHAPES].concat();
    [descriptions::SHAPES, &languages, graphs::SHAPES, &registries, keys::SHAPES, protocols::SHAPES].concat()
}

/// Returns the text of `each` for the numbers from 0 to `n`, with something before and after.
fn many(before: &str, n: usize, each: impl Fn(usize) -> String, after: &str) -> Vec<u8> {
    let mut text = String::from(before);
    (0..n).for_each(|at| text += &each(at));
    text += after;
    text.into_bytes()
}
