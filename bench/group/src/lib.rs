//! The processes of a group that is called at once: servers that take their time, a client that is timed.
//!
//! Every program that is measured by `multi` hands over to [`main`] here and says only how it serves and how
//! it calls.
#![forbid(unsafe_code)]

mod side;
mod work;

pub use side::{Side, main};
pub use work::{Answer, Calls, Counted, Kind, Order, Server, Way};
pub use work::{Distribution, Draws, Work};
