//! Tests that a client which keeps state at its server is told when another server has taken the server's
//! place.

use std::sync::{Arc, Mutex};

use farcall::names::Memory;
use farcall::{Export, Kind, Ran, Restart, Runtime};

#[farcall::interface]
pub trait Lease {
    #[idempotent]
    fn holds(&self) -> farcall::Result<u32>;
}

struct Server(u32);

impl Lease for Server {
    fn holds(&self) -> farcall::Result<u32> {
        Ok(self.0)
    }
}

fn runtime(names: &Memory) -> Runtime {
    Runtime::builder().registry(names.clone()).build().unwrap()
}

/// Exports a server from a runtime of its own. Dropping the result has the effect of the process's death.
fn server(names: &Memory, number: u32) -> (Export, Runtime) {
    let runtime = runtime(names);
    (runtime.export::<dyn Lease>("Lease/a", Arc::new(Server(number))).unwrap(), runtime)
}

fn kind(result: &farcall::Result<u32>) -> Option<(Kind, Ran)> {
    result.as_ref().err()?.call_failed().map(|why| (why.kind(), why.ran()))
}

#[test]
fn every_call_fails_from_a_restart_until_the_application_accepts_it() {
    let names = Memory::new();
    let (here, first) = (runtime(&names), server(&names, 1));
    let lease = here.import::<dyn Lease>("Lease/a").unwrap();
    let told: Arc<Mutex<Vec<Restart>>> = Arc::default();
    let tells = told.clone();
    lease.binding().on_restart(move |restart| tells.lock().unwrap().push(restart)).unwrap();
    assert!(lease.binding().on_restart(|_| ()).is_err(), "an import can have only one hook");
    assert_eq!(lease.holds(), Ok(1));
    let was = first.0.address();
    drop(first);
    let second = server(&names, 2);
    // The call is idempotent, and could be repeated at the second server.
    let failed = lease.holds();
    assert!(kind(&failed).is_some(), "{failed:?}");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(kind(&lease.clone().holds()), Some((Kind::ServerRestarted, Ran::No)));
                    let started = lease.start().holds().wait();
                    assert_eq!(kind(&started), Some((Kind::ServerRestarted, Ran::No)));
                }
            });
        }
    });
    let restarts = told.lock().unwrap().clone();
    assert_eq!(restarts.iter().map(|r| (r.was(), r.is())).collect::<Vec<_>>(), [(was, second.0.address())]);
    restarts[0].accept();
    assert_eq!((lease.holds(), lease.start().holds().wait()), (Ok(2), Ok(2)));
    // Calls also fail after the next restart, until the application accepts that one.
    drop(second);
    let _third = server(&names, 3);
    assert!(lease.holds().is_err() && lease.holds().is_err());
    restarts[0].accept();
    let failed = lease.holds();
    assert_eq!(
        kind(&failed),
        Some((Kind::ServerRestarted, Ran::No)),
        "the application has accepted the second server, not the third"
    );
    told.lock().unwrap()[1].accept();
    assert_eq!(lease.holds(), Ok(3));
}

#[test]
fn a_second_hook_is_refused_and_changes_nothing() {
    let names = Memory::new();
    let (here, first) = (runtime(&names), server(&names, 1));
    let lease = here.import::<dyn Lease>("Lease/a").unwrap();
    let told: Arc<Mutex<Vec<Restart>>> = Arc::default();
    let tells = told.clone();
    lease.binding().on_restart(move |restart| tells.lock().unwrap().push(restart)).unwrap();
    assert_eq!(lease.holds(), Ok(1));
    drop(first);
    // Now the import is bound to no server.
    assert!(lease.holds().is_err());
    assert!(lease.binding().on_restart(|_| ()).is_err());
    let _second = server(&names, 2);
    assert_eq!(kind(&lease.holds()), Some((Kind::ServerRestarted, Ran::No)));
    assert_eq!(told.lock().unwrap().len(), 1);
}

#[test]
fn without_a_hook_calls_go_to_the_server_that_has_the_name_now() {
    let names = Memory::new();
    let (here, first) = (runtime(&names), server(&names, 1));
    let lease = here.import::<dyn Lease>("Lease/a").unwrap();
    assert_eq!(lease.holds(), Ok(1));
    drop(first);
    let _second = server(&names, 2);
    assert_eq!(lease.holds(), Ok(2));
}
