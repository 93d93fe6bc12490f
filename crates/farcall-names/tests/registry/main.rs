//! Tests the registry: names, and the tables in memory and in a file.

mod common;
#[cfg(unix)]
mod file;
#[cfg(unix)]
mod processes;
mod syntax;
mod tables;
