//! Tests one-way calls in a bad network, whose server crashes and comes back.
//!
//! In every run the following must hold. No call is executed twice. The calls of one stub are executed in the
//! order in which they were made, and before later calls of that stub. If `flush` reports no failure, all
//! calls were executed. Some flushes succeed in every run, so that their checks are made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall_sim::{Sim, check, find, replay, sim};

#[farcall::interface]
trait Log {
    /// Adds a number of a client.
    #[oneway]
    fn note(&self, client: u64, number: u64) -> farcall::Result<()>;
    /// Returns how many numbers of a client were noted.
    fn noted(&self, client: u64) -> farcall::Result<u64>;
}

/// What was noted, by any server that had the name: a disk that survives crashes.
type Noted = Arc<Mutex<Vec<(u64, u64)>>>;

struct Server(Noted);

impl Log for Server {
    fn note(&self, client: u64, number: u64) -> farcall::Result<()> {
        self.0.lock().unwrap().push((client, number));
        if sim::below(20) == 0 {
            sim::sleep(Duration::from_micros(sim::below(5_000)));
        }
        Ok(())
    }

    fn noted(&self, client: u64) -> farcall::Result<u64> {
        Ok(self.0.lock().unwrap().iter().filter(|(of, _)| *of == client).count() as u64)
    }
}

const CLIENTS: u64 = 3;
const ROUNDS: u64 = 10;

/// The calls of one round.
struct Round {
    client: u64,
    numbers: std::ops::Range<u64>,
    /// `flush` reported no failure.
    flushed: bool,
    /// The client compared how many numbers were noted before the calls and after the flush.
    compared: bool,
}

/// Makes rounds of calls. With `hasty` the client makes the mistake of making a round again whose calls may
/// have run.
fn client(client: u64, hasty: bool, rounds: &Mutex<Vec<Round>>) {
    let log = loop {
        match farcall::import::<dyn Log>("Log") {
            Ok(log) => break log,
            Err(_) => sim::sleep(Duration::from_millis(500)),
        }
    };
    let mut next = 0;
    for _ in 0..ROUNDS {
        let numbers = next..next + 1 + sim::below(30);
        next = numbers.end;
        let note = || {
            for number in numbers.clone() {
                log.note(client, number).expect("a short call is accepted");
                if sim::below(10) == 0 {
                    sim::sleep(Duration::from_micros(sim::below(3_000)));
                }
            }
            log.binding().flush().is_ok()
        };
        let before = log.within(Duration::from_secs(30)).noted(client);
        let mut flushed = note();
        while hasty && !flushed {
            flushed = note();
        }
        let mut compared = false;
        if let (true, Ok(before)) = (flushed, before)
            && let Ok(noted) = log.within(Duration::from_secs(30)).noted(client)
        {
            assert!(noted >= before + (numbers.end - numbers.start), "a later call was executed earlier");
            compared = true;
        }
        rounds.lock().unwrap().push(Round { client, numbers, flushed, compared });
    }
}

fn run(sim: &Sim, hasty: bool) {
    let (noted, rounds) = (Noted::default(), Arc::new(Mutex::new(Vec::new())));
    sim.random_faults();
    let server = {
        let noted = noted.clone();
        sim.server("log", move || farcall::export::<dyn Log>("Log", Arc::new(Server(noted.clone())))?.wait())
    };
    for number in 0..CLIENTS {
        let rounds = rounds.clone();
        sim.process(&format!("client {number}"), move || client(number, hasty, &rounds));
    }
    for _ in 0..sim.below(5) {
        sim.sleep(Duration::from_millis(sim.below(300)));
        if sim.below(2) == 0 {
            server.crash();
            sim.sleep(Duration::from_millis(sim.below(3_000)));
            server.restart();
        } else {
            server.pause();
            sim.sleep(Duration::from_millis(sim.below(15_000)));
            server.resume();
        }
    }
    sim.run();
    audit(&noted.lock().unwrap(), &rounds.lock().unwrap());
}

/// Checks at the end of a run what must hold.
fn audit(noted: &[(u64, u64)], rounds: &[Round]) {
    assert_eq!(rounds.len() as u64, CLIENTS * ROUNDS);
    for client in 0..CLIENTS {
        let its: Vec<u64> = noted.iter().filter(|(of, _)| *of == client).map(|(_, number)| *number).collect();
        for pair in its.windows(2) {
            assert!(pair[0] < pair[1], "{} was executed twice, or behind {}", pair[1], pair[0]);
        }
    }
    for Round { client, numbers, .. } in rounds.iter().filter(|round| round.flushed) {
        let executed = noted.iter().filter(|(of, number)| of == client && numbers.contains(number)).count();
        assert_eq!(executed as u64, numbers.end - numbers.start, "a call was lost silently");
    }
    assert!(rounds.iter().any(|round| round.flushed), "no flush succeeded");
    assert!(rounds.iter().any(|round| round.compared), "no call after a flush succeeded");
}

#[test]
fn one_way_calls_are_executed_in_order_and_at_most_once_whatever_happens() {
    check(60, |sim| run(sim, false));
}

/// Under these seeds a server is stopped while it executes a batch, for longer than its client waits. The
/// client gives the batch up, and sends the next one to the same server.
#[test]
fn a_batch_that_its_client_has_given_up_is_not_overtaken() {
    for seed in [118, 524] {
        replay(seed, |sim| run(sim, false)).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_client_that_repeats_calls_which_may_have_run_is_caught() {
    let failure = find(100, |sim| run(sim, true)).expect("the mistake shows");
    assert!(failure.why.contains("executed"), "{failure}");
}
