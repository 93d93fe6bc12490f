//! Programs: the command, clients and servers that others wrote, and tests that run in a process of their
//! own.
#![cfg(target_os = "linux")]

mod command;
mod interop;
#[path = "../../../../crates/farcall-onc/tests/interop/namespace.rs"]
mod namespace;
mod own_process;
