//! Tests that a registry that loses all its entries, as etcd does that was away for longer than their leases,
//! costs no balanced call and no member of a group, as long as the servers are well; and that members that
//! have left are not called for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::{CallFailed, Group, Kind, Ran};
use farcall_sim::{Process, Sim, check, find, replay, sim};

#[farcall::interface]
trait Store {
    fn add(&self, number: u64) -> farcall::Result<u64>;
    #[idempotent]
    fn get(&self, number: u64) -> farcall::Result<u64>;
}

struct Server;

impl Store for Server {
    fn add(&self, number: u64) -> farcall::Result<u64> {
        Ok(number)
    }

    fn get(&self, number: u64) -> farcall::Result<u64> {
        Ok(number)
    }
}

/// A server, which drains and ends when it is told to.
struct Replica {
    process: Process,
    ends: Arc<AtomicBool>,
}

impl Replica {
    fn start(sim: &Sim, number: u64) -> Replica {
        let ends = Arc::<AtomicBool>::default();
        let told = ends.clone();
        let process = sim.server(&format!("replica {number}"), move || {
            let export = farcall::export::<dyn Store>(&format!("Store/{number}"), Arc::new(Server))?;
            while !told.load(SeqCst) {
                sim::sleep(Duration::from_millis(1 + sim::below(20)));
            }
            assert!(export.drain(Duration::from_secs(25)));
            Ok::<(), farcall::Error>(())
        });
        Replica { process, ends }
    }

    fn drain(&self) {
        self.ends.store(true, SeqCst);
        self.process.wait();
    }

    fn restart(&self) {
        self.ends.store(false, SeqCst);
        self.process.restart();
    }
}

fn start(sim: &Sim, count: u64) -> Vec<Replica> {
    let replicas = (0..count).map(|number| Replica::start(sim, number)).collect();
    sim.sleep(Duration::from_millis(200));
    replicas
}

fn import() -> Group<StoreClient> {
    farcall::import_all::<dyn Store>("Store").expect("servers are exported")
}

/// Waits for up to this many milliseconds.
fn pause(sim: &Sim, most: u64) {
    sim.sleep(Duration::from_millis(sim.below(most)));
}

/// Makes the registry lose its entries several times, while balanced stubs and group calls call. Sometimes a
/// replica drains meanwhile, and is started again. Returns how many calls were made.
fn lose(sim: &Sim, broken: Option<Rule>) -> u64 {
    let replicas = start(sim, 1 + sim.below(3));
    let (over, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    for which in 0..3 {
        let (over, calls) = (over.clone(), calls.clone());
        sim.process(&format!("client {which}"), move || {
            let group = import();
            let balancer = group.balancer();
            let stub = if which == 0 { balancer.stub() } else { balancer.round_robin() };
            while !over.load(SeqCst) {
                let number = calls.fetch_add(1, SeqCst);
                assert_eq!(stub.add(number), Ok(number));
                if which == 2 {
                    let all = group.multi().add(number).all();
                    assert!(all.results().count() > 0, "{all:?}");
                }
                sim::sleep(Duration::from_millis(sim::below(100)));
            }
        });
    }
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    for _ in 0..4 {
        // Meanwhile all clients call all servers. One that has joined gets its share after ten seconds.
        sim.sleep(Duration::from_secs(11));
        pause(sim, 500);
        let mut lost = sim.lose_names();
        let restarted = (replicas.len() > 1 && sim.below(2) == 0).then(|| sim.below(replicas.len() as u64));
        if let Some(which) = restarted {
            pause(sim, 500);
            replicas[which as usize].drain();
        }
        while !lost.is_empty() {
            pause(sim, 5_000);
            sim.publish_again(&lost.swap_remove(sim.below(lost.len() as u64) as usize));
        }
        if let Some(which) = restarted {
            pause(sim, 500);
            replicas[which as usize].restart();
        }
    }
    over.store(true, SeqCst);
    sim.run();
    calls.load(SeqCst)
}

#[test]
fn no_call_fails_while_the_registry_has_lost_its_entries() {
    let calls = Arc::<AtomicU64>::default();
    let sum = calls.clone();
    check(12, move |sim| {
        sum.fetch_add(lose(sim, None), SeqCst);
    });
    println!("{} calls", calls.load(SeqCst));
    assert!(calls.load(SeqCst) > 1_000);
}

#[test]
fn the_broken_rule_is_noticed() {
    let rule = Rule::UnlistedIsKept;
    let failure = find(10, move |sim| _ = lose(sim, Some(rule))).expect("something notices it");
    replay(failure.seed, |sim| _ = lose(sim, None)).expect("nothing else fails");
    println!("{rule:?}: seed {}: {}", failure.seed, failure.why.lines().next().unwrap_or_default());
}

/// The servers publish again one after the other. The first drains while the registry is silent, and before it
/// lists the second.
#[test]
fn a_member_whose_name_has_not_come_back_serves_while_the_others_drain() {
    check(20, |sim| drain_first(sim, None));
    find(20, |sim| drain_first(sim, Some(Rule::UnlistedIsKept))).expect("something notices it");
}

fn drain_first(sim: &Sim, broken: Option<Rule>) {
    let replicas = start(sim, 2);
    let over = Arc::<AtomicBool>::default();
    for which in 0..3 {
        let over = over.clone();
        sim.process(&format!("client {which}"), move || {
            let group = import();
            let balancer = group.balancer();
            let stub = if which == 0 { balancer.stub() } else { balancer.round_robin() };
            let stub = if sim::below(2) == 0 { stub } else { stub.within(Duration::from_secs(2)) };
            for number in 0.. {
                if over.load(SeqCst) {
                    break;
                }
                let ended = if which == 2 { stub.start().add(number).wait() } else { stub.add(number) };
                assert_eq!(ended, Ok(number));
                sim::sleep(Duration::from_millis(sim::below(100)));
            }
        });
    }
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    // Meanwhile all clients call both servers.
    sim.sleep(Duration::from_secs(15));
    sim.lose_names();
    pause(sim, 2_000);
    sim.publish_again("Store/0");
    pause(sim, 2_000);
    sim.silence_registry(true);
    replicas[0].drain();
    pause(sim, 10_000);
    sim.silence_registry(false);
    sim.publish_again("Store/1");
    replicas[0].restart();
    pause(sim, 2_000);
    over.store(true, SeqCst);
    sim.run();
}

/// A server is started again and dies before anybody has called it, and the registry lists it and no other.
#[test]
fn a_member_whose_name_has_not_come_back_serves_while_the_one_that_is_listed_is_dead() {
    check(20, |sim| {
        let replicas = start(sim, 2);
        let over = Arc::<AtomicBool>::default();
        for which in 0..3 {
            let over = over.clone();
            sim.process(&format!("client {which}"), move || {
                let group = import();
                let balancer = group.balancer();
                let stub = if which == 0 { balancer.stub() } else { balancer.round_robin() };
                let stub = stub.within(Duration::from_secs(2));
                for number in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    let ended = if which == 2 { stub.start().add(number).wait() } else { stub.add(number) };
                    // A call of the server that dies may have run.
                    assert!(ended == Ok(number) || told(ended.clone()).1 == Ran::Maybe, "{ended:?}");
                    sim::sleep(Duration::from_millis(sim::below(100)));
                }
            });
        }
        // Meanwhile all clients call both servers.
        sim.sleep(Duration::from_secs(15));
        replicas[0].drain();
        sim.lose_names();
        replicas[0].restart();
        pause(sim, 300);
        sim.silence_registry(true);
        replicas[0].process.crash();
        pause(sim, 10_000);
        sim.silence_registry(false);
        sim.publish_again("Store/1");
        over.store(true, SeqCst);
        sim.run();
    });
}

/// The server that is listed was started again, and is gone or stopped before this client has called it.
#[test]
fn the_first_call_of_a_listed_member_that_is_gone_goes_to_a_former_one() {
    check(20, |sim| {
        let replicas = start(sim, 2);
        let group = import();
        let stub = group.balancer().round_robin().within(Duration::from_secs(2));
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        replicas[0].drain();
        sim.lose_names();
        replicas[0].restart();
        sim.sleep(Duration::from_millis(200));
        assert_eq!(group.len(), 1, "{group:?}");
        let is_gone = sim.below(2) == 0;
        let process = &replicas[0].process;
        if is_gone {
            process.crash()
        } else {
            process.pause()
        }
        match sim.below(3) {
            0 => assert_eq!(stub.add(1), Ok(1)),
            1 => assert_eq!(stub.start().add(1).wait(), Ok(1)),
            _ => {
                // The registry lists it again shortly before the call gives the other member up.
                let started = stub.start().add(1);
                sim.sleep(Duration::from_millis(900 + sim.below(99)));
                sim.publish_again("Store/1");
                assert_eq!(started.wait(), Ok(1));
            }
        }
        if !is_gone {
            process.resume();
        }
    });
}

/// The only server that is listed stops several times, for longer than half of the time of a call.
#[test]
fn a_call_that_may_run_again_goes_to_a_former_member_while_the_only_one_is_stopped() {
    check(10, |sim| {
        let replicas = start(sim, 2);
        let over = Arc::<AtomicBool>::default();
        for which in 0..3 {
            let over = over.clone();
            sim.process(&format!("client {which}"), move || {
                let group = import();
                let balancer = group.balancer();
                let stub = if which == 0 { balancer.stub() } else { balancer.round_robin() };
                let stub = stub.within(Duration::from_secs(2));
                for number in 0.. {
                    if over.load(SeqCst) {
                        break;
                    }
                    let ended = if which == 2 { stub.start().get(number).wait() } else { stub.get(number) };
                    assert_eq!(ended, Ok(number));
                    sim::sleep(Duration::from_millis(sim::below(100)));
                }
            });
        }
        // Meanwhile all clients call both servers.
        sim.sleep(Duration::from_secs(15));
        sim.lose_names();
        pause(sim, 2_000);
        sim.publish_again("Store/0");
        sim.sleep(Duration::from_secs(5));
        for _ in 0..4 {
            replicas[0].process.pause();
            sim.sleep(Duration::from_millis(1_200));
            replicas[0].process.resume();
            pause(sim, 5_000);
        }
        over.store(true, SeqCst);
        sim.run();
    });
}

/// Two of three servers are listed, and stop at the same time.
#[test]
fn a_call_that_may_run_again_goes_to_a_former_member_while_all_listed_ones_are_stopped() {
    check(20, |sim| {
        let replicas = start(sim, 3);
        let group = import();
        let stub = group.balancer().round_robin().within(Duration::from_secs(2));
        (0..30).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        sim.lose_names();
        ["Store/0", "Store/1"].into_iter().for_each(|name| sim.publish_again(name));
        sim.sleep(Duration::from_millis(200));
        assert_eq!(group.len(), 2, "{group:?}");
        replicas[..2].iter().for_each(|replica| replica.process.pause());
        match sim.below(2) {
            0 => assert_eq!(stub.get(1), Ok(1)),
            _ => assert_eq!(stub.start().get(1).wait(), Ok(1)),
        }
        assert_eq!(group.len(), 2, "former members are none of the group");
        replicas[..2].iter().for_each(|replica| replica.process.resume());
    });
}

/// The only server that is listed stops for more than half of a call's time, and the former one is gone.
#[test]
fn a_call_returns_to_the_only_member_if_the_former_one_is_gone() {
    check(20, |sim| return_from_former(sim, None));
    find(20, |sim| return_from_former(sim, Some(Rule::FormerGiveBack))).expect("something notices it");
}

fn return_from_former(sim: &Sim, broken: Option<Rule>) {
    let replicas = start(sim, 2);
    let group = import();
    // Within ten seconds, the client learns that the former member is gone, and not only silent.
    let within = Duration::from_secs(if sim.below(2) == 0 { 2 } else { 10 });
    let stub = group.balancer().round_robin().within(within);
    (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
    sim.lose_names();
    sim.publish_again("Store/0");
    sim.sleep(Duration::from_millis(200));
    assert_eq!(group.len(), 1, "{group:?}");
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    replicas[1].process.crash();
    replicas[0].process.pause();
    let is_started = sim.below(2) == 0;
    let call = sim.process("client", move || {
        let ended = if is_started { stub.start().get(1).wait() } else { stub.get(1) };
        assert_eq!(ended, Ok(1));
    });
    sim.sleep(within * 3 / 5);
    replicas[0].process.resume();
    call.wait();
}

/// The registry ends when it has just listed a server that was started again, and the other server drains.
#[test]
fn a_server_that_was_started_again_just_before_the_registry_ended_is_called() {
    check(20, |sim| restart_before(sim, Sim::end_registry));
}

/// The registry is silent, which a client finds out by its own patience alone.
#[test]
fn a_server_that_was_started_again_just_before_the_registry_fell_silent_is_called() {
    check(20, |sim| restart_before(sim, Sim::silence_registry));
    let broken = find(20, |sim| {
        sim.breaks(Rule::LateRegistryIsPassedBy);
        restart_before(sim, Sim::silence_registry);
    });
    broken.expect("something notices it");
}

/// Starts one server again just before the registry is disturbed, and drains the other one meanwhile.
fn restart_before(sim: &Sim, disturb: impl Fn(&Sim, bool)) {
    let replicas = start(sim, 2);
    let group = import();
    let stub = group.balancer().round_robin().within(Duration::from_secs(2));
    (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
    replicas[0].drain();
    replicas[0].restart();
    sim.sleep(Duration::from_millis(200));
    // The client learns of it, but does not call it.
    assert_eq!(group.len(), 2, "{group:?}");
    disturb(sim, true);
    replicas[1].drain();
    for number in 0..20 {
        let ended = match sim.below(2) {
            0 => stub.add(number),
            _ => stub.start().add(number).wait(),
        };
        assert_eq!(ended, Ok(number));
    }
    disturb(sim, false);
}

/// One of three servers drains while another one is stopped.
#[test]
fn a_call_that_a_draining_member_refuses_does_not_spend_its_time_at_a_stopped_one() {
    check(20, |sim| {
        let replicas = start(sim, 3);
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let client = sim.process("client", move || {
            let group = import();
            let stub = group.balancer().round_robin().within(Duration::from_secs(4));
            for number in 0.. {
                if ends.load(SeqCst) {
                    break;
                }
                let ended = if number % 2 == 0 { stub.start().get(number).wait() } else { stub.get(number) };
                assert_eq!(ended, Ok(number));
                sim::sleep(Duration::from_millis(sim::below(10)));
            }
        });
        sim.sleep(Duration::from_secs(1));
        for _ in 0..5 {
            replicas[1].process.pause();
            pause(sim, 20);
            replicas[0].drain();
            sim.sleep(Duration::from_secs(5));
            replicas[1].process.resume();
            replicas[0].restart();
            sim.sleep(Duration::from_secs(12));
        }
        over.store(true, SeqCst);
        client.wait();
    });
}

/// Several calls of one balancer are under way at the only member that is listed when it stops.
#[test]
fn all_calls_of_a_balancer_go_to_the_former_member_while_the_only_one_is_stopped() {
    check(20, |sim| {
        let replicas = start(sim, 2);
        let group = import();
        let stub = group.balancer().round_robin().within(Duration::from_secs(2));
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        sim.lose_names();
        sim.publish_again("Store/0");
        sim.sleep(Duration::from_millis(200));
        assert_eq!(group.len(), 1, "{group:?}");
        replicas[0].process.pause();
        let client = sim.process("clients", move || {
            let calls = (0..6).map(|number| {
                let stub = stub.clone();
                sim::spawn(move || {
                    sim::sleep(Duration::from_millis(number * sim::below(60)));
                    let ended = if number < 3 { stub.start().get(number).wait() } else { stub.get(number) };
                    assert_eq!(ended, Ok(number));
                })
            });
            calls.collect::<Vec<_>>().into_iter().for_each(|call| call.join());
        });
        client.wait();
        replicas[0].process.resume();
    });
}

/// The registry is silent, and so are all servers: the group is asked for its members again, in vain.
#[test]
fn a_call_ends_at_its_deadline_while_the_registry_and_all_members_are_silent() {
    check(20, |sim| {
        let replicas = start(sim, 2);
        let group = import();
        let within = Duration::from_secs(4);
        let stub = group.balancer().round_robin().within(within);
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        sim.lose_names();
        sim.publish_again("Store/0");
        sim.sleep(Duration::from_millis(200));
        assert_eq!(group.len(), 1, "{group:?}");
        sim.silence_registry(true);
        replicas.iter().for_each(|replica| replica.process.pause());
        let begun = sim::now();
        let ended = if sim.below(2) == 0 { stub.start().get(1).wait() } else { stub.get(1) };
        let took = sim::now() - begun;
        assert_eq!(told(ended), (Kind::Deadline, Ran::Maybe));
        assert!(took >= within && took <= within + Duration::from_millis(50), "{took:?}");
        sim.silence_registry(false);
        replicas.iter().for_each(|replica| replica.process.resume());
    });
}

fn told(outcome: farcall::Result<u64>) -> (Kind, Ran) {
    let why = CallFailed::from(outcome.unwrap_err());
    (why.kind(), why.ran())
}

#[test]
fn members_that_have_drained_are_gone_at_once() {
    check(10, |sim| {
        let replicas = start(sim, 2);
        let group = import();
        let stub = group.balanced();
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        if sim.below(2) == 0 {
            sim.lose_names();
        }
        replicas.iter().for_each(Replica::drain);
        let begun = sim::now();
        assert_eq!(told(stub.add(1)).1, Ran::No);
        assert!(group.is_empty(), "{group:?}");
        sim.sleep(Duration::from_millis(100));
        assert_eq!(told(stub.add(1)), (Kind::NoSuchName, Ran::No));
        assert!(sim::now() - begun < Duration::from_millis(500), "{:?}", sim::now() - begun);
    });
}

#[test]
fn a_member_that_has_died_is_not_kept_and_one_that_is_well_only_for_a_while() {
    check(5, |sim| {
        let replicas = start(sim, 2);
        let group = import();
        let stub = group.balancer().round_robin();
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        sim.lose_names();
        replicas[0].process.crash();
        // One of the calls finds out that a member has died.
        let failed = (0..20).filter(|number| stub.add(*number).is_err()).count();
        assert!(failed <= 1, "{failed} calls failed");
        assert_eq!(group.len(), 1, "{group:?}");
        sim.sleep(Duration::from_secs(590));
        assert_eq!(stub.add(1), Ok(1));
        sim.sleep(Duration::from_secs(30));
        assert!(group.is_empty(), "{group:?}");
        // Of the calls to an only member, one in 32 looks whether it still is one.
        let well = (0..32).filter(|number| stub.add(*number).is_ok()).count();
        assert!(well < 32, "the member is kept");
        assert_eq!(told(stub.add(1)), (Kind::NoSuchName, Ran::No));
        sim.publish_again("Store/1");
        sim.sleep(Duration::from_millis(100));
        assert_eq!(stub.add(1), Ok(1));
        replicas[1].drain();
    });
}

/// A server is started again, and the registry loses its entries before anybody has called it.
#[test]
fn a_server_that_was_started_again_just_before_is_found() {
    check(20, |sim| {
        let replicas = start(sim, 1 + sim.below(2));
        let group = import();
        let stub = match sim.below(2) {
            0 => group.balanced(),
            _ => group.balancer().round_robin(),
        };
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        for replica in &replicas {
            replica.drain();
            replica.restart();
            sim.sleep(Duration::from_millis(200));
        }
        // The client learns of them, but does not call them.
        assert_eq!(group.len(), replicas.len());
        sim.lose_names();
        match sim.below(3) {
            0 => assert_eq!(stub.add(1), Ok(1)),
            1 => assert_eq!(stub.start().add(1).wait(), Ok(1)),
            _ => {
                let all = group.multi().add(1).all();
                assert_eq!(all.results().count(), replicas.len(), "{all:?}");
            }
        }
        (0..20).for_each(|number| assert_eq!(stub.add(number), Ok(number)));
        // One that is gone is asked once, and briefly.
        for replica in &replicas {
            replica.process.crash();
        }
        let failed: Vec<_> = (0..40).filter_map(|number| stub.add(number).err()).collect();
        assert!(failed.len() > 30, "{failed:?}");
    });
}
