//! The files of enrolment by certificates: the authority's policy with its bundles, the host's certificates
//! with their private key, and the grants that renew others.

use std::path::{Path, PathBuf};

use super::disk;
use super::stamp::{self, Stamp};
use super::trust::Secrecy;
use super::{KeyFiles, lines};
use crate::fault::{Fault, LineFault};
use crate::grant::Grant;
use crate::lines::GrantLine;
use crate::x509::{CertificateChain, CertificateKey, CertificatePolicy};

/// The file of a policy of certificates, and those of its bundles, which stand beside it unless the policy
/// names them by absolute paths.
///
/// The files must belong to the user or to root, and nobody else may be able to write to them. A file has at
/// most 16 MiB, a line of the policy at most 4 KiB.
#[derive(Debug)]
pub struct CertificateFiles {
    path: PathBuf,
    /// The stamp of each file, the policy's first; `None` for a file that is missing.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
}

impl CertificateFiles {
    /// Reads a policy and its bundles.
    ///
    /// # Errors
    /// The first fault: which file, which line, what was expected, what came, and what to do.
    pub fn open(path: impl Into<PathBuf>) -> Result<(CertificateFiles, CertificatePolicy), Fault> {
        let mut files = CertificateFiles { path: path.into(), stamps: Vec::new() };
        let policy = files.read()?;
        Ok((files, policy))
    }

    /// Reads the files again if one of them has changed, and returns the new policy, or `None` if none has.
    ///
    /// # Errors
    /// The first fault. The policy that was read last remains good, except that it lacks the change; the
    /// files are read again by the next call.
    pub fn reload(&mut self) -> Result<Option<CertificatePolicy>, Fault> {
        for (path, stamp) in &self.stamps {
            if stamp::of_path(path)? != *stamp {
                return self.read().map(Some);
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<CertificatePolicy, Fault> {
        let Some(content) = disk::read(&self.path, Secrecy::Public)? else {
            let advice = "write its rules, as docs/keys.md says";
            return Err(Fault::new(&self.path, "a policy of certificates", "no such file", advice));
        };
        let mut stamps = vec![(self.path.clone(), Some(content.stamp))];
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let mut unread = None;
        let policy = CertificatePolicy::parse(&content.bytes, |file| {
            let path = directory.join(file);
            match disk::read(&path, Secrecy::Public) {
                Ok(found) => {
                    let found = found?;
                    stamps.push((path, Some(found.stamp)));
                    Some(found.bytes.to_vec())
                }
                Err(fault) => {
                    unread = Some(fault);
                    None
                }
            }
        });
        let policy = policy.map_err(|why| unread.unwrap_or_else(|| why.within(&self.path)))?;
        self.stamps = stamps;
        Ok(policy)
    }

    /// Reads the certificates of a host from a PEM file, its own one first.
    ///
    /// # Errors
    /// If the file cannot be read, others may write to it, or it has something else.
    pub fn read_chain(path: &Path) -> Result<CertificateChain, Fault> {
        read_pem(path, Secrecy::Public, CertificateChain::from_pem)
    }

    /// Reads the private key of a host's certificate from a PEM file.
    ///
    /// # Errors
    /// If it is missing, belongs to another user, can be read by others, or has something else.
    pub fn read_private_key(path: &Path) -> Result<CertificateKey, Fault> {
        read_pem(path, Secrecy::Private, CertificateKey::from_pem)
    }
}

impl KeyFiles {
    /// Adds grants to a file `grants`, and removes those which they renew: grants of the same authority for
    /// the same key that have the same rights and names, or have expired at a time in Unix seconds. A missing
    /// file is made.
    ///
    /// # Errors
    /// If the file cannot be read, is not trusted, has something else, or cannot be written.
    pub fn renew_grants(path: &Path, grants: &[Grant], now: u64) -> Result<(), Fault> {
        let content = disk::read(path, Secrecy::Public)?;
        let old = content.map(|content| content.bytes.to_vec()).unwrap_or_default();
        let mut new = Vec::new();
        for (line, number) in old.split_inclusive(|byte| *byte == b'\n').zip(1..) {
            if !is_renewed(line, grants, now).map_err(|why| why.at(number).within(path))? {
                new.extend_from_slice(line);
            }
        }
        if !new.is_empty() && !new.ends_with(b"\n") {
            new.push(b'\n');
        }
        for grant in grants {
            let terms = grant.terms();
            let (principal, rights, scope) = (&terms.principal, terms.rights, &terms.scope);
            let line =
                format!("{} # {principal} {rights} {scope} serial {}\n", grant.to_text(), terms.serial);
            new.extend_from_slice(line.as_bytes());
        }
        disk::replace(path, &new)
    }
}

/// Returns whether a line of a file `grants` is a grant that the new ones make superfluous.
fn is_renewed(line: &[u8], grants: &[Grant], now: u64) -> Result<bool, LineFault> {
    let Some(old) = lines::parse::<GrantLine>(line).next() else { return Ok(false) };
    let (_, GrantLine(old)) = old?;
    Ok(grants.iter().any(|new| {
        let (terms, old_terms) = (new.terms(), old.terms());
        let is_same = terms.rights == old_terms.rights && terms.scope == old_terms.scope;
        new.authority() == old.authority()
            && terms.key == old_terms.key
            && (is_same || old_terms.expires <= now)
    }))
}

fn read_pem<T>(
    path: &Path,
    secrecy: Secrecy,
    parse: impl FnOnce(&[u8]) -> Result<T, LineFault>,
) -> Result<T, Fault> {
    let Some(content) = disk::read(path, secrecy)? else {
        let advice = "name the file that the certificate authority has written";
        return Err(Fault::new(path, "a PEM file", "no such file", advice));
    };
    parse(&content.bytes).map_err(|why| why.within(path))
}
