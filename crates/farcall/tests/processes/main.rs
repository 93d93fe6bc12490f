//! Several real processes: killed, stopped, in networks of their own, or written in another language.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod clerk_deaths;
#[cfg(target_os = "linux")]
#[path = "../common/commands.rs"]
mod commands;
#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod dead_clients;
#[cfg(unix)]
#[path = "../common/execution_log.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod execution_log;
#[cfg(unix)]
mod killed_receivers;
#[cfg(unix)]
mod killed_servers;
#[cfg(target_os = "linux")]
mod network_namespaces;
#[cfg(target_os = "linux")]
mod obstacles;
#[cfg(unix)]
mod oneway;
#[cfg(target_os = "linux")]
#[path = "../common/other.rs"]
mod other;
#[path = "../common/progress.rs"]
mod progress;
mod second_implementation;
#[cfg(target_os = "linux")]
mod withdrawn_rights;
