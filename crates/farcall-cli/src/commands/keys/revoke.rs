//! `farcall keys revoke`: writes an authority's next revocation list.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall_keys::{Identity, KeyFiles, MAX_REVOCATIONS, PublicKey, RevocationList, Revoked};
use serde_json::json;

use super::{date, faulty, now};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::counted;

/// Revoke keys and grants: write the authority's next revocation list
///
/// The new list has what the old one has, what is revoked now, and the next serial. Give it to every end that
/// trusts the authority, as its file `revoked`. With neither --key nor --serial, it only renews the list,
/// which must happen before the list is older than its greatest age: then no grant of the authority makes a
/// new binding.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The authority's file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    authority: PathBuf,
    /// The revocation list, which is read if it exists, and replaced; lists of other authorities in it are
    /// kept
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    list: PathBuf,
    /// Revoke this public key: it no longer counts for anything; may be repeated
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<PublicKey>,
    /// Revoke the authority's grant with this serial; may be repeated
    #[arg(long = "serial", value_name = "SERIAL")]
    serials: Vec<u64>,
    /// After how many days without a newer list new bindings are refused [default: as the old list, or 30]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    greatest_age: Option<u32>,
}

const DAY: u64 = 86_400;
const GREATEST_AGE: u64 = 30 * DAY;

impl Revoke {
    pub fn run(&self, output: &Output) -> Outcome {
        let authority = KeyFiles::read_identity(&self.authority).map_err(faulty)?;
        let mut lists = KeyFiles::read_revocations(&self.list).map_err(faulty)?;
        // A list that another wrote under this name must not become genuine.
        let is_forged = |list: &RevocationList| list.authority() == authority.public() && !list.is_genuine();
        if lists.iter().any(is_forged) {
            return Err(Failure::new(format!(
                "{}: this authority did not sign its list",
                self.list.display()
            ))
            .hint("restore the file from a copy"));
        }
        let old = lists
            .iter()
            .filter(|list| list.authority() == authority.public())
            .max_by_key(|list| list.serial());
        let list = self.next(&authority, old)?;
        lists.retain(|other| other.authority() != list.authority());
        lists.push(list.clone());
        KeyFiles::write_revocations(&self.list, &lists).map_err(faulty)?;
        let (keys, grants) = (list.revoked().keys().count(), list.revoked().grants().len());
        output.line(
            || {
                json!({
                    "file": self.list.display().to_string(),
                    "authority": list.authority().to_string(),
                    "serial": list.serial(),
                    "issued": list.issued(),
                    "greatest_age": list.greatest_age(),
                    "keys": keys,
                    "grants": grants,
                })
            },
            || {
                let (keys, grants) = (counted(keys as u64, "key"), counted(grants as u64, "grant"));
                let until = date(list.issued().saturating_add(list.greatest_age()));
                format!(
                    "{}: serial {}, {keys}, {grants}, good until {until}",
                    self.list.display(),
                    list.serial()
                )
            },
        )
    }

    /// Signs the list that follows the old one.
    fn next(&self, authority: &Identity, old: Option<&RevocationList>) -> Outcome<RevocationList> {
        let old_keys = old.into_iter().flat_map(|list| list.revoked().keys());
        let old_serials = old.into_iter().flat_map(|list| list.revoked().grants()).copied();
        let keys = old_keys.chain(self.keys.iter().copied());
        let serials = old_serials.chain(self.serials.iter().copied());
        let revoked = Revoked::new(keys, serials).ok_or_else(|| {
            Failure::new(format!("a revocation list has at most {MAX_REVOCATIONS} keys and grants"))
                .hint("make a new authority, sign anew what still counts, and distrust the old one")
        })?;
        let exhausted = || Failure::new("the list has the last possible serial").hint("make a new authority");
        let serial = old.map_or(0, RevocationList::serial).checked_add(1).ok_or_else(exhausted)?;
        let of_days = self.greatest_age.map(|days| u64::from(days) * DAY);
        let greatest_age = of_days.or(old.map(RevocationList::greatest_age)).unwrap_or(GREATEST_AGE);
        Ok(authority.revoke(serial, now(), greatest_age, revoked))
    }
}
