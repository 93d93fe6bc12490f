//! The processes of one peer: its servers, each for itself or some together, and one client that calls them all.
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use farcall_bench_group::{Answer, Counted, Order};
use farcall_bench_method::Pin;
use farcall_bench_method::counters::Counts;

/// The processes of one peer.
pub struct Cast {
    servers: Vec<Process>,
    client: Process,
    pub version: String,
}

impl Cast {
    /// Starts `processes` server processes with `each` servers, the client last.
    pub fn start(program: &Path, peer: &str, (processes, each): (usize, usize), pin: Pin) -> Result<Cast> {
        let cores = pin.cores();
        let mut servers = Vec::new();
        for n in 0..processes {
            let mut words = vec![peer.to_owned(), format!("--servers={each}"), format!("--seed={}", 1 + n * each)];
            words.extend(cores.map(|(_, core)| format!("--core={core}")));
            servers.push(Process::start(program, &words)?);
        }
        let mut addresses = Vec::new();
        for server in &mut servers {
            addresses.extend(server.ready().with_context(|| format!("a server of {peer}"))?.0);
        }
        let mut words = vec![peer.to_owned(), "--client".to_owned()];
        words.extend(cores.map(|(core, _)| format!("--core={core}")));
        let mut client = Process::start(program, &words)?;
        client.say(&addresses.join(" "))?;
        let (_, version) = client.ready().with_context(|| format!("the client of {peer}"))?;
        Ok(Cast { servers, client, version })
    }

    /// How long each trial of an order took, in nanoseconds.
    pub fn time(&mut self, order: Order) -> Result<Vec<u64>> {
        match self.client.obey(&order)? {
            Answer::Took(took) => Ok(took),
            other => bail!("expected times, not {other:?}"),
        }
    }

    /// What the client was counted to do in all trials of an order.
    pub fn count(&mut self, order: Order, counted: Counted) -> Result<Counts> {
        match self.client.obey(&Order { counted: Some(counted), ..order })? {
            Answer::Counts(counts) => Ok(counts),
            other => bail!("expected counts, not {other:?}"),
        }
    }

    /// A number that was asked of the client for all trials of an order.
    pub fn number(&mut self, order: Order, counted: Counted) -> Result<u64> {
        match self.client.obey(&Order { counted: Some(counted), ..order })? {
            Answer::Number(number) => Ok(number),
            other => bail!("expected a number, not {other:?}"),
        }
    }

    /// Processor time that all servers have used so far, in nanoseconds; none where the system does not say.
    pub fn server_time(&self) -> Option<u64> {
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        let of = |server: &Process| -> Option<u64> {
            std::fs::read_dir(format!("/proc/{}/task", server.child.id())).ok()?.map(of_thread).sum()
        };
        self.servers.iter().map(of).sum()
    }

    /// A server dies.
    pub fn kill(&mut self, server: usize) -> Result<()> {
        self.servers[server].child.kill()?;
        self.servers[server].child.wait()?;
        Ok(())
    }

    /// A server stops where it is.
    #[cfg(target_os = "linux")]
    pub fn stop(&mut self, server: usize) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.servers[server].child);
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::STOP)?)
    }

    /// A server stops where it is.
    #[cfg(not(target_os = "linux"))]
    pub fn stop(&mut self, _: usize) -> Result<()> {
        bail!("processes are stopped on Linux only")
    }
}

/// One process. Dropped, it is killed: it holds nothing.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    fn start(program: &Path, words: &[String]) -> Result<Process> {
        let mut command = Command::new(program);
        command.arg("side").args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // The user's settings are not the bench's conditions.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FARCALL_")) {
            command.env_remove(name);
        }
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let orders = child.stdin.take().context("no pipe")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Process { child, orders, answers })
    }

    fn obey(&mut self, order: &Order) -> Result<Answer> {
        self.say(&serde_json::to_string(order)?)?;
        self.hear().with_context(|| format!("told {order:?}"))
    }

    fn say(&mut self, line: &str) -> Result<()> {
        self.orders.write_all(format!("{line}\n").as_bytes()).context("it is gone")
    }

    fn hear(&mut self) -> Result<Answer> {
        let mut line = String::new();
        ensure!(self.answers.read_line(&mut line)? > 0, "it ended");
        match serde_json::from_str(&line).with_context(|| format!("it said {line:?}"))? {
            Answer::Failed(why) => bail!(why),
            answer => Ok(answer),
        }
    }

    fn ready(&mut self) -> Result<(Vec<String>, String)> {
        match self.hear()? {
            Answer::Ready(addresses, version) => Ok((addresses, version)),
            other => bail!("it is not ready, but says {other:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
