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
    /// Whether a call fails because the registry does not say where the member is.
    is_unfound: AtomicBool,
    /// Whether a call that fails may have run.
    ran: AtomicBool,
}

impl Server {
    fn reply(&self, sink: Sink<'_>) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            let ran = if self.ran.load(Ordering::Relaxed) { Ran::Maybe } else { Ran::No };
            let is_unfound = self.is_unfound.load(Ordering::Relaxed);
            let kind = if is_unfound { Kind::Registry } else { Kind::Overloaded };
            return sink(Reply::Failed(CallFailed::new(kind, ran)));
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
        shared: None,
        carries: &[],
        hurries: false,
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
        Balancer::new(Arc::new(self.clone()), MAX_MEMBERS)
    }
}

fn calls(servers: &[Arc<Server>]) -> Vec<u32> {
    servers.iter().map(|server| server.calls.load(Ordering::Relaxed)).collect()
}

/// Returns how long a member is out yet, and how often it was taken out, if it was taken out.
fn out(choice: &Choice, now: Time) -> Option<(Duration, u32)> {
    choice.health.why_out(now).filter(|out| out.times > 0).map(|out| (out.left, out.times))
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
    for is_unfound in [false, true] {
        let (group, servers) = Group::of(4);
        servers[1].is_unfound.store(is_unfound, Ordering::Relaxed);
        servers[1].fails.store(true, Ordering::Relaxed);
        let balancer = group.balancer();
        let stub = balancer.stub();
        (0..200).for_each(|_| stub.call().unwrap());
        let state = &balancer.members()[1];
        assert!(state.failures > 0 && state.failures == state.calls && state.outstanding == 0, "{state:?}");
        assert!(state.calls < 20, "a member that refuses or is not found gets few calls: {state:?}");
    }
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

/// The call may have run at one member, and the other one has refused it.
#[test]
fn a_call_that_may_have_run_at_one_member_is_not_said_not_to_have_run() {
    static PROCEDURE: Procedure = Procedure { idempotent: true, ..crate::stub::BATCH };
    let (group, servers) = Group::of(2);
    servers.iter().for_each(|server| server.fails.store(true, Ordering::Relaxed));
    servers[0].ran.store(true, Ordering::Relaxed);
    let stub = group.balancer().round_robin();
    let told = |reply: Reply<'_>| {
        let why = decode_reply::<(), crate::Never>(reply).unwrap_err();
        assert_eq!(CallFailed::from(why).ran(), Ran::Maybe);
    };
    for calls_made in [2, 4, 6, 8] {
        with_call(|call| {
            let call = Call { procedure: &PROCEDURE, ..call };
            if calls_made < 6 {
                stub.channel().call(call, &mut |reply| told(reply));
            } else {
                stub.channel().start(call).wait(&mut |reply| told(reply));
            }
        });
        assert_eq!(calls(&servers).iter().sum::<u32>(), calls_made);
    }
}

/// A call that may have run at one member is cancelled before it is sent to the other one.
#[test]
fn a_cancelled_call_that_may_have_run_is_not_said_not_to_have_run() {
    static PROCEDURE: Procedure = Procedure { idempotent: true, ..crate::stub::BATCH };
    /// Says nothing until the call is cancelled.
    struct Unsent;
    impl Channel for Unsent {
        fn call(&self, _: Call<'_>, _: Sink<'_>) {}
        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(Unsent)
        }
    }
    impl PendingCall for Unsent {
        fn wait(self: Box<Self>, sink: Sink<'_>) {
            sink(Reply::Failed(CallFailed::new(Kind::Cancelled, Ran::No)));
        }
        fn poll(&mut self, _: &mut Context<'_>, _: Sink<'_>) -> Poll<()> {
            Poll::Pending
        }
        fn cancel(&mut self) {}
        fn detach(self: Box<Self>) {}
    }
    let fails = Arc::<Server>::default();
    fails.fails.store(true, Ordering::Relaxed);
    fails.ran.store(true, Ordering::Relaxed);
    let members: [(&str, Arc<dyn Channel>); 2] =
        [("a", Arc::new(To(fails.clone()))), ("b", Arc::new(Unsent))];
    let members = members.map(|(name, channel)| Member::new(name, Binding::new(channel)));
    let stub = Balancer::<Stub>::new(Arc::new(Members::new(members.into())), MAX_MEMBERS).round_robin();
    for number in 0..2 {
        let mut call = with_call(|call| stub.channel().start(Call { procedure: &PROCEDURE, ..call }));
        let polled = call.poll(&mut Context::from_waker(Waker::noop()), &mut |_| {});
        assert!(polled.is_pending());
        call.cancel();
        let was_at_both = fails.calls.load(Ordering::Relaxed) > 0;
        call.wait(&mut |reply| {
            let why = CallFailed::from(decode_reply::<(), crate::Never>(reply).unwrap_err());
            assert_eq!(why.ran(), if was_at_both { Ran::Maybe } else { Ran::No }, "call {number}");
        });
        if was_at_both {
            return;
        }
    }
    panic!("no call went to the member that fails");
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
        let choices = balancer.shared.list.get();
        let policy = Policy::Sticky(hash(&key.to_be_bytes()));
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
    let out = balancer.members().iter().filter_map(|member| member.out).filter(|out| out.times > 0).count();
    assert!(out <= 3, "{out} of 6 members are out");
    servers.iter().for_each(|server| server.fails.store(false, Ordering::Relaxed));
    stub.call().unwrap();
}

#[test]
fn a_member_that_fails_more_often_than_the_others_is_taken_out() {
    let (group, _) = Group::of(8);
    let balancer = group.balancer();
    let choices = balancer.shared.list.get();
    let mut now = balancer.shared.env.now();
    let refused = CallFailed::new(Kind::Overloaded, Ran::No);
    for number in 0..200 {
        for (which, choice) in choices.iter().enumerate() {
            let failure = (which == 3 && number % 4 == 0).then_some(&refused);
            choice.health.begin(now);
            choice.health.leave();
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
    let (choices, now) = (balancer.shared.list.get(), balancer.shared.env.now());
    let lost = CallFailed::new(Kind::Unreachable, Ran::Maybe);
    (0..100).for_each(|_| choices[0].health.begin(now));
    for _ in 0..100 {
        choices[0].health.leave();
        choices[0].health.end(now, now, Some(&lost));
        balancer.shared.ejections.note_failure(&choices, 0, now);
    }
    assert_eq!(out(&choices[0], now), Some((Duration::from_secs(5), 1)));
    let later = now + Duration::from_secs(5);
    choices[0].health.begin(later);
    choices[0].health.leave();
    choices[0].health.end(later, later, Some(&lost));
    balancer.shared.ejections.note_failure(&choices, 0, later);
    assert_eq!(out(&choices[0], later), Some((Duration::from_secs(10), 2)));
}

#[test]
fn threads_that_fail_together_take_out_half_of_the_members() {
    let failure = CallFailed::new(Kind::Unreachable, Ran::No);
    for _ in 0..2_000 {
        let (group, _) = Group::of(2);
        let balancer = group.balancer();
        let (choices, now) = (balancer.shared.list.get(), balancer.shared.env.now());
        let start = std::sync::Barrier::new(2);
        let fail = |which: usize| {
            start.wait();
            for _ in 0..10 {
                choices[which].health.begin(now);
                choices[which].health.leave();
                choices[which].health.end(now, now, Some(&failure));
                balancer.shared.ejections.note_failure(&choices, which, now);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| fail(0));
            fail(1);
        });
        let out = choices.iter().filter(|choice| out(choice, now).is_some()).count();
        assert!(out <= 1, "{out} of 2 members are out");
    }
}

#[test]
fn members_of_one_name_are_out_together() {
    let failure = CallFailed::new(Kind::Unreachable, Ran::No);
    let balancer = Group::of(2).0.balancer();
    let now = balancer.shared.env.now();
    let [one, other] = &balancer.shared.list.get()[..] else { panic!("two members") };
    for (choices, is_out) in
        [(vec![one.clone(), one.clone(), other.clone()], false), (vec![one.clone(), other.clone()], true)]
    {
        for _ in 0..10 {
            one.health.begin(now);
            one.health.leave();
            one.health.end(now, now, Some(&failure));
            balancer.shared.ejections.note_failure(&choices, 0, now);
        }
        assert_eq!(out(one, now).is_some(), is_out);
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
        let balancer = Balancer::<Stub>::new(Arc::new(Fixed(Members::new(members))), MAX_MEMBERS);
        balancer.stub().channel().carried_by()
    };
    assert_eq!(carried_by(vec![local(), remote()]), CarriedBy::Blocking);
    assert_eq!(carried_by(vec![local(), local()]), CarriedBy::Caller);
    assert_eq!(carried_by(vec![]), CarriedBy::Blocking);
}

#[test]
fn a_member_that_has_left_and_come_back_is_called_by_its_new_channel() {
    let (group, servers) = Group::of(1);
    let balancer = group.balancer();
    balancer.stub().call().unwrap();
    let back = group.add("m00");
    balancer.shared.renew(&group.members(), balancer.shared.env.now(), true);
    balancer.stub().call().unwrap();
    assert_eq!(calls(&[servers[0].clone(), back]), [1, 1]);
}

#[test]
fn a_started_call_that_did_not_run_goes_to_another_member() {
    let (group, servers) = Group::of(3);
    servers[1].fails.store(true, Ordering::Relaxed);
    let balancer = group.balancer();
    let stub = balancer.stub();
    let start = || with_call(|call| stub.channel().start(call));
    let ended = |reply: Reply<'_>| decode_reply::<(), crate::Never>(reply).unwrap();
    for _ in 0..100 {
        start().wait(&mut |reply| ended(reply));
        let mut context = Context::from_waker(Waker::noop());
        assert!(start().poll(&mut context, &mut |reply| ended(reply)).is_ready());
    }
    let state = &balancer.members()[1];
    assert!(state.failures > 0 && state.failures == state.calls && state.outstanding == 0, "{state}");
    servers.iter().for_each(|server| server.fails.store(true, Ordering::Relaxed));
    servers.iter().for_each(|server| server.ran.store(true, Ordering::Relaxed));
    let made = calls(&servers).iter().sum::<u32>();
    start().wait(&mut |reply| drop(decode_reply::<(), crate::Never>(reply).unwrap_err()));
    assert_eq!(calls(&servers).iter().sum::<u32>(), made + 1, "a call that may have run is not made again");
}

#[test]
fn a_cancelled_call_stays_with_its_member_and_one_with_long_arguments_goes_to_another() {
    let (group, servers) = Group::of(3);
    servers.iter().for_each(|server| server.fails.store(true, Ordering::Relaxed));
    let stub = group.balancer().stub();
    let mut cancelled = with_call(|call| stub.channel().start(call));
    cancelled.cancel();
    let mut failed = |reply: Reply<'_>| drop(decode_reply::<(), crate::Never>(reply).unwrap_err());
    cancelled.wait(&mut failed);
    assert_eq!(calls(&servers).iter().sum::<u32>(), 1);
    let long = |e: &mut Encoder<'_>| e.opaque(&vec![0; 1 << 20]);
    let long = with_call(|call| stub.channel().start(Call { encode: &long, ..call }));
    long.wait(&mut failed);
    assert!(calls(&servers).iter().sum::<u32>() > 2);
}

#[test]
fn members_on_this_machine_get_the_calls_while_one_of_them_is_in() {
    let servers: Vec<_> = (0..5).map(|_| Arc::<Server>::default()).collect();
    let member = |(which, server): (usize, &Arc<Server>)| {
        let binding = Binding::new(Arc::new(To(server.clone())));
        Member::new(format!("m{which}"), binding).on_this_machine(which < 2)
    };
    let members = Members::new(servers.iter().enumerate().map(member).collect());
    let balancer = Balancer::<Stub>::new(Arc::new(members), MAX_MEMBERS);
    let stub = balancer.local_first();
    (0..200).for_each(|_| stub.call().unwrap());
    let made = calls(&servers);
    assert!(made[0] > 0 && made[1] > 0 && made[2..] == [0, 0, 0], "{made:?}");
    servers[0].fails.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| stub.call().unwrap());
    assert_eq!(calls(&servers)[2..], [0, 0, 0]);
    servers[1].fails.store(true, Ordering::Relaxed);
    (0..200).for_each(|_| stub.call().unwrap());
    assert!(calls(&servers)[2..].iter().sum::<u32>() >= 190, "{:?}", calls(&servers));
}

#[test]
fn the_best_members_are_called_at_once_and_the_others_only_if_these_are_too_few() {
    let (group, servers) = Group::of(5);
    servers[2].fails.store(true, Ordering::Relaxed);
    let balancer = group.balancer();
    let stub = balancer.round_robin();
    (0..100).for_each(|_| stub.call().unwrap());
    let best = |count: usize| {
        let (shared, now) = (&balancer.shared, balancer.shared.env.now());
        let choices = shared.list.get();
        let best = shared.picker.best(&choices, count, now);
        best.into_iter().map(|which| Watched::member(shared, &choices, which)).collect::<Vec<_>>()
    };
    assert!(best(4).iter().all(|member| member.name() != "m02"));
    assert_eq!(best(9).last().map(|member| member.name().to_owned()).as_deref(), Some("m02"));
    let before = balancer.members();
    for member in best(4) {
        let started = with_call(|call| member.binding().channel().start(call));
        started.wait(&mut |reply| decode_reply::<(), crate::Never>(reply).unwrap());
        with_call(|call| member.binding().channel().call(call, &mut |reply| drop(reply)));
    }
    let more: Vec<u64> =
        balancer.members().iter().zip(&before).map(|(now, before)| now.calls - before.calls).collect();
    assert_eq!(more, [2, 2, 0, 2, 2]);
}

#[test]
fn a_balancer_uses_at_most_so_many_members() {
    let (group, _) = Group::of(300);
    assert_eq!(group.balancer().members().len(), 100);
    let few = Balancer::<Stub>::new(Arc::new(group.clone()), 3);
    let stub = few.stub();
    (0..50).for_each(|_| stub.call().unwrap());
    assert_eq!(few.members().len(), 3);
    assert_eq!(few.members().iter().map(|member| member.calls).sum::<u64>(), 50);
    let shares = few.members().iter().map(|member| member.share).sum::<f64>();
    assert!((0.99..1.01).contains(&shares), "{shares}");
}

#[test]
fn members_that_change_often_still_get_calls() {
    let (group, _) = Group::of(2);
    let balancer = group.balancer();
    let stub = balancer.stub();
    for number in 0..40 {
        lock(&group.0).clear();
        let present = [group.add(&format!("a{number}")), group.add(&format!("b{number}"))];
        balancer.shared.renew(&group.members(), balancer.shared.env.now(), true);
        (0..20).for_each(|_| stub.call().unwrap());
        assert_eq!(calls(&present).iter().sum::<u32>(), 20);
    }
}

#[test]
fn a_deadline_holds_for_all_attempts_together() {
    /// Fails after the time that the call may take.
    struct Late(Mutex<Vec<Duration>>);
    impl Channel for Late {
        fn call(&self, call: Call<'_>, sink: Sink<'_>) {
            let within = call.within.unwrap();
            lock(&self.0).push(within);
            let until = std::time::Instant::now() + within / 2;
            while std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            sink(Reply::Failed(CallFailed::new(Kind::Unreachable, Ran::No)));
        }
        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(CallFailed::new(Kind::Local, Ran::No))
        }
    }
    let late = Arc::new(Late(Mutex::default()));
    let member = |which: usize| Member::new(format!("m{which}"), Binding::new(late.clone()));
    let stub =
        Balancer::<Stub>::new(Arc::new(Members::new((0..3).map(member).collect())), MAX_MEMBERS).stub();
    with_call(|call| {
        let call = Call { within: Some(Duration::from_millis(20)), ..call };
        stub.channel().call(call, &mut |reply| drop(decode_reply::<(), crate::Never>(reply).unwrap_err()));
    });
    let times = lock(&late.0);
    assert!(times.len() > 1 && times.is_sorted_by(|one, next| next <= &(*one / 2)), "{times:?}");
}

#[test]
fn all_members_must_lack_a_procedure() {
    struct Lacks(bool);
    impl Channel for Lacks {
        fn call(&self, _: Call<'_>, _: Sink<'_>) {}
        fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
            Box::new(CallFailed::new(Kind::Local, Ran::No))
        }
        fn lacks(&self, _: u32) -> bool {
            self.0
        }
    }
    let lacks = |all: &[bool]| {
        let member = |lacks: &bool| Member::new("m", Binding::new(Arc::new(Lacks(*lacks))));
        let members = Members::new(all.iter().map(member).collect());
        Balancer::<Stub>::new(Arc::new(members), MAX_MEMBERS).stub().channel().lacks(7)
    };
    assert!(lacks(&[true, true]) && !lacks(&[true, false]) && !lacks(&[]));
}
