//! The entries that this process keeps in etcd, and the lease by which they go when the process is gone.
//!
//! All entries of a process have one lease. One thread keeps the lease alive, and withdraws what could not be
//! withdrawn at once. If the lease is lost, because etcd was out of reach or this process was stopped for
//! longer than the lease, the thread takes a new lease and publishes the entries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farcall_base::lock;
use serde_json::{Value, json};

use super::document::{self, Keys};
use super::gateway::{Gateway, decoded, encoded, jittered, number};
use crate::{Entry, Error, Liveness, Owner, Result};

/// The code of etcd's answer that a lease is unknown.
const NOT_FOUND: i64 = 5;

/// The longest time of a lease that etcd grants, in seconds: an hour, and what it adds for an election.
const MAX_GRANTED: u64 = 2 * 3600;

/// How many times an entry is tried to be put in the place of one that changes meanwhile, or with a new
/// lease.
const MAX_TRIES: usize = 4;

pub(super) struct Exports {
    gateway: Arc<Gateway>,
    keys: Keys,
    /// How long entries stay after this process has gone.
    lease_time: Duration,
    /// The process that has the thread. A forked child has a copy of this without the thread.
    process: u32,
    state: Mutex<State>,
    /// Wakes the thread.
    changed: Condvar,
    /// Held while entries are written, so that a lease is granted once.
    writing: Mutex<()>,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    /// The entries that are to be in etcd, by their keys.
    published: BTreeMap<String, Published>,
    /// The keys of entries with the present lease that are to go, which etcd may still have.
    leaving: BTreeSet<String>,
    /// How many entries were published.
    publications: u64,
    runs: bool,
    stopped: bool,
}

#[derive(Clone)]
struct Lease {
    id: u64,
    time: Duration,
    /// When the last request was sent that etcd has answered by prolonging the lease.
    renewed: Instant,
}

#[derive(Clone)]
struct Published {
    entry: Entry,
    /// The lease with which the entry was put last. The entry is there while that is the present lease.
    lease: u64,
    /// Which publication of the key by this process it is.
    serial: u64,
}

/// What became of an attempt to put an entry.
enum Put {
    /// The entry is there, with this lease.
    Done(u64),
    /// This entry has the key.
    Taken(Box<Entry>),
}

impl Exports {
    pub(super) fn new(gateway: Arc<Gateway>, keys: Keys, lease_time: Duration) -> Exports {
        Exports {
            gateway,
            keys,
            lease_time,
            process: std::process::id(),
            state: Mutex::default(),
            changed: Condvar::new(),
            writing: Mutex::default(),
        }
    }

    /// Publishes an entry. Returns the serial number by which it is withdrawn.
    pub(super) fn publish(self: &Arc<Self>, entry: &Entry) -> Result<u64> {
        if self.process != std::process::id() {
            let why =
                "this process was forked from the one that keeps the lease; it needs a registry of its own";
            return Err(self.unavailable(why));
        }
        let key = self.keys.of(&entry.type_name, &entry.instance);
        let _writing = lock(&self.writing);
        if let Some(known) = lock(&self.state).published.get(&key) {
            return Err(known.entry.taken());
        }
        // An entry that has not left yet would be taken for this one, and then leave.
        if lock(&self.state).leaving.contains(&key) {
            self.withdraw_left(&key)?;
        }
        let lease = match self.put(&key, entry) {
            Ok(Put::Done(lease)) => lease,
            Ok(Put::Taken(found)) => return Err(found.taken()),
            Err(why) => {
                if let Error::Unavailable { .. } = why {
                    // It may have been put, and the lease would keep it.
                    self.leave(&key);
                }
                return Err(why);
            }
        };
        let mut state = lock(&self.state);
        state.publications += 1;
        let serial = state.publications;
        state.published.insert(key, Published { entry: entry.clone(), lease, serial });
        drop(state);
        self.changed.notify_all();
        self.start();
        Ok(serial)
    }

    /// Withdraws the entry of a publication. Returns whether it was still there. While etcd is away, this leaves
    /// the entry to the thread at once, so that withdrawing many takes no longer than withdrawing one.
    pub(super) fn withdraw(&self, key: &str, serial: u64) -> Result<bool> {
        if let Some(left) = self.withdraw_later(key, serial) {
            return left;
        }
        let _writing = lock(&self.writing);
        // etcd may have been found to be away meanwhile.
        if let Some(left) = self.withdraw_later(key, serial) {
            return left;
        }
        if !lock(&self.state).forget(key, serial) {
            return Ok(false);
        }
        self.delete(key).inspect_err(|_| self.leave(key))
    }

    /// Leaves the entry of a publication to the thread, if etcd is away.
    fn withdraw_later(&self, key: &str, serial: u64) -> Option<Result<bool>> {
        let mut state = lock(&self.state);
        if !state.runs || !self.gateway.is_away() {
            return None;
        }
        if !state.forget(key, serial) {
            return Some(Ok(false));
        }
        state.leaving.insert(key.to_owned());
        drop(state);
        self.changed.notify_all();
        Some(Err(self.unavailable("it has not answered before; the entry goes as soon as it answers again")))
    }

    /// Removes an entry that was put last at this revision, whether this process has published it or a tool.
    /// Returns whether it was there.
    pub(super) fn remove(&self, key: &str, revision: u64) -> Result<bool> {
        let _writing = lock(&self.writing);
        let was_own = lock(&self.state).published.remove(key).is_some();
        let condition = json!({"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()});
        self.delete_if(key, &condition).inspect_err(|_| {
            if was_own {
                self.leave(key);
            }
        })
    }

    /// Has the thread withdraw an entry. The lease is kept alive for other entries, and would keep this one
    /// too.
    fn leave(&self, key: &str) {
        lock(&self.state).leaving.insert(key.to_owned());
        self.changed.notify_all();
    }

    fn unavailable(&self, why: impl Into<String>) -> Error {
        Error::Unavailable { registry: self.gateway.location().to_string(), why: why.into() }
    }

    /// Returns whether an entry with this lease is one of this process.
    pub(super) fn is_own(&self, lease: u64) -> bool {
        lease != 0
            && self.process == std::process::id()
            && lock(&self.state).lease.as_ref().is_some_and(|own| own.id == lease)
    }

    /// Ends the thread, and revokes the lease. So the entries go at once.
    pub(super) fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        let lease = {
            let mut state = lock(&self.state);
            state.stopped = true;
            state.lease.take()
        };
        self.changed.notify_all();
        if let Some(lease) = lease {
            let request = json!({"ID": lease.id.to_string()});
            // If it fails, the lease ends by itself.
            let _ = match self.gateway.is_away() {
                true => self.gateway.call_once("lease/revoke", &request),
                false => self.gateway.call("lease/revoke", &request),
            };
        }
    }

    /// Puts an entry if its key is free, if this process has it, or if its owner is a dead process of this
    /// machine.
    fn put(&self, key: &str, entry: &Entry) -> Result<Put> {
        let text = document::render(entry);
        let mut expected = 0;
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let lease = self.lease()?;
            let request = json!({
                "compare": [{"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": expected.to_string()}],
                "success": [{"request_put": {"key": encoded(key), "value": encoded(&text), "lease": lease.to_string()}}],
                "failure": [{"request_range": {"key": encoded(key)}}],
            });
            let answer = match self.gateway.call("kv/txn", &request) {
                Err(Error::Refused { code: NOT_FOUND, .. }) => {
                    self.lose_lease(lease);
                    continue;
                }
                answer => answer?,
            };
            if answer["succeeded"].as_bool() == Some(true) {
                return Ok(Put::Done(lease));
            }
            let found = &answer["responses"][0]["response_range"]["kvs"][0];
            expected = number(&found["mod_revision"]);
            if expected == 0 {
                // The key has gone meanwhile.
                continue;
            }
            let value = decoded(&found["value"]).unwrap_or_default();
            // The answer to an earlier try of this request may have been lost.
            if number(&found["lease"]) == lease && value == text.as_bytes() {
                return Ok(Put::Done(lease));
            }
            let other = document::parse(entry.type_name.clone(), entry.instance.clone(), &value);
            match other {
                Ok(other) if is_dead_here(&other.owner) => last = Some(other),
                Ok(other) => return Ok(Put::Taken(Box::new(other))),
                Err(why) => return Err(Error::Malformed { key: key.to_owned(), why }),
            }
        }
        match last {
            Some(other) => Ok(Put::Taken(Box::new(other))),
            None => Err(self.unavailable(format!("the lease or the key {key} changed {MAX_TRIES} times"))),
        }
    }

    /// Deletes a key with the present lease. Returns whether it was there. Without a lease there is none.
    fn delete(&self, key: &str) -> Result<bool> {
        let Some(lease) = lock(&self.state).lease.as_ref().map(|lease| lease.id) else { return Ok(false) };
        let condition =
            json!({"key": encoded(key), "target": "LEASE", "result": "EQUAL", "lease": lease.to_string()});
        self.delete_if(key, &condition)
    }

    fn delete_if(&self, key: &str, condition: &Value) -> Result<bool> {
        let request = json!({
            "compare": [condition],
            "success": [{"request_delete_range": {"key": encoded(key)}}],
        });
        Ok(self.gateway.call("kv/txn", &request)?["succeeded"].as_bool() == Some(true))
    }

    /// Returns the identifier of the lease. Takes one if there is none.
    fn lease(&self) -> Result<u64> {
        if let Some(lease) = &lock(&self.state).lease {
            return Ok(lease.id);
        }
        let renewed = Instant::now();
        let request = json!({"TTL": self.lease_time.as_secs().max(1).to_string()});
        let answer = self.gateway.call("lease/grant", &request)?;
        let lease = Lease { id: number(&answer["ID"]), time: granted(&answer), renewed };
        let id = lease.id;
        lock(&self.state).lease = Some(lease);
        Ok(id)
    }

    /// Notes that etcd does not know a lease any more.
    fn lose_lease(&self, id: u64) {
        let mut state = lock(&self.state);
        if state.lease.as_ref().is_some_and(|lease| lease.id == id) {
            state.lease = None;
            state.leaving.clear();
        }
    }

    /// Starts the thread, if it does not run.
    fn start(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.runs || state.stopped {
            return;
        }
        let exports = self.clone();
        let thread = std::thread::Builder::new().name("farcall-etcd-lease".into());
        state.runs = thread.spawn(move || exports.run()).is_ok();
    }

    /// Keeps the lease alive until this is stopped.
    fn run(&self) {
        while let Some(()) = self.wait_until_due() {
            let kept = self.keep_alive();
            let withdrawn = kept && self.withdraw_the_rest();
            let restored = kept && self.restore();
            if !withdrawn || !restored {
                self.pause();
            }
        }
    }

    /// Waits until the lease must be prolonged, or there is something else to do. Returns `None` once this is
    /// stopped.
    fn wait_until_due(&self) -> Option<()> {
        let mut state = lock(&self.state);
        loop {
            if state.stopped {
                return None;
            }
            let has_work = !state.leaving.is_empty() || state.lost().next().is_some();
            let due = state.lease.as_ref().map(|lease| lease.renewed + lease.time / 3);
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            if has_work || left == Some(Duration::ZERO) {
                return Some(());
            }
            // Without a lease there is nothing to prolong until an entry is published.
            let left = left.unwrap_or(self.lease_time);
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|why| why.into_inner()).0;
        }
    }

    /// Prolongs the lease. Returns false if etcd is out of reach.
    fn keep_alive(&self) -> bool {
        let Some(lease) = lock(&self.state).lease.clone() else { return true };
        let sent = Instant::now();
        let answer = self.gateway.call("lease/keepalive", &json!({"ID": lease.id.to_string()}));
        match answer {
            Ok(answer) if number(&answer["result"]["TTL"]) > 0 => {
                if let Some(lease) = lock(&self.state).lease.as_mut().filter(|own| own.id == lease.id) {
                    lease.renewed = sent;
                }
                true
            }
            Ok(_) | Err(Error::Refused { code: NOT_FOUND, .. }) => {
                self.lose_lease(lease.id);
                true
            }
            Err(_) => false,
        }
    }

    /// Prolongs the lease if it is time to, in the course of work that may take longer than the lease.
    fn keep_alive_meanwhile(&self) {
        let is_due = |lease: &Lease| lease.renewed.elapsed() >= lease.time / 3;
        let is_due = lock(&self.state).lease.as_ref().is_some_and(is_due);
        if is_due {
            self.keep_alive();
        }
    }

    /// Withdraws the entries that could not be withdrawn at once. Returns whether all have gone.
    fn withdraw_the_rest(&self) -> bool {
        let leaving = lock(&self.state).leaving.clone();
        let mut all = true;
        for key in leaving {
            self.keep_alive_meanwhile();
            let _writing = lock(&self.writing);
            // It may have left meanwhile, because it is to be published again.
            if lock(&self.state).leaving.contains(&key) {
                all &= self.withdraw_left(&key).is_ok();
            }
        }
        all
    }

    fn withdraw_left(&self, key: &str) -> Result<()> {
        self.delete(key)?;
        lock(&self.state).leaving.remove(key);
        Ok(())
    }

    /// Publishes again the entries that have gone with a lost lease. Returns whether all are there: another
    /// process may have taken a name, and keeps it as long as it lives.
    fn restore(&self) -> bool {
        let lost: Vec<String> = lock(&self.state).lost().map(|(key, _)| key.clone()).collect();
        let mut all = true;
        for key in lost {
            self.keep_alive_meanwhile();
            let _writing = lock(&self.writing);
            let entry =
                lock(&self.state).lost().find(|(lost, _)| **lost == key).map(|(_, lost)| lost.entry.clone());
            let Some(entry) = entry else { continue };
            let Ok(Put::Done(lease)) = self.put(&key, &entry) else {
                all = false;
                continue;
            };
            let mut state = lock(&self.state);
            match state.published.get_mut(&key) {
                Some(published) => published.lease = lease,
                // It was withdrawn meanwhile.
                None => drop(state.leaving.insert(key)),
            }
        }
        all
    }

    /// Waits a moment before the next attempt, or until this is stopped.
    fn pause(&self) {
        let state = lock(&self.state);
        if !state.stopped {
            let time = jittered(self.lease_time / 4);
            drop(self.changed.wait_timeout(state, time).unwrap_or_else(|why| why.into_inner()));
        }
    }
}

impl State {
    /// Forgets the entry of a publication. Returns whether it was known.
    fn forget(&mut self, key: &str, serial: u64) -> bool {
        let is_known = self.published.get(key).is_some_and(|published| published.serial == serial);
        is_known && self.published.remove(key).is_some()
    }

    /// Returns the entries that have gone with a lost lease.
    fn lost(&self) -> impl Iterator<Item = (&String, &Published)> {
        let lease = self.lease.as_ref().map(|lease| lease.id);
        self.published.iter().filter(move |(_, published)| Some(published.lease) != lease)
    }
}

/// Returns the time that a lease was granted. A server that claims an absurd one is not believed.
fn granted(answer: &Value) -> Duration {
    Duration::from_secs(number(&answer["TTL"]).clamp(1, MAX_GRANTED))
}

/// Returns whether an owner is a process of this machine that has ended. An owner on another machine may
/// live, whatever this machine knows.
pub(super) fn is_dead_here(owner: &Owner) -> bool {
    let here = Owner::current();
    let same = owner.boot != 0 && owner.boot == here.boot && owner.namespace == here.namespace;
    same && owner.liveness() == Liveness::Dead
}

#[cfg(test)]
mod tests {
    use super::super::fake;
    use super::*;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn entry(instance: &str) -> Entry {
        let address = "udp://127.0.0.1:7000".parse().unwrap();
        Entry::new("Store".parse().unwrap(), instance.parse().unwrap(), address, 7)
    }

    /// Returns exports whose thread does not run, so that a test does its work.
    fn exports(gateway: Arc<Gateway>) -> Arc<Exports> {
        let exports = Exports::new(gateway, Keys::new("test"), Duration::from_secs(10));
        lock(&exports.state).runs = true;
        Arc::new(exports)
    }

    fn refused() -> (u16, Value) {
        (429, json!({"code": 8, "message": "refused"}))
    }

    /// Returns what a request does: the last part of its path, or what a transaction does if it succeeds.
    fn action(path: &str, request: &Value) -> &'static str {
        match path {
            "kv/txn" if !request["success"][0]["request_put"].is_null() => "put",
            "kv/txn" => "delete",
            "lease/grant" => "grant",
            "lease/keepalive" => "keep alive",
            _ => "other",
        }
    }

    #[test]
    fn a_lease_of_an_absurd_time_is_bounded() {
        let time = granted(&json!({"TTL": u64::MAX.to_string()}));
        assert!(Instant::now().checked_add(time).is_some());
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
            (200, json!({"succeeded": true, "ID": "5", "TTL": "10"}))
        }));
        let serial = exports.publish(&entry("a")).unwrap();
        exports.withdraw("test/v1/Store/a", serial).unwrap_err();
        let _serial = exports.publish(&entry("a")).unwrap();
        assert!(exports.withdraw_the_rest());
        assert_eq!(lock(&seen)[..], ["grant", "put", "delete", "delete", "put"]);
    }

    #[test]
    fn an_entry_that_is_withdrawn_while_it_comes_back_leaves_again() {
        let own = Arc::new(OnceLock::<Arc<Exports>>::new());
        let (them, mut puts) = (own.clone(), 0);
        let exports = exports(fake::gateway(move |path, request| {
            if action(path, request) == "put" {
                puts += 1;
                if puts == 2 {
                    assert!(lock(&them.get().unwrap().state).forget("test/v1/Store/a", 1));
                }
            }
            (200, json!({"succeeded": true, "ID": "5", "TTL": "10"}))
        }));
        let _ = own.set(exports.clone());
        exports.publish(&entry("a")).unwrap();
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
            let status = if is_away { 503 } else { 200 };
            (status, json!({"succeeded": true, "ID": "5", "TTL": "10"}))
        }));
        let serials = ["a", "b", "c"].map(|name| (name, exports.publish(&entry(name)).unwrap()));
        for (name, serial) in serials {
            let before = requests.load(Relaxed);
            let left = exports.withdraw(&format!("test/v1/Store/{name}"), serial).unwrap_err();
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
        exports.publish(&entry("a")).unwrap();
        assert_eq!(lock(&exports.state).lost().count(), 1);
        assert!(exports.restore());
        assert_eq!(lock(&exports.state).lost().count(), 0);
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
            (200, json!({"succeeded": true, "ID": "5", "TTL": "10"}))
        }));
        exports.publish(&entry("a")).unwrap();
        exports.remove("test/v1/Store/a", 3).unwrap_err();
        assert_eq!(lock(&exports.state).leaving.len(), 1);
        assert!(exports.withdraw_the_rest());
        assert_eq!(lock(&exports.state).leaving.len(), 0);
    }

    #[test]
    fn a_forked_child_neither_publishes_with_the_lease_of_its_parent_nor_owns_it() {
        let gateway = fake::gateway(|_, _| (200, json!({"succeeded": true, "ID": "5", "TTL": "10"})));
        let mut child = Exports::new(gateway, Keys::new("test"), Duration::from_secs(10));
        child.process = 0;
        let child = Arc::new(child);
        child.lease().unwrap();
        assert!(matches!(child.publish(&entry("a")), Err(Error::Unavailable { .. })));
        assert!(!child.is_own(5));
    }
}
