//! Messages of RFC 5531 without I/O: bytes and values.

pub mod auth;
pub mod message;
pub mod record;
