//! Seeds of enrolments by certificate: policies, certificates, requests and answers. All keys are of Ed25519 and
//! fixed, so the bytes are always the same.

use std::time::Duration;

use base64::Engine as _;
use farcall_fuzz_targets::certificates::{KEY, NOW, RULES, request, service};
use farcall_keys::{CertificatePolicy, MAX_GRANTS_OF_RULE};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};

use super::seed;

type Issuer = CertifiedIssuer<'static, KeyPair>;

pub fn certificates() {
    let root = Issuer::self_signed(ca("a root"), key(5)).expect("a certificate");
    let between = Issuer::signed_by(ca("an issuer"), key(6), &root).expect("a certificate");
    let uri = |text: &str| SanType::URI(text.try_into().expect("a URI"));
    let dns = |text: &str| SanType::DnsName(text.try_into().expect("a name"));
    let host_key = KeyPair::from_pem(KEY).expect("a private key");
    let certified = |name, issuer: &Issuer| host(name).signed_by(&host_key, issuer).expect("a certificate");
    let svid = certified(uri("spiffe://example.org/team/ann"), &root);
    let behind = certified(dns("a.hosts.example.org"), &between);
    let chain = format!("{}{}{KEY}", behind.pem(), between.pem());
    for (name, rules, shown) in [
        ("svid", RULES, format!("{}{KEY}", svid.pem())),
        ("chain", RULES, chain),
        ("denied", "bundle spiffe://example.org b\ndeny spiffe://example.org/team/ann\n", svid.pem()),
        ("unknown", "bundle dns b\nallow dns:db.example.org db export,import *\n", svid.pem()),
        ("empty", "# nothing\n", String::new()),
    ] {
        let parts = [rules.as_bytes(), root.pem().as_bytes(), shown.as_bytes()].join(&0);
        seed("certificates", name, &parts);
    }
    let policy = CertificatePolicy::parse(RULES.as_bytes(), |_| Some(root.pem().into_bytes()));
    let policy = policy.expect("rules and a bundle");
    let asks = request(svid.der());
    seed("certificate_request", "svid", &[root.pem().as_bytes(), asks.as_bytes()].join(&0));
    let other = request(behind.der());
    seed("certificate_request", "unknown issuer", &[root.pem().as_bytes(), other.as_bytes()].join(&0));
    let enrolled = service().answer(&policy, asks.as_bytes(), [7; MAX_GRANTS_OF_RULE], NOW);
    seed("certificate_answer", "to another request", &enrolled.expect("a good request").answer);
}

/// Returns a key of Ed25519 with this entropy.
fn key(byte: u8) -> KeyPair {
    const HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let base64 = base64::engine::general_purpose::STANDARD.encode([&HEAD[..], &[byte; 32]].concat());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{base64}\n-----END PRIVATE KEY-----\n");
    KeyPair::from_pem(&pem).expect("a private key")
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let time = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    (params.not_before, params.not_after) = (time(NOW - 3600), time(NOW + 86_400));
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from(7));
    params
}

/// The certificate of a host, as an X.509-SVID has it.
fn host(name: SanType) -> CertificateParams {
    let mut params = params("a host");
    params.subject_alt_names = vec![name];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn ca(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
