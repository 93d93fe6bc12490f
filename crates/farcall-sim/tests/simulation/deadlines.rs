//! Tests that one deadline covers everything that a call waits for: the registry, the resolver, the port
//! mapper, each address, the bind and the result. Time is virtual, so it is compared exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::memory::{Memory, Renewing, Rights, Settings};
use farcall::{CallFailed, Kind, Ran};
use farcall_sim::{Process, Sim, check, find, sim};

#[farcall::interface]
trait Member {
    fn add(&self, n: u64) -> farcall::Result<u64>;
    /// Returns its argument.
    #[idempotent]
    fn look(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Member for Server {
    fn add(&self, n: u64) -> farcall::Result<u64> {
        Ok(n + 1)
    }

    fn look(&self, n: u64) -> farcall::Result<u64> {
        Ok(n)
    }
}

/// By how much a caller may notice a deadline late. Nothing of what is simulated takes time, except the
/// network, which takes at most this long.
const SLACK: Duration = Duration::from_millis(20);

/// How long an overloaded call, and one of a group, wait for a registry that does not answer.
const SOON: Duration = Duration::from_millis(50);

/// Starts a server that exports `Member/NAME`.
fn member(sim: &Sim, name: &str) -> Process {
    let export = format!("Member/{name}");
    sim.server(name, move || farcall::export::<dyn Member>(&export, Arc::new(Server))?.wait())
}

/// Checks that `call` fails by this deadline, which it gets, because the deadline has passed, and that it did
/// not run.
#[track_caller]
fn ends_unrun<T>(within: Duration, call: impl FnOnce(Duration) -> farcall::Result<T>) {
    let begun = sim::now();
    let failed = CallFailed::from(call(within).err().expect("nothing answers"));
    let took = sim::now() - begun;
    assert!(took <= within + SLACK, "{took:?} of {within:?}: {failed}");
    assert_eq!((failed.kind(), failed.ran()), (Kind::Deadline, Ran::No), "{failed}");
}

/// Draws a deadline.
fn drawn(sim: &Sim) -> Duration {
    Duration::from_millis(1 + sim.below(4_000))
}

#[test]
fn a_deadline_covers_a_silent_registry() {
    check(40, |sim| {
        let (a, _b) = (member(sim, "a"), member(sim, "b"));
        let import = |within| farcall::import_within::<dyn Member>("Member", within);
        let bound = farcall::import::<dyn Member>("Member/a")?;
        // These are bound by their first calls: by name, and at an address where nobody answers.
        let unbound = farcall::import_each::<dyn Member>(&["Member", "udp://10.0.9.9:1/Member"])?;
        sim.silence_registry(true);
        ends_unrun(drawn(sim), import);
        for (_, member) in unbound.stubs() {
            ends_unrun(drawn(sim), |within| member.clone().within(within).add(1));
            ends_unrun(drawn(sim), |within| member.clone().within(within).start().add(1).wait());
            ends_unrun(drawn(sim), |within| {
                let member = member.clone().within(within);
                sim::block_on(member.start().add(1))
            });
        }
        // The binding breaks, so the next call asks the registry.
        a.crash();
        a.restart();
        let (within, begun) = (drawn(sim), sim::now());
        assert!(bound.clone().within(within).add(1).is_err());
        assert!(sim::now() - begun <= within + SLACK, "{:?} of {within:?}", sim::now() - begun);
        // Whoever waits longer than the registry is silent is answered.
        let by_name = unbound.stubs().next().expect("a member").1.within(Duration::from_secs(60));
        let waiting = sim::spawn(move || by_name.add(1));
        sim.sleep(drawn(sim));
        sim.silence_registry(false);
        assert_eq!(waiting.join()?, 2);
        Ok::<(), farcall::Error>(())
    });
}

/// Calls members of a group, and a balanced stub, while the registry answers nothing, and one of the members
/// drains. Each call ends within its time.
fn behind_a_silent_registry(sim: &Sim, broken: Option<Rule>) -> farcall::Result<()> {
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    // One member drains while the registry is silent.
    let drains_after = Duration::from_millis(1_000 + sim.below(4_000));
    let _a = sim.server("a", move || {
        let export = farcall::export::<dyn Member>("Member/a", Arc::new(Server))?;
        sim::sleep(drains_after);
        export.drain(Duration::from_secs(1));
        Ok::<(), farcall::Error>(())
    });
    let _b = member(sim, "b");
    let group = farcall::import_all::<dyn Member>("Member")?;
    let within = Duration::from_millis(40 + sim.below(200));
    let balanced = group.balancer().stub().within(within);
    let works = |which: u64| {
        let begun = sim::now();
        match which {
            0 => drop(balanced.look(1)?),
            1 => drop(balanced.start().look(1).wait()?),
            2 => drop(sim::block_on(balanced.start().look(1))?),
            _ => assert_ne!(group.multi().look(1).within(within).all().results().count(), 0),
        }
        let took = sim::now() - begun;
        assert!(took <= within + SLACK, "{took:?} of {within:?}");
        Ok::<(), farcall::Error>(())
    };
    (0..4).try_for_each(works)?;
    sim.silence_registry(true);
    for _ in 0..80 {
        sim.sleep(Duration::from_millis(sim.below(150)));
        works(sim.below(4))?;
    }
    sim.silence_registry(false);
    let _c = member(sim, "c");
    // The registry is asked again.
    for _ in 0..20 {
        sim.sleep(Duration::from_millis(500));
        works(sim.below(4))?;
    }
    assert!(group.members().iter().any(|member| member.name() == "Member/c"), "{:?}", group.members());
    Ok::<(), farcall::Error>(())
}

#[test]
fn a_silent_registry_holds_up_no_call_of_a_group_whose_members_are_known() {
    check(40, |sim| behind_a_silent_registry(sim, None));
    let broken = find(40, |sim| _ = behind_a_silent_registry(sim, Some(Rule::KnownMembersServe)));
    broken.expect("a broken rule is noticed");
}

/// Starts more calls by name than tasks have threads while the registry answers nothing. Calls of
/// others end in time, and a call that is cancelled ends at once.
fn many_tasks_behind_a_silent_registry(sim: &Sim, broken: Option<Rule>) -> farcall::Result<()> {
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    sim.limit(Duration::from_secs(10));
    let _a = member(sim, "a");
    let unbound =
        || farcall::import_each::<dyn Member>(&["Member"]).map(|group| group.stubs().next().unwrap().1);
    let (many, other, cancelled) = (unbound()?, unbound()?, unbound()?);
    sim.silence_registry(true);
    let waiting: Vec<_> = (0..300).map(|_| many.start().add(1)).collect();
    sim.sleep(Duration::from_millis(sim.below(1_000)));
    ends_unrun(drawn(sim), |within| other.within(within).start().add(1).wait());
    let mut cancelled = cancelled.start().add(1);
    sim.sleep(Duration::from_millis(sim.below(100)));
    let begun = sim::now();
    cancelled.cancel();
    let why = CallFailed::from(cancelled.wait().expect_err("it was cancelled"));
    assert_eq!((why.kind(), why.ran()), (Kind::Cancelled, Ran::No), "{why}");
    assert!(sim::now() - begun <= SLACK, "{:?}", sim::now() - begun);
    sim.silence_registry(false);
    for call in waiting {
        assert_eq!(call.wait()?, 2);
    }
    Ok(())
}

#[test]
fn calls_that_a_silent_registry_holds_up_hold_up_no_others() {
    check(10, |sim| many_tasks_behind_a_silent_registry(sim, None));
    let broken = find(10, |sim| _ = many_tasks_behind_a_silent_registry(sim, Some(Rule::TasksAskAside)));
    broken.expect("a broken rule is noticed");
}

/// Refuses every call.
struct Refuses;

impl farcall::intercept::Interceptor for Refuses {
    fn before(&self, _: &farcall::intercept::Call<'_>) -> Result<(), CallFailed> {
        Err(CallFailed::new(Kind::Overloaded, Ran::No))
    }
}

/// Whether another server exports the name is worth little time to a caller whose server is overloaded.
#[test]
fn an_overloaded_call_does_not_wait_for_a_silent_registry() {
    check(20, |sim| {
        let _full = sim.server("full", || {
            let runtime = farcall::Runtime::builder().intercept_serving(Refuses).build()?;
            runtime.export::<dyn Member>("Member/full", Arc::new(Server))?.wait()
        });
        let member = farcall::import::<dyn Member>("Member")?;
        sim.silence_registry(true);
        let within = drawn(sim);
        let timed = member.clone().within(within);
        let calls: [(&dyn Fn() -> farcall::Result<u64>, Duration); 5] = [
            (&|| member.add(1), SOON),
            (&|| member.start().add(1).wait(), SOON),
            (&|| sim::block_on(member.start().add(1)), SOON),
            (&|| timed.add(1), SOON.min(within / 4)),
            (&|| timed.start().add(1).wait(), SOON.min(within / 4)),
        ];
        for (call, most) in calls {
            let begun = sim::now();
            let why = CallFailed::from(call().expect_err("the server is full"));
            let took = sim::now() - begun;
            assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No), "{why}");
            assert!(took <= most + SLACK, "{took:?} of {most:?}");
        }
        let begun = sim::now();
        let many: Vec<_> = (0..1_000).map(|_| member.start().add(1)).collect();
        assert!(many.into_iter().all(|call| call.wait().is_err()));
        assert!(sim::now() - begun <= 10 * SOON, "{:?}", sim::now() - begun);
        // One that answers is believed.
        sim.silence_registry(false);
        sim.sleep(Duration::from_secs(1));
        let _well = self::member(sim, "well");
        assert_eq!(member.add(1)?, 2);
        Ok::<(), farcall::Error>(())
    });
}

/// Notes when the runtime that it belongs to has ended.
struct Ends(Arc<AtomicBool>);

impl farcall::intercept::Interceptor for Ends {}

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A runtime whose group asks a silent registry in the background ends when its last handle does, and gives its
/// sockets back.
#[test]
fn a_registry_that_is_being_asked_does_not_keep_the_runtime() {
    check(20, |sim| {
        let _a = member(sim, "a");
        let ended = Arc::<AtomicBool>::default();
        let runtime = farcall::Runtime::builder().intercept_calls(Ends(ended.clone())).build()?;
        let group = runtime.import_all::<dyn Member>("Member")?;
        sim.silence_registry(true);
        for _ in 0..2 {
            assert_eq!(group.multi().look(1).within(4 * SOON).all().results().count(), 1);
        }
        drop((group, runtime));
        sim.sleep(Duration::from_secs(1));
        assert!(ended.load(Relaxed), "the question lasts for five seconds");
        // What comes too late for the group is passed over.
        sim.silence_registry(false);
        sim.sleep(Duration::from_secs(10));
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_deadline_covers_members_that_join_and_are_silent() {
    check(40, |sim| {
        let _a = member(sim, "a");
        let group = farcall::import_all::<dyn Member>("Member")?;
        assert_eq!(group.multi().add(1).all().results().count(), 1);
        for joins in 0..3 {
            let silent = member(sim, &format!("b{joins}"));
            silent.pause();
            let (within, begun) = (drawn(sim), sim::now());
            let results = match sim.below(2) {
                0 => group.multi().add(1).within(within).all().results().count(),
                _ => {
                    let mut results = 0;
                    group.multi_each(|_, _, member| member.add(1)).within(within).each(|reply| {
                        results += usize::from(reply.result.is_ok());
                        farcall::multi::Next::Continue
                    });
                    results
                }
            };
            let took = sim::now() - begun;
            assert!(took <= within + SLACK, "{took:?} of {within:?}");
            // A member that is silent takes a quarter of the time at most.
            assert!(results == 1 || within < 4 * SLACK, "{results} results within {within:?}");
        }
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_call_whose_time_is_over_is_not_sent() {
    check(20, |sim| {
        let _a = member(sim, "a");
        let member = farcall::import::<dyn Member>("Member")?;
        let group = farcall::import_all::<dyn Member>("Member")?;
        let balanced = group.balanced();
        assert_eq!((member.add(1)?, balanced.add(1)?), (2, 2));
        let sent = || -> u64 {
            let stats = farcall::Runtime::current().expect("a runtime").stats();
            stats.peers.iter().map(|peer| peer.conversation.sent).sum()
        };
        sim.sleep(Duration::from_secs(5));
        let before = sent();
        let none = Duration::ZERO;
        ends_unrun(none, |within| member.clone().within(within).add(1));
        ends_unrun(none, |within| member.clone().within(within).start().add(1).wait());
        ends_unrun(none, |within| sim::block_on(member.clone().within(within).start().add(1)));
        ends_unrun(none, |within| balanced.clone().within(within).add(1));
        ends_unrun(none, |within| balanced.clone().within(within).start().add(1).wait());
        let all = group.multi().add(1).within(none).all();
        assert_eq!(all.results().count(), 0);
        assert_eq!(sent(), before, "nothing is sent");
        // Nobody takes the server for a silent one.
        assert_eq!((member.add(1)?, balanced.add(1)?), (2, 2));
        assert_eq!(group.balancer().members()[0].failures, 0);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_call_by_another_protocol_whose_time_is_over_is_not_sent() {
    check(5, |sim| {
        let counts = Arc::new(AtomicU64::new(0));
        let counted = counts.clone();
        let server = sim.server("server", move || {
            let count = || Arc::new(Counts(counted.clone()));
            let at = |port| std::net::SocketAddr::from(([0, 0, 0, 0], port));
            let onc = farcall_onc::Server::builder().program::<dyn Lookup>(count()).address(at(1)).start();
            let courier = farcall_courier::Server::builder().program::<dyn Lookup>(count());
            let courier = courier.tcp(at(2)).start();
            let _both = (onc.expect("a free port"), courier.expect("a free port"));
            sim::sleep(HOUR);
        });
        sim.host("server.example", &[&server]);
        let onc = farcall_onc::Client::connect("tcp://server.example:1")?.bind::<dyn Lookup>();
        let udp = farcall_onc::Client::connect("udp://server.example:1")?.bind::<dyn Lookup>();
        let courier = farcall_courier::import::<dyn Lookup>("tcp://server.example:2")?;
        let rpc2 = farcall_rpc2::import::<dyn Lookup>("rpc2://server.example:3/7")?;
        for stub in [&onc, &udp, &courier] {
            stub.count()?;
        }
        let before = counts.load(Relaxed);
        for stub in [onc, udp, courier, rpc2] {
            ends_unrun(Duration::ZERO, |within| stub.clone().within(within).count());
            ends_unrun(Duration::ZERO, |within| stub.clone().within(within).start().count().wait());
            ends_unrun(Duration::ZERO, |within| sim::block_on(stub.clone().within(within).start().count()));
        }
        sim.sleep(Duration::from_secs(60));
        assert_eq!(counts.load(Relaxed), before);
        Ok::<(), farcall::Error>(())
    });
}

/// Counts calls.
struct Counts(Arc<AtomicU64>);

impl Lookup for Counts {
    fn count(&self) -> farcall::Result<u32> {
        self.0.fetch_add(1, Relaxed);
        Ok(7)
    }
}

/// Connects within a time. Returns why that failed.
type Connect<'a> = &'a dyn Fn(Duration) -> Option<CallFailed>;

#[test]
fn the_time_to_connect_covers_the_resolver_and_each_address_gets_a_share() {
    check(20, |sim| {
        let processes: Vec<Process> =
            (0..4).map(|at| sim.server(&format!("s{at}"), || sim::sleep(HOUR))).collect();
        let all: Vec<&Process> = processes.iter().collect();
        sim.host("silent.example", &all);
        for process in &processes {
            sim.partition(&sim.test(), process);
        }
        let ends = |what: &str, connect: Connect<'_>| {
            let (within, begun) = (drawn(sim), sim::now());
            let failed = connect(within).unwrap_or_else(|| panic!("{what}: nothing answers"));
            let took = sim::now() - begun;
            assert!(took <= within + SLACK, "{what}: {took:?} of {within:?}: {failed}");
            assert_eq!(failed.ran(), Ran::No, "{what}");
        };
        let onc = |within| farcall_onc::Client::builder().connect_within(within);
        let courier = |within| farcall_courier::Builder::default().connect_within(within);
        let connects: [(&str, Connect<'_>); 5] = [
            ("four addresses by ONC", &|within| onc(within).connect("tcp://silent.example:1").err()),
            ("a port mapper", &|within| onc(within).find("silent.example", 1, 1).err()),
            ("a port mapper over UDP", &|within| onc(within).find("udp://silent.example", 1, 1).err()),
            ("four addresses by Courier", &|within| {
                courier(within).import::<dyn Lookup>("tcp://silent.example:1").err()
            }),
            ("RPC2", &|within| {
                let rpc2 = farcall_rpc2::Builder::default().resolve_within(within);
                let lookup = rpc2.import::<dyn Lookup>("rpc2://silent.example:1/7");
                lookup.and_then(|lookup| lookup.count().map_err(CallFailed::from)).err()
            }),
        ];
        for (what, connect) in connects.iter().take(4) {
            ends(what, connect);
        }
        sim.silence_resolver(true);
        for (what, connect) in connects {
            ends(what, connect);
        }
        sim.silence_resolver(false);
        Ok::<(), farcall::Error>(())
    });
}

const HOUR: Duration = Duration::from_secs(3600);

#[farcall::interface(program = 900, version = 1)]
trait Lookup {
    #[procedure(1)]
    fn count(&self) -> farcall::Result<u32>;
}

fn serve_words_and_member() -> farcall::Result<()> {
    let runtime = farcall::Runtime::current()?;
    let _words = runtime.export_segment("Words", Settings::new(64).anyone(Rights::ALL))?;
    runtime.export::<dyn Member>("Member/a", Arc::new(Server))?.wait()
}

/// A silent server is waited for once: by the call, and not again by a bind to the same server. The bind asks
/// it for a second at most, because it may have come back.
#[test]
fn a_silent_server_is_waited_for_once() {
    check(20, |sim| {
        let patience = Duration::from_secs(10);
        let exporter = sim.server("exporter", serve_words_and_member);
        let words = farcall::Runtime::current()?.import_segment("Words").expect("it is exported");
        let timed = words.within(Duration::from_secs(3));
        let member = farcall::import::<dyn Member>("Member/a")?;
        assert_eq!((words.load(8).expect("a word"), member.look(1)?), (0, 1));
        exporter.pause();
        let ends = |within: Duration, why: CallFailed, begun: Duration| {
            let took = sim::now() - begun;
            // The last probe is answered no more, or the deadline passes.
            assert!(took <= within + within / 4 + Duration::from_secs(1), "{took:?} of {within:?}: {why}");
        };
        let begun = sim::now();
        let Err(farcall::Error::CallFailed(why)) = timed.load(8) else { panic!("nobody answers") };
        assert_eq!(why.kind(), Kind::Deadline, "{why}");
        ends(Duration::from_secs(3), why, begun);
        let begun = sim::now();
        let Err(farcall::Error::CallFailed(why)) = words.load(8) else { panic!("nobody answers") };
        assert_eq!(why.kind(), Kind::Unreachable, "{why}");
        ends(patience, why, begun);
        let begun = sim::now();
        let why = CallFailed::from(member.look(1).expect_err("nobody answers"));
        assert_eq!(why.kind(), Kind::Unreachable, "{why}");
        ends(patience, why, begun);
        Ok::<(), farcall::Error>(())
    });
}

/// Started calls and accesses wait for a silent server once, too, whether a thread or a task waits for them.
#[test]
fn a_silent_server_is_waited_for_once_by_started_calls() {
    check(20, |sim| {
        let patience = Duration::from_secs(10);
        let exporter = sim.server("exporter", serve_words_and_member);
        let words = farcall::Runtime::current()?.import_segment("Words").expect("it is exported");
        let member = farcall::import::<dyn Member>("Member/a")?;
        assert_eq!((words.start_read(8, 8).wait().expect("a word").len(), member.look(1)?), (8, 1));
        exporter.pause();
        let is_awaited = sim.below(2) == 0;
        let begun = sim::now();
        let (read, look) = (words.start_read(8, 8), member.start().look(1));
        let (read, look) = match is_awaited {
            true => (sim::block_on(read), sim::block_on(look)),
            false => (read.wait(), look.wait()),
        };
        let Err(farcall::Error::CallFailed(read)) = read else { panic!("nobody answers") };
        for why in [read, look.expect_err("nobody answers").into()] {
            let took = sim::now() - begun;
            assert_eq!(why.kind(), Kind::Unreachable, "{why}");
            assert!(took <= patience + patience / 4 + Duration::from_secs(1), "{took:?}: {why}");
        }
        Ok::<(), farcall::Error>(())
    });
}

/// An import that renews itself makes accesses and imports as often as that helps. One time covers them all.
#[test]
fn one_time_covers_an_access_and_the_imports_that_renew_it() {
    check(40, |sim| {
        let exporter = sim.server("exporter", serve_words_and_member);
        let runtime = farcall::Runtime::current()?;
        let importer = runtime.clone();
        let words = Renewing::new(move || importer.import_segment_anew("Words", None))?;
        let load = || words.with(|memory| memory.load(8));
        assert_eq!(load(), Ok(0));
        let is_restarted = sim.below(2) == 0;
        if is_restarted {
            exporter.crash();
            exporter.restart();
            sim.sleep(Duration::from_millis(sim.below(200)));
        }
        exporter.pause();
        for _ in 0..3 {
            let (within, begun) = (drawn(sim), sim::now());
            let Err(farcall::Error::CallFailed(why)) = runtime.within(within, load) else {
                panic!("nobody answers")
            };
            let took = sim::now() - begun;
            assert!(took <= within + SLACK, "{took:?} of {within:?}: {why}");
            // It may have been stopped before it had its port again.
            assert!(why.kind() == Kind::Deadline || is_restarted && why.kind() == Kind::Unreachable, "{why}");
        }
        exporter.resume();
        // It takes the place of the clerk that has gone with its former life.
        sim.sleep(Duration::from_secs(30));
        assert_eq!(load(), Ok(0));
        Ok::<(), farcall::Error>(())
    });
}

/// The machine's clerk asks the registry which clerks and segments there are. The time of who asks it covers
/// that, whether it is the first to ask, or another thread is asking already.
#[test]
fn a_deadline_covers_a_clerk_behind_a_silent_registry() {
    check(40, |sim| {
        let _exporter = sim.server("exporter", serve_words_and_member);
        let runtime = farcall::Runtime::current()?;
        if sim.below(2) == 0 {
            runtime.import_segment("Words")?; // the clerk is known
        }
        sim.silence_registry(true);
        let ask = |name: &'static str, (within, runtime): (Duration, farcall::Runtime)| {
            let begun = sim::now();
            let ended = runtime.within(within, || runtime.import_segment_anew(name, None));
            let (why, took) = (CallFailed::from(ended.err().expect("nobody answers")), sim::now() - begun);
            assert!(took <= within + SLACK, "{name}: {took:?} of {within:?}: {why}");
        };
        let times = [drawn(sim), drawn(sim)].map(|within| (within, runtime.clone()));
        let [other, own] = times;
        let other = sim::spawn(move || ask("Words", other));
        sim.sleep(Duration::from_millis(sim.below(100)));
        ask("Unknown", own);
        other.join();
        sim.silence_registry(false);
        sim.sleep(Duration::from_secs(30));
        runtime.import_segment_anew("Words", None)?;
        Ok::<(), farcall::Error>(())
    });
}

/// Each thread's own time covers the imports that renew an import that several threads share.
#[test]
fn no_thread_waits_longer_than_its_time_for_the_import_of_another() {
    check(20, |sim| {
        let exporter = sim.server("exporter", serve_words_and_member);
        let runtime = farcall::Runtime::current()?;
        let importer = runtime.clone();
        let words = Arc::new(Renewing::new(move || importer.import_segment_anew("Words", None))?);
        assert_eq!(words.with(|memory| memory.load(8)), Ok(0));
        exporter.crash();
        exporter.restart();
        sim.sleep(Duration::from_millis(200));
        exporter.pause();
        let threads = [drawn(sim), drawn(sim), drawn(sim)].map(|within| {
            let (words, runtime) = (words.clone(), runtime.clone());
            sim::spawn(move || {
                let begun = sim::now();
                let ended = runtime.within(within, || words.with(|memory| memory.load(8)));
                let took = sim::now() - begun;
                assert!(took <= within + SLACK, "{took:?} of {within:?}: {ended:?}");
            })
        });
        threads.into_iter().for_each(|thread| thread.join());
        Ok::<(), farcall::Error>(())
    });
}
