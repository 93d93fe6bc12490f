//! Tests callbacks in a network that loses and delays packets: each client with a copy learns when the copy
//! is stale, and dead clients are forgotten.

use std::sync::Arc;
use std::time::Duration;

use farcall::Bytes;
use farcall_many_servers::callback::{Files, Server, Workstation};
use farcall_sim::{Process, Sim, check, sim};

const PATIENCE: Duration = Duration::from_secs(2);

fn serve(sim: &Sim) -> Arc<Server> {
    let server = Arc::new(Server::new(PATIENCE));
    let served = server.clone();
    sim.server("files", move || farcall::export::<dyn Files>("Files/server", served.clone())?.wait());
    server
}

fn client(name: &str) -> farcall::Result<Workstation> {
    Workstation::new(farcall::import::<dyn Files>("Files/server")?, name)
}

fn number(contents: &Bytes) -> u64 {
    contents.as_ref().try_into().map_or(0, u64::from_be_bytes)
}

fn contents(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// Readers that are alive and connected never read a version again after the call that replaced it has
/// returned.
#[test]
fn nobody_reads_a_copy_that_is_stale() {
    check(100, |sim| {
        let server = serve(sim);
        let writer = client("Copies/writer")?;
        writer.write("news", contents(1))?;
        // The network delays and repeats packets, but loses none, so no client is forgotten.
        let delay = Duration::from_millis(sim.below(20));
        sim.faults(farcall_sim::Faults {
            delay,
            jitter: 2 * delay,
            duplication: 0.2,
            ..farcall_sim::Faults::none()
        });
        let stored = Arc::new(std::sync::atomic::AtomicU64::new(1));
        for reader in 0..4 {
            let stored = stored.clone();
            sim.process(&format!("reader {reader}"), move || {
                let files = client(&format!("Copies/r{reader}"))?;
                for _ in 0..20 {
                    let least = stored.load(std::sync::atomic::Ordering::SeqCst);
                    let read =
                        number(&files.read("news").map_err(|why| why.map_declared(|_| unreachable!()))?);
                    assert!(read >= least, "{read} was read after {least} had been stored");
                    sim::sleep(Duration::from_millis(sim::below(50)));
                }
                // The client stays so that it can be notified.
                sim::sleep(Duration::from_secs(10));
                Ok::<(), farcall::Error>(())
            });
        }
        for version in 2..10 {
            sim.sleep(Duration::from_millis(sim.below(150)));
            writer.write("news", contents(version))?;
            stored.store(version, std::sync::atomic::Ordering::SeqCst);
        }
        sim.run();
        assert!(server.promises() <= 5);
        Ok::<(), farcall::Error>(())
    });
}

#[test]
fn the_dead_cost_one_patience_and_are_forgotten() {
    check(20, |sim| {
        let server = serve(sim);
        let writer = client("Copies/writer")?;
        for path in ["news", "rumours"] {
            writer.write(path, contents(1))?;
        }
        let readers: Vec<Process> = (0..50)
            .map(|reader| {
                sim.server(&format!("reader {reader}"), move || {
                    let files = client(&format!("Copies/r{reader}"))?;
                    for path in ["news", "rumours"] {
                        files.read(path).map_err(|why| why.map_declared(|_| unreachable!()))?;
                    }
                    loop {
                        sim::sleep(Duration::from_secs(600));
                    }
                    #[expect(unreachable_code, reason = "says what the result is")]
                    Ok::<(), farcall::Error>(())
                })
            })
            .collect();
        while server.promises() < 100 {
            sim.sleep(Duration::from_millis(1));
        }
        readers.iter().take(20).for_each(Process::crash);
        let timed = |path: &str| {
            let before = sim::now();
            writer.write(path, contents(2)).map(|()| sim::now() - before)
        };
        // Twenty dead clients cost as much as one, and only the first time.
        let (first, second) = (timed("news")?, timed("rumours")?);
        assert!((PATIENCE..PATIENCE + Duration::from_millis(100)).contains(&first), "{first:?}");
        assert!(second < Duration::from_millis(100), "{second:?}");
        assert_eq!(server.promises(), 0);
        Ok::<(), farcall::Error>(())
    });
}
