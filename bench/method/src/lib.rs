//! The method by which farcall's benches measure, independent of the measured programs.
//!
//! - A [`Peer`] is one way to make a call. Its server and its client are processes of their own
//!   ([`agent`]), pinned to a core each, so that no peer shares an allocator, a heap or a scheduler's
//!   luck with another. A peer may live in any program whose `main` hands over to [`agent::run`].
//! - The bench starts [`Pair`]s of them and lets one pair at a time run a block of calls. A ratio is
//!   the median over many [`interleave`]d blocks, with its interval ([`stats`]).
//! - Instructions, system calls and allocations are counted in other blocks than those that are timed,
//!   because counting takes time ([`counters`], [`alloc`]).
//! - Programs that are measured across a cable have a [`network`] namespace each.
//! - Tables and figures of papers that are measured again are a [`paper::Item`] each.
//! - The results are [`Row`]s: printed as a table, written as JSON ([`report`]), drawn as SVG ([`chart`]),
//!   always with their [`conditions`].

pub mod agent;
pub mod alloc;
pub mod callgrind;
pub mod chart;
pub mod conditions;
pub mod counters;
mod crew;
mod gate;
pub mod interleave;
mod latencies;
mod load;
pub mod network;
mod options;
mod pair;
pub mod paper;
mod peer;
pub mod process;
mod report;
mod row;
mod socket;
pub mod stats;
mod table;
mod versions;

pub use crew::Crew;
pub use gate::{Gate, Gated};
pub use latencies::Latencies;
pub use load::{Arrival, Load, SLOW, STUCK, Schedule};
pub use options::{Options, Pin};
pub use pair::{Block, Cell, Pair, Tally};
pub use peer::{Calling, Cannot, Carry, Laps, Lost, Mode, Peer, Serving, Setup, cannot};
pub use report::{report, write_json};
pub use row::Row;
pub use socket::enlarge;
pub use versions::version_of;
