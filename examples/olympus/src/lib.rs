//! The servers in Rust that the graphs of this directory call.
//!
//! | | |
//! |---|---|
//! | [`build`] | fetches, compiles, tests and publishes: `graphs/pipeline.olympus` |
//! | [`texts`] | cleans texts: `graphs/three-languages.olympus` |
//!
//! The program `farcall-workers` runs one of them. `graphs/three-languages.olympus` also calls `count.c`, a
//! server in C made by rpcgen, and `grade.py`, a server in Python.

#![forbid(unsafe_code)]

pub mod build;
pub mod texts;
