//! Three hosts with two addresses each, in network namespaces: a server that listens at all addresses is
//! found by its name while networks fail, and after it has moved to another host. Needs root, `ip` and
//! `etcd-server`; otherwise the test says that it is skipped.
#![cfg(target_os = "linux")]

#[path = "common/commands.rs"]
mod commands;

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use commands::output;
use farcall::Runtime;
use farcall::names::Etcd;

/// The environment variable with the role of a copy of this program.
const ROLE: &str = "FARCALL_HOSTS_ROLE";

/// The third host has etcd.
const PLACE: &str = "etcd://10.78.1.3,10.78.2.3/test";

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
    let mut server = hosts.play(1, "server 1");
    let published = server.wait_for("ready");
    for address in ["10.78.1.1:7000", "10.78.2.1:7000"] {
        assert!(published.contains(address), "{published}");
    }
    let mut clients = [2, 3].map(|host| hosts.play(host, "client"));
    let mut called = |server: u32, most: u32| {
        for client in &mut clients {
            let (attempts, host) = client.call();
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
    let mut server = hosts.play(2, "server 2");
    server.wait_for("ready");
    called(2, MAX_ATTEMPTS);
    drop(server);
    let mut server = hosts.play(1, "server 1");
    server.wait_for("ready");
    called(1, MAX_ATTEMPTS);

    // While its host is cut off, the server loses its name. It takes it again by itself.
    for network in ["one", "two"] {
        hosts.set(1, network, "down");
    }
    assert_eq!(clients_that_reach(&mut clients), 0);
    hosts.wait_until_etcd_has(0);
    for network in ["one", "two"] {
        hosts.set(1, network, "up");
    }
    hosts.wait_until_etcd_has(1);
    for client in &mut clients {
        assert!(client.call().0 <= MAX_ATTEMPTS);
    }
}

/// Returns how many clients reach the server by one call each.
fn clients_that_reach(clients: &mut [Player]) -> usize {
    clients.iter_mut().filter_map(|client| client.try_once()).count()
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

/// Three hosts in namespaces, and a namespace with the two networks that join them. Dropping this value
/// removes them.
struct Hosts {
    /// The networks, and then the hosts.
    names: Vec<String>,
    directory: tempfile::TempDir,
}

impl Hosts {
    fn new() -> Result<Hosts, String> {
        if output("id", &["-u"])?.trim() != "0" {
            return Err("they need root".into());
        }
        for (program, version) in [("ip", "-V"), ("etcd", "--version"), ("etcdctl", "version")] {
            output(program, &[version]).map_err(|_| format!("there is no {program}"))?;
        }
        let name = |which: u32| format!("farcall-hosts-{which}-{}", std::process::id());
        let hosts = Hosts { names: (0..=3).map(name).collect(), directory: tempfile::tempdir().unwrap() };
        let networks = hosts.names[0].as_str();
        for name in &hosts.names {
            output("ip", &["netns", "add", name]).map_err(|why| format!("none can be made ({why})"))?;
            output("ip", &["-n", name, "link", "set", "lo", "up"])?;
        }
        for (network, number) in [("one", 1), ("two", 2)] {
            output("ip", &["-n", networks, "link", "add", "name", network, "type", "bridge"])?;
            output("ip", &["-n", networks, "link", "set", network, "up"])?;
            for host in 1..=3 {
                let (name, port) = (hosts.names[host].as_str(), format!("{network}{host}"));
                let cable =
                    ["link", "add", "name", &port, "type", "veth", "peer", "name", network, "netns", name];
                output("ip", &[&["-n", networks][..], &cable].concat())?;
                output("ip", &["-n", networks, "link", "set", &port, "master", network, "up"])?;
                let address = format!("10.78.{number}.{host}/24");
                output("ip", &["-n", name, "address", "add", &address, "dev", network])?;
                output("ip", &["-n", name, "link", "set", network, "up"])?;
            }
        }
        Ok(hosts)
    }

    /// Sets a host's interface up or down.
    fn set(&self, host: usize, network: &str, to: &str) {
        output("ip", &["-n", &self.names[host], "link", "set", network, to]).unwrap();
    }

    /// Starts etcd at both addresses of the third host.
    fn start_etcd(&self) -> Player {
        let mut etcd = self.command(3, "etcd");
        etcd.arg("--data-dir").arg(self.directory.path());
        etcd.args(["--listen-client-urls", "http://0.0.0.0:2379"]);
        etcd.args(["--advertise-client-urls", "http://10.78.1.3:2379"]);
        let mut etcd = etcd.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(etcd.stderr.take().unwrap());
        let mut lines = log.lines().map_while(Result::ok);
        let serves =
            |line: &String| line.contains("serving insecure client") || line.contains("ready to serve");
        assert!(lines.any(|line| serves(&line)), "etcd has ended");
        std::thread::spawn(move || lines.for_each(drop));
        Player { process: etcd, said: None }
    }

    /// Waits until etcd has this many entries.
    fn wait_until_etcd_has(&self, entries: usize) {
        let has = || {
            let mut etcdctl = self.command(3, "etcdctl");
            etcdctl.env("ETCDCTL_API", "3").args(["get", "--keys-only", "--prefix", "test/v1/"]);
            let found = etcdctl.output().unwrap();
            String::from_utf8(found.stdout).unwrap().lines().filter(|line| !line.is_empty()).count()
        };
        while has() != entries {
            std::thread::yield_now();
        }
    }

    /// Runs this program on a host.
    fn play(&self, host: usize, role: &str) -> Player {
        let mut command = self.command(host, env::current_exe().unwrap().to_str().unwrap());
        let test = "clients_find_a_server_again_when_networks_fail_and_when_it_moves";
        command.args(["--exact", test, "--nocapture"]);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let said = process.stdout.take().map(BufReader::new);
        Player { process, said }
    }

    fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], program]);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = output("ip", &["netns", "delete", name]);
        }
    }
}

/// A process that is killed when the test ends, even if it fails.
struct Player {
    process: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Player {
    /// Returns the rest of the next line that begins with a word.
    fn wait_for(&mut self, word: &str) -> String {
        let mut lines = self.said.as_mut().unwrap().lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.strip_prefix(word).map(str::to_owned));
        line.unwrap_or_else(|| panic!("it ended without saying {word:?}"))
    }

    /// Has a client call until a call succeeds. Returns the attempts, and the server's host.
    fn call(&mut self) -> (u32, u32) {
        self.call_at_most(20).expect("no call succeeds")
    }

    fn try_once(&mut self) -> Option<(u32, u32)> {
        self.call_at_most(1)
    }

    fn call_at_most(&mut self, most: u32) -> Option<(u32, u32)> {
        writeln!(self.process.stdin.as_mut().unwrap(), "{most}").unwrap();
        let said = self.wait_for("called ");
        let (attempts, host) = said.split_once(' ').unwrap();
        Some((attempts.parse().unwrap(), host.parse().unwrap())).filter(|(attempts, _)| *attempts > 0)
    }

    /// Lets a server end in good order.
    fn finish(mut self) {
        drop(self.process.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
