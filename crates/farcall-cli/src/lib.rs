//! The command's parsers of files from untrusted sources. They are in a library so that they can be fuzzed.

#![forbid(unsafe_code)]

pub mod capture;
