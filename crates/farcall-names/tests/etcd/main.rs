//! Tests the registry in etcd with real members of it, which `etcd-server` of Debian installs. Without that
//! the tests say that they are skipped. FARCALL_TEST_ETCD names another etcd than that in PATH.
#![cfg(target_os = "linux")]

mod access;
#[cfg(feature = "etcd-tls")]
mod certificates;
mod cluster;
mod entries;
mod faults;
mod many;
#[cfg(feature = "etcd-tls")]
mod tls;
