//! `farcall keys admit`: signs grants for hosts with certificates, until it is interrupted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::{Args, ValueHint};
use farcall_keys::{
    CHALLENGE_SECONDS, CertificateFiles, CertificatePolicy, Enrolled, KeyFiles, MAX_GRANTS_OF_RULE,
};
use serde_json::json;

use super::certificates::{CertificateEnrolment, SERVICE};
use super::enrolment::plain;
use super::{date, describe_grant, faulty, new_serial, no_entropy, now};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark};

/// Admit hosts by their X.509 certificates: sign short-lived grants, as a policy says
///
/// A host runs `farcall keys enrol --certificate`, again before its grants end. A grant ends with the
/// certificates at the latest. The policy and its bundles are read again when they change.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER)]
pub struct Admit {
    /// The authority's file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    authority: PathBuf,
    /// The address of this machine on which to wait
    #[arg(long, value_name = "IP:PORT")]
    at: SocketAddr,
    /// The policy: whose certificates are believed, and which identities get which grants
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    policy: PathBuf,
}

const AFTER: &str = "\
Lines of the policy. The first rule that fits decides, and what no rule fits is denied:
  bundle spiffe://TRUST-DOMAIN|dns FILE                          authorities of certificates, in PEM
  allow IDENTITY PRINCIPAL RIGHT NAME [RIGHT NAME]... [hours=N]  RIGHT is export, import or export,import
  deny IDENTITY

Example:
  bundle spiffe://example.org example.pem
  allow spiffe://example.org/store store export Store/main import Bank
  allow spiffe://example.org/team/* team-* import Store hours=8";

/// How often the files are looked at.
const RELOAD: Duration = Duration::from_millis(250);

/// How many refusals are told in [`CHALLENGE_SECONDS`], so that strangers cannot fill the disk.
const MAX_TOLD: u32 = 20;

/// How long running calls may take after an interruption.
const MAX_DRAIN: Duration = Duration::from_secs(5);

impl Admit {
    pub fn run(&self, output: &Output) -> Outcome {
        let authority = KeyFiles::read_identity(&self.authority).map_err(faulty)?;
        let (files, policy) = CertificateFiles::open(&self.policy).map_err(faulty)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(no_entropy)?;
        let (interrupted, interruption) = mpsc::channel();
        // Sending fails only if the receiver is gone, and then the command is ending anyway.
        let handler = move || interrupted.send(()).unwrap_or_default();
        ctrlc::set_handler(handler).map_err(|why| Failure::new(why.to_string()))?;
        let public = authority.public();
        let state = State {
            service: farcall_keys::CertificateEnrolment::new(authority, secret),
            files,
            policy,
            fault: None,
            told: 0,
            told_since: 0,
        };
        let admission = Arc::new(Admission { state: Mutex::new(state), output: *output });
        let runtime = plain().address(self.at).open().build().map_err(|why| Failure::no_call(why.into()))?;
        let export = runtime.export::<dyn CertificateEnrolment>(SERVICE, admission.clone());
        let export = export.map_err(|why| Failure::no_call(why.into()))?;
        let (address, fingerprint) = (export.address().to_string(), public.fingerprint().to_string());
        output.line(
            || json!({ "address": address, "authority": public.to_string(), "fingerprint": fingerprint }),
            || format!("admitting hosts at {address} by the authority {public}"),
        )?;
        while interruption.recv_timeout(RELOAD) == Err(RecvTimeoutError::Timeout) {
            admission.lock().reload();
        }
        match export.drain(MAX_DRAIN) {
            true => Ok(()),
            false => Err(Failure::new("interrupted; some calls did not end within 5 s")),
        }
    }
}

/// The export. One request is verified at a time, so that strangers with certificates cannot occupy more than
/// one processor.
struct Admission {
    state: Mutex<State>,
    output: Output,
}

struct State {
    service: farcall_keys::CertificateEnrolment,
    files: CertificateFiles,
    policy: CertificatePolicy,
    /// The fault of the files that was told last.
    fault: Option<String>,
    /// How many refusals were told since a time in Unix seconds.
    told: u32,
    told_since: u64,
}

impl Admission {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, enrolled: &Enrolled) {
        for grant in &enrolled.grants {
            let terms = grant.terms();
            // Whoever reads the output may have gone. The service goes on.
            let _ = self.output.line(
                || json!({ "enrolled": describe_grant(grant), "certificate": enrolled.subject }),
                || {
                    let (principal, key, until) = (&terms.principal, terms.key, date(terms.expires));
                    let (serial, subject) = (terms.serial, &enrolled.subject);
                    format!("enrolled {principal}, serial {serial}, until {until}: {key}, as {subject}")
                },
            );
        }
    }
}

impl State {
    /// Reads the files again if they have changed. A fault is told once, and the last good policy goes on.
    fn reload(&mut self) {
        match self.files.reload() {
            Ok(None) => {}
            Ok(Some(policy)) => (self.policy, self.fault) = (policy, None),
            Err(why) => {
                let why = why.to_string();
                if self.fault.as_ref() != Some(&why) {
                    remark(&format!("farcall: the policy that was read last goes on: {why}"));
                    self.fault = Some(why);
                }
            }
        }
    }

    fn answer(&mut self, request: &[u8]) -> Result<Enrolled, String> {
        self.reload();
        let mut serials = [0; MAX_GRANTS_OF_RULE];
        for serial in &mut serials {
            *serial = new_serial().map_err(|_| NO_ENTROPY.to_owned())?;
        }
        let now = now();
        self.service.answer(&self.policy, request, serials, now).map_err(|why| {
            let why = why.to_string();
            self.tell_refusal(&why, now);
            why
        })
    }

    fn tell_refusal(&mut self, why: &str, now: u64) {
        if now.abs_diff(self.told_since) >= CHALLENGE_SECONDS {
            (self.told, self.told_since) = (0, now);
        }
        if self.told < MAX_TOLD {
            self.told += 1;
            remark(&format!("farcall: a request was refused: {why}"));
        }
    }
}

const NO_ENTROPY: &str = "expected entropy of the operating system; found none; try again";

impl CertificateEnrolment for Admission {
    fn challenge(&self) -> farcall::Result<Vec<u8>, String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| NO_ENTROPY.to_owned())?;
        Ok(self.lock().service.challenge(random, now()).to_vec())
    }

    fn enrol(&self, request: &[u8]) -> farcall::Result<Vec<u8>, String> {
        let enrolled = self.lock().answer(request)?;
        self.tell(&enrolled);
        Ok(enrolled.answer)
    }
}
