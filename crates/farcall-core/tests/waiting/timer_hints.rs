//! Neither the leader nor the next one sleeps past a timer that another thread sets.

use std::sync::Arc;

use farcall_base::Time;
use loom::thread;

use crate::lead::{Lead, Parker};
use crate::modelled::{Event, check};
use crate::timers::{NEVER, Timers};

/// A socket where no datagram arrives, at a time that stands still.
struct Net {
    timers: Timers,
    /// Wakes the leader.
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

    /// `Endpoint::set_timer`.
    fn set_timer(&self, timer: u64) {
        if self.timers.set(at(timer), || NOW) {
            self.socket.set();
        }
    }

    /// `Endpoint::lead_until`, until it sleeps no longer than that: a longer sleep is over when somebody ends
    /// it.
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

/// `Endpoint::exchange`: a lone call naps, and goes on as any other if it was woken.
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

/// A caller, which leads, or follows and leads afterwards, until it sleeps no longer than its timer says.
fn attend(net: &Net, lead: &Lead<Event>, timer: u64) {
    let seat = Arc::new(Event::default());
    let leads = lead.join(&seat) || {
        net.set_timer(timer);
        seat.wait();
        lead.accept(&seat)
    };
    assert!(leads, "nobody is woken but to lead");
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
        assert!(lead.try_lead(), "nobody leads when all are gone");
        assert_eq!(
            net.timers.sleep(&mut net.timers.begin(NEVER), NEVER, NOW),
            Some(at(5)),
            "both were told of"
        );
    });
}
