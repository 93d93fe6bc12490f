//! The users' simulation, as its users meet it.

use std::sync::Arc;
use std::time::Duration;

use farcall_sim::sim;
use farcall_sim::{Faults, check, replay};

#[farcall::interface]
trait Echo {
    fn echo(&self, n: u64) -> farcall::Result<u64>;
    fn slowly(&self, n: u64) -> farcall::Result<u64>;
}

struct Server;

impl Echo for Server {
    fn echo(&self, n: u64) -> farcall::Result<u64> {
        Ok(n)
    }

    fn slowly(&self, n: u64) -> farcall::Result<u64> {
        sim::sleep(Duration::from_secs(n));
        Ok(n)
    }
}

fn serve() -> farcall::Result<()> {
    farcall::export::<dyn Echo>("Echo", Arc::new(Server))?.wait()
}

#[test]
fn unchanged_export_and_import_meet_in_the_simulated_network() {
    check(5, |sim| -> farcall::Result<()> {
        sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        for n in 0..100 {
            assert_eq!(echo.echo(n)?, n);
        }
        Ok(())
    });
}

#[test]
fn a_seed_is_one_run() {
    let test = |sim: &farcall_sim::Sim| -> farcall::Result<()> {
        sim.random_faults();
        sim.faults(Faults { late: 0.05, ..sim.random_faults() });
        let server = sim.server("server", serve);
        let clients = [1u64, 2, 3].map(|client| {
            sim.process(&format!("client {client}"), move || -> farcall::Result<()> {
                let echo = loop {
                    match farcall::import::<dyn Echo>("Echo") {
                        Ok(echo) => break echo,
                        Err(_) => sim::sleep(Duration::from_secs(1)),
                    }
                };
                for n in 0..20 {
                    let started = echo.start().echo(n);
                    let _ = if n % 5 == client { echo.slowly(2) } else { echo.echo(n) };
                    let _ = if n % 2 == 0 { started.wait() } else { sim::block_on(started) };
                    sim::sleep(Duration::from_millis(sim::below(300)));
                }
                Ok(())
            })
        });
        for _ in 0..3 {
            sim.sleep(Duration::from_millis(sim.below(3000)));
            clients[1].pause();
            server.crash();
            sim.sleep(Duration::from_millis(sim.below(3000)));
            server.restart();
            clients[1].resume();
        }
        Ok(())
    };
    for seed in 0..20 {
        let (one, two) = (replay(seed, test), replay(seed, test));
        assert_eq!(one, two);
        assert!(one.is_ok(), "{}", one.unwrap_err());
    }
    assert_ne!(replay(0, test).unwrap().trace_hash, replay(1, test).unwrap().trace_hash);
}

#[test]
fn time_is_virtual() {
    check(3, |sim| -> farcall::Result<()> {
        sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        let before = sim::now();
        assert_eq!(echo.slowly(600)?, 600);
        let took = sim::now() - before;
        assert!(took >= Duration::from_secs(600) && took < Duration::from_secs(601), "{took:?}");
        Ok(())
    });
}

/// A thread that became the receiver after another forgot the timers of its own call: when the
/// network had lost that, it waited for ever.
#[test]
fn threads_of_one_process_share_a_socket_under_loss() {
    check(30, |sim| -> farcall::Result<()> {
        sim.faults(Faults { loss: 0.2, ..Faults::none() });
        sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let echo = echo.clone();
                sim::spawn(move || (0..10).for_each(|n| assert_eq!(echo.echo(n).unwrap(), n)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join());
        Ok(())
    });
}
