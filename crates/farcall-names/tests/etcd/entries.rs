//! Entries come, are found, are followed and go.

use std::sync::Arc;

use farcall_names::{Error, Etcd, Fingerprint, Owner, Registry, suite};

use crate::cluster::{PATIENCE, cluster, entry, label, names, until};

#[test]
fn an_entry_is_found_by_others_until_its_registration_is_dropped() {
    let Some(cluster) = cluster(1) else { return };
    let (exporter, importer) = (cluster.registry(), cluster.registry());
    let mut stored = entry("a");
    stored.fingerprints = vec![Fingerprint { number: 1, types: 0x1f, name: 0x3c }];
    let registration = exporter.publish(&stored).unwrap();
    assert_eq!(importer.lookup(&label("Store"), &label("a")).unwrap(), Some(stored.clone()));
    assert_eq!(importer.instances(&label("Store")).unwrap(), [stored.clone()]);
    assert_eq!(importer.list().unwrap().entries, [stored]);
    assert!(importer.instances(&label("Stor")).unwrap().is_empty());
    assert!(registration.withdraw().unwrap());
    assert_eq!(importer.lookup(&label("Store"), &label("a")).unwrap(), None);
}

#[test]
fn the_registry_in_etcd_keeps_the_rules() {
    let Some(cluster) = cluster(1) else { return };
    suite::check_within(PATIENCE, || Etcd::at(&cluster.new_place()).unwrap());
}

#[test]
fn two_exporters_never_have_one_name() {
    let Some(cluster) = cluster(1) else { return };
    let (first, second) = (cluster.registry(), cluster.registry());
    let registration = first.publish(&entry("a")).unwrap();
    for registry in [&first, &second] {
        let refused = registry.publish(&entry("a")).unwrap_err();
        assert!(matches!(refused, Error::Taken { ref name, .. } if name == "Store/a"), "{refused}");
    }
    assert!(matches!(second.withdraw(&label("Store"), &label("a")), Err(Error::Taken { .. })));
    drop(registration);
    let _registration = second.publish(&entry("a")).unwrap();
    assert!(second.withdraw(&label("Store"), &label("a")).unwrap());
    assert!(!second.withdraw(&label("Store"), &label("a")).unwrap());
}

#[test]
fn of_many_exporters_at_once_one_gets_the_name() {
    let Some(cluster) = cluster(1) else { return };
    let attempts = (0..8).map(|_| {
        let registry = cluster.registry();
        std::thread::spawn(move || registry.publish(&entry("a")).ok())
    });
    let attempts: Vec<_> = attempts.collect();
    let registrations: Vec<_> = attempts.into_iter().filter_map(|attempt| attempt.join().unwrap()).collect();
    assert_eq!(registrations.len(), 1);
}

#[test]
fn the_store_is_readable_by_people_and_writable_by_tools() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    let _registration = registry.publish(&entry("a")).unwrap();
    let text = cluster.value("Store/a");
    assert!(
        text.starts_with(r#"{"addresses":["udp://127.0.0.1:7000"],"export":"0000000000005eed","#),
        "{text}"
    );
    cluster.etcdctl(&["put", "test/v1/Store/b", r#"{"addresses": ["udp://10.0.0.7:7000"]}"#]);
    for (key, value) in [
        ("test/v1/Store/c", "not JSON"),
        ("test/v1/Store/d/e", r#"{"addresses": ["udp://10.0.0.7:7000"]}"#),
        ("test/v2/Store/f", r#"{"addresses": ["udp://10.0.0.7:7000"]}"#),
        ("test/v1/Store/g", r#"{"addresses": ["quic://10.0.0.7:7000"]}"#),
    ] {
        cluster.etcdctl(&["put", key, value]);
    }
    assert_eq!(names(&registry.instances(&label("Store")).unwrap()), ["a", "b"]);
    let unreadable = registry.lookup(&label("Store"), &label("c")).unwrap_err();
    assert!(
        matches!(unreadable, Error::Malformed { ref key, .. } if key == "test/v1/Store/c"),
        "{unreadable}"
    );
    assert!(registry.withdraw(&label("Store"), &label("b")).unwrap(), "a tool's entry");
}

#[test]
fn a_follower_learns_of_changes_without_asking_etcd() {
    let Some(cluster) = cluster(1) else { return };
    let (exporter, importer) = (cluster.registry(), cluster.registry());
    let first = importer.version().unwrap();
    let _a = exporter.publish(&entry("a")).unwrap();
    until("the first change", || (importer.version().unwrap() != first).then_some(()));
    assert_eq!(names(&importer.instances(&label("Store")).unwrap()), ["a"]);
    let b = exporter.publish(&entry("b")).unwrap();
    until("the second entry", || (importer.instances(&label("Store")).unwrap().len() == 2).then_some(()));
    let before = importer.version().unwrap();
    drop(b);
    until("the end", || (importer.version().unwrap() != before).then_some(()));
    assert_eq!(names(&importer.instances(&label("Store")).unwrap()), ["a"]);
}

#[test]
fn thousands_of_entries_come_in_pages_and_are_followed() {
    const COUNT: usize = 2_500;
    let Some(cluster) = cluster(1) else { return };
    let exporter = Arc::new(cluster.registry());
    let threads = (0..8).map(|thread| {
        let exporter = exporter.clone();
        let publish = move |which| exporter.publish(&entry(&format!("i{which:05}"))).unwrap();
        std::thread::spawn(move || (0..COUNT).skip(thread).step_by(8).map(publish).collect::<Vec<_>>())
    });
    let threads: Vec<_> = threads.collect();
    let registrations: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let importer = cluster.registry();
    assert_eq!(importer.instances(&label("Store")).unwrap().len(), COUNT);
    importer.version().unwrap();
    until("the copy", || (importer.instances(&label("Store")).unwrap().len() == COUNT).then_some(()));
    let (before, one) = (importer.version().unwrap(), entry("new"));
    let _registration = exporter.publish(&one).unwrap();
    until("the change", || (importer.version().unwrap() != before).then_some(()));
    let entries = importer.instances(&label("Store")).unwrap();
    assert!(entries.len() == COUNT + 1 && entries.is_sorted_by_key(|entry| entry.instance.clone()));
    // Each would be withdrawn by a request of its own; the lease takes all at once.
    registrations.into_iter().for_each(std::mem::forget);
}

#[test]
fn an_entry_that_was_added_by_hand_has_no_lease_and_stays_until_it_is_withdrawn() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    registry.add(&entry("a")).unwrap();
    assert_eq!(cluster.leases(), 0);
    assert!(!cluster.value("Store/a").contains("owner"));
    assert_eq!(registry.lookup(&label("Store"), &label("a")).unwrap().unwrap().owner, Owner::NONE);
    registry.add(&entry("a")).unwrap();
    let mut other = entry("a");
    other.export = 7;
    for refused in [registry.add(&other), registry.publish(&entry("a")).map(drop)] {
        assert!(refused.unwrap_err().to_string().contains("added by hand"));
    }
    assert!(registry.withdraw(&label("Store"), &label("a")).unwrap());
    assert!(!registry.withdraw(&label("Store"), &label("a")).unwrap());
}

#[test]
fn an_etcd_that_takes_leases_back_has_no_exclusive_owners() {
    let Some(cluster) = cluster(1) else { return };
    // (`version` would be that of the command, which may be another one.)
    let version = cluster.etcdctl(&["endpoint", "status", "--write-out=json"]);
    let is_old =
        ["3.4.2", "3.4.1", "3.4.0"].iter().any(|old| version.contains(&format!("\"version\":\"{old}")));
    match cluster.registry().publish_exclusively(&entry("a")) {
        Err(Error::Unsafe { why, .. }) => {
            assert!(why.contains("exclusive exports need etcd 3.4.31"), "{why}")
        }
        published => assert!(!is_old && published.is_ok(), "{version}"),
    }
    // Entries without an owner are published all the same, and a program may say that this etcd is sound.
    let ordinary = cluster.registry().publish(&entry("b")).unwrap();
    let registry = cluster.builder().exclusive_in_any_version().build();
    let owner = registry.publish_exclusively(&entry("c")).unwrap();
    assert!(owner.ownership().is_some());
    drop((ordinary, owner));
}
