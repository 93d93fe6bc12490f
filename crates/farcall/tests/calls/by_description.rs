//! Tests of calls without the interface's source, by the description that the exporter gives of itself.

use std::sync::Arc;

use crate::common::runtime;
use farcall::dynamic::{Dynamic, Encoded, Instances, Pinger, STREAM, describe};
use farcall::stub::Interface;
use farcall::{Calls, Error, Kind, Ran, xdr};

/// Keeps values.
#[farcall::interface]
pub trait Store {
    /// Returns the value under `key`.
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
}

#[derive(Debug, farcall::Xdr)]
pub struct NoSuchKey;

struct Server;

impl Store for Server {
    fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey> {
        if key != "answer" {
            return Err(NoSuchKey.into());
        }
        Ok(42)
    }
}

#[test]
fn an_exporter_describes_itself() {
    let runtime = runtime();
    let _export = runtime.export::<dyn Store>("Store/one", Arc::new(Server)).unwrap();
    let store = Dynamic::import(&runtime, "Store").unwrap();
    assert_eq!(store.interface(), <dyn Store>::interface());
    assert_eq!(store.description().farcall, env!("CARGO_PKG_VERSION"));
    assert_eq!(store.description().wire, [1]);
    assert_eq!(store.description(), &describe(&runtime, "Store/one").unwrap());

    let get = store.interface().by_name("get").unwrap();
    assert_eq!(store.call(get, &xdr::to_vec("answer").unwrap()).unwrap(), xdr::to_vec(&42u64).unwrap());
    let exception = store.call(get, &xdr::to_vec("question").unwrap()).unwrap_err();
    assert_eq!(exception, Error::Declared(Vec::new()));
    let truncated = store.call(get, &[0, 0, 0, 9]).unwrap_err();
    let failed = truncated.call_failed().unwrap();
    assert_eq!((failed.kind(), failed.ran()), (Kind::BadArguments, Ran::No));
}

#[test]
fn calls_by_description_are_started_and_collected() {
    let runtime = runtime();
    let _export = runtime.export::<dyn Store>("Store/one", Arc::new(Server)).unwrap();
    let store = Dynamic::import(&runtime, "Store").unwrap();
    let get = store.interface().by_name("get").unwrap();
    let (right, wrong) = (xdr::to_vec("answer").unwrap(), xdr::to_vec("question").unwrap());

    let mut calls = Calls::new();
    for n in 0..20 {
        calls.add(n, store.start(get, if n % 2 == 0 { &right } else { &wrong }));
    }
    calls.add(20, store.start(get, &[0, 0, 0, 9]));
    let mut ended = 0;
    while let Some((n, result)) = calls.wait() {
        ended += 1;
        match n {
            20 => {
                let why = result.unwrap_err();
                let failed = why.call_failed().unwrap();
                assert_eq!((failed.kind(), failed.ran()), (Kind::BadArguments, Ran::No));
            }
            n if n % 2 == 0 => assert_eq!(result.unwrap().0, xdr::to_vec(&42u64).unwrap()),
            _ => assert_eq!(result.unwrap_err(), Error::Declared(Encoded(Vec::new()))),
        }
    }
    assert_eq!(ended, 21);
}

#[test]
fn calls_by_description_are_balanced_over_the_instances() {
    #[farcall::interface]
    trait Which {
        fn which(&self) -> farcall::Result<u32>;
    }
    struct Server(u32);
    impl Which for Server {
        fn which(&self) -> farcall::Result<u32> {
            Ok(self.0)
        }
    }
    let runtime = runtime();
    let export =
        |which: u32| runtime.export::<dyn Which>(&format!("Which/{which}"), Arc::new(Server(which))).unwrap();
    let mut exports = vec![export(0), export(1)];
    let all = Instances::import(&runtime, "Which").unwrap().balanced();
    let which = all.interface().by_name("which").unwrap();
    let reached = || {
        let results = (0..100).map(|_| all.start(which, &[]).wait().unwrap().0);
        results.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(reached(), 2);
    drop(exports.remove(0));
    assert_eq!(reached(), 1);
}

#[test]
fn a_procedure_with_a_stream_is_not_started() {
    #[farcall::interface]
    trait Numbers {
        fn below(&self, limit: u64) -> farcall::Result<farcall::Stream<u64>>;
        fn sum(&self, numbers: farcall::Stream<u64>) -> farcall::Result<u64>;
    }
    struct Server;
    impl Numbers for Server {
        fn below(&self, _: u64) -> farcall::Result<farcall::Stream<u64>> {
            panic!("the call does not run")
        }
        fn sum(&self, _: farcall::Stream<u64>) -> farcall::Result<u64> {
            panic!("the call does not run")
        }
    }
    let runtime = runtime();
    let _export = runtime.export::<dyn Numbers>("Numbers", Arc::new(Server)).unwrap();
    let numbers = Dynamic::import(&runtime, "Numbers").unwrap();
    for (name, arguments) in [("below", xdr::to_vec(&1u64).unwrap()), ("sum", STREAM.to_vec())] {
        let procedure = numbers.interface().by_name(name).unwrap();
        let why = numbers.start(procedure, &arguments).wait().unwrap_err();
        let failed = why.call_failed().unwrap();
        assert_eq!((failed.kind(), failed.ran()), (Kind::Local, Ran::No), "{name}");
    }
}

#[test]
fn every_exporter_answers_pings() {
    let runtime = runtime();
    let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
    let pinger = Pinger::import(&runtime, "Store").unwrap();
    let (first, second) = (pinger.ping().unwrap(), pinger.ping().unwrap());
    assert_eq!(first.running, 1);
    assert!(first.up <= second.up);
}

#[test]
fn an_exporter_can_refuse_to_describe_itself() {
    let registry = Arc::new(farcall::names::Memory::new());
    let runtime = farcall::Runtime::builder().registry(registry).describe(false).build().unwrap();
    let _export = runtime.export::<dyn Store>("Store", Arc::new(Server)).unwrap();
    let why = describe(&runtime, "Store").unwrap_err();
    assert_eq!((why.call_failed().unwrap().kind(), why.ran()), (Kind::NoSuchProcedure, Ran::No));
    assert!(Pinger::import(&runtime, "Store").unwrap().ping().is_ok());
}
