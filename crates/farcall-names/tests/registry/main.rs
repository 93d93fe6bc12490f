//! Tests registries: names, the suite for registries, and the registry in a file.

mod common;
#[cfg(unix)]
mod file;
#[cfg(unix)]
mod processes;
mod static_file;
mod suite;
mod syntax;
