//! Tests of calls over real sockets: results, exceptions, many callers, and started calls.

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{block_on, runtime};
use farcall::{Error, Kind, Ran};

#[farcall::interface]
pub trait Sums {
    fn add(&self, a: u64, b: u64) -> farcall::Result<u64, Overflow>;
    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
    fn count(&self) -> farcall::Result<u64>;
}

#[derive(Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Overflow {
    by: u64,
}

#[derive(Default)]
struct Server {
    calls: AtomicU64,
}

impl Sums for Server {
    fn add(&self, a: u64, b: u64) -> farcall::Result<u64, Overflow> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        a.checked_add(b).ok_or(Overflow { by: a.wrapping_add(b) }.into())
    }

    fn reverse(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(bytes.iter().rev().copied().collect())
    }

    fn count(&self) -> farcall::Result<u64> {
        Ok(self.calls.load(Ordering::Relaxed))
    }
}

fn sums() -> (farcall::Export, SumsClient) {
    let runtime = runtime();
    let export = runtime.export::<dyn Sums>("Sums", Arc::new(Server::default())).unwrap();
    let client = runtime.import::<dyn Sums>("Sums").unwrap();
    (export, client)
}

#[test]
fn results_and_exceptions_cross() {
    let (_export, sums) = sums();
    assert_eq!(sums.add(2, 3).unwrap(), 5);
    assert_eq!(sums.add(u64::MAX, 3).unwrap_err(), Error::Declared(Overflow { by: 2 }));
    assert_eq!(sums.reverse(b"abc").unwrap(), b"cba");
    for _ in 0..100 {
        sums.add(1, 1).unwrap();
    }
    assert_eq!(sums.count().unwrap(), 102);
}

#[test]
fn large_arguments_and_results_cross() {
    let (_export, sums) = sums();
    for len in [0, 1, 1_000, 1_300, 10_000, 1_000_000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
        let expected: Vec<u8> = bytes.iter().rev().copied().collect();
        assert!(sums.reverse(&bytes).unwrap() == expected, "{len} bytes");
    }
}

#[test]
fn sixty_four_threads_share_one_stub() {
    let (_export, sums) = sums();
    std::thread::scope(|scope| {
        for thread in 0..64u64 {
            let sums = &sums;
            scope.spawn(move || {
                for call in 0..50 {
                    assert_eq!(sums.add(thread * 1000, call).unwrap(), thread * 1000 + call);
                }
            });
        }
    });
    assert_eq!(sums.count().unwrap(), 64 * 50);
}

#[test]
fn started_calls_are_waited_for_in_any_order() {
    let (_export, sums) = sums();
    let mut calls: Vec<_> = (0..300u64).map(|i| (i, sums.start().add(i, 1))).collect();
    calls.reverse();
    for (i, call) in calls {
        assert_eq!(call.wait().unwrap(), i + 1);
    }
}

#[test]
fn started_calls_are_awaited() {
    let (_export, sums) = sums();
    let total = block_on(async {
        let calls: Vec<_> = (0..100u64).map(|i| sums.start().add(i, 0)).collect();
        let mut total = 0;
        for call in calls {
            total += call.await.unwrap();
        }
        total
    });
    assert_eq!(total, (0..100u64).sum::<u64>());
    let overflow = block_on(async { sums.start().add(u64::MAX, 1).await });
    assert_eq!(overflow.unwrap_err(), Error::Declared(Overflow { by: 0 }));
}

#[test]
fn blocking_and_started_calls_mix() {
    let (_export, sums) = sums();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let sums = &sums;
            scope.spawn(move || {
                for call in 0..100 {
                    let started = sums.start().add(thread, call);
                    assert_eq!(sums.add(call, call).unwrap(), 2 * call);
                    assert_eq!(started.wait().unwrap(), thread + call);
                }
            });
        }
    });
}

#[test]
fn more_started_calls_than_the_bound_are_overloaded_and_did_not_run() {
    let (_export, sums) = sums();
    let calls: Vec<_> = (0..20_000u64).map(|i| sums.start().add(i, 0)).collect();
    let mut ran = 0;
    for call in calls {
        match call.wait() {
            Ok(_) => ran += 1,
            Err(Error::CallFailed(why)) => {
                assert_eq!((why.kind(), why.ran()), (Kind::Overloaded, Ran::No), "{why}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(sums.count().unwrap(), ran);
}

#[test]
fn detached_calls_run_although_no_thread_waits_for_them() {
    let (_export, sums) = sums();
    for i in 0..10 {
        sums.start().add(i, i).detach();
    }
    // Each call is sent before `start` returns, so `count` comes after them.
    while sums.count().unwrap() < 10 {}
}

#[test]
fn calls_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return common::skip("this machine has no IPv6");
    }
    let runtime = common::builder().address("[::1]:0".parse().unwrap()).build().unwrap();
    let export = runtime.export::<dyn Sums>("Sums/six", Arc::new(Server::default())).unwrap();
    let sums = runtime.import::<dyn Sums>(&export.url()).unwrap();
    assert_eq!(sums.add(2, 3).unwrap(), 5);
}

#[test]
fn a_server_of_both_families_is_called_by_either() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return common::skip("this machine has no IPv6");
    }
    let runtime = common::builder().address("[::]:0".parse().unwrap()).open().build().unwrap();
    let export = runtime.export::<dyn Sums>("Sums/both", Arc::new(Server::default())).unwrap();
    let port = export.address().port();
    for host in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"] {
        // Each conversation makes a short call, and one whose arguments and result need several datagrams.
        let sums = common::runtime().import::<dyn Sums>(&format!("udp://{host}:{port}/Sums/both")).unwrap();
        assert_eq!(sums.add(2, 3).unwrap(), 5, "{host}");
        assert_eq!(sums.reverse(&[7; 300_000]).unwrap(), [7; 300_000], "{host}");
    }
}

#[test]
fn calls_work_when_threads_spin_before_they_block() {
    let runtime = common::builder().spin(std::time::Duration::from_micros(50)).build().unwrap();
    let _export = runtime.export::<dyn Sums>("Sums", Arc::new(Server::default())).unwrap();
    let sums = runtime.import::<dyn Sums>("Sums").unwrap();
    for i in 0..100 {
        assert_eq!(sums.add(i, 1).unwrap(), i + 1);
    }
}

#[test]
fn a_second_export_of_a_name_is_refused_and_the_first_stays() {
    let names = farcall::names::Memory::new();
    let [one, other] = [(), ()].map(|()| common::builder().registry(names.clone()).build().unwrap());
    let export = one.export::<dyn Sums>("Sums/here", Arc::new(Server::default())).unwrap();
    for runtime in [&one, &other] {
        let Error::CallFailed(why) =
            runtime.export::<dyn Sums>("Sums/here", Arc::new(Server::default())).unwrap_err();
        assert_eq!(why.kind(), Kind::Registry, "{why}");
        let sums = other.import::<dyn Sums>("Sums/here").unwrap();
        assert_eq!(sums.add(1, 2).unwrap(), 3);
    }
    drop(export);
    let _again = other.export::<dyn Sums>("Sums/here", Arc::new(Server::default())).unwrap();
}
