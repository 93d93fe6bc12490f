//! Tests the file service: all structures give equal answers, and several clerks are coherent.
#![cfg(unix)]

mod coherence;
#[cfg(target_os = "linux")]
mod restarted_servers;
#[cfg(target_os = "linux")]
mod stopped_clerks;
mod structures;
