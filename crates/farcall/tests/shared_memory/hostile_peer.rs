//! A peer that writes garbage into the shared memory harms nobody but itself.
//!
//! `FARCALL_SEED` chooses the garbage. Each seed is another peer.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::builder;
use crate::common::meeting::{meet, stand_in};
use crate::echo::{Echo, Honest};
use farcall_shm::{Call, CallMemory, Caller, Listener, RequestCursor, Server, Status};

/// The number of hostile peers in a test.
const PEERS: u64 = 60;

#[test]
fn a_server_stands_callers_that_write_garbage() {
    let seed = seed();
    let runtime = builder().shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let echo = runtime.import::<dyn Echo>("Echo").unwrap();
    let id = runtime.stats().exports[0].id;
    for peer in 0..PEERS {
        let mut chance = Chance(seed + peer);
        let (wire, page) = meet(export.address(), id);
        let page = Arc::new(page);
        let caller = Arc::new(Caller::new(page.clone()));
        let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
        for _ in 0..chance.below(300) {
            match chance.below(8) {
                0..5 => write_garbage(&page, &mut chance),
                5 => {
                    let call =
                        Call { export: id, procedure: chance.below(3) as u32, within: None, trace: None };
                    let ring = (chance.below(4) == 0).then_some(&mut ring);
                    caller.call(chance.below(256) as usize, &call, &[0; 12], ring);
                }
                6 => {
                    ring.put(&vec![5; chance.below(200_000) as usize]);
                }
                _ => {
                    let (slot, part) = (chance.below(256) as usize, chance.below(16) as usize);
                    caller.fetch(slot, &mut ring, part, chance.below(2) * chance.next());
                }
            }
            caller.wake();
            if chance.below(50) == 0 {
                wire.send(&chance.next().to_be_bytes(), None);
            }
        }
        // The server serves the others as if nothing had happened.
        for len in [10, 100_000] {
            let bytes = vec![peer as u8; len];
            assert!(echo.reverse(&bytes).unwrap() == bytes, "FARCALL_SEED={seed}, peer {peer}");
        }
    }
    assert!(runtime.stats().links[0].calls >= 2 * PEERS);
}

#[test]
fn a_caller_stands_servers_that_write_garbage() {
    let (seed, mut met) = (seed(), 0);
    for peer in 0..PEERS {
        let mut chance = Chance(seed + peer);
        // The server is honest by UDP, but not in shared memory.
        let export = builder()
            .shared_memory(false)
            .build()
            .unwrap()
            .export::<dyn Echo>("Echo", Arc::new(Honest))
            .unwrap();
        let export = Arc::new(export);
        let listener = Listener::bind(export.address()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let garbage = {
            let (export, over) = (export.clone(), over.clone());
            let chance = Chance(chance.next());
            std::thread::spawn(move || serve_garbage(&listener, &export, chance, &over))
        };
        let runtime = builder().shared_memory(true).build().unwrap();
        let echo = runtime.import::<dyn Echo>(&export.url()).unwrap();
        // A server that passes no memory in time is called by UDP.
        met += runtime.stats().links.len();
        for _ in 0..20 {
            // The caller gets some outcome, whatever it is.
            let call = echo.within(Duration::from_millis(chance.below(8)));
            let bytes = vec![7; [10, 3000, 200_000][chance.below(3) as usize]];
            let _ = call.reverse(&bytes);
            let _ = call.start().reverse(&bytes).wait();
            drop(call.start().reverse(&bytes));
            let _ = common::block_on(async { call.start().reverse(&bytes).await });
        }
        over.store(true, Ordering::SeqCst);
        garbage.join().unwrap();
    }
    assert!(met > 0);
}

fn serve_garbage(listener: &Listener, honest: &farcall::Export, mut chance: Chance, over: &AtomicBool) {
    let (_wire, page) = stand_in(listener, honest);
    let page = Arc::new(page);
    let (server, mut cursor) = (Server::new(page.clone()), RequestCursor::new());
    let mut rings = server.producers();
    while !over.load(Ordering::SeqCst) {
        for _ in 0..chance.below(20) {
            write_garbage(&page, &mut chance);
        }
        while let Some((slot, number)) = server.take(&mut cursor) {
            let status = match chance.below(4) {
                0 => Status::Result,
                1 => Status::Exception,
                2 => Status::Part,
                _ => Status::Failed { kind: chance.next() as u16, ran: chance.next() as u8 },
            };
            let number = if chance.below(4) == 0 { chance.next() >> 8 } else { number };
            if chance.below(3) == 0 {
                let producer = &mut rings[chance.below(4) as usize];
                producer.begin();
                server.start_result(slot, number, producer, chance.below(2) * chance.next());
                producer.put(&vec![9; chance.below(200_000) as usize]);
                server.end_result(
                    slot,
                    if chance.below(2) == 0 { producer.len() } else { chance.below(1 << 40) },
                );
            }
            let body = vec![chance.next() as u8; chance.below(5000) as usize];
            server.answer(slot, number, status, &body);
        }
        std::thread::yield_now();
    }
}

/// Writes a word of garbage, more often where it matters than anywhere else.
fn write_garbage(page: &CallMemory, chance: &mut Chance) {
    let before_slots = CallMemory::slot_words(0)[0] as u64;
    let at = match chance.below(4) {
        0 => chance.below(before_slots) as usize,
        1 | 2 => CallMemory::slot_words(chance.below(4) as usize)[chance.below(8) as usize],
        _ => chance.below(CallMemory::WORDS as u64) as usize,
    };
    let word = match chance.below(4) {
        0 => chance.below(4),
        1 => 1 << chance.below(64),
        2 => chance.below(1 << 34),
        _ => chance.next(),
    };
    page.scribble(at, word);
}

fn seed() -> u64 {
    let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let seed = std::env::var("FARCALL_SEED").map_or_else(|_| since(), |seed| seed.parse().unwrap());
    println!("FARCALL_SEED={seed}");
    seed
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
