//! Tests the registry in DNS: with a server of the test's own, which also lies, and with dnsmasq.
#![cfg(target_os = "linux")]

mod answers;
mod faults;
#[path = "../../../farcall/tests/common/forged_icmp.rs"]
mod forged_icmp;
mod real;
mod reports;
mod server;
