//! Counts what calls over UDP allocate, in all threads of both ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::builder;
use crate::counting;
use crate::ends::{Probe, ProbeClient, Refused, alone, run, start_servers, urls};
use crate::progress::Over;
use farcall::Error;

const CALLS: usize = 200;
const ROUNDS: usize = 31;
/// Rounds whose allocations do not count: tables and buffers grow to the size that they keep.
const WARM_ROUNDS: usize = 10;
const CALLERS: usize = 4;

#[test]
fn a_small_call_over_udp_allocates_its_own_values_and_nothing_else_at_either_end() {
    let _alone = alone();
    let (_server, url) = start_servers(1, false);
    run("caller that counts allocations", &url);
}

/// Runs in the process that calls.
pub fn count() {
    let runtime = builder().shared_memory(false).build().unwrap();
    let probe = runtime.import::<dyn Probe>(&urls()[0]).unwrap();
    let (bytes, within) = ([7; 1000], probe.within(Duration::from_secs(3600)));
    let take = |len: usize| assert_eq!(probe.take(&bytes[..len]), Ok(len as u32));
    let of = |what, values, call: &dyn Fn()| {
        let counts = count_rounds(&probe, &mut || (0..CALLS).for_each(|_| call()));
        check(what, values, counts);
    };
    of("null calls", 0, &|| probe.null().unwrap());
    of("arguments of 0 bytes", 0, &|| take(0));
    of("arguments of 32 bytes", 0, &|| take(32));
    of("arguments of 1,000 bytes", 0, &|| take(1000));
    of("results of 32 bytes", 0, &|| assert_eq!(probe.give_32(), Ok([32; 32])));
    of("results of 1,000 bytes", 0, &|| assert_eq!(probe.give_1000(), Ok([100; 1000])));
    of("results that each end allocates", 1, &|| {
        assert_eq!(probe.copy(&bytes).as_deref(), Ok(&bytes[..]));
    });
    of("exceptions", 0, &|| {
        assert_eq!(probe.refuse(3), Err(Error::Declared(Refused { code: 3 })));
    });
    of("calls of a blocking procedure", 0, &|| probe.block().unwrap());
    of("null calls with a deadline", 0, &|| within.null().unwrap());
    check("calls by several threads", 0, count_together(&probe));
    of("null calls by one thread, after others have called", 0, &|| probe.null().unwrap());
}

/// Counts while other threads call through the same socket, so that each receives for the others.
fn count_together(probe: &ProbeClient) -> Counts {
    let over = AtomicBool::new(false);
    let call = || assert_eq!(probe.take(&[7; 32]), Ok(32));
    let call_on = || {
        while !over.load(Ordering::SeqCst) {
            call();
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&over);
        (1..CALLERS).for_each(|_| drop(scope.spawn(call_on)));
        count_rounds(probe, &mut || (0..CALLS / CALLERS).for_each(|_| call()))
    })
}

/// The allocations of the client and of the server in each round.
type Counts = [[usize; 2]; ROUNDS];

fn count_rounds(probe: &ProbeClient, round: &mut dyn FnMut()) -> Counts {
    (0..WARM_ROUNDS).for_each(|_| round());
    [(); ROUNDS].map(|()| {
        let before = [counting::allocations(), probe.allocations().unwrap()];
        round();
        let after = [counting::allocations(), probe.allocations().unwrap()];
        [0, 1].map(|end| (after[end] - before[end]) as usize)
    })
}

/// Asserts that each end allocates `values` times for each call, and nothing else.
///
/// That must hold in most rounds. In the others a call may have been sent again, because the
/// machine paused, or the thread that watches the keys may have read them, if there are keys.
fn check(what: &str, values: usize, counts: Counts) {
    let expected = values * CALLS;
    for (end, name) in ["client", "server"].into_iter().enumerate() {
        let counts = counts.map(|count| count[end]);
        let exact = counts.iter().filter(|&&count| count == expected).count();
        let says =
            format!("{what}: {CALLS} allocate {expected} times at the {name} in {exact} of {ROUNDS} rounds");
        println!("{says}");
        assert!(exact > ROUNDS / 2, "{says}: {counts:?}");
    }
}
