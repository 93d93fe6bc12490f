//! Tests with programs: the command, clients and servers of other projects, and tests that need a process of
//! their own.
#![cfg(target_os = "linux")]

mod command;
mod interop;
#[path = "../../../../crates/farcall-onc/tests/interop/namespace.rs"]
mod namespace;
mod own_process;
