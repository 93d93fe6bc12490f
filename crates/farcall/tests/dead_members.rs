//! A member of a group whose port is closed costs its callers no memory that grows with their calls.
//!
//! (`farcall-sim/tests/dead_members.rs` has a member that is silent.)
//!
//! This is a binary of its own, because its global allocator counts the bytes that the process has.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/cluster.rs"]
mod cluster;
#[path = "common/live_bytes.rs"]
mod live_bytes;

use cluster::{Cluster, Member, MemberClient};
use farcall::multi::{Fixed, Rest};
use farcall::{Export, Group, Kind};

const CALLS: usize = 20_000;
/// After so many calls, those of the dead member have all ended.
const ROUND: usize = 2_000;
/// The bytes by which the heap may differ after half of the calls and after all of them. A byte that each
/// call leaves behind would be 10,000.
const TOLERANCE: isize = 8 << 10;

/// Calls the group while one of its three members is dead. The calls of that member are left to finish, or
/// are cancelled. Returns when all have ended.
fn call(group: &Group<MemberClient, Fixed>) {
    for number in 0..ROUND as u64 {
        let rest = if number % 2 == 0 { Rest::Finish } else { Rest::Cancel };
        assert_eq!(group.multi().add(number).rest(rest).majority().unwrap().results().count(), 2);
    }
    let all = group.multi().add(0).all();
    let failed: Vec<Kind> = all.failures().map(|(_, why)| why.kind()).collect();
    assert_eq!((all.results().count(), &failed[..]), (2, &[Kind::Unreachable][..]), "{all:?}");
}

/// Returns the bytes that the process has after each round of calls.
fn bytes(shared_memory: bool) -> Vec<isize> {
    let mut cluster = Cluster::called_by(3, |client| client.shared_memory(shared_memory));
    // A name with an address needs no registry, so the dead member is called at its port for ever.
    let names: Vec<String> = cluster.exports.iter().map(Export::url).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let group = cluster.client.import_each::<dyn Member>(&names).unwrap();
    assert_eq!(group.multi().add(0).all().results().count(), 3);
    drop(cluster.exports.remove(1));
    let round = |_| {
        call(&group);
        live_bytes::of_process()
    };
    (0..CALLS / ROUND).map(round).collect()
}

#[test]
fn a_member_whose_port_is_closed_costs_no_memory_that_grows() {
    for shared_memory in [false, true] {
        let bytes = bytes(shared_memory);
        println!("shared memory {shared_memory}: bytes after each {ROUND} calls: {bytes:?}");
        let (half, all) = (bytes[CALLS / ROUND / 2 - 1], bytes[CALLS / ROUND - 1]);
        assert!(
            (all - half).abs() <= TOLERANCE,
            "{half} bytes after {} calls, {all} after {CALLS}",
            CALLS / 2
        );
    }
}
