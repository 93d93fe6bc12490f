//! Strangers and honest clients of a server with keys, for several benches.
pub mod crowd;
