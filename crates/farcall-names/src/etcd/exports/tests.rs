//! Tests of what is done with leases: single cases with a server of canned answers, and a simulation in
//! which exporters compete for a name (`rules.rs`).

mod rules;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::super::fake;
use super::super::gateway::Gateway;
use super::*;

fn entry(instance: &str) -> Entry {
    let address = "udp://127.0.0.1:7000".parse().unwrap();
    Entry::new("Store".parse().unwrap(), instance.parse().unwrap(), address, 7)
}

/// Returns exports whose thread does not run, so that a test does its work.
fn exports(gateway: Arc<Gateway>) -> Arc<Exports> {
    let exports = Exports::new(gateway, Keys::new("test"), Duration::from_secs(10), Clock::default());
    lock(&exports.state).runs = true;
    Arc::new(exports)
}

fn refused() -> (u16, Value) {
    (429, json!({"code": 8, "message": "refused"}))
}

/// An answer to any request: it has succeeded, and the key is there with the lease.
fn done() -> (u16, Value) {
    let kv = json!({"lease": "5", "create_revision": "3"});
    (200, json!({"succeeded": true, "ID": "5", "TTL": "10", "kvs": [kv]}))
}

/// Returns what a request does: the last part of its path, or what a transaction does if it succeeds.
fn action(path: &str, request: &Value) -> &'static str {
    match path {
        "kv/txn" if !request["success"][0]["request_put"].is_null() => "put",
        "kv/txn" => "delete",
        "lease/grant" => "grant",
        "lease/keepalive" => "keep alive",
        "kv/range" => "read",
        _ => "other",
    }
}

#[test]
fn a_lease_of_an_absurd_time_is_bounded() {
    let time = granted(&json!({"TTL": u64::MAX.to_string()}));
    assert!(Clock::default().now().checked_add(time).is_some());
}

#[test]
fn an_entry_that_has_not_left_yet_leaves_before_it_is_published_again() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, mut deletes) = (seen.clone(), 0);
    let exports = exports(fake::gateway(move |path, request| {
        let action = action(path, request);
        lock(&log).push(action);
        if action == "delete" {
            deletes += 1;
            if deletes == 1 {
                return refused();
            }
        }
        done()
    }));
    exports.publish(&entry("a"), ()).unwrap().withdraw().unwrap_err();
    let _registration = exports.publish(&entry("a"), ()).unwrap();
    assert!(exports.withdraw_the_rest());
    assert_eq!(lock(&seen)[..], ["grant", "put", "delete", "read", "delete", "put"]);
}

#[test]
fn an_entry_that_is_withdrawn_while_it_comes_back_leaves_again() {
    let own = Arc::new(OnceLock::<Arc<Exports>>::new());
    let (them, mut puts) = (own.clone(), 0);
    let exports = exports(fake::gateway(move |path, request| {
        if action(path, request) == "put" {
            puts += 1;
            if puts == 2 {
                assert!(lock(&them.get().unwrap().state).forget("test/v1/Store/a", 1).is_some());
            }
        }
        done()
    }));
    let _ = own.set(exports.clone());
    let _registration = exports.publish(&entry("a"), ()).unwrap();
    exports.lose_lease(5);
    assert!(exports.restore());
    assert_eq!(lock(&exports.state).leaving.len(), 1);
    assert!(exports.withdraw_the_rest());
    assert_eq!(lock(&exports.state).leaving.len(), 0);
}

#[test]
fn while_etcd_is_away_withdrawing_waits_for_it_once() {
    let (mut is_away, mut asked) = (false, 0);
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let exports = exports(fake::gateway(move |path, request| {
        is_away |= action(path, request) == "delete";
        asked += usize::from(is_away);
        count.store(asked, Relaxed);
        if is_away { (503, json!({})) } else { done() }
    }));
    let registrations = ["a", "b", "c"].map(|name| (name, exports.publish(&entry(name), ()).unwrap()));
    for (name, registration) in registrations {
        let before = requests.load(Relaxed);
        let left = registration.withdraw().unwrap_err();
        assert!(matches!(left, Error::Unavailable { .. }), "{left}");
        assert_eq!(requests.load(Relaxed) > before, name == "a");
    }
    assert_eq!(lock(&exports.state).leaving.len(), 3);
    let before = requests.load(Relaxed);
    exports.stop();
    assert_eq!(requests.load(Relaxed), before + 1, "the lease is tried to be revoked once");
}

#[test]
fn an_entry_whose_lease_is_lost_while_it_is_put_comes_back() {
    let own = Arc::new(OnceLock::<Arc<Exports>>::new());
    let (them, mut leases) = (own.clone(), 0);
    let exports = exports(fake::gateway(move |path, request| {
        if action(path, request) == "put" && leases == 1 {
            them.get().unwrap().lose_lease(1);
        }
        leases += u64::from(path == "lease/grant");
        (200, json!({"succeeded": true, "ID": leases.to_string(), "TTL": "10"}))
    }));
    let _ = own.set(exports.clone());
    let _registration = exports.publish(&entry("a"), ()).unwrap();
    assert_eq!(lock(&exports.state).lost().count(), 1);
    assert!(exports.restore());
    assert_eq!(lock(&exports.state).lost().count(), 0);
}

#[test]
fn an_ownership_that_begins_anew_while_its_entry_is_withdrawn_ends() {
    let mut revision = 0;
    let exports = exports(fake::gateway(move |_, _| {
        revision += 1;
        let (lease, revision) = (revision.to_string(), revision.to_string());
        (200, json!({"succeeded": true, "ID": lease, "TTL": "10", "header": {"revision": revision}}))
    }));
    let registration = exports.publish(&entry("a"), ()).unwrap();
    let ownership = registration.ownership().unwrap().clone();
    exports.lose_lease(1);
    // A registration ends its ownership, and then waits for the thread, which is putting the entry again.
    ownership.end();
    assert!(exports.restore());
    assert!(ownership.fence().is_some());
    exports.withdraw("test/v1/Store/a", 1).unwrap();
    assert_eq!(ownership.fence(), None);
}

#[test]
fn a_put_that_was_executed_after_it_was_given_up_does_not_keep_the_name_from_its_process() {
    let former = document::render(&Entry { export: 8, ..entry("a") });
    let mut is_deleted = false;
    let exports = exports(fake::gateway(move |path, request| {
        is_deleted |= action(path, request) == "delete";
        if action(path, request) == "put" && !is_deleted {
            let kv = json!({"lease": "5", "create_revision": "3", "value": encoded(&former)});
            return (200, json!({"responses": [{"response_range": {"kvs": [kv]}}]}));
        }
        (200, json!({"succeeded": true, "ID": "5", "TTL": "10", "header": {"revision": "4"}}))
    }));
    let registration = exports.publish(&entry("a"), ()).unwrap();
    assert_eq!(registration.ownership().unwrap().fence(), Some(4));
}

#[test]
fn an_entry_whose_removal_failed_is_removed_later() {
    let mut deletes = 0;
    let exports = exports(fake::gateway(move |path, request| {
        if action(path, request) == "delete" {
            deletes += 1;
            if deletes == 1 {
                return refused();
            }
        }
        done()
    }));
    let _registration = exports.publish(&entry("a"), ()).unwrap();
    exports.remove("test/v1/Store/a", 3).unwrap_err();
    assert_eq!(lock(&exports.state).leaving.len(), 1);
    assert!(exports.withdraw_the_rest());
    assert_eq!(lock(&exports.state).leaving.len(), 0);
}

#[test]
fn a_forked_child_neither_publishes_with_the_lease_of_its_parent_nor_owns_it() {
    let gateway = fake::gateway(|_, _| done());
    let mut child = Exports::new(gateway, Keys::new("test"), Duration::from_secs(10), Clock::default());
    child.process = 0;
    let child = Arc::new(child);
    child.lease().unwrap();
    assert!(matches!(child.publish(&entry("a"), ()), Err(Error::Unavailable { .. })));
    assert!(!child.is_own(5));
}
