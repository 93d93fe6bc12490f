//! The threads of a server: which calls get one, which wait, and what happens when none can be started.
#![allow(missing_docs)]

#[macro_use]
#[path = "../common/system.rs"]
mod system;
#[path = "../common/mod.rs"]
mod common;
mod failed_thread_starts;
#[cfg(target_os = "linux")]
mod fair_turns;
mod held_receivers;
#[path = "../common/other.rs"]
mod other;
mod refused_threads;
#[cfg(target_os = "linux")]
mod thread_share;
#[path = "../common/threads.rs"]
mod threads;
mod waiting_procedures;
