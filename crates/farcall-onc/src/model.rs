//! The decisions of clients and servers, without sockets, threads and a clock, for simulators. This module
//! may change in any release.

pub use crate::client::model::Calls;
pub use crate::server::model::{Line, Remembered, Running, Seen};
