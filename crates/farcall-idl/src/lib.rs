//! The Interface model of farcall: stubs, fingerprints, compatibility, values.

#![forbid(unsafe_code)]

#[cfg(feature = "stubs")]
pub mod stubs;
