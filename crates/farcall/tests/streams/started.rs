//! Calls with streams that are started, and streams that tasks send and receive.

use std::future::Future;
use std::task::{Context, Waker};

use super::*;
use common::block_on;

#[test]
fn a_started_call_is_ready_when_the_server_begins_to_send() {
    everywhere(|numbers, _| {
        let start = numbers.start();
        let waited: Result<Vec<u64>> = start.below(20_000).wait().unwrap().collect();
        assert_eq!(waited.unwrap(), (0..20_000).collect::<Vec<u64>>());
        let awaited = block_on(async { all(start.below(20_000).await?).await });
        assert_eq!(awaited.unwrap(), (0..20_000).collect::<Vec<u64>>());
        assert_eq!(block_on(start.texts(Vec::new(), None)).unwrap_err().declared(), Some(&Odd { number: 0 }));
        let mut texts = block_on(start.texts(vec![3, 500_000], Some(7))).unwrap();
        assert_eq!(block_on(texts.next_item()).unwrap().unwrap().len(), 3);
        assert_eq!(block_on(texts.next_item()).unwrap().unwrap().len(), 500_000);
        let why = block_on(texts.next_item()).unwrap().unwrap_err();
        assert_eq!(why.declared(), Some(&Odd { number: 7 }));
        assert!(block_on(texts.next_item()).is_none());
    });
}

#[test]
fn a_started_call_sends_its_argument() {
    everywhere(|numbers, _| {
        let start = numbers.start();
        assert_eq!(start.sum("abc", Stream::of(1..=10_000)).wait().unwrap(), 50_005_003);
        assert_eq!(block_on(start.sum("", Stream::of(1..=10_000))).unwrap(), 50_005_000);
        assert_eq!(start.sum("", polled(1..=10_000)).wait().unwrap(), 50_005_000);
        assert_eq!(block_on(start.sum("", polled(1..=10_000))).unwrap(), 50_005_000);
        // A blocking call takes such a stream, too.
        assert_eq!(numbers.sum("", polled(1..=10_000)).unwrap(), 50_005_000);
    });
}

#[test]
fn a_task_sends_one_stream_and_receives_another() {
    everywhere(|numbers, _| {
        let twice: Vec<u64> = (0..10_000).map(|n| 2 * n).collect();
        for argument in [|| polled(0..10_000), || Stream::of(0..10_000)] {
            let doubled = block_on(async { all(numbers.start().doubled(argument()).await?).await });
            assert_eq!(doubled.unwrap(), twice);
            let doubled: Result<Vec<u64>> = numbers.start().doubled(argument()).wait().unwrap().collect();
            assert_eq!(doubled.unwrap(), twice);
            let doubled: Result<Vec<u64>> = numbers.doubled(argument()).unwrap().collect();
            assert_eq!(doubled.unwrap(), twice);
        }
    });
}

#[test]
fn a_stream_that_arrives_is_sent_on() {
    everywhere(|numbers, _| {
        let doubled = || numbers.doubled(Stream::of(1..=5_000)).unwrap();
        assert_eq!(numbers.sum("", doubled()).unwrap(), 25_005_000);
        assert_eq!(block_on(numbers.start().sum("", doubled())).unwrap(), 25_005_000);
        let fourfold: Result<Vec<u64>> = numbers.doubled(doubled()).unwrap().collect();
        assert_eq!(fourfold.unwrap().last(), Some(&20_000));
    });
}

#[test]
#[cfg(feature = "futures")]
fn an_asynchronous_stream_of_another_crate_is_sent_and_received() {
    fn is_one(stream: impl futures_core::Stream<Item = Result<u64>> + Send + 'static) -> Stream<u64> {
        Stream::from_async(stream)
    }
    everywhere(|numbers, _| {
        let doubled = || numbers.doubled(Stream::of(1..=5_000)).unwrap();
        assert_eq!(block_on(numbers.start().sum("", is_one(doubled()))).unwrap(), 25_005_000);
        assert_eq!(numbers.sum("", is_one(doubled())).unwrap(), 25_005_000);
    });
}

#[test]
fn a_watch_wakes_its_task_and_ends_when_it_is_dropped() {
    everywhere(|numbers, server| {
        let (send, watched) = mpsc::channel();
        *server.watched.lock().unwrap() = Some(watched);
        let mut watch = block_on(numbers.start().watch()).unwrap();
        for n in 0..10 {
            let mut next = std::pin::pin!(watch.next_item());
            // The task waits before there is an item.
            assert!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            send.send(n).unwrap();
            assert_eq!(block_on(next).unwrap().unwrap(), n);
        }
        drop(watch);
        while send.send(0).is_ok() {
            std::thread::yield_now();
        }
    });
}

#[test]
fn the_task_that_takes_a_stream_answers_signals() {
    everywhere(|numbers, _| {
        let numbers = numbers.catching(Tenfold);
        let asked = block_on(async { all(numbers.start().asked(5).await?).await });
        assert_eq!(asked.unwrap(), [0, 10, 20, 30, 40]);
        let why = block_on(async { all(numbers.start().asked(8).await?).await }).unwrap_err();
        assert_eq!(failure(&why).kind(), Kind::NotPermitted);
    });
}

#[test]
fn a_started_call_that_is_dropped_cancelled_or_detached_ends_its_stream() {
    everywhere(|numbers, server| {
        let (told, heard) = mpsc::channel();
        *server.told.lock().unwrap() = Some(told);
        let start = |how: fn(farcall::Pending<u64>)| {
            let mut call = numbers.start().tell(endless());
            let mut context = Context::from_waker(Waker::noop());
            while !matches!(heard.try_recv(), Ok(Told::Item(7))) {
                assert!(std::pin::pin!(&mut call).poll(&mut context).is_pending());
            }
            how(call);
            assert_eq!(heard.recv(), Ok(Told::Failed(Kind::Cancelled)));
        };
        start(drop);
        start(|mut call| {
            call.cancel();
            assert!(call.wait().is_err());
        });
        start(farcall::Pending::detach);
    });
}

#[test]
fn a_stream_whose_server_was_replaced_is_brought_by_a_task() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let export = || there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
    let mut exported = export();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    for awaited in [true, false, true] {
        drop(exported);
        exported = export();
        let start = numbers.start();
        let below = match awaited {
            true => block_on(async { all(start.below(5_000).await?).await }),
            false => start.below(5_000).wait().and_then(Iterator::collect),
        };
        assert_eq!(below.unwrap().len(), 5_000);
    }
}

/// A way to make a call whose argument is a stream.
type Tell = fn(&NumbersClient, Stream<u64>) -> Result<u64>;

#[test]
fn a_thread_that_waits_for_its_call_is_woken_by_the_items_of_its_argument() {
    everywhere(|numbers, server| {
        let (told, heard) = mpsc::channel();
        *server.told.lock().unwrap() = Some(told);
        let calls: [Tell; 3] = [
            |numbers, items| numbers.tell(items),
            |numbers, items| numbers.start().tell(items).wait(),
            |numbers, items| block_on(numbers.start().tell(items)),
        ];
        for call in calls {
            while heard.try_recv().is_ok() {}
            let feed = Feed::default();
            std::thread::scope(|scope| {
                let called = scope.spawn(|| call(numbers, feed.stream()));
                for n in 1_000..1_050 {
                    feed.give(Some(n));
                    // The server may still tell of the call before.
                    while heard.recv().unwrap() != Told::Item(n) {}
                }
                feed.give(None);
                assert_eq!(called.join().unwrap().unwrap(), 50);
            });
        }
    });
}

#[farcall::interface]
trait Ticks {
    fn ticks(&self) -> Result<Stream<u64>>;
}

struct Ticking(Feed);

impl Ticks for Ticking {
    fn ticks(&self) -> Result<Stream<u64>> {
        Ok(self.0.stream())
    }
}

#[test]
fn a_blocking_procedure_sends_a_stream_that_is_polled() {
    let test = |ticks: &TicksClient, feed: &Feed| {
        let mut stream = ticks.ticks().unwrap();
        for n in 0..50 {
            feed.give(Some(n));
            assert_eq!(stream.next().unwrap().unwrap(), n);
        }
        feed.give(None);
        assert!(stream.next().is_none());
    };
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there, feed) = (runtime(), runtime(), Feed::default());
    let _export = there.export::<dyn Ticks>("Ticks/a", Arc::new(Ticking(feed.clone()))).unwrap();
    test(&here.import::<dyn Ticks>("Ticks/a").unwrap(), &feed);
    test(&farcall::stub::local::<dyn Ticks>(Arc::new(Ticking(feed.clone()))), &feed);
}
