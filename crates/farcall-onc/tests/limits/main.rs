//! Clients and servers whose process has no descriptor left.
//!
//! The limit is of the whole process, so one test at a time changes it.
#![allow(missing_docs)]
#![cfg(target_os = "linux")]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whoever changes the limit holds this.
fn limit() -> MutexGuard<'static, ()> {
    static LIMIT: Mutex<()> = Mutex::new(());
    LIMIT.lock().unwrap_or_else(PoisonError::into_inner)
}
