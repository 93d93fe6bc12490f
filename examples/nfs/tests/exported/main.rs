//! Tests the exported directory as honest and hostile clients use it.
#![cfg(target_os = "linux")]

mod files;
mod hostile;
