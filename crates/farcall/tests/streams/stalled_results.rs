//! Streams that are results, and whose server gives no further item: their calls end at their deadlines, for
//! threads and for tasks, in whatever process the server is.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use farcall::names::Memory;
use farcall::stub::{local, local_async};
use farcall::{Builder, Runtime};

use super::common::block_on;
use super::*;

#[farcall::interface(async)]
pub trait Stalls {
    /// Sends 1, and nothing else before the test is over.
    fn numbers(&self) -> Result<Stream<u64>>;
}

#[derive(Default)]
struct Stalling(Mutex<Vec<Sender<u64>>>);

impl Stalls for Stalling {
    fn numbers(&self) -> Result<Stream<u64>> {
        let (send, rest) = channel();
        self.0.lock().unwrap().push(send);
        Ok(Stream::of([1].into_iter().chain(rest)))
    }
}

struct Futures;

impl StallsAsync for Futures {
    async fn numbers(&self) -> Result<Stream<u64>> {
        let mut first = Some(Ok(1));
        Ok(Stream::polled(move |_| first.take().map_or(Poll::Pending, |item| Poll::Ready(Some(item)))))
    }
}

/// Ends the iterators of a server when it is dropped.
struct Release(Arc<Stalling>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().clear();
    }
}

/// Runs a test with each carrier of streams.
fn everywhere(test: impl Fn(&str, &StallsClient)) {
    let stalling = Release(Arc::new(Stalling::default()));
    for (carrier, shared_memory) in [("UDP", false), ("shared memory", true)] {
        let of = |builder: Builder| builder.address(([127, 0, 0, 1], 0).into()).shared_memory(shared_memory);
        let of = || of(Runtime::builder().registry(Memory::new())).build().unwrap();
        let (here, there) = (of(), of());
        let export = there.export::<dyn Stalls>("Stalls", stalling.0.clone()).unwrap();
        test(carrier, &here.import::<dyn Stalls>(&export.url()).unwrap());
        stalling.0.0.lock().unwrap().clear();
    }
    test("in process", &local::<dyn Stalls>(stalling.0.clone()));
    test("in process, futures", &local_async(StallsAsyncServer::new(Futures)));
}

/// How long a test waits for an event before it fails. No event takes nearly as long.
const GUARD: Duration = Duration::from_secs(60);

/// Asserts that what a thread receives ends because the deadline has passed.
fn ends(what: &str, receive: impl FnOnce() -> Result<Vec<Result<u64>>> + Send + 'static) {
    let (send, ended) = channel();
    std::thread::spawn(move || send.send(receive()));
    let items = ended.recv_timeout(GUARD).unwrap_or_else(|_| panic!("{what}: the call does not end"));
    // If the deadline passes before the stream begins, the call fails instead.
    let mut items = items.unwrap_or_else(|why| vec![Err(why)]);
    let why = items.pop().expect("an end").expect_err("the deadline passes");
    assert_eq!(failure(&why).kind(), Kind::Deadline, "{what}: {why}");
    assert!(items.iter().all(|item| item == &Ok(1)) && items.len() <= 1, "{what}: {items:?}");
}

#[test]
fn a_stream_whose_server_stalls_ends_at_its_deadline_for_threads_and_for_tasks() {
    everywhere(|carrier, stalls| {
        let within = || stalls.clone().within(Duration::from_millis(300));
        let stub = within();
        ends(&format!("{carrier}, blocking"), move || Ok(stub.numbers()?.collect()));
        let stub = within();
        ends(&format!("{carrier}, waited for"), move || Ok(stub.start().numbers().wait()?.collect()));
        let stub = within();
        ends(&format!("{carrier}, awaited"), move || {
            block_on(async {
                let (mut stream, mut items) = (stub.start().numbers().await?, Vec::new());
                while let Some(item) = stream.next_item().await {
                    items.push(item);
                }
                Ok(items)
            })
        });
    });
}
