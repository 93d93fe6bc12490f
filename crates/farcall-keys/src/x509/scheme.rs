//! How a certificate's private key signs a request: which algorithm, and over what.

use rustls_pki_types::SignatureVerificationAlgorithm;

/// An algorithm of signatures, with the number that TLS 1.3 has for it (RFC 8446, section 4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Scheme {
    EcdsaP256Sha256 = 0x0403,
    EcdsaP384Sha384 = 0x0503,
    RsaPssSha256 = 0x0804,
    Ed25519 = 0x0807,
}

/// The maximum length of a signature in bytes: that of an RSA key of 8,192 bits.
pub(super) const MAX_PROOF_BYTES: usize = 1024;

impl Scheme {
    const ALL: [Scheme; 4] =
        [Scheme::EcdsaP256Sha256, Scheme::EcdsaP384Sha384, Scheme::RsaPssSha256, Scheme::Ed25519];

    pub(super) fn number(self) -> u16 {
        self as u16
    }

    pub(super) fn from_number(number: u16) -> Option<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.number() == number)
    }

    /// Returns what verifies signatures of this scheme.
    pub(super) fn verifier(self) -> &'static dyn SignatureVerificationAlgorithm {
        match self {
            Scheme::EcdsaP256Sha256 => webpki::ring::ECDSA_P256_SHA256,
            Scheme::EcdsaP384Sha384 => webpki::ring::ECDSA_P384_SHA384,
            Scheme::RsaPssSha256 => webpki::ring::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
            Scheme::Ed25519 => webpki::ring::ED25519,
        }
    }
}

/// Returns what a certificate's key signs: these bytes behind 64 spaces, a context and a zero byte. This is
/// the form of TLS 1.3 (RFC 8446, section 4.4.3) with a context of its own, so no signature that the key
/// makes in TLS can be taken for one of these.
pub(super) fn proof_message(covered: &[u8]) -> Vec<u8> {
    const CONTEXT: &[u8] = b"farcall certificate enrolment 1";
    let mut message = vec![b' '; 64];
    message.extend_from_slice(CONTEXT);
    message.push(0);
    message.extend_from_slice(covered);
    message
}
