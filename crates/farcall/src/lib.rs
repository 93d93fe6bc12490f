//! Remote procedure calls: one interface, any number of servers, truthful about failures.

#![forbid(unsafe_code)]

mod error;

pub use error::{CallFailed, Error, Exception, Kind, Never, Ran, Result, ResultExt};
