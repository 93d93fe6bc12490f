//! A client that has several grants for one key, in the simulated network: programs with real runtimes and
//! their real keys.
//!
//! Some programs have the same key, and each opens its conversations with a grant of its own. Meanwhile
//! grants are revoked and expire, the policy changes, and the network repeats datagrams up to hours later,
//! also the first messages of handshakes. The programs make single calls, one-way calls, calls of groups,
//! calls that wait, streams, calls that call back, and accesses to memory. What must be true: something is
//! executed only if the grant of its own conversation allows it, or did a moment ago; and nothing is refused
//! that this grant has allowed all the time.
//!
//! Every third seed runs servers that have several grants (`servers`).

mod servers;
mod truth;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farcall::key_files::{Identity, Keyring};
use farcall::key_mutants::Mutant;
use farcall::memory::{Memory as _, Remote, Rights, Settings};
use farcall::multi::Next;
use farcall::{Error, Keys, Kind, Runtime, Stream};

use crate::model::{Report, Rule, Tally};
use crate::oracle::Violation;
use crate::sim::{self, Faults, Sim};
use truth::{CLIENT, SERVER, Truth, What};

/// An interface of which the policy lets some principals call some procedures. Each caller says by which
/// grant its conversation was opened.
#[farcall::interface]
trait Vault {
    fn look(&self, serial: u64) -> farcall::Result<u64>;
    fn erase(&self, serial: u64) -> farcall::Result<u64>;
    #[oneway]
    fn note(&self, serial: u64) -> farcall::Result<()>;
    /// Waits until the call is given up.
    #[blocking]
    fn wait(&self, serial: u64) -> farcall::Result<()>;
    /// Gives numbers until the call is given up.
    fn watch(&self, serial: u64) -> farcall::Result<Stream<u64>>;
    /// Calls the caller's own export back.
    fn call_back(&self, serial: u64, url: &str) -> farcall::Result<u64>;
}

/// What callers export.
#[farcall::interface]
trait Bell {
    fn ring(&self) -> farcall::Result<u64>;
}

/// How long a conversation or a running call may outlast its grant, and the programs that run meanwhile.
const SLACK: Duration = Duration::from_millis(300);

/// How many programs have the key.
const PROGRAMS: u64 = 3;

#[derive(Clone)]
struct Shared(Arc<Mutex<Truth>>);

impl Shared {
    fn with<T>(&self, use_it: impl FnOnce(&mut Truth) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that a procedure is executed.
    fn executes(&self, serial: u64, what: What) {
        let who = farcall::context().principal().map_or_else(String::new, |who| who.name.to_string());
        self.with(|truth| truth.executes(serial, &who, what));
    }

    /// Notes that something that was begun goes on.
    fn goes_on(&self, serial: u64, what: &str) {
        self.with(|truth| truth.goes_on(serial, what));
    }
}

struct Server {
    shared: Shared,
    runtime: Runtime,
}

impl Vault for Server {
    fn look(&self, serial: u64) -> farcall::Result<u64> {
        self.shared.executes(serial, What::Look);
        Ok(serial)
    }

    fn erase(&self, serial: u64) -> farcall::Result<u64> {
        self.shared.executes(serial, What::Erase);
        Ok(serial)
    }

    fn note(&self, serial: u64) -> farcall::Result<()> {
        self.shared.executes(serial, What::Erase);
        Ok(())
    }

    fn wait(&self, serial: u64) -> farcall::Result<()> {
        self.shared.executes(serial, What::Look);
        while !farcall::context().cancelled().wait(Duration::from_millis(100)) {
            self.shared.goes_on(serial, "a call");
        }
        Ok(())
    }

    fn watch(&self, serial: u64) -> farcall::Result<Stream<u64>> {
        self.shared.executes(serial, What::Look);
        let shared = self.shared.clone();
        Ok(Stream::of((0..).inspect(move |_| {
            sim::sleep(Duration::from_millis(50));
            shared.goes_on(serial, "a stream");
        })))
    }

    fn call_back(&self, serial: u64, url: &str) -> farcall::Result<u64> {
        self.shared.executes(serial, What::Look);
        self.runtime.import::<dyn Bell>(url)?.ring()
    }
}

struct Ringer;

impl Bell for Ringer {
    fn ring(&self) -> farcall::Result<u64> {
        let caller = farcall::context().principal();
        assert_eq!(caller.map(|who| who.name.to_string()).as_deref(), Some("vault"));
        Ok(7)
    }
}

/// Runs about `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, broken: Option<Rule>) -> Report {
    let mutant = broken.and_then(Rule::of_keys).map(Mutant::of).unwrap_or_default();
    if seed % 3 == 2 {
        let shared = servers::Shared::default();
        let of_run = shared.clone();
        let ended =
            sim::run(seed, false, &Arc::new(move |sim: &Sim| servers::play(sim, &of_run, calls, mutant)));
        return report(ended, shared.found());
    }
    let shared = Shared(Arc::new(Mutex::new(Truth::new())));
    let of_run = shared.clone();
    let ended = sim::run(seed, false, &Arc::new(move |sim: &Sim| play(sim, &of_run, calls, mutant)));
    report(ended, shared.with(|truth| truth.found()))
}

fn report(ended: sim::Ended, (tally, violation): (Tally, Option<Violation>)) -> Report {
    let failed = ended.failure.map(|what| Violation { rule: "no-failure", at: ended.time, what });
    Report { tally, violation: violation.or(failed), trace_hash: ended.trace_hash, ..Report::default() }
}

fn play(sim: &Sim, shared: &Shared, calls: u64, mutant: Mutant) {
    sim.limit(Duration::from_secs(48 * 3600));
    let late = [0.0, 0.1, 0.5][sim.below(3) as usize];
    if sim.below(3) > 0 {
        let faults = sim.random_faults();
        sim.faults(Faults { late, mtu: faults.mtu.max(1_472), delay: faults.delay / 4, ..faults });
    } else {
        sim.faults(Faults { late, ..Faults::none() });
    }
    shared.with(|truth| truth.change_policy(sim.below(1 << 8)));
    let keys = Keys::broken(shared.with(|truth| truth.keyring()), mutant);
    let (of_server, served) = (shared.clone(), keys.clone());
    let server = sim.server("server", move || serve(&of_server, &served));
    let programs: Vec<_> = (0..PROGRAMS)
        .map(|number| {
            let shared = shared.clone();
            sim.process(&format!("program {number}"), move || program(&shared, calls.div_ceil(PROGRAMS)))
        })
        .collect();
    while programs.iter().any(|program| program.is_running()) {
        sim.sleep(Duration::from_millis(sim.below(1_500)));
        shared.with(|truth| match sim.below(4) {
            0 => truth.revoke(sim.below(1 << 16)),
            1 | 2 => truth.change_policy(sim.below(1 << 8)),
            // The same keys once more: all decisions are made again.
            _ => {}
        });
        keys.replace(shared.with(|truth| truth.keyring()));
    }
    // What happens while the processes are stopped does not count.
    shared.with(Truth::end);
    drop(server);
}

fn serve(shared: &Shared, keys: &Keys) -> farcall::Result<()> {
    let runtime = Runtime::builder().keys(keys.clone()).build()?;
    let server = Arc::new(Server { shared: shared.clone(), runtime: runtime.clone() });
    let _other = runtime.export::<dyn Vault>("Vault/b", server.clone())?;
    let _words = runtime.export_segment("Words", Settings::new(64).anyone(Rights::ALL));
    runtime.export::<dyn Vault>("Vault/a", server)?.wait()
}

/// Makes calls, in conversations of different grants one after the other.
fn program(shared: &Shared, calls: u64) {
    let mut left = calls;
    while left > 0 {
        let (serial, grant) = shared.with(Truth::grant);
        let known = format!("* {}", Identity::from_entropy([SERVER; 32]).public());
        let vault = format!("{} vault", Identity::from_entropy([SERVER; 32]).public());
        let keyring = Keyring::new(Identity::from_entropy([CLIENT; 32]));
        let keyring = keyring.with_known_server(known.parse().expect("a line")).with_grant(grant);
        let keyring = keyring.and_then(|keyring| keyring.with_authorized_key(vault.parse()?));
        let keys = Keys::new(keyring.expect("the grant is for this key"));
        let Ok(runtime) = Runtime::builder().keys(keys).patience(Duration::from_secs(5)).build() else {
            return;
        };
        left -= converse(shared, &runtime, serial, 1 + sim::below(left.min(12)));
    }
}

/// Makes calls by one grant. Returns how many.
fn converse(shared: &Shared, runtime: &Runtime, serial: u64, calls: u64) -> u64 {
    let bell = runtime.export::<dyn Bell>("Bell/own", Arc::new(Ringer)).ok();
    let (mut vault, mut words): (Option<VaultClient>, Option<Remote>) = (None, None);
    for _ in 0..calls {
        let asked = sim::now();
        if vault.is_none() {
            match runtime.import::<dyn Vault>("Vault/a") {
                Ok(bound) => vault = Some(bound),
                Err(why) => refused(shared, serial, What::Bind, asked, &why),
            }
        }
        let Some(store) = &vault else {
            sim::sleep(Duration::from_millis(sim::below(500)));
            continue;
        };
        let began = sim::now();
        match sim::below(8) {
            0 | 1 => called(shared, serial, What::Look, began, store.look(serial)),
            2 => called(shared, serial, What::Erase, began, store.erase(serial)),
            3 => drop(store.note(serial)),
            4 => wait(store, serial),
            5 => watch(shared, store, serial),
            6 => group_or_back(shared, runtime, bell.as_ref(), (store, serial)),
            _ => remember(shared, runtime, &mut words, serial),
        }
        sim::sleep(Duration::from_millis(sim::below(400)));
    }
    calls
}

/// Notes how a call has ended that began then.
fn called<T, E>(shared: &Shared, serial: u64, what: What, began: Duration, outcome: Result<T, Error<E>>)
where
    E: std::fmt::Debug + std::fmt::Display,
{
    shared.with(|truth| truth.tally.calls += 1);
    match outcome {
        Ok(_) => shared.with(|truth| truth.tally.returned += 1),
        Err(why) => {
            if let Error::CallFailed(why) = &why {
                let maybe = why.ran() != farcall::Ran::No;
                let count = |tally: &mut Tally| *(if maybe { &mut tally.maybe } else { &mut tally.no }) += 1;
                shared.with(|truth| count(&mut truth.tally));
            }
            refused(shared, serial, what, began, &why);
        }
    }
}

/// Notes a failure of what began then.
fn refused<E>(shared: &Shared, serial: u64, what: What, began: Duration, why: &Error<E>)
where
    E: std::fmt::Debug + std::fmt::Display,
{
    if let Error::CallFailed(failed) = why
        && failed.kind() == Kind::NotPermitted
    {
        shared.with(|truth| truth.refused(serial, what, began, &failed.to_string()));
    }
}

/// Has the server execute a call for a while.
fn wait(store: &VaultClient, serial: u64) {
    let waiting = store.start().wait(serial);
    sim::sleep(Duration::from_millis(sim::below(4_000)));
    drop(waiting);
}

/// Takes some items of a stream.
fn watch(shared: &Shared, store: &VaultClient, serial: u64) {
    let began = sim::now();
    match store.watch(serial) {
        Ok(numbers) => drop(numbers.take(sim::below(40) as usize).take_while(Result::is_ok).count()),
        Err(why) => called::<(), _>(shared, serial, What::Look, began, Err(why)),
    }
}

fn group_or_back(
    shared: &Shared,
    runtime: &Runtime,
    bell: Option<&farcall::Export>,
    (store, serial): (&VaultClient, u64),
) {
    let began = sim::now();
    if let Some(bell) = bell.filter(|_| sim::below(2) == 0) {
        // The server's own calls may fail, and say why in their name; so only executions are checked.
        let _ = store.call_back(serial, &bell.url());
        return;
    }
    if let Ok(group) = runtime.import_each::<dyn Vault>(&["Vault/a", "Vault/b"]) {
        group.multi().erase(serial).each(|reply| {
            called(shared, serial, What::Erase, began, reply.result);
            Next::Continue
        });
    }
}

/// Reads or writes a word of the server's memory.
fn remember(shared: &Shared, runtime: &Runtime, words: &mut Option<Remote>, serial: u64) {
    let began = sim::now();
    if words.is_none() {
        match runtime.import_segment("Words") {
            Ok(remote) => *words = Some(remote),
            Err(_) => return,
        }
    }
    let Some(remote) = words.as_ref() else { return };
    let (what, outcome) = match sim::below(2) {
        0 => (What::Read, remote.load(8).map(drop)),
        _ => (What::Write, remote.store(16, sim::random())),
    };
    if outcome.is_ok() {
        shared.with(|truth| truth.accessed(serial, what, began));
    }
    called(shared, serial, what, began, outcome);
}
