//! Courier's expedited calls on a network that loses, duplicates and delays packets: each call that returns has
//! its own result, each that fails is told truly, and none is executed twice.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{CallFailed, Kind, Ran};
use farcall_courier::expedited;
use farcall_sim::{Faults, check, sim};

#[farcall::interface(program = 1984, version = 1)]
trait Work {
    /// Returns the number of the call.
    #[procedure(1)]
    fn work(&self, number: u32) -> farcall::Result<u32>;
    #[procedure(2)]
    #[idempotent]
    fn again(&self, number: u32) -> farcall::Result<u32>;
}

/// Notes the numbers of the calls that it executes.
struct Worker(Arc<Mutex<Vec<u32>>>);

impl Work for Worker {
    fn work(&self, number: u32) -> farcall::Result<u32> {
        self.0.lock().unwrap().push(number);
        Ok(number)
    }

    fn again(&self, number: u32) -> farcall::Result<u32> {
        self.work(number)
    }
}

const FAULTS: Faults = Faults {
    loss: 0.1,
    duplication: 0.1,
    reordering: 0.1,
    // A copy that comes after the server has forgotten the reply is executed again.
    late: 0.0,
    delay: Duration::from_millis(1),
    jitter: Duration::from_millis(1),
    mtu: 1500,
};

const CALLS: u32 = 4_000;
const TEN_SECONDS: Duration = Duration::from_secs(10);

#[test]
fn expedited_calls_are_told_truly_and_executed_once() {
    check(3, |sim| {
        sim.faults(FAULTS);
        // About a tenth of the calls take ten seconds each.
        sim.limit(Duration::from_secs(100_000));
        let executed = Arc::new(Mutex::new(Vec::new()));
        let address = Arc::new(Mutex::new(None::<SocketAddr>));
        let (served, told) = (executed.clone(), address.clone());
        sim.server("server", move || -> std::io::Result<()> {
            let server = expedited::Server::builder()
                .program::<dyn Work>(Arc::new(Worker(served.clone())))
                .udp("0.0.0.0:0".parse().expect("it is an address"))
                .start()?;
            *told.lock().unwrap() = Some(server.address());
            server.wait();
            Ok(())
        });
        let address = address.lock().unwrap().expect("the server has started");
        let work = expedited::import::<dyn Work>(&format!("udp://{address}")).unwrap();
        let (mut returned, mut idempotent_failed) = (HashSet::new(), 0);
        for number in 0..CALLS {
            let is_idempotent = number % 2 == 1;
            let begun = sim::now();
            let ended = if is_idempotent { work.again(number) } else { work.work(number) };
            match ended {
                Ok(result) => {
                    assert_eq!(result, number, "the result of another call");
                    returned.insert(number);
                }
                Err(why) => {
                    let why = CallFailed::from(why);
                    assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
                    let took = sim::now() - begun;
                    assert!(took >= TEN_SECONDS && took < TEN_SECONDS + Duration::from_secs(1), "{took:?}");
                    idempotent_failed += u32::from(is_idempotent);
                }
            }
        }
        let executed = executed.lock().unwrap();
        let different: HashSet<u32> = executed.iter().copied().collect();
        assert_eq!(different.len(), executed.len(), "a call was executed twice");
        assert!(returned.is_subset(&different), "a call returned that was not executed");
        // Five packets are sent within ten seconds. Each exchange fails with a chance of 0.19 at most, so all
        // with one of 0.0003.
        assert!(idempotent_failed <= 20, "{idempotent_failed} idempotent calls failed");
        assert!(returned.len() >= 3_300, "{} calls returned", returned.len());
    });
}
