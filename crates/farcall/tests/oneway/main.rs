//! One-way calls: their caller does not wait, and is told nothing.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod outcomes;

use std::sync::{Arc, Mutex, mpsc};

use farcall::Result;

#[farcall::interface(async)]
pub trait Log {
    /// Adds a line.
    #[oneway]
    fn note(&self, line: &str) -> Result<()>;
    /// Adds a number as a line.
    #[oneway]
    fn count(&self, number: u64) -> Result<()>;
    /// Panics.
    #[oneway]
    fn fall(&self) -> Result<()>;
    /// Waits until the test opens the gate.
    #[oneway]
    #[blocking]
    fn gate(&self) -> Result<()>;
    /// Returns all lines.
    fn lines(&self) -> Result<Vec<String>>;
}

#[derive(Clone, Default)]
pub struct Server {
    lines: Arc<Mutex<Vec<String>>>,
    gate: Arc<Mutex<Option<mpsc::Receiver<()>>>>,
}

impl Server {
    fn add(&self, line: impl Into<String>) {
        self.lines.lock().unwrap().push(line.into());
    }

    /// Returns what opens the gate, which the next call of `gate` waits for.
    fn close_gate(&self) -> mpsc::Sender<()> {
        let (open, gate) = mpsc::channel();
        *self.gate.lock().unwrap() = Some(gate);
        open
    }
}

impl Log for Server {
    fn note(&self, line: &str) -> Result<()> {
        self.add(line);
        Ok(())
    }

    fn count(&self, number: u64) -> Result<()> {
        self.add(number.to_string());
        Ok(())
    }

    fn fall(&self) -> Result<()> {
        self.add("falls");
        panic!("as the test wants");
    }

    fn gate(&self) -> Result<()> {
        let gate = self.gate.lock().unwrap().take();
        // The test opens the gate by a message, or by ending.
        let _ = gate.map(|gate| gate.recv());
        self.add("gate");
        Ok(())
    }

    fn lines(&self) -> Result<Vec<String>> {
        Ok(self.lines.lock().unwrap().clone())
    }
}

impl LogAsync for Server {
    async fn note(&self, line: &str) -> Result<()> {
        Log::note(self, line)
    }

    async fn count(&self, number: u64) -> Result<()> {
        Log::count(self, number)
    }

    async fn fall(&self) -> Result<()> {
        Log::fall(self)
    }

    async fn gate(&self) -> Result<()> {
        Log::gate(self)
    }

    async fn lines(&self) -> Result<Vec<String>> {
        Log::lines(self)
    }
}

/// Runs a future of an async server to its end, in a thread of its own.
fn thread(task: farcall::Task) {
    std::thread::spawn(|| pollster(task));
}

fn pollster(mut task: farcall::Task) {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    while task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
        std::thread::park();
    }
}

/// Runs a test by every carrier, and with both kinds of servers.
fn everywhere(test: impl Fn(&LogClient, &Server)) {
    elsewhere(&test);
    // The thread that waits for a call drives it.
    let ours = Server::default();
    test(&farcall::stub::local_async(LogAsyncServer::new(ours.clone())), &ours);
}

/// Runs a test where a server has threads of its own.
fn elsewhere(test: impl Fn(&LogClient, &Server)) {
    let names = farcall::names::Memory::new();
    let runtime = |shared_memory| {
        let builder = farcall::Runtime::builder().registry(names.clone()).shared_memory(shared_memory);
        builder.build().unwrap()
    };
    for shared_memory in [false, true] {
        let (here, there) = (runtime(shared_memory), runtime(shared_memory));
        let ours = Server::default();
        let _export = there.export::<dyn Log>("Log/blocking", Arc::new(ours.clone())).unwrap();
        test(&here.import::<dyn Log>("Log/blocking").unwrap(), &ours);
        let ours = Server::default();
        let server = LogAsyncServer::new(ours.clone());
        let _export = there.export_async_on("Log/async", server, thread).unwrap();
        test(&here.import::<dyn Log>("Log/async").unwrap(), &ours);
    }
    let ours = Server::default();
    test(&farcall::stub::local::<dyn Log>(Arc::new(ours.clone())), &ours);
}

#[test]
fn one_way_calls_are_executed_in_order_and_before_later_calls_of_the_stub() {
    everywhere(|log, _| {
        let mut expected = Vec::new();
        for number in 0..1_000 {
            log.count(number).unwrap();
            expected.push(number.to_string());
            if number % 7 == 0 {
                log.note("a line").unwrap();
                expected.push("a line".into());
            }
            if number % 100 == 0 {
                assert_eq!(log.lines().unwrap(), expected);
            }
        }
        // A stub that is made of this one goes on in its order, and so does a started call.
        let started = log.start().lines();
        let within = log.within(std::time::Duration::from_secs(60));
        assert_eq!(within.lines().unwrap(), expected);
        assert_eq!(started.wait().unwrap(), expected);
        log.binding().flush().unwrap();
    });
}

#[test]
fn a_caller_does_not_wait_for_the_procedure() {
    elsewhere(|log, server| {
        let open = server.close_gate();
        log.gate().unwrap();
        (0..100).for_each(|number| log.count(number).unwrap());
        assert_eq!(*server.lines.lock().unwrap(), [""; 0]);
        // A clone has an order of its own.
        assert_eq!(log.clone().lines().unwrap(), [""; 0]);
        let started = log.start().lines();
        drop(open);
        assert_eq!(started.wait().unwrap().len(), 101);
    });
}

#[test]
fn long_and_many_calls_pass_whatever_the_queue_holds() {
    everywhere(|log, server| {
        let long = "x".repeat(1 << 20);
        (0..4).for_each(|_| log.note(&long).unwrap());
        (0..50_000).for_each(|number| log.count(number).unwrap());
        log.binding().flush().unwrap();
        let lines = server.lines.lock().unwrap();
        assert!(lines[..4].iter().all(|line| *line == long));
        assert!(lines[4..].iter().enumerate().all(|(place, line)| *line == place.to_string()));
        assert_eq!(lines.len(), 50_004);
    });
}

#[test]
fn threads_that_share_a_stub_have_one_order() {
    everywhere(|log, server| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || (0..2_000).for_each(|n| log.count(thread << 32 | n).unwrap()));
            }
        });
        log.binding().flush().unwrap();
        let lines = server.lines.lock().unwrap();
        let numbers: Vec<u64> = lines.iter().map(|line| line.parse().unwrap()).collect();
        for thread in 0..4 {
            let its: Vec<u64> = numbers.iter().copied().filter(|number| number >> 32 == thread).collect();
            assert!(its.iter().map(|number| number & 0xffff_ffff).eq(0..2_000));
        }
    });
}

#[test]
fn a_call_that_panics_ends_none_of_the_others() {
    everywhere(|log, _| {
        log.note("before").unwrap();
        log.fall().unwrap();
        log.note("behind").unwrap();
        assert_eq!(log.lines().unwrap(), ["before", "falls", "behind"]);
        log.binding().flush().unwrap();
    });
}

#[test]
fn a_network_that_loses_and_repeats_changes_nothing() {
    let names = farcall::names::Memory::new();
    let runtime =
        || farcall::Runtime::builder().registry(names.clone()).shared_memory(false).open().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let ours = Server::default();
    let export = there.export::<dyn Log>("Log", Arc::new(ours.clone())).unwrap();
    let wire = common::lossy::wire(export.address());
    let log = here.import::<dyn Log>(&format!("udp://{wire}/Log")).unwrap();
    (0..20_000).for_each(|number| log.count(number).unwrap());
    log.binding().flush().unwrap();
    assert!(ours.lines.lock().unwrap().iter().map(|line| line.parse::<u64>().unwrap()).eq(0..20_000));
}
