//! Group calls: one call to ten servers.

use std::sync::Arc;
use std::time::Duration;

use farcall::Group;
use farcall::multi::Outcome;

use crate::common::{Worker, serve, work};

#[test]
fn one_call_reaches_ten_servers() {
    let servers: Vec<_> = (0..10).map(|_| serve(Arc::default(), |builder| builder)).collect();
    let members = servers.iter().map(|(_, address)| (address.clone(), work(address)));
    let group = Group::of(members);
    for number in 0..50 {
        let all = group.multi().next(number).quorum(10).unwrap();
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|(_, next)| *next == Outcome::Result(number + 1)));
    }
}

#[test]
fn a_quorum_does_not_wait_for_a_server_that_blocks() {
    let workers: Vec<Arc<Worker>> = (0..3).map(|_| Arc::default()).collect();
    let servers: Vec<_> = workers.iter().map(|worker| serve(worker.clone(), |builder| builder)).collect();
    let members = servers.iter().map(|(_, address)| (address.clone(), work(address)));
    let group = Group::of(members);
    // Two of the three are let go.
    workers[..2].iter().for_each(|worker| worker.gate.open());
    let two = group.multi().block().within(Duration::from_secs(60)).quorum(2).unwrap();
    assert_eq!(two.iter().filter(|(_, outcome)| **outcome == Outcome::Result(7)).count(), 2);
    workers[2].gate.open();
    // The connection of the third was abandoned with its call.
    assert_eq!(group.multi().next(1).quorum(3).unwrap().len(), 3);
}
