//! Tests the registry in DNS: with a server of the test's own, which also lies, and with dnsmasq.
#![cfg(target_os = "linux")]

mod answers;
mod faults;
mod real;
mod server;
