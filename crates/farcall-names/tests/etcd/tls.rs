//! TLS to etcd: who is trusted, and who is let in.

use std::path::Path;

use farcall_names::{Error, Etcd, EtcdTls, PlaceError, Registry};

use crate::certificates::{self, Pair};
use crate::cluster::{Cluster, Settings, cluster_with, entry, label, names, skipped, until};

/// A cluster of one member that speaks TLS, and the certificates of this test.
struct Secure {
    cluster: Cluster,
    authority: Pair,
    client: Pair,
    stranger: Pair,
    strangers_client: Pair,
    _directory: tempfile::TempDir,
}

/// Returns a cluster whose clients need a certificate.
fn secure() -> Option<Secure> {
    if !certificates::can_be_made() {
        skipped("openssl is not installed");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let authority = certificates::authority(path, "authority");
    let client = certificates::client(path, "client", &authority);
    let stranger = certificates::authority(path, "stranger");
    let strangers_client = certificates::client(path, "strangers-client", &stranger);
    let cluster = cluster_with(1, |_, hosts| {
        let member = certificates::member(path, hosts, &authority);
        let files = |options: [&str; 3], pair: &Pair| {
            let files = [&authority.certificate, &pair.certificate, &pair.key].map(|file| text(file));
            options.iter().zip(files).map(|(option, file)| format!("--{option}={file}")).collect()
        };
        let mut members: Vec<String> = files(["trusted-ca-file", "cert-file", "key-file"], &member);
        members.push("--client-cert-auth".to_owned());
        Settings { members, etcdctl: files(["cacert", "cert", "key"], &client), is_secure: true }
    })?;
    Some(Secure { cluster, authority, client, stranger, strangers_client, _directory: directory })
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

impl Secure {
    fn trusted(&self) -> EtcdTls {
        EtcdTls::trusting(&self.authority.certificate).unwrap()
    }

    fn admitted(&self) -> EtcdTls {
        self.trusted().certificate(&self.client.certificate, &self.client.key).unwrap()
    }

    fn registry(&self, tls: EtcdTls) -> Etcd {
        self.cluster.builder().tls(tls).unwrap().build()
    }
}

#[test]
fn with_the_right_certificates_names_are_published_found_and_followed() {
    let Some(secure) = secure() else { return };
    let (exporter, importer) = (secure.registry(secure.admitted()), secure.registry(secure.admitted()));
    let before = importer.version().unwrap();
    let registration = exporter.publish(&entry("a")).unwrap();
    until("the change", || (importer.version().unwrap() != before).then_some(()));
    assert_eq!(names(&importer.instances(&label("Store")).unwrap()), ["a"]);
    assert!(!importer.routes().is_empty());
    assert!(registration.withdraw().unwrap());
    assert_eq!(importer.lookup(&label("Store"), &label("a")).unwrap(), None);
}

#[test]
fn an_etcd_and_a_client_of_other_authorities_are_refused() {
    let Some(secure) = secure() else { return };
    let stranger = EtcdTls::trusting(&secure.stranger.certificate).unwrap();
    let other =
        secure.trusted().certificate(&secure.strangers_client.certificate, &secure.strangers_client.key);
    for (tls, expected) in [
        (stranger, "its certificate is not of an authority that FARCALL_ETCD_CA"),
        (secure.trusted(), "another certificate of this client, or one at all"),
        (other.unwrap(), "another certificate of this client, or one at all"),
    ] {
        let refused = secure.registry(tls).list().unwrap_err();
        assert!(matches!(refused, Error::Unavailable { ref why, .. } if why.contains(expected)), "{refused}");
    }
    let nobody_trusted = secure.cluster.builder().build().list().unwrap_err();
    assert!(nobody_trusted.to_string().contains("not of an authority"), "{nobody_trusted}");
}

#[test]
fn renewed_files_are_read_again() {
    let Some(secure) = secure() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| scratch.path().join(name));
    let put = |pair: &certificates::Pair| {
        std::fs::copy(&pair.certificate, &certificate).unwrap();
        std::fs::copy(&pair.key, &key).unwrap();
    };
    // etcd does not know this client's authority, as if the certificate had ended.
    put(&secure.strangers_client);
    let registry = secure.registry(secure.trusted().certificate(&certificate, &key).unwrap());
    assert!(registry.list().unwrap_err().to_string().contains("another certificate of this client"));
    // Half of what is renewed is no pair, and the former one stays.
    std::fs::write(&key, "renewed soon").unwrap();
    assert!(registry.list().unwrap_err().to_string().contains("another certificate of this client"));
    put(&secure.client);
    assert_eq!(registry.list().unwrap().entries.len(), 0);
    let registration = registry.publish(&entry("a")).unwrap();
    assert!(registration.withdraw().unwrap());
}

#[test]
fn a_user_with_a_password_needs_both_the_certificate_and_the_password() {
    let Some(secure) = secure() else { return };
    for command in ["user add root:secret", "role add root", "user grant-role root root", "auth enable"] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(!secure.cluster.etcdctl(&words).is_empty(), "{command}");
    }
    let user = |password| {
        let builder = secure.cluster.builder().user("root", password);
        builder.tls(secure.admitted()).unwrap().build()
    };
    let registration = user("secret").publish(&entry("a")).unwrap();
    assert_eq!(user("secret").list().unwrap().entries.len(), 1);
    assert!(registration.withdraw().unwrap());
    for refused in [user("wrong"), secure.registry(secure.admitted())] {
        let refused = refused.list().unwrap_err();
        assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
    }
}

#[test]
fn settings_name_the_files_and_each_mistake_is_said() {
    if !certificates::can_be_made() {
        return skipped("openssl is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let authority = certificates::authority(path, "authority");
    let (client, other) =
        (certificates::client(path, "client", &authority), certificates::authority(path, "other"));
    let garbage = path.join("garbage.pem");
    std::fs::write(&garbage, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let files = [
        ("CA", &authority.certificate),
        ("CERT", &client.certificate),
        ("KEY", &client.key),
        ("KEY of another", &other.key),
        ("garbage", &garbage),
        ("missing", &path.join("missing.pem")),
    ];
    let open = |place: &str, settings: &[(&str, &str)]| -> Result<(), PlaceError> {
        let file = |name: &str| files.iter().find(|(known, _)| *known == name).map(|(_, path)| text(path));
        let of = |setting: &str| settings.iter().find(|(name, _)| setting == format!("FARCALL_ETCD_{name}"));
        farcall_names::open(place, |setting| of(setting).and_then(|(_, name)| file(name))).map(drop)
    };
    open("etcds://a", &[("CA", "CA")]).unwrap();
    open("etcds://a", &[("CA", "CA"), ("CERT", "CERT"), ("KEY", "KEY")]).unwrap();
    for (place, settings, why) in [
        ("etcd://a", &[("CA", "CA")][..], "FARCALL_ETCD_CA is set, but the place is without TLS"),
        ("etcd://a", &[("CERT", "CERT"), ("KEY", "KEY")], "FARCALL_ETCD_CERT is set, but"),
        ("etcds://a", &[], "needs FARCALL_ETCD_CA"),
        (
            "etcds://a",
            &[("CA", "CA"), ("CERT", "CERT")],
            "FARCALL_ETCD_CERT and FARCALL_ETCD_KEY go together",
        ),
        ("etcds://a", &[("CA", "missing")], "missing.pem: No such file"),
        ("etcds://a", &[("CA", "KEY")], "client.key: it holds no certificate"),
        ("etcds://a", &[("CA", "garbage")], "garbage.pem: "),
        (
            "etcds://a",
            &[("CA", "CA"), ("CERT", "CERT"), ("KEY", "CERT")],
            "client.pem: it holds no private key",
        ),
        (
            "etcds://a",
            &[("CA", "CA"), ("CERT", "CERT"), ("KEY", "KEY of another")],
            "other.key: with the certificate",
        ),
        (
            "etcds://a",
            &[("CA", "CA"), ("CERT", "garbage"), ("KEY", "KEY")],
            "client.key: with the certificate in",
        ),
    ] {
        let refused = open(place, settings).unwrap_err().to_string();
        assert!(refused.contains(why), "{place} {settings:?}: {refused}");
    }
    let at = Etcd::at("etcds://a").unwrap_err().to_string();
    assert!(at.contains("EtcdBuilder::tls"), "{at}");
}

#[test]
fn secrets_are_not_shown() {
    if !certificates::can_be_made() {
        return skipped("openssl is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let authority = certificates::authority(directory.path(), "authority");
    let client = certificates::client(directory.path(), "client", &authority);
    let tls = EtcdTls::trusting(&authority.certificate).unwrap();
    let tls = tls.certificate(&client.certificate, &client.key).unwrap();
    assert_eq!(format!("{tls:?}"), "EtcdTls { authorities: 1, has_certificate: true, .. }");
    let builder = Etcd::builder("etcds://a").unwrap().user("clerk", "word").tls(tls).unwrap();
    let shown = format!("{builder:?} {:?}", builder.clone().build());
    assert!(!shown.contains("word") && !shown.contains("clerk"), "{shown}");
    let refused = Etcd::builder("etcd://a").unwrap().tls(EtcdTls::trusting(&authority.certificate).unwrap());
    assert!(refused.unwrap_err().to_string().contains("etcds://"));
}
