//! Tests that neither the leader nor the next leader sleeps past a timer that another thread sets.

use std::sync::Arc;

use farcall_base::Time;
use loom::thread;

use crate::lead::{Lead, Parker};
use crate::modelled::{Event, check};
use crate::timers::{NEVER, Timers};

/// A socket at which no datagram arrives, while time stands still.
struct Net {
    timers: Timers,
    /// Ends the leader's sleep in the socket.
    socket: Event,
}

const NOW: Time = at(0);

const fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

impl Net {
    fn new() -> Arc<Net> {
        Arc::new(Net { timers: Timers::default(), socket: Event::default() })
    }

    /// Sets a timer, as `Endpoint::set_timer` does.
    fn set_timer(&self, timer: u64) {
        if self.timers.set(at(timer), || NOW) {
            self.socket.set();
        }
    }

    /// Leads as `Endpoint::lead_until` does, until the leader would sleep no longer than until `timer`. A
    /// longer sleep lasts until another thread ends it.
    fn lead_until(&self, earliest: &mut Time, timer: u64) {
        while self.timers.sleep(earliest, NEVER, NOW).expect("no timer is due") > at(timer) {
            self.socket.wait();
            self.timers.awake();
        }
        self.timers.awake();
    }
}

#[test]
fn a_leader_does_not_oversleep_a_timer_that_is_set() {
    check(3, || {
        let net = Net::new();
        let other = net.clone();
        let caller = thread::spawn(move || other.set_timer(5));
        net.lead_until(&mut net.timers.begin(at(10)), 5);
        caller.join().unwrap();
    });
}

#[test]
fn a_leader_does_not_oversleep_the_earlier_of_two_timers() {
    check(2, || {
        let net = Net::new();
        let callers = [7, 5].map(|timer| {
            let net = net.clone();
            thread::spawn(move || net.set_timer(timer))
        });
        net.lead_until(&mut net.timers.begin(NEVER), 5);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

/// The leader of a lone call first naps, as in `Endpoint::exchange`. If it is woken, it goes on like any
/// other leader.
#[test]
fn a_leader_that_naps_does_not_oversleep_a_timer_that_is_set() {
    check(3, || {
        let net = Net::new();
        let other = net.clone();
        let caller = thread::spawn(move || other.set_timer(5));
        if !net.timers.any() {
            if net.timers.nap(100) {
                net.socket.wait();
            }
            net.timers.awake();
        }
        net.lead_until(&mut net.timers.begin(NEVER), 5);
        caller.join().unwrap();
    });
}

impl Parker for Event {
    fn wake(&self) {
        self.set();
    }
}

/// Acts as a caller: leads, at once or after it has followed, until it would sleep no longer than until
/// `timer`.
fn attend(net: &Net, lead: &Lead<Event>, timer: u64) {
    let parker = Arc::new(Event::default());
    let leads = lead.join(&parker) || {
        net.set_timer(timer);
        parker.wait();
        lead.accept(&parker)
    };
    assert!(leads, "a follower is woken only to lead");
    let mut earliest = net.timers.begin(at(timer));
    net.lead_until(&mut earliest, timer);
    net.timers.keep(earliest);
    lead.pass();
}

#[test]
fn a_new_leader_knows_of_the_timers_that_the_former_one_knew() {
    check(3, || {
        let shared = Arc::new((Net::new(), Lead::default()));
        let other = shared.clone();
        let thread = thread::spawn(move || attend(&other.0, &other.1, 5));
        attend(&shared.0, &shared.1, 7);
        thread.join().unwrap();
        let (net, lead) = &*shared;
        assert!(lead.try_lead(), "no thread leads after all have stopped waiting");
        assert_eq!(
            net.timers.sleep(&mut net.timers.begin(NEVER), NEVER, NOW),
            Some(at(5)),
            "the leader knows the earlier of the two timers"
        );
    });
}
