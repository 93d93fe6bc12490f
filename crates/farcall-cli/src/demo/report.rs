//! The demo's output: text while it runs, or one JSON object at its end; and whether everything was as
//! expected.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use farcall::Ran;
use serde_json::{Value, json};

use super::files::Files;
use super::forward::{LOSS, REPETITION};
use super::killed::Killed;
use super::latency::Latency;
use super::lossy::Lossy;
#[cfg(feature = "secure")]
use super::secure::{Ended, Secured};
use super::signal::Signal;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, say, say_json};
use crate::text::{count, duration, printable, rounded, size};

pub struct Report {
    output: Output,
    facts: Value,
    /// The unexpected results.
    faults: Vec<String>,
}

impl Report {
    pub fn begin(output: Output, seed: u64, dir: &Path, has_keys: bool) -> Outcome<Report> {
        let report = Report { output, facts: json!({}), faults: Vec::new() };
        report.tell(&format!(
            "farcall {}: processes of this machine call each other. Seed {seed}.",
            env!("CARGO_PKG_VERSION")
        ))?;
        report.tell(match has_keys {
            true => "They do so over UDP, and have keys: all datagrams are sealed.",
            false => "They do so through shared memory and over UDP.",
        })?;
        report.tell("")?;
        if !dir.is_dir() {
            return Err(Failure::usage(format!("{} is not a directory", dir.display())));
        }
        let mut report = report;
        report.facts["seed"] = seed.into();
        Ok(report)
    }

    pub fn hello(&mut self, said: &str, time: &str) -> Outcome {
        self.tell(&format!("hello     \"{said}\", after {time}"))
    }

    pub fn signal(&mut self, signal: &Signal) -> Outcome {
        let Signal { here, server, told, .. } = *signal;
        self.expect(signal.is_resumed(), || {
            format!(
                "process {} asked {} times, and process {server} was told {told} by process {here}",
                signal.asker, signal.times
            )
        });
        self.facts["signal"] = json!({
            "asked_by": signal.asker, "answered_by": here, "told": told, "ms": ms(signal.time),
        });
        self.tell(&format!(
            "signal    in the middle of a call, process {server} asks its caller who it is:"
        ))?;
        self.more(&format!(
            "told that it is process {told}, it goes on, and has ended after {}",
            duration(signal.time)
        ))
    }

    pub fn files(&mut self, files: &Files) -> Outcome {
        let equal = files.differ.is_empty() && files.files > 0;
        self.expect(files.differ.is_empty(), || format!("{} differs from the disk", files.differ.join(", ")));
        self.expect(files.files > 0, || "there was no file to read".to_owned());
        self.facts["files"] = files.files.into();
        self.facts["bytes"] = files.bytes.into();
        self.facts["hashes_equal"] = equal.into();
        self.facts["skipped"] = files.skipped.into();
        let rate = files.bytes as f64 / files.time.as_secs_f64().max(1e-9);
        self.tell(&format!(
            "files     {} files, {}, read through calls in {} ({}/s)",
            count(files.files),
            size(files.bytes),
            duration(files.time),
            size(rate as u64),
        ))?;
        self.more(&format!("SHA-256 equal to the disk's: {}", if equal { "all" } else { "NOT ALL" }))?;
        let stopped = files.stopped.map(|why| format!("stopped at {why}"));
        let skipped = (files.skipped > 0).then(|| {
            format!("{} others skipped: links, unreadable, changing, or too much", count(files.skipped))
        });
        stopped.into_iter().chain(skipped).try_for_each(|note| self.more(&note))
    }

    pub fn lossy(&mut self, lossy: &Lossy) -> Outcome {
        let Lossy { sent, executed, answered, .. } = *lossy;
        self.expect(executed == sent && lossy.repeated == 0, || {
            format!("of {sent} calls {executed} were executed, {} of them again", lossy.repeated)
        });
        self.expect(answered == sent, || format!("of {sent} calls {answered} were answered"));
        let datagrams = &lossy.datagrams;
        let [received, lost, repeated] =
            [&datagrams.received, &datagrams.lost, &datagrams.repeated].map(|count| count.load(Relaxed));
        self.facts["lossy"] = json!({
            "sent": sent, "executed": executed, "answered": answered, "datagrams": received, "lost": lost,
            "repeated": repeated, "s": rounded(lossy.time.as_secs_f64(), 3),
        });
        let [sent, executed, answered] = [sent, executed, answered].map(|calls| count(calls.into()));
        self.tell(&format!(
            "loss      through {LOSS} % loss and {REPETITION} % repetition each way, in {}:",
            duration(lossy.time)
        ))?;
        self.more(&format!("sent {sent}, executed {executed}, answered {answered}"))?;
        let [received, lost, repeated] = [received, lost, repeated].map(count);
        self.more(&format!("of {received} datagrams {lost} were lost and {repeated} repeated"))
    }

    pub fn killed(&mut self, killed: &Killed) -> Outcome {
        let (kind, ran) = (killed.why.kind(), killed.why.ran());
        self.expect(ran == Ran::Maybe, || format!("the caller of the killed server was told that {ran}"));
        self.expect(killed.victim != killed.successor, || {
            format!("{} served on after its death", killed.victim)
        });
        self.facts["killed"] = json!({
            "kind": format!("{kind:?}"), "ran": format!("{ran:?}"), "told_ms": ms(killed.told), "next_call_ms": ms(killed.next),
        });
        let Killed { victim, successor, .. } = killed;
        self.tell(&format!("kill      {victim} killed in the middle of a call. Its caller is told:"))?;
        self.more(&format!("{kind}; {ran}"))?;
        self.more(&format!(
            "(after {}); its next call is served by {successor} in {}",
            duration(killed.told),
            duration(killed.next)
        ))
    }

    pub fn slow(&mut self, time: Duration, patience: Duration) -> Outcome {
        self.expect(time >= Duration::from_secs(2), || format!("a procedure of 2 s took {}", duration(time)));
        self.facts["slow_call_s"] = rounded(time.as_secs_f64(), 3).into();
        self.tell(&format!(
            "patience  a procedure of 2 s: {}. Its caller gives up after {}",
            duration(time),
            duration(patience)
        ))?;
        self.more("of silence, but its probes were answered")
    }

    /// Reports what keys are good for.
    #[cfg(feature = "secure")]
    pub fn secured(&mut self, secured: &Secured) -> Outcome {
        let Secured { sent, answered, executed, repeated, passed, changed, read, .. } = *secured;
        self.expect(answered == sent && executed == sent && repeated == 0, || {
            format!(
                "of {sent} calls, {answered} were answered, {executed} executed, {repeated} more than once"
            )
        });
        self.expect(read == 0 && changed > 0, || format!("a secret was read in {read} datagrams"));
        self.tell(&format!(
            "secret    {} pairs of calls through a forwarder that changed {} of {} datagrams:",
            count(sent.into()),
            count(changed),
            count(passed)
        ))?;
        self.more(&format!(
            "{} were executed, none twice; it read their secret in none",
            count(executed.into())
        ))?;
        let mut facts = json!({
            "sent": sent, "answered": answered, "executed": executed, "repeated": repeated,
            "datagrams": passed, "changed": changed, "read": read,
        });
        let refused = [
            ("stranger", "a key that the server does not know", &secured.stranger),
            ("policy", "a procedure that alice may not call", &secured.denied),
        ];
        for (fact, what, ended) in refused {
            self.not_permitted(what, ended);
            facts[fact] = ending(ended);
            self.tell(&format!("{fact:<10}{what}:"))?;
            self.more(&ended.said)?;
        }
        self.expect(!secured.ended.kind.is_empty(), || "a call outlived its key".to_owned());
        self.not_permitted("a key that was taken away", &secured.next);
        facts["taken_away"] = json!({
            "running": ending(&secured.ended), "ms": ms(secured.told), "next": ending(&secured.next),
        });
        self.facts["secure"] = facts;
        self.tell(&format!(
            "revoked   alice's key is taken away in the middle of a call, which ends after {}:",
            duration(secured.told)
        ))?;
        self.more(&secured.ended.said)?;
        self.more(&format!("and the next call: {}", secured.next.said))
    }

    /// Expects that a call was refused and did not run.
    #[cfg(feature = "secure")]
    fn not_permitted(&mut self, what: &str, ended: &Ended) {
        self.expect(ended.is_refused(), || format!("{what} was not refused: {}", ended.said));
    }

    pub fn latency(&mut self, latency: &Latency) -> Outcome {
        let Latency { measured, pin } = latency;
        self.facts["latency"] = measured.iter().flat_map(|row| row.rows(pin)).collect();
        self.tell("cost in µs  each way   call p50     p99 bare UDP p50     p99  ratio (95 %)")?;
        for row in measured {
            let name = if row.bytes == 0 { "null".to_owned() } else { format!("{} B", row.bytes) };
            let [low, median, high] = row.ratio;
            let [call, call_tail, raw, raw_tail] =
                [row.call.us(500), row.call.us(990), row.raw.us(500), row.raw.us(990)];
            self.tell(&format!(
                "            {name:<8}{call:>11.1} {call_tail:>7.1}{raw:>13.1} {raw_tail:>7.1}\
                 {median:>7.2} ({low:.2} to {high:.2})"
            ))?;
        }
        Ok(())
    }

    /// Prints the outcome.
    pub fn end(mut self, time: Duration) -> Outcome {
        self.facts["s"] = rounded(time.as_secs_f64(), 1).into();
        self.facts["faults"] = self.faults.clone().into();
        match self.output.is_json() {
            true => say_json(&self.facts)?,
            false if self.faults.is_empty() => say(format!("\nAll as it should be, in {}.", duration(time)))?,
            false => say(format!("\nNOT as it should be: {}.", printable(&self.faults.join("; "))))?,
        }
        if self.faults.is_empty() { Ok(()) } else { Err(Failure::found()) }
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

/// Returns how a call ended, as JSON.
#[cfg(feature = "secure")]
fn ending(ended: &Ended) -> Value {
    json!({ "kind": ended.kind, "ran": ended.ran })
}

fn ms(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3, 2)
}
