//! Whom a host's certificate names: a SPIFFE identifier or DNS names, and whether it may do so.

use farcall_base::work;
use rustls_pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{BasicConstraints, KeyUsage, SubjectAltName};
use x509_cert::time::Time;

use super::spiffe::SpiffeId;
use crate::refusal::{Refusal, RefusalKind};
use crate::text::shown;

/// The most alternative names of a certificate.
const MAX_NAMES: usize = 100;

/// The maximum length of a DNS name in bytes.
const MAX_DNS_NAME_BYTES: usize = 253;

/// Whom a certificate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Spiffe(SpiffeId),
    /// DNS names in lower case, at least one.
    Dns(Vec<String>),
}

/// What a host's certificate says.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) subject: Subject,
    /// The last second at which it is valid.
    pub(super) not_after: u64,
}

/// What a certificate says of its validity and of its key.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) not_before: u64,
    pub(super) not_after: u64,
    pub(super) is_authority: bool,
    pub(super) usage: Option<KeyUsage>,
    names: Option<SubjectAltName>,
}

const ADVICE: &str = "ask the certificate authority for one that identifies this host";

impl Leaf {
    /// Reads a host's certificate, and checks what does not depend on its issuer: its time, its names, and
    /// that it may sign, but not for others. The rules are those of X.509-SVID if it has a URI.
    pub(super) fn read(certificate: &CertificateDer<'_>, now: u64) -> Result<Leaf, Refusal> {
        let facts = Facts::read(certificate)
            .map_err(|why| wrong("an X.509 certificate", format!("something else ({why})")))?;
        let not_after = facts.not_after;
        if facts.is_authority {
            let found = "that of a certificate authority (CA is true)";
            return Err(wrong("a host's own certificate as the first one", found.to_owned()));
        }
        check_time(&facts, now)?;
        let (uris, dns_names) = facts.names()?;
        let is_svid = !uris.is_empty();
        check_usage(facts.usage, is_svid)?;
        let subject = match uris.as_slice() {
            [] => Subject::Dns(dns_names),
            [uri] => Subject::Spiffe(SpiffeId::parse(uri).map_err(|why| {
                let found = format!("the URI {}: {why}", shown(uri));
                wrong("a SPIFFE identifier, as spiffe://example.org/store", found)
            })?),
            more => {
                let found = format!("{} URIs", more.len());
                return Err(wrong("one URI, a SPIFFE identifier, in the certificate", found));
            }
        };
        Ok(Leaf { subject, not_after })
    }
}

impl Facts {
    /// Reads a certificate. Its length is bounded by the caller.
    pub(super) fn read(certificate: &CertificateDer<'_>) -> Result<Facts, x509_cert::der::Error> {
        work::steps(1 + certificate.len() / 16);
        let certificate = Certificate::from_der(certificate)?;
        let certificate = certificate.tbs_certificate();
        let seconds = |time: Time| time.to_unix_duration().as_secs();
        let validity = certificate.validity();
        let constraints = certificate.get_extension::<BasicConstraints>()?;
        Ok(Facts {
            not_before: seconds(validity.not_before),
            not_after: seconds(validity.not_after),
            is_authority: constraints.is_some_and(|(_, constraints)| constraints.ca),
            usage: certificate.get_extension::<KeyUsage>()?.map(|(_, usage)| usage),
            names: certificate.get_extension::<SubjectAltName>()?.map(|(_, names)| names),
        })
    }

    /// Returns the URIs and the DNS names. Names with `*` stand for no host, and count for nothing.
    fn names(&self) -> Result<(Vec<&str>, Vec<String>), Refusal> {
        let names = self.names.as_ref().map_or(&[][..], |names| &names.0);
        if names.len() > MAX_NAMES {
            let found = format!("{} names", names.len());
            return Err(wrong(&format!("at most {MAX_NAMES} names in the certificate"), found));
        }
        let (mut uris, mut dns_names) = (Vec::new(), Vec::new());
        for name in names {
            match name {
                GeneralName::UniformResourceIdentifier(uri) => uris.push(uri.as_str()),
                GeneralName::DnsName(name) if is_dns_name(name.as_str()) => {
                    dns_names.push(name.as_str().to_ascii_lowercase());
                }
                // The names of no host: addresses of mail, addresses of IP, and others.
                _ => {}
            }
        }
        if uris.is_empty() && dns_names.is_empty() {
            let expected =
                "a certificate that names a SPIFFE identifier or a DNS name (subject alternative names)";
            return Err(wrong(expected, "one without such a name".to_owned()));
        }
        Ok((uris, dns_names))
    }
}

/// Returns whether this is the name of a host: labels of letters, digits, `-` and `_` with dots between them.
pub(super) fn is_dns_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_plain);
    text.len() <= MAX_DNS_NAME_BYTES && text.split('.').all(is_label)
}

fn check_time(facts: &Facts, now: u64) -> Result<(), Refusal> {
    let refused = |found: String, advice: &str| {
        Err(Refusal::new(RefusalKind::Expired, "a certificate that is valid now", found, advice))
    };
    // A certificate is valid during the last second, but a grant that ends with it would be worth nothing.
    if now >= facts.not_after {
        let found = format!("one that expired {} s ago, by this clock ({now})", now - facts.not_after);
        return refused(found, "get a new certificate, and set the clocks of both machines right");
    }
    if now < facts.not_before {
        let found = format!("one that will be valid in {} s, by this clock ({now})", facts.not_before - now);
        return refused(found, "set the clocks of both machines right");
    }
    Ok(())
}

fn check_usage(usage: Option<KeyUsage>, is_svid: bool) -> Result<(), Refusal> {
    let Some(usage) = usage else {
        let found = "a certificate that says nothing of its key usage".to_owned();
        return if is_svid { Err(wrong("the key usage digital signature", found)) } else { Ok(()) };
    };
    if usage.key_cert_sign() || usage.crl_sign() {
        let found = "a certificate whose key may sign certificates or revocation lists";
        return Err(wrong("a host's own certificate as the first one", found.to_owned()));
    }
    match usage.digital_signature() {
        true => Ok(()),
        false => Err(wrong("the key usage digital signature", "other key usages".to_owned())),
    }
}

fn wrong(expected: &str, found: String) -> Refusal {
    Refusal::new(RefusalKind::WrongCertificate, expected, found, ADVICE)
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Spiffe(id) => write!(f, "{id}"),
            Subject::Dns(names) => {
                let first = names.first().map_or("", String::as_str);
                write!(f, "dns:{first}")?;
                if names.len() > 1 { write!(f, " and {} more", names.len() - 1) } else { Ok(()) }
            }
        }
    }
}
