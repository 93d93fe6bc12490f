//! Tests the file service: all structures give equal answers, and several clerks are coherent.
#![cfg(unix)]

mod coherence;
mod structures;
