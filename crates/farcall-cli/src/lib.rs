//! The parsers of the command for files from untrusted sources; a library so that they can be fuzzed.

#![forbid(unsafe_code)]

pub mod capture;
