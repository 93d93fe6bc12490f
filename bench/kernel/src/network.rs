//! The network: two namespaces, and two veth pairs between them; and the processes in them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The namespaces and the processes. Dropping this ends both.
pub struct Network {
    server: String,
    client: String,
    sides: Vec<Side>,
}

/// Indices of [`Network::sides`].
const EXPORTER: usize = 0;
const IMPORTER: usize = 3;

impl Network {
    /// Makes the network, and starts the processes. The XDP program is attached to one of the veth pairs.
    ///
    /// # Errors
    /// When this process may not make it, or the kernel does not serve.
    pub fn new(mode: &str) -> Result<Network> {
        let [server, client] = ["s", "c"].map(|end| format!("farcall-bench-{end}-{}", std::process::id()));
        let mut network = Network { server, client, sides: Vec::new() };
        let (server, client) = (network.server.clone(), network.client.clone());
        for end in [&server, &client] {
            run("ip", &["netns", "add", end]).context("a network namespace needs root")?;
        }
        for (cable, net) in [("far", 78), ("plain", 79)] {
            let link = [
                "-n", &server, "link", "add", cable, "type", "veth", "peer", "name", cable, "netns", &client,
            ];
            run("ip", &link)?;
            for (end, host) in [(&server, 1), (&client, 2)] {
                run("ip", &["-n", end, "address", "add", &format!("10.{net}.0.{host}/24"), "dev", cable])?;
                run("ip", &["-n", end, "link", "set", cable, "up"])?;
            }
        }
        network.sides.push(Side::start(&server, &["exporter", "10.78.0.1:7000", &format!("far:{mode}")])?);
        network.sides.push(Side::start(&server, &["exporter", "10.78.0.1:7001", ""])?);
        network.sides.push(Side::start(&server, &["echo"])?);
        network
            .sides
            .push(Side::start(&client, &["importer", if mode == "native" { "far:native" } else { "" }])?);
        let urls = [0, 1].map(|exporter| network.sides[exporter].ask("url"));
        for (way, url) in ["kernel", "served"].into_iter().zip(urls) {
            network.sides[IMPORTER].ask(&format!("import {way} {}", url?))?;
        }
        network.sides[IMPORTER].ask("measure kernel 100")?;
        ensure!(
            network.answered()? > 0,
            "the kernel does not answer: {}",
            network.sides[EXPORTER].ask("kernel")?
        );
        Ok(network)
    }

    /// Returns how long a round trip takes in nanoseconds, on average of so many.
    pub fn measure(&mut self, way: &str, trips: u32) -> Result<f64> {
        Ok(self.sides[IMPORTER].ask(&format!("measure {way} {trips}"))?.parse()?)
    }

    /// Stops the exporter whose segment the kernel serves. Returns what [`Network::scheduled`] returns then.
    pub fn stop_exporter(&mut self) -> Result<Vec<String>> {
        self.signal("STOP")?;
        let mut before = self.scheduled()?;
        loop {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let now = self.scheduled()?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
    }

    /// Returns for each thread of the exporter how long it has run, and how often it was scheduled.
    pub fn scheduled(&self) -> Result<Vec<String>> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.sides[EXPORTER].child.id()))?;
        let mut all = Vec::new();
        for task in tasks {
            all.push(std::fs::read_to_string(task?.path().join("schedstat"))?.trim().to_owned());
        }
        all.sort();
        Ok(all)
    }

    /// Returns how many reads the kernel has answered. Lets the exporter go on.
    pub fn answered(&mut self) -> Result<u64> {
        self.signal("CONT")?;
        Ok(self.sides[EXPORTER].ask("answered")?.parse()?)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        run("kill", &["-s", signal, &self.sides[EXPORTER].child.id().to_string()])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.sides.clear();
        for end in [&self.server, &self.client] {
            let _ = run("ip", &["netns", "delete", end]);
        }
    }
}

/// A copy of this program in a namespace.
struct Side {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Side {
    fn start(namespace: &str, words: &[&str]) -> Result<Side> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(std::env::current_exe()?).arg("side").args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().context("a side's output")?);
        let mut side = Side { child, said };
        side.answer()?;
        Ok(side)
    }

    fn ask(&mut self, order: &str) -> Result<String> {
        let orders = self.child.stdin.as_mut().context("a side's input")?;
        orders.write_all(format!("{order}\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.said.read_line(&mut line)? > 0, "a side has ended");
        Ok(line.trim().to_owned())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(words).output().with_context(|| format!("{program} does not run"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
