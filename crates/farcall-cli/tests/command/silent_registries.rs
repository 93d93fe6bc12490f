//! Tests that --within covers the registry.

use std::net::{TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{Place, Said};

/// Ten times what the commands may take, so that a busy machine has time to start them. It is less than what
/// each took when --within did not cover the registry: 5 to 8 s.
const LONGEST: Duration = Duration::from_secs(4);

#[test]
fn within_covers_a_registry_that_is_silent() {
    let place = Place::new();
    let etcd = TcpListener::bind("127.0.0.1:0").unwrap();
    let dns = UdpSocket::bind("127.0.0.1:0").unwrap();
    let registries = [
        format!("etcd://{}", etcd.local_addr().unwrap()),
        format!("dns://example.org?server={}", dns.local_addr().unwrap()),
    ];
    let commands = [&["ping", "Store"][..], &["call", "Store", "get", "[]"], &["multi", "Store", "get"]];
    for registry in &registries {
        for command in commands {
            let begun = Instant::now();
            let command = [command, &["--within", "0.4"]].concat();
            let output = place.command(&command).env("FARCALL_REGISTRY", registry).output().unwrap();
            let (said, took) = (Said::of(output), begun.elapsed());
            assert!(said.code != 0, "{registry}: {command:?}");
            assert!(took < LONGEST, "{registry}: {command:?} took {took:?}");
        }
    }
}
