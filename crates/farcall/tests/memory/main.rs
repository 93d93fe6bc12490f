//! Memory without calls: segments over the network and mapped, their clerks, and the counters that servers
//! keep in one.
#![allow(missing_docs)]

#[cfg(target_os = "linux")]
mod access_deadlines;
mod changed_terms;
#[path = "../common/mod.rs"]
mod common;
mod deposits;
#[cfg(target_os = "linux")]
mod long_accesses;
#[cfg(target_os = "linux")]
mod mapped_segments;
mod name_clerk;
#[cfg(unix)]
mod notice_descriptors;
#[cfg(target_os = "linux")]
mod renewed_imports;
mod served_segments;
mod server_counters;
mod stuck_workers;
mod typed_segments;
mod unfetched_results;
