//! Three hosts with two addresses each, in network namespaces: 10.78.1.N and 10.78.2.N. Needs root, `ip` and
//! `etcd-server`.
#![allow(dead_code, reason = "each test program uses a part")]

use std::env;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::commands::output;

/// The environment variable with the role of a copy of this program.
pub const ROLE: &str = "FARCALL_HOSTS_ROLE";

/// The registry in the etcd of the third host.
pub const PLACE: &str = "etcd://10.78.1.3,10.78.2.3/test";

/// Three hosts in namespaces, and a namespace with the two networks that join them. Dropping this value
/// removes them.
pub struct Hosts {
    /// The networks, and then the hosts.
    names: Vec<String>,
    directory: tempfile::TempDir,
}

/// A process that is killed when the test ends, even if it fails.
pub struct Player {
    pub process: Child,
    pub said: Option<BufReader<ChildStdout>>,
}

impl Hosts {
    pub fn new() -> Result<Hosts, String> {
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

    /// Returns a directory that all hosts have, and that goes with them.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Sets a host's interface up or down.
    pub fn set(&self, host: usize, network: &str, to: &str) {
        output("ip", &["-n", &self.names[host], "link", "set", network, to]).unwrap();
    }

    /// Starts etcd at both addresses of the third host. Another one that was there before has left its data.
    pub fn start_etcd(&self) -> Player {
        let mut etcd = self.command(3, "etcd");
        etcd.arg("--data-dir").arg(self.directory.path().join("etcd"));
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

    /// Runs a test of this program on a host, in a role.
    pub fn play(&self, host: usize, test: &str, role: &str) -> Player {
        self.play_with(host, test, role, |_| ())
    }

    /// Runs a test of this program on a host, in a role, after its command was prepared.
    pub fn play_with(
        &self,
        host: usize,
        test: &str,
        role: &str,
        prepare: impl FnOnce(&mut Command),
    ) -> Player {
        let mut command = self.command(host, env::current_exe().unwrap().to_str().unwrap());
        command.args(["--exact", test, "--nocapture"]);
        prepare(&mut command);
        command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let said = process.stdout.take().map(BufReader::new);
        Player { process, said }
    }

    /// Returns a command that runs a program on a host.
    pub fn command(&self, host: usize, program: &str) -> Command {
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

impl Player {
    /// Returns the rest of the next line that begins with a word.
    pub fn wait_for(&mut self, word: &str) -> String {
        let mut lines = self.said.as_mut().unwrap().lines().map(Result::unwrap);
        let line = lines.find_map(|line| line.strip_prefix(word).map(str::to_owned));
        line.unwrap_or_else(|| panic!("it ended without saying {word:?}"))
    }

    /// Lets a server end in good order.
    pub fn finish(mut self) {
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
