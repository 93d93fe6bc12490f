//! The private key of a host's certificate, which signs the host's requests.

use std::fmt;

use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::EndEntityCert;
use zeroize::Zeroizing;

use super::chain::CertificateChain;
use super::scheme::{Scheme, proof_message};
use crate::fault::LineFault;

/// The private key of a certificate: ECDSA on P-256 or P-384, Ed25519, or RSA of 2,048 to 4,096 bits.
///
/// Signatures take entropy of the operating system, because `ring` takes no other.
pub struct CertificateKey(Signer);

enum Signer {
    Ecdsa(EcdsaKeyPair, Scheme),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

const EXPECTED: &str = "a private key in PEM (PKCS #8): ECDSA on P-256 or P-384, Ed25519, or RSA";

impl CertificateKey {
    /// Reads the first private key of a PEM file.
    ///
    /// # Errors
    /// If there is none, or it is of another kind. The text of the error has nothing of the key.
    pub fn from_pem(pem: &[u8]) -> Result<CertificateKey, LineFault> {
        const CONVERT: &str = "convert it: `openssl pkcs8 -topk8 -nocrypt -in KEY -out NEW`";
        let wrong = |found: &str| LineFault::new(EXPECTED, found, CONVERT);
        let key =
            PrivateKeyDer::from_pem_slice(pem).map_err(|_| wrong("no private key that is not encrypted"))?;
        let key = Zeroizing::new(key);
        let signer = match &*key {
            PrivateKeyDer::Pkcs8(key) => read_pkcs8(key.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok().map(Signer::Rsa),
            PrivateKeyDer::Sec1(_) => return Err(wrong("a key in the form of SEC 1 (EC PRIVATE KEY)")),
            _ => None,
        };
        signer.map(CertificateKey).ok_or_else(|| wrong("a key of another kind or size"))
    }

    /// Checks that this is the private key of the chain's first certificate.
    ///
    /// # Errors
    /// If it is not, or the certificate cannot be read.
    pub fn check(&self, chain: &CertificateChain) -> Result<(), LineFault> {
        const ADVICE: &str = "name the private key that goes with the first certificate of the chain";
        let wrong = |found: String| LineFault::new("the private key of the certificate", found, ADVICE);
        let leaf = EndEntityCert::try_from(chain.leaf())
            .map_err(|why| wrong(format!("a certificate that cannot be read ({why})")))?;
        let proof = self.prove(b"").ok_or_else(|| wrong("a key that cannot sign".to_owned()))?;
        leaf.verify_signature(self.scheme().verifier(), &proof_message(b""), &proof)
            .map_err(|_| wrong("that of another one".to_owned()))
    }

    pub(super) fn scheme(&self) -> Scheme {
        match &self.0 {
            Signer::Ecdsa(_, scheme) => *scheme,
            Signer::Ed25519(_) => Scheme::Ed25519,
            Signer::Rsa(_) => Scheme::RsaPssSha256,
        }
    }

    /// Signs the bytes of a request. Returns `None` if the operating system gives no entropy.
    pub(super) fn prove(&self, covered: &[u8]) -> Option<Vec<u8>> {
        let (message, random) = (proof_message(covered), SystemRandom::new());
        match &self.0 {
            Signer::Ecdsa(key, _) => Some(key.sign(&random, &message).ok()?.as_ref().to_vec()),
            Signer::Ed25519(key) => Some(key.sign(&message).as_ref().to_vec()),
            Signer::Rsa(key) => {
                let mut proof = vec![0; key.public().modulus_len()];
                key.sign(&signature::RSA_PSS_SHA256, &random, &message, &mut proof).ok()?;
                Some(proof)
            }
        }
    }
}

fn read_pkcs8(der: &[u8]) -> Option<Signer> {
    let ecdsa = |algorithm, scheme| {
        let key = EcdsaKeyPair::from_pkcs8(algorithm, der, &SystemRandom::new()).ok()?;
        Some(Signer::Ecdsa(key, scheme))
    };
    ecdsa(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, Scheme::EcdsaP256Sha256)
        .or_else(|| ecdsa(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, Scheme::EcdsaP384Sha384))
        .or_else(|| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Signer::Ed25519))
        .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Signer::Rsa))
}

impl fmt::Debug for CertificateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateKey({:?}, private key hidden)", self.scheme())
    }
}
