//! Calls as users make them: results, exceptions, failures, cancellation, interceptors, stubs and versions.
#![allow(missing_docs)]

#[macro_use]
#[path = "../common/system.rs"]
mod system;
mod advertised_address;
mod after_drains;
mod async_servers;
mod auto_traits;
mod by_description;
mod cancellation;
mod clock_reads;
#[path = "../common/mod.rs"]
mod common;
mod counted_outcomes;
mod datagram_batches;
mod datagram_sizes;
#[path = "../common/explosives.rs"]
mod explosives;
mod exported_async;
mod faults;
mod host_names;
mod instances;
mod interceptors;
mod interface_versions;
mod late_calls;
mod lossy_network;
mod misbehaving_types;
mod over_sockets;
mod panics;
mod program_numbers;
mod refused_tickets;
mod requests;
mod restarts;
mod scatter_gather;
mod send_times;
// `spellings` has `#![deny(unused)]`. It is public so that its items count as used.
pub mod spellings;
mod started_calls;
mod started_unbound;
#[path = "../common/stops.rs"]
mod stops;
mod stubs;
#[path = "../common/threads.rs"]
mod threads;
#[cfg(feature = "tokio")]
mod tokio_self_wait;
