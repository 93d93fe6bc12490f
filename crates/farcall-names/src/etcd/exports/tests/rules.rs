//! A simulation of the rules of leases: exporters compete for one name at a model of etcd, in virtual time.
//! Requests and answers are lost, late, or executed long after they were given up; exporters are stopped;
//! clocks go at different speeds; elections prolong leases. At no time may two exporters admit calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use farcall_base::lock;
use serde_json::{Value, json};

use super::super::{Cluster, Exports, NOT_FOUND};
use super::{entry, number};
use crate::clock::Clock;
use crate::etcd::document::Keys;
use crate::{Error, Ownership, Registration, Result};

const LEASE_TIME: Duration = Duration::from_secs(10);
const EXPORTERS: usize = 3;
const STEPS: usize = 60;

/// How far acts of exporters go into one another: while one waits for an answer, another acts.
const MAX_DEPTH: usize = 3;

/// What the parts of one run share.
struct World {
    state: Mutex<State>,
    exporters: Mutex<Vec<Exporter>>,
}

struct Exporter {
    exports: Arc<Exports>,
    /// Whether it is in the middle of an act.
    acts: bool,
    registration: Option<Registration>,
    /// The ownership of the present registration, which is elsewhere while it is withdrawn.
    ownership: Option<Ownership>,
}

struct State {
    seed: u64,
    random: u64,
    depth: usize,
    /// The time by etcd's clock.
    time: Duration,
    /// The clocks of the exporters, and their speeds in thousandths of etcd's.
    clocks: Vec<(Arc<Mutex<Duration>>, u32)>,
    etcd: Etcd,
    /// Requests that their clients have given up, and that etcd will execute.
    late: Vec<(String, Value)>,
    /// The owner of each fence.
    owners: BTreeMap<u64, usize>,
    /// The fences of writes of admitted calls that are on their way to the resource.
    writes: Vec<u64>,
    /// The greatest fence that the resource has seen.
    seen: u64,
    counts: Counts,
}

/// A model of etcd with one key.
#[derive(Default)]
struct Etcd {
    revision: u64,
    kv: Option<KeyValue>,
    /// The times and the ends of leases.
    leases: BTreeMap<u64, (Duration, Duration)>,
    last_lease: u64,
}

struct KeyValue {
    value: Value,
    lease: u64,
    created: u64,
}

#[derive(Debug, Default)]
struct Counts {
    admitted: u64,
    owners: u64,
    stale_writes: u64,
    expired: u64,
    lost_answers: u64,
    late_requests: u64,
}

/// An exporter's way to etcd.
struct Link(Weak<World>);

#[test]
fn no_two_exporters_own_a_name_at_the_same_time() {
    let only = std::env::var("FARCALL_SIM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let mut sum = Counts::default();
    for seed in only.map_or(0..1000, |seed| seed..seed + 1) {
        let counts = run(seed);
        sum.admitted += counts.admitted;
        sum.owners += counts.owners;
        sum.stale_writes += counts.stale_writes;
        sum.expired += counts.expired;
        sum.lost_answers += counts.lost_answers;
        sum.late_requests += counts.late_requests;
    }
    println!("{sum:?}");
    if only.is_none() {
        let Counts { admitted, owners, stale_writes, expired, lost_answers, late_requests } = sum;
        let least = [admitted, owners, stale_writes, expired, lost_answers, late_requests].into_iter().min();
        assert!(least > Some(100), "the simulation meets too little: {sum:?}");
    }
}

fn run(seed: u64) -> Counts {
    let mut state = State::new(seed);
    let clocks: Vec<_> = state.clocks.iter().map(|(clock, _)| clock.clone()).collect();
    state.advance(Duration::from_secs(1));
    let world = Arc::new_cyclic(|world: &Weak<World>| World {
        state: Mutex::new(state),
        exporters: Mutex::new(
            clocks.into_iter().map(|clock| Exporter::new(Link(world.clone()), clock)).collect(),
        ),
    });
    for _ in 0..STEPS {
        world.state().step();
        world.act();
        world.check();
    }
    // What is withdrawn after the end is not simulated.
    let exporters = std::mem::take(&mut *lock(&world.exporters));
    exporters.into_iter().for_each(|exporter| std::mem::forget(exporter.registration));
    std::mem::take(&mut world.state().counts)
}

impl Exporter {
    fn new(link: Link, clock: Arc<Mutex<Duration>>) -> Exporter {
        let exports = Exports::new(Arc::new(link), Keys::new("test"), LEASE_TIME, Clock::moved(clock));
        // Its thread does not run: this test does its work.
        lock(&exports.state).runs = true;
        Exporter { exports: Arc::new(exports), acts: false, registration: None, ownership: None }
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Lets one exporter act that is not in the middle of an act: it publishes, withdraws, renews its entry,
    /// or does what its thread would do.
    fn act(&self) {
        let (which, withdraws, renews) = {
            let mut state = self.state();
            (state.below(EXPORTERS as u64) as usize, state.happens(40), state.happens(200))
        };
        let (exports, registration) = {
            let mut exporters = lock(&self.exporters);
            let exporter = &mut exporters[which];
            if std::mem::replace(&mut exporter.acts, true) {
                return;
            }
            (exporter.exports.clone(), exporter.registration.take())
        };
        let registration = match registration {
            None => exports.publish(&entry("a"), ()).ok(),
            Some(registration) if withdraws => {
                drop(registration);
                None
            }
            Some(registration) if renews => {
                let mut renewed = entry("a");
                renewed.proof = vec![1];
                let _ = registration.renewal().map(|renewal| renewal.renew(&renewed));
                Some(registration)
            }
            Some(registration) => {
                exports.work();
                Some(registration)
            }
        };
        let exporter = &mut lock(&self.exporters)[which];
        exporter.acts = false;
        exporter.ownership = registration.as_ref().and_then(Registration::ownership).cloned();
        exporter.registration = registration;
    }

    /// Has each exporter admit a call if it may, and checks that only the present owner does.
    fn check(&self) {
        let fence = |exporter: &Exporter| exporter.ownership.as_ref().and_then(Ownership::fence);
        let fences: Vec<Option<u64>> = lock(&self.exporters).iter().map(fence).collect();
        let mut state = self.state();
        let (seed, time) = (state.seed, state.time);
        let admitting: Vec<_> = (0..EXPORTERS).filter_map(|which| Some((which, fences[which]?))).collect();
        assert!(admitting.len() <= 1, "seed {seed}, {time:?}: {admitting:?} admit calls");
        let Some(&(which, fence)) = admitting.first() else { return };
        let newest = state.owners.last_key_value().map_or(0, |(fence, _)| *fence);
        assert!(fence >= newest, "seed {seed}, {time:?}: {which} admits a call under {fence} after {newest}");
        if fence > newest {
            state.owners.insert(fence, which);
            state.counts.owners += 1;
        }
        assert_eq!(
            state.owners[&fence], which,
            "seed {seed}, {time:?}: two exporters have the fence {fence}"
        );
        state.counts.admitted += 1;
        if state.happens(300) {
            state.writes.push(fence);
        }
    }
}

impl State {
    fn new(seed: u64) -> State {
        let mut state = State {
            seed,
            random: seed.wrapping_mul(0xd134_2543_de82_ef95),
            depth: 0,
            time: Duration::ZERO,
            clocks: Vec::new(),
            etcd: Etcd::default(),
            late: Vec::new(),
            owners: BTreeMap::new(),
            writes: Vec::new(),
            seen: 0,
            counts: Counts::default(),
        };
        for _ in 0..EXPORTERS {
            let speed = 970 + state.below(61) as u32;
            state.clocks.push((Arc::default(), speed));
        }
        state
    }

    /// Lets time pass, and what may happen by itself.
    fn step(&mut self) {
        // An act may come much later than the one before it, as if its exporter had been stopped.
        match self.below(100) {
            0..10 => self.pass(2 * LEASE_TIME),
            10..20 => self.pass_until_expired(),
            _ => self.pass(LEASE_TIME / 6),
        }
        if self.happens(20) {
            self.etcd.elect(self.time);
        }
        if self.happens(200) && !self.late.is_empty() {
            let which = self.below(self.late.len() as u64) as usize;
            let (path, request) = self.late.swap_remove(which);
            let _ = self.execute(&path, &request);
            self.counts.late_requests += 1;
        }
        if self.happens(300) && !self.writes.is_empty() {
            let which = self.below(self.writes.len() as u64) as usize;
            let fence = self.writes.swap_remove(which);
            match fence < self.seen {
                true => self.counts.stale_writes += 1,
                false => self.seen = fence,
            }
        }
    }

    /// Lets at most this time pass.
    fn pass(&mut self, longest: Duration) {
        let millis = self.below(longest.as_millis() as u64 + 1);
        self.advance(Duration::from_millis(millis));
    }

    /// Lets time pass until a lease ends, and no longer.
    fn pass_until_expired(&mut self) {
        if let Some(end) = self.etcd.leases.values().map(|(_, end)| *end).min() {
            self.advance(end.saturating_sub(self.time));
        }
    }

    fn advance(&mut self, time: Duration) {
        self.time += time;
        for (clock, speed) in &self.clocks {
            *lock(clock) += time * *speed / 1000;
        }
        self.counts.expired += self.etcd.expire(self.time);
    }

    fn execute(&mut self, path: &str, request: &Value) -> Result<Value> {
        self.etcd.execute(path, request, self.time)
    }

    /// Returns whether something happens that does so this often in a thousand.
    fn happens(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }

    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

impl Cluster for Link {
    fn call(&self, path: &str, request: &Value) -> Result<Value> {
        let world = self.0.upgrade().unwrap();
        {
            let mut state = world.state();
            if state.happens(50) {
                state.pass(LEASE_TIME / 2);
                return Err(self.unavailable());
            }
            if state.happens(50) {
                state.late.push((path.to_owned(), request.clone()));
                state.pass(LEASE_TIME / 2);
                return Err(self.unavailable());
            }
        }
        world.wait_meanwhile();
        let answer = world.state().execute(path, request);
        world.wait_meanwhile();
        let mut state = world.state();
        if state.happens(50) {
            state.counts.lost_answers += 1;
            return Err(self.unavailable());
        }
        answer
    }

    fn call_once(&self, path: &str, request: &Value) -> Result<Value> {
        self.call(path, request)
    }

    fn is_away(&self) -> bool {
        false
    }

    fn place(&self) -> String {
        "model".to_owned()
    }
}

impl Link {
    fn unavailable(&self) -> Error {
        Error::Unavailable { registry: self.place(), why: "the simulation says so".to_owned() }
    }
}

impl World {
    /// Lets time pass while a request or an answer is on its way. Other exporters may act meanwhile, and
    /// calls come.
    fn wait_meanwhile(&self) {
        let others_act = {
            let mut state = self.state();
            match state.below(100) {
                0..40 => {}
                40..97 => state.pass(LEASE_TIME / 20),
                _ => state.pass(2 * LEASE_TIME),
            }
            state.depth += 1;
            state.depth < MAX_DEPTH && state.happens(300)
        };
        if others_act {
            self.act();
        }
        self.check();
        self.state().depth -= 1;
    }
}

impl Etcd {
    /// Has leases begin anew, as a new leader does.
    fn elect(&mut self, now: Duration) {
        self.leases.values_mut().for_each(|(time, end)| *end = now + *time);
    }

    /// Takes out what has expired. Returns how many leases have.
    fn expire(&mut self, now: Duration) -> u64 {
        let before = self.leases.len();
        self.leases.retain(|_, (_, end)| *end > now);
        self.drop_key_without_lease();
        (before - self.leases.len()) as u64
    }

    fn drop_key_without_lease(&mut self) {
        if self.kv.as_ref().is_some_and(|kv| !self.leases.contains_key(&kv.lease)) {
            self.kv = None;
            self.revision += 1;
        }
    }

    fn execute(&mut self, path: &str, request: &Value, now: Duration) -> Result<Value> {
        let lease = number(&request["ID"]);
        match path {
            "lease/grant" => {
                let time = Duration::from_secs(number(&request["TTL"]));
                self.last_lease += 1;
                self.leases.insert(self.last_lease, (time, now + time));
                Ok(json!({"ID": self.last_lease.to_string(), "TTL": time.as_secs().to_string()}))
            }
            "lease/keepalive" => match self.leases.get_mut(&lease) {
                Some((time, end)) => {
                    *end = now + *time;
                    Ok(json!({"result": {"ID": lease.to_string(), "TTL": time.as_secs().to_string()}}))
                }
                // etcd may say so of a lease that is being revoked, whose keys have gone (etcd issue 14758).
                None if now.as_millis().is_multiple_of(4) => {
                    Ok(json!({"result": {"ID": lease.to_string(), "TTL": LEASE_TIME.as_secs().to_string()}}))
                }
                None => Ok(json!({"result": {"ID": lease.to_string()}})),
            },
            "lease/revoke" => {
                self.leases.remove(&lease);
                self.drop_key_without_lease();
                Ok(json!({}))
            }
            "kv/range" => Ok(json!({"kvs": self.found()})),
            "kv/txn" => self.transact(request),
            other => panic!("the model does not know {other}"),
        }
    }

    fn found(&self) -> Vec<Value> {
        let found = |kv: &KeyValue| {
            let KeyValue { value, lease, created } = kv;
            json!({"value": value, "lease": lease.to_string(), "create_revision": created.to_string()})
        };
        self.kv.iter().map(found).collect()
    }

    fn transact(&mut self, request: &Value) -> Result<Value> {
        let wanted = &request["compare"][0];
        assert_eq!(wanted["target"], "CREATE");
        let created = self.kv.as_ref().map_or(0, |kv| kv.created);
        if number(&wanted["create_revision"]) != created {
            return Ok(json!({"responses": [{"response_range": {"kvs": self.found()}}]}));
        }
        let put = &request["success"][0]["request_put"];
        if put.is_null() {
            self.kv = None;
        } else {
            let lease = number(&put["lease"]);
            if !self.leases.contains_key(&lease) {
                return Err(Error::Refused { registry: String::new(), code: NOT_FOUND, why: String::new() });
            }
            let created = if created == 0 { self.revision + 1 } else { created };
            self.kv = Some(KeyValue { value: put["value"].clone(), lease, created });
        }
        self.revision += 1;
        Ok(json!({"succeeded": true, "header": {"revision": self.revision.to_string()}}))
    }
}
