//! `farcall top`: shows the load of servers, which it reads from their memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use farcall::memory::Counters;
use farcall::names::{Entry, Name};
use farcall::stats::{Export, Procedure, Serving};
use farcall::{Kind, Runtime};
use serde_json::{Map, Value, json};

use crate::balancing::{balancers_json, balancers_of, balancers_table};
use crate::conversing::{conversations_json, conversations_of, conversations_table};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, report, say, say_json};
use crate::remote::{runtime, seconds};
use crate::text::{count, counted, duration, printable, rounded, size, total};

/// Show what servers do: their calls, how these ended and how long they ran, and how many threads are busy
///
/// Reads the counters that every server keeps in its memory. So the command works even while all threads of a
/// server are stuck in procedures. Servers that start later are shown too; servers that end are shown as gone
/// for a while. Of a server with keys it shows the busiest conversations, too; `farcall debug` shows more.
#[derive(Debug, Args)]
pub struct Top {
    /// The servers: an address (10.0.0.7:7000), a type, or a type and an instance [default: all servers in
    /// this user]
    #[arg(value_name = "HOST")]
    host: Option<String>,

    /// The time between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    every: Duration,

    /// Read once, and end
    #[arg(long)]
    once: bool,
}

/// The most conversations that are shown of a server.
const MAX_CONVERSATIONS: usize = 8;

/// The number of readings for which an ended server is shown as gone.
const GONE_READINGS: u32 = 10;

/// A server whose counters are read.
#[derive(Default)]
struct Server {
    counters: Option<Counters>,
    /// The last reading, and the time at which it was made.
    before: Option<(Serving, Instant)>,
    /// The number of readings since the server was last listed.
    gone: u32,
}

type Servers = BTreeMap<SocketAddr, Server>;

impl Top {
    pub fn run(&self, output: &Output) -> Outcome {
        let mut servers = Servers::new();
        self.follow(&mut servers)?;
        if servers.is_empty() {
            // Without this check the command would run for ever and show nothing.
            return Err(nobody(self.host.as_deref()));
        }
        // Reads use packets only, because to map the server's memory would need the help of its threads.
        let runtime = Runtime::builder().shared_memory(false).build()?;
        let clears = !self.once && !output.is_json() && stdout().is_terminal();
        loop {
            let (page, failed) = look(&mut servers, &runtime, output)?;
            let clear = if clears { "\x1b[H\x1b[2J" } else { "" };
            if clears || !page.is_empty() {
                say(format!("{clear}{}", page.trim_end()))?;
            }
            match failed {
                Some(why) if self.once => return Err(why),
                Some(why) => drop(report(&why, output.is_json())),
                None => {}
            }
            if self.once {
                return Ok(());
            }
            sleep(self.every);
            // The command goes on, because a registry that fails now may work later.
            if let Err(why) = self.follow(&mut servers) {
                report(&why, output.is_json());
            }
        }
    }

    /// Updates the list of servers: new ones are added, and ended ones are removed.
    fn follow(&self, servers: &mut Servers) -> Outcome {
        let there = addresses(self.host.as_deref())?;
        for address in &there {
            servers.entry(*address).or_default().gone = 0;
        }
        for (_, server) in servers.iter_mut().filter(|(address, _)| !there.contains(address)) {
            *server = Server { gone: server.gone + 1, ..Server::default() };
        }
        servers.retain(|_, server| server.gone <= GONE_READINGS);
        Ok(())
    }
}

/// Returns the failure of a command that has found no servers.
pub fn nobody(host: Option<&str>) -> Failure {
    match host {
        None => Failure::new("no process of this user exports anything"),
        Some(host) => {
            Failure::new(format!("nobody exports {host}")).hint("`farcall names` lists what is exported")
        }
    }
}

/// Returns the addresses of the servers that `host` stands for: an address, a type, or a type and an
/// instance; `None` stands for all servers in the registry.
pub fn addresses(host: Option<&str>) -> Outcome<BTreeSet<SocketAddr>> {
    let socket = |entry: Entry| entry.address.socket();
    let Some(host) = host else {
        return Ok(runtime()?.registry().list()?.entries.into_iter().filter_map(socket).collect());
    };
    if let Ok(address) = host.trim_start_matches("udp://").parse() {
        return Ok(BTreeSet::from([address]));
    }
    let entries = match host.parse() {
        Ok(Name::At { address, .. }) => return Ok(address.socket().into_iter().collect()),
        Ok(Name::Type(kind)) => runtime()?.registry().instances(&kind)?,
        Ok(Name::Instance { type_name, instance }) => {
            runtime()?.registry().lookup(&type_name, &instance)?.into_iter().collect()
        }
        Ok(_) => {
            return Err(Failure::usage(format!(
                "{host:?} is not the address, the type or the instance of a server"
            )));
        }
        Err(why) => return Err(Failure::usage(why.to_string())),
    };
    Ok(entries.into_iter().filter_map(socket).collect())
}

/// Reads the counters of all servers. Returns the text of a page and the last failure. Prints JSON at once.
fn look(servers: &mut Servers, runtime: &Runtime, output: &Output) -> Outcome<(String, Option<Failure>)> {
    let (mut page, mut failed) = (String::new(), None);
    for (&address, server) in servers {
        if server.gone > 0 {
            match output.is_json() {
                true => say_json(&json!({ "address": address.to_string(), "gone": true }))?,
                false => page += &format!("{address}  gone\n\n"),
            }
            continue;
        }
        match server.look(address, runtime) {
            Ok((serving, since)) => {
                // A server whose threads are all stuck does not say it.
                let asked = balancers_of(runtime, address)
                    .and_then(|balancers| Ok((balancers, conversations_of(runtime, address)?)));
                let (balancers, conversations) = asked.unwrap_or_default();
                match output.is_json() {
                    true => {
                        let mut all = to_json(address, &serving, since);
                        all["security"] = conversations_json(conversations.as_ref());
                        all["balancers"] = balancers_json(&balancers);
                        say_json(&all)?;
                    }
                    false => {
                        page += &table(address, &serving, since);
                        page += &conversations_table(conversations.as_ref(), MAX_CONVERSATIONS);
                        page += &(balancers_table(&balancers) + "\n");
                    }
                }
            }
            Err(why) => failed = Some(why.at(address)),
        }
    }
    Ok((page, failed))
}

/// The differences between two readings, and the time between them.
struct Since {
    time: Duration,
    before: Serving,
}

impl Server {
    fn look(&mut self, address: SocketAddr, runtime: &Runtime) -> Outcome<(Serving, Option<Since>)> {
        let counters = match &self.counters {
            Some(counters) => counters.clone(),
            None => Counters::import(runtime, address)?,
        };
        // A server that has been started again has new counters, so they are imported again.
        self.counters = None;
        let (serving, now) = (counters.read()?, Instant::now());
        self.counters = Some(counters);
        let before = self.before.replace((serving.clone(), now));
        let since = before.filter(|(before, _)| before.up <= serving.up);
        Ok((serving, since.map(|(before, at)| Since { time: now - at, before })))
    }
}

impl Since {
    /// Returns the rate of events per second.
    fn rate(&self, now: u64, before: impl Fn(&Serving) -> u64) -> f64 {
        now.saturating_sub(before(&self.before)) as f64 / self.time.as_secs_f64()
    }
}

/// Returns the number of ended calls of a procedure.
pub fn ended(procedure: &Procedure) -> u64 {
    let Procedure { results, exceptions, failures, cancelled, late, .. } = *procedure;
    total([results, exceptions, failures, cancelled, late])
}

/// Returns the number of ended calls of the procedure of that name at an earlier reading.
fn ended_before(serving: &Serving, export: &Export, name: &str) -> u64 {
    let export = serving.exports.iter().find(|other| other.id == export.id);
    let procedure =
        export.and_then(|export| export.procedures.iter().find(|procedure| procedure.name == name));
    procedure.map_or(0, ended)
}

fn table(address: SocketAddr, serving: &Serving, since: Option<Since>) -> String {
    let mut page = String::new();
    let did = &serving.protocol;
    let rate = |now: u64, before: fn(&Serving) -> u64| match &since {
        Some(since) => format!("{}/s", count(since.rate(now, before).round() as u64)),
        None => count(now),
    };
    let mut line = |text: String| {
        let _ = writeln!(page, "{}", printable(&text));
    };
    line(format!(
        "{address}  process {}, up {}, {}, {} held",
        serving.process,
        duration(serving.up),
        counted(serving.conversations, "conversation"),
        size(serving.held_bytes),
    ));
    line(format!(
        "{} of {} execute, {} waiting",
        serving.executing,
        counted(serving.threads, "thread"),
        counted(serving.queued, "call"),
    ));
    line(format!(
        "datagrams: {} in, {} out; {} dropped",
        rate(did.received, |before| before.protocol.received),
        rate(did.sent, |before| before.protocol.sent),
        count(did.dropped),
    ));
    line(format!(
        "calls in datagrams: {} duplicates, {} results sent again, {} refused",
        count(did.duplicates),
        count(did.retransmitted),
        count(total(did.refused)),
    ));
    line(format!(
        "{:>8} {:>11} {:>10} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8}  PROCEDURE",
        "CALLS/S", "RESULTS", "EXCEPTIONS", "FAILURES", "CANCELLED", "LATE", "RUN P50", "RUN P99", "WAIT P99"
    ));
    for export in &serving.exports {
        let (running, accesses) = (count(export.running as u64), count(export.accesses));
        // Which carrier answers: the worker that receives, or the kernel for short reads.
        let kernel = export.answered_by_kernel.map(count);
        let kernel = kernel.map_or(String::new(), |reads| format!(", {reads} reads answered by the kernel"));
        line(format!("{}  {running} running, {accesses} accesses to memory{kernel}", export.name));
        for procedure in export.procedures.iter().filter(|procedure| ended(procedure) > 0) {
            let before = |before: &Serving| ended_before(before, export, &procedure.name);
            let rate = since
                .as_ref()
                .map_or(String::new(), |since| count(since.rate(ended(procedure), before).round() as u64));
            line(format!(
                "{rate:>8} {:>11} {:>10} {:>8} {:>9} {:>8} {:>8} {:>8} {:>8}  {}",
                count(procedure.results),
                count(procedure.exceptions),
                count(procedure.failures),
                count(procedure.cancelled),
                count(procedure.late),
                duration(procedure.ran.quantile(0.5)),
                duration(procedure.ran.quantile(0.99)),
                duration(procedure.queued.quantile(0.99)),
                procedure.name,
            ));
        }
    }
    if serving.untold > 0 {
        line(format!("{} more exports, for which the server's counters have no space", serving.untold));
    }
    page
}

fn to_json(address: SocketAddr, serving: &Serving, since: Option<Since>) -> Value {
    let us = |time: Duration| rounded(time.as_secs_f64() * 1e6, 3);
    let exports = serving.exports.iter().map(|export| {
        let procedures = export.procedures.iter().map(|procedure| {
            let before = |before: &Serving| ended_before(before, export, &procedure.name);
            json!({
                "name": procedure.name, "results": procedure.results, "exceptions": procedure.exceptions,
                "failures": procedure.failures, "cancelled": procedure.cancelled, "late": procedure.late, "run_p50_us": us(procedure.ran.quantile(0.5)),
                "run_p99_us": us(procedure.ran.quantile(0.99)), "wait_p99_us": us(procedure.queued.quantile(0.99)),
                "calls_per_s": since.as_ref().map(|since| rounded(since.rate(ended(procedure), before), 1)),
            })
        });
        json!({
            "name": export.name, "export": format!("{:016x}", export.id), "running": export.running,
            "accesses": export.accesses, "answered_by_kernel": export.answered_by_kernel,
            "procedures": procedures.collect::<Vec<_>>(),
        })
    });
    let did = &serving.protocol;
    let refused = Kind::ALL.iter().filter_map(|kind| {
        let count = *did.refused.get(usize::from(kind.code()))?;
        (count > 0).then(|| (format!("{kind:?}"), count.into()))
    });
    json!({
        "address": address.to_string(), "process": serving.process, "up_s": rounded(serving.up.as_secs_f64(), 3),
        "executing": serving.executing, "receiving": serving.receiving, "threads": serving.threads,
        "queued": serving.queued, "conversations": serving.conversations, "unfinished": serving.unfinished,
        "held_bytes": serving.held_bytes, "datagram_calls": did.calls, "sent": did.sent, "received": did.received,
        "dropped": did.dropped, "bytes_sent": did.bytes_sent, "duplicates": did.duplicates,
        "retransmitted": did.retransmitted, "challenges": did.challenges, "stale": did.stale, "evicted": did.evicted,
        "refused": refused.collect::<Map<_, Value>>(), "exports": exports.collect::<Vec<_>>(), "untold": serving.untold,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[farcall::interface]
    trait Echo {
        fn echo(&self, number: u64) -> farcall::Result<u64>;
    }

    struct Server;

    impl Echo for Server {
        fn echo(&self, number: u64) -> farcall::Result<u64> {
            Ok(number)
        }
    }

    #[test]
    fn counters_and_names_that_a_server_invents_neither_panic_nor_forge_lines() {
        let registry = farcall::names::Memory::default();
        let runtime = Runtime::builder().registry(registry).shared_memory(false).build().unwrap();
        let export = runtime.export::<dyn Echo>("Echo/honest", Arc::new(Server)).unwrap();
        let address = export.address();
        runtime.import::<dyn Echo>("Echo/honest").unwrap().echo(7).unwrap();
        let mut serving = Counters::import(&runtime, address).unwrap().read().unwrap();
        let before = serving.clone();
        serving.protocol.refused = [u64::MAX; _];
        serving.protocol.received = u64::MAX;
        (serving.queued, serving.held_bytes, serving.untold) = (u64::MAX, u64::MAX, u64::MAX);
        serving.up = Duration::MAX;
        let forged = "Echo/x\n0.0.0.0:1  process 1, up 0 s\u{1b}[2J";
        for export in &mut serving.exports {
            export.name = forged.into();
            (export.running, export.accesses) = (usize::MAX, u64::MAX);
            for procedure in &mut export.procedures {
                procedure.name = forged.into();
                (procedure.results, procedure.exceptions) = (u64::MAX, u64::MAX);
            }
        }
        let (exports, procedures) =
            (serving.exports.len(), serving.exports.iter().map(|one| one.procedures.len()).sum::<usize>());
        for since in [None, Some(Since { time: Duration::from_nanos(1), before })] {
            let text = table(address, &serving, since);
            assert_eq!(text.trim_end().lines().count(), 5 + exports + procedures + 1, "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        assert_eq!(to_json(address, &serving, None)["untold"], u64::MAX);
    }
}
