//! Phases of keys that are so short that a few datagrams fill them: what an end does that does not hear the
//! other one.
#![cfg(all(feature = "secure", feature = "audit"))]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::trust::{client, server};
use common::*;
use farcall_proto::secure::audit::{Audit, exchange};
use farcall_proto::server::Finish;
use farcall_proto::{Kind, Mutant, Ran, ServerConfig};

const SECURE: u8 = 3;

/// Returns a pair that has its secrets.
fn acquainted() -> Pair {
    Pair::acquainted_with(client(), server())
}

#[test]
fn an_end_that_is_not_heard_stays_in_a_phase_that_the_other_end_can_open() {
    let dropped = |mutant| {
        common::MUTANT.set(mutant);
        let _ = exchange(Some(Audit::new(3)));
        let mut pair = acquainted();
        pair.start(1, b"call");
        let mut last = pair.sent();
        for _ in 0..40 {
            pair.pass(Duration::from_millis(200));
            pair.tick();
            let sent = pair.sent();
            last = if sent.is_empty() { last } else { sent };
        }
        pair.receive(&last);
        pair.server.stats().dropped
    };
    assert_eq!(dropped(Mutant::NONE), 0);
    #[cfg(feature = "mutants")]
    assert!(dropped(Mutant::of(farcall_proto::Rule::PhaseUnconfirmed)) > 0);
    common::MUTANT.set(Mutant::NONE);
}

/// Returns how many of these sealed datagrams are of each phase.
fn by_phase(datagrams: &[Datagram]) -> BTreeMap<u8, usize> {
    let mut phases = BTreeMap::new();
    datagrams.iter().filter(|d| d[1] == SECURE).for_each(|d| *phases.entry(d[3]).or_default() += 1);
    phases
}

#[test]
fn a_client_that_does_not_hear_the_server_in_a_phase_ends_the_conversation() {
    let most = |mutant| {
        common::MUTANT.set(mutant);
        let _ = exchange(Some(Audit::new(3).limited(6)));
        let mut pair = acquainted();
        pair.start(1, b"call");
        let (mut sealed, mut told) = (Vec::new(), false);
        for _ in 0..40 {
            sealed.extend(pair.sent().into_iter().filter(|d| d[1] == SECURE));
            pair.pass(Duration::from_millis(200));
            pair.tick();
            if !told && !pair.told.is_empty() {
                told = true;
                assert_eq!(pair.told, [(1, Told::Failed(Kind::Unreachable, Ran::Maybe))]);
                // A call that comes now waits for the next conversation.
                pair.start(2, b"next");
            }
        }
        if told {
            pair.carry(2, Duration::from_secs(5), |_, _, _| true);
            assert_eq!(pair.told[1], (2, Told::Result(b"next".to_vec())));
        }
        common::MUTANT.set(Mutant::NONE);
        by_phase(&sealed).into_values().max()
    };
    assert_eq!(most(Mutant::NONE), Some(6));
    #[cfg(feature = "mutants")]
    assert!(most(Mutant::of(farcall_proto::Rule::PhaseUnlimited)) > Some(6));
}

#[test]
fn a_server_that_does_not_hear_the_client_in_a_phase_ends_the_conversation() {
    let most = |mutant| {
        common::MUTANT.set(mutant);
        let _ = exchange(Some(Audit::new(3).limited(6)));
        let mut pair = Pair::acquainted_with(client(), ServerConfig { max_datagram: 1_200, ..server() });
        let waits = pair.execute(1, b"wait");
        let key = pair.execute(2, b"call");
        let sent = pair.finish(key, Finish::Result, &[7; 40_000]);
        let most = by_phase(&sent).into_values().max();
        if pair.server.conversations() == 0 {
            assert_eq!(pair.server.next_forsaken(), Some(waits));
            pair.hear(&sent);
            pair.carry(2, Duration::from_secs(60), |_, _, _| true);
            pair.told.sort_by_key(|(token, _)| *token);
            let ended = pair.told.iter().all(|(_, told)| matches!(told, Told::Failed(_, Ran::Maybe)));
            assert!(ended && pair.told.len() == 2, "{:?}", pair.told);
        }
        common::MUTANT.set(Mutant::NONE);
        most
    };
    assert_eq!(most(Mutant::NONE), Some(6));
    #[cfg(feature = "mutants")]
    assert!(most(Mutant::of(farcall_proto::Rule::PhaseUnlimited)) > Some(6));
}
