//! Stubs allocate nothing of their own in a call; a channel may. Deposits allocate nothing at the importer.
//!
//! This is a binary of its own, because its global allocator counts what each thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use farcall::memory::{Deposit, Memory, Rights, Settings};
use farcall::stub::{Binding, Call, Channel, Dispatched, Interface, PendingCall, Reply, Sink};
use farcall::xdr::{Decoder, Encoder};
use farcall::{CallFailed, Error, Kind, Ran};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> =
        RefCell::new((Vec::with_capacity(2048), Vec::with_capacity(2048)));
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[farcall::interface]
trait Echo {
    fn echo(&self, bytes: &[u8]) -> farcall::Result<[u8; 32]>;
    fn find(&self, key: &str, of: u32) -> farcall::Result<Option<u64>, NotFound>;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
struct NotFound {
    code: u32,
}

struct Server;

impl Echo for Server {
    fn echo(&self, bytes: &[u8]) -> farcall::Result<[u8; 32]> {
        Ok(bytes.try_into().unwrap_or([0; 32]))
    }
    fn find(&self, key: &str, of: u32) -> farcall::Result<Option<u64>, NotFound> {
        match key {
            "" => Err(NotFound { code: of }.into()),
            _ => Ok(Some(of.into())),
        }
    }
}

/// A channel that keeps the buffers of both packets, as a driver does.
struct Kept;

impl Channel for Kept {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        BUFFERS.with_borrow_mut(|(packet, reply)| {
            packet.clear();
            reply.clear();
            (call.encode)(&mut Encoder::new(packet)).expect("arguments");
            let server: &dyn Echo = &Server;
            let number = call.procedure.number;
            match server.dispatch(number, &mut Decoder::new(packet), &mut Encoder::new(reply)) {
                Dispatched::Result => sink(Reply::Result(Decoder::new(reply))),
                Dispatched::Exception => sink(Reply::Exception(Decoder::new(reply))),
                other => sink(Reply::Failed(other.failure().expect("a failure"))),
            }
        });
    }

    fn start(&self, _: Call<'_>) -> Box<dyn PendingCall> {
        Box::new(CallFailed::new(Kind::Overloaded, Ran::No))
    }
}

#[test]
fn a_simple_call_allocates_nothing() {
    let echo = EchoClient::from(Binding::new(Arc::new(Kept)));
    let bytes = [7; 32];
    let all = || {
        assert_eq!(echo.echo(&bytes), Ok(bytes));
        assert_eq!(echo.find("x", 3), Ok(Some(3)));
        assert_eq!(echo.find("", 3), Err(Error::Declared(NotFound { code: 3 })));
    };
    all();
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        all();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

/// Reads of 4 KiB, 64 of them under way, allocate nothing each at the importer, whose thread starts them,
/// receives the results and deposits them. (An exporter allocates results of which it must keep a copy.)
#[test]
fn a_deposit_allocates_nothing() {
    const UNDER_WAY: u64 = 64;
    const BYTES: usize = 4096;
    for shares_memory in [false, true] {
        let builder = || farcall::Runtime::builder().registry(farcall::names::Memory::new());
        let runtime = || builder().shared_memory(shares_memory).build().unwrap();
        let there = runtime().export_segment("There", Settings::new(BYTES).anyone(Rights::ALL)).unwrap();
        there.write(0, &[7; BYTES]).unwrap();
        let importer = runtime();
        let remote = importer.import_segment(&there.url()).unwrap();
        let size = BYTES * UNDER_WAY as usize;
        let here = importer.export_segment("Here", Settings::new(size)).unwrap();
        let mut under_way = VecDeque::with_capacity(UNDER_WAY as usize);
        let mut read = |reads: u64| {
            for i in 0..reads {
                if under_way.len() == UNDER_WAY as usize {
                    under_way.pop_front().map(Deposit::wait).transpose().unwrap();
                }
                let place = i % UNDER_WAY * BYTES as u64;
                under_way.push_back(remote.start_read_into(0, BYTES, &here, place, false));
            }
        };
        read(5_000);
        let before = ALLOCATIONS.get();
        read(6_400);
        let allocations = ALLOCATIONS.get() - before;
        // Buffers and tables may grow once more.
        assert!(allocations < 64, "{allocations} allocations in 6,400 reads");
    }
}
