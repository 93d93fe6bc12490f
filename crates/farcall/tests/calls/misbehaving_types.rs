//! Tests of users' types whose encoding or decoding panics or makes calls.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::runtime;
use farcall::xdr::{self, Decode, Decoder, Encode, Encoder, Schema, schema};
use farcall::{CallFailed, Kind, Ran};

/// A number whose encoding or decoding misbehaves for the values below.
#[derive(Debug)]
pub struct Odd(u32);

const PANICS_TO_ENCODE: u32 = 1;
const PANICS_TO_DECODE: u32 = 2;
const CALLS_TO_DECODE: u32 = 3;

thread_local! {
    static CLIENT: RefCell<Option<OddsClient>> = const { RefCell::new(None) };
}

impl Encode for Odd {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        if self.0 == PANICS_TO_ENCODE {
            std::panic::resume_unwind(Box::new("this value panics"));
        }
        self.0.encode(e)
    }
}

impl<'a> Decode<'a> for Odd {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        let number = u32::decode(d)?;
        if number == PANICS_TO_DECODE {
            std::panic::resume_unwind(Box::new("this value panics"));
        }
        let client = CLIENT.with_borrow(|client| client.clone());
        if let (CALLS_TO_DECODE, Some(client)) = (number, client) {
            // A thread that receives for others may not wait here: its call fails. Any other thread may wait.
            if let Err(why) = client.calls() {
                assert_eq!(told::<u64>(Err(why)), (Kind::Local, Ran::No));
            }
            client.start().calls().detach();
        }
        Ok(Odd(number))
    }
}

impl Schema for Odd {
    fn schema(types: &mut schema::Types) -> schema::Type {
        u32::schema(types)
    }
}

#[farcall::interface]
pub trait Odds {
    fn take(&self, odd: Odd) -> farcall::Result<()>;
    fn give(&self, number: u32) -> farcall::Result<Odd>;
    fn calls(&self) -> farcall::Result<u64>;
}

#[derive(Default)]
struct Server(AtomicU64);

impl Odds for Server {
    fn take(&self, _: Odd) -> farcall::Result<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn give(&self, number: u32) -> farcall::Result<Odd> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Odd(number))
    }

    fn calls(&self) -> farcall::Result<u64> {
        Ok(self.0.load(Ordering::SeqCst))
    }
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
}

fn told<T: std::fmt::Debug>(result: farcall::Result<T>) -> (Kind, Ran) {
    let why = CallFailed::from(result.unwrap_err());
    (why.kind(), why.ran())
}

#[test]
fn a_panic_before_the_procedure_says_that_it_did_not_run() {
    let runtime = runtime();
    let _export = runtime.export::<dyn Odds>("Odds", Arc::new(Server::default())).unwrap();
    let odds = runtime.import::<dyn Odds>("Odds").unwrap();
    for _ in 0..20 {
        assert_eq!(told(odds.take(Odd(PANICS_TO_DECODE))), (Kind::Panicked, Ran::No));
        assert_eq!(odds.calls().unwrap(), 0);
    }
    assert_eq!(told(odds.give(PANICS_TO_ENCODE)), (Kind::Panicked, Ran::Yes));
    assert_eq!(odds.calls().unwrap(), 1);
}

#[test]
fn a_panic_of_a_callers_type_delays_no_other_call() {
    let runtime = runtime();
    let _export = runtime.export::<dyn Odds>("Odds", Arc::new(Server::default())).unwrap();
    let odds = runtime.import::<dyn Odds>("Odds").unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let odds = odds.clone();
            scope.spawn(move || {
                for round in 0..200 {
                    match (number + round) % 4 {
                        0 => assert!(panics(|| odds.take(Odd(PANICS_TO_ENCODE)))),
                        1 => assert!(panics(|| odds.give(PANICS_TO_DECODE))),
                        2 => assert!(panics(|| odds.start().give(PANICS_TO_DECODE).wait())),
                        _ => assert_eq!(odds.give(7).unwrap().0, 7),
                    }
                }
            });
        }
    });
}

#[test]
fn a_decoding_that_makes_calls_delays_no_other_call() {
    let runtime = runtime();
    let server = Arc::new(Server::default());
    let _export = runtime.export::<dyn Odds>("Odds", server.clone()).unwrap();
    let odds = runtime.import::<dyn Odds>("Odds").unwrap();
    CLIENT.set(Some(odds.clone()));
    assert_eq!(odds.give(CALLS_TO_DECODE).unwrap().0, CALLS_TO_DECODE);
    assert_eq!(odds.start().give(CALLS_TO_DECODE).wait().unwrap().0, CALLS_TO_DECODE);
    CLIENT.set(None);
    assert_eq!(odds.calls().unwrap(), 2);
}
