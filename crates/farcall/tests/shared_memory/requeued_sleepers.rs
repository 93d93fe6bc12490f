//! A peer that moves this process's sleeping threads to a word of its own (FUTEX_REQUEUE) keeps none of them.

use crate::common;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::meeting::stand_in;
use crate::common::{block_on, builder};
use crate::echo::{Echo, Honest};
use crate::threads::Threads;
use farcall_shm::{CallMemory, Caller, Listener, RequestCursor, Server, Status, UnixChannel};

/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(60);

/// The number of halfwords at the beginning of the memory that the test tries. Both sides sleep at some of
/// them.
const HALFWORDS: usize = 256;

#[test]
fn the_threads_of_a_connection_end_with_it_wherever_the_peer_had_moved_them() {
    let threads = Threads::sharing_memory("farcall-shm");
    let runtime = builder().env(threads.clone()).shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let id = runtime.stats().exports[0].id;
    let elsewhere = AtomicU32::new(0);
    let stranded: Vec<UnixChannel> = (0..8)
        .map(|_| {
            let (wire, page) = meet(export.address(), id);
            // No thread can be moved until the receiver sleeps.
            while strand(&page, &elsewhere) == 0 {
                std::thread::yield_now();
            }
            wire
        })
        .collect();
    assert_eq!(threads.started(), 8);
    drop(stranded);
    assert!(threads.wait_for_ends(8, LONG), "{} of 8 threads have ended", threads.ended());
    let echo = runtime.import::<dyn Echo>("Echo").unwrap();
    assert_eq!(echo.reverse(b"abc").unwrap(), b"cba");
}

#[test]
fn the_threads_of_a_server_end_with_it_wherever_a_peer_had_moved_them() {
    let threads = Threads::sharing_memory("farcall-shm");
    let runtime = builder().env(threads.clone()).shared_memory(true).build().unwrap();
    let export = runtime.export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let id = runtime.stats().exports[0].id;
    let elsewhere = AtomicU32::new(0);
    let (_wire, page) = meet(export.address(), id);
    while strand(&page, &elsewhere) == 0 {
        std::thread::yield_now();
    }
    drop((export, runtime));
    assert!(threads.wait_for_ends(1, LONG), "its thread has not ended");
}

#[test]
fn an_awaited_call_ends_though_the_server_has_moved_who_waits_for_it() {
    // The server is honest by UDP.
    let export =
        builder().shared_memory(false).build().unwrap().export::<dyn Echo>("Echo", Arc::new(Honest)).unwrap();
    let export = Arc::new(export);
    let listener = Listener::bind(export.address()).unwrap();
    let (over, strands) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hostile = {
        let (export, over, strands) = (export.clone(), over.clone(), strands.clone());
        std::thread::spawn(move || serve(&listener, &export, &over, &strands))
    };
    let runtime = builder().shared_memory(true).build().unwrap();
    let echo = runtime.import::<dyn Echo>(&export.url()).unwrap();
    // The caller has a waiting thread now, which will be moved when it sleeps.
    assert_eq!(block_on(echo.start().reverse(b"abc")).unwrap(), b"abc");
    strands.store(true, Ordering::SeqCst);
    while strands.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    let (done, ended) = mpsc::channel();
    let calls = std::thread::spawn(move || {
        for _ in 0..3 {
            let _ = done.send(block_on(echo.start().reverse(b"abc")).unwrap());
        }
    });
    for _ in 0..3 {
        assert_eq!(ended.recv_timeout(LONG).expect("an awaited call that was answered"), b"abc");
    }
    calls.join().unwrap();
    over.store(true, Ordering::SeqCst);
    hostile.join().unwrap();
}

/// Meets the server as a caller, and prepares the memory as a caller does.
fn meet(address: SocketAddr, export: u64) -> (UnixChannel, Arc<CallMemory>) {
    let (wire, page) = common::meeting::meet(address, export);
    let page = Arc::new(page);
    drop(Caller::new(page.clone()));
    (wire, page)
}

/// Moves the threads that sleep at any of these halfwords. Returns how many it moved.
fn strand(page: &CallMemory, elsewhere: &AtomicU32) -> usize {
    (0..HALFWORDS).map(|at| page.strand(at, elsewhere)).sum()
}

/// Answers each call at once, with its arguments. When the test says so, it moves the caller's sleeping
/// thread once.
fn serve(listener: &Listener, honest: &farcall::Export, over: &AtomicBool, strands: &AtomicBool) {
    let (_wire, page) = stand_in(listener, honest);
    let page = Arc::new(page);
    let (server, mut cursor) = (Server::new(page.clone()), RequestCursor::new());
    let elsewhere = AtomicU32::new(0);
    while !over.load(Ordering::SeqCst) {
        while let Some((slot, number)) = server.take(&mut cursor) {
            let mut arguments = Vec::new();
            server.arguments(slot, 8, &mut arguments);
            server.answer(slot, number, Status::Result, &arguments);
        }
        if strands.load(Ordering::SeqCst) && strand(&page, &elsewhere) > 0 {
            strands.store(false, Ordering::SeqCst);
        }
        std::thread::yield_now();
    }
}
