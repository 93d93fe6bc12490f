//! Fuzz targets for enrolment by X.509 certificates: certificates in PEM, the policy that judges them, requests
//! and answers.
//!
//! Their inputs consist of parts with a zero byte between them.

use std::sync::LazyLock;

use farcall_keys::{
    CertificateChain, CertificateEnrolment, CertificateKey, CertificatePolicy, CertificateRequest, Grant,
    Identity, LineFault, MAX_GRANTS_OF_RULE, fuzz_certificate_request, fuzz_certificates,
};

/// The time, in Unix seconds, at which everything is judged.
pub const NOW: u64 = 1_800_000_000;

/// The policy of the authority that gets requests.
pub const RULES: &str = "\
bundle spiffe://example.org  bundle.pem
bundle dns                   bundle.pem
deny   spiffe://example.org/test/*
allow  spiffe://example.org/team/*   team-*  import Store hours=8
allow  dns:*.hosts.example.org       host-*  export Store/main import Bank
";

/// The private key of a certificate, in PKCS #8: Ed25519, so that signatures are always the same.
pub const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIAkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJ
-----END PRIVATE KEY-----
";

/// Reads a policy, the bundle that all of its lines name, and a chain of certificates with its private key.
/// Judges the chain.
pub fn certificates(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let [rules, bundle, chain] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let policy = checked(CertificatePolicy::parse(rules, |_| Some(bundle.to_vec())));
    let key = checked(CertificateKey::from_pem(chain));
    let Some(chain) = checked(CertificateChain::from_pem(chain)) else { return };
    if let Some(key) = key {
        checked(key.check(&chain));
    }
    if let Some(policy) = policy {
        fuzz_certificates(&policy, &chain, NOW);
    }
}

/// Reads a bundle and a request by a certificate. Judges the certificates of the request, and answers it.
pub fn certificate_request(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == 0);
    let [bundle, request] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let rules = RULES.as_bytes();
    let Some(policy) = checked(CertificatePolicy::parse(rules, |_| Some(bundle.to_vec()))) else { return };
    let gets_grants = fuzz_certificate_request(&policy, request, NOW);
    let (mut service, serials) = (service(), [1; MAX_GRANTS_OF_RULE]);
    if let Ok(enrolled) = service.answer(&policy, request, serials, NOW) {
        assert!(gets_grants && enrolled.grants.iter().all(Grant::is_genuine));
        assert!(service.answer(&policy, request, serials, NOW).is_err(), "a challenge counts once");
    }
}

/// Reads an answer to a request by a certificate.
pub fn certificate_answer(data: &[u8]) {
    static REQUEST: LazyLock<CertificateRequest> = LazyLock::new(|| request(b"a certificate"));
    let (authority, host) = (authority(), host());
    if let Ok(grants) = REQUEST.accept(data, NOW) {
        let is_ours = |grant: &Grant| grant.terms().key == host.public() && grant.terms().expires > NOW;
        assert!(grants.iter().all(|grant| is_ours(grant) && grant.authority() == authority.public()));
    }
}

/// Returns the authority to which the requests go.
pub fn authority() -> Identity {
    Identity::from_entropy([1; 32])
}

/// Returns the service of the authority.
pub fn service() -> CertificateEnrolment {
    CertificateEnrolment::new(authority(), [2; 32])
}

/// Returns the identity of the host that asks.
pub fn host() -> Identity {
    Identity::from_entropy([7; 32])
}

/// Returns the host's request, by a certificate with these bytes and [`KEY`].
///
/// # Panics
/// If the operating system gives no entropy.
pub fn request(certificate: &[u8]) -> CertificateRequest {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(certificate);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
    let chain = CertificateChain::from_pem(pem.as_bytes()).expect("a certificate");
    let key = CertificateKey::from_pem(KEY.as_bytes()).expect("a private key");
    let challenge = service().challenge([3; 16], NOW);
    CertificateRequest::new(authority().public(), &host(), (&chain, &key), &challenge, &[4; 32])
        .expect("a challenge of the right length")
}

/// Returns what was read. A fault is one line.
fn checked<T>(read: Result<T, LineFault>) -> Option<T> {
    read.map_err(|why| assert_eq!(why.to_string().lines().count(), 1, "{why}")).ok()
}
