//! Rust made of `.cr` files: it compiles without warnings, crosses the wire, and is described as tools
//! describe it without a compiler. What is printed from interfaces can be read again.

#![deny(warnings)]

mod generated;
mod printed;
