//! Tests enrolment by certificates as users do it: `farcall keys admit` and `farcall keys enrol --certificate`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, SanType};
use serde_json::{Value, json};

use crate::common::{Place, Said, Started};

const POLICY: &str = "\
bundle spiffe://example.org example.pem
allow spiffe://example.org/files   files   export FileAccess
allow spiffe://example.org/team/*  team-*  import FileAccess hours=1
";

/// A place with an authority of certificates, one of grants, and the policy of the second about the first.
struct World {
    place: Place,
    root: CertifiedIssuer<'static, KeyPair>,
    authority: String,
}

impl World {
    fn new() -> World {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let place = Place::new();
        let authority = place.run(&["keys", "authority", "ca.key"]).ok().trim().to_owned();
        let world = World { place, root, authority };
        world.write("example.pem", 0o644, &world.root.pem());
        world.write("policy", 0o644, POLICY);
        world
    }

    /// Replaces a file.
    fn write(&self, file: &str, mode: u32, content: &str) {
        let new = self.place.write("new", content);
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(new, self.place.path(file)).unwrap();
    }

    /// Issues a certificate, and writes it and its private key.
    fn issue(&self, host: &str, spiffe_ids: &[&str]) {
        let mut params = CertificateParams::default();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let names = spiffe_ids.iter().map(|id| SanType::URI((*id).try_into().unwrap()));
        params.subject_alt_names = names.collect();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.root).unwrap();
        self.write(&format!("{host}.pem"), 0o644, &certificate.pem());
        self.write(&format!("{host}.key"), 0o600, &key.serialize_pem());
    }

    fn admit(&self) -> Started {
        let policy = ["--policy", "policy", "--at", "127.0.0.1:0"];
        self.place.start(&[&["--json", "keys", "admit", "--authority", "ca.key"], &policy[..]].concat())
    }

    fn run(&self, host: &str, arguments: &[&str]) -> Said {
        let mut command = self.place.command(arguments);
        Said::of(command.env("FARCALL_KEYS", self.place.path(host)).output().unwrap())
    }

    /// Enrols a host by its certificate and a private key.
    fn enrol(&self, at: &str, host: &str, key: &str) -> Said {
        let (certificate, key) = (format!("{host}.pem"), format!("{key}.key"));
        let files = ["--certificate", &certificate, "--private-key", &key];
        let there = ["--at", at, "--authority", &self.authority];
        self.run(host, &[&["--json", "keys", "enrol"], &files[..], &there].concat())
    }

    /// Enrols a host, and expects a failure. Returns its message and its hint.
    fn refused(&self, at: &str, host: &str) -> [String; 2] {
        let said = self.enrol(at, host, host);
        assert_ne!(said.code, 0, "{said:?}");
        let error: Value = serde_json::from_str(&said.err).unwrap();
        ["message", "hint"].map(|field| error["error"][field].as_str().unwrap_or_default().to_owned())
    }
}

#[test]
fn hosts_with_certificates_are_admitted_and_call_one_another_with_keys() {
    let world = World::new();
    let mut service = world.admit();
    let at = service.fact("address");
    assert_eq!(service.fact("authority"), world.authority);
    world.issue("server", &["spiffe://example.org/files"]);
    world.issue("alice", &["spiffe://example.org/team/alice"]);
    for (host, principal, id) in [
        ("server", "files", "spiffe://example.org/files"),
        ("alice", "team-alice", "spiffe://example.org/team/alice"),
    ] {
        let enrolled = world.enrol(&at, host, host).json().remove(0);
        assert_eq!(
            (&enrolled["authority"], &enrolled["grants"][0]["principal"]),
            (&json!(world.authority), &json!(principal))
        );
        let told: Value = serde_json::from_str(&service.line()).unwrap();
        assert_eq!(told, json!({ "enrolled": enrolled["grants"][0], "certificate": id }));
        assert!(world.run(host, &["keys", "check-files"]).ok().ends_with("no fault\n"));
    }
    world.place.write("served/todo.txt", "buy milk\n");
    let serve = ["--json", "serve", "served", "--name", "FileAccess/notes"];
    let server = world.place.start_with(&serve, |it| it.env("FARCALL_KEYS", world.place.path("server")));
    let url = server.fact("url");
    let cat = ["cat", "todo.txt", "--from", &url];
    assert_eq!(world.run("alice", &cat).ok(), "buy milk\n");
    let address = url.trim_start_matches("udp://").split('/').next().unwrap();
    let checked =
        world.run("alice", &["--json", "keys", "check", address, "FileAccess/notes"]).json().remove(0);
    assert_eq!((&checked["principal"], &checked["level"]), (&json!("files"), &json!("secure")));

    // A timer runs the command again: the key stays, and the new grant takes the place of the old one.
    let before = world.run("alice", &["--json", "keys", "show"]).json().remove(0);
    world.enrol(&at, "alice", "alice").json();
    let shown = world.run("alice", &["--json", "keys", "show"]).json().remove(0);
    assert_eq!((&shown["key"], shown["grants"].as_array().unwrap().len()), (&before["key"], 1));
    assert_ne!(shown["grants"][0]["serial"], before["grants"][0]["serial"]);
    assert_eq!(world.run("alice", &cat).ok(), "buy milk\n");
    let said = service.interrupt();
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
}

#[test]
fn a_host_that_is_refused_is_told_why_and_so_is_the_authority() {
    let world = World::new();
    let service = world.admit();
    let at = service.fact("address");
    world.issue("bob", &["spiffe://example.com/team/bob"]);
    let [message, hint] = world.refused(&at, "bob");
    assert!(message.contains("of a trust domain that the authority knows"), "{message}");
    assert!(message.contains(&at) && hint.contains("can add a bundle"), "{message} {hint}");
    world.issue("bob", &["spiffe://example.org/bob"]);
    let [message, hint] = world.refused(&at, "bob");
    assert!(
        message.contains("none for \"spiffe://example.org/bob\"") && hint.contains("add a rule"),
        "{message}"
    );
    world.issue("bob", &["spiffe://example.org/team/bob", "spiffe://example.org/files"]);
    let [message, _] = world.refused(&at, "bob");
    assert!(message.contains("found 2 URIs"), "{message}");
    assert!(!world.place.path("bob/grants").exists(), "nothing was kept");

    // A changed policy counts for the next request; with a fault, the last good one goes on.
    world.issue("bob", &["spiffe://example.org/team/bob"]);
    world.write(
        "policy",
        0o644,
        &POLICY.replace("allow spiffe://example.org/team/*", "deny spiffe://example.org/team/* #"),
    );
    let [message, _] = world.refused(&at, "bob");
    assert!(message.contains("one that denies \"spiffe://example.org/team/bob\""), "{message}");
    world.write("policy", 0o644, "allow");
    let [message, _] = world.refused(&at, "bob");
    assert!(message.contains("one that denies"), "{message}");

    // What this end sees by itself, no service is asked for.
    world.issue("eve", &[]);
    let said = world.enrol(&at, "bob", "eve");
    assert!(said.code == 1 && said.err.contains("found that of another one"), "{said:?}");
    fs::set_permissions(world.place.path("bob.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let [message, _] = world.refused(&at, "bob");
    assert!(message.contains("bob.key"), "{message}");
    let said = service.interrupt();
    assert_eq!(said.err.matches("farcall: a request was refused: expected ").count(), 5, "{said:?}");
    assert!(said.err.contains("the policy that was read last goes on: policy, line 1: expected"), "{said:?}");
    fs::set_permissions(world.place.path("bob.key"), fs::Permissions::from_mode(0o600)).unwrap();
    let [message, hint] = world.refused(&at, "bob");
    assert!(message.contains(&at) && hint.contains("does `farcall keys admit` run"), "{message} {hint}");
}

#[test]
fn a_certificate_needs_its_key_an_address_and_an_authority_and_takes_no_token() {
    let world = World::new();
    let usage = |arguments: &[&str], part: &str| {
        let said = world.run("x", &[&["keys", "enrol"], arguments].concat());
        assert!(said.code == 2 && said.err.contains(part), "{part:?}: {said:?}");
    };
    usage(&[], "TOKEN");
    usage(&["--certificate", "x.pem"], "--private-key");
    usage(&["--certificate", "x.pem", "--private-key", "x.key", "--at", "a:1"], "--authority");
    usage(&["farcall-enrol:x", "--certificate", "x.pem"], "cannot be used with");
    usage(&["farcall-enrol:x", "--at", "a:1"], "--certificate");
    assert!(world.run("x", &["keys", "--help"]).ok().contains("admit"));
    let help = world.run("x", &["keys", "admit", "--help"]).ok();
    assert!(help.contains("bundle spiffe://example.org example.pem"), "{help}");
    assert!(world.run("x", &["keys", "enrol", "--help"]).ok().contains("by a timer"), "it says how to renew");
}
