//! Tests that each conversation has the rights of its own grant, while other grants of its key are shown,
//! revoked and expire, and that the model of this notices when it is not so.
//!
//! The whole number of runs: `FARCALL_SIM_SEEDS=10000 cargo test --profile soak -p farcall-sim --test
//! simulation grants -- --nocapture`

use farcall_sim::grants;
use farcall_sim::model::{Rule, Tally};

const CALLS: u64 = 60;

fn seeds(few: u64) -> u64 {
    std::env::var("FARCALL_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(few)
}

#[test]
fn each_conversation_has_the_rights_of_its_own_grant() {
    let mut all = Tally::default();
    for seed in 0..seeds(30) {
        let report = grants::run(seed, CALLS, None);
        assert!(report.violation.is_none(), "seed {seed}: {:?}", report.violation);
        all.add(&report.tally);
    }
    println!("{all:?}");
    assert!(all.executed > 0 && all.returned > 0 && all.no > 0 && all.maybe > 0, "{all:?}");
}

#[test]
fn every_broken_rule_of_keys_is_noticed() {
    let rules = Rule::all().filter(|(_, name)| name.starts_with("keys-"));
    let mut broken = 0;
    for (rule, name) in rules {
        let noticed = (0..200).find_map(|seed| grants::run(seed, CALLS, Some(rule)).violation);
        println!("{name}: {:?}", noticed.as_ref().map(|violation| violation.rule));
        assert!(noticed.is_some(), "{name} was not noticed");
        broken += 1;
    }
    assert_eq!(broken, 6);
}

#[test]
fn a_seed_leads_to_the_same_run_each_time() {
    for seed in 0..seeds(10) {
        let [first, second] = [0; 2].map(|_| grants::run(seed, CALLS, None));
        assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
        assert_eq!(format!("{:?}", first.tally), format!("{:?}", second.tally), "seed {seed}");
    }
}
