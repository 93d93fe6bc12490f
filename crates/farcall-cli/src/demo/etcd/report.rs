//! What `farcall demo --etcd` says: text or JSON.

use std::time::Duration;

use serde_json::{Value, json};

use super::calls::Tally;
use super::{Death, Outage, SERVERS};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say, say_json};
use crate::text::{count, counted, duration, printable, rounded};

/// The most calls that may fail when a server is killed: the one that it has begun, and some that go to it
/// before it is known to be dead.
const MAX_FAILED: u64 = 5;

pub struct Report {
    output: Output,
    facts: Value,
    /// The unexpected results.
    faults: Vec<String>,
}

impl Report {
    pub fn begin(output: Output) -> Outcome<Report> {
        let report = Report { output, facts: json!({}), faults: Vec::new() };
        report.tell(&format!("farcall {}: names in etcd.", env!("CARGO_PKG_VERSION")))?;
        report.tell("Members of etcd, servers and a client are processes of this machine.")?;
        report.tell("")?;
        Ok(report)
    }

    pub fn cluster(&mut self, time: Duration) -> Outcome {
        self.facts["cluster_ready_s"] = rounded(time.as_secs_f64(), 2).into();
        self.tell(&format!("etcd      three members are ready after {}", duration(time)))
    }

    pub fn calls(&mut self, calls: &Tally, time: Duration) -> Outcome {
        self.none_failed(calls, "before anything was killed");
        self.expect(calls.answered.len() == SERVERS.len(), || "not every server was called".to_owned());
        self.facts["before"] = facts(calls);
        self.tell(&format!("calls     in {} through one balanced stub: {}", duration(time), told(calls)))
    }

    pub fn leader(&mut self, death: &Death) -> Outcome {
        let Death { victim, time, calls } = death;
        self.none_failed(calls, "while etcd's leader was killed");
        self.facts["leader_killed"] = facts(calls);
        self.facts["leader_killed"]["next_leader_ms"] = rounded(time.as_secs_f64() * 1e3, 0).into();
        self.tell(&format!(
            "leader    {victim} of etcd, which leads, is killed. Another leads after {}:",
            duration(*time)
        ))?;
        self.more(&told(calls))
    }

    pub fn server(&mut self, death: &Death) -> Outcome {
        let Death { victim, time, calls } = death;
        let failed = calls.failed;
        self.expect(failed <= MAX_FAILED, || format!("{failed} calls failed when {victim} was killed"));
        self.facts["server_killed"] = facts(calls);
        self.facts["server_killed"]["name"] = victim.as_str().into();
        self.facts["server_killed"]["name_gone_s"] = rounded(time.as_secs_f64(), 2).into();
        self.tell(&format!(
            "kill      {victim} is killed. Its name goes with its lease, after {}:",
            duration(*time)
        ))?;
        self.more(&told(calls))?;
        match &calls.why {
            Some(why) => self.more(&format!("failed: {why}")),
            None => Ok(()),
        }
    }

    pub fn after(&mut self, calls: &Tally) -> Outcome {
        self.none_failed(calls, "after the name had gone");
        let is_called = calls.answered.contains_key(SERVERS[0]);
        self.expect(!is_called, || format!("{} was called after its death", SERVERS[0]));
        self.facts["after"] = facts(calls);
        self.tell(&format!("after     {}", told(calls)))
    }

    pub fn majority(&mut self, outage: &Outage) -> Outcome {
        let Outage { calls, import, time } = outage;
        self.none_failed(calls, "while most members of etcd were away");
        self.expect(import.is_some(), || "a name was found while most members of etcd were away".to_owned());
        self.facts["majority_lost"] = facts(calls);
        self.facts["majority_lost"]["names_again_s"] = rounded(time.as_secs_f64(), 2).into();
        self.tell(
            "majority  A second member is killed, so etcd answers nobody. Clients that are bound go on:",
        )?;
        self.more(&told(calls))?;
        if let Some(why) = import {
            self.more(&format!("A new import fails: {why}"))?;
        }
        self.more(&format!("The member is started again. Names can be asked for after {}", duration(*time)))
    }

    /// Prints the outcome.
    pub fn end(mut self, all: &Tally, time: Duration) -> Outcome {
        self.facts["all"] = facts(all);
        self.facts["s"] = rounded(time.as_secs_f64(), 1).into();
        self.facts["faults"] = self.faults.clone().into();
        self.tell(&format!("in all    {}", told(all)))?;
        match self.output.is_json() {
            true => say_json(&self.facts)?,
            false if self.faults.is_empty() => say(format!("\nAll as it should be, in {}.", duration(time)))?,
            false => say(format!("\nNOT as it should be: {}.", printable(&self.faults.join("; "))))?,
        }
        if self.faults.is_empty() { Ok(()) } else { Err(Failure::found()) }
    }

    fn none_failed(&mut self, calls: &Tally, when: &str) {
        let why = || {
            format!(
                "{} failed {when}: {}",
                counted(calls.failed, "call"),
                calls.why.clone().unwrap_or_default()
            )
        };
        self.expect(calls.failed == 0 && calls.made() > 0, why);
    }

    fn expect(&mut self, is_so: bool, fault: impl FnOnce() -> String) {
        if !is_so {
            self.faults.push(fault());
        }
    }

    fn tell(&self, line: &str) -> Outcome {
        if self.output.is_json() { Ok(()) } else { say(printable(line)) }
    }

    /// Prints a line that belongs to the one before.
    fn more(&self, line: &str) -> Outcome {
        self.tell(&format!("          {line}"))
    }
}

fn facts(calls: &Tally) -> Value {
    json!({ "calls": calls.made(), "failed": calls.failed, "answered_by": calls.answered })
}

/// Returns calls as people read them.
fn told(calls: &Tally) -> String {
    let by = calls.answered.iter().map(|(server, calls)| format!("{} by {server}", count(*calls)));
    let by: Vec<String> = by.collect();
    format!("{}, {} failed; answered {}", counted(calls.made(), "call"), count(calls.failed), by.join(", "))
}
