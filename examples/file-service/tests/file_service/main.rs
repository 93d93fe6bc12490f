//! The file service: equal answers in all structures, and coherence of several clerks.
#![cfg(unix)]

mod coherence;
mod structures;
