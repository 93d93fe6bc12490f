//! A seeded network in one process: for tests of programs that call one another by farcall, and for
//! proofs of farcall's own protocol.
//!
//! # Testing your programs
//!
//! [`check`] runs your test under many seeds, each time in a simulated network with virtual time. The
//! programs in it are unchanged: they export, import, block in calls. The test loses, duplicates and
//! delays their packets, cuts, pauses, crashes and restarts them, and asserts what must be true. The
//! seed decides everything, so that what failed can be replayed:
//!
//! ```text
//! seed 17 failed at 4.051213 s: test: main panicked at tests/simulation/bank.rs:180: money was made or lost
//! replay it by: FARCALL_SIM_SEED=17 cargo test a_bank_keeps_its_promises -- --nocapture
//! ```
//!
//! A test of an interface with state, whose clients must be told the truth, is worked out in
//! `tests/simulation/bank.rs` of this crate: it also shows how to see that the test would catch a mistake.
//!
//! What several clients saw of something that they share can be checked for linearizability:
//! [`history`].
//!
//! ```toml
//! [dev-dependencies]
//! farcall-sim = { version = "0.1", default-features = false }
//! ```
//!
//! # Proving the protocol
//!
//! [`run`] lets simulated clients and servers, which are [`farcall_proto`]'s two ends, talk over a network
//! that loses, duplicates, reorders, corrupts and delays datagrams, cuts paths one way, crashes and stops
//! machines, and moves clients to other addresses; an oracle knows every call and every execution and checks
//! what the protocol promises. Everything that happens is decided by the seed: two runs of one seed give one
//! trace hash. [`shared_memory`] does the same for calls through memory. The command `farcall-sim soak`, and
//! the deliberate faults that it must catch, come with the feature `soak`.

#![forbid(unsafe_code)]

mod bulk;
mod check;
mod client;
mod clock;
mod counts;
mod ground;
pub mod history;
mod hostile;
mod memory;
#[cfg(target_os = "linux")]
pub mod model;
pub mod net;
#[cfg(target_os = "linux")]
pub mod onc;
mod oracle;
mod plan;
mod rng;
mod server;
#[cfg(target_os = "linux")]
pub mod shared_memory;
pub mod sim;
#[cfg(target_os = "linux")]
mod soak;
mod world;

pub use bulk::{Bulk, Transfer};
pub use check::{Failure, Passed, check, find, replay};
pub use net::Faults as FaultCounts;
pub use oracle::{Outcomes, Violation};
pub use sim::{Faults, Process, Sim};
#[cfg(target_os = "linux")]
pub use soak::{Failing, Soak, Summary};
pub use world::{Report, run};
