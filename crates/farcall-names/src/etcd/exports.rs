//! The entries that this process keeps in etcd, and the lease by which they go when the process is gone.
//!
//! All entries of a process have one lease. One thread keeps the lease alive, and withdraws what could not be
//! withdrawn at once. If the lease is lost, because etcd was out of reach or this process was stopped for
//! longer than the lease, the thread takes a new lease and publishes the entries again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use farcall_base::lock;
use serde_json::{Value, json};

use super::document::{self, Keys};
use super::gateway::{ENDPOINT_PATIENCE, Gateway, decoded, encoded, jittered, number};
use crate::clock::Clock;
use crate::{Entry, Error, Liveness, Owner, Ownership, Registration, Result};

/// The code of etcd's answer that a lease is unknown.
const NOT_FOUND: i64 = 5;

/// The longest time of a lease that etcd grants, in seconds: an hour, and what it adds for an election.
const MAX_GRANTED: u64 = 2 * 3600;

/// How many times an entry is tried to be put in the place of one that changes meanwhile, or with a new
/// lease.
const MAX_TRIES: usize = 4;

/// The part of a lease that is not counted on, because the clocks of this machine and of etcd's may go at
/// different speeds.
const CLOCK_MARGIN: u32 = 32;

/// Where requests go: a cluster, or a model of one.
pub(super) trait Cluster: Send + Sync {
    /// Makes a request, as [`Gateway::call`] does.
    fn call(&self, path: &str, request: &Value) -> Result<Value>;
    /// Makes a request, as [`Gateway::call_once`] does.
    fn call_once(&self, path: &str, request: &Value) -> Result<Value>;
    /// Returns whether the last request found nobody.
    fn is_away(&self) -> bool;
    /// Returns the registry's place.
    fn place(&self) -> String;
}

impl Cluster for Gateway {
    fn call(&self, path: &str, request: &Value) -> Result<Value> {
        Gateway::call(self, path, request)
    }

    fn call_once(&self, path: &str, request: &Value) -> Result<Value> {
        Gateway::call_once(self, ENDPOINT_PATIENCE, path, request)
    }

    fn is_away(&self) -> bool {
        Gateway::is_away(self)
    }

    fn place(&self) -> String {
        self.location().to_string()
    }
}

pub(super) struct Exports {
    cluster: Arc<dyn Cluster>,
    keys: Keys,
    /// How long entries stay after this process has gone.
    lease_time: Duration,
    clock: Clock,
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
    renewed: Duration,
}

impl Lease {
    /// Returns until when the lease surely lasts.
    fn until(&self) -> Duration {
        self.renewed + self.counted()
    }

    /// Returns for how long the lease surely lasts.
    fn counted(&self) -> Duration {
        self.time - self.time / CLOCK_MARGIN
    }
}

#[derive(Clone)]
struct Published {
    entry: Entry,
    /// The lease with which the entry was put last. The entry is there while that is the present lease.
    lease: u64,
    /// The revision at which the key was created (`create_revision`). A renewal does not change it.
    revision: u64,
    /// Lasts while the entry is there.
    ownership: Ownership,
    /// Which publication of the key by this process it is.
    serial: u64,
}

/// What became of an attempt to put an entry.
enum Put {
    /// The entry is there since this revision, with this lease.
    Done { lease: u64, revision: u64 },
    /// This entry has the key.
    Taken(Box<Entry>),
}

impl Exports {
    pub(super) fn new(cluster: Arc<dyn Cluster>, keys: Keys, lease_time: Duration, clock: Clock) -> Exports {
        Exports {
            cluster,
            keys,
            lease_time,
            clock,
            process: std::process::id(),
            state: Mutex::default(),
            changed: Condvar::new(),
            writing: Mutex::default(),
        }
    }

    /// Publishes an entry. `keep` is held by the registration that is returned.
    pub(super) fn publish<K: Send + Sync + 'static>(
        self: &Arc<Self>,
        entry: &Entry,
        keep: K,
    ) -> Result<Registration> {
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
        let (lease, revision) = match self.put(&key, entry) {
            Ok(Put::Done { lease, revision }) => (lease, revision),
            Ok(Put::Taken(found)) => return Err(found.taken()),
            Err(why) => {
                if let Error::Unavailable { .. } = why {
                    // It may have been put, and the lease would keep it.
                    self.leave(&key);
                }
                return Err(why);
            }
        };
        let ownership = Ownership::none(self.clock.clone());
        let mut state = lock(&self.state);
        state.publications += 1;
        let serial = state.publications;
        let published =
            Published { entry: entry.clone(), lease, revision, ownership: ownership.clone(), serial };
        state.published.insert(key.clone(), published);
        state.begin(&key, lease, revision);
        drop(state);
        self.changed.notify_all();
        self.start();
        let (exports, renewing, renewed) = (self.clone(), self.clone(), key.clone());
        let undo = move || {
            let _keep = keep;
            exports.withdraw(&key, serial)
        };
        let renew = move |entry: &Entry| renewing.renew(&renewed, serial, entry);
        Ok(Registration::new(entry.name(), undo).renewing(renew).owning(ownership))
    }

    /// Replaces the entry of a publication; its lease and its fence stay. Returns whether it is still
    /// published. An entry that has gone with a lost lease comes back as the new one.
    fn renew(&self, key: &str, serial: u64, entry: &Entry) -> Result<bool> {
        let _writing = lock(&self.writing);
        let (lease, revision) = {
            let mut state = lock(&self.state);
            let lease = state.lease.as_ref().map(|lease| lease.id);
            let Some(published) = state.published.get_mut(key).filter(|known| known.serial == serial) else {
                return Ok(false);
            };
            published.entry = entry.clone();
            if Some(published.lease) != lease {
                return Ok(true);
            }
            (published.lease, published.revision)
        };
        let text = document::render(entry);
        let request = json!({
            "compare": [created(key, revision)],
            "success": [{"request_put": {"key": encoded(key), "value": encoded(&text), "lease": lease.to_string()}}],
        });
        match self.cluster.call("kv/txn", &request) {
            Err(Error::Refused { code: NOT_FOUND, .. }) => self.lose_lease(lease),
            // If the key is another's now, the thread finds out by the lease.
            answer => drop(answer?),
        }
        Ok(true)
    }

    /// Withdraws the entry of a publication. Returns whether it was still there. While etcd is away, this
    /// leaves the entry to the thread at once, so that withdrawing many takes no longer than withdrawing one.
    fn withdraw(&self, key: &str, serial: u64) -> Result<bool> {
        if let Some(left) = self.withdraw_later(key, serial) {
            return left;
        }
        let _writing = lock(&self.writing);
        // etcd may have been found to be away meanwhile.
        if let Some(left) = self.withdraw_later(key, serial) {
            return left;
        }
        let (published, lease) = {
            let mut state = lock(&self.state);
            let Some(published) = state.forget(key, serial) else { return Ok(false) };
            (published, state.lease.as_ref().map(|lease| lease.id))
        };
        let deleted = match Some(published.lease) == lease {
            true => self.delete(key, published.revision),
            // It went with a lost lease. An attempt to put it again may have succeeded without an answer.
            false => self.delete_own(key),
        };
        deleted.inspect_err(|_| self.leave(key))
    }

    /// Leaves the entry of a publication to the thread, if etcd is away.
    fn withdraw_later(&self, key: &str, serial: u64) -> Option<Result<bool>> {
        let mut state = lock(&self.state);
        if !state.runs || !self.cluster.is_away() {
            return None;
        }
        if state.forget(key, serial).is_none() {
            return Some(Ok(false));
        }
        state.leaving.insert(key.to_owned());
        drop(state);
        self.changed.notify_all();
        Some(Err(self.unavailable("it has not answered before; the entry goes as soon as it answers again")))
    }

    /// Removes an entry that came into being at this revision, whether this process has published it or a
    /// tool. Returns whether it was there.
    pub(super) fn remove(&self, key: &str, revision: u64) -> Result<bool> {
        let _writing = lock(&self.writing);
        let own = lock(&self.state).published.remove(key);
        if let Some(own) = &own {
            own.ownership.end();
        }
        self.delete(key, revision).inspect_err(|_| {
            if own.is_some() {
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
        Error::Unavailable { registry: self.cluster.place(), why: why.into() }
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
            state.published.values().for_each(|published| published.ownership.end());
            state.lease.take()
        };
        self.changed.notify_all();
        if let Some(lease) = lease {
            let request = json!({"ID": lease.id.to_string()});
            // If it fails, the lease ends by itself.
            let _ = match self.cluster.is_away() {
                true => self.cluster.call_once("lease/revoke", &request),
                false => self.cluster.call("lease/revoke", &request),
            };
        }
    }

    /// Puts an entry if its key is free, if this process has it, or if its owner is a dead process of this
    /// machine.
    fn put(&self, key: &str, entry: &Entry) -> Result<Put> {
        let text = document::render(entry);
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let lease = self.lease()?;
            let request = json!({
                "compare": [created(key, 0)],
                "success": [{"request_put": {"key": encoded(key), "value": encoded(&text), "lease": lease.to_string()}}],
                "failure": [{"request_range": {"key": encoded(key)}}],
            });
            let answer = match self.cluster.call("kv/txn", &request) {
                Err(Error::Refused { code: NOT_FOUND, .. }) => {
                    self.lose_lease(lease);
                    continue;
                }
                answer => answer?,
            };
            if answer["succeeded"].as_bool() == Some(true) {
                let revision = number(&answer["header"]["revision"]);
                return Ok(Put::Done { lease, revision });
            }
            let found = &answer["responses"][0]["response_range"]["kvs"][0];
            let revision = number(&found["create_revision"]);
            if revision == 0 {
                // The key has gone meanwhile.
                continue;
            }
            let value = decoded(&found["value"]).unwrap_or_default();
            if number(&found["lease"]) == lease {
                // The answer to an earlier try of this request may have been lost.
                if value == text.as_bytes() {
                    return Ok(Put::Done { lease, revision });
                }
                // etcd has executed a request of an earlier publication after it was given up.
                self.delete(key, revision)?;
                continue;
            }
            let other = document::parse(entry.type_name.clone(), entry.instance.clone(), &value);
            match other {
                Ok(other) if is_dead_here(&other.owner) => {
                    // It is not overwritten, so that a key's first revision is that of its owner.
                    self.delete(key, revision)?;
                    last = Some(other);
                }
                Ok(other) => return Ok(Put::Taken(Box::new(other))),
                Err(why) => return Err(Error::Malformed { key: key.to_owned(), why }),
            }
        }
        match last {
            Some(other) => Ok(Put::Taken(Box::new(other))),
            None => Err(self.unavailable(format!("the lease or the key {key} changed {MAX_TRIES} times"))),
        }
    }

    /// Deletes a key that has the present lease. Returns whether there was one.
    fn delete_own(&self, key: &str) -> Result<bool> {
        let Some(lease) = lock(&self.state).lease.as_ref().map(|lease| lease.id) else { return Ok(false) };
        let answer = self.cluster.call("kv/range", &json!({"key": encoded(key)}))?;
        let found = &answer["kvs"][0];
        if number(&found["lease"]) != lease {
            return Ok(false);
        }
        self.delete(key, number(&found["create_revision"]))
    }

    /// Deletes a key that came into being at this revision. Returns whether it was there. A request that etcd
    /// executes late, long after its answer was given up, cannot delete what was put meanwhile.
    fn delete(&self, key: &str, revision: u64) -> Result<bool> {
        let request = json!({
            "compare": [created(key, revision)],
            "success": [{"request_delete_range": {"key": encoded(key)}}],
        });
        Ok(self.cluster.call("kv/txn", &request)?["succeeded"].as_bool() == Some(true))
    }

    /// Returns the identifier of the lease. Takes one if there is none.
    fn lease(&self) -> Result<u64> {
        if let Some(lease) = &lock(&self.state).lease {
            return Ok(lease.id);
        }
        let renewed = self.clock.now();
        let request = json!({"TTL": self.lease_time.as_secs().max(1).to_string()});
        let answer = self.cluster.call("lease/grant", &request)?;
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
            state.published.values().for_each(|published| published.ownership.end());
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
            if !self.work() {
                self.pause();
            }
        }
    }

    /// Prolongs the lease, withdraws what is to go, and publishes what was lost. Returns whether all is done.
    fn work(&self) -> bool {
        let kept = self.keep_alive();
        let withdrawn = kept && self.withdraw_the_rest();
        let restored = kept && self.restore();
        withdrawn && restored
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
            let left = due.map(|due| due.saturating_sub(self.clock.now()));
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
        let sent = self.clock.now();
        let answer = self.cluster.call("lease/keepalive", &json!({"ID": lease.id.to_string()}));
        match answer {
            Ok(answer) if number(&answer["result"]["TTL"]) > 0 => {
                if self.clock.now() < lease.until() {
                    lock(&self.state).prolong(lease.id, sent);
                } else {
                    self.revoke_doubtful(lease.id);
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

    /// Takes a lease back that may have ended before etcd prolonged it. etcd also answers so while it deletes
    /// the keys of a lease that has ended (etcd issue 14758).
    fn revoke_doubtful(&self, id: u64) {
        self.lose_lease(id);
        // If it fails, the lease ends by itself.
        let _ = self.cluster.call("lease/revoke", &json!({"ID": id.to_string()}));
    }

    /// Prolongs the lease if it is time to, in the course of work that may take longer than the lease.
    fn keep_alive_meanwhile(&self) {
        let is_due = |lease: &Lease| lease.renewed + lease.time / 3 <= self.clock.now();
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
        self.delete_own(key)?;
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
            match self.put(&key, &entry) {
                Ok(Put::Done { lease, revision }) => {
                    let mut state = lock(&self.state);
                    if !state.begin(&key, lease, revision) {
                        // It was withdrawn meanwhile.
                        state.leaving.insert(key);
                    }
                }
                _ => all = false,
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
    /// Notes that an entry is there since this revision, with this lease. Returns whether it is published.
    fn begin(&mut self, key: &str, lease: u64, revision: u64) -> bool {
        let Some(published) = self.published.get_mut(key) else { return false };
        (published.lease, published.revision) = (lease, revision);
        // If the lease was lost meanwhile, the entry has gone with it.
        if let Some(own) = self.lease.as_ref().filter(|own| own.id == lease) {
            published.ownership.begin(revision, own.until());
        }
        true
    }

    /// Notes that etcd has prolonged a lease, by a request that was sent at `sent`.
    fn prolong(&mut self, lease: u64, sent: Duration) {
        let Some(own) = self.lease.as_mut().filter(|own| own.id == lease) else { return };
        own.renewed = sent;
        let (sent, time) = (own.renewed, own.counted());
        for published in self.published.values().filter(|published| published.lease == lease) {
            published.ownership.prolong(sent, time);
        }
    }

    /// Forgets the entry of a publication. Returns what was known of it.
    fn forget(&mut self, key: &str, serial: u64) -> Option<Published> {
        self.published.get(key).filter(|published| published.serial == serial)?;
        let published = self.published.remove(key)?;
        // The registration has ended it before. The thread may have put the entry once more since then.
        published.ownership.end();
        Some(published)
    }

    /// Returns the entries that have gone with a lost lease.
    fn lost(&self) -> impl Iterator<Item = (&String, &Published)> {
        let lease = self.lease.as_ref().map(|lease| lease.id);
        self.published.iter().filter(move |(_, published)| Some(published.lease) != lease)
    }
}

/// Returns the condition that a key came into being at this revision; 0 if it is free.
fn created(key: &str, revision: u64) -> Value {
    json!({"key": encoded(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision.to_string()})
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
mod tests;
