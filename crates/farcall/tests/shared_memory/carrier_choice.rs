//! Calls through shared memory: when it is chosen, long arguments and results, the caller's address.
//! `faults.rs` and others run over shared memory too.

use crate::common;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{block_on, builder};
use farcall::{Kind, Ran, Runtime};
use farcall_shm::{Call, Caller, Listener, SLOT_BODY_BYTES, Status};

#[farcall::interface]
pub trait Ledger {
    fn enter(&self, number: u64) -> farcall::Result<u64>;
    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
    fn join(&self, first: &[u8], second: &[u8]) -> farcall::Result<Vec<u8>>;
    fn caller(&self) -> farcall::Result<String>;
}

struct Nothing;

impl Ledger for Nothing {
    fn enter(&self, number: u64) -> farcall::Result<u64> {
        Ok(number)
    }
    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.iter().rev().copied().collect())
    }
    fn join(&self, first: &[u8], second: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok([first, second].concat())
    }
    fn caller(&self) -> farcall::Result<String> {
        Ok(farcall::context().caller().map_or_else(String::new, |caller| caller.to_string()))
    }
}

fn ledger() -> (Runtime, farcall::Export, LedgerClient) {
    let runtime = builder().shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Ledger>("Ledger", Arc::new(Nothing)).unwrap();
    let ledger = runtime.import::<dyn Ledger>("Ledger").unwrap();
    (runtime, export, ledger)
}

fn calls(runtime: &Runtime) -> u64 {
    runtime.stats().links.iter().map(|link| link.calls).sum()
}

#[test]
fn the_binding_picks_memory_where_both_allow_it() {
    let (runtime, export, ledger) = ledger();
    assert_eq!(ledger.enter(7).unwrap(), 7);
    assert_eq!(calls(&runtime), 1);
    let other = builder().shared_memory(false).build().unwrap();
    assert_eq!(other.import::<dyn Ledger>(&export.url()).unwrap().enter(8).unwrap(), 8);
    assert!(other.stats().links.is_empty());
    // A `shm:` URL demands shared memory, whatever the runtime's setting is.
    let url = export.url().replace("udp:", "shm:");
    let ledger = other.import::<dyn Ledger>(&url).unwrap();
    assert_eq!(ledger.enter(9).unwrap(), 9);
    assert_eq!(calls(&other), 1);
}

#[test]
fn a_group_call_goes_by_udp_and_a_started_one_through_memory() {
    let (runtime, _export, ledger) = ledger();
    let other = runtime.export::<dyn Ledger>("Ledger/other", Arc::new(Nothing)).unwrap();
    let members = [("a", ledger), ("b", runtime.import::<dyn Ledger>(&other.url()).unwrap())];
    let group = farcall::Group::of(members.clone());
    assert_eq!(group.multi().enter(1).all().results().count(), 2);
    assert_eq!(calls(&runtime), 0);
    let mut started = group.multi().enter(2).start();
    (0..2).for_each(|_| assert_eq!(started.wait_next().unwrap().result.unwrap(), 2));
    assert_eq!(calls(&runtime), 2);
    // A group of one makes a single call.
    let [first, _] = members;
    assert_eq!(farcall::Group::of([first]).multi().enter(3).first().unwrap().1, 3);
    assert_eq!(calls(&runtime), 3);
    // The members of this group were bound together.
    let group = runtime.import_each::<dyn Ledger>(&[&other.url()]).unwrap();
    assert_eq!(group.multi().enter(4).first().unwrap().1, 4);
    assert_eq!(calls(&runtime), 3);
}

#[test]
fn a_group_call_goes_through_memory_to_members_at_another_socket_than_the_first() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return common::skip("a group whose members are called by two sockets: there is no IPv6");
    }
    let (runtime, _export, ledger) = ledger();
    let server = builder().shared_memory(true).address("[::1]:0".parse().unwrap()).build().unwrap();
    let export = server.export::<dyn Ledger>("Ledger", Arc::new(Nothing)).unwrap();
    let first = runtime.import::<dyn Ledger>(&export.url()).unwrap();
    let group = farcall::Group::of([("first", first), ("other", ledger)]);
    assert_eq!(group.multi().enter(1).all().results().count(), 2);
    let links = runtime.stats().links;
    assert_eq!((links.len(), calls(&runtime)), (2, 1));
    assert!(links.iter().any(|link| link.calls == 1 && link.address.is_ipv4()), "{links:?}");
}

#[test]
fn a_name_that_asks_for_memory_fails_where_there_is_none() {
    let runtime = builder().shared_memory(false).build().unwrap();
    let export = runtime.export::<dyn Ledger>("Ledger", Arc::new(Nothing)).unwrap();
    let why = runtime.import::<dyn Ledger>(&export.url().replace("udp:", "shm:")).unwrap_err();
    let why = why.call_failed().unwrap();
    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::No));
}

#[test]
fn an_export_whose_name_for_memory_is_taken_says_so() {
    // The port is free again when the socket is dropped.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let taken = Listener::bind(address).unwrap();
    drop(socket);
    let runtime = builder().shared_memory(true).address(address).build().unwrap();
    let _export = runtime.export::<dyn Ledger>("Ledger", Arc::new(Nothing)).unwrap();
    let why = runtime.stats().no_shared_memory.expect("the name is taken");
    assert!(why.contains("another socket of this user has taken the name"), "{why}");
    drop(taken);
    assert_eq!(ledger().0.stats().no_shared_memory, None);
}

#[test]
fn arguments_and_results_of_any_size_cross() {
    let (runtime, _export, ledger) = ledger();
    let mut sent = 0;
    for len in [0, 1, 4000, 4088, 4089, 4096, 65_536, 69_600, 69_633, 200_000, 5_000_000] {
        let bytes: Vec<u8> = (0..len).map(|i: u32| (i ^ i >> 8) as u8).collect();
        let reversed: Vec<u8> = bytes.iter().rev().copied().collect();
        assert!(ledger.reverse(&bytes).unwrap() == reversed, "{len} bytes");
        assert!(ledger.start().reverse(&bytes).wait().unwrap() == reversed, "{len} bytes");
        assert!(block_on(async { ledger.start().reverse(&bytes).await }).unwrap() == reversed, "{len} bytes");
        sent += 3;
    }
    // A started call does not wait for a ring to be emptied, so arguments longer than a ring may go by UDP.
    assert!(calls(&runtime) >= sent - 2);
    let threads: Vec<_> = (0..8)
        .map(|which: u8| {
            let ledger = ledger.clone();
            std::thread::spawn(move || {
                for _ in 0..10 {
                    assert!(ledger.reverse(&vec![which; 300_000]).unwrap() == vec![which; 300_000]);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A started call whose first server does not take it goes to another server with all of its arguments, also
/// with those that were only in a ring.
#[test]
fn large_arguments_are_kept_until_the_call_has_run() {
    let (runtime, export, ledger) = ledger();
    let mut export = Some(export);
    for (first, second) in [(100, 9000), (90_000, 0), (1 << 19, 1 << 19), (700_000, 700_000), (3_000_000, 10)]
    {
        let bytes: Vec<u8> = (0..first + second).map(|i: usize| (i ^ i >> 8) as u8).collect();
        let (first, second) = bytes.split_at(first);
        drop(export.take());
        let before = calls(&runtime);
        // The arguments may change as soon as a call is started.
        let start = || {
            let (first, second) = (first.to_vec(), second.to_vec());
            ledger.start().join(&first, &second)
        };
        let waited: Vec<_> = (0..8).map(|_| start()).collect();
        let awaited = start();
        // Arguments longer than a ring wait for nothing, and may have gone by UDP.
        assert!(calls(&runtime) > before || bytes.len() > 1 << 20);
        export = Some(runtime.export::<dyn Ledger>("Ledger", Arc::new(Nothing)).unwrap());
        assert!(block_on(awaited).unwrap() == bytes);
        waited.into_iter().for_each(|call| assert!(call.wait().unwrap() == bytes));
    }
}

#[test]
fn a_procedure_knows_its_caller() {
    let (_runtime, _export, ledger) = ledger();
    let caller: std::net::SocketAddr = ledger.caller().unwrap().parse().unwrap();
    assert!(caller.ip().is_loopback() && caller.port() != 0);
}

#[test]
fn more_calls_than_there_are_slots_are_carried_all_the_same() {
    let (_runtime, _export, ledger) = ledger();
    let pending: Vec<_> = (0..1000).map(|number| (number, ledger.start().enter(number))).collect();
    let (waited, awaited): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(number, _)| number % 2 == 0);
    for (number, call) in waited {
        assert_eq!(call.wait().unwrap(), number);
    }
    block_on(async {
        for (number, call) in awaited {
            assert_eq!(call.await.unwrap(), number);
        }
    });
}

#[farcall::interface]
pub trait Long {
    fn result(&self, bytes: u32) -> farcall::Result<Vec<u8>>;
}

impl Long for Nothing {
    fn result(&self, bytes: u32) -> farcall::Result<Vec<u8>> {
        Ok(vec![7; bytes as usize])
    }
}

/// A result is not fetched if its call's deadline passes when the result has come or is on its way.
#[test]
fn results_that_nobody_fetches_take_no_room_from_others() {
    const BYTES: u32 = 10 << 20;
    const GUARD: Duration = Duration::from_secs(60);
    let runtime = builder().shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Long>("Long", Arc::new(Nothing)).unwrap();
    // This caller is made by hand. It waits for answers, but fetches no results.
    let export_id = runtime.stats().exports[0].id;
    let (_wire, page) = common::meeting::meet(export.address(), export_id);
    let caller = Arc::new(Caller::new(Arc::new(page)));
    let call = Call { export: export_id, procedure: 1, within: None, trace: None };
    for round in 0..300 {
        let ticket = caller.call(caller.claim().unwrap(), &call, &BYTES.to_be_bytes(), None);
        while !caller.is_answered(ticket) {
            caller.sleep(ticket, true, GUARD);
        }
        assert_eq!(caller.answer(ticket, &mut Vec::new()).0, Status::Result, "round {round}");
        if round % 2 == 0 {
            caller.abandon(ticket);
            continue;
        }
        // Or the caller has begun to fetch the result.
        let mut ring = caller.argument_ring(GUARD).unwrap();
        caller.abandon(caller.fetch(ticket.slot(), &mut ring, 0, SLOT_BODY_BYTES as u64));
    }
    assert!(caller.outstanding() < 4);
    assert!(runtime.import::<dyn Long>("Long").unwrap().result(BYTES).unwrap() == vec![7; BYTES as usize]);
}
