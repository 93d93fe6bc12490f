//! How much the two ends of a stream hold while its receiver takes nothing.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use farcall::Stream;

use super::asynchronous::one_thread;
use super::*;

/// What an item has on the wire, in bytes.
const ITEM: u64 = 1_004;

/// The credit that every direction begins with.
const FIRST_CREDIT: u64 = 12_000;

/// What the sender collects for its next datagram, at most, and the item that it has just made.
const SENDER: u64 = (32 << 10) + 2 * ITEM;

/// What the receiver takes at once, at most.
const CHUNK: u64 = 64 << 10;

#[farcall::interface(async)]
pub trait Pages {
    /// Sends pages without end.
    fn pages(&self) -> Result<Stream<[u8; 1000]>>;
    /// Takes so many pages, and then no more until its call is given up.
    fn hold(&self, most: u64, pages: Stream<[u8; 1000]>) -> Result<()>;
    fn null(&self) -> Result<()>;
}

#[derive(Default)]
struct Server {
    made: Arc<AtomicU64>,
    taken: AtomicU64,
}

/// Returns pages without end, and counts those that are made.
fn endless_pages(made: &Arc<AtomicU64>) -> impl Iterator<Item = [u8; 1000]> + Send + 'static {
    let made = made.clone();
    std::iter::repeat_with(move || {
        made.fetch_add(1, Ordering::SeqCst);
        [7; 1000]
    })
}

impl Pages for Server {
    fn pages(&self) -> Result<Stream<[u8; 1000]>> {
        Ok(Stream::of(endless_pages(&self.made)))
    }

    fn hold(&self, most: u64, pages: Stream<[u8; 1000]>) -> Result<()> {
        let mut pages = pages;
        for _ in 0..most {
            pages.next().expect("without end")?;
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        while !farcall::context().cancelled().wait(std::time::Duration::from_secs(60)) {}
        Ok(())
    }

    fn null(&self) -> Result<()> {
        Ok(())
    }
}

impl PagesAsync for Server {
    async fn pages(&self) -> Result<Stream<[u8; 1000]>> {
        Pages::pages(self)
    }

    async fn hold(&self, most: u64, mut pages: Stream<[u8; 1000]>) -> Result<()> {
        for _ in 0..most {
            pages.next_item().await.expect("without end")?;
            self.taken.fetch_add(1, Ordering::SeqCst);
        }
        std::future::pending().await
    }

    async fn null(&self) -> Result<()> {
        Ok(())
    }
}

/// Runs a test with blocking and asynchronous servers, called through the network and in this process. Each has
/// a conversation of its own, because later streams of a conversation begin with lent credit.
fn everywhere(test: impl Fn(&PagesClient, &Server)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let there = runtime();
    let server = Arc::new(Server::default());
    let blocking = there.export::<dyn Pages>("Pages/blocking", server.clone()).unwrap();
    test(&runtime().import::<dyn Pages>("Pages/blocking").unwrap(), &server);
    drop(blocking);
    let server = Arc::new(Server::default());
    let exported = PagesAsyncServer::from(server.clone());
    let _export = there.export_async_on("Pages/async", exported, one_thread()).unwrap();
    test(&runtime().import::<dyn Pages>("Pages/async").unwrap(), &server);
    let server = Arc::new(Server::default());
    test(&farcall::stub::local::<dyn Pages>(server.clone()), &server);
    let server = Arc::new(Server::default());
    test(&farcall::stub::local_async(PagesAsyncServer::from(server.clone())), &server);
}

/// Makes other calls until the sender has made no more items for many of them, and returns how many it made.
fn settled(pages: &PagesClient, made: &AtomicU64, mut step: impl FnMut()) -> u64 {
    let mut before = u64::MAX;
    while before != made.load(Ordering::SeqCst) {
        before = made.load(Ordering::SeqCst);
        for _ in 0..500 {
            step();
            assert_eq!(pages.null(), Ok(()));
        }
    }
    before
}

#[test]
fn a_result_that_nobody_takes_fills_its_credit_and_no_more() {
    everywhere(|pages, server| {
        let streams: Vec<_> = (0..10).map(|_| pages.pages().unwrap()).collect();
        let held = ITEM * settled(pages, &server.made, || ()) / 10;
        assert!(held <= FIRST_CREDIT + SENDER, "{held} bytes");
        drop(streams);
    });
}

#[test]
fn a_reader_that_stops_holds_no_more_than_it_was_allowed() {
    everywhere(|pages, server| {
        let mut stream = pages.pages().unwrap();
        assert_eq!(stream.by_ref().take(20).filter(std::result::Result::is_ok).count(), 20);
        let held = ITEM * (settled(pages, &server.made, || ()) - 20);
        // The credit is at most four times as much as was taken.
        let taken = 20 * ITEM + CHUNK;
        assert!(held <= CHUNK + 4 * taken + SENDER, "{held} bytes");
    });
}

#[test]
fn an_argument_that_nobody_takes_fills_its_credit_and_no_more() {
    everywhere(|pages, server| {
        let made = Arc::new(AtomicU64::new(0));
        let mut items = endless_pages(&made);
        let stream = Stream::polled(move |_| Poll::Ready(items.next().map(Ok)));
        let mut call = pages.start().hold(1, stream);
        let mut context = Context::from_waker(Waker::noop());
        let mut step = || assert!(std::pin::pin!(&mut call).poll(&mut context).is_pending());
        while server.taken.load(Ordering::SeqCst) == 0 {
            step();
            std::thread::yield_now();
        }
        let held = ITEM * settled(pages, &made, step);
        assert!(held <= CHUNK + 4 * FIRST_CREDIT + SENDER, "{held} bytes");
        drop(call);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_stream_of_an_import_through_shared_memory_passes_over_udp() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).shared_memory(true).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let exported = PagesAsyncServer::from(Arc::new(Server::default()));
    let _export = there.export_async_on("Pages/a", exported, one_thread()).unwrap();
    let pages = here.import::<dyn Pages>("Pages/a").unwrap();
    let through_memory = || here.stats().links.iter().map(|link| link.calls).sum::<u64>();
    if here.stats().links.is_empty() {
        return common::skip("the runtimes do not meet through shared memory");
    }
    assert_eq!(pages.null(), Ok(()));
    assert_eq!(through_memory(), 1);
    let mut stream = common::block_on(pages.start().pages()).unwrap();
    for _ in 0..100 {
        assert_eq!(common::block_on(stream.next_item()).unwrap().unwrap(), [7; 1000]);
        assert_eq!(stream.next().unwrap().unwrap(), [7; 1000]);
    }
    assert_eq!(through_memory(), 1);
    drop(stream);
    assert_eq!((pages.null(), through_memory()), (Ok(()), 2));
}
