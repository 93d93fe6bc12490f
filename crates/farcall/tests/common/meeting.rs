//! Meets through shared memory by hand, as a caller without a runtime or in the place of a server.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use farcall::Export;
use farcall_shm::{CallMemory, Hello, Listener, MAX_HELLO_BYTES, TicketHolder, UnixChannel, Wants};

/// The test fails after this time. Nothing here takes that long.
const LONG: Duration = Duration::from_secs(600);

/// Returns the hello of an importer that has no ticket and checks no proof.
pub fn hello(export: u64, wants: Wants) -> Vec<u8> {
    let address = "127.0.0.1:4".parse().unwrap();
    let ticket = TicketHolder { client: 1, issued: 2, conversation: 3, address };
    Hello { export, wants, nonce: [4; 16], ticket }.to_bytes()
}

/// Meets a server as a caller.
pub fn meet(address: SocketAddr, export: u64) -> (UnixChannel, CallMemory) {
    let wire = UnixChannel::connect(address).unwrap();
    let (rings, file) = CallMemory::create_arguments().unwrap();
    assert!(wire.send(&hello(export, Wants::Calls), Some(file.as_fd())));
    wire.wait(LONG);
    let (_, file) = wire.receive_file(&mut [0; 8]).expect("no memory");
    (wire, CallMemory::open(&file, rings).unwrap())
}

/// Waits for a caller and for its first message.
pub fn accept(listener: &Listener) -> UnixChannel {
    loop {
        if let Ok(Some((wire, _))) = listener.accept() {
            wire.wait(LONG);
            return wire;
        }
        std::thread::yield_now();
    }
}

/// Meets a caller in the place of an honest server, which is called by UDP only. Gives the honest server's
/// proof.
pub fn stand_in(listener: &Listener, honest: &Export) -> (UnixChannel, CallMemory) {
    let wire = accept(listener);
    let mut hello = [0; MAX_HELLO_BYTES];
    let (len, arguments) = wire.receive_file(&mut hello).expect("no rings");
    let (page, file) = CallMemory::create(&arguments).unwrap();
    let proof = honest.answer_meeting(&hello[..len]).expect("no hello");
    wire.send(&proof, Some(file.as_fd()));
    (wire, page)
}
