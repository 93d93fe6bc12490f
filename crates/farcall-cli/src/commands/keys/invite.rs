//! `farcall keys invite`: prints a token, and waits for the new machine that brings it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueHint};
use farcall_keys::{EnrolmentToken, Grant, Identity, KeyFiles, MAX_ENROLMENT_BYTES, OpenEnrolment};
use serde_json::json;

use super::enrolment::{Enrolment, plain};
use super::grant::Wanted;
use super::{date, describe_grant, faulty, new_serial, no_entropy, now};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark};

/// Invite a new machine: print a token, and sign a grant for the first key that brings it
///
/// Give the token to the new machine, where `farcall keys enrol TOKEN` makes a key and gets the grant. A
/// token is good for one key, for ten minutes, and as long as this command runs. It is a secret. The machine
/// must reach this one at the address.
#[derive(Debug, Args)]
pub struct Invite {
    /// The authority's file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    authority: PathBuf,
    /// The address of this machine on which to wait
    #[arg(long, value_name = "IP:PORT")]
    at: SocketAddr,
    /// The address that the token names, if the new machine reaches this one at another than --at
    #[arg(long, value_name = "HOST:PORT")]
    reached_at: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
}

/// How many refused requests are told.
const MAX_TOLD: u32 = 10;

/// An enrolment that waits for its machine.
struct Opened {
    authority: Identity,
    state: Mutex<State>,
    kept: Sender<Grant>,
}

struct State {
    enrolment: OpenEnrolment,
    /// The request that got the grant.
    request: Vec<u8>,
    told: u32,
}

impl Invite {
    pub fn run(&self, output: &Output) -> Outcome {
        let template = self.wanted.template()?;
        let authority = KeyFiles::read_identity(&self.authority).map_err(faulty)?;
        if self.at.ip().is_unspecified() && self.reached_at.is_none() {
            return Err(Failure::usage(format!("a new machine cannot reach {}", self.at))
                .hint("name the address that it reaches: --reached-at HOST:PORT"));
        }
        let (kept, done) = mpsc::channel();
        let public = authority.public();
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(no_entropy)?;
        // The port is known only when something listens there, and the token names it.
        let runtime = plain().address(self.at).open().build().map_err(|why| Failure::no_call(why.into()))?;
        let invitation = Arc::new(Invitation::default());
        let export = runtime.export::<dyn Enrolment>("Enrolment/authority", invitation.clone());
        let export = export.map_err(|why| Failure::no_call(why.into()))?;
        let address = self.reached_at.clone().unwrap_or_else(|| export.address().to_string());
        let token = EnrolmentToken::issue(&public, &address, template, secret, now());
        let token = token.map_err(|why| Failure::usage(why.to_string()))?;
        let (text, expires) = (token.to_text(), token.expires());
        let state = State { enrolment: OpenEnrolment::new(token), request: Vec::new(), told: 0 };
        invitation.begin(Opened { authority, state: Mutex::new(state), kept });
        output.line(
            || json!({ "token": &*text, "address": address, "expires": expires, "fingerprint": public.fingerprint().to_string() }),
            || text.to_string(),
        )?;
        let left = Duration::from_secs(expires.saturating_sub(now()));
        let grant = done.recv_timeout(left).ok().or_else(|| invitation.signed());
        export.drain(Duration::from_secs(1));
        let grant = grant.ok_or_else(|| {
            Failure::new("nobody brought the token in ten minutes").hint("run it again for another token")
        })?;
        output.line(
            || json!({ "enrolled": describe_grant(&grant) }),
            || {
                let terms = grant.terms();
                let (principal, key, until) = (&terms.principal, terms.key, date(terms.expires));
                format!("enrolled {principal}, serial {}, until {until}: {key}", terms.serial)
            },
        )
    }
}

/// The export, before and after there is a token.
#[derive(Default)]
struct Invitation(std::sync::OnceLock<Opened>);

impl Invitation {
    fn begin(&self, opened: Opened) {
        // It begins once.
        let _ = self.0.set(opened);
    }

    /// Returns the grant that was signed, although its machine did not say that it has it.
    fn signed(&self) -> Option<Grant> {
        self.0.get()?.lock().enrolment.signed().cloned()
    }
}

impl Opened {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &[u8]) -> Result<Vec<u8>, String> {
        let serial = new_serial().map_err(|_| "the operating system gives no entropy".to_owned())?;
        let mut state = self.lock();
        match state.enrolment.answer(&self.authority, request, serial, now()) {
            Ok(answer) => {
                state.request = request.to_vec();
                Ok(answer)
            }
            Err(why) => {
                let why = why.to_string();
                if state.told < MAX_TOLD {
                    state.told += 1;
                    remark(&format!("farcall: a request was refused: {why}"));
                }
                Err(why)
            }
        }
    }
}

impl Enrolment for Invitation {
    fn enrol(&self, request: &[u8]) -> farcall::Result<Vec<u8>, String> {
        let Some(opened) = self.0.get().filter(|_| request.len() <= MAX_ENROLMENT_BYTES) else {
            return Err("expected a request for enrolment; found something else; try again"
                .to_owned()
                .into());
        };
        opened.answer(request).map_err(Into::into)
    }

    fn kept(&self, request: &[u8]) -> farcall::Result<()> {
        let Some(opened) = self.0.get() else { return Ok(()) };
        let state = opened.lock();
        // An eavesdropper can send this too. The command then ends although the answer may have been lost,
        // and the machine needs another token.
        if let Some(grant) = state.enrolment.signed().filter(|_| state.request == request) {
            // The command ends at the first time.
            let _ = opened.kept.send(grant.clone());
        }
        Ok(())
    }
}
