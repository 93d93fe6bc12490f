//! Tests a server with keys in a flood of forged first packets. `farcall-sim flood` does the same with 1,000,000
//! (`scripts/soak`).

use farcall_proto::{Mutant, Rule};
use farcall_sim::{Asked, Flood, Flooded, Strangers};

const PACKETS: u64 = 5_000;

fn flood(mutant: Mutant) -> Flooded {
    Flood { packets: PACKETS, rate: 50_000, seed: 1, mutant }.run()
}

#[test]
fn forged_first_packets_compute_and_keep_nothing_and_no_honest_call_fails() {
    let flooded = flood(Mutant::NONE);
    assert!(flooded.is_harmless(PACKETS), "{flooded:?}");
    assert!(flooded.answers <= PACKETS, "{flooded:?}");
}

#[test]
fn a_server_that_believes_unproven_addresses_is_noticed() {
    let flooded = flood(Mutant::of(Rule::ProofUnchecked));
    assert!(flooded.computed > 0 && !flooded.is_harmless(PACKETS), "{flooded:?}");
}

fn strangers(mutant: Mutant) -> Asked {
    Strangers { rate: 12_000, seed: 1, mutant }.run()
}

#[test]
fn strangers_that_ask_without_end_leave_newcomers_and_known_clients_their_turns() {
    let asked = strangers(Mutant::NONE);
    assert!(asked.is_fair(), "{asked:?}");
}

#[test]
fn a_server_that_computes_a_message_again_is_noticed() {
    let asked = strangers(Mutant::of(Rule::ComputedAgain));
    assert!(asked.again > 0 && !asked.is_fair(), "{asked:?}");
}
