//! Tests balanced stubs over members that do as a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::stub::{Call, CarriedBy, Channel, Members, PendingCall, Procedure, Reply, Sink, decode_reply};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Ran};

/// A member that counts its calls, and fails them while a test wants it to.
#[derive(Default)]
struct Server {
    calls: AtomicU32,
    fails: AtomicBool,
    /// Whether a call that fails may have run.
    ran: AtomicBool,
}

impl Server {
    fn reply(&self, sink: Sink<'_>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            let ran = if self.ran.load(Ordering::Relaxed) { Ran::Maybe } else { Ran::No };
            return sink(Reply::Failed(CallFailed::new(Kind::Overloaded, ran)));
        }
        sink(Reply::Result(Decoder::new(&[])));
    }
}

struct To(Arc<Server>);

impl Channel for To {
    fn call(&self, _: Call<'_>, sink: Sink<'_>) {
        self.0.reply(sink);
    }

    fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
        Box::new(To(self.0.clone()))
    }
}

impl PendingCall for To {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        self.0.reply(sink);
    }

    fn poll(&mut self, _: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        self.0.reply(sink);
        Poll::Ready(())
    }

    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}

#[derive(Clone)]
struct Stub(Binding);

impl From<Binding> for Stub {
    fn from(binding: Binding) -> Stub {
        Stub(binding)
    }
}

impl Client for Stub {
    type Multi<M> = ();
    type Prepare = ();

    fn binding(&self) -> &Binding {
        &self.0
    }

    fn multi<M>(_: Members) {}
}

impl Stub {
    fn channel(&self) -> &dyn Channel {
        &**self.0.channel()
    }

    fn call(&self) -> crate::Result<()> {
        let mut ended = None;
        with_call(|call| self.channel().call(call, &mut |reply| ended = Some(decode_reply(reply))));
        ended.expect("a call gets one reply")
    }
}

fn with_call<R>(f: impl FnOnce(Call<'_>) -> R) -> R {
    static PROCEDURE: Procedure = Procedure { number: 1, name: "one", ..crate::stub::BATCH };
    let encode = |_: &mut Encoder<'_>| Ok(());
    f(Call {
        procedure: &PROCEDURE,
        within: None,
        encode: &encode,
        handlers: &crate::stub::NO_HANDLERS,
        sending: None,
        carries: &[],
    })
}

/// Members that come and go.
#[derive(Clone, Default)]
struct Group(Arc<Mutex<BTreeMap<String, Arc<Server>>>>);

impl Roster for Group {
    fn members(&self) -> Members {
        let member = |(name, server): (&String, &Arc<Server>)| {
            Member::new(name.as_str(), Binding::new(Arc::new(To(server.clone()))))
        };
        Members::new(lock(&self.0).iter().map(member).collect())
    }
}

impl Group {
    fn of(count: usize) -> (Group, Vec<Arc<Server>>) {
        let group = Group::default();
        let servers: Vec<_> = (0..count).map(|which| group.add(&format!("m{which:02}"))).collect();
        (group, servers)
    }

    fn add(&self, name: &str) -> Arc<Server> {
        let server = Arc::<Server>::default();
        lock(&self.0).insert(name.to_owned(), server.clone());
        server
    }

    fn balancer(&self) -> Balancer<Stub> {
        Balancer::new(Arc::new(self.clone()))
    }
}

fn calls(servers: &[Arc<Server>]) -> Vec<u32> {
    servers.iter().map(|server| server.calls.load(Ordering::Relaxed)).collect()
}

#[test]
fn members_get_calls_in_turn() {
    let (group, servers) = Group::of(4);
    let stub = group.balancer().round_robin();
    (0..400).for_each(|_| stub.call().unwrap());
    assert_eq!(calls(&servers), [100; 4]);
}

#[test]
fn a_call_that_did_not_run_goes_to_another_member() {
    let (group, servers) = Group::of(4);
    servers[1].fails.store(true, Ordering::Relaxed);
    let balancer = group.balancer();
    let stub = balancer.stub();
    (0..200).for_each(|_| stub.call().unwrap());
    let state = &balancer.members()[1];
    assert!(state.failures > 0 && state.failures == state.calls && state.outstanding == 0, "{state:?}");
    assert!(state.calls < 20, "a member that refuses gets few calls: {state:?}");
}

#[test]
fn a_call_that_may_have_run_is_made_once() {
    let (group, servers) = Group::of(2);
    for server in &servers {
        server.fails.store(true, Ordering::Relaxed);
        server.ran.store(true, Ordering::Relaxed);
    }
    group.balancer().stub().call().unwrap_err();
    assert_eq!(calls(&servers).iter().sum::<u32>(), 1);
}

#[test]
fn when_all_members_refuse_few_calls_are_made_again() {
    let (group, servers) = Group::of(4);
    servers.iter().for_each(|server| server.fails.store(true, Ordering::Relaxed));
    let stub = group.balancer().stub();
    (0..1000).for_each(|_| drop(stub.call().unwrap_err()));
    let made = calls(&servers).iter().sum::<u32>();
    assert!((1000..=1120).contains(&made), "{made} attempts of 1000 calls");
}

#[test]
fn a_key_has_one_member_and_few_keys_move() {
    let (group, _) = Group::of(10);
    let balancer = group.balancer();
    let member_of = |key: u32| {
        let choices = balancer.shared.known();
        let policy = Policy::Sticky(picker::hash(&key.to_be_bytes()));
        let which = balancer.shared.picker.pick(&choices, policy, balancer.shared.env.now(), &[]).unwrap();
        choices[which].member.name().to_owned()
    };
    let before: Vec<String> = (0..1000).map(member_of).collect();
    assert_eq!(before.iter().collect::<BTreeSet<_>>().len(), 10);
    let stub = balancer.sticky(7_u32.to_be_bytes());
    (0..50).for_each(|_| stub.call().unwrap());
    let used: Vec<_> = balancer.members().into_iter().filter(|member| member.calls > 0).collect();
    assert_eq!(used.iter().map(|member| &*member.name).collect::<Vec<_>>(), [before[7].as_str()]);

    group.add("m10");
    balancer.shared.renew(&group.members(), balancer.shared.env.now(), true);
    let after: Vec<String> = (0..1000).map(member_of).collect();
    let moved: Vec<_> = before.iter().zip(&after).filter(|(before, after)| before != after).collect();
    assert!(moved.iter().all(|(_, after)| *after == "m10"));
    assert!((40..200).contains(&moved.len()), "{} keys of 1000 moved", moved.len());
}

#[test]
fn members_that_come_and_go_are_noticed() {
    let (group, _) = Group::of(1);
    let balancer = group.balancer();
    let stub = balancer.stub();
    let joined = group.add("new");
    while joined.calls.load(Ordering::Relaxed) == 0 {
        stub.call().unwrap();
    }
    lock(&group.0).clear();
    while stub.call().is_ok() {}
    let why = CallFailed::from(stub.call().unwrap_err());
    assert_eq!((why.kind(), why.ran()), (Kind::NoSuchName, Ran::No));
}

#[test]
fn started_calls_are_counted_until_they_end_or_are_dropped() {
    let (group, _) = Group::of(3);
    let balancer = group.balancer();
    let stub = balancer.stub();
    let start = || with_call(|call| stub.channel().start(call));
    let outstanding = || balancer.members().iter().map(|member| member.outstanding).sum::<u32>();
    let (first, second, mut third, fourth) = (start(), start(), start(), start());
    assert_eq!(outstanding(), 4);
    first.wait(&mut |reply| decode_reply::<(), crate::Never>(reply).unwrap());
    drop(second);
    let mut context = Context::from_waker(Waker::noop());
    assert!(third.poll(&mut context, &mut |reply| drop(decode_reply::<(), crate::Never>(reply))).is_ready());
    fourth.detach();
    assert_eq!(outstanding(), 0);
}

#[test]
fn at_most_half_of_the_members_are_out() {
    let (group, servers) = Group::of(6);
    servers.iter().for_each(|server| server.fails.store(true, Ordering::Relaxed));
    let balancer = group.balancer();
    let stub = balancer.round_robin();
    (0..1000).for_each(|_| drop(stub.call()));
    let out = balancer.members().iter().filter(|member| member.out.is_some()).count();
    assert!(out <= 3, "{out} of 6 members are out");
    servers.iter().for_each(|server| server.fails.store(false, Ordering::Relaxed));
    stub.call().unwrap();
}

#[test]
fn a_member_that_fails_more_often_than_the_others_is_taken_out() {
    let (group, _) = Group::of(8);
    let balancer = group.balancer();
    let choices = balancer.shared.known();
    let mut now = balancer.shared.env.now();
    let refused = CallFailed::new(Kind::Overloaded, Ran::No);
    for number in 0..200 {
        for (which, choice) in choices.iter().enumerate() {
            let failure = (which == 3 && number % 4 == 0).then_some(&refused);
            choice.health.begin(now);
            choice.health.end(now, now, failure);
        }
    }
    now = now + Duration::from_secs(11);
    balancer.shared.ejections.look(&choices, now);
    let standings: Vec<bool> =
        choices.iter().map(|choice| choice.health.standing(now) == health::Standing::Out).collect();
    assert_eq!(standings, [false, false, false, true, false, false, false, false]);
}

#[test]
fn calls_that_fail_together_take_a_member_out_once() {
    let (group, _) = Group::of(2);
    let balancer = group.balancer();
    let (choices, now) = (balancer.shared.known(), balancer.shared.env.now());
    let lost = CallFailed::new(Kind::Unreachable, Ran::Maybe);
    (0..100).for_each(|_| choices[0].health.begin(now));
    for _ in 0..100 {
        choices[0].health.end(now, now, Some(&lost));
        balancer.shared.ejections.note_failure(&choices, 0, now);
    }
    let state = choices[0].health.state("m00".into(), now);
    assert_eq!(state.out, Some((Duration::from_secs(5), 1)));
    let later = now + Duration::from_secs(5);
    choices[0].health.begin(later);
    choices[0].health.end(later, later, Some(&lost));
    balancer.shared.ejections.note_failure(&choices, 0, later);
    assert_eq!(choices[0].health.state("m00".into(), later).out, Some((Duration::from_secs(10), 2)));
}

#[test]
fn threads_that_fail_together_take_out_half_of_the_members() {
    let failure = CallFailed::new(Kind::Unreachable, Ran::No);
    for _ in 0..2_000 {
        let (group, _) = Group::of(2);
        let balancer = group.balancer();
        let (choices, now) = (balancer.shared.known(), balancer.shared.env.now());
        let start = std::sync::Barrier::new(2);
        let fail = |which: usize| {
            start.wait();
            for _ in 0..10 {
                choices[which].health.begin(now);
                choices[which].health.end(now, now, Some(&failure));
                balancer.shared.ejections.note_failure(&choices, which, now);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| fail(0));
            fail(1);
        });
        let out = choices.iter().filter(|choice| choice.health.state("m".into(), now).out.is_some()).count();
        assert!(out <= 1, "{out} of 2 members are out");
    }
}

#[test]
fn members_of_one_name_are_out_together() {
    let failure = CallFailed::new(Kind::Unreachable, Ran::No);
    let balancer = Group::of(2).0.balancer();
    let now = balancer.shared.env.now();
    let [one, other] = &balancer.shared.known()[..] else { panic!("two members") };
    for (choices, out) in
        [(vec![one.clone(), one.clone(), other.clone()], false), (vec![one.clone(), other.clone()], true)]
    {
        for _ in 0..10 {
            one.health.begin(now);
            one.health.end(now, now, Some(&failure));
            balancer.shared.ejections.note_failure(&choices, 0, now);
        }
        assert_eq!(one.health.state("m".into(), now).out.is_some(), out);
    }
}

#[test]
fn a_failure_of_the_only_member_has_the_next_call_look_for_others() {
    let (group, servers) = Group::of(1);
    let balancer = group.balancer();
    let stub = balancer.stub();
    (0..3).for_each(|_| stub.call().unwrap());
    servers[0].fails.store(true, Ordering::Relaxed);
    lock(&group.0).clear();
    let joined = group.add("new");
    balancer.shared.due.store(0, Relaxed);
    stub.call().unwrap_err();
    stub.call().unwrap();
    assert_eq!(joined.calls.load(Ordering::Relaxed), 1);
}

#[test]
fn one_way_calls_leave_in_batches_unless_all_members_are_local() {
    struct Local;
    impl Channel for Local {
        fn call(&self, _: Call<'_>, _: Sink<'_>) {}
        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(CallFailed::new(Kind::Local, Ran::No))
        }
        fn carried_by(&self) -> CarriedBy {
            CarriedBy::Caller
        }
    }
    let local = || Member::new("local", Binding::new(Arc::new(Local)));
    let remote = || Member::new("remote", Binding::new(Arc::new(To(Arc::default()))));
    struct Fixed(Members);
    impl Roster for Fixed {
        fn members(&self) -> Members {
            self.0.clone()
        }
    }
    let carried_by = |members: Vec<Member>| {
        let balancer = Balancer::<Stub>::new(Arc::new(Fixed(Members::new(members))));
        balancer.stub().channel().carried_by()
    };
    assert_eq!(carried_by(vec![local(), remote()]), CarriedBy::Blocking);
    assert_eq!(carried_by(vec![local(), local()]), CarriedBy::Caller);
    assert_eq!(carried_by(vec![]), CarriedBy::Blocking);
}
