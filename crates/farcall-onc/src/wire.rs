//! Encodes and decodes the messages of RFC 5531, without I/O.

pub mod auth;
pub mod message;
pub mod record;
