//! Tests of runs: graphs whose nodes call servers by farcall, with failures, commands and journals.
#![allow(missing_docs)]

mod away;
mod calls;
#[cfg(unix)]
#[path = "../../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;
mod commands;
mod common;
mod failures;
mod finding;
mod journals;
#[cfg(unix)]
mod killed;
#[cfg(target_os = "linux")]
mod synced;
