//! Tests of calls without the interface's source, by the description that the exporter gives of itself.

use std::sync::Arc;

use crate::common::runtime;
use farcall::dynamic::{Dynamic, Pinger, describe};
use farcall::stub::Interface;
use farcall::{Error, Kind, Ran, xdr};

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
