//! Tests that of several servers which export a name, the one that answers first is bound, and that silent
//! servers delay nobody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farcall::Runtime;
use farcall::names::{Entry, Registration};
use farcall_sim::{Faults, Process, Sim, check, sim};

#[farcall::interface]
trait Named {
    #[idempotent]
    fn name(&self) -> farcall::Result<String>;
}

struct Server(&'static str);

impl Named for Server {
    fn name(&self) -> farcall::Result<String> {
        Ok(self.0.to_owned())
    }
}

const NEAR: Duration = Duration::from_millis(1);
const FARTHER: Duration = Duration::from_millis(5);
const FAR: Duration = Duration::from_millis(20);

/// Starts servers, each with its name and its distance from the test, in an order that the seed draws. What
/// they are called in the registry is drawn too, because it lists them by name.
fn serve<const N: usize>(sim: &Sim, servers: [(&'static str, Duration); N]) -> [Process; N] {
    let mut places: [usize; N] = std::array::from_fn(|place| place);
    let shuffled = |places: &mut [usize; N]| {
        (1..N).for_each(|place| places.swap(place, sim.below(place as u64 + 1) as usize));
        *places
    };
    let (order, instances) = (shuffled(&mut places), shuffled(&mut places));
    let mut started: Vec<(usize, Process)> = Vec::new();
    for which in order {
        let (name, distance) = servers[which];
        let export = format!("Named/{}", instances[which]);
        let process =
            sim.server(name, move || farcall::export::<dyn Named>(&export, Arc::new(Server(name)))?.wait());
        let faults = Faults { delay: distance, jitter: distance / 2, ..Faults::none() };
        sim.faults_between(&sim.test(), &process, faults);
        sim.faults_between(&process, &sim.test(), faults);
        started.push((which, process));
    }
    started.sort_by_key(|(which, _)| *which);
    started.into_iter().map(|(_, process)| process).collect::<Vec<_>>().try_into().expect("all have started")
}

#[test]
fn the_nearer_of_two_servers_is_bound() {
    check(200, |sim| -> farcall::Result<()> {
        serve(sim, [("near", NEAR), ("far", FAR)]);
        let began = sim::now();
        let named = farcall::import::<dyn Named>("Named")?;
        assert!(sim::now() - began < FAR, "the far server was waited for");
        assert_eq!(named.name()?, "near");
        Ok(())
    });
}

#[test]
fn the_nearest_server_that_lives_is_bound() {
    check(200, |sim| -> farcall::Result<()> {
        let [nearest, ..] = serve(sim, [("nearest", NEAR / 2), ("far", FAR), ("near", NEAR)]);
        nearest.crash();
        assert_eq!(farcall::import::<dyn Named>("Named")?.name()?, "near");
        Ok(())
    });
}

#[test]
fn when_the_bound_server_dies_the_nearest_of_the_others_is_bound() {
    check(200, |sim| -> farcall::Result<()> {
        let [near, ..] = serve(sim, [("near", NEAR), ("far", FAR), ("farther", FARTHER)]);
        let named = farcall::import::<dyn Named>("Named")?;
        assert_eq!(named.name()?, "near");
        near.crash();
        // Whether the call waits or is started, it binds again, because it may run twice.
        let again = if sim.below(2) == 0 { named.name()? } else { named.start().name().wait()? };
        assert_eq!(again, "farther");
        Ok(())
    });
}

/// An address of this machine at which no server listens. It is of another kind than the addresses of the
/// simulated network, and is asked before them.
const SILENT: &str = "127.0.0.1:9";
/// The longest time that an import takes if it waits for no silent server.
const SOON: Duration = Duration::from_millis(200);

fn publish_silent() -> farcall::Result<Registration> {
    let (name, instance) = ("Named".parse().expect("a name"), "silent".parse().expect("a name"));
    let address = format!("udp://{SILENT}").parse().expect("an address");
    let registry = Runtime::current()?.registry().clone();
    Ok(registry.publish(&Entry::new(name, instance, address, 9)).expect("it is published"))
}

#[test]
fn a_silent_server_of_this_machine_delays_no_import() {
    check(200, |sim| -> farcall::Result<()> {
        serve(sim, [("near", NEAR), ("far", FAR)]);
        let _silent = publish_silent()?;
        let began = sim::now();
        let named = farcall::import::<dyn Named>("Named")?;
        assert!(sim::now() - began < SOON, "the silent server was waited for");
        assert_eq!(named.name()?, "near");
        Ok(())
    });
}

/// Starts a server that publishes a silent address before its own.
fn serve_at_both(sim: &Sim) {
    sim.server("both", || {
        let [probe, both] = ["probe", "both"].map(|name| Arc::new(Server(name)));
        let ip = farcall::export::<dyn Named>("Probe", probe)?.address().ip();
        let silent = SILENT.parse().expect("an address");
        let runtime = Runtime::builder().advertise(silent).advertise(SocketAddr::new(ip, 0)).build()?;
        runtime.export::<dyn Named>("Named/both", both)?.wait()
    });
}

#[test]
fn a_silent_address_of_a_server_delays_no_import_of_it() {
    check(100, |sim| -> farcall::Result<()> {
        serve_at_both(sim);
        let began = sim::now();
        let named = match sim.below(2) {
            0 => farcall::import::<dyn Named>("Named/both")?.name()?,
            _ => {
                farcall::import_each::<dyn Named>(&["Named/both"])?
                    .multi()
                    .name()
                    .first()
                    .expect("it answers")
                    .1
            }
        };
        assert!(sim::now() - began < SOON, "the silent address was waited for");
        assert_eq!(named, "both");
        Ok(())
    });
}

#[test]
fn a_silent_address_of_a_server_delays_no_started_call_that_is_bound_first() {
    check(100, |sim| -> farcall::Result<()> {
        // There is no such server yet, so the call binds.
        let group = farcall::import_each::<dyn Named>(&["Named/both"])?;
        serve_at_both(sim);
        let began = sim::now();
        let mut started = group.multi().name().start();
        assert_eq!(started.wait_next().expect("one is called").result?, "both");
        assert!(sim::now() - began < SOON, "the silent address was waited for");
        Ok(())
    });
}
