//! The packet exchange protocol of farcall: no sockets, no threads, no clock, no randomness.
//!
//! Time, entropy and packets are arguments; datagrams and events come out. The specification is
//! `docs/protocol.md`; the shape is that of any core without I/O:
//!
//! - a **caller** keeps one [`client::Conversation`] for each server endpoint it talks to;
//! - a **server** keeps one [`server::Server`] for each socket it exports on;
//! - both are fed by `receive` (a datagram came), `handle_timeout` (the time that `timeout` named has come)
//!   and the calls of their users, and emptied by `transmit` until it returns `None`.
//!
//! The program that drives them must keep one rule: hand in every datagram that has arrived *before* acting
//! on a timer (Satyanarayanan & Siegel 1990, section V-C).

#![forbid(unsafe_code)]

pub mod client;
pub mod config;
mod congestion;
pub mod dump;
mod exchange;
#[doc(hidden)]
pub mod fuzzing;
mod insert;
#[cfg(feature = "secure")]
pub mod key_log;
mod meeting;
pub mod mutant;
#[cfg(feature = "secure")]
mod padding;
mod path;
#[cfg(feature = "secure")]
mod phases;
mod same_user;
mod scheme;
pub mod secure;
pub mod server;
mod spares;
mod ticket;
mod transfer;
mod wire;

pub use config::{BASE_DATAGRAM, ClientConfig, MAX_DATAGRAM, ServerConfig};
pub use exchange::{News, Tail};
pub(crate) use farcall_base::nanos;
pub use farcall_base::{
    ArgumentBudget, Counted, Failure, Kind, MAX_UNCOUNTED_ARGUMENT_BYTES, Obstacle, Ran, SharedArguments,
    SharedPath, Time, Trace,
};
pub use meeting::{Ended, Meeting, Met, Proven, Shown};
pub use mutant::{Mutant, Rule};
pub use same_user::{SameUser, UserSecret, UserSecrets};
pub use spares::Spares;
pub use ticket::Holder;
pub use wire::{Fingerprint, MAX_NAME, Route, VERSION, route};

/// Returns the address of what an option holds, or 0 if it holds nothing. The addresses of several options,
/// combined by `|`, show by one comparison whether all are empty.
#[inline(always)]
fn address<T>(held: &Option<Box<T>>) -> usize {
    held.as_deref().map_or(0, |held| std::ptr::from_ref(held).addr())
}

/// Procedures with this number and greater ones access exported memory. The thread that receives a call of
/// one also executes it.
pub const ACCESSES: u32 = 0xffff_4000;

/// Procedures with this number and greater ones only read memory. A server does not keep their results: when
/// such a call comes again, it executes the procedure again.
pub const READINGS: u32 = 0xffff_8000;

/// The maximum length of a POST in bytes. A POST of this length fits a datagram of 1,200 bytes with a tag of
/// 16 bytes, together with a TICKET frame whose variable part has 40 bytes.
pub const MAX_POST: usize = 1_064;
