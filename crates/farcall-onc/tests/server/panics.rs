//! Tests in which the user's code panics wherever a server or a client runs it. The next call must be served
//! all the same.

#[path = "../../../farcall/tests/common/explosives.rs"]
mod explosives;

use std::sync::Arc;
use std::time::Duration;

use explosives::*;
use farcall::{Bytes, CallFailed, Kind, Ran};
use farcall_onc::{Client, Server};

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
    /// Returns bytes whose owner panics when it is dropped.
    #[procedure(5)]
    fn bytes(&self, len: u32) -> farcall::Result<Bytes>;
    /// Fails with a cause whose drop panics.
    #[procedure(6)]
    fn fail(&self) -> farcall::Result<()>;
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

fn served() -> (Server, [MineClient; 2]) {
    // With one worker, the test notices if a thread is lost.
    let server = Server::builder().program::<dyn Mine>(Arc::new(Mines)).workers(1);
    let server = server.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let addresses = [format!("tcp://{}", server.tcp().unwrap()), format!("udp://{}", server.udp().unwrap())];
    let clients = addresses
        .map(|address| Client::connect(&address).unwrap().bind::<dyn Mine>().within(Duration::from_secs(20)));
    (server, clients)
}

#[test]
fn whatever_panics_in_a_server_the_next_call_is_served() {
    let (_server, clients) = served();
    for mine in clients {
        for _ in 0..4 {
            mine.explode().unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.give(EXPLODES_WHEN_ENCODED).unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.take(Fragile(EXPLODES_WHEN_DECODED)).unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            mine.fail().unwrap_err();
            assert_eq!(mine.ping().unwrap(), 7);
            for len in [10, 60_000] {
                // Short results are copied, and their owner is dropped where the procedure runs.
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
            caught(|| drop(mine.give(EXPLODES_WHEN_DECODED)));
            caught(|| drop(mine.start().give(EXPLODES_WHEN_DECODED).wait()));
            caught(|| drop(mine.take(Fragile(EXPLODES_WHEN_ENCODED))));
            assert_eq!(mine.ping().unwrap(), 7);
            awaited_with_a_waker_that_panics(|| mine.start().ping());
            assert_eq!(mine.start().ping().wait().unwrap(), 7);
        }
    }
}
