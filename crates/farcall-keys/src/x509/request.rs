//! A host's request for grants by its certificate, and the authority's answer.
//!
//! ```text
//! request   version 1 (1 byte) · the authority's fingerprint (16) · the host's key (32) · the challenge (56) ·
//!           32 random bytes · number of certificates (1) · each certificate after its length (2) ·
//!           scheme of the proof (2) · the proof after its length (2) · signature (64)
//! answer    version 1 (1 byte) · the authority's key (32) · number of grants (1) · each grant after its
//!           length (2) · signature (64)
//! ```
//!
//! The proof is a signature by the certificate's key over everything above it. The request's signature is by
//! the host's key, the answer's by the authority's key over the request's SHA-256 and everything above.

use sha2::{Digest as _, Sha256};

use super::chain::{CertificateChain, MAX_CHAIN_BYTES, MAX_CHAIN_CERTIFICATES};
use super::challenge::CHALLENGE_BYTES;
use super::policy::MAX_GRANTS_OF_RULE;
use super::private_key::CertificateKey;
use super::scheme::{MAX_PROOF_BYTES, Scheme};
use crate::codec::{Malformed, Read, Reader};
use crate::grant::{Grant, MAX_GRANT_BYTES};
use crate::identity::Identity;
use crate::key::{Context, Fingerprint, PublicKey, SIGNATURE_BYTES};
use crate::refusal::{Refusal, RefusalKind};

/// The maximum length of a request in bytes.
pub const MAX_CERTIFICATE_REQUEST_BYTES: usize =
    HEAD_BYTES + 1 + 2 * MAX_CHAIN_CERTIFICATES + MAX_CHAIN_BYTES + 4 + MAX_PROOF_BYTES + SIGNATURE_BYTES;

const HEAD_BYTES: usize = 1 + 16 + 32 + CHALLENGE_BYTES + 32;
const MAX_ANSWER_BYTES: usize = 1 + 32 + 1 + MAX_GRANTS_OF_RULE * (2 + MAX_GRANT_BYTES) + SIGNATURE_BYTES;

const VERSION: u8 = 1;
const REQUEST: Context = Context::new("farcall certificate request 1");
const ANSWER: Context = Context::new("farcall certificate answer 1");

/// A host's request for grants. It is made for one challenge of the authority.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    authority: PublicKey,
    key: PublicKey,
    bytes: Vec<u8>,
}

impl CertificateRequest {
    /// Makes the request of a host, with random bytes of the operating system.
    ///
    /// # Errors
    /// If the challenge does not have [`CHALLENGE_BYTES`], or the certificate's key cannot sign because the
    /// operating system gives no entropy.
    pub fn new(
        authority: PublicKey,
        host: &Identity,
        (chain, key): (&CertificateChain, &CertificateKey),
        challenge: &[u8],
        random: &[u8; 32],
    ) -> Result<CertificateRequest, Refusal> {
        let refused = |expected: &str, found: String, advice: &str| {
            Refusal::new(RefusalKind::Malformed, expected, found, advice)
        };
        if challenge.len() != CHALLENGE_BYTES {
            let expected = format!("a challenge of {CHALLENGE_BYTES} bytes");
            let found = format!("{} bytes", challenge.len());
            return Err(refused(&expected, found, "use the same version of farcall at both ends"));
        }
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(authority.fingerprint().as_bytes());
        bytes.extend_from_slice(host.public().as_bytes());
        bytes.extend_from_slice(challenge);
        bytes.extend_from_slice(random);
        chain.encode(&mut bytes);
        bytes.extend_from_slice(&key.scheme().number().to_be_bytes());
        let Some(proof) = key.prove(&bytes) else {
            let found = "an operating system that gives no entropy".to_owned();
            return Err(refused("a signature by the certificate's key", found, "try again"));
        };
        bytes.extend_from_slice(&(proof.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&proof);
        bytes.extend_from_slice(&host.sign(REQUEST, &bytes));
        Ok(CertificateRequest { authority, key: host.public(), bytes })
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the grants, if an answer to this request has them: the authority has signed the answer and
    /// each grant, for this host's key, and none has expired.
    ///
    /// # Errors
    /// The reason why it is no such answer.
    pub fn accept(&self, answer: &[u8], now: u64) -> Result<Vec<Grant>, Refusal> {
        const ADVICE: &str = "try again; if it happens again, somebody interferes";
        let refused = |kind, expected: &str, found: String| Refusal::new(kind, expected, found, ADVICE);
        let Answer { authority, grants, before_signature, signature } = Answer::read(answer)
            .map_err(|why| refused(RefusalKind::Malformed, "an answer of the authority", why.to_string()))?;
        if authority != self.authority {
            let expected = format!("the authority {}", self.authority);
            return Err(refused(RefusalKind::OtherKey, &expected, format!("the key {authority}")));
        }
        if !authority.verify(ANSWER, &signed_answer(&self.bytes, before_signature), &signature) {
            let found = "another signature, or an answer to another request".to_owned();
            return Err(refused(RefusalKind::Forged, "an answer that the authority signed", found));
        }
        for grant in &grants {
            let terms = grant.terms();
            if terms.key != self.key || grant.authority() != authority || !grant.is_genuine() {
                let found = format!("one for {} by {}", terms.key, grant.authority());
                let expected = format!("a grant for {} by {authority}", self.key);
                return Err(refused(RefusalKind::Forged, &expected, found));
            }
            if terms.expires <= now {
                let found = format!("one that expired {} s ago, by this clock ({now})", now - terms.expires);
                let advice = "set the clocks of both machines right";
                let expected = "a grant that has not expired";
                return Err(Refusal::new(RefusalKind::Expired, expected, found, advice));
            }
        }
        Ok(grants)
    }
}

/// A request as the authority has read it.
pub(super) struct Asked<'a> {
    pub(super) authority: Fingerprint,
    pub(super) key: PublicKey,
    pub(super) challenge: [u8; CHALLENGE_BYTES],
    pub(super) chain: CertificateChain,
    pub(super) scheme: u16,
    /// What the proof is over.
    pub(super) before_proof: &'a [u8],
    pub(super) proof: &'a [u8],
    before_signature: &'a [u8],
    signature: [u8; SIGNATURE_BYTES],
}

impl Asked<'_> {
    pub(super) fn read(bytes: &[u8]) -> Read<Asked<'_>> {
        let mut reader = Reader::new("a request for enrolment by a certificate", bytes);
        check_length(&reader, bytes, MAX_CERTIFICATE_REQUEST_BYTES)?;
        reader.version(VERSION)?;
        let authority = Fingerprint::from_bytes(reader.array()?);
        let (key, challenge) = (reader.key()?, reader.array()?);
        let _random: [u8; 32] = reader.array()?;
        let chain = CertificateChain::decode(&mut reader)?;
        let scheme = reader.u16()?;
        let before_proof = before(bytes, &reader);
        let length = usize::from(reader.u16()?);
        if length > MAX_PROOF_BYTES {
            return Err(
                reader.wrong(format!("a proof of {length} bytes, and one has at most {MAX_PROOF_BYTES}"))
            );
        }
        let proof = reader.take(length)?;
        let before_signature = before(bytes, &reader);
        let signature = reader.array()?;
        reader.end()?;
        Ok(Asked {
            authority,
            key,
            challenge,
            chain,
            scheme,
            before_proof,
            proof,
            before_signature,
            signature,
        })
    }

    /// Returns whether the host's key has signed the request.
    pub(super) fn is_of_its_key(&self) -> bool {
        self.key.verify(REQUEST, self.before_signature, &self.signature)
    }

    /// Returns the scheme of the proof, if it is known.
    pub(super) fn scheme(&self) -> Option<Scheme> {
        Scheme::from_number(self.scheme)
    }
}

/// Writes the authority's answer.
pub(super) fn answer(authority: &Identity, grants: &[Grant], request: &[u8]) -> Vec<u8> {
    let mut answer = vec![VERSION];
    answer.extend_from_slice(authority.public().as_bytes());
    answer.push(grants.len() as u8);
    for grant in grants {
        let grant = grant.encode();
        answer.extend_from_slice(&(grant.len() as u16).to_be_bytes());
        answer.extend_from_slice(&grant);
    }
    let signature = authority.sign(ANSWER, &signed_answer(request, &answer));
    answer.extend_from_slice(&signature);
    answer
}

/// An answer as the host has read it.
struct Answer<'a> {
    authority: PublicKey,
    grants: Vec<Grant>,
    before_signature: &'a [u8],
    signature: [u8; SIGNATURE_BYTES],
}

impl Answer<'_> {
    fn read(bytes: &[u8]) -> Read<Answer<'_>> {
        let mut reader = Reader::new("an answer to a request by a certificate", bytes);
        check_length(&reader, bytes, MAX_ANSWER_BYTES)?;
        reader.version(VERSION)?;
        let authority = reader.key()?;
        let count = usize::from(reader.u8()?);
        if !(1..=MAX_GRANTS_OF_RULE).contains(&count) {
            return Err(reader.wrong(format!("{count} grants, and there are 1 to {MAX_GRANTS_OF_RULE}")));
        }
        let mut grants = Vec::with_capacity(count);
        for _ in 0..count {
            let length = usize::from(reader.u16()?);
            grants.push(Grant::decode(reader.take(length)?).map_err(|why| reader.wrong(why.to_string()))?);
        }
        let before_signature = before(bytes, &reader);
        let signature = reader.array()?;
        reader.end()?;
        Ok(Answer { authority, grants, before_signature, signature })
    }
}

/// Returns what the signature of an answer is over.
fn signed_answer(request: &[u8], before_signature: &[u8]) -> Vec<u8> {
    [Sha256::digest(request).as_slice(), before_signature].concat()
}

/// Returns the bytes that were read.
fn before<'a>(bytes: &'a [u8], reader: &Reader<'_>) -> &'a [u8] {
    bytes.get(..bytes.len().saturating_sub(reader.remaining())).unwrap_or_default()
}

fn check_length(reader: &Reader<'_>, bytes: &[u8], max: usize) -> Result<(), Malformed> {
    match bytes.len() <= max {
        true => Ok(()),
        false => Err(reader.wrong(format!("{} bytes, and one has at most {max}", bytes.len()))),
    }
}
