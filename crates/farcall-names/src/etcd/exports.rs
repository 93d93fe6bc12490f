//! The entries that this process keeps in etcd, and the lease by which they go when the process is gone.
//!
//! All entries of a process have one lease. One thread keeps the lease alive, and withdraws what could not be
//! withdrawn at once. If the lease is lost, because etcd was out of reach or this process was stopped for
//! longer than the lease, the thread takes a new lease and publishes the entries again.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use farcall_base::lock;
use serde_json::{Value, json};

use super::document::{self, Keys};
use super::gateway::{Gateway, decoded, encoded, jittered, number};
use crate::{Entry, Error, Liveness, Owner, Result};

/// The code of etcd's answer that a lease is unknown.
const NOT_FOUND: i64 = 5;

/// How many times an entry is tried to be put in the place of one that changes meanwhile, or with a new lease.
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
    /// Entries to withdraw, which etcd may still have: their keys, and the revisions at which they were put.
    leaving: Vec<(String, u64)>,
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
    /// The revision at which the entry was put; 0 while it is not there.
    revision: u64,
    /// Which publication of the key by this process it is.
    serial: u64,
}

/// What became of an attempt to put an entry.
enum Put {
    /// The entry is there, put at this revision.
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
        let key = self.keys.of(&entry.type_name, &entry.instance);
        let _writing = lock(&self.writing);
        if let Some(known) = lock(&self.state).published.get(&key) {
            return Err(known.entry.taken());
        }
        let revision = match self.put(&key, entry)? {
            Put::Done(revision) => revision,
            Put::Taken(found) => return Err(found.taken()),
        };
        let mut state = lock(&self.state);
        state.published.insert(key, Published { entry: entry.clone(), revision, serial: revision });
        drop(state);
        self.changed.notify_all();
        self.start();
        Ok(revision)
    }

    /// Withdraws the entry of a publication. Returns whether it was still there.
    pub(super) fn withdraw(&self, key: &str, serial: u64) -> Result<bool> {
        let _writing = lock(&self.writing);
        let revision = {
            let mut state = lock(&self.state);
            if state.published.get(key).is_none_or(|published| published.serial != serial) {
                return Ok(false);
            }
            state.published.remove(key).map_or(0, |published| published.revision)
        };
        let removed = self.delete(key, revision);
        if removed.is_err() {
            // The lease is kept alive for other entries, and would keep this one too.
            lock(&self.state).leaving.push((key.to_owned(), revision));
            self.changed.notify_all();
        }
        removed
    }

    /// Forgets an entry that another way has withdrawn. Returns whether this process had published it.
    pub(super) fn forget(&self, key: &str) -> bool {
        lock(&self.state).published.remove(key).is_some()
    }

    /// Returns whether an entry with this lease is one of this process.
    pub(super) fn is_own(&self, lease: u64) -> bool {
        lease != 0 && lock(&self.state).lease.as_ref().is_some_and(|own| own.id == lease)
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
            // If it fails, the lease ends by itself.
            let _ = self.gateway.call("lease/revoke", &json!({"ID": lease.id.to_string()}));
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
                return Ok(Put::Done(number(&answer["header"]["revision"])));
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
                return Ok(Put::Done(expected));
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
            None => Err(Error::Unavailable {
                registry: self.gateway.location().to_string(),
                why: format!("the lease or the key {key} changed {MAX_TRIES} times"),
            }),
        }
    }

    /// Deletes a key that was put last at this revision. Returns whether it was there.
    fn delete(&self, key: &str, revision: u64) -> Result<bool> {
        if revision == 0 {
            return Ok(false);
        }
        let request = json!({
            "compare": [{"key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()}],
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
            state.published.values_mut().for_each(|published| published.revision = 0);
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
            self.withdraw_the_rest();
            let restored = kept && self.restore();
            if !restored {
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
            let has_work = !state.leaving.is_empty() || state.published.values().any(|one| one.revision == 0);
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

    /// Withdraws the entries that could not be withdrawn at once.
    fn withdraw_the_rest(&self) {
        let _writing = lock(&self.writing);
        let leaving = lock(&self.state).leaving.clone();
        for (key, revision) in leaving {
            if self.delete(&key, revision).is_err() {
                return;
            }
            lock(&self.state).leaving.retain(|left| *left != (key.clone(), revision));
        }
    }

    /// Publishes again the entries that have gone with a lost lease. Returns whether all are there: another
    /// process may have taken a name, and keeps it as long as it lives.
    fn restore(&self) -> bool {
        let _writing = lock(&self.writing);
        let lost: Vec<(String, Published)> = {
            let state = lock(&self.state);
            let lost = state.published.iter().filter(|(_, published)| published.revision == 0);
            lost.map(|(key, published)| (key.clone(), published.clone())).collect()
        };
        let mut all = true;
        for (key, published) in lost {
            let Ok(Put::Done(revision)) = self.put(&key, &published.entry) else {
                all = false;
                continue;
            };
            if let Some(published) = lock(&self.state).published.get_mut(&key) {
                published.revision = revision;
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

/// Returns the time that a lease was granted.
fn granted(answer: &Value) -> Duration {
    Duration::from_secs(number(&answer["TTL"]).max(1))
}

/// Returns whether an owner is a process of this machine that has ended. An owner on another machine may live,
/// whatever this machine knows.
fn is_dead_here(owner: &Owner) -> bool {
    let here = Owner::current();
    let same = owner.boot != 0 && owner.boot == here.boot && owner.namespace == here.namespace;
    same && owner.liveness() == Liveness::Dead
}
