//! Olympus: an interpreter of graphs whose nodes are remote procedures.
//!
//! A graph has places, which hold tokens, and nodes, which take tokens from places and put tokens into
//! others, as in a Petri net. When a node fires, the procedure that annotates it is found by its name and
//! called. The first Olympus was built at the University of Colorado on Sun RPC (Elliott & Nutt 1989, section
//! 2.3).

#![forbid(unsafe_code)]

pub mod check;
pub mod draw;
mod duration;
pub mod expression;
pub mod interpreter;
pub mod journal;
pub mod location;
pub mod marking;
pub mod model;
#[cfg(feature = "page")]
pub mod page;
pub mod pnml;
pub mod procedures;
pub mod reach;
pub mod rules;
pub mod run;
mod scope;
pub mod text;
mod xml;
