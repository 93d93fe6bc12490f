//! The names that simulated servers export.

/// The name that every server exports.
pub const NAME: &str = "Store";

/// A name for which no server's key is granted, though they export it.
pub const OTHER: &str = "Other";
