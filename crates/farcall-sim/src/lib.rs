//! A seeded network in one process, for tests of programs that call one another by farcall, and for proofs of
//! farcall's own protocol.
//!
//! # Testing your programs
//!
//! [`check`] runs your test under many seeds, each time in a simulated network with virtual time. The
//! programs in it are unchanged: they export, import, and block in calls. The test loses, duplicates and
//! delays their packets. It cuts paths, pauses, crashes and restarts processes, and asserts what must be
//! true. The seed decides everything, so a failure can be replayed:
//!
//! ```text
//! seed 17 failed at 4.051213 s: test: main panicked at tests/simulation/bank.rs:180: money was made or lost
//! replay it by: FARCALL_SIM_SEED=17 cargo test a_bank_keeps_its_promises -- --nocapture
//! ```
//!
//! `tests/simulation/bank.rs` of this crate is a complete test of an interface with state, whose clients must
//! be told the truth. It also shows how to check that the test would catch a mistake.
//!
//! [`history`] checks linearizability: whether the results that several clients saw of a shared object are
//! consistent.
//!
//! ```toml
//! [dev-dependencies]
//! farcall-sim = { version = "0.1", default-features = false }
//! ```
//!
//! # Proving the protocol
//!
//! [`run`] lets simulated clients and servers, which are [`farcall_proto`]'s two ends, talk over a network
//! with faults. The network loses, duplicates, reorders, corrupts and delays datagrams, and cuts paths one
//! way. Machines crash and stop, and clients move to other addresses. An oracle knows every call and every
//! execution, and checks the promises of the protocol. The seed decides everything that happens: two runs of
//! one seed have the same trace hash. [`shared_memory`] does the same for calls through shared memory. The
//! feature `soak` adds the command `farcall-sim soak`, and the deliberate faults that it must catch.

#![forbid(unsafe_code)]

#[cfg(feature = "soak")]
mod attacker;
mod bulk;
mod check;
mod client;
mod clock;
mod counts;
mod crowd;
mod exchange_user;
mod exchanging;
#[cfg(feature = "soak")]
mod flood;
#[cfg(all(feature = "soak", target_os = "linux"))]
pub mod grants;
mod ground;
pub mod history;
mod hostile;
#[cfg(feature = "soak")]
mod interloper;
#[cfg(feature = "soak")]
mod keys;
mod memory;
#[cfg(target_os = "linux")]
pub mod model;
mod names;
pub mod net;
#[cfg(target_os = "linux")]
pub mod onc;
mod oracle;
mod plan;
mod rng;
mod seals;
mod server;
#[cfg(target_os = "linux")]
pub mod shared_memory;
pub mod sim;
#[cfg(target_os = "linux")]
mod soak;
#[cfg(feature = "soak")]
mod strangers;
mod world;

pub use bulk::{Bulk, Load, Transfer};
pub use check::{Failure, Passed, check, find, replay};
pub use crowd::{Crowd, Crowded};
#[cfg(feature = "soak")]
pub use flood::{Flood, Flooded};
pub use net::Faults as FaultCounts;
pub use oracle::{Outcomes, Violation};
pub use seals::Seals;
pub use sim::{Faults, Process, Sim};
#[cfg(target_os = "linux")]
pub use soak::{Failing, Soak, Summary};
#[cfg(feature = "soak")]
pub use strangers::{Asked, Strangers};
pub use world::{Report, run};
