//! Tests of the crew: how many threads a host leaves to others, and which threads receive after deferred
//! work. They are not in `crew.rs` because loom's test includes that file.

use std::sync::Arc;

use super::crew::{Crew, Pace, Plan, Seat, Threads};
use crate::System;
use crate::env::{Env, Time};

#[test]
fn one_host_leaves_threads_to_the_calls_of_others() {
    let mut crew = Crew::new(4, Threads::new(128));
    crew.born();
    let [harm, honest] = [6, 1];
    let seat = || Seat::new(System.event());
    let begins = |crew: &mut Crew, seat: &Seat, host: u64, pace| {
        matches!(crew.plan(seat, host, pace, Time::default()), Plan::Execute(Some(_)))
    };
    let mut seats: Vec<Arc<Seat>> = (0..200).map(|_| seat()).collect();
    let many = seats.iter().take_while(|seat| begins(&mut crew, seat, harm, Pace::Blocking)).count();
    assert_eq!(many, 127 - 15, "an eighth is left");
    for pace in [Pace::Blocking, Pace::Any] {
        assert!(!crew.may_begin(harm, pace) && crew.may_begin(honest, pace));
        assert!(matches!(crew.plan(&seats[many], harm, pace, Time::default()), Plan::Queue));
    }
    assert!(crew.may_begin(harm, Pace::Quick));
    let others =
        seats[many..].iter().take_while(|seat| begins(&mut crew, seat, honest, Pace::Blocking)).count();
    assert_eq!(others, 1, "a 16th of that, for each host");
    // When enough have ended there is room again.
    crew.done(&seats[many]);
    assert!(crew.may_begin(honest, Pace::Blocking) && !crew.may_begin(harm, Pace::Blocking));
    seats.truncate(many);
    seats.iter().for_each(|seat| crew.done(seat));
    assert!(crew.may_begin(harm, Pace::Blocking));
}

#[test]
fn a_thread_receives_again_after_deferred_work_even_if_no_call_may_begin() {
    let mut crew = Crew::new(1, Threads::new(8));
    crew.born();
    let [executes, first, second] = [(); 3].map(|_| Seat::new(System.event()));
    assert!(matches!(crew.plan(&executes, 1, Pace::Any, Time::default()), Plan::Execute(Some(_))));
    assert!(crew.relieve_for_queue(Pace::Blocking).is_some());
    assert_eq!((crew.receiving(), crew.executing().0), (2, 1));
    // The first of two receivers needs no replacement. The watchdog looks after the last receiver.
    assert!(matches!(crew.plan_errands(&first), Plan::Execute(None)));
    assert!(matches!(crew.plan_errands(&second), Plan::Guarded(true)));
    assert_eq!((crew.receiving(), crew.executing().0), (0, 3));
    crew.done(&first);
    crew.done(&second);
    crew.done(&executes);
    assert_eq!((crew.receiving(), crew.executing().0), (3, 0));
}
