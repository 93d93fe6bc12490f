//! The processes of a group that is called at once: servers that compute for some time, and a client whose
//! calls are timed.
//!
//! Every program that `multi` measures calls [`main`] here. It provides only its server and its client.
#![forbid(unsafe_code)]

pub mod paper;
mod side;
mod work;

pub use side::{Side, main};
pub use work::{Answer, Calls, Counted, Kind, Order, Parts, Sent, Server, Way};
pub use work::{Distribution, Draws, Work};
