//! Rust made of `.rpc2` files: it compiles without warnings, crosses the wire, and is described as tools
//! describe it without a compiler.

#![deny(warnings)]

mod generated;
