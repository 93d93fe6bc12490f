//! The processes of one peer: its servers, one or several per process, and one client that calls all of them.
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use farcall_bench_group::{Answer, Counted, Order, Parts, Sent};
use farcall_bench_method::Pin;
use farcall_bench_method::counters::Counts;
use farcall_bench_method::network::{self, Router};
use farcall_bench_method::process::Process;

/// The processes of one peer.
pub struct Cast {
    servers: Vec<Process<Answer>>,
    client: Process<Answer>,
    pub version: String,
    /// What connects the processes, if each has a network of its own.
    _router: Option<Router>,
}

impl Cast {
    /// Starts `processes` server processes with `each` servers in each, and then the client.
    pub fn start(program: &Path, peer: &str, (processes, each): (usize, usize), pin: Pin) -> Result<Cast> {
        let cores = pin.cores();
        let mut servers = Vec::new();
        for n in 0..processes {
            let mut words = vec![
                "side".to_owned(),
                peer.to_owned(),
                format!("--servers={each}"),
                format!("--seed={}", 1 + n * each),
            ];
            words.extend(cores.map(|(_, core)| format!("--core={core}")));
            servers.push(Process::start(program, &words)?);
        }
        let mut addresses = Vec::new();
        for server in &mut servers {
            addresses.extend(ready(server).with_context(|| format!("a server of {peer}"))?.0);
        }
        let mut words = vec!["side".to_owned(), peer.to_owned(), "--client".to_owned()];
        words.extend(cores.map(|(core, _)| format!("--core={core}")));
        let mut client = Process::start(program, &words)?;
        client.tell(&addresses.join(" "))?;
        let (_, version) = ready(&mut client).with_context(|| format!("the client of {peer}"))?;
        Ok(Cast { servers, client, version, _router: None })
    }

    /// Starts one process with `servers` servers, and a client, with a router between them. It forwards a packet
    /// to the client each time that `each` has passed, and queues this many (see [`network::route`]).
    pub fn apart(
        program: &Path,
        peer: &str,
        servers: usize,
        (each, queue): (Duration, usize),
        pin: Pin,
    ) -> Result<Cast> {
        let cores = pin.cores();
        let side = |word: String, core: Option<usize>| -> Result<Process<Answer>> {
            let mut words = vec!["side".to_owned(), peer.to_owned(), "--apart".to_owned(), word];
            words.extend(core.map(|core| format!("--core={core}")));
            let mut process = network::start(program, &words)?;
            ready(&mut process).with_context(|| format!("a process of {peer}"))?;
            Ok(process)
        };
        let mut server = side(format!("--servers={servers}"), cores.map(|(_, core)| core))?;
        let mut client = side("--client".to_owned(), cores.map(|(core, _)| core))?;
        let router = network::route((server.id(), client.id()), each, queue)?;
        server.tell("serve")?;
        let (addresses, _) = ready(&mut server).with_context(|| format!("the servers of {peer}"))?;
        client.tell(&addresses.join(" "))?;
        let (_, version) = ready(&mut client).with_context(|| format!("the client of {peer}"))?;
        Ok(Cast { servers: vec![server], client, version, _router: Some(router) })
    }

    /// Returns how long each trial of an order took, in nanoseconds.
    pub fn time(&mut self, order: Order) -> Result<Vec<u64>> {
        match obey(&mut self.client, &order)? {
            Answer::Took(took) => Ok(took),
            other => bail!("expected times, not {other:?}"),
        }
    }

    /// Returns the client's counts of all trials of an order.
    pub fn count(&mut self, order: Order, counted: Counted) -> Result<Counts> {
        match obey(&mut self.client, &Order { counted: Some(counted), ..order })? {
            Answer::Counts(counts) => Ok(counts),
            other => bail!("expected counts, not {other:?}"),
        }
    }

    /// Returns a number that the client reports for all trials of an order.
    pub fn number(&mut self, order: Order, counted: Counted) -> Result<u64> {
        match obey(&mut self.client, &Order { counted: Some(counted), ..order })? {
            Answer::Number(number) => Ok(number),
            other => bail!("expected a number, not {other:?}"),
        }
    }

    /// Returns how long each trial of an order took, in nanoseconds, and what was sent for all of them.
    pub fn sent(&mut self, order: Order) -> Result<(Vec<u64>, Sent)> {
        match obey(&mut self.client, &Order { counted: Some(Counted::Sent), ..order })? {
            Answer::Sent(took, sent) => Ok((took, sent)),
            other => bail!("expected what was sent, not {other:?}"),
        }
    }

    /// Returns the parts of each trial of an order.
    pub fn parts(&mut self, order: Order) -> Result<Vec<Parts>> {
        match obey(&mut self.client, &Order { counted: Some(Counted::Parts), ..order })? {
            Answer::Parts(parts) => Ok(parts),
            other => bail!("expected the parts of calls, not {other:?}"),
        }
    }

    /// Returns the processor time that all servers have used so far, in nanoseconds, if the system reports
    /// it.
    pub fn server_time(&self) -> Option<u64> {
        let of_thread = |thread: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
            let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        let of = |server: &Process<Answer>| -> Option<u64> {
            std::fs::read_dir(format!("/proc/{}/task", server.id())).ok()?.map(of_thread).sum()
        };
        self.servers.iter().map(of).sum()
    }

    /// Kills a server.
    pub fn kill(&mut self, server: usize) -> Result<()> {
        let child = self.servers[server].child();
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Stops a server without ending it.
    #[cfg(target_os = "linux")]
    pub fn stop(&mut self, server: usize) -> Result<()> {
        let pid = rustix::process::Pid::from_child(self.servers[server].child());
        Ok(rustix::process::kill_process(pid, rustix::process::Signal::STOP)?)
    }

    /// Stops a server without ending it.
    #[cfg(not(target_os = "linux"))]
    pub fn stop(&mut self, _: usize) -> Result<()> {
        bail!("processes are stopped on Linux only")
    }
}

fn ready(process: &mut Process<Answer>) -> Result<(Vec<String>, String)> {
    match process.hear()? {
        Answer::Ready(addresses, version) => Ok((addresses, version)),
        other => bail!("it is not ready, but says {other:?}"),
    }
}

fn obey(client: &mut Process<Answer>, order: &Order) -> Result<Answer> {
    client.order(&serde_json::to_string(order)?)
}
