//! Three hosts with two addresses each, in network namespaces: a server that listens at all addresses is
//! found by its name while networks fail, and after it has moved to another host. Needs root, `ip` and
//! `etcd-server`; otherwise the test says that it is skipped.
#![cfg(target_os = "linux")]

#[path = "common/commands.rs"]
mod commands;
#[path = "common/hosts.rs"]
mod hosts;

use std::env;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::Etcd;
use hosts::{Hosts, PLACE, Player, ROLE};

const TEST: &str = "clients_find_a_server_again_when_networks_fail_and_when_it_moves";

/// How long a call waits for a silent server.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most attempts of a client to reach a server that can be reached: one that shows that its binding is
/// broken, and one that is bound anew.
const MAX_ATTEMPTS: u32 = 2;

#[farcall::interface]
trait Place {
    /// Returns the host on which the server runs.
    fn host(&self) -> farcall::Result<u32>;
}

struct On(u32);

impl Place for On {
    fn host(&self) -> farcall::Result<u32> {
        Ok(self.0)
    }
}

#[test]
fn clients_find_a_server_again_when_networks_fail_and_when_it_moves() {
    if let Ok(role) = env::var(ROLE) {
        return act(&role);
    }
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => {
            // Not `eprintln`, whose output is shown only for failing tests.
            let _ = writeln!(std::io::stderr(), "skipped: hosts in network namespaces: {why}");
            return;
        }
    };
    let _etcd = hosts.start_etcd();
    let mut server = hosts.play(1, TEST, "server 1");
    let published = server.wait_for("ready");
    for address in ["10.78.1.1:7000", "10.78.2.1:7000"] {
        assert!(published.contains(address), "{published}");
    }
    let mut clients = [2, 3].map(|host| hosts.play(host, TEST, "client"));
    let mut called = |server: u32, most: u32| {
        for client in &mut clients {
            let (attempts, host) = call(client);
            assert_eq!(host, server);
            assert!(attempts <= most, "a client needed {attempts} attempts");
        }
    };
    called(1, 1);

    hosts.set(1, "one", "down");
    called(1, MAX_ATTEMPTS);
    hosts.set(1, "one", "up");
    hosts.set(1, "two", "down");
    called(1, MAX_ATTEMPTS);
    hosts.set(1, "two", "up");

    // The server moves to the second host, first in good order, and back as after a crash.
    server.finish();
    let mut server = hosts.play(2, TEST, "server 2");
    server.wait_for("ready");
    called(2, MAX_ATTEMPTS);
    drop(server);
    let mut server = hosts.play(1, TEST, "server 1");
    server.wait_for("ready");
    called(1, MAX_ATTEMPTS);

    // While its host is cut off, the server loses its name. It takes it again by itself.
    for network in ["one", "two"] {
        hosts.set(1, network, "down");
    }
    assert_eq!(clients_that_reach(&mut clients), 0);
    wait_until_etcd_has(&hosts, 0);
    for network in ["one", "two"] {
        hosts.set(1, network, "up");
    }
    wait_until_etcd_has(&hosts, 1);
    for client in &mut clients {
        assert!(call(client).0 <= MAX_ATTEMPTS);
    }
}

/// Returns how many clients reach the server by one call each.
fn clients_that_reach(clients: &mut [Player]) -> usize {
    clients.iter_mut().filter_map(|client| call_at_most(client, 1)).count()
}

fn act(role: &str) {
    let registry = Etcd::at(PLACE).unwrap();
    let builder = Runtime::builder().registry(registry).patience(PATIENCE);
    let Some(host) = role.strip_prefix("server ") else { return be_client(&builder.build().unwrap()) };
    let runtime = builder.address("0.0.0.0:7000".parse().unwrap()).open().build().unwrap();
    let server = Arc::new(On(host.parse().unwrap()));
    // The name is taken until the lease of a killed server has ended.
    let export = loop {
        match runtime.export::<dyn Place>("Place/main", server.clone()) {
            Ok(export) => break export,
            Err(_) => std::thread::yield_now(),
        }
    };
    println!("\nready {:?}", export.addresses());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Calls as often as each line of the input says, until a call succeeds.
fn be_client(runtime: &Runtime) {
    let place = runtime.import::<dyn Place>("Place/main").unwrap();
    for most in std::io::stdin().lines().map(|line| line.unwrap().parse::<u32>().unwrap()) {
        let result = (1..=most).find_map(|attempt| Some((attempt, place.host().ok()?)));
        let (attempts, host) = result.unwrap_or((0, 0));
        println!("\ncalled {attempts} {host}");
    }
}

/// Waits until etcd has this many entries.
fn wait_until_etcd_has(hosts: &Hosts, entries: usize) {
    let has = || {
        let mut etcdctl = hosts.command(3, "etcdctl");
        etcdctl.env("ETCDCTL_API", "3").args(["get", "--keys-only", "--prefix", "test/v1/"]);
        let found = etcdctl.output().unwrap();
        String::from_utf8(found.stdout).unwrap().lines().filter(|line| !line.is_empty()).count()
    };
    while has() != entries {
        std::thread::yield_now();
    }
}

/// Has a client call until a call succeeds. Returns the attempts, and the server's host.
fn call(client: &mut Player) -> (u32, u32) {
    call_at_most(client, 20).expect("no call succeeds")
}

fn call_at_most(client: &mut Player, most: u32) -> Option<(u32, u32)> {
    writeln!(client.process.stdin.as_mut().unwrap(), "{most}").unwrap();
    let said = client.wait_for("called ");
    let (attempts, host) = said.split_once(' ').unwrap();
    Some((attempts.parse().unwrap(), host.parse().unwrap())).filter(|(attempts, _)| *attempts > 0)
}
