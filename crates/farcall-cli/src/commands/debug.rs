//! `farcall debug`: shows what a process exports, where its settings come from, who converses with it, and to
//! which members its balancers send calls.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use farcall::dynamic::{Balancing, Conversations, origins};
use farcall::memory::Counters;
use farcall::stats::Serving;
use farcall::{Kind, Origins, Runtime};
use serde_json::{Value, json};

use super::top::{addresses, ended, nobody};
use crate::balancing::{balancers_json, balancers_of, balancers_table};
use crate::conversing::{conversations_json, conversations_of, conversations_table};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::{count, counted, duration, printable, rounded, total};

/// Show what a process exports, who converses with it, and how its balancers see the servers that it calls
///
/// It names the variables (FARCALL_*) that have an effect there, and those of settings that the program
/// itself has made, which have none; and variables that nothing reads, because they are misspelt.
///
/// Of a server with keys it shows who the server is, and the 64 busiest conversations: the level, who the
/// client is, the suite, and how old the keys are. A policy decides who may see them (`@counters`).
///
/// Of each member of a balanced group it shows the state, the latency, the share of the calls, and why it
/// gets no calls. The process is asked at its server, so it must export something. A program that only calls
/// others can show `Balancer::members()` itself.
#[derive(Debug, Args)]
pub struct Debug {
    /// The process: the address (10.0.0.7:7000), the type, or the type and the instance of one of its exports
    #[arg(value_name = "TARGET")]
    target: String,
}

impl Debug {
    pub fn run(&self, output: &Output) -> Outcome {
        let addresses = addresses(Some(&self.target))?;
        if addresses.is_empty() {
            return Err(nobody(Some(&self.target)));
        }
        // Reads use packets only, because to map the server's memory would need the help of its threads.
        let runtime = Runtime::builder().shared_memory(false).build()?;
        for address in addresses {
            let serving = Counters::import(&runtime, address)?.read()?;
            let origins = origins_of(&runtime, address)?;
            let balancers = balancers_of(&runtime, address)?;
            let conversations = conversations_of(&runtime, address)?;
            output.page(
                || to_json(address, &serving, &origins, &balancers, conversations.as_ref()),
                || table(address, &serving, &origins, &balancers, conversations.as_ref()),
            )?;
        }
        Ok(())
    }
}

/// How long to wait for where settings come from.
const WITHIN: Duration = Duration::from_secs(1);

/// Returns where the settings of a process come from; nothing if it is of a version that does not say.
fn origins_of(runtime: &Runtime, address: SocketAddr) -> farcall::Result<Origins> {
    match origins(runtime, address, WITHIN) {
        Err(farcall::Error::CallFailed(why)) if why.kind() == Kind::NoSuchProcedure => Ok(Origins::default()),
        asked => asked,
    }
}

fn table(
    address: SocketAddr,
    serving: &Serving,
    origins: &Origins,
    balancers: &[Balancing],
    conversations: Option<&Conversations>,
) -> String {
    let mut page = format!("{address}  process {}, up {}\n", serving.process, duration(serving.up));
    for export in &serving.exports {
        let calls = counted(total(export.procedures.iter().map(ended)), "call");
        let running = count(export.running as u64);
        let _ =
            writeln!(page, "{}", printable(&format!("exports {}  {calls}, {running} running", export.name)));
    }
    for (whose, names) in [("variables in use", &origins.variables), ("set by the program", &origins.program)]
    {
        if !names.is_empty() {
            let _ = writeln!(page, "{}", printable(&format!("{whose}: {}", names.join(", "))));
        }
    }
    for variable in &origins.misspelt {
        let _ = writeln!(page, "{}", printable(&variable.to_string()));
    }
    page += &conversations_table(conversations, usize::MAX);
    if balancers.is_empty() {
        page += "no balancers\n";
    }
    page + &balancers_table(balancers)
}

fn to_json(
    address: SocketAddr,
    serving: &Serving,
    origins: &Origins,
    balancers: &[Balancing],
    conversations: Option<&Conversations>,
) -> Value {
    let exports = serving.exports.iter().map(|export| {
        json!({
            "name": export.name, "calls": total(export.procedures.iter().map(ended)),
            "running": export.running,
        })
    });
    json!({
        "address": address.to_string(), "process": serving.process,
        "up_s": rounded(serving.up.as_secs_f64(), 3), "exports": exports.collect::<Vec<_>>(),
        "settings": {
            "variables": origins.variables, "program": origins.program,
            "misspelt": origins.misspelt.iter().map(|one| &one.name).collect::<Vec<_>>(),
        },
        "security": conversations_json(conversations), "balancers": balancers_json(balancers),
    })
}
