//! The authority's end of enrolments by certificates: it issues challenges, and answers requests with grants.

use std::fmt;

use webpki::EndEntityCert;

use super::challenge::{CHALLENGE_BYTES, Challenges};
use super::policy::{CertificatePolicy, Judgement, MAX_GRANTS_OF_RULE};
use super::request::{self, Asked};
use crate::grant::{Grant, Terms};
use crate::identity::Identity;
use crate::refusal::{Refusal, RefusalKind};

/// The enrolments by certificates that an authority's program does. Its challenges, and its memory of those
/// that were used, end with it.
///
/// One end issues a [challenge](CertificateEnrolment::challenge), the other one makes a
/// [`CertificateRequest`](crate::CertificateRequest) of it, and the first one
/// [answers](CertificateEnrolment::answer). Nothing in the messages is secret.
pub struct CertificateEnrolment {
    authority: Identity,
    challenges: Challenges,
}

/// An enrolment that was done.
#[derive(Clone, Debug)]
pub struct Enrolled {
    /// What the host gets.
    pub answer: Vec<u8>,
    /// The grants in it, at least one, all of one principal.
    pub grants: Vec<Grant>,
    /// Whom the host's certificate names: a SPIFFE identifier, or a DNS name behind `dns:`.
    pub subject: String,
}

impl CertificateEnrolment {
    /// Begins the enrolments of an authority. `secret` is entropy of the operating system.
    pub fn new(authority: Identity, secret: [u8; 32]) -> CertificateEnrolment {
        CertificateEnrolment { authority, challenges: Challenges::new(secret) }
    }

    /// Returns a challenge of random bytes, at a time in Unix seconds. Nothing is kept for it.
    pub fn challenge(&self, random: [u8; 16], now: u64) -> [u8; CHALLENGE_BYTES] {
        self.challenges.issue(random, now)
    }

    /// Answers a request with grants: `serials` are their numbers, which the authority uses once, and `now`
    /// is the time in Unix seconds. The work has bounds: at most 100 signatures of at most
    /// [`MAX_CHAIN_CERTIFICATES`](crate::MAX_CHAIN_CERTIFICATES) are verified, and what costs little is
    /// checked first.
    ///
    /// # Errors
    /// The reason why there are none. The text tells the host nothing of the rules, and may be sent to it.
    pub fn answer(
        &mut self,
        policy: &CertificatePolicy,
        request: &[u8],
        serials: [u64; MAX_GRANTS_OF_RULE],
        now: u64,
    ) -> Result<Enrolled, Refusal> {
        let asked = Asked::read(request).map_err(|why| {
            let advice = "use the same version of farcall at both ends";
            let expected = "a request for enrolment by a certificate";
            Refusal::new(RefusalKind::Malformed, expected, why.to_string(), advice)
        })?;
        let own = self.authority.public().fingerprint();
        if asked.authority != own {
            let expected = format!("a request to the authority with the fingerprint {own}");
            let found = format!("one to {}", asked.authority);
            let advice = "name this authority's key, or the address of the other one";
            return Err(Refusal::new(RefusalKind::OtherAuthority, expected, found, advice));
        }
        self.challenges.check(&asked.challenge, now)?;
        if !asked.is_of_its_key() {
            let found = "another signature";
            let advice = "run `farcall keys enrol` again";
            return Err(Refusal::new(
                RefusalKind::Forged,
                "a request that its key has signed",
                found,
                advice,
            ));
        }
        check_proof(&asked)?;
        let judgement = policy.judge(&asked.chain, now)?;
        let grants = self.sign(&asked, &judgement, serials)?;
        self.challenges.use_up(&asked.challenge);
        let answer = request::answer(&self.authority, &grants, request);
        Ok(Enrolled { answer, grants, subject: judgement.subject.to_string() })
    }

    fn sign(
        &self,
        asked: &Asked<'_>,
        judgement: &Judgement,
        serials: [u64; MAX_GRANTS_OF_RULE],
    ) -> Result<Vec<Grant>, Refusal> {
        let terms = judgement.grants.iter().zip(serials).map(|((rights, scope), serial)| Terms {
            key: asked.key,
            principal: judgement.principal.clone(),
            rights: *rights,
            scope: scope.clone(),
            serial,
            expires: judgement.expires,
        });
        let grants = terms.map(|terms| self.authority.grant(terms)).collect::<Result<_, _>>();
        grants.map_err(|why| {
            let advice = "the authority's operator can shorten the rule's principal";
            Refusal::new(RefusalKind::NoRule, "a rule whose grant is not too long", why.to_string(), advice)
        })
    }
}

/// Checks that the host has the private key of its certificate. Whether the certificate is one to believe is
/// not checked.
pub(super) fn check_proof(asked: &Asked<'_>) -> Result<(), Refusal> {
    const ADVICE: &str = "name the private key that goes with the first certificate of the chain";
    let refused = |expected: &str, found: String| {
        Err(Refusal::new(RefusalKind::WrongPrivateKey, expected, found, ADVICE))
    };
    let Some(scheme) = asked.scheme() else {
        let expected = "a proof by ECDSA on P-256 or P-384, Ed25519, or RSA";
        return refused(expected, format!("one by the scheme {:#06x}", asked.scheme));
    };
    let leaf = match EndEntityCert::try_from(asked.chain.leaf()) {
        Ok(leaf) => leaf,
        Err(why) => return refused("an X.509 certificate", format!("something else ({why})")),
    };
    let message = super::scheme::proof_message(asked.before_proof);
    match leaf.verify_signature(scheme.verifier(), &message, asked.proof) {
        Ok(()) => Ok(()),
        Err(_) => refused("a proof by the private key of the certificate", "one by another key".to_owned()),
    }
}

impl fmt::Debug for CertificateEnrolment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateEnrolment")
            .field("authority", &self.authority.public())
            .finish_non_exhaustive()
    }
}
