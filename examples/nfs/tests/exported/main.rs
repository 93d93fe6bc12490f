//! The exported directory, as its clients and hostile ones meet it.
#![cfg(target_os = "linux")]

mod files;
mod hostile;
