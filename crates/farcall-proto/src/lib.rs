//! The packet exchange protocol of farcall: no sockets, no threads, no clock, no randomness.
//!
//! Time, entropy and packets are arguments; datagrams and events come out. The specification is
//! `docs/protocol.md`; the shape is that of any core without I/O:
//!
//! - a **caller** keeps one [`client::Conversation`] for each server endpoint it talks to;
//! - a **server** keeps one [`server::Server`] for each socket it exports on;
//! - both are fed by `handle` (a datagram came), `handle_timeout` (the time that `timeout` named
//!   has come) and the calls of their users, and emptied by `transmit` until it returns `None`.
//!
//! One rule for whoever drives them: hand in every datagram that has arrived *before* acting on a
//! timer (Satyanarayanan & Siegel 1990, section V-C).

#![forbid(unsafe_code)]

pub mod client;
pub mod config;
pub mod dump;
mod exchange;
#[doc(hidden)]
pub mod fuzzing;
pub mod mutant;
mod path;
mod scheme;
pub mod server;
mod spares;
mod ticket;
mod transfer;
mod wire;

pub use config::{BASE_DATAGRAM, ClientConfig, MAX_DATAGRAM, ServerConfig};
pub use exchange::{News, Tail};
pub(crate) use farcall_base::nanos;
pub use farcall_base::{Failure, Kind, Ran, Time, Trace};
pub use mutant::{Mutant, Rule};
pub use spares::Spares;
pub use ticket::Holder;
pub use wire::{Fingerprint, MAX_NAME, Route, VERSION, route};

/// The address of what an option holds, or 0: whether any of several is there is one comparison then.
#[inline(always)]
fn address<T>(held: &Option<Box<T>>) -> usize {
    held.as_deref().map_or(0, |held| std::ptr::from_ref(held).addr())
}

/// Procedures with these numbers and greater ones access memory: whoever receives their calls executes them.
pub const ACCESSES: u32 = 0xffff_4000;

/// Of them, procedures with these numbers and greater ones only read: a server holds no result of theirs, and
/// executes them again when their call comes again.
pub const READINGS: u32 = 0xffff_8000;

/// The most bytes of a POST. That many fit a datagram of 1,200 bytes with a tag of 16, beside a TICKET whose
/// rest has 40 bytes.
pub const MAX_POST: usize = 1_064;
