//! The user's code panics wherever a server, or a client, runs it: the next call is served all the same.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use farcall::xdr::{self, Decode, Decoder, Encode, Encoder, Schema, schema};
use farcall::{Bytes, CallFailed, Kind, Ran};
use farcall_onc::{Client, Server};

/// A panic's payload whose own drop panics, with another like it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        explode();
    }
}

/// Panics, unless this thread is doing so already: two panics at once end the process.
fn explode() {
    if !std::thread::panicking() {
        resume_unwind(Box::new(Bomb));
    }
}

/// Catches an explosion of this test's own.
fn caught(user: impl FnOnce()) {
    if let Err(bomb) = catch_unwind(AssertUnwindSafe(user)) {
        std::mem::forget(bomb);
    }
}

const EXPLODES_TO_ENCODE: u32 = 1;
const EXPLODES_TO_DECODE: u32 = 2;

/// A value whose type's code panics.
#[derive(Debug)]
pub struct Fragile(u32);

impl Encode for Fragile {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        if self.0 == EXPLODES_TO_ENCODE {
            explode();
        }
        self.0.encode(e)
    }
}

impl<'a> Decode<'a> for Fragile {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let value = u32::decode(d)?;
        if value == EXPLODES_TO_DECODE {
            explode();
        }
        Ok(Fragile(value))
    }
}

impl Schema for Fragile {
    fn schema(types: &mut schema::Types) -> schema::Type {
        u32::schema(types)
    }
}

#[farcall::interface(program = 0x2000_0077, version = 1)]
pub trait Mine {
    #[procedure(1)]
    fn ping(&self) -> farcall::Result<u32>;
    #[procedure(2)]
    fn explode(&self) -> farcall::Result<()>;
    #[procedure(3)]
    fn give(&self, how: u32) -> farcall::Result<Fragile>;
    #[procedure(4)]
    fn take(&self, value: Fragile) -> farcall::Result<()>;
    /// The drop of what they belong to panics.
    #[procedure(5)]
    fn bytes(&self, len: u32) -> farcall::Result<Bytes>;
    /// Fails with a cause whose drop panics.
    #[procedure(6)]
    fn fail(&self) -> farcall::Result<()>;
}

struct Owner(Vec<u8>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        explode();
    }
}

#[derive(Debug)]
struct Cause;

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a cause")
    }
}

impl std::error::Error for Cause {}

impl Drop for Cause {
    fn drop(&mut self) {
        explode();
    }
}

struct Mines;

impl Mine for Mines {
    fn ping(&self) -> farcall::Result<u32> {
        Ok(7)
    }

    fn explode(&self) -> farcall::Result<()> {
        explode();
        Ok(())
    }

    fn give(&self, how: u32) -> farcall::Result<Fragile> {
        Ok(Fragile(how))
    }

    fn take(&self, _: Fragile) -> farcall::Result<()> {
        Ok(())
    }

    fn bytes(&self, len: u32) -> farcall::Result<Bytes> {
        Ok(Bytes::from_owner(Owner(vec![7; len as usize])))
    }

    fn fail(&self) -> farcall::Result<()> {
        Err(CallFailed::new(Kind::Other, Ran::Yes).caused_by(Cause).into())
    }
}

/// Panics when a task is to be woken.
struct Wakes(Sender<()>);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
        explode();
    }
}

fn served() -> (Server, [MineClient; 2]) {
    // A thread that is lost is missed.
    let server = Server::builder().program::<dyn Mine>(Arc::new(Mines)).workers(1);
    let server = server.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let addresses = [format!("tcp://{}", server.tcp().unwrap()), format!("udp://{}", server.udp().unwrap())];
    let clients =
        addresses.map(|address| Client::connect(&address).unwrap().bind::<dyn Mine>().within(Duration::from_secs(20)));
    (server, clients)
}

#[test]
fn whatever_panics_in_a_server_the_next_call_is_served() {
    let (_server, clients) = served();
    for mine in clients {
        for _ in 0..4 {
            mine.explode().unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.give(EXPLODES_TO_ENCODE).unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.take(Fragile(EXPLODES_TO_DECODE)).unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.fail().unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            for len in [10, 60_000] {
                // Short ones are copied, and dropped where the procedure runs.
                let _ = mine.bytes(len);
                assert_eq!(mine.ping().unwrap(), 7);
            }
        }
    }
}

#[test]
fn what_panics_in_a_client_stops_no_other_call() {
    let (_server, clients) = served();
    for mine in clients {
        for _ in 0..4 {
            caught(|| drop(mine.give(EXPLODES_TO_DECODE)));
            caught(|| drop(mine.start().give(EXPLODES_TO_DECODE).wait()));
            caught(|| drop(mine.take(Fragile(EXPLODES_TO_ENCODE))));
            assert_eq!(mine.ping().unwrap(), 7);
            awaited_with_a_waker_that_panics(&mine);
            assert_eq!(mine.start().ping().wait().unwrap(), 7);
        }
    }
}

/// Awaits a call with a waker that panics, until that has been woken.
fn awaited_with_a_waker_that_panics(mine: &MineClient) {
    let (woken, wakes) = channel();
    let waker = Waker::from(Arc::new(Wakes(woken)));
    loop {
        let mut call = pin!(mine.start().ping());
        // One that had ended already wakes nobody.
        if call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            wakes.recv().unwrap();
            while call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                std::thread::yield_now();
            }
            return;
        }
    }
}
