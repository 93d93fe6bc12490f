//! Streams: results and arguments that consist of items.
#![allow(missing_docs)]

mod asynchronous;
#[path = "../common/mod.rs"]
mod common;
mod failures;
mod grouped;
mod slow_readers;
mod stalled_results;
mod stalled_senders;
mod started;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};

use common::lossy;
use farcall::{Answer, CallFailed, Kind, Ran, Result, Stream};

#[farcall::interface]
pub trait Numbers {
    /// Sends the numbers below a limit.
    fn below(&self, limit: u64) -> Result<Stream<u64>>;
    /// Adds the numbers, and stops at the first zero.
    fn sum(&self, name: &str, numbers: Stream<u64>) -> Result<u64>;
    /// Sends the double of each number, until one has no double of 64 bits.
    fn doubled(&self, numbers: Stream<u64>) -> Result<Stream<u64>>;
    /// Sends so many texts, then raises the exception, if there is one.
    fn texts(&self, lens: Vec<u32>, end: Option<u32>) -> Result<Stream<String, Odd>, Odd>;
    /// Sends whatever comes from the channel of the test.
    fn watch(&self) -> Result<Stream<u64>>;
    /// Asks the caller for each number that it sends.
    fn asked(&self, times: u64) -> Result<Stream<u64>>;
    /// Takes the numbers, and tells the test how many there were and how the stream ended.
    fn tell(&self, numbers: Stream<u64>) -> Result<u64>;
    /// Keeps the stream, and returns.
    fn keep(&self, numbers: Stream<u64>) -> Result<()>;
    /// Sends numbers at a slow pace, and counts those that it makes after its call was given up.
    fn drip(&self) -> Result<Stream<u64>>;
    fn null(&self) -> Result<()>;
    #[signal]
    fn which(&self, time: u64) -> u64;
}

#[derive(Debug, PartialEq, farcall::Xdr)]
pub struct Odd {
    pub number: u32,
}

#[derive(Default)]
pub struct Server {
    /// How many items the server has made.
    made: Arc<AtomicU64>,
    /// How many items of arguments it has taken.
    taken: Arc<AtomicU64>,
    watched: Mutex<Option<mpsc::Receiver<u64>>>,
    told: Mutex<Option<mpsc::Sender<Told>>>,
    kept: Mutex<Option<Stream<u64>>>,
}

/// What a server has seen of a stream.
#[derive(Debug, PartialEq)]
enum Told {
    Item(u64),
    End,
    Failed(Kind),
}

impl Numbers for Server {
    fn below(&self, limit: u64) -> Result<Stream<u64>> {
        let made = self.made.clone();
        Ok(Stream::of((0..limit).inspect(move |_| {
            made.fetch_add(1, Ordering::SeqCst);
        })))
    }

    fn sum(&self, name: &str, numbers: Stream<u64>) -> Result<u64> {
        let mut sum = name.len() as u64;
        for number in numbers {
            match number? {
                0 => break,
                number => sum += number,
            }
        }
        Ok(sum)
    }

    fn doubled(&self, numbers: Stream<u64>) -> Result<Stream<u64>> {
        Ok(Stream::new(numbers.map_while(|number| match number {
            Ok(number) => number.checked_mul(2).map(Ok),
            Err(why) => Some(Err(why)),
        })))
    }

    fn texts(&self, lens: Vec<u32>, end: Option<u32>) -> Result<Stream<String, Odd>, Odd> {
        if lens.is_empty() {
            return Err(Odd { number: 0 }.into());
        }
        let texts = lens.into_iter().map(|len| Ok("x".repeat(len as usize)));
        Ok(Stream::new(texts.chain(end.map(|number| Err(Odd { number }.into())))))
    }

    fn watch(&self) -> Result<Stream<u64>> {
        let watched = self.watched.lock().unwrap().take().expect("one watch");
        Ok(Stream::of(watched))
    }

    fn asked(&self, times: u64) -> Result<Stream<u64>> {
        Ok(Stream::new((0..times).map(|time| Ok(NumbersSignals::which(time)?))))
    }

    fn tell(&self, numbers: Stream<u64>) -> Result<u64> {
        let told = self.told.lock().unwrap().clone().expect("a channel of the test");
        let mut taken = 0;
        for number in numbers {
            let (what, ended) = match &number {
                Ok(number) => (Told::Item(*number), None),
                Err(why) => (Told::Failed(failure(why).kind()), Some(why.clone())),
            };
            let _ = told.send(what);
            self.taken.fetch_add(1, Ordering::SeqCst);
            if let Some(why) = ended {
                return Err(why);
            }
            taken += 1;
        }
        let _ = told.send(Told::End);
        Ok(taken)
    }

    fn keep(&self, numbers: Stream<u64>) -> Result<()> {
        *self.kept.lock().unwrap() = Some(numbers);
        Ok(())
    }

    fn drip(&self) -> Result<Stream<u64>> {
        let made = self.made.clone();
        made.store(0, Ordering::SeqCst);
        let items = (0..).inspect(|_| (0..200).for_each(|_| std::hint::spin_loop()));
        Ok(Stream::of(items.take_while(move |_| {
            !farcall::context().is_cancelled() || made.fetch_add(1, Ordering::SeqCst) < 1_000
        })))
    }

    fn null(&self) -> Result<()> {
        Ok(())
    }
}

/// Runs a test with a server that is called through the network, and with one in this process.
fn everywhere(test: impl Fn(&NumbersClient, &Server)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let ours = Arc::new(Server::default());
    let _export = there.export::<dyn Numbers>("Numbers/a", ours.clone()).unwrap();
    test(&here.import::<dyn Numbers>("Numbers/a").unwrap(), &ours);
    let ours = Arc::new(Server::default());
    test(&farcall::stub::local::<dyn Numbers>(ours.clone()), &ours);
}

/// Returns a stream that a task sends: these items, and before each of them the task waits once.
fn polled(mut items: impl Iterator<Item = u64> + Send + 'static) -> Stream<u64> {
    let mut pending = false;
    Stream::polled(move |context| {
        pending = !pending;
        if pending {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(items.next().map(Ok))
    })
}

/// Returns a stream of one item that never ends.
fn endless() -> Stream<u64> {
    let mut items = std::iter::once(7);
    Stream::polled(move |_| items.next().map_or(Poll::Pending, |item| Poll::Ready(Some(Ok(item)))))
}

/// Returns the items of a stream that ends without a failure.
async fn all(mut stream: Stream<u64>) -> Result<Vec<u64>> {
    let mut items = Vec::new();
    while let Some(item) = stream.next_item().await {
        items.push(item?);
    }
    Ok(items)
}

/// Items that the test gives to streams, each to one of them.
#[derive(Clone, Default)]
struct Feed(Arc<Mutex<Fed>>);

#[derive(Default)]
struct Fed {
    /// `None` ends the stream that takes it.
    items: VecDeque<Option<u64>>,
    wakers: Vec<Waker>,
}

impl Feed {
    fn stream(&self) -> Stream<u64> {
        let feed = self.clone();
        Stream::polled(move |context| {
            let Fed { items, wakers } = &mut *feed.0.lock().unwrap();
            if let Some(item) = items.pop_front() {
                return Poll::Ready(item.map(Ok));
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
    }

    fn give(&self, item: Option<u64>) {
        let wakers = {
            let Fed { items, wakers } = &mut *self.0.lock().unwrap();
            items.push_back(item);
            std::mem::take(wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

fn failure<E>(error: &farcall::Error<E>) -> &CallFailed {
    error.call_failed().expect("not an exception")
}

#[test]
fn a_result_arrives_item_by_item() {
    everywhere(|numbers, _| {
        for limit in [0, 1, 10, 100_000] {
            let all: Result<Vec<u64>> = numbers.below(limit).unwrap().collect();
            assert_eq!(all.unwrap(), (0..limit).collect::<Vec<u64>>());
        }
    });
}

#[test]
fn an_argument_is_sent_item_by_item_until_the_server_takes_no_more() {
    everywhere(|numbers, _| {
        assert_eq!(numbers.sum("abc", Stream::of(0..0)).unwrap(), 3);
        assert_eq!(numbers.sum("", Stream::of(1..=100_000)).unwrap(), 5_000_050_000);
        let (made, endless) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(100));
        let counts = made.clone();
        let items = std::iter::from_fn(move || {
            counts.fetch_add(1, Ordering::SeqCst);
            let left = endless.load(Ordering::SeqCst);
            endless.store(left.saturating_sub(1), Ordering::SeqCst);
            Some(left)
        });
        assert_eq!(numbers.sum("", Stream::of(items)).unwrap(), 5_050);
        assert!(made.load(Ordering::SeqCst) > 100);
    });
}

#[test]
fn a_stream_passes_both_ways_at_once() {
    everywhere(|numbers, _| {
        let doubled: Result<Vec<u64>> = numbers.doubled(Stream::of(0..50_000)).unwrap().collect();
        assert_eq!(doubled.unwrap(), (0..50_000).map(|n| 2 * n).collect::<Vec<u64>>());
        // One item after the other: what is sent depends on what came.
        let (send, items) = mpsc::channel();
        let mut doubled = numbers.doubled(Stream::of(items)).unwrap();
        for n in 0..100 {
            send.send(n).unwrap();
            assert_eq!(doubled.next().unwrap().unwrap(), 2 * n);
        }
        drop(send);
        assert!(doubled.next().is_none());
    });
}

#[test]
fn an_item_may_be_longer_than_a_window_and_an_exception_ends_a_stream() {
    everywhere(|numbers, _| {
        let mut texts = numbers.texts(vec![3, 500_000, 0, 12_000], Some(7)).unwrap();
        for len in [3, 500_000, 0, 12_000] {
            assert_eq!(texts.next().unwrap().unwrap().len(), len);
        }
        assert_eq!(texts.taken(), 4);
        assert_eq!(texts.next().unwrap().unwrap_err().declared(), Some(&Odd { number: 7 }));
        assert!(texts.next().is_none());
        let why = numbers.texts(Vec::new(), None).unwrap_err();
        assert_eq!(why.declared(), Some(&Odd { number: 0 }));
    });
}

#[test]
fn a_server_waits_for_a_slow_reader() {
    everywhere(|numbers, server| {
        let mut below = numbers.below(1_000_000).unwrap();
        assert_eq!(below.next().unwrap().unwrap(), 0);
        let made = || server.made.load(Ordering::SeqCst);
        // The server makes as many items as the windows hold, and stops.
        let mut before = made();
        for _ in 0..1_000 {
            assert_eq!(numbers.null(), Ok(()));
        }
        while before != made() {
            before = made();
            for _ in 0..1_000 {
                assert_eq!(numbers.null(), Ok(()));
            }
        }
        assert!(made() < 100_000, "{}", made());
        assert_eq!(below.by_ref().take(500_000).filter(std::result::Result::is_ok).count(), 500_000);
        drop(below);
        assert_eq!(numbers.null(), Ok(()));
    });
}

#[test]
fn a_watch_is_told_at_once_and_ends_when_its_caller_drops_it() {
    everywhere(|numbers, server| {
        let (send, watched) = mpsc::channel();
        *server.watched.lock().unwrap() = Some(watched);
        let mut watch = numbers.watch().unwrap();
        for n in 0..10 {
            send.send(n).unwrap();
            assert_eq!(watch.next().unwrap().unwrap(), n);
        }
        drop(watch);
        // The server drops its end once it finds that nobody listens.
        while send.send(0).is_ok() {
            std::thread::yield_now();
        }
    });
}

struct Tenfold;

impl NumbersHandler for Tenfold {
    fn which(&self, _: NumbersRaiser, time: u64) -> Answer<u64> {
        if time == 5 { Answer::unwind(Result::<()>::Err(failed().into())) } else { Answer::Resume(10 * time) }
    }
}

fn failed() -> CallFailed {
    CallFailed::new(Kind::NotPermitted, Ran::Yes)
}

#[test]
fn a_signal_may_be_raised_while_a_stream_is_sent() {
    everywhere(|numbers, _| {
        let numbers = numbers.catching(Tenfold);
        let all: Result<Vec<u64>> = numbers.asked(5).unwrap().collect();
        assert_eq!(all.unwrap(), [0, 10, 20, 30, 40]);
        let all: Vec<Result<u64>> = numbers.asked(8).unwrap().collect();
        assert_eq!(all.len(), 6, "{all:?}");
        assert_eq!(failure(all[5].as_ref().unwrap_err()).kind(), Kind::NotPermitted);
    });
}

#[test]
fn a_server_that_is_gone_ends_a_stream_with_what_is_known() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let (server, (send, watched)) = (Arc::new(Server::default()), mpsc::channel());
    *server.watched.lock().unwrap() = Some(watched);
    let export = there.export::<dyn Numbers>("Numbers/a", server).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    let mut watch = numbers.within(std::time::Duration::from_secs(1)).watch().unwrap();
    send.send(1).unwrap();
    assert_eq!(watch.next().unwrap().unwrap(), 1);
    drop((export, there));
    let why = watch.next().unwrap().unwrap_err();
    assert_ne!(why.ran(), Ran::No, "{why}");
    assert!(watch.next().is_none());
    drop(send);
}

#[test]
fn many_threads_read_streams_at_once() {
    everywhere(|numbers, _| {
        std::thread::scope(|scope| {
            for thread in 1..9 {
                scope.spawn(move || {
                    let all: Result<Vec<u64>> = numbers.below(5_000 * thread).unwrap().collect();
                    assert_eq!(all.unwrap().len() as u64, 5_000 * thread);
                });
            }
        });
    });
}

#[test]
fn streams_and_signals_pass_through_a_network_that_loses_datagrams() {
    let runtime =
        || farcall::Runtime::builder().registry(farcall::names::Memory::new()).open().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let export = there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
    let wire = lossy::wire(export.address());
    let numbers = here.import::<dyn Numbers>(&format!("udp://{wire}/Numbers")).unwrap();
    let all: Result<Vec<u64>> = numbers.below(20_000).unwrap().collect();
    assert_eq!(all.unwrap(), (0..20_000).collect::<Vec<u64>>());
    assert_eq!(numbers.sum("", Stream::of(1..=20_000)).unwrap(), 200_010_000);
    let doubled: Result<Vec<u64>> = numbers.doubled(Stream::of(0..10_000)).unwrap().collect();
    assert_eq!(doubled.unwrap(), (0..10_000).map(|n| 2 * n).collect::<Vec<u64>>());
    let asked: Vec<Result<u64>> = numbers.catching(Tenfold).asked(8).unwrap().collect();
    assert_eq!(asked.len(), 6, "{asked:?}");
    assert_eq!(numbers.below(1_000_000).unwrap().take(1_000).count(), 1_000);
    assert_eq!(numbers.null(), Ok(()));
}
