//! `farcall keys enrol`: makes this machine's key, and gets its first grant for a token.

use std::io::{self, BufRead as _, Read as _};
use std::path::Path;

use clap::Args;
use farcall_keys::{EnrolmentRequest, EnrolmentToken, Grant, KeyFiles, PublicKey};
use serde_json::json;

use super::enrolment::{Enrolment, EnrolmentClient, PATIENCE, plain};
use super::{Directory, check_limit, date, describe_grant, expected_found, faulty, no_entropy, now};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// Enrol this machine: make its key, show the token to the authority, and keep the grant
///
/// The token is what `farcall keys invite` printed at the authority. This end keeps the identity that it has,
/// or else makes one. It checks the authority's key by the fingerprint in the token, and adds the key to
/// `authorities` and the grant to `grants`.
#[cfg_attr(
    feature = "x509",
    doc = "
With --certificate, it shows an X.509 certificate to `farcall keys admit` in place of a token. The grants end
with the certificate at the latest. Run the command again, by a timer, when about half of their time is over:
the new grants take the place of the old ones, and running programs read them within a quarter of a second."
)]
#[derive(Debug, Args)]
pub struct Enrol {
    /// The token; - reads it from standard input, where other users of this machine cannot see it
    #[cfg_attr(feature = "x509", arg(value_name = "TOKEN", required_unless_present = "certificate"))]
    #[cfg_attr(not(feature = "x509"), arg(value_name = "TOKEN", required = true))]
    token: Option<String>,
    #[cfg(feature = "x509")]
    #[command(flatten)]
    by_certificate: super::certificates::ByCertificate,
    #[command(flatten)]
    directory: Directory,
}

/// The longest line of standard input that is read as a token, in bytes.
const MAX_LINE: u64 = 4096;

impl Enrol {
    pub fn run(&self, output: &Output) -> Outcome {
        #[cfg(feature = "x509")]
        if let Some(named) = self.by_certificate.named() {
            return named.enrol(&self.directory, output);
        }
        let token = self.token()?;
        token.check_time(now()).map_err(|why| expected_found(&why))?;
        let (directory, identity) = self.directory.prepare()?;
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(no_entropy)?;
        let request = EnrolmentRequest::new(&token, &identity, &random);
        let authority = import(token.address())?;
        let answer = authority.enrol(request.as_bytes()).map_err(|why| refused(why, token.address()))?;
        let (key, grant) = request.accept(&token, &answer, now()).map_err(|why| expected_found(&why))?;
        keep(&directory, key, &grant)?;
        // If this is lost, the authority waits until the token ends.
        let _ = authority.kept(request.as_bytes());
        output.line(
            || {
                json!({
                    "key": identity.public().to_string(),
                    "authority": key.to_string(),
                    "fingerprint": key.fingerprint().to_string(),
                    "grant": describe_grant(&grant),
                    "directory": directory.display().to_string(),
                })
            },
            || {
                let terms = grant.terms();
                let (principal, rights, scope) = (&terms.principal, terms.rights, &terms.scope);
                let until = date(terms.expires);
                format!("{principal} may {rights} {scope} until {until}, by the authority {key}")
            },
        )
    }

    fn token(&self) -> Outcome<EnrolmentToken> {
        let mut line = String::new();
        let token = self.token.as_deref().unwrap_or_default();
        if token == "-" {
            io::stdin().lock().take(MAX_LINE).read_line(&mut line)?;
        }
        let text = if token == "-" { &line } else { token };
        text.parse().map_err(|why: farcall_keys::TokenError| Failure::usage(why.to_string()))
    }
}

fn import(address: &str) -> Outcome<EnrolmentClient> {
    let runtime = plain().patience(PATIENCE).build().map_err(|why| Failure::no_call(why.into()))?;
    let name = format!("udp://{address}/Enrolment/authority");
    runtime.import::<dyn Enrolment>(&name).map_err(|why| {
        Failure::from(why).in_place_of_hint(
            "does `farcall keys invite` still run at the authority, and may packets reach it? It ends after \
             ten minutes",
        )
    })
}

/// Returns the failure of a request that the authority refused, or that did not reach it.
fn refused(why: farcall::Error<String>, address: &str) -> Failure {
    match why {
        farcall::Error::Declared(why) => expected_found(&why).about(format!("the authority at {address}")),
        farcall::Error::CallFailed(why) => {
            Failure::from(why).in_place_of_hint("try again with the same token")
        }
    }
}

/// Keeps the authority and the grant.
fn keep(directory: &Path, authority: PublicKey, grant: &Grant) -> Outcome {
    check_limit(directory, &authority, &grant.terms().principal)?;
    let comment = format!("enrolled, {}", grant.terms().principal);
    KeyFiles::add_line(&directory.join("authorities"), &authority.to_string(), &comment).map_err(faulty)?;
    let terms = grant.terms();
    let comment = format!("{} {} {} serial {}", terms.principal, terms.rights, terms.scope, terms.serial);
    KeyFiles::add_line(&directory.join("grants"), &grant.to_text(), &comment).map_err(faulty)?;
    Ok(())
}
