//! Shapes of what registries answer: their files, etcd's answers, and messages of DNS.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Shape, many};

pub(super) const SHAPES: &[Shape] = &[
    // A registry's file of format 2. The target gives each line its check.
    Shape { target: "names_log", name: "entries", make: |n| log(n, n, |at| entry(at, at)) },
    Shape { target: "names_log", name: "changes", make: |n| log(0, n, |at| entry(at, at)) },
    Shape { target: "names_log", name: "changes of one entry", make: |n| log(0, n, |at| entry(0, at)) },
    Shape { target: "names_log", name: "entries of one type", make: |n| log(0, n, |at| instance(at, at)) },
    Shape { target: "names_log", name: "entries of one owner", make: |n| log(0, n, |at| instance(at, 7)) },
    Shape {
        target: "names_log",
        name: "removals",
        make: |n| log(0, n, |at| if at < n / 2 { entry(at, at) } else { format!("-T{}/i\n", at - n / 2) }),
    },
    Shape {
        target: "names_log",
        name: "an entry that comes and goes",
        make: |n| log(0, n, |at| if at % 2 == 0 { entry(0, at) } else { "-T0/i\n".into() }),
    },
    Shape {
        target: "names_log",
        name: "changes of a large entry",
        make: |n| {
            let prints: String =
                (1..n).map(|at| format!(",{at}:000000000000001f:000000000000003c")).collect();
            let large = format!("{}{prints}\n", entry(0, 0).trim_end());
            log(0, n, |at| if at == 0 { large.clone() } else { entry(0, at) })
        },
    },
    Shape { target: "names_log", name: "unknown fields", make: |n| log(0, 1, |_| "x ".repeat(n) + "\n") },
    // Answers of etcd.
    Shape { target: "etcd_answer", name: "entries", make: |n| page(0..n, key, |_| document()) },
    Shape {
        target: "etcd_answer",
        name: "keys of others",
        make: |n| page(0..n, |at| format!("k{at}"), |_| document()),
    },
    Shape { target: "etcd_answer", name: "values of others", make: |n| page(0..n, key, |_| "x".repeat(50)) },
    Shape {
        target: "etcd_answer",
        name: "pages",
        make: |n| (0..n).flat_map(|at| page(at..at + 1, key, |_| document())).collect(),
    },
    Shape {
        target: "etcd_answer",
        name: "one page again and again",
        make: |n| (0..n).flat_map(|_| page(0..1, key, |_| document())).collect(),
    },
    Shape {
        target: "etcd_answer",
        name: "types, and their changes",
        make: |n| [page(0..n, key, |_| document()), watch(0..n, false)].concat(),
    },
    Shape {
        target: "etcd_answer",
        name: "types, and their changes one by one",
        make: |n| {
            let changes = (0..n).flat_map(|at| watch(at..at + 1, at % 2 == 0));
            page(0..n, key, |_| document()).into_iter().chain(changes).collect()
        },
    },
    Shape {
        target: "etcd_answer",
        name: "addresses",
        make: |n| {
            let addresses: Vec<String> = (0..n).map(|at| format!("udp://10.0.0.7:{}", at + 1)).collect();
            page(0..1, key, |_| json!({"addresses": addresses}).to_string())
        },
    },
    Shape {
        target: "etcd_answer",
        name: "fingerprints",
        make: |n| {
            let prints: Vec<Value> = (0..n).map(|at| json!([at, "1f", "3c"])).collect();
            page(0..1, key, |_| {
                json!({"addresses": ["udp://10.0.0.7:7"], "fingerprints": prints}).to_string()
            })
        },
    },
    Shape {
        target: "etcd_answer",
        name: "unknown fields",
        make: |n| {
            let fields: Vec<String> = (0..n).map(|at| format!("\"f{at}\":[{{}}]")).collect();
            page(0..1, key, |_| format!("{{{},\"addresses\":[\"udp://10.0.0.7:7\"]}}", fields.join(",")))
        },
    },
    Shape { target: "etcd_answer", name: "brackets", make: |n| vec![b'['; 8 * n] },
    // Messages of DNS.
    Shape {
        target: "dns_answer",
        name: "instances",
        make: |n| {
            let hosts = n / 2;
            let services = message([hosts, 0, 0], |records, at| service(records, &host(at), 7));
            let host = message([1, 0, 0], |records, _| address(records, &QUESTION));
            [services, (0..2 * hosts).flat_map(|_| host.clone()).collect()].concat()
        },
    },
    Shape {
        target: "dns_answer",
        name: "instances whose hosts are told",
        make: |n| {
            let hosts = n / 2;
            message([hosts, 0, hosts], |records, at| match at.checked_sub(hosts) {
                None => service(records, &host(at), 7),
                Some(at) => address(records, &host(at)),
            })
        },
    },
    Shape {
        target: "dns_answer",
        name: "ports of one host",
        make: |n| {
            let ports = n / 2;
            message([ports, 0, 1], |records, at| match ports - at {
                0 => address(records, &host(0)),
                _ => service(records, &host(0), at as u16 + 1),
            })
        },
    },
    Shape {
        target: "dns_answer",
        name: "addresses of one host",
        make: |n| {
            message([1, 0, n], |records, at| match at {
                0 => service(records, &host(0), 7),
                _ => address(records, &host(0)),
            })
        },
    },
    Shape {
        target: "dns_answer",
        name: "records of others",
        make: |n| message([n / 2; 3], |records, at| address(records, &host(at))),
    },
    Shape {
        target: "dns_answer",
        name: "aliases of one name",
        make: |n| message([n, 0, 0], |records, at| record(records, &QUESTION, 5, &host(at))),
    },
    Shape {
        target: "dns_answer",
        name: "a chain of aliases",
        make: |n| {
            message([n, 0, 0], |records, at| {
                let name = if at == 0 { QUESTION.to_vec() } else { host(at) };
                record(records, &name, 5, &host(at + 1));
            })
        },
    },
    Shape {
        target: "dns_answer",
        name: "long names",
        make: |n| {
            // The first record has a name of 250 bytes, to which the others point.
            let long: Vec<u8> = [[&[60][..], &[b'x'; 60]].concat().repeat(4), vec![0]].concat();
            message([n, 0, 0], |records, at| match at {
                0 => address(records, &long),
                _ => address(records, &pointer(RECORDS)),
            })
        },
    },
    Shape {
        target: "dns_answer",
        name: "names by a long chain of pointers",
        make: |n| {
            let data_at = RECORDS + QUESTION.len() + 10;
            let chain: Vec<u8> =
                (0..n).flat_map(|at| pointer(if at == 0 { 12 } else { data_at + 2 * (at - 1) })).collect();
            message([n / 2, 0, 0], |records, at| match at {
                // A type that nobody knows.
                0 => record(records, &QUESTION, 999, &chain),
                _ => address(records, &pointer(data_at + 2 * (n - 1))),
            })
        },
    },
];

/// Makes a file that begins with `entries` entries, of `n` lines.
fn log(entries: usize, n: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    many(&format!("farcall-names 2 1 {entries} 0000000000000007 0000000000000001\n"), n, line, "")
}

fn entry(type_number: usize, owner: usize) -> String {
    line(&format!("T{type_number}/i"), owner)
}

fn instance(number: usize, owner: usize) -> String {
    line(&format!("T/i{number}"), owner)
}

fn line(name: &str, owner: usize) -> String {
    let owner = format!("{},3,cb06a457e1ef4153,46", owner + 1);
    let prints = "0:000000000000001f:000000000000003c";
    format!(
        "{name} udp://127.0.0.1:7000 export=0000000000005eed owner={owner} revision=1 fingerprints={prints}\n"
    )
}

fn key(at: usize) -> String {
    format!("test/v1/T{at}/i")
}

fn document() -> String {
    r#"{"addresses": ["udp://127.0.0.1:7"], "export": "5eed"}"#.to_owned()
}

/// Makes a page of etcd's answer.
fn page(
    numbers: std::ops::Range<usize>,
    key: fn(usize) -> String,
    value: impl Fn(usize) -> String,
) -> Vec<u8> {
    let kv = |at| json!({"key": STANDARD.encode(key(at)), "value": STANDARD.encode(value(at))});
    let kvs: Vec<Value> = numbers.map(kv).collect();
    format!("{}\n", json!({"header": {"revision": "7"}, "kvs": kvs, "more": true})).into_bytes()
}

/// Makes a line of etcd's watch.
fn watch(numbers: std::ops::Range<usize>, is_gone: bool) -> Vec<u8> {
    let kind = if is_gone { "DELETE" } else { "PUT" };
    let event = |at| {
        json!({"type": kind, "kv": {
            "key": STANDARD.encode(key(at)), "value": STANDARD.encode(document()), "mod_revision": "8",
        }})
    };
    let events: Vec<Value> = numbers.map(event).collect();
    format!("{}\n", json!({"result": {"events": events}})).into_bytes()
}

/// The name of the question, and its last two parts, as pointers.
const QUESTION: [u8; 2] = [0xc0, 12];
const EXAMPLE: [u8; 2] = [0xc0, 24];

/// Where the records of a message begin: behind the header, the name `_store._udp.example.org`, and four
/// bytes.
const RECORDS: usize = 12 + 25 + 4;

fn pointer(to: usize) -> [u8; 2] {
    (0xc000 | to as u16).to_be_bytes()
}

/// Returns the name of one of many hosts of `example.org`.
fn host(at: usize) -> Vec<u8> {
    let text = format!("h{at}");
    [&[text.len() as u8], text.as_bytes(), &EXAMPLE].concat()
}

/// Makes a message with its length in front: what follows the question in it. `counts` are those of the
/// answers, the authorities and the additional records.
fn message(counts: [usize; 3], make: impl Fn(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut message = vec![0, 0];
    counts.iter().for_each(|count| message.extend((*count as u16).to_be_bytes()));
    (0..counts.iter().sum()).for_each(|at| make(&mut message, at));
    let length = u16::try_from(message.len()).expect("a message has at most 65,535 bytes");
    [&length.to_be_bytes(), &message[..]].concat()
}

fn record(message: &mut Vec<u8>, name: &[u8], kind: u16, data: &[u8]) {
    message.extend_from_slice(name);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 60]);
    message.extend((data.len() as u16).to_be_bytes());
    message.extend_from_slice(data);
}

fn address(message: &mut Vec<u8>, name: &[u8]) {
    record(message, name, 1, &[10, 0, 0, 7]);
}

fn service(message: &mut Vec<u8>, host: &[u8], port: u16) {
    let data = [&[0; 4], &port.to_be_bytes()[..], host].concat();
    record(message, &QUESTION, 33, &data);
}
