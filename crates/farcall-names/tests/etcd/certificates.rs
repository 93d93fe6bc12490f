//! Authorities and certificates for tests, which `openssl` makes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kinds of certificates. Each member's gateway is a client of its member, with the member's certificate.
const KINDS: &str = "
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[member]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = $ENV::HOSTS
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
";

/// A certificate and its private key, as PEM files.
pub struct Pair {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Returns whether `openssl` is installed.
pub fn can_be_made() -> bool {
    Command::new("openssl").arg("version").output().is_ok()
}

/// Makes an authority in a directory.
pub fn authority(directory: &Path, name: &str) -> Pair {
    make(directory, name, "authority", &[], None)
}

/// Makes the certificate of all members of a cluster.
pub fn member(directory: &Path, hosts: &[Ipv4Addr], authority: &Pair) -> Pair {
    make(directory, "member", "member", hosts, Some(authority))
}

/// Makes the certificate of a client.
pub fn client(directory: &Path, name: &str, authority: &Pair) -> Pair {
    make(directory, name, "client", &[], Some(authority))
}

fn make(directory: &Path, name: &str, kind: &str, hosts: &[Ipv4Addr], authority: Option<&Pair>) -> Pair {
    let kinds = directory.join("kinds.cnf");
    std::fs::write(&kinds, KINDS).unwrap();
    let file = |suffix| directory.join(format!("{name}.{suffix}"));
    let pair = Pair { certificate: file("pem"), key: file("key") };
    let mut hosts: Vec<String> = hosts.iter().map(|host| format!("IP:{host}")).collect();
    hosts.push("DNS:localhost".to_owned());
    let mut command = Command::new("openssl");
    command
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        // Not a common name: etcd would take that of a client for a user's name.
        .args(["-days", "2", "-subj", &format!("/O={name}"), "-extensions", kind])
        .arg("-config")
        .arg(&kinds)
        .arg("-keyout")
        .arg(&pair.key)
        .arg("-out")
        .arg(&pair.certificate)
        .env("HOSTS", hosts.join(","));
    if let Some(authority) = authority {
        command.arg("-CA").arg(&authority.certificate).arg("-CAkey").arg(&authority.key);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    pair
}
