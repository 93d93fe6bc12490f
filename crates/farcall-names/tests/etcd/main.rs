//! Tests the registry in etcd with real members of it, which `etcd-server` of Debian installs. Without that
//! the tests say that they are skipped.
#![cfg(target_os = "linux")]

mod access;
mod cluster;
mod entries;
mod faults;
