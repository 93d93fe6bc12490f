//! Servers that have a grant for each of their names, and one key, in the simulated network: programs with
//! real runtimes and their real keys.
//!
//! Two servers export three names by one key. Their grants are revoked, expire and are renewed, some in time.
//! Clients bind the names, in one conversation with each server, and make calls, calls that wait, and
//! streams. What must be true: a client takes something from a server only if a grant for the very name
//! counts, or did a moment ago; and no name is lost while the grants for it count, whatever becomes of the
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farcall::key_files::{Grant, Identity, Keyring, Revoked, Rights, Terms};
use farcall::key_mutants::Mutant;
use farcall::{Error, Keys, Kind, Runtime, Stream};

use super::SLACK;
use super::truth::{AUTHORITY, CLIENT, SERVER};
use crate::model::Tally;
use crate::oracle::Violation;
use crate::sim::{self, Faults, Sim};

/// What the servers export. A caller gives each call a number of its own.
#[farcall::interface]
trait Shop {
    fn get(&self, call: u64) -> farcall::Result<u64>;
    /// Waits until the call is given up.
    #[blocking]
    fn wait(&self, call: u64) -> farcall::Result<()>;
    /// Gives numbers until the call is given up.
    fn watch(&self, call: u64) -> farcall::Result<Stream<u64>>;
}

/// The names of the two servers.
const NAMES: [&[&str]; 2] = [&["Shop/a", "Shop/b"], &["Shop/c"]];
const ALL_NAMES: [&str; 3] = ["Shop/a", "Shop/b", "Shop/c"];

/// How many programs call.
const PROGRAMS: u64 = 2;

/// How many grants a server has for a name: as many as it shows.
const MAX_GRANTS: usize = 2;

/// A grant for a name.
struct Facts {
    grant: Grant,
    issued: Duration,
    revoked: Option<Duration>,
}

/// What is true of the grants of all servers.
#[derive(Default)]
struct Truth {
    /// Where the names are exported. Clients do not look in the registry, in which the entry of an exporter
    /// is up to five seconds older than its grants.
    urls: BTreeMap<&'static str, String>,
    /// By the names, the oldest first.
    grants: BTreeMap<&'static str, Vec<Facts>>,
    serial: u64,
    lists: u64,
    calls: u64,
    /// The calls that a server executes.
    begun: BTreeSet<u64>,
    tally: Tally,
    violation: Option<Violation>,
    at_end: Option<(Tally, Option<Violation>)>,
}

impl Facts {
    /// Returns when the grant begins to count no more, in virtual time.
    fn end(&self) -> Duration {
        let began = sim::unix_seconds() - sim::now().as_secs();
        let expires = Duration::from_secs(self.grant.terms().expires - began);
        self.revoked.map_or(expires, |revoked| revoked.min(expires))
    }
}

impl Truth {
    fn of(&self, name: &str) -> &[Facts] {
        self.grants.get(name).map_or(&[], |grants| grants)
    }

    /// Gives a server another grant for a name.
    fn issue(&mut self, name: &'static str) {
        self.serial += 1;
        let principal = if sim::below(2) == 0 { "shop" } else { "store" };
        let terms = Terms {
            key: Identity::from_entropy([SERVER; 32]).public(),
            principal: principal.parse().expect("a name"),
            rights: Rights::EXPORT,
            scope: name.parse().expect("a scope"),
            serial: self.serial,
            expires: sim::unix_seconds() + 1 + sim::below([6, 30, 3_600][sim::below(3) as usize]),
        };
        let grant = Identity::from_entropy([AUTHORITY; 32]).grant(terms).expect("it is not too large");
        self.grants.entry(name).or_default().push(Facts { grant, issued: sim::now(), revoked: None });
    }

    /// Revokes one of the grants that servers show for a name.
    fn revoke(&mut self, name: &'static str) {
        let grants = self.grants.entry(name).or_default();
        let shown = grants.len().saturating_sub(MAX_GRANTS);
        let which = shown + sim::below(MAX_GRANTS as u64) as usize;
        if let Some(grant) = grants.get_mut(which).filter(|grant| grant.revoked.is_none()) {
            grant.revoked = Some(sim::now());
        }
    }

    /// Returns the keys of a server that exports some names.
    fn server(&self, names: &[&str]) -> Keyring {
        let alice = format!("{} alice", Identity::from_entropy([CLIENT; 32]).public());
        let keyring = Keyring::new(Identity::from_entropy([SERVER; 32]));
        let keyring = keyring.with_authorized_key(alice.parse().expect("a line")).expect("it is the first");
        let grants = names.iter().flat_map(|name| self.of(name).iter().rev().take(MAX_GRANTS));
        grants.fold(keyring, |keyring, facts| {
            keyring.with_grant(facts.grant.clone()).expect("it is for this key")
        })
    }

    /// Returns the keys of a client, which believes the authority and has its newest list.
    fn client(&mut self) -> Keyring {
        self.lists += 1;
        let all = self.grants.values().flatten();
        let revoked = all.filter(|facts| facts.revoked.is_some()).map(|facts| facts.grant.terms().serial);
        let revoked = Revoked::new([], revoked).expect("there are few");
        let authority = Identity::from_entropy([AUTHORITY; 32]);
        let list = authority.revoke(self.lists, sim::unix_seconds(), 365 * 86_400, revoked);
        let keyring = Keyring::new(Identity::from_entropy([CLIENT; 32])).with_authority(authority.public());
        keyring.with_revocations(list).expect("it is genuine")
    }

    /// Notes that a client takes something from a server that answers for a name.
    fn takes(&mut self, name: &str, what: &str) {
        let since = sim::now().saturating_sub(SLACK);
        if !self.of(name).iter().any(|grant| grant.end() > since) {
            self.violated("only-what-a-grant-for-the-name-allows", format!("{what} of {name} counts"));
        }
    }

    /// Notes that what began then was refused.
    fn refused(&mut self, name: &str, began: Duration, why: &str) {
        let (from, now) = (began.saturating_sub(SLACK), sim::now());
        let has_ended = self.of(name).iter().any(|grant| (from..=now).contains(&grant.end()));
        let shown = self.of(name).iter().rev().take(MAX_GRANTS);
        let counts = shown.clone().any(|grant| grant.issued <= from && grant.end() > now);
        if counts && !has_ended {
            self.violated("names-are-not-lost", format!("{name} was refused: {why}"));
        }
    }

    fn violated(&mut self, rule: &'static str, what: String) {
        let at = sim::now().as_nanos() as u64;
        self.violation.get_or_insert(Violation { rule, at, what });
    }
}

#[derive(Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Truth>>);

impl Shared {
    fn with<T>(&self, use_it: impl FnOnce(&mut Truth) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns what was found in the run.
    pub(super) fn found(&self) -> (Tally, Option<Violation>) {
        self.with(|truth| truth.at_end.take().unwrap_or_else(|| (truth.tally, truth.violation.take())))
    }

    fn executes(&self, call: u64) {
        self.with(|truth| {
            truth.tally.executed += 1;
            truth.begun.insert(call);
        });
    }
}

struct Server(Shared);

impl Shop for Server {
    fn get(&self, call: u64) -> farcall::Result<u64> {
        self.0.executes(call);
        Ok(call)
    }

    fn wait(&self, call: u64) -> farcall::Result<()> {
        self.0.executes(call);
        farcall::context().cancelled().wait(Duration::from_secs(3_600));
        Ok(())
    }

    fn watch(&self, call: u64) -> farcall::Result<Stream<u64>> {
        self.0.executes(call);
        Ok(Stream::of((0..).inspect(|_| sim::sleep(Duration::from_millis(50)))))
    }
}

/// Plays one run of about `calls` calls.
pub(super) fn play(sim: &Sim, shared: &Shared, calls: u64, mutant: Mutant) {
    sim.limit(Duration::from_secs(48 * 3600));
    let late = [0.0, 0.1, 0.5][sim.below(3) as usize];
    if sim.below(3) > 0 {
        let faults = sim.random_faults();
        sim.faults(Faults { late, mtu: faults.mtu.max(1_472), delay: faults.delay / 4, ..faults });
    } else {
        sim.faults(Faults { late, ..Faults::none() });
    }
    shared.with(|truth| ALL_NAMES.iter().for_each(|name| truth.issue(name)));
    let served = NAMES.map(|names| Keys::new(shared.with(|truth| truth.server(names))));
    let servers = [0, 1].map(|which| {
        let (shared, keys) = (shared.clone(), served[which].clone());
        sim.server(&format!("server {which}"), move || serve(&shared, &keys, NAMES[which]))
    });
    let clients: Vec<Keys> =
        (0..PROGRAMS).map(|_| Keys::broken(shared.with(Truth::client), mutant)).collect();
    let programs: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(number, keys)| {
            let (shared, keys) = (shared.clone(), keys.clone());
            let program = move || program(&shared, &keys, calls.div_ceil(PROGRAMS));
            sim.process(&format!("program {number}"), program)
        })
        .collect();
    while programs.iter().any(|program| program.is_running()) {
        sim.sleep(Duration::from_millis(sim.below(1_500)));
        let name = ALL_NAMES[sim.below(ALL_NAMES.len() as u64) as usize];
        shared.with(|truth| match sim.below(5) {
            0 => truth.revoke(name),
            1 | 2 => truth.issue(name),
            // The same keys once more: everybody is judged again.
            _ => {}
        });
        let servers = served.iter().zip(NAMES);
        servers.for_each(|(keys, names)| keys.replace(shared.with(|truth| truth.server(names))));
        clients.iter().for_each(|keys| keys.replace(shared.with(Truth::client)));
    }
    // What happens while the processes are stopped does not count.
    shared.with(|truth| truth.at_end = Some((truth.tally, truth.violation.take())));
    drop(servers);
}

fn serve(shared: &Shared, keys: &Keys, names: &[&'static str]) -> farcall::Result<()> {
    let runtime = Runtime::builder().keys(keys.clone()).build()?;
    let export = |name: &&'static str| {
        let export = runtime.export::<dyn Shop>(name, Arc::new(Server(shared.clone())))?;
        shared.with(|truth| truth.urls.insert(name, export.url()));
        Ok(export)
    };
    let mut exports = names.iter().map(export).collect::<farcall::Result<Vec<_>>>()?;
    exports.pop().expect("each server has a name").wait()
}

/// Calls the names, in one conversation with each server.
fn program(shared: &Shared, keys: &Keys, calls: u64) {
    let runtime = Runtime::builder().keys(keys.clone()).patience(Duration::from_secs(5)).build();
    let Ok(runtime) = runtime else { return };
    let mut shops: BTreeMap<&str, ShopClient> = BTreeMap::new();
    for _ in 0..calls {
        let name = ALL_NAMES[sim::below(ALL_NAMES.len() as u64) as usize];
        let began = sim::now();
        let url = shared.with(|truth| truth.urls.get(name).cloned());
        if let Some(url) = url.filter(|_| !shops.contains_key(name)) {
            match runtime.import::<dyn Shop>(&url) {
                Ok(shop) => drop(shops.insert(name, shop)),
                Err(why) => refused(shared, name, began, &why),
            }
        }
        if let Some(shop) = shops.get(name) {
            call(shared, shop, name);
        }
        sim::sleep(Duration::from_millis(sim::below(400)));
    }
}

fn call(shared: &Shared, shop: &ShopClient, name: &str) {
    let number = shared.with(|truth| {
        truth.tally.calls += 1;
        truth.calls += 1;
        truth.calls
    });
    let began = sim::now();
    match sim::below(4) {
        0 | 1 => match shop.get(number) {
            Ok(_) => returned(shared, name, "a result"),
            Err(why) => refused(shared, name, began, &why),
        },
        2 => wait(shared, shop, (name, number)),
        _ => match shop.watch(number) {
            Ok(numbers) => {
                for item in numbers.take(sim::below(40) as usize) {
                    match item {
                        Ok(_) => shared.with(|truth| truth.takes(name, "an item")),
                        Err(_) => break,
                    }
                }
            }
            Err(why) => refused(shared, name, began, &why),
        },
    }
}

/// Makes a call that waits until its deadline. It ends before, if the server is no longer accepted.
fn wait(shared: &Shared, shop: &ShopClient, (name, number): (&str, u64)) {
    let began = sim::now();
    match shop.within(Duration::from_millis(sim::below(4_000))).wait(number) {
        Ok(()) => returned(shared, name, "a result"),
        Err(Error::CallFailed(why)) if why.kind() == Kind::Deadline => shared.with(|truth| {
            truth.tally.maybe += 1;
            if truth.begun.contains(&number) {
                truth.takes(name, "a call that waits");
            }
        }),
        Err(why) => refused(shared, name, began, &why),
    }
}

fn returned(shared: &Shared, name: &str, what: &str) {
    shared.with(|truth| {
        truth.tally.returned += 1;
        truth.takes(name, what);
    });
}

/// Notes a failure of what began then.
fn refused(shared: &Shared, name: &str, began: Duration, why: &Error) {
    let Some(failed) = why.call_failed() else { return };
    shared.with(|truth| {
        let (of_no, of_maybe) = (&mut truth.tally.no, &mut truth.tally.maybe);
        *(if failed.ran() == farcall::Ran::No { of_no } else { of_maybe }) += 1;
        if failed.kind() == Kind::NotPermitted {
            truth.refused(name, began, &failed.to_string());
        }
    });
}
