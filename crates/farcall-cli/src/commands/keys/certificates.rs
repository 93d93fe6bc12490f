//! The call by which a host with a certificate is enrolled, and the host's end of it.
//!
//! The call is open: nothing in it is secret. The host shows by a signature that it has the private key of
//! its certificate, and knows the authority by the key that its operator has given (docs/keys.md,
//! "Certificates").

use std::path::PathBuf;

use clap::{Args, ValueHint};
use farcall_keys::{CertificateFiles, CertificateRequest, Identity, KeyFiles, PublicKey};
use serde_json::json;

use super::enrolment::{PATIENCE, plain};
use super::{Directory, check_limit, date, describe_grant, expected_found, faulty, no_entropy, now};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// An authority that admits hosts by their certificates.
#[farcall::interface]
pub(super) trait CertificateEnrolment {
    /// Returns a challenge, for which the host makes a request.
    ///
    /// # Errors
    /// Why there is none.
    fn challenge(&self) -> farcall::Result<Vec<u8>, String>;

    /// Answers a request with grants.
    ///
    /// # Errors
    /// Why the request gets none: what was expected, what came, and what to do.
    fn enrol(&self, request: &[u8]) -> farcall::Result<Vec<u8>, String>;
}

/// The type and the instance by which the service is exported.
pub(super) const SERVICE: &str = "CertificateEnrolment/authority";

/// What a host with a certificate enrols by, in place of a token.
#[derive(Debug, Args)]
pub(super) struct ByCertificate {
    /// Enrol by this certificate in place of a token: a PEM file, the host's own certificate first
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "token",
        requires_all = ["private_key", "at", "authority"]
    )]
    certificate: Option<PathBuf>,
    /// The private key of the certificate: a PEM file that only its user can read
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate")]
    private_key: Option<PathBuf>,
    /// The address on which `farcall keys admit` waits
    #[arg(long, value_name = "HOST:PORT", requires = "certificate")]
    at: Option<String>,
    /// The public key of the authority
    #[arg(long, value_name = "KEY", requires = "certificate")]
    authority: Option<PublicKey>,
}

/// What the user has named, all of it.
pub(super) struct Named<'a> {
    certificate: &'a PathBuf,
    private_key: &'a PathBuf,
    at: &'a str,
    authority: PublicKey,
}

impl ByCertificate {
    /// Returns what the user has named, if it is a certificate.
    pub(super) fn named(&self) -> Option<Named<'_>> {
        Some(Named {
            certificate: self.certificate.as_ref()?,
            private_key: self.private_key.as_ref()?,
            at: self.at.as_deref()?,
            authority: self.authority?,
        })
    }
}

impl Named<'_> {
    /// Gets grants for the machine's identity, and keeps them in place of those that they renew.
    pub(super) fn enrol(&self, directory: &Directory, output: &Output) -> Outcome {
        let chain = CertificateFiles::read_chain(self.certificate).map_err(faulty)?;
        let key = CertificateFiles::read_private_key(self.private_key).map_err(faulty)?;
        key.check(&chain).map_err(|why| expected_found(&why).about(self.private_key.display()))?;
        let (directory, identity) = directory.prepare()?;
        let service = self.import()?;
        let challenge = service.challenge().map_err(|why| self.refused(why))?;
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(no_entropy)?;
        let request = CertificateRequest::new(self.authority, &identity, (&chain, &key), &challenge, &random);
        let request = request.map_err(|why| expected_found(&why))?;
        let answer = service.enrol(request.as_bytes()).map_err(|why| self.refused(why))?;
        let grants = request.accept(&answer, now()).map_err(|why| expected_found(&why))?;
        for grant in &grants {
            check_limit(&directory, &self.authority, &grant.terms().principal)?;
        }
        let [authorities, file] = ["authorities", "grants"].map(|file| directory.join(file));
        let comment = "enrolled by a certificate";
        KeyFiles::add_line(&authorities, &self.authority.to_string(), comment).map_err(faulty)?;
        KeyFiles::renew_grants(&file, &grants, now()).map_err(faulty)?;
        self.say(&identity, &grants, &directory, output)
    }

    fn say(
        &self,
        identity: &Identity,
        grants: &[farcall_keys::Grant],
        directory: &std::path::Path,
        output: &Output,
    ) -> Outcome {
        output.page(
            || {
                json!({
                    "key": identity.public().to_string(),
                    "authority": self.authority.to_string(),
                    "fingerprint": self.authority.fingerprint().to_string(),
                    "grants": grants.iter().map(describe_grant).collect::<Vec<_>>(),
                    "directory": directory.display().to_string(),
                })
            },
            || {
                let lines = grants.iter().map(|grant| {
                    let terms = grant.terms();
                    let (principal, rights, scope) = (&terms.principal, terms.rights, &terms.scope);
                    let (until, authority) = (date(terms.expires), self.authority);
                    format!("{principal} may {rights} {scope} until {until}, by the authority {authority}")
                });
                lines.collect::<Vec<_>>().join("\n")
            },
        )
    }

    fn import(&self) -> Outcome<CertificateEnrolmentClient> {
        let runtime = plain().patience(PATIENCE).build().map_err(|why| Failure::no_call(why.into()))?;
        let name = format!("udp://{}/{SERVICE}", self.at);
        runtime.import::<dyn CertificateEnrolment>(&name).map_err(|why| {
            Failure::from(why)
                .in_place_of_hint("does `farcall keys admit` run at the authority, and may packets reach it?")
        })
    }

    /// Returns the failure of a request that the authority refused, or that did not reach it.
    fn refused(&self, why: farcall::Error<String>) -> Failure {
        match why {
            farcall::Error::Declared(why) => {
                expected_found(&why).about(format!("the authority at {}", self.at))
            }
            farcall::Error::CallFailed(why) => Failure::from(why).in_place_of_hint("try again"),
        }
    }
}
