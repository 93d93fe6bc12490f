//! Draws graphs: positions for what has none, and pictures in SVG.
//!
//! The positions are those of a layered drawing (Sugiyama, Tagawa & Toda 1981): arcs lead from the left to
//! the right as far as the graph has no circles, and few of them cross. This crate computes them itself:
//! 10,000 places and nodes take well under a second, for which rust-sugiyama 0.4 takes more than a minute.

mod layers;
mod layout;
mod svg;

pub use layout::arrange;
pub use svg::svg;

/// The radius of a place, in pixels.
pub const PLACE_RADIUS: i32 = 20;

/// The width of a node, in pixels.
pub const NODE_WIDTH: i32 = 124;

/// The height of a node, in pixels.
pub const NODE_HEIGHT: i32 = 46;

/// The distance between the middles of two layers, in pixels.
const COLUMN: i32 = 150;

/// The least distance between the middles of two items of a layer, in pixels.
const ROW: i32 = 90;
