//! Trust bundles: the certificate authorities whose certificates are believed, and the paths to them.

use std::time::Duration;

use farcall_base::work;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::chain::{CertificateChain, read_pem};
use super::subject::Facts;
use crate::fault::LineFault;
use crate::refusal::{Refusal, RefusalKind};

/// The most certificates of a bundle.
const MAX_BUNDLE_CERTIFICATES: usize = 1000;

/// The certificate authorities of a trust domain, or those of DNS names.
#[derive(Clone, Debug)]
pub(super) struct Bundle(Vec<Anchor>);

/// A certificate authority.
#[derive(Clone, Debug)]
struct Anchor {
    trust: TrustAnchor<'static>,
    not_before: u64,
    not_after: u64,
}

impl Bundle {
    /// Reads the certificates of a PEM file.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Bundle, LineFault> {
        let anchors = read_pem(pem, MAX_BUNDLE_CERTIFICATES)?;
        anchors
            .iter()
            .zip(1..)
            .map(|(found, number)| Anchor::read(found, number))
            .collect::<Result<_, _>>()
            .map(Bundle)
    }

    /// Verifies that a path leads from the host's certificate to an authority of this bundle, at a time in
    /// Unix seconds. Returns the last second at which all certificates of the path are valid.
    pub(super) fn verify(&self, chain: &CertificateChain, now: u64) -> Result<u64, Refusal> {
        work::steps(self.0.len());
        let is_valid = |anchor: &&Anchor| (anchor.not_before..=anchor.not_after).contains(&now);
        let valid: Vec<&Anchor> = self.0.iter().filter(is_valid).collect();
        let anchors: Vec<TrustAnchor<'_>> = valid.iter().map(|anchor| anchor.trust.clone()).collect();
        let refused = |why| self.refused(&why, anchors.len());
        let leaf = EndEntityCert::try_from(chain.leaf()).map_err(refused)?;
        let path = leaf
            .verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &anchors,
                chain.issuers(),
                UnixTime::since_unix_epoch(Duration::from_secs(now)),
                KeyUsage::client_auth(),
                None,
                None,
            )
            .map_err(refused)?;
        // An authority may have two certificates of one key. The later one counts.
        let same = valid.iter().filter(|anchor| anchor.trust == *path.anchor());
        let mut end = same.map(|anchor| anchor.not_after).max().unwrap_or(now);
        for issuer in path.intermediate_certificates() {
            let facts = Facts::read(&issuer.der()).ok().filter(|facts| may_sign(facts) == Some(true));
            let Some(facts) = facts else {
                let expected = "issuers whose key usage is to sign certificates";
                return Err(untrusted(expected, "an issuer without it".to_owned()));
            };
            end = end.min(facts.not_after);
        }
        Ok(end)
    }

    fn refused(&self, why: &webpki::Error, valid: usize) -> Refusal {
        let expected = "certificates that lead to an authority of the trust bundle";
        let found = match why {
            webpki::Error::UnknownIssuer => {
                let expired = self.0.len() - valid;
                let known = format!("{valid} valid authorities and {expired} others");
                format!("certificates that lead to none of its {known}")
            }
            webpki::Error::RequiredEkuNotFoundContext(_) => {
                return untrusted(
                    "a certificate for clients (client authentication)",
                    "one for other uses".to_owned(),
                );
            }
            webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => {
                let advice = "get a new chain of certificates, and set the clocks of both machines right";
                let found = "an issuer that is not";
                return Refusal::new(RefusalKind::Expired, "issuers that are valid now", found, advice);
            }
            other => format!("others ({other})"),
        };
        untrusted(expected, found)
    }
}

impl Anchor {
    fn read(certificate: &CertificateDer<'_>, number: usize) -> Result<Anchor, LineFault> {
        const ADVICE: &str = "keep only the certificates of authorities that you trust in the bundle";
        let expected = "the certificates of certificate authorities";
        let wrong = |why: String| LineFault::new(expected, format!("certificate {number}: {why}"), ADVICE);
        let facts = Facts::read(certificate).map_err(|why| wrong(why.to_string()))?;
        if !facts.is_authority || may_sign(&facts) == Some(false) {
            return Err(wrong("it may not sign certificates".to_owned()));
        }
        let trust = anchor_from_trusted_cert(certificate).map_err(|why| wrong(why.to_string()))?;
        Ok(Anchor { trust: trust.to_owned(), not_before: facts.not_before, not_after: facts.not_after })
    }
}

/// Returns whether a key may sign certificates, if its certificate says so.
fn may_sign(facts: &Facts) -> Option<bool> {
    facts.usage.map(|usage| usage.key_cert_sign())
}

fn untrusted(expected: &str, found: String) -> Refusal {
    const ADVICE: &str = "send the issuers' certificates too; the authority's operator keeps the bundle";
    Refusal::new(RefusalKind::UntrustedCertificate, expected, found, ADVICE)
}
