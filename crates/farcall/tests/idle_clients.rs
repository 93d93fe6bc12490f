//! The bytes that an idle client has allocated for each server that it is bound to, and for each user-stub.
//!
//! (docs/protocol.md, 10, has the bounds at both ends. The test is for Linux, where all addresses of
//! `127.0.0.0/8` are this machine's.)
//!
//! This is a binary of its own, because its global allocator counts the bytes that a thread keeps.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[path = "common/live_bytes.rs"]
mod live_bytes;

use std::net::Ipv4Addr;
use std::sync::Arc;

use farcall::Runtime;
use farcall::names::Memory;

#[farcall::interface]
trait Echo {
    fn echo(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, n: u64) -> farcall::Result<u64> {
        Ok(n)
    }
}

const COUNT: usize = 1_000;
/// The most bytes of each user-stub whose server has others, as docs/protocol.md, 10, says.
const MAX_STUB_BYTES: isize = 800;
/// The most bytes of a user-stub and of the conversation with its server, as docs/protocol.md, 10, says;
/// without keys, and with.
const MAX_CLIENT_BYTES: [isize; 2] = [2_500, 5_000];
/// The most bytes that a client keeps besides if its call took long, as on a busy machine: how long the
/// procedure takes, and which call was sent again.
const MAX_BYTES_OF_SLOW_CALL: isize = 60;

/// Returns the bytes that a client has for each user-stub when each was called once. `name` gives the name
/// that each is bound to. The first call leaves buffers that its thread uses again, so it does not count.
fn bytes_each(client: &Runtime, name: impl Fn(usize) -> String) -> isize {
    let bound = |number| {
        let echo: EchoClient = client.import::<dyn Echo>(&name(number)).unwrap();
        assert_eq!(echo.echo(7).unwrap(), 7);
        echo
    };
    let _first = bound(0);
    let mut idle = Vec::with_capacity(COUNT);
    let before = live_bytes::of_this_thread();
    idle.extend((1..=COUNT).map(bound));
    (live_bytes::of_this_thread() - before) / COUNT as isize
}

#[test]
fn an_idle_client_takes_no_more_bytes_than_documented() {
    let builder = || Runtime::builder().registry(Memory::new()).shared_memory(false);
    let here = Ipv4Addr::LOCALHOST;
    let server = builder().address((Ipv4Addr::UNSPECIFIED, 0).into()).advertise((here, 0).into()).open();
    let export = server.build().unwrap().export::<dyn Echo>("Echo/idle", Arc::new(Server)).unwrap();
    let port = export.address().port();

    let client = builder().build().unwrap();
    let stub = bytes_each(&client, |_| format!("udp://{here}:{port}/Echo/idle"));
    assert_eq!(client.stats().peers.len(), 1);
    // By another address the server is another one to the client.
    let address = |number: usize| Ipv4Addr::from(u32::from(here) + number as u32);
    let client = builder().build().unwrap();
    let both = bytes_each(&client, |number| format!("udp://{}:{port}/Echo/idle", address(number)));
    assert_eq!(client.stats().peers.len(), COUNT + 1);
    println!("of {COUNT} idle clients each has {both} bytes; of {COUNT} stubs of one server {stub}");
    assert!(stub <= MAX_STUB_BYTES, "{stub} bytes of a stub");
    let has_keys = std::env::var_os("FARCALL_KEYS").is_some();
    let most = MAX_CLIENT_BYTES[usize::from(has_keys)] + MAX_BYTES_OF_SLOW_CALL;
    assert!(both <= most, "{both} bytes of a stub and its conversation");
}
