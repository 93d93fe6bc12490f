//! Tests enrolment by certificates: who gets grants, who does not and why, and that a call works with them.

use std::cell::Cell;
use std::io::Write as _;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farcall_keys::{
    CertificateChain, CertificateEnrolment, CertificateFiles, CertificateKey, CertificatePolicy,
    CertificateRequest, Enrolled, KeyFiles, Keyring, LineFault, MAX_CERTIFICATE_REQUEST_BYTES,
    MAX_CHAIN_CERTIFICATES, MAX_GRANTS_OF_RULE, PublicKey, Refusal, RefusalKind, Right, Rights,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::common::{AUTHORITY, CLIENT, DAY, NOW, OTHER, SERVER, identity, key, terms};

const HOUR: u64 = 3600;

const RULES: &str = "\
bundle spiffe://example.org   example.pem   # who may name spiffe://example.org/...
bundle dns                    example.pem
deny   spiffe://example.org/team/eve
allow  spiffe://example.org/store    store   export Store/main import Bank hours=8
allow  spiffe://example.org/team/*   team-*  import Store
allow  dns:*.hosts.example.org       host-*  import Store
allow  dns:db.example.org            db      export,import Store/db
";

type Issuer = CertifiedIssuer<'static, KeyPair>;

/// Whom a certificate names.
fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

/// What all certificates of the tests have in common: the hour around [`NOW`], and a name.
fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let time = |seconds| rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds);
    (params.not_before, params.not_after) = (time(NOW - HOUR), time(NOW + HOUR));
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The certificate of a host, as an X.509-SVID has it.
fn host(names: &[SanType]) -> CertificateParams {
    let mut params = params("a host");
    params.subject_alt_names = names.to_vec();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// The certificate of an authority that is valid for a year.
fn ca(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.not_after += std::time::Duration::from_secs(365 * DAY);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn root(name: &str) -> Issuer {
    CertifiedIssuer::self_signed(ca(name), KeyPair::generate().unwrap()).unwrap()
}

/// A certificate authority, an authority of grants that believes it, and the time.
struct World {
    root: Issuer,
    policy: CertificatePolicy,
    service: CertificateEnrolment,
    /// How many requests were made.
    requests: Cell<u32>,
}

/// A host's chain of certificates and private key.
struct Host {
    chain: CertificateChain,
    key: CertificateKey,
}

impl World {
    fn new() -> World {
        let root = root("an authority");
        let pem = root.pem();
        let policy = CertificatePolicy::parse(RULES.as_bytes(), |file| {
            assert_eq!(file, "example.pem");
            Some(pem.clone().into_bytes())
        });
        let service = CertificateEnrolment::new(identity(AUTHORITY), [7; 32]);
        World { policy: policy.unwrap(), service, root, requests: Cell::new(0) }
    }

    /// A host with a certificate of the authority.
    fn host(&self, names: &[SanType]) -> Host {
        Host::new(host(names), &self.root)
    }

    /// Makes the request of a host for the service's challenge of now.
    fn request(&self, host: &Host) -> CertificateRequest {
        self.requests.set(self.requests.get() + 1);
        let random = u128::from(self.requests.get()).to_be_bytes();
        let challenge = self.service.challenge(random, NOW);
        host.request(key(AUTHORITY), &challenge)
    }

    fn answer(&mut self, request: &[u8], now: u64) -> Result<Enrolled, Refusal> {
        self.service.answer(&self.policy, request, serials(), now)
    }

    /// Enrols a host, and returns its principal, or the kind and the text of the refusal.
    fn enrol(&mut self, host: &Host) -> Result<String, (RefusalKind, String)> {
        let request = self.request(host);
        let enrolled = self.answer(request.as_bytes(), NOW).map_err(|why| (why.kind(), why.to_string()))?;
        let grants = request.accept(&enrolled.answer, NOW).unwrap();
        assert_eq!(grants, enrolled.grants);
        Ok(grants[0].terms().principal.to_string())
    }

    /// Enrols a host, and expects a refusal of this kind with these parts in its text.
    fn refuse(&mut self, host: &Host, kind: RefusalKind, parts: &[&str]) {
        let (found, text) = self.enrol(host).unwrap_err();
        assert_eq!(found, kind, "{text}");
        for part in [&["expected ", "; found ", "; "], parts].concat() {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }
}

impl Host {
    fn new(params: CertificateParams, issuer: &Issuer) -> Host {
        Host::with_key(params, issuer, &KeyPair::generate().unwrap())
    }

    fn with_key(params: CertificateParams, issuer: &Issuer, key: &KeyPair) -> Host {
        let pem = params.signed_by(key, issuer).unwrap().pem();
        Host::of_pem(&pem, &key.serialize_pem())
    }

    fn of_pem(chain: &str, key: &str) -> Host {
        Host {
            chain: CertificateChain::from_pem(chain.as_bytes()).unwrap(),
            key: CertificateKey::from_pem(key.as_bytes()).unwrap(),
        }
    }

    fn request(&self, authority: PublicKey, challenge: &[u8]) -> CertificateRequest {
        let own = (&self.chain, &self.key);
        CertificateRequest::new(authority, &identity(CLIENT), own, challenge, &[6; 32]).unwrap()
    }
}

fn serials() -> [u64; MAX_GRANTS_OF_RULE] {
    [17, 18, 19, 20]
}

#[test]
fn a_good_svid_gets_the_grants_of_its_rule_until_its_certificate_ends() {
    let mut world = World::new();
    let store = world.host(&[uri("spiffe://example.org/store"), dns("ignored.example.org")]);
    store.key.check(&store.chain).unwrap();
    let request = world.request(&store);
    let enrolled = world.answer(request.as_bytes(), NOW).unwrap();
    assert_eq!(enrolled.subject, "spiffe://example.org/store");
    let grants = request.accept(&enrolled.answer, NOW).unwrap();
    let found: Vec<_> = grants.iter().map(|grant| grant.terms()).collect();
    for (terms, serial) in found.iter().zip(17..) {
        assert_eq!((terms.key, &**terms.principal, terms.serial), (key(CLIENT), "store", serial));
        assert_eq!(terms.expires, NOW + HOUR, "the certificate ends before the eight hours");
    }
    let [export, import] = found.as_slice() else { panic!("{grants:?}") };
    assert_eq!((export.rights, export.scope.to_string().as_str()), (Rights::EXPORT, "Store/main"));
    assert_eq!((import.rights, import.scope.to_string().as_str()), (Rights::IMPORT, "Bank"));
    // Somebody who believes the authority of grants believes the host.
    let mut own = Keyring::new(identity(CLIENT));
    for grant in grants {
        own = own.with_grant(grant).unwrap();
    }
    let other = Keyring::new(identity(SERVER)).with_authority(key(AUTHORITY));
    let shown = own.presentation("Store", "main", Right::Export);
    assert_eq!(&*other.check_server("Store", "main", &shown, NOW).unwrap().name, "store");
    assert!(other.check_server("Store", "main", &shown, NOW + HOUR).is_err());
}

#[test]
fn rules_name_principals_after_spiffe_identifiers_and_dns_names() {
    let mut world = World::new();
    for (name, principal) in [
        (uri("spiffe://example.org/team/alice"), "team-alice"),
        (uri("spiffe://example.org/team/a/b"), "team-a/b"),
        (dns("web1.hosts.example.org"), "host-web1"),
        (dns("DB.example.org"), "db"),
    ] {
        let host = world.host(&[name]);
        assert_eq!(world.enrol(&host).as_deref(), Ok(principal));
    }
    // A long time of validity does not make a long grant.
    let mut params = host(&[dns("db.example.org")]);
    params.not_after += std::time::Duration::from_secs(90 * DAY);
    let request = world.request(&Host::new(params, &world.root));
    let enrolled = world.answer(request.as_bytes(), NOW).unwrap();
    assert_eq!(enrolled.grants[0].terms().expires, NOW + DAY);
}

#[test]
fn keys_of_each_kind_prove_their_certificates() {
    let mut world = World::new();
    let team = [uri("spiffe://example.org/team/alice")];
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let host = Host::with_key(host(&team), &world.root, &key);
        assert_eq!(world.enrol(&host).as_deref(), Ok("team-alice"), "{algorithm:?}");
    }
}

#[test]
fn an_rsa_key_proves_its_certificate_in_either_form() {
    let directory = tempfile::tempdir().unwrap();
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        let made = command
            .args(arguments)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status();
        made.is_ok_and(|status| status.success())
    };
    let is_made = openssl(&["genpkey", "-algorithm", "RSA", "-out", "pkcs8"])
        && openssl(&["pkey", "-traditional", "-in", "pkcs8", "-out", "pkcs1"]);
    if !is_made {
        writeln!(std::io::stderr(), "skipped: an RSA key: there is no openssl").unwrap();
        return;
    }
    let read = |file: &str| std::fs::read_to_string(directory.path().join(file)).unwrap();
    let mut world = World::new();
    let names = [uri("spiffe://example.org/store")];
    let chain =
        host(&names).signed_by(&KeyPair::from_pem(&read("pkcs8")).unwrap(), &world.root).unwrap().pem();
    for file in ["pkcs8", "pkcs1"] {
        assert_eq!(world.enrol(&Host::of_pem(&chain, &read(file))).as_deref(), Ok("store"), "{file}");
    }
}

#[test]
fn issuers_between_the_host_and_the_bundle_are_sent_by_the_host() {
    let mut world = World::new();
    let names = [uri("spiffe://example.org/store")];
    let issuer = |params: CertificateParams| {
        CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &world.root).unwrap()
    };
    let key = KeyPair::generate().unwrap();
    let chain = |issuer: &Issuer| {
        let own = host(&names).signed_by(&key, issuer).unwrap().pem();
        [own, issuer.pem()]
    };
    let mut short = ca("an issuer whose time ends before the host's");
    short.not_after = params("").not_after - std::time::Duration::from_secs(600);
    let good = chain(&issuer(short));
    let mut unfit = ca("an issuer that may not sign");
    unfit.key_usages = vec![KeyUsagePurpose::CrlSign];
    let unfit = chain(&issuer(unfit)).concat();
    let mut no_ca = ca("a host that signs");
    no_ca.is_ca = IsCa::ExplicitNoCa;
    let no_ca = chain(&issuer(no_ca)).concat();
    let key = key.serialize_pem();

    let request = world.request(&Host::of_pem(&good.concat(), &key));
    let enrolled = world.answer(request.as_bytes(), NOW).unwrap();
    assert_eq!(enrolled.grants[0].terms().expires, NOW + HOUR - 600);
    let parts =
        ["lead to none of its 1 valid authorities and 0 others", "send the issuers' certificates too"];
    world.refuse(&Host::of_pem(&good[0], &key), RefusalKind::UntrustedCertificate, &parts);
    for chain in [unfit, no_ca] {
        world.refuse(&Host::of_pem(&chain, &key), RefusalKind::UntrustedCertificate, &[]);
    }
}

#[test]
fn certificates_of_others_are_refused() {
    let mut world = World::new();
    let stranger = root("an authority");
    let other = Host::new(host(&[uri("spiffe://example.org/store")]), &stranger);
    world.refuse(&other, RefusalKind::UntrustedCertificate, &["an authority of the trust bundle"]);
    let other = world.host(&[uri("spiffe://example.com/store")]);
    let parts = ["of a trust domain that the authority knows", "spiffe://example.com/store"];
    world.refuse(&other, RefusalKind::OtherTrustDomain, &parts);
    for name in ["spiffe://example.org/stores", "spiffe://example.org/team", "spiffe://example.org/store/x"] {
        let other = world.host(&[uri(name)]);
        world.refuse(&other, RefusalKind::NoRule, &["that a rule is about", name]);
    }
    let eve = world.host(&[uri("spiffe://example.org/team/eve")]);
    world.refuse(&eve, RefusalKind::NoRule, &["one that denies", "the authority's operator can add a rule"]);
    for name in ["hosts.example.org", "db.example.org.evil.org", "*.hosts.example.org"] {
        let other = world.host(&[dns(name)]);
        let kind = if name.contains('*') { RefusalKind::WrongCertificate } else { RefusalKind::NoRule };
        world.refuse(&other, kind, &[]);
    }
    let long = world.host(&[uri(&format!("spiffe://example.org/team/{}", "x".repeat(60)))]);
    world.refuse(&long, RefusalKind::NoRule, &["makes a principal of its name", "1 to 64 letters"]);
}

#[test]
fn a_certificate_must_be_valid_now_and_that_of_a_host() {
    let mut world = World::new();
    let store = [uri("spiffe://example.org/store")];
    let mut refuse = |change: &dyn Fn(&mut CertificateParams), kind, parts: &[&str]| {
        let mut params = host(&store);
        change(&mut params);
        let host = Host::new(params, &world.root);
        world.refuse(&host, kind, parts);
    };
    let wrong = RefusalKind::WrongCertificate;
    let minute = std::time::Duration::from_secs(60);
    let hour = 60 * minute;
    refuse(
        &|it| it.not_after -= hour + minute,
        RefusalKind::Expired,
        &["one that expired 60 s ago", "new certificate"],
    );
    refuse(&|it| it.not_before += hour + minute, RefusalKind::Expired, &["valid in 60 s", "set the clocks"]);
    let ca = |it: &mut CertificateParams| it.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    refuse(&ca, wrong, &["a host's own certificate", "that of a certificate authority (CA is true)"]);
    let signer = |it: &mut CertificateParams| it.key_usages.push(KeyUsagePurpose::KeyCertSign);
    refuse(&signer, wrong, &["whose key may sign certificates"]);
    refuse(
        &|it| it.key_usages = vec![KeyUsagePurpose::KeyAgreement],
        wrong,
        &["digital signature", "other key usages"],
    );
    refuse(&|it| it.key_usages = vec![], wrong, &["says nothing of its key usage"]);
    let server =
        |it: &mut CertificateParams| it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    refuse(&server, RefusalKind::UntrustedCertificate, &["client authentication"]);
    let two = |it: &mut CertificateParams| it.subject_alt_names.push(uri("spiffe://example.org/team/alice"));
    refuse(&two, wrong, &["expected one URI", "found 2 URIs", "ask the certificate authority"]);
    refuse(&|it| it.subject_alt_names.clear(), wrong, &["one without such a name"]);
    for name in [
        "https://example.org/store",
        "spiffe://example.org",
        "spiffe://example.org/",
        "spiffe://Example.org/store",
        "spiffe://example.org/a//b",
        "spiffe://example.org/../store",
        "spiffe://example.org/store?x",
        "spiffe://user@example.org/store",
        "spiffe://example.org:443/store",
    ] {
        let spelled = |it: &mut CertificateParams| it.subject_alt_names = vec![uri(name)];
        refuse(&spelled, wrong, &["a SPIFFE identifier, as spiffe://example.org/store", name]);
    }
}

#[test]
fn a_bundle_of_which_all_authorities_have_expired_believes_nobody() {
    let mut world = World::new();
    let mut params = host(&[uri("spiffe://example.org/store")]);
    params.not_after += std::time::Duration::from_secs(800 * DAY);
    let request = Host::new(params, &world.root);
    let now = NOW + 400 * DAY;
    let challenge = world.service.challenge([5; 16], now);
    let request = request.request(key(AUTHORITY), &challenge);
    let why = world.answer(request.as_bytes(), now).unwrap_err();
    assert!(why.to_string().contains("none of its 0 valid authorities and 1 others"), "{why}");
}

#[test]
fn a_certificate_without_its_private_key_is_worth_nothing() {
    let mut world = World::new();
    let mut thief = world.host(&[uri("spiffe://example.org/store")]);
    thief.key = world.host(&[]).key;
    let parts = ["a proof by the private key of the certificate", "one by another key"];
    world.refuse(&thief, RefusalKind::WrongPrivateKey, &parts);
    let why = thief.key.check(&thief.chain).unwrap_err().to_string();
    assert!(why.contains("expected the private key of the certificate; found that of another one"), "{why}");
}

#[test]
fn a_proof_counts_once_for_a_minute_at_one_service_for_one_key() {
    let mut world = World::new();
    let store = world.host(&[uri("spiffe://example.org/store")]);
    let request = world.request(&store);
    let refuse = |world: &mut World, request: &CertificateRequest, now, kind, part: &str| {
        let why = world.answer(request.as_bytes(), now).unwrap_err();
        assert!(why.kind() == kind && why.to_string().contains(part), "{why}");
    };
    refuse(&mut world, &request, NOW + 60, RefusalKind::StaleChallenge, "one that is 60 s old");
    // A clock that goes back revives nothing.
    refuse(&mut world, &request, NOW, RefusalKind::StaleChallenge, "one that is 60 s old");
    world.service = CertificateEnrolment::new(identity(AUTHORITY), [7; 32]);
    world.answer(request.as_bytes(), NOW + 59).unwrap();
    refuse(&mut world, &request, NOW + 59, RefusalKind::UsedChallenge, "a proof that has come before");
    refuse(&mut world, &request, NOW + 60, RefusalKind::StaleChallenge, "one that is 60 s old");
    // Another service of the same authority, or the same one after a restart.
    world.service = CertificateEnrolment::new(identity(AUTHORITY), [8; 32]);
    refuse(&mut world, &request, NOW, RefusalKind::StaleChallenge, "somebody else issued");
    // Another authority.
    let challenge = world.service.challenge([5; 16], NOW);
    let request = store.request(key(OTHER), &challenge);
    refuse(
        &mut world,
        &request,
        NOW,
        RefusalKind::OtherAuthority,
        "a request to the authority with the fingerprint",
    );
}

#[test]
fn somebody_on_the_way_can_change_nothing_of_a_certificates_enrolment() {
    let mut world = World::new();
    let store = world.host(&[uri("spiffe://example.org/store")]);
    let request = world.request(&store);
    let good = request.as_bytes();
    assert!(good.len() <= MAX_CERTIFICATE_REQUEST_BYTES);
    for at in 0..good.len() {
        let mut changed = good.to_vec();
        changed[at] ^= 1;
        assert!(world.answer(&changed, NOW).is_err(), "byte {at}");
        assert!(world.answer(&good[..at], NOW).is_err(), "{at} bytes");
    }
    assert!(world.answer(&[good, &[0]].concat(), NOW).is_err());
    // Somebody's own key in place of the host's, signed by it again.
    let mut stolen = good[..good.len() - 64].to_vec();
    stolen[17..49].copy_from_slice(key(OTHER).as_bytes());
    let context = farcall_keys::Context::new("farcall certificate request 1");
    stolen.extend_from_slice(&identity(OTHER).sign(context, &stolen));
    assert_eq!(world.answer(&stolen, NOW).unwrap_err().kind(), RefusalKind::WrongPrivateKey);

    let answer = world.answer(good, NOW).unwrap().answer;
    for at in 0..answer.len() {
        let mut changed = answer.clone();
        changed[at] ^= 1;
        assert!(request.accept(&changed, NOW).is_err(), "byte {at}");
        assert!(request.accept(&answer[..at], NOW).is_err(), "{at} bytes");
    }
    // An answer is for one request, and its grants end.
    let again = store.request(key(AUTHORITY), &world.service.challenge([9; 16], NOW));
    assert_eq!(again.accept(&answer, NOW).unwrap_err().kind(), RefusalKind::Forged);
    assert_eq!(request.accept(&answer, NOW + HOUR).unwrap_err().kind(), RefusalKind::Expired);
    assert_eq!(request.accept(&answer, NOW).unwrap().len(), 2);
}

#[test]
fn a_certificate_of_which_one_byte_was_changed_is_refused_although_its_key_proves_it() {
    let mut world = World::new();
    let key = KeyPair::generate().unwrap();
    let names = [uri("spiffe://example.org/store"), dns("a.example.org")];
    let der = host(&names).signed_by(&key, &world.root).unwrap().der().to_vec();
    for at in 0..der.len() {
        for bit in [0, 7] {
            let mut changed = der.clone();
            changed[at] ^= 1 << bit;
            let base64 = STANDARD.encode(&changed);
            let pem = format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n");
            assert!(world.enrol(&Host::of_pem(&pem, &key.serialize_pem())).is_err(), "byte {at}");
        }
    }
}

#[test]
fn chains_and_requests_have_bounds() {
    let world = World::new();
    let one = world.root.pem();
    let wrong = |pem: &str| CertificateChain::from_pem(pem.as_bytes()).unwrap_err().to_string();
    assert!(CertificateChain::from_pem(one.repeat(MAX_CHAIN_CERTIFICATES).as_bytes()).is_ok());
    assert!(wrong(&one.repeat(MAX_CHAIN_CERTIFICATES + 1)).contains("at most 6 certificates"));
    assert!(wrong("").contains("found no certificate"));
    assert!(
        wrong("-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----\n").contains("certificates in PEM")
    );
    let mut large = host(&[]);
    large.subject_alt_names = (0..2000).map(|n| dns(&format!("host-{n}.example.org"))).collect();
    let large = large.signed_by(&KeyPair::generate().unwrap(), &world.root).unwrap().pem();
    assert!(wrong(&large).contains("at most 16384 bytes together"));
    let key = |pem: &str| CertificateKey::from_pem(pem.as_bytes()).unwrap_err().to_string();
    assert!(key(&one).contains("expected a private key in PEM (PKCS #8)"));
    let sec1 = KeyPair::generate().unwrap().serialize_pem().replace("PRIVATE KEY", "EC PRIVATE KEY");
    assert!(key(&sec1).contains("openssl pkcs8 -topk8"));
    let mut world = world;
    let long = vec![1; MAX_CERTIFICATE_REQUEST_BYTES + 1];
    assert_eq!(world.answer(&long, NOW).unwrap_err().kind(), RefusalKind::Malformed);
}

#[test]
fn faults_of_a_policy_name_the_line_and_what_to_do() {
    let pem = root("an authority").pem();
    let fault = |rules: &str| -> LineFault {
        let read = |file: &str| match file {
            "good.pem" => Some(pem.clone().into_bytes()),
            "host.pem" => {
                let key = KeyPair::generate().unwrap();
                Some(host(&[]).self_signed(&key).unwrap().pem().into_bytes())
            }
            "none.pem" => Some(b"nothing".to_vec()),
            _ => None,
        };
        CertificatePolicy::parse(format!("bundle dns good.pem\n{rules}").as_bytes(), read).unwrap_err()
    };
    for (rules, part) in [
        ("allow spiffe://example.org/a a import A", "a bundle for spiffe://example.org above the rule"),
        ("bundle dns good.pem", "one bundle for dns"),
        (
            "bundle spiffe://Example.org good.pem",
            "spiffe://TRUST-DOMAIN, or dns; found \"spiffe://Example.org\"",
        ),
        ("bundle spiffe://a missing.pem", "a bundle that can be read; found \"missing.pem\""),
        ("bundle spiffe://a none.pem", "found in none.pem: no certificate"),
        ("bundle spiffe://a host.pem", "found in host.pem: certificate 1: it may not sign certificates"),
        ("allow dns:* a import A", "dns:NAME, or dns:*.NAME; found \"dns:*\""),
        ("allow dns:.a a import A", "dns:NAME, or dns:*.NAME"),
        ("deny spiffe://example.org*", "with /* behind it"),
        ("deny spiffe://example.org/a*", "with /* behind it"),
        ("deny spiffe://*", "with /* behind it"),
        ("allow dns:a.org a-* import A", "a whole principal; found a principal with a *"),
        ("allow dns:a.org a", "one to four pairs of RIGHT NAME; found 0 words"),
        ("allow dns:a.org a import", "found \"import\" without a name"),
        ("allow dns:a.org a call A", "export, import or export,import; found \"call\""),
        ("allow dns:a.org a import A hours=0", "hours= and 1 to 2160; found \"0\""),
        ("allow dns:a.org a import Sto*", "a whole type, or *"),
        ("permit dns:a.org", "found \"permit dns:a.org\""),
    ] {
        let why = fault(rules);
        assert_eq!(why.line(), Some(2));
        assert!(why.to_string().contains(part), "{part:?} is not in \"{why}\"");
    }
}

#[cfg(unix)]
#[test]
fn a_changed_bundle_or_policy_counts_and_a_bad_one_keeps_the_last_good_one() {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, content: &str| {
        let path = directory.path().join(file);
        let new = directory.path().join("new");
        std::fs::write(&new, content).unwrap();
        std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    };
    let mut world = World::new();
    write("example.pem", &root("another authority").pem());
    let rules = write("certificates", RULES);
    let (mut files, policy) = CertificateFiles::open(&rules).unwrap();
    assert!(files.reload().unwrap().is_none(), "nothing has changed");
    let store = world.host(&[uri("spiffe://example.org/store")]);
    world.policy = policy;
    world.refuse(&store, RefusalKind::UntrustedCertificate, &[]);
    write("example.pem", &world.root.pem());
    world.policy = files.reload().unwrap().unwrap();
    assert_eq!(world.enrol(&store).as_deref(), Ok("store"));
    write("certificates", &format!("{RULES}allow"));
    for _ in 0..2 {
        let fault = files.reload().unwrap_err();
        assert_eq!((fault.path(), fault.line()), (rules.as_path(), Some(8)));
    }
    std::fs::remove_file(directory.path().join("example.pem")).unwrap();
    write("certificates", RULES);
    let fault = files.reload().unwrap_err().to_string();
    assert!(fault.contains("certificates, line 1: expected a bundle that can be read"), "{fault}");
    let open = write("example.pem", &world.root.pem());
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let fault = files.reload().unwrap_err();
    assert_eq!(fault.path(), open, "{fault}");

    let missing = directory.path().join("key.pem");
    let fault = CertificateFiles::read_private_key(&missing).unwrap_err().to_string();
    assert!(fault.ends_with("name the file that the certificate authority has written"), "{fault}");
    let key = write("key.pem", &KeyPair::generate().unwrap().serialize_pem());
    let fault = CertificateFiles::read_private_key(&key).unwrap_err().to_string();
    assert!(fault.contains("chmod 600") || fault.contains("0600"), "others can read it: {fault}");
}

#[cfg(unix)]
#[test]
fn renewed_grants_take_the_place_of_old_ones() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("grants");
    let grant = |authority, scope: &str, serial, expires| {
        let mut terms = terms(CLIENT, "alice", Rights::IMPORT, scope);
        (terms.serial, terms.expires) = (serial, expires);
        identity(authority).grant(terms).unwrap()
    };
    let serials = || {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| line.contains(" serial "));
        lines.map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    KeyFiles::renew_grants(
        &path,
        &[grant(AUTHORITY, "Store", 1, NOW), grant(AUTHORITY, "Bank", 2, NOW + 9)],
        NOW,
    )
    .unwrap();
    let other = grant(OTHER, "Store", 3, NOW - 1).to_text();
    KeyFiles::add_line(&path, &other, "of another authority serial 3").unwrap();
    KeyFiles::add_line(&path, "#", "a comment").unwrap();
    assert_eq!(serials(), "1 2 3");
    KeyFiles::renew_grants(&path, &[grant(AUTHORITY, "Bank", 4, NOW + 99)], NOW).unwrap();
    assert_eq!(serials(), "3 4");
    assert!(std::fs::read_to_string(&path).unwrap().contains("# a comment\n"));
    KeyFiles::renew_grants(&path, &[grant(AUTHORITY, "Store", 5, NOW + 99)], NOW + 98).unwrap();
    assert_eq!(serials(), "3 4 5");
    std::fs::write(&path, "no grant\n").unwrap();
    let fault = KeyFiles::renew_grants(&path, &[grant(AUTHORITY, "Store", 6, NOW)], NOW).unwrap_err();
    assert_eq!((fault.line(), std::fs::read_to_string(&path).unwrap().as_str()), (Some(1), "no grant\n"));
}
