//! What the command reads of files that anybody may have made; a library so that it can be fuzzed.

#![forbid(unsafe_code)]

pub mod capture;
