//! Meeting through shared memory by hand: as a caller without a runtime, or in the place of a server.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use farcall::Export;
use farcall_shm::{CallMemory, Hello, Listener, MAX_HELLO_BYTES, TicketHolder, UnixChannel, Wants};

/// Only a guard.
const LONG: Duration = Duration::from_secs(600);

/// What an importer says first who has no ticket and checks no proof.
pub fn hello(export: u64, wants: Wants) -> Vec<u8> {
    let address = "127.0.0.1:4".parse().unwrap();
    let ticket = TicketHolder { client: 1, issued: 2, conversation: 3, address };
    Hello { export, wants, nonce: [4; 16], ticket }.to_bytes()
}

/// Becomes a caller.
pub fn meet(address: SocketAddr, export: u64) -> (UnixChannel, CallMemory) {
    let wire = UnixChannel::connect(address).unwrap();
    let (rings, file) = CallMemory::create_arguments().unwrap();
    assert!(wire.send(&hello(export, Wants::Calls), Some(file.as_fd())));
    wire.wait(LONG);
    let (_, file) = wire.receive_file(&mut [0; 8]).expect("no memory");
    (wire, CallMemory::open(&file, rings).unwrap())
}

/// Waits for a caller, and for what it says.
pub fn accept(listener: &Listener) -> UnixChannel {
    loop {
        if let Ok(Some((wire, _))) = listener.accept() {
            wire.wait(LONG);
            return wire;
        }
        std::thread::yield_now();
    }
}

/// Becomes a server in the place of an honest one, which is called by UDP only, and proves to be that.
pub fn stand_in(listener: &Listener, honest: &Export) -> (UnixChannel, CallMemory) {
    let wire = accept(listener);
    let mut hello = [0; MAX_HELLO_BYTES];
    let (len, arguments) = wire.receive_file(&mut hello).expect("no rings");
    let (page, file) = CallMemory::create(&arguments).unwrap();
    let proof = honest.answer_meeting(&hello[..len]).expect("no hello");
    wire.send(&proof, Some(file.as_fd()));
    (wire, page)
}
