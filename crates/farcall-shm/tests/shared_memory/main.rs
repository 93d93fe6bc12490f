//! Shared memory between two processes: memory files, meeting, and calls through slots.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

mod call_slots;
mod cancels;
// Miri has none of the system calls by which these two share descriptors.
#[cfg(not(miri))]
mod meeting;
#[cfg(not(miri))]
mod memory_files;
mod threads;
