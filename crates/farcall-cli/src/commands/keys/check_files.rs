//! `farcall keys check-files`: checks key files, and says what has expired or will soon.

use clap::Args;
use farcall_keys::{KeyFiles, Keyring};
use serde_json::json;

use super::{Directory, date, gives, now};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Check the key files: owners and modes, what every line gives, and what has expired or will soon
///
/// Prints every fault, with its line and column. The exit code is 1 if a file is at fault, or if something has
/// expired or is revoked.
#[derive(Debug, Args)]
pub struct CheckFiles {
    #[command(flatten)]
    directory: Directory,
}

/// What expires within this time, in seconds, is said.
const SOON: u64 = 14 * 86_400;

/// Something that the files say, with the time.
struct Finding {
    is_broken: bool,
    what: String,
}

impl CheckFiles {
    pub fn run(&self, output: &Output) -> Outcome {
        let (files, keyring) = KeyFiles::inspect(self.directory.path()?);
        for (file, line, says) in files.lines() {
            let says = gives(says);
            output.line(
                || json!({ "file": file, "line": line, "gives": says }),
                || format!("{file}, line {line}: {says}"),
            )?;
        }
        for fault in files.faults() {
            let path = fault.path().display().to_string();
            output.line(
                || {
                    let (line, column) = (fault.line(), fault.column());
                    json!({
                        "broken": true, "what": fault.to_string(), "file": path, "line": line, "column": column,
                    })
                },
                || format!("broken: {fault}"),
            )?;
        }
        let findings = keyring.map_or_else(Vec::new, |keyring| findings(&keyring, now()));
        for Finding { is_broken, what } in &findings {
            let kind = if *is_broken { "broken" } else { "soon" };
            output.line(|| json!({ "broken": is_broken, "what": what }), || format!("{kind}: {what}"))?;
        }
        if !files.faults().is_empty() || findings.iter().any(|finding| finding.is_broken) {
            return Err(Failure::found());
        }
        if !output.is_json() {
            output.line(Default::default, || format!("{}: no fault", files.directory().display()))?;
        }
        Ok(())
    }
}

fn findings(keyring: &Keyring, now: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut judge = |what: String, until: u64, advice: &str| {
        if until.saturating_sub(SOON) > now {
            return;
        }
        let is_broken = until <= now;
        let verb = if is_broken { "has ended" } else { "ends" };
        findings.push(Finding { is_broken, what: format!("{what} {verb} at {}; {advice}", date(until)) });
    };
    for grant in keyring.grants() {
        let terms = grant.terms();
        let what = format!("grants: the grant {} to {} {}", terms.serial, terms.rights, terms.scope);
        judge(what, terms.expires, "ask the authority for a new one (`farcall keys grant`)");
    }
    for list in keyring.revocations() {
        let until = list.issued().saturating_add(list.greatest_age());
        let what = format!("revoked: the time of the list {} of {}", list.serial(), list.authority());
        judge(what, until, "ask the authority for its newest list (`farcall keys revoke`)");
    }
    let public = keyring.identity().public();
    if keyring.revocations().any(|list| list.has_key(&public)) {
        let what = format!("identity: the key {public} is revoked; make a new one (`farcall keys make`)");
        findings.push(Finding { is_broken: true, what });
    }
    for grant in keyring.grants() {
        let of_authority = |list: &&farcall_keys::RevocationList| list.authority() == grant.authority();
        let serial = grant.terms().serial;
        if keyring.revocations().find(of_authority).is_some_and(|list| list.has_grant(serial)) {
            let what = format!("grants: the grant {serial} is revoked; ask the authority for a new one");
            findings.push(Finding { is_broken: true, what });
        }
    }
    findings
}
