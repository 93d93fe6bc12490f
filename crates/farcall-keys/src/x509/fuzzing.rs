//! For the fuzz targets: judges certificates as an authority does, without a proof by their private keys, which
//! no mutation of bytes could give.

use super::chain::CertificateChain;
use super::policy::{CertificatePolicy, MAX_GRANTS_OF_RULE};
use super::request::Asked;
use super::service::check_proof;
use crate::refusal::Refusal;

/// Judges a chain twice at a time in Unix seconds, and checks what must be true of the judgement. Returns
/// whether the chain gets grants.
///
/// # Panics
/// If something is not true.
pub fn fuzz_certificates(policy: &CertificatePolicy, chain: &CertificateChain, now: u64) -> bool {
    let judged = policy.judge(chain, now);
    let again = policy.judge(chain, now);
    assert_eq!(judged.as_ref().err().map(Refusal::to_string), again.err().map(|why| why.to_string()));
    match judged {
        Ok(judgement) => {
            assert!((1..=MAX_GRANTS_OF_RULE).contains(&judgement.grants.len()));
            assert!(judgement.expires >= now && !judgement.subject.to_string().is_empty());
            true
        }
        Err(why) => {
            assert_eq!(why.to_string().lines().count(), 1, "{why}");
            false
        }
    }
}

/// Judges the certificates of a request, whatever its challenge and its signatures are worth. Returns whether
/// they get grants.
///
/// # Panics
/// If something is not true.
pub fn fuzz_certificate_request(policy: &CertificatePolicy, request: &[u8], now: u64) -> bool {
    let Ok(asked) = Asked::read(request) else { return false };
    let mut chain = Vec::new();
    asked.chain.encode(&mut chain);
    // The scheme of the proof follows the chain.
    assert!(
        asked
            .before_proof
            .strip_suffix(&asked.scheme.to_be_bytes()[..])
            .is_some_and(|it| it.ends_with(&chain))
    );
    let _ = (asked.is_of_its_key(), check_proof(&asked));
    fuzz_certificates(policy, &asked.chain, now)
}
