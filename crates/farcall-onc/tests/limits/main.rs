//! Tests of clients and servers whose process has no descriptors left.
//!
//! The limit concerns the whole process, so only one test at a time changes it.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the limit for a test that changes it.
fn limit() -> MutexGuard<'static, ()> {
    static LIMIT: Mutex<()> = Mutex::new(());
    LIMIT.lock().unwrap_or_else(PoisonError::into_inner)
}
