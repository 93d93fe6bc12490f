//! Members of etcd, exporters and leases are lost, and names stay true.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farcall_names::{Error, Etcd, Registry};

use crate::cluster::{Settings, cluster, cluster_with, entry, label, names, signal, until};

#[test]
fn a_member_that_is_lost_or_silent_is_passed_over() {
    let Some(mut cluster) = cluster(3) else { return };
    // A member is silent for as long as the shortest lease lasts.
    let registry = cluster.builder().lease_time(Duration::from_secs(10)).build();
    let _a = registry.publish(&entry("a")).unwrap();
    let leader = cluster.leader();
    cluster.kill(leader);
    let _b = registry.publish(&entry("b")).unwrap();
    assert_eq!(names(&registry.instances(&label("Store")).unwrap()), ["a", "b"]);
    cluster.restart(leader);
    let silent = (leader + 1) % 3;
    cluster.pause(silent, true);
    let _c = registry.publish(&entry("c")).unwrap();
    assert_eq!(names(&registry.instances(&label("Store")).unwrap()), ["a", "b", "c"]);
    cluster.pause(silent, false);
}

#[test]
fn exports_and_followers_outlive_an_etcd_that_is_away() {
    let Some(mut cluster) = cluster(1) else { return };
    let (exporter, importer) = (cluster.registry(), cluster.registry());
    let _a = exporter.publish(&entry("a")).unwrap();
    let version = importer.version().unwrap();
    until("the copy", || {
        let before = cluster.reads();
        importer.instances(&label("Store")).unwrap();
        (cluster.reads() == before).then_some(())
    });
    cluster.kill(0);
    assert_eq!(importer.version().unwrap(), version);
    assert_eq!(names(&importer.instances(&label("Store")).unwrap()), ["a"]);
    let refused = exporter.publish(&entry("b")).unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    cluster.restart(0);
    let _b = exporter.publish(&entry("b")).unwrap();
    until("both entries", || (importer.instances(&label("Store")).unwrap().len() == 2).then_some(()));
    until("the change", || (importer.version().unwrap() != version).then_some(()));
}

#[test]
fn entries_that_are_withdrawn_while_etcd_is_away_go_when_it_is_back() {
    let Some(mut cluster) = cluster(1) else { return };
    let registry = cluster.builder().lease_time(Duration::from_secs(600)).build();
    let registrations = ["a", "b", "c", "d"].map(|name| registry.publish(&entry(name)).unwrap());
    let _stays = registry.publish(&entry("stays")).unwrap();
    cluster.kill(0);
    let began = Instant::now();
    for registration in registrations {
        let left = registration.withdraw().unwrap_err();
        assert!(matches!(left, Error::Unavailable { .. }), "{left}");
    }
    println!("four entries were left to the thread in {:?}", began.elapsed());
    cluster.restart(0);
    until("the end", || (names(&registry.list().unwrap().entries) == ["stays"]).then_some(()));
}

#[test]
fn an_etcd_without_room_is_said_to_be_and_goes_on_when_it_has_some() {
    let quota = |_: &_, _: &_| Settings {
        members: vec!["--quota-backend-bytes=2000000".into()],
        ..Settings::default()
    };
    let Some(cluster) = cluster_with(1, quota) else { return };
    let registry = cluster.registry();
    let a = registry.publish(&entry("a")).unwrap();
    let mut process = child(&cluster.place());
    until("the child's entry", || registry.lookup(&label("Store"), &label("child")).unwrap());
    let filler = "x".repeat(100_000);
    until("the alarm", || {
        cluster.etcdctl(&["put", "filler", &filler]);
        cluster.etcdctl(&["alarm", "list"]).contains("NOSPACE").then_some(())
    });
    let refused = registry.publish(&entry("b")).unwrap_err();
    assert!(matches!(refused, Error::Refused { ref why, .. } if why.contains("space exceeded")), "{refused}");
    assert_eq!(names(&registry.list().unwrap().entries), ["a", "child"]);
    // By the time that the lease of a killed process has ended, this one would have, too.
    process.kill().unwrap();
    process.wait().unwrap();
    until("the end of the child's entry", || {
        (names(&registry.list().unwrap().entries) == ["a"]).then_some(())
    });

    let revision = cluster.revision();
    for command in [&["compact", &revision][..], &["defrag"], &["alarm", "disarm"]] {
        cluster.etcdctl(command);
    }
    let b = registry.publish(&entry("b")).unwrap();
    assert!(a.withdraw().unwrap() && b.withdraw().unwrap());
}

#[test]
fn an_export_whose_lease_was_lost_comes_back_by_itself() {
    let Some(cluster) = cluster(1) else { return };
    let (exporter, importer) = (cluster.registry(), cluster.registry());
    let registration = exporter.publish(&entry("a")).unwrap();
    let lease = cluster.etcdctl(&["lease", "list"]).lines().nth(1).unwrap().to_owned();
    cluster.etcdctl(&["lease", "revoke", &lease]);
    assert_eq!(importer.lookup(&label("Store"), &label("a")).unwrap(), None);
    until("the entry", || importer.lookup(&label("Store"), &label("a")).unwrap());
    assert!(registration.withdraw().unwrap());
    assert_eq!(importer.lookup(&label("Store"), &label("a")).unwrap(), None);
}

#[test]
fn a_name_that_was_taken_while_its_lease_was_lost_stays_with_the_other() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    let lookup = || registry.lookup(&label("Store"), &label("child")).unwrap();
    let mut process = child(&cluster.place());
    until("the child's entry", lookup);
    signal(process.id(), "STOP");
    until("the end of the entry", || lookup().is_none().then_some(()));
    let mut other = entry("child");
    other.export = 7;
    let registration = registry.publish(&other).unwrap();
    // The child notices that its lease is lost, and takes a new one to publish its entry with.
    signal(process.id(), "CONT");
    until("the child's new lease", || (cluster.leases() == 2).then_some(()));
    assert_eq!(lookup().map(|entry| entry.export), Some(7));
    assert!(registration.withdraw().unwrap());
    until("the child's entry again", || lookup().filter(|entry| entry.export != 7));
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_watch_goes_on_after_a_compaction() {
    let Some(mut cluster) = cluster(1) else { return };
    let (exporter, importer) = (cluster.registry(), cluster.registry());
    let _a = exporter.publish(&entry("a")).unwrap();
    importer.version().unwrap();
    until("the copy", || (importer.instances(&label("Store")).unwrap().len() == 1).then_some(()));
    // While the importer's watch is broken, changes come and are compacted.
    cluster.kill(0);
    cluster.restart(0);
    let _b = exporter.publish(&entry("b")).unwrap();
    for _ in 0..10 {
        cluster.etcdctl(&["put", "unrelated", "x"]);
    }
    cluster.etcdctl(&["compact", &cluster.revision()]);
    let _c = exporter.publish(&entry("c")).unwrap();
    until("all entries", || (importer.instances(&label("Store")).unwrap().len() == 3).then_some(()));
}

/// What the child process of the next tests does: it publishes an entry, says so, and waits for ever.
#[test]
#[ignore = "run by the tests of killed exporters, as a process of its own"]
fn exporting_child() {
    let place = std::env::var("FARCALL_TEST_PLACE").unwrap();
    let registry = Etcd::builder(&place).unwrap().lease_time(Duration::from_secs(2)).build();
    let _registration = registry.publish(&entry("child")).unwrap();
    loop {
        std::thread::park();
    }
}

fn child(place: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::exporting_child", "--ignored"])
        .env("FARCALL_TEST_PLACE", place)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn the_name_of_a_killed_exporter_goes_with_its_lease() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    let lookup = || registry.lookup(&label("Store"), &label("child")).unwrap();
    let mut process = child(&cluster.place());
    until("the child's entry", lookup);
    process.kill().unwrap();
    process.wait().unwrap();
    let killed = Instant::now();
    until("the end of the entry", || lookup().is_none().then_some(()));
    println!("the name was gone {:?} after its exporter was killed", killed.elapsed());
}

#[test]
fn an_exporter_that_starts_again_on_its_machine_need_not_wait_for_the_lease() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.builder().lease_time(Duration::from_secs(600)).build();
    let mut process = child(&cluster.place());
    until("the child's entry", || registry.lookup(&label("Store"), &label("child")).unwrap());
    assert!(matches!(registry.publish(&entry("child")), Err(Error::Taken { .. })));
    process.kill().unwrap();
    process.wait().unwrap();
    let registration = registry.publish(&entry("child")).unwrap();
    assert!(registration.withdraw().unwrap());
}

#[test]
fn the_entry_of_a_dead_exporter_of_this_machine_can_be_withdrawn() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    let withdraw = || registry.withdraw(&label("Store"), &label("child"));
    let mut process = child(&cluster.place());
    until("the child's entry", || registry.lookup(&label("Store"), &label("child")).unwrap());
    assert!(matches!(withdraw(), Err(Error::Taken { .. })));
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(withdraw().unwrap());
}

#[test]
fn an_exporter_that_was_stopped_for_longer_than_its_lease_comes_back() {
    let Some(cluster) = cluster(1) else { return };
    let registry = cluster.registry();
    let lookup = || registry.lookup(&label("Store"), &label("child")).unwrap();
    let mut process = child(&cluster.place());
    until("the child's entry", lookup);
    signal(process.id(), "STOP");
    until("the end of the entry", || lookup().is_none().then_some(()));
    signal(process.id(), "CONT");
    until("the entry again", lookup);
    process.kill().unwrap();
    process.wait().unwrap();
}
