//! Tests that of several servers which export a name, the one that answers first is bound.

use std::sync::Arc;
use std::time::Duration;

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
