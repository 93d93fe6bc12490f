//! Exports and imports by names in etcd, with a real member of it. Without `etcd-server` the tests say that
//! they are skipped.
#![cfg(target_os = "linux")]

#[path = "../../farcall-names/tests/etcd/cluster.rs"]
mod cluster;
#[path = "etcd/faults.rs"]
mod faults;

use std::sync::Arc;

use cluster::{Cluster, cluster, until};
use farcall::{Error, Kind, Runtime};

#[farcall::interface]
trait Store {
    fn number(&self) -> farcall::Result<u64>;
}

struct Server(u64);

impl Store for Server {
    fn number(&self) -> farcall::Result<u64> {
        Ok(self.0)
    }
}

/// Returns a runtime of its own, as another process would have.
fn runtime(cluster: &Cluster) -> Runtime {
    Runtime::builder().registry(cluster.registry()).build().unwrap()
}

#[test]
fn a_name_is_found_by_type_and_by_instance_and_calls_do_not_ask_the_registry() {
    let Some(mut cluster) = cluster(1) else { return };
    let (exporter, importer) = (runtime(&cluster), runtime(&cluster));
    let export = exporter.export::<dyn Store>("Store/a", Arc::new(Server(7))).unwrap();
    assert!(cluster.value("Store/a").contains(&export.address().to_string()));
    for name in ["Store", "Store/a"] {
        assert_eq!(importer.import::<dyn Store>(name).unwrap().number().unwrap(), 7);
    }
    let before = cluster.reads();
    let bound = importer.import::<dyn Store>("Store").unwrap();
    for _ in 0..100 {
        assert_eq!(bound.number().unwrap(), 7);
    }
    assert_eq!(cluster.reads() - before, 1, "an import costs one read, and a bound call none");
    cluster.kill(0);
    assert_eq!(bound.number().unwrap(), 7);
    let away = importer.import::<dyn Store>("Store/a").err().unwrap();
    assert!(matches!(away, Error::CallFailed(ref why) if why.kind() == Kind::Registry), "{away}");
}

#[test]
fn a_second_export_of_a_name_is_refused_until_the_first_is_gone() {
    let Some(cluster) = cluster(1) else { return };
    let (first, second) = (runtime(&cluster), runtime(&cluster));
    let export = first.export::<dyn Store>("Store/a", Arc::new(Server(1))).unwrap();
    let refused = second.export::<dyn Store>("Store/a", Arc::new(Server(2))).unwrap_err();
    assert!(matches!(refused, Error::CallFailed(ref why) if why.kind() == Kind::Registry), "{refused}");
    drop(export);
    let _export = second.export::<dyn Store>("Store/a", Arc::new(Server(2))).unwrap();
    assert_eq!(first.import::<dyn Store>("Store").unwrap().number().unwrap(), 2);
}

#[test]
fn a_group_follows_its_members_also_after_etcd_was_away() {
    let Some(mut cluster) = cluster(1) else { return };
    let (exporter, importer) = (runtime(&cluster), runtime(&cluster));
    let export =
        |number| exporter.export::<dyn Store>(&format!("Store/{number}"), Arc::new(Server(number))).unwrap();
    let first = export(1);
    let group = importer.import_all::<dyn Store>("Store").unwrap();
    let numbers = || {
        let all = group.multi().number().all();
        let mut numbers: Vec<u64> = all.results().map(|(_, number)| *number).collect();
        numbers.sort();
        numbers
    };
    let _second = export(2);
    until("the second member", || (numbers() == [1, 2]).then_some(()));
    cluster.kill(0);
    assert_eq!(numbers(), [1, 2]);
    cluster.restart(0);
    drop(first);
    let _third = export(3);
    until("the third member", || (numbers() == [2, 3]).then_some(()));
}
