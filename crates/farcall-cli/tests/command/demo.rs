//! Tests the demo as a user runs it.

#[cfg(feature = "etcd")]
use std::io::Write as _;

use crate::common::{Place, names_in};

#[test]
fn all_is_as_it_should_be() {
    let place = Place::new();
    place.write("dir/small", "hello");
    place.write("dir/sub/large", vec![7; 3_000_000]);
    let mut command = place.command(&["demo", "dir", "--json", "--seed", "7"]);
    std::fs::create_dir(place.path("tmp")).unwrap();
    // The user's settings and registry are not touched.
    command.env("TMPDIR", place.path("tmp")).env("FARCALL_PATIENCE_MS", "nonsense");
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}{said}");

    let facts: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&facts["files"], &facts["bytes"]), (&2.into(), &3_000_005.into()));
    assert_eq!(facts["hashes_equal"], true);
    let signal = &facts["signal"];
    assert!(signal["asked_by"].is_u64() && signal["asked_by"] != signal["answered_by"], "{signal}");
    assert_eq!(signal["told"], signal["answered_by"]);
    let lossy = &facts["lossy"];
    assert_eq!([&lossy["sent"], &lossy["executed"], &lossy["answered"]], [20_000; 3]);
    assert_eq!((&facts["killed"]["kind"], &facts["killed"]["ran"]), (&"Unreachable".into(), &"Maybe".into()));
    assert!(facts["killed"]["next_call_ms"].is_number() && facts["slow_call_s"].as_f64().unwrap() >= 2.0);
    let rows: Vec<_> =
        facts["latency"].as_array().unwrap().iter().map(|row| (&row["peer"], &row["bytes"])).collect();
    let expected = [0, 400, 4000].map(|bytes| ["raw", "farcall"].map(|peer| (peer, bytes)));
    assert_eq!(rows.len(), 6);
    assert!(
        rows.iter().zip(expected.as_flattened()).all(|(row, (peer, bytes))| row.0 == peer && row.1 == bytes)
    );

    assert!(names_in(&place.path("tmp")).is_empty());
    assert!(!place.registry().exists());
}

#[cfg(all(unix, feature = "secure"))]
#[test]
fn all_is_as_it_should_be_with_keys_too() {
    let place = Place::new();
    place.write("dir/small", "hello");
    std::fs::create_dir(place.path("tmp")).unwrap();
    let mut command = place.command(&["demo", "dir", "--secure", "--json"]);
    // The user's keys are not touched.
    command.env("TMPDIR", place.path("tmp")).env("FARCALL_KEYS", "nonsense");
    let facts = crate::common::Said::of(command.output().unwrap()).json().remove(0);
    assert_eq!((&facts["hashes_equal"], &facts["faults"]), (&true.into(), &serde_json::json!([])));
    let secure = &facts["secure"];
    assert_eq!([&secure["sent"], &secure["executed"], &secure["answered"]], [1_000; 3]);
    assert!(secure["changed"].as_u64().unwrap() > 0 && secure["read"] == 0, "{secure}");
    let refused = serde_json::json!({ "kind": "NotPermitted", "ran": "No" });
    for ended in [&secure["stranger"], &secure["policy"], &secure["taken_away"]["next"]] {
        assert_eq!(*ended, refused);
    }
    assert_eq!(secure["taken_away"]["running"]["ran"], "Maybe");
    assert!(names_in(&place.path("tmp")).is_empty());
}

#[cfg(unix)]
#[test]
fn interrupted_it_leaves_nothing_behind() {
    let place = Place::new();
    place.write("dir/file", "hello");
    std::fs::create_dir(place.path("tmp")).unwrap();
    let demo = place.start_with(&["demo", "dir"], |command| command.env("TMPDIR", place.path("tmp")));
    assert!(demo.first.contains("Seed "), "{}", demo.first);
    assert_eq!(names_in(&place.path("tmp")).len(), 1);
    // This waits for the end of every process that holds the demo's standard error: all of them.
    let said = demo.interrupt();
    assert_eq!(said.code, 1);
    assert!(said.err.contains("farcall: interrupted"), "{said:?}");
    assert!(names_in(&place.path("tmp")).is_empty());
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = Place::new();
    let said = place.run(&["demo", "nothing"]);
    assert_eq!((said.code, said.err.as_str()), (2, "farcall: nothing is not a directory\n"));
}

#[cfg(feature = "etcd")]
#[test]
fn names_in_etcd_outlive_its_leader_and_those_of_the_dead_go() {
    let place = Place::new();
    if std::process::Command::new("etcd").arg("--version").output().is_err() {
        // Not `eprintln`, whose output is shown only for failing tests.
        let _ = writeln!(std::io::stderr(), "skipped: etcd is not installed");
        return;
    }
    std::fs::create_dir(place.path("tmp")).unwrap();
    let output =
        place.command(&["demo", "--etcd", "--json"]).env("TMPDIR", place.path("tmp")).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}{said}");
    let facts: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(facts["leader_killed"]["failed"], 0);
    assert_eq!(facts["server_killed"]["name"], "Demo/one");
    assert!(facts["after"]["answered_by"]["Demo/two"].is_u64() && facts["faults"] == serde_json::json!([]));
    assert!(names_in(&place.path("tmp")).is_empty());
}

#[cfg(feature = "etcd")]
#[test]
fn without_etcd_the_demo_says_where_to_have_it_from() {
    let place = Place::new();
    let output = place.command(&["demo", "--etcd"]).env("PATH", place.path("nothing")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("etcd is not installed") && said.contains("etcd-server"), "{said}");
}
