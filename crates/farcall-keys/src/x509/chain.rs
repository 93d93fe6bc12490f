//! The certificates that a host shows: its own one first, then those of its issuers.

use farcall_base::work;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::codec::{Read, Reader};
use crate::fault::LineFault;

/// The most certificates of a chain.
pub const MAX_CHAIN_CERTIFICATES: usize = 6;

/// The maximum length of all certificates of a chain in bytes.
pub const MAX_CHAIN_BYTES: usize = 16 << 10;

/// A host's certificate and those of its issuers, without the last one, which the authority knows.
///
/// Nothing is verified here: the authority does that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateChain(Vec<CertificateDer<'static>>);

impl CertificateChain {
    /// Reads the certificates of a PEM file, the host's own one first. Other sections count for nothing.
    ///
    /// # Errors
    /// If there is no certificate, one cannot be read, or there are more than [`MAX_CHAIN_CERTIFICATES`] or
    /// [`MAX_CHAIN_BYTES`].
    pub fn from_pem(pem: &[u8]) -> Result<CertificateChain, LineFault> {
        let chain = CertificateChain(read_pem(pem, MAX_CHAIN_CERTIFICATES)?);
        match chain.0.iter().map(|certificate| certificate.len()).sum() {
            0..=MAX_CHAIN_BYTES => Ok(chain),
            found => Err(LineFault::new(
                format!("certificates of at most {MAX_CHAIN_BYTES} bytes together"),
                format!("{found} bytes"),
                "leave out certificates that do not lead from the host's own one to its authority",
            )),
        }
    }

    /// Returns the host's own certificate, which comes first.
    pub(super) fn leaf(&self) -> &CertificateDer<'static> {
        self.0.first().expect("a chain has a certificate")
    }

    /// Returns the certificates of the issuers.
    pub(super) fn issuers(&self) -> &[CertificateDer<'static>] {
        self.0.get(1..).unwrap_or_default()
    }

    /// Appends the number of certificates in one byte, and each one after its length in two.
    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.0.len() as u8);
        for certificate in &self.0 {
            into.extend_from_slice(&(certificate.len() as u16).to_be_bytes());
            into.extend_from_slice(certificate);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Read<CertificateChain> {
        let count = usize::from(reader.u8()?);
        if !(1..=MAX_CHAIN_CERTIFICATES).contains(&count) {
            let why = format!("{count} certificates, and a chain has 1 to {MAX_CHAIN_CERTIFICATES}");
            return Err(reader.wrong(why));
        }
        let mut certificates = Vec::with_capacity(count);
        let mut total = 0;
        for _ in 0..count {
            let length = usize::from(reader.u16()?);
            total += length;
            if total > MAX_CHAIN_BYTES {
                let why =
                    format!("more than the {MAX_CHAIN_BYTES} bytes that the certificates of a chain have");
                return Err(reader.wrong(why));
            }
            certificates.push(CertificateDer::from(reader.take(length)?.to_vec()));
        }
        Ok(CertificateChain(certificates))
    }
}

/// Reads the certificates of a PEM file.
pub(super) fn read_pem(pem: &[u8], max: usize) -> Result<Vec<CertificateDer<'static>>, LineFault> {
    const EXPECTED: &str =
        "certificates in PEM, each between a BEGIN CERTIFICATE and an END CERTIFICATE line";
    const ADVICE: &str = "write the file again, as `openssl x509` does";
    work::steps(pem.len() / 16);
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|why| LineFault::new(EXPECTED, why.to_string(), ADVICE))?;
        if certificates.len() == max {
            let advice = "remove certificates that nobody needs";
            return Err(LineFault::new(format!("at most {max} certificates"), "another one", advice));
        }
        certificates.push(certificate);
    }
    match certificates.is_empty() {
        true => Err(LineFault::new(EXPECTED, "no certificate", ADVICE)),
        false => Ok(certificates),
    }
}
