//! Tests that a member which has stopped, or is cut off, costs balanced calls and group calls little: it is
//! asked in the background whether it answers, and no call of the user's has to find out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall::driver_mutants::Rule;
use farcall::multi::{Fixed, Outcome};
use farcall::{Answer, Group, Kind, Ran};
use farcall_sim::{Process, Sim, check, find, sim};

#[farcall::interface]
trait Member {
    #[idempotent]
    fn read(&self, takes_ms: u64) -> farcall::Result<u64>;
    fn write(&self, number: u64) -> farcall::Result<()>;
    /// Raises the signal, and then works for so long.
    #[idempotent]
    #[blocking]
    fn ask(&self, takes_ms: u64) -> farcall::Result<u64>;
    /// Sends an item each second.
    #[idempotent]
    fn watch(&self, count: u64) -> farcall::Result<farcall::Stream<u64>>;
    #[signal]
    fn asked(&self) -> u64;
}

struct Server(Arc<AtomicU64>);

impl Member for Server {
    fn read(&self, takes_ms: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_millis(takes_ms));
        Ok(takes_ms)
    }

    fn write(&self, number: u64) -> farcall::Result<()> {
        let former = self.0.fetch_max(number, Ordering::SeqCst);
        assert!(former < number, "{number} ran after {former}");
        Ok(())
    }

    fn ask(&self, takes_ms: u64) -> farcall::Result<u64> {
        let answer = MemberSignals::asked()?;
        sim::sleep(Duration::from_millis(takes_ms));
        Ok(answer)
    }

    fn watch(&self, count: u64) -> farcall::Result<farcall::Stream<u64>> {
        let each_second = |item| {
            sim::sleep(Duration::from_secs(1));
            Ok(item)
        };
        Ok(farcall::Stream::new((0..count).map(each_second)))
    }
}

/// Members of one state, of which `write` shows whether a call runs twice.
fn members(sim: &Sim, count: usize) -> farcall::Result<(Vec<Process>, Group<MemberClient>)> {
    let written = Arc::<AtomicU64>::default();
    let serve = |which: usize| {
        let (name, written) = (format!("Member/m{which:02}"), written.clone());
        sim.server(&name.clone(), move || {
            farcall::export::<dyn Member>(&name, Arc::new(Server(written.clone())))?.wait()
        })
    };
    let servers = (0..count).map(serve).collect();
    Ok((servers, farcall::import_all::<dyn Member>("Member")?))
}

/// Stops a member, or cuts it off, for a while.
struct Silenced<'a>(&'a Sim, &'a Process, bool);

impl<'a> Silenced<'a> {
    fn new(sim: &'a Sim, process: &'a Process) -> Silenced<'a> {
        let stops = sim.seed().is_multiple_of(2);
        match stops {
            true => process.pause(),
            false => sim.partition(&sim.test(), process),
        }
        Silenced(sim, process, stops)
    }

    fn end(self) {
        let Silenced(sim, process, stops) = self;
        if stops { process.resume() } else { sim.heal() }
    }
}

const DEADLINE: Duration = Duration::from_secs(5);

/// Stops all servers when it runs for the first time, and counts how often it runs.
struct Stops(Arc<Vec<Process>>, Arc<AtomicU64>);

impl MemberHandler for Stops {
    fn asked(&self, _: MemberRaiser) -> Answer<u64> {
        if self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            self.0.iter().for_each(Process::pause);
        }
        Answer::Resume(7)
    }
}

/// The members stop when the handler has run.
#[test]
fn a_call_in_which_a_handler_ran_does_not_go_to_another_member() {
    check(10, |sim| stop_after_handler(sim, None));
    find(10, |sim| stop_after_handler(sim, Some(Rule::HandledIsNotRepeated))).expect("something notices it");
}

fn stop_after_handler(sim: &Sim, broken: Option<Rule>) -> farcall::Result<()> {
    broken.into_iter().for_each(|rule| sim.breaks(rule));
    let (servers, group) = members(sim, 2)?;
    let (servers, handled) = (Arc::new(servers), Arc::<AtomicU64>::default());
    let handler = Stops(servers.clone(), handled.clone());
    let stub = group.balancer().round_robin().within(12 * DEADLINE).catching(handler);
    (0..4).try_for_each(|_| stub.read(0).map(drop))?;
    let is_started = sim.below(2) == 0;
    let call = sim.process("client", move || {
        let ended = if is_started { stub.start().ask(1).wait() } else { stub.ask(1) };
        let why = farcall::CallFailed::from(ended.unwrap_err());
        assert_eq!(why.ran(), Ran::Maybe, "{why}");
    });
    // Meanwhile the client's patience ends.
    sim.sleep(3 * DEADLINE);
    servers.iter().for_each(Process::resume);
    call.wait();
    assert_eq!(handled.load(Ordering::SeqCst), 1, "the handler ran again");
    Ok(())
}

/// All datagrams are lost for a while after half of the time of a call whose result is a stream.
#[test]
fn a_stream_that_has_begun_outlives_a_cut_after_half_of_its_time() {
    check(10, |sim| {
        let (servers, group) = members(sim, 2)?;
        let stub = group.balancer().round_robin().within(Duration::from_secs(600));
        let client = sim.process("client", move || {
            let items: farcall::Result<Vec<u64>> = stub.watch(400)?.collect();
            assert_eq!(items, Ok((0..400).collect()));
            Ok::<(), farcall::Error>(())
        });
        sim.sleep(Duration::from_secs(350));
        servers.iter().for_each(|server| sim.partition(&client, server));
        sim.sleep(Duration::from_secs(4));
        sim.heal();
        client.wait();
        Ok::<(), farcall::Error>(())
    });
}

fn read_while_one_of_two_members_is_silent(sim: &Sim) -> farcall::Result<()> {
    let (servers, group) = members(sim, 2)?;
    let balancer = group.balancer();
    let stub = balancer.stub().within(DEADLINE);
    (0..50).try_for_each(|_| stub.read(0).map(drop))?;
    for round in 0..3 {
        let silenced = Silenced::new(sim, &servers[round % 2]);
        let until = sim::now() + Duration::from_secs(60);
        let mut slow = 0;
        while sim::now() < until {
            let begun = sim::now();
            stub.read(sim.below(3)).expect("the other member is well");
            let took = sim::now() - begun;
            assert!(took < DEADLINE * 3 / 4, "{took:?}");
            slow += u32::from(took > DEADLINE / 4);
            sim::sleep(Duration::from_millis(sim.below(100)));
        }
        assert!(slow <= 1, "only a call that was under way may wait for a silent member: {slow}");
        silenced.end();
        // The member gets calls again soon after it answers.
        let before = balancer.members()[round % 2].calls;
        let until = sim::now() + Duration::from_secs(20);
        while sim::now() < until {
            stub.read(0)?;
            sim::sleep(Duration::from_millis(10));
        }
        assert!(balancer.members()[round % 2].calls > before + 100, "{:?}", balancer.members());
    }
    Ok(())
}

#[test]
fn no_balanced_call_uses_up_its_deadline_while_one_of_two_members_is_well() {
    check(20, read_while_one_of_two_members_is_silent);
}

#[test]
#[cfg(feature = "soak")]
fn a_balancer_that_asks_no_silent_member_first_is_noticed() {
    let failure = find(300, |sim| {
        sim.breaks(Rule::SilentIsAskedFirst);
        read_while_one_of_two_members_is_silent(sim)
    });
    let failure = failure.expect("calls find out that the member is silent");
    println!("seed {}: {}", failure.seed, failure.why.lines().next().unwrap_or_default());
}

#[test]
fn at_most_one_call_that_may_not_run_twice_waits_for_a_silent_member() {
    check(20, |sim| {
        let (servers, group) = members(sim, 2)?;
        let stub = group.balancer().stub().within(Duration::from_secs(2));
        let mut number = 0;
        let mut write = || {
            number += 1;
            stub.write(number)
        };
        (0..50).try_for_each(|_| write())?;
        let silenced = Silenced::new(sim, &servers[0]);
        let mut failed = Vec::new();
        let until = sim::now() + Duration::from_secs(60);
        while sim::now() < until {
            failed.extend(write().err().map(|why| why.call_failed().map(|why| why.ran())));
            sim::sleep(Duration::from_millis(sim.below(100)));
        }
        assert!(failed.is_empty() || failed == [Some(Ran::Maybe)], "{failed:?}");
        silenced.end();
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn started_calls_go_to_the_other_member_too() {
    check(20, |sim| {
        let (servers, group) = members(sim, 2)?;
        let stub = group.balancer().stub().within(DEADLINE);
        (0..50).try_for_each(|_| stub.start().read(0).wait().map(drop))?;
        let _silenced = Silenced::new(sim, &servers[1]);
        for _ in 0..200 {
            let calls: Vec<_> = (0..3).map(|_| stub.start().read(1)).collect();
            for call in calls {
                call.wait().expect("the other member is well");
            }
            sim::sleep(Duration::from_millis(sim.below(300)));
        }
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_call_that_takes_more_than_half_of_its_time_is_not_given_up() {
    check(20, |sim| {
        let (_servers, group) = members(sim, 2)?;
        let stub = group.balancer().stub().within(DEADLINE);
        for _ in 0..5 {
            assert_eq!(stub.read(4_500), Ok(4_500));
        }
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn a_member_that_is_known_to_be_silent_costs_all_nothing_until_it_answers() {
    const SIXTEEN: usize = 16;
    check(10, |sim| {
        let (servers, group) = members(sim, SIXTEEN)?;
        let group: Group<MemberClient, Fixed> = group.fixed();
        let all = |within: Option<Duration>| {
            let begun = sim::now();
            let call = group.multi().read(5);
            let call = match within {
                Some(within) => call.within(within),
                None => call,
            };
            (call.all(), sim::now() - begun)
        };
        let (outcomes, usual) = all(None);
        assert_eq!(outcomes.results().count(), SIXTEEN);
        let silenced = Silenced::new(sim, &servers[7]);
        // The silence is found by a call that fails, or by one whose caller does not wait so long.
        let within = (sim.below(2) == 0).then_some(Duration::from_secs(2));
        all(within);
        sim::sleep(Duration::from_secs(2));
        for _ in 0..30 {
            let (outcomes, took) = all(within);
            assert_eq!(outcomes.results().count(), SIXTEEN - 1);
            let Some(Outcome::Failed(why)) = outcomes.get("Member/m07") else { panic!("{outcomes:?}") };
            assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No));
            assert!(why.to_string().contains("has been silent for"), "{why}");
            assert!(took <= 2 * usual, "{took:?}, with all members {usual:?}");
            sim::sleep(Duration::from_millis(sim.below(2_000)));
        }
        silenced.end();
        sim::sleep(Duration::from_secs(20));
        let (outcomes, _) = all(within);
        assert_eq!(outcomes.results().count(), SIXTEEN, "{outcomes:?}");
        Ok::<(), farcall::Error>(())
    });
}
