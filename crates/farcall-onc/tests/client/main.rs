//! Tests of a client against scripted servers, and of the records that it reads.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod allocations;
#[cfg(target_os = "linux")]
mod broadcast;
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod finding;
mod groups;
mod numbered_credentials;
#[cfg(target_os = "linux")]
mod reconnection;
mod record_marking;
