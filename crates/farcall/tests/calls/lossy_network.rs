//! Many threads call, start, await, cancel and drop over one socket, through a forwarder that loses and
//! repeats datagrams. Each call must end, and its outcome must say truly whether the procedure ran.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::lossy::{Chance, wire};
use crate::common::{block_on, builder, runtime};
use farcall::{Kind, Ran};

#[farcall::interface]
pub trait Count {
    /// Counts the call with this number, and returns this many bytes.
    fn count(&self, number: u32, bytes: u32) -> farcall::Result<Vec<u8>>;
}

const THREADS: u32 = 60;
const CALLS: u32 = 30;

struct Server(Vec<AtomicU64>);

impl Count for Server {
    fn count(&self, number: u32, bytes: u32) -> farcall::Result<Vec<u8>> {
        self.0[number as usize].fetch_add(1, Ordering::SeqCst);
        Ok(vec![0; bytes as usize])
    }
}

/// Makes a call in a random way. Returns the least and the greatest number of times that it may have run.
fn make(count: &CountClient, number: u32, chance: &mut Chance) -> (u64, u64) {
    let bytes = if chance.below(8) == 0 { 20_000 } else { 8 };
    let outcome = match chance.below(8) {
        0..3 => count.count(number, bytes),
        3 => count.start().count(number, bytes).wait(),
        4 => block_on(count.start().count(number, bytes)),
        5 => {
            let mut call = count.start().count(number, bytes);
            call.cancel();
            call.wait()
        }
        6 => {
            drop(count.start().count(number, bytes));
            return (0, 1);
        }
        _ => count.within(Duration::from_micros(chance.below(2000))).count(number, bytes),
    };
    match outcome {
        Ok(result) => {
            assert_eq!(result.len(), bytes as usize);
            (1, 1)
        }
        Err(why) => {
            let kind = why.call_failed().map(farcall::CallFailed::kind);
            assert!(matches!(kind, Some(Kind::Cancelled | Kind::Deadline)), "{why}");
            match why.ran() {
                Ran::No => (0, 0),
                Ran::Yes => (1, 1),
                _ => (0, 1),
            }
        }
    }
}

#[test]
fn every_call_of_many_threads_ends_and_reports_truly_whether_it_ran() {
    let (exporter, caller) = (builder().open().build().unwrap(), runtime());
    let numbers = (0..THREADS * CALLS).map(|_| AtomicU64::new(0)).collect();
    let server = Arc::new(Server(numbers));
    let export = exporter.export::<dyn Count>("Count/one", server.clone()).unwrap();
    let count = caller.import::<dyn Count>(&format!("udp://{}/Count", wire(export.address()))).unwrap();
    let told = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (count, told) = (&count, &told);
            scope.spawn(move || {
                let mut chance = Chance(0x9e37_79b9 + u64::from(thread));
                for number in thread * CALLS..(thread + 1) * CALLS {
                    let may = make(count, number, &mut chance);
                    told.lock().unwrap().push((number, may));
                }
            });
        }
    });
    assert!(exporter.drain(Duration::from_secs(1000)));
    for (number, (least, most)) in told.into_inner().unwrap() {
        let ran = server.0[number as usize].load(Ordering::SeqCst);
        assert!((least..=most).contains(&ran), "call {number} ran {ran} times, not {least} to {most}");
    }
}
