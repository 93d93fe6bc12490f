//! Shapes of what shows who an end is: key files, policies, revocation lists and certificates.

use farcall_keys::{Identity, Revoked, Rights, Terms};

use super::{Shape, many};
use crate::certificates::RULES;

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        target: "policy",
        name: "rules",
        make: |n| many("", n, |at| format!("allow alice{at} Store/main get,list_*\n"), ""),
    },
    Shape {
        target: "policy",
        name: "patterns of one rule",
        make: |n| many("allow alice Store/main get", n, |at| format!(",list{at}_*"), "\n"),
    },
    Shape { target: "policy", name: "comments", make: |n| many("", n, |_| "# text\n".into(), "") },
    // The first byte says which file it is.
    Shape { target: "key_file", name: "comments", make: |n| many("\0", n, |_| "# text\n".into(), "") },
    Shape {
        target: "key_file",
        name: "one long line",
        make: |n| many("\0", n, |_| "words of it ".into(), ""),
    },
    Shape { target: "key_file", name: "faults", make: |n| many("\x02", n, |at| format!("key{at}\n"), "") },
    Shape {
        target: "key_file",
        name: "grants",
        make: |n| {
            let grants: Vec<String> = (0..8).map(grant).collect();
            many("\0", n / 4, |at| format!("{} # {at}\n", grants[at % 8]), "")
        },
    },
    Shape {
        target: "key_file",
        name: "authorities",
        make: |n| many("\x01", n, |at| format!("{}\n", key(at)), ""),
    },
    Shape {
        target: "key_file",
        name: "an authority again and again",
        make: |n| many("\x01", n, |at| format!("{} principals=p{at},team-*\n", key(0)), ""),
    },
    Shape {
        target: "key_file",
        name: "principals of an authority",
        make: |n| many(&format!("\x01{} principals=p", key(0)), n, |at| format!(",p{at}"), "\n"),
    },
    Shape {
        target: "key_file",
        name: "authorized keys",
        make: |n| many("\x02", n, |at| format!("{} p{at} type=Store\n", key(at)), ""),
    },
    Shape {
        target: "key_file",
        name: "scopes of an authorized key",
        make: |n| many("\x02", n, |at| format!("{} alice type=T{at}\n", key(0)), ""),
    },
    Shape {
        target: "key_file",
        name: "words of an authorized key",
        make: |n| many(&format!("\x02{} alice", key(0)), n, |_| " type=T".into(), "\n"),
    },
    Shape {
        target: "key_file",
        name: "known servers",
        make: |n| many("\x03", n, |at| format!("T{at}/i {} or-granted\n", key(at)), ""),
    },
    Shape {
        target: "key_file",
        name: "known servers of one type",
        make: |n| many("\x03", n, |at| format!("T/i{at} {}\n", key(0)), ""),
    },
    Shape {
        target: "key_file",
        name: "a revocation list",
        make: |n| revoked(1, |_| (0..8 * n as u64).collect()),
    },
    Shape { target: "key_file", name: "revocation lists", make: |n| revoked(n / 4, |at| vec![at as u64]) },
    Shape {
        target: "key_file",
        name: "beginnings of revocation lists",
        make: |n| many("\x04", n, |_| "-----BEGIN FARCALL REVOCATION LIST-----\n".into(), ""),
    },
    Shape {
        target: "key_file",
        name: "rules",
        make: |n| many("\x05", n, |at| format!("deny p{at} T{at}/main get,@health\n"), ""),
    },
    Shape {
        target: "revocation_list",
        name: "grants",
        make: |n| authority().revoke(1, 1, 1, Revoked::new([], 0..8 * n as u64).expect("few")).encode(),
    },
    Shape {
        target: "revocation_list",
        name: "keys",
        make: |n| {
            let keys = (0..n).map(|at| Identity::from_entropy(entropy(at)).public());
            authority().revoke(1, 1, 1, Revoked::new(keys, []).expect("few")).encode()
        },
    },
    // A policy, the bundle of all its lines, and a chain with its key.
    Shape {
        target: "certificates",
        name: "rules",
        make: |n| {
            let rule = |at| format!("allow spiffe://example.org/r{at} p{at} import Store\n");
            parts(&many(RULES, n, rule, ""), bundle(), chain())
        },
    },
    Shape {
        target: "certificates",
        name: "bundles",
        make: |n| {
            let line = |at| format!("bundle spiffe://d{at}.org bundle.pem\n");
            parts(&many("", n / 20, line, RULES), bundle(), chain())
        },
    },
    Shape {
        target: "certificates",
        name: "certificates of a bundle",
        make: |n| parts(RULES.as_bytes(), &bundle().repeat(n / 4), chain()),
    },
    Shape {
        target: "certificates",
        name: "other parts of a bundle",
        make: |n| {
            let other = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".repeat(n);
            parts(RULES.as_bytes(), &[other.as_bytes(), bundle()].concat(), chain())
        },
    },
    Shape {
        target: "certificates",
        name: "lines of a bundle",
        make: |n| {
            let pem = [&b"-----BEGIN CERTIFICATE-----\n"[..], &b"AAAAAAAA\n".repeat(4 * n)].concat();
            parts(RULES.as_bytes(), &pem, chain())
        },
    },
    Shape {
        target: "certificates",
        name: "lines before a chain",
        make: |n| parts(RULES.as_bytes(), bundle(), &[&b"text\n".repeat(8 * n), chain()].concat()),
    },
];

fn authority() -> Identity {
    Identity::from_entropy([1; 32])
}

fn entropy(at: usize) -> [u8; 32] {
    let mut entropy = [3; 32];
    entropy[..8].copy_from_slice(&(at as u64).to_be_bytes());
    entropy
}

/// Returns one of many public keys, in base64.
fn key(at: usize) -> String {
    Identity::from_entropy(entropy(at)).public().to_string()
}

/// Returns a grant for the identity that reads the file, in base64.
fn grant(serial: u64) -> String {
    let terms = Terms {
        key: Identity::from_entropy([7; 32]).public(),
        principal: "alice".parse().expect("a principal"),
        rights: Rights::BOTH,
        scope: "Store".parse().expect("a scope"),
        serial,
        expires: 2_000_000_000,
    };
    authority().grant(terms).expect("short names").to_text()
}

/// Makes a file of revocation lists with ascending serials.
fn revoked(lists: usize, grants: impl Fn(usize) -> Vec<u64>) -> Vec<u8> {
    use base64::Engine as _;
    let list = |at: usize| {
        let list = authority().revoke(at as u64, 1, 1, Revoked::new([], grants(at)).expect("few"));
        let base64 = base64::engine::general_purpose::STANDARD.encode(list.encode());
        let lines: Vec<String> =
            base64.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into()).collect();
        let (begin, end) =
            ("-----BEGIN FARCALL REVOCATION LIST-----", "-----END FARCALL REVOCATION LIST-----");
        format!("{begin}\n{}\n{end}\n", lines.join("\n"))
    };
    many("\x04", lists, list, "")
}

/// A seed: a policy, a bundle with one certificate, and the chain and the key of a host that it lets in.
const SEED: &[u8] = include_bytes!("../../../corpus/certificates/svid");

fn bundle() -> &'static [u8] {
    SEED.split(|byte| *byte == 0).nth(1).expect("the bundle")
}

fn chain() -> &'static [u8] {
    SEED.split(|byte| *byte == 0).nth(2).expect("the chain")
}

fn parts(rules: &[u8], bundle: &[u8], chain: &[u8]) -> Vec<u8> {
    [rules, bundle, chain].join(&0)
}
