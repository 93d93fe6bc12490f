//! A server is killed while it takes a stream whose sender gives nothing: the call ends, and the sender
//! blocks only itself. And a server is killed while its call is being unwound.

use std::env;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::builder;
use crate::execution_log::Mortal;
use farcall::{Answer, CallFailed, Kind, Ran, Result, Stream};

const ROLE: &str = "FARCALL_TEST_RECEIVER";
/// The client's patience. No caller is alive for as long without an answer of its server.
const PATIENCE: Duration = Duration::from_secs(2);
/// The test fails after this time. Nothing here takes that long.
const GUARD: Duration = Duration::from_secs(60);

#[farcall::interface]
pub trait Takes {
    /// Takes the numbers, and says on standard output that the first one has come.
    fn sum(&self, numbers: Stream<u64>) -> Result<u64>;
    /// Raises the signal, and says on standard output that it was unwound. Then it waits.
    fn ask(&self) -> Result<u64>;
    #[signal]
    fn which(&self) -> u64;
}

struct Server;

impl Takes for Server {
    fn sum(&self, numbers: Stream<u64>) -> Result<u64> {
        let mut sum = 0;
        for number in numbers {
            sum += number?;
            println!("\nbegun");
        }
        Ok(sum)
    }

    fn ask(&self) -> Result<u64> {
        let unwound = TakesSignals::which();
        println!("\nbegun");
        // The process is killed meanwhile.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        Ok(unwound?)
    }
}

struct Leaves;

impl TakesHandler for Leaves {
    fn which(&self, by: TakesRaiser) -> Answer<u64> {
        match by {
            TakesRaiser::ask(call) => call.unwind(Ok(9)),
            _ => Answer::Pass,
        }
    }
}

/// Makes a call to a process that is killed once its procedure says that it has begun.
fn killed_meanwhile(
    call: impl FnOnce(TakesClient) -> Result<u64> + Send + 'static,
    shared_memory: bool,
) -> CallFailed {
    let (mut process, url) = Mortal::start("killed_receivers::a_server_that_the_test_starts", |command| {
        command.env(ROLE, "yes");
    });
    let runtime = builder().shared_memory(shared_memory).patience(PATIENCE).build().unwrap();
    let takes = runtime.import::<dyn Takes>(&url).unwrap();
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || ended.send(call(takes)));
    process.wait_for("begun");
    process.kill();
    let outcome = ends.recv_timeout(GUARD).expect("the call ends");
    CallFailed::from(outcome.unwrap_err())
}

#[test]
fn a_call_ends_when_its_server_is_killed_though_the_iterator_of_its_argument_waits() {
    for shared_memory in [false, true] {
        for started in [false, true] {
            let (release, waits) = mpsc::channel::<u64>();
            let items = Stream::of(std::iter::once(1).chain(waits));
            let call = move |takes: TakesClient| match started {
                false => takes.sum(items),
                true => takes.start().sum(items).wait(),
            };
            let why = killed_meanwhile(call, shared_memory);
            drop(release);
            assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
        }
    }
}

#[test]
fn a_caller_is_told_that_its_server_was_killed_while_it_was_unwound() {
    for shared_memory in [false, true] {
        let why = killed_meanwhile(|takes| takes.catching(Leaves).ask(), shared_memory);
        assert_eq!((why.kind(), why.ran()), (Kind::Unreachable, Ran::Maybe), "{why}");
    }
}

/// Not a test by itself: the servers run this.
#[test]
fn a_server_that_the_test_starts() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let runtime = builder().build().unwrap();
    let export = runtime.export::<dyn Takes>("Takes", Arc::new(Server)).unwrap();
    println!("\nready {}", export.url());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
