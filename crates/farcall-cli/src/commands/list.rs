//! `farcall list`: lists the ONC RPC programs that a host has registered.

use clap::{Args, ValueHint};
use farcall::{CallFailed, Kind};
use farcall_idl::spell_program;
use farcall_onc::rpcbind::protocol::Rpcb;
use farcall_onc::rpcbind::{Rpcbind, from_universal};
use farcall_onc::standard;
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::onc::{failed, settings};
use crate::output::Output;
use crate::remote::Deadline;

/// List the ONC RPC programs that a host has registered with its port mapper
///
/// This is what rpcinfo does. `farcall names` lists the exports of this user's processes by farcall's own
/// protocol.
#[derive(Debug, Args)]
pub struct List {
    /// The host, or the address of its port mapper: tcp://HOST:PORT, udp://HOST:PORT, unix:PATH
    #[arg(default_value = "127.0.0.1", value_hint = ValueHint::Hostname)]
    host: String,

    #[command(flatten)]
    deadline: Deadline,
}

impl List {
    pub fn run(&self, output: &Output) -> Outcome {
        let settings = settings(&self.deadline);
        let mapper = match self.host.contains("://") || self.host.starts_with("unix:") {
            true => Rpcbind::at(&settings, &self.host),
            false => Rpcbind::with(&settings, &self.host),
        };
        let mut entries = mapper.and_then(|mapper| mapper.entries()).map_err(unlisted)?;
        entries.sort_by(|a, b| (a.program, a.version, &a.netid).cmp(&(b.program, b.version, &b.netid)));
        if !output.is_json() && !entries.is_empty() {
            output
                .line(|| Value::Null, || row("program", "version", "network", "address", "name", "owner"))?;
        }
        for entry in &entries {
            let name = standard::program_name(entry.program);
            output.line(|| describe(entry, name), || as_text(entry, name))?;
        }
        Ok(())
    }
}

/// Returns a failure of this command. The usual hint is left out, because it would tell the user to run this
/// command.
fn unlisted(why: impl Into<CallFailed>) -> Failure {
    let why = why.into();
    match why.kind() {
        Kind::NoSuchName => failed(why),
        _ => failed(why).in_place_of_hint(
            "check that a port mapper (rpcbind) runs there; `farcall ping` and `farcall call` need none if their address has a port",
        ),
    }
}

fn describe(entry: &Rpcb, name: Option<&str>) -> Value {
    json!({
        "program": entry.program,
        "version": entry.version,
        "netid": entry.netid,
        "address": address(entry),
        "name": name,
        "owner": entry.owner,
    })
}

fn as_text(entry: &Rpcb, name: Option<&str>) -> String {
    let (program, version) = (spell_program(entry.program), entry.version.to_string());
    row(&program, &version, &entry.netid, &address(entry), name.unwrap_or("-"), &entry.owner)
}

fn row(program: &str, version: &str, netid: &str, address: &str, name: &str, owner: &str) -> String {
    format!("{program:>10}  {version:>7}  {netid:<7}  {address:<24}  {name:<12}  {owner}")
}

/// Returns the entry's address: an internet address in its usual form, any other address as it is registered.
fn address(entry: &Rpcb) -> String {
    from_universal(&entry.address).map_or_else(|| entry.address.clone(), |address| address.to_string())
}
