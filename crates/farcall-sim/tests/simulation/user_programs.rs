//! Tests the simulation as its users use it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farcall::{Error, Kind, Ran};
use farcall_sim::sim;
use farcall_sim::{Faults, Sim, check, replay};

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

/// Once, a thread that took over receiving forgot the timers of its own call. When the network lost that
/// call, the thread waited for ever.
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

/// Returns why a test fails under seed 0.
fn why<R: farcall_sim::sim::Outcome>(test: impl Fn(&Sim) -> R + Send + Sync + 'static) -> String {
    replay(0, test).expect_err("it fails").why
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let why = why(|sim| {
        sim.process("lonely", serve);
    });
    assert!(why.starts_with("deadlock"), "{why}");
    assert!(why.contains("test: main waits for the processes to end"), "{why}");
    assert!(why.contains("lonely: main waits to be woken"), "{why}");
    assert!(why.contains("lonely: farcall-worker waits for a datagram at 10.0.0.1:40000"), "{why}");
}

#[test]
fn the_limit_of_virtual_time_ends_a_run() {
    let why = why(|sim| {
        sim.limit(Duration::from_secs(10));
        sim.process("sleeper", || {
            for _ in 0..1_000_000 {
                sim::sleep(Duration::from_secs(3));
            }
        });
    });
    assert!(why.contains("10.000000 s, is reached") && why.contains("sleeper: main sleeps"), "{why}");
}

#[test]
fn threads_that_let_no_time_pass_end_a_run() {
    let why = why(|sim| {
        sim.process("eager", || {
            for _ in 0..1_000_000 {
                sim::sleep(Duration::ZERO);
            }
        });
    });
    assert!(why.contains("no virtual time passes"), "{why}");
}

#[test]
fn an_error_of_a_main_function_and_of_the_test_fail_a_run() {
    let of_main = why(|sim| {
        sim.process("client", || farcall::import::<dyn Echo>("Nobody").map(drop));
    });
    assert!(of_main.starts_with("client failed:") && of_main.contains("nobody exports Nobody"), "{of_main}");
    let of_test = why(|_| Err::<(), _>("wrong"));
    assert_eq!(of_test, "test failed: \"wrong\"");
}

struct Panics;

impl Echo for Panics {
    fn echo(&self, n: u64) -> farcall::Result<u64> {
        panic!("cannot echo {n}")
    }

    fn slowly(&self, _: u64) -> farcall::Result<u64> {
        sim::crash()
    }
}

fn serve_panics() -> farcall::Result<()> {
    farcall::export::<dyn Echo>("Echo/panics", Arc::new(Panics))?.wait()
}

#[test]
fn a_panic_in_a_procedure_fails_a_run_unless_it_is_allowed() {
    let test = |allow: bool| {
        move |sim: &Sim| -> farcall::Result<()> {
            if allow {
                sim.allow_panics();
            }
            let server = sim.server("server", serve_panics);
            let echo = farcall::import::<dyn Echo>("Echo")?;
            let Err(Error::CallFailed(failed)) = echo.echo(7) else { panic!("it cannot succeed") };
            assert_eq!(failed.ran(), Ran::Yes, "{failed}");
            assert!(server.is_running());
            Ok(())
        }
    };
    let why = why(test(false));
    assert!(why.contains("server: farcall-worker panicked at"), "{why}");
    assert!(why.ends_with("cannot echo 7"), "{why}");
    check(3, test(true));
}

#[test]
fn a_crash_in_a_procedure_leaves_the_caller_in_doubt() {
    check(20, |sim| -> farcall::Result<()> {
        let server = sim.server("server", serve_panics);
        let echo = farcall::import::<dyn Echo>("Echo/panics")?;
        let Err(Error::CallFailed(failed)) = echo.slowly(1) else { panic!("it cannot succeed") };
        assert_eq!(failed.ran(), Ran::Maybe, "{failed}");
        assert!(!server.is_running());
        server.restart_as(serve_same_name);
        assert_eq!(echo.echo(3)?, 3);
        Ok(())
    });
}

fn serve_same_name() -> farcall::Result<()> {
    farcall::export::<dyn Echo>("Echo/panics", Arc::new(Server))?.wait()
}

#[test]
fn a_crashed_exporter_stays_in_the_registry_and_does_not_answer() {
    check(10, |sim| -> farcall::Result<()> {
        let first = sim.server("first", serve);
        first.crash();
        let Err(Error::CallFailed(failed)) = farcall::import::<dyn Echo>("Echo") else {
            panic!("nobody answers")
        };
        assert_eq!(failed.kind(), Kind::Unreachable, "{failed}");
        sim.server("second", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        assert_eq!(echo.echo(1)?, 1);
        Ok(())
    });
}

#[test]
fn a_name_belongs_to_the_process_that_lives() {
    check(3, |sim| -> farcall::Result<()> {
        let first = sim.server("first", serve_same_name);
        let taken = serve_same_name();
        assert!(matches!(&taken, Err(Error::CallFailed(why)) if why.kind() == Kind::Registry), "{taken:?}");
        first.crash();
        drop(farcall::export::<dyn Echo>("Echo/panics", Arc::new(Server))?);
        Ok(())
    });
}

#[test]
fn a_partition_is_silence_until_it_is_healed() {
    check(10, |sim| -> farcall::Result<()> {
        let server = sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        sim.partition(&server, &sim.test());
        let before = sim::now();
        let Err(Error::CallFailed(failed)) = echo.echo(1) else { panic!("nothing passes") };
        assert_eq!((failed.kind(), failed.ran()), (Kind::Unreachable, Ran::Maybe), "{failed}");
        assert!(sim::now() - before >= Duration::from_secs(9));
        sim.heal();
        assert_eq!(echo.echo(2)?, 2);
        Ok(())
    });
}

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    check(10, |sim| -> farcall::Result<()> {
        let server = sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        server.pause();
        let resumer = {
            let server = server.clone();
            sim::spawn(move || {
                sim::sleep(Duration::from_secs(4));
                server.resume();
            })
        };
        assert_eq!(echo.echo(1)?, 1);
        assert!(sim::now() >= Duration::from_secs(4));
        resumer.join();
        Ok(())
    });
}

#[test]
fn a_process_that_ends_withdraws_its_exports_and_stops_its_threads() {
    check(3, |sim| {
        let ticks = Arc::new(AtomicU64::new(0));
        let theirs = ticks.clone();
        let process = sim.process("short", move || -> farcall::Result<()> {
            let _export = farcall::export::<dyn Echo>("Echo", Arc::new(Server))?;
            let ticks = theirs.clone();
            sim::spawn(move || {
                loop {
                    ticks.fetch_add(1, Ordering::Relaxed);
                    sim::sleep(Duration::from_millis(100));
                }
            });
            sim::sleep(Duration::from_secs(1));
            Ok(())
        });
        process.wait();
        let Err(Error::CallFailed(failed)) = farcall::import::<dyn Echo>("Echo") else {
            panic!("it is withdrawn")
        };
        assert_eq!(failed.kind(), Kind::NoSuchName);
        sim.sleep(Duration::from_secs(10));
        assert!((10..=11).contains(&ticks.load(Ordering::Relaxed)));
    });
}

/// Makes a call when it is dropped, as a lock that is held at a server might.
struct CallsWhenDropped(EchoClient, Arc<AtomicU64>);

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        let _ = self.0.echo(1);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_crash_unwinds_and_leaves_behind_what_waits_meanwhile() {
    check(3, |sim| {
        let drops = Arc::new(AtomicU64::new(0));
        sim.server("server", serve);
        let theirs = drops.clone();
        let client = sim.process("client", move || -> farcall::Result<()> {
            let echo = farcall::import::<dyn Echo>("Echo")?;
            let _guard = CallsWhenDropped(echo, theirs.clone());
            sim::sleep(Duration::from_secs(100));
            Ok(())
        });
        sim.sleep(Duration::from_secs(1));
        client.crash();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        client.restart();
        sim.run();
        assert_eq!(drops.load(Ordering::Relaxed), 3);
    });
}

#[test]
fn a_program_that_catches_its_crash_goes_no_further() {
    check(3, |sim| {
        let process = sim.process("tough", || {
            for _ in 0..1_000_000 {
                let _ = std::panic::catch_unwind(|| sim::sleep(Duration::from_secs(1)));
            }
        });
        sim.sleep(Duration::from_secs(10));
        process.crash();
    });
}

#[test]
fn a_runtime_of_its_own_is_simulated_too() {
    check(3, |sim| -> farcall::Result<()> {
        sim.server("server", || -> farcall::Result<()> {
            let runtime = farcall::Runtime::builder().workers(1).build()?;
            runtime.export::<dyn Echo>("Echo", Arc::new(Server))?.wait()
        });
        let echo = farcall::import::<dyn Echo>("Echo")?;
        let mut slow = echo.start().slowly(50);
        assert_eq!(echo.start().echo(3).wait()?, 3);
        slow.cancel();
        let late = echo.within(Duration::from_secs(2)).slowly(5);
        assert!(matches!(&late, Err(Error::CallFailed(why)) if why.kind() == Kind::Deadline), "{late:?}");
        assert!(sim::now() < Duration::from_secs(60));
        Ok(())
    });
}

/// The first call after a crash may fail, or take the whole patience. It breaks the binding.
#[test]
fn a_binding_that_broke_is_made_anew() {
    check(50, |sim| -> farcall::Result<()> {
        sim.random_faults();
        let server = sim.server("server", serve);
        let echo = farcall::import::<dyn Echo>("Echo")?;
        server.crash();
        server.restart();
        sim.sleep(Duration::from_secs(1));
        let answer = (0..4).find_map(|n| echo.echo(n).ok());
        assert!(answer.is_some());
        Ok(())
    });
}

/// The number of executions of each call, by the call's number.
#[derive(Default)]
struct Counted(Mutex<HashMap<u64, u32>>);

#[farcall::interface]
trait Count {
    fn quickly(&self, n: u64) -> farcall::Result<u64>;
    #[blocking]
    fn slowly(&self, n: u64) -> farcall::Result<u64>;
}

impl Counted {
    fn count(&self, n: u64) {
        *self.0.lock().unwrap().entry(n).or_default() += 1;
    }

    fn executions(&self, n: u64) -> u32 {
        self.0.lock().unwrap().get(&n).copied().unwrap_or(0)
    }
}

impl Count for Counted {
    fn quickly(&self, n: u64) -> farcall::Result<u64> {
        self.count(n);
        Ok(n)
    }

    fn slowly(&self, n: u64) -> farcall::Result<u64> {
        self.count(n);
        sim::sleep(Duration::from_millis(50));
        Ok(n)
    }
}

#[test]
fn calls_end_truthfully_where_threads_cannot_be_started() {
    let (lacking, returned) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let seen = (lacking.clone(), returned.clone());
    check(60, move |sim| {
        sim.thread_failures([0.1, 0.5, 0.9][sim.below(3) as usize]);
        let counted = Arc::new(Counted::default());
        let server = counted.clone();
        sim.server("server", move || -> farcall::Result<()> {
            loop {
                match farcall::export::<dyn Count>("Count", server.clone()) {
                    Ok(export) => return export.wait(),
                    Err(why) => assert_eq!(farcall::CallFailed::from(why).kind(), Kind::Local),
                }
                sim::sleep(Duration::from_millis(100));
            }
        });
        let never = Arc::new(Mutex::new(Vec::new()));
        for client in 0..3 {
            let (counted, never, lacking, returned) =
                (counted.clone(), never.clone(), seen.0.clone(), seen.1.clone());
            sim.process(&format!("client {client}"), move || {
                let count = loop {
                    match farcall::import::<dyn Count>("Count") {
                        Ok(count) => break count.within(Duration::from_secs(5)),
                        Err(_) => sim::sleep(Duration::from_millis(500)),
                    }
                };
                for n in (0..20).map(|n| 100 * client + n) {
                    let outcome = match n % 4 {
                        0 => count.quickly(n),
                        1 => count.start().slowly(n).wait(),
                        2 => sim::block_on(count.start().quickly(n)),
                        _ => count.slowly(n),
                    };
                    match outcome {
                        Ok(result) => {
                            assert_eq!((result, counted.executions(n)), (n, 1));
                            returned.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(why) => {
                            let why = farcall::CallFailed::from(why);
                            lacking.fetch_add(u64::from(why.kind() == Kind::Local), Ordering::Relaxed);
                            if why.ran() == Ran::No {
                                never.lock().unwrap().push(n);
                            }
                        }
                    }
                }
            });
        }
        sim.run();
        sim.sleep(Duration::from_secs(60));
        for n in never.lock().unwrap().iter() {
            assert_eq!(counted.executions(*n), 0, "call {n} was said not to have run");
        }
        assert!(counted.0.lock().unwrap().values().all(|executions| *executions == 1));
    });
    assert!(lacking.load(Ordering::Relaxed) > 0, "no call lacked a thread");
    assert!(returned.load(Ordering::Relaxed) > 0, "no call returned");
}
