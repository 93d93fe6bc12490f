//! Many entries, and large values.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farcall_names::{Error, Registry};

use crate::cluster::{Cluster, Settings, cluster_with, entry, label, names, until};

const MIB: usize = 1 << 20;

/// Returns a cluster of one member that takes large requests.
fn patient_cluster() -> Option<Cluster> {
    let arguments = ["--max-request-bytes=50000000", "--max-txn-ops=10000"];
    let members = arguments.map(String::from).to_vec();
    cluster_with(1, |_, _| Settings { members, ..Settings::default() })
}

/// Puts keys with the same value, all at once.
fn put(cluster: &Cluster, keys: impl Iterator<Item = String>, value: &str) {
    let value = STANDARD.encode(value);
    let put = |key: String| {
        let key = STANDARD.encode(format!("test/v1/{key}"));
        format!(r#"{{"request_put": {{"key": "{key}", "value": "{value}"}}}}"#)
    };
    let request = format!(r#"{{"success": [{}]}}"#, keys.map(put).collect::<Vec<_>>().join(","));
    let mut member = TcpStream::connect((cluster.host(0), 2379)).unwrap();
    let head = format!("POST /v3/kv/txn HTTP/1.0\r\nContent-Length: {}\r\n\r\n", request.len());
    member.write_all(format!("{head}{request}").as_bytes()).unwrap();
    let mut answer = String::new();
    member.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"succeeded\":true"), "{}", &answer[..answer.len().min(500)]);
}

/// Returns a line of this process's status, in MiB.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = status.lines().find_map(|status| status.strip_prefix(line)).unwrap();
    value.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn a_hundred_thousand_entries_are_listed_and_followed() {
    const COUNT: usize = 100_000;
    let Some(cluster) = patient_cluster() else { return };
    let document = r#"{"addresses": ["udp://10.0.0.7:7000"], "export": "5eed"}"#;
    for from in (0..COUNT).step_by(5_000) {
        let keys = from..from + 5_000;
        put(&cluster, keys.map(|which| format!("Store/i{which:06}")), document);
    }
    let registry = cluster.registry();
    let before = memory("VmRSS:");
    let listed = registry.list().unwrap().entries;
    assert_eq!(listed.len(), COUNT);
    println!("100,000 entries: {} MiB more with the list", memory("VmRSS:").saturating_sub(before));
    drop(listed);
    registry.version().unwrap();
    until("the copy", || {
        let reads = cluster.reads();
        assert_eq!(registry.instances(&label("Store")).unwrap().len(), COUNT);
        (cluster.reads() == reads).then_some(())
    });
    let _new = cluster.registry().publish(&entry("new")).unwrap();
    until("the change", || (registry.instances(&label("Store")).unwrap().len() == COUNT + 1).then_some(()));
    println!("with the copy that is followed {} MiB more", memory("VmRSS:").saturating_sub(before));
}

#[test]
fn large_values_are_passed_over_and_read_in_smaller_pages() {
    let Some(cluster) = patient_cluster() else { return };
    let registry = cluster.registry();
    // Each of these is too large for a document, and all of them for one answer.
    for from in (0..70).step_by(10) {
        let keys = from..from + 10;
        put(&cluster, keys.map(|which| format!("Store/large{which:02}")), &"x".repeat(MIB));
    }
    // This one is too large for an answer.
    put(&cluster, ["Store/huge".to_owned()].into_iter(), &"x".repeat(17 * MIB));
    let _registrations = ["a", "m", "z"].map(|name| registry.publish(&entry(name)).unwrap());
    let before = memory("VmHWM:");
    assert_eq!(names(&registry.list().unwrap().entries), ["a", "m", "z"]);
    println!("87 MiB of large values: {} MiB more at most", memory("VmHWM:") - before);
    registry.version().unwrap();
    let new = registry.publish(&entry("new")).unwrap();
    // Each try reads all the values again, and a busy machine may not do it in the time of a request.
    let instances = || registry.instances(&label("Store")).ok();
    until("the change", || instances().is_some_and(|found| found.len() == 4).then_some(()));
    assert!(new.withdraw().unwrap());
    let large = registry.lookup(&label("Store"), &label("large00")).unwrap_err();
    assert!(matches!(large, Error::Malformed { .. }), "{large}");
    let huge = registry.lookup(&label("Store"), &label("huge")).unwrap_err();
    assert!(matches!(huge, Error::TooLarge { .. }), "{huge}");
}
