//! TLS to etcd: the authorities that are trusted, and the certificate of this client.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

/// The longest file of certificates or of a key that is read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// How to speak to etcd by TLS: whose certificates of etcd's members are trusted, and the certificate of this
/// client, if etcd asks for one.
///
/// The files are read when they are named, and again when they have changed. Files that cannot be used then,
/// such as a new certificate beside its old key, change nothing. Only the authorities that are named are
/// trusted, not those of the operating system.
///
/// ```no_run
/// use farcall_names::{Etcd, EtcdTls};
///
/// let tls = EtcdTls::trusting("/etc/etcd/ca.pem")?.certificate("/etc/clerk/cert.pem", "/etc/clerk/key.pem")?;
/// let registry = Etcd::builder("etcds://etcd-1.example.org,etcd-2.example.org")?.tls(tls)?.build();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EtcdTls {
    authorities: Vec<Certificate<'static>>,
    client: Option<ClientCert>,
    /// The files, and how they were before they were read.
    authorities_file: (PathBuf, Stamp),
    client_files: Option<[(PathBuf, Stamp); 2]>,
}

/// By what a renewed file is known: when it was changed, and its length. `None` if it cannot be looked at.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(path: &Path) -> Stamp {
    let known = std::fs::metadata(path).ok()?;
    Some((known.modified().ok()?, known.len()))
}

/// A file for TLS that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTlsError {
    path: PathBuf,
    why: String,
}

impl EtcdTls {
    /// Trusts the authorities whose certificates a PEM file holds, at least one and in at most 1 MiB. A
    /// member of etcd must have a certificate of one of them for the host that the registry's place names.
    ///
    /// # Errors
    /// If the file cannot be read, or holds no certificate or a bad one.
    pub fn trusting(authorities: impl AsRef<Path>) -> Result<EtcdTls, EtcdTlsError> {
        let path = authorities.as_ref();
        let authorities_file = (path.to_owned(), stamp(path));
        let authorities = certificates(path)?;
        let mut checked = RootCertStore::empty();
        for certificate in &authorities {
            checked.add(CertificateDer::from(certificate.der())).map_err(|why| wrong(path, why))?;
        }
        Ok(EtcdTls { authorities, client: None, authorities_file, client_files: None })
    }

    /// Reads the files again, if one has changed. Returns `None` if none has, or if they cannot be used as
    /// they are now.
    pub(super) fn renewed(&self) -> Option<EtcdTls> {
        let files = [&self.authorities_file].into_iter().chain(self.client_files.iter().flatten());
        if files.into_iter().all(|(path, former)| stamp(path) == *former) {
            return None;
        }
        let renewed = EtcdTls::trusting(&self.authorities_file.0).ok()?;
        match &self.client_files {
            Some([(certificate, _), (key, _)]) => renewed.certificate(certificate, key).ok(),
            None => Some(renewed),
        }
    }

    /// Shows etcd this certificate, which a PEM file holds with those of the authorities between, if there
    /// are any. Another PEM file holds its private key, without a passphrase.
    ///
    /// # Errors
    /// If a file cannot be read or holds something else, or if the key is not that of the certificate.
    pub fn certificate(
        mut self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
    ) -> Result<EtcdTls, EtcdTlsError> {
        let (certificate, key) = (certificate.as_ref(), key.as_ref());
        self.client_files = Some([certificate, key].map(|path| (path.to_owned(), stamp(path))));
        let (chain, key_text) = (certificates(certificate)?, read(key)?);
        let what = "it holds no private key in PEM (-----BEGIN PRIVATE KEY-----) without a passphrase";
        let private = PrivateKey::from_pem(&key_text).map_err(|_| wrong(key, what))?;
        check_pair(&chain, &key_text)
            .map_err(|why| wrong(key, format!("with the certificate in {}: {why}", certificate.display())))?;
        self.client = Some(ClientCert::new_with_certs(&chain, private));
        Ok(self)
    }
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdTls")
            .field("authorities", &self.authorities.len())
            .field("has_certificate", &self.client.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for EtcdTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the file {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for EtcdTlsError {}

/// Returns the settings of connections. Without `tls` nobody is trusted.
pub(super) fn config(tls: Option<&EtcdTls>) -> TlsConfig {
    let authorities = tls.map_or(&[][..], |tls| &tls.authorities);
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(authorities))
        .client_cert(tls.and_then(|tls| tls.client.clone()))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build()
}

/// Says why a connection by TLS has failed, where that needs more words than those of the library. `None` if
/// those suffice.
pub(super) fn explained(why: &ureq::Error) -> Option<String> {
    const WANTED: &str = "another certificate of this client, or one at all (FARCALL_ETCD_CERT and \
                          FARCALL_ETCD_KEY, or EtcdTls::certificate)";
    let inner = match why {
        ureq::Error::Rustls(inner) => inner,
        ureq::Error::Io(io) => match io.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(inner) => inner,
            // A member refuses a client after the handshake, and may close before the refusal is read.
            None => {
                let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof];
                let closed = closed.contains(&io.kind());
                return closed.then(|| format!("it has closed the connection ({io}); it may want {WANTED}"));
            }
        },
        _ => return None,
    };
    Some(match inner {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not of an authority that FARCALL_ETCD_CA or EtcdTls::trusting names".into()
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA,
        ) => format!("it wants {WANTED}: {inner}"),
        other => other.to_string(),
    })
}

/// Returns the certificates in a PEM file, of which there is at least one.
fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, EtcdTlsError> {
    let text = read(path)?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|why| wrong(path, why))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(wrong(path, "it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, EtcdTlsError> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|why| wrong(path, why))?;
    file.take(MAX_FILE + 1).read_to_end(&mut text).map_err(|why| wrong(path, why))?;
    if text.len() as u64 > MAX_FILE {
        return Err(wrong(path, format!("it is too long; at most {MAX_FILE} bytes are allowed")));
    }
    Ok(text)
}

/// Checks that TLS can use a certificate with the first private key in a PEM file. `ureq` would panic if it
/// cannot.
fn check_pair(chain: &[Certificate<'_>], key_text: &[u8]) -> Result<(), rustls::Error> {
    let chain = chain.iter().map(|certificate| CertificateDer::from(certificate.der().to_vec()));
    let key = PrivateKeyDer::from_pem_slice(key_text);
    let key = key.map_err(|why| rustls::Error::General(why.to_string()))?;
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain.collect(), key)?;
    Ok(())
}

fn wrong(path: &Path, why: impl fmt::Display) -> EtcdTlsError {
    EtcdTlsError { path: path.to_owned(), why: why.to_string() }
}
