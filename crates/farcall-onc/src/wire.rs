//! Messages of RFC 5531 without I/O: bytes and values.

pub mod record;
