//! `farcall keys show`: shows a public key, and whom an end trusts.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall_keys::{Grant, KeyFiles, Keyring, RevocationList};
use serde_json::{Value, json};

use super::{Directory, date, describe_grant, describe_lines, faulty, gives};
use crate::failure::Outcome;
use crate::output::Output;
use crate::text::{counted, printable};

/// Show the public key of this end, and everything that its key files say
#[derive(Debug, Args)]
pub struct Show {
    #[command(flatten)]
    directory: Directory,
    /// Show only the public key of this private key's file, such as an authority's
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "path")]
    file: Option<PathBuf>,
}

impl Show {
    pub fn run(&self, output: &Output) -> Outcome {
        if let Some(file) = &self.file {
            let public = KeyFiles::read_identity(file).map_err(faulty)?.public();
            let fingerprint = public.fingerprint().to_string();
            return output.line(
                || json!({ "key": public.to_string(), "fingerprint": fingerprint }),
                || public.to_string(),
            );
        }
        let (files, keyring) = KeyFiles::open(self.directory.path()?).map_err(faulty)?;
        let directory = files.directory().display().to_string();
        output.page(|| to_json(&directory, &files, &keyring), || table(&directory, &files, &keyring))
    }
}

fn table(directory: &str, files: &KeyFiles, keyring: &Keyring) -> String {
    let public = keyring.identity().public();
    let mut page = format!("directory    {}\n", printable(directory));
    let _ = writeln!(page, "key          {public}\nfingerprint  {}", public.fingerprint());
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(page, "\n{title}");
        }
        lines.iter().for_each(|line| {
            let _ = writeln!(page, "  {}", printable(line));
        });
    };
    part("grants, which it may show", keyring.grants().iter().map(grant_line).collect());
    part("authorities", keyring.authorities().map(|line| line.to_string()).collect());
    part("authorized_keys", keyring.authorized_keys().map(ToString::to_string).collect());
    part("known_servers", keyring.known_servers().map(ToString::to_string).collect());
    part("revoked", keyring.revocations().map(revocation_line).collect());
    let rules = keyring.policy().map(|policy| counted(policy.len() as u64, "rule"));
    let none = "none: every known client may do everything, except see the conversations of others";
    part("policy", vec![rules.unwrap_or_else(|| none.to_owned())]);
    let lines = files.lines().map(|(file, line, says)| format!("{file}, line {line}: {}", gives(says)));
    part("what each line gives", lines.collect());
    page
}

fn grant_line(grant: &Grant) -> String {
    let terms = grant.terms();
    let (rights, principal) = (terms.rights.to_string(), &terms.principal);
    let (serial, until, authority) = (terms.serial, date(terms.expires), grant.authority());
    format!("{rights} {} as {principal}, serial {serial}, until {until}, by {authority}", terms.scope)
}

fn revocation_line(list: &RevocationList) -> String {
    let [keys, grants] = [(list.revoked().keys().count(), "key"), (list.revoked().grants().len(), "grant")]
        .map(|(count, noun)| counted(count as u64, noun));
    let until = date(list.issued().saturating_add(list.greatest_age()));
    format!("{keys}, {grants}, serial {}, good until {until}, by {}", list.serial(), list.authority())
}

fn to_json(directory: &str, files: &KeyFiles, keyring: &Keyring) -> Value {
    let public = keyring.identity().public();
    let authorities: Vec<_> = keyring
        .authorities()
        .map(|line| {
            let principals: Vec<_> = line.principals.iter().map(ToString::to_string).collect();
            json!({ "key": line.key.to_string(), "principals": principals, "comment": line.comment })
        })
        .collect();
    let authorized_keys: Vec<_> = keyring
        .authorized_keys()
        .map(|line| {
            json!({
                "key": line.key.to_string(),
                "principal": &**line.principal,
                "scope": line.scope.to_string(),
                "comment": line.comment,
            })
        })
        .collect();
    let known_servers: Vec<_> = keyring
        .known_servers()
        .map(|line| {
            json!({
                "scope": line.scope.to_string(),
                "key": line.key.to_string(),
                "or_granted": line.or_granted,
                "comment": line.comment,
            })
        })
        .collect();
    let revoked: Vec<_> = keyring
        .revocations()
        .map(|list| {
            json!({
                "authority": list.authority().to_string(),
                "serial": list.serial(),
                "issued": list.issued(),
                "greatest_age": list.greatest_age(),
                "keys": list.revoked().keys().map(|key| key.to_string()).collect::<Vec<_>>(),
                "grants": list.revoked().grants(),
            })
        })
        .collect();
    json!({
        "directory": directory,
        "key": public.to_string(),
        "fingerprint": public.fingerprint().to_string(),
        "grants": keyring.grants().iter().map(describe_grant).collect::<Vec<_>>(),
        "authorities": authorities,
        "authorized_keys": authorized_keys,
        "known_servers": known_servers,
        "revoked": revoked,
        "policy_rules": keyring.policy().map(|policy| policy.len()),
        "lines": describe_lines(files),
    })
}
