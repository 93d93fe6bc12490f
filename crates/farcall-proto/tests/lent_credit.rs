//! Credit that is lent to the streams that follow in a conversation: what it can make its lender hold.

mod common;

use std::time::Duration;

use common::*;
use farcall_proto::client::CallId;
use farcall_proto::server::CallKey;
use farcall_proto::{Mutant, Tail};

const MIB: usize = 1 << 20;

/// The most that a client lends to all directions together, and what each of 64 may hold besides.
const BOUND: usize = 64 * MIB + 64 * 2 * FIRST_CREDIT as usize;

/// Passes datagrams, with a round trip of 20 ms, until `done` returns true or `rounds` are over. The clock
/// also advances to timers. Returns whether `done` did.
fn carry(pair: &mut Pair, rounds: usize, mut done: impl FnMut(&mut Pair) -> bool) -> bool {
    for _ in 0..rounds {
        if done(pair) {
            return true;
        }
        let sent = pair.sent();
        pair.pass(Duration::from_millis(10));
        pair.receive(&sent);
        let answers = pair.answered();
        pair.pass(Duration::from_millis(10));
        pair.hear(&answers);
        pair.tick();
    }
    false
}

/// Has the server send as many bytes in a call, and the client's user take them. Returns how many rounds it
/// took.
fn stream(pair: &mut Pair, call: CallId, key: CallKey, bytes: usize) -> usize {
    let exchange = pair.server.open_exchange(key).expect("few are open");
    let (chunk, mut left, mut taken, mut rounds) = (vec![7; MIB], bytes, 0, 0);
    let whole = carry(pair, 1000, |pair| {
        rounds += 1;
        while left > 0 {
            let tail = if left <= MIB { Tail::End } else { Tail::More };
            let part = &chunk[..left.min(MIB)];
            let added = pair.server.send_in(key, exchange, part, tail).expect("it is open");
            left -= added;
            if added < part.len() {
                break;
            }
        }
        let (mut into, told) = (Vec::new(), &mut pair.told);
        pair.client.take_from(call, exchange, &mut into, usize::MAX, &mut |event| told.push(note(event)));
        taken += into.len();
        taken == bytes
    });
    assert!(whole, "{taken} bytes came");
    rounds
}

/// Makes a pair that executes a call, and has the client lend what a long stream leads to.
fn lenders(mutant: Mutant) -> (Pair, CallId, CallKey) {
    MUTANT.set(mutant);
    let (mut pair, call, key) = Pair::executing(b"argument");
    MUTANT.set(Mutant::NONE);
    pair.asked.clear();
    stream(&mut pair, call, key, 64 * MIB);
    (pair, call, key)
}

/// Has the server fill 60 directions that nobody takes. Returns what the client holds then.
fn held_by_loans(mutant: Mutant) -> usize {
    let (mut pair, _, key) = lenders(mutant);
    let exchanges: Vec<u32> =
        (0..60).map(|_| pair.server.open_exchange(key).expect("few are open")).collect();
    let chunk = vec![7; MIB];
    carry(&mut pair, 300, |pair| {
        for exchange in &exchanges {
            while pair.server.send_in(key, *exchange, &chunk, Tail::More) == Some(MIB) {}
        }
        pair.client.held_inside() > 2 * BOUND
    });
    pair.client.held_inside()
}

#[test]
fn a_server_that_fills_every_loan_makes_its_client_hold_no_more_than_the_bound() {
    let held = held_by_loans(Mutant::NONE);
    assert!(held > 16 * MIB, "{held} bytes: the test must fill what is lent");
    assert!(held <= 2 * BOUND, "{held} bytes");
}

#[cfg(feature = "mutants")]
#[test]
fn a_client_that_lends_without_bound_is_noticed() {
    assert!(held_by_loans(Mutant::of(farcall_proto::Rule::LoansUnbounded)) > 2 * BOUND);
}

#[test]
fn what_was_lent_to_streams_that_are_over_can_be_lent_again() {
    let (mut pair, call, key) = lenders(Mutant::NONE);
    let first = stream(&mut pair, call, key, 4 * MIB);
    for _ in 0..40 {
        let rounds = stream(&mut pair, call, key, 4 * MIB);
        assert!(rounds <= first, "{rounds} rounds, {first} before");
    }
}

#[test]
fn a_new_conversation_has_no_loans() {
    let (mut pair, call, key) = Pair::executing(b"argument");
    pair.asked.clear();
    let exchange = pair.client.open_exchange(call).expect("few are open");
    let chunk = vec![7; MIB];
    carry(&mut pair, 50, |pair| {
        while pair.client.send_in(call, exchange, &chunk, Tail::More) == Some(MIB) {}
        _ = pair.server.take_from(key, exchange, &mut Vec::new(), usize::MAX);
        false
    });
    // Returns with how much credit a direction begins that the client sends.
    let begins = |pair: &mut Pair| {
        let call = pair.start(7, b"argument");
        let exchange = pair.client.open_exchange(call).expect("few are open");
        pair.client.send_in(call, exchange, &chunk, Tail::More).expect("it is open")
    };
    assert!(begins(&mut pair) > FIRST_CREDIT as usize);
    pair.restart_server(8);
    carry(&mut pair, 50, |pair| pair.told.len() > 1);
    assert_eq!(begins(&mut pair), FIRST_CREDIT as usize);
}
