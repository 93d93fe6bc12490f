//! A seeded network in one process, for proofs of the protocol and for users' tests.
//!
//! [`run`] lets simulated clients and servers, which are [`farcall_proto`]'s two ends, talk over a
//! network that loses, duplicates, reorders, corrupts and delays datagrams, cuts paths one way,
//! crashes and stops machines, and moves clients to other addresses; an oracle knows every call
//! and every execution and checks what the protocol promises. Everything that happens is decided
//! by the seed: two runs of one seed give one trace hash.

#![forbid(unsafe_code)]

mod bulk;
mod check;
mod client;
mod clock;
mod ground;
pub mod net;
mod oracle;
mod plan;
mod rng;
mod server;
pub mod sim;
mod soak;
mod world;

pub use bulk::{Bulk, Transfer};
pub use check::{Failure, Passed, check, find, replay};
pub use net::Faults as FaultCounts;
pub use oracle::{Outcomes, Violation};
pub use sim::{Faults, Process, Sim};
pub use soak::{Failing, Soak, Summary};
pub use world::{Report, run};
