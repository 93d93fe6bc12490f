//! Calls through shared memory, and peers that mean harm.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

#[macro_use]
#[path = "../common/system.rs"]
mod system;
mod carrier_choice;
#[path = "../common/mod.rs"]
mod common;
mod drains;
#[path = "../common/echo.rs"]
mod echo;
mod hostile_peer;
mod impostor;
mod older_servers;
#[path = "../common/other.rs"]
mod other;
mod polling;
mod requeued_sleepers;
mod silent_connections;
#[path = "../common/threads.rs"]
mod threads;
mod unwanted_files;
