//! Streams and signals of servers of `async fn`s.

use std::future::poll_fn;
use std::task::{Context, Poll, Wake, Waker};

use farcall::{Error, Task};

use super::common::block_on;
use super::*;

#[farcall::interface(async)]
pub trait Feeds {
    fn below(&self, limit: u64) -> Result<Stream<u64>>;
    /// Sends the numbers below a limit, which an iterator gives.
    fn iterated(&self, limit: u64) -> Result<Stream<u64>>;
    fn sum(&self, name: &str, numbers: Stream<u64>) -> Result<u64>;
    fn doubled(&self, numbers: Stream<u64>) -> Result<Stream<u64>>;
    fn texts(&self, lens: Vec<u32>, end: Option<u32>) -> Result<Stream<String, Odd>, Odd>;
    /// Sends what the test gives.
    fn watch(&self) -> Result<Stream<u64>>;
    /// Takes all items, and counts its end even if it is dropped.
    fn drain(&self, numbers: Stream<u64>) -> Result<u64>;
    #[uncancelled]
    fn drain_all(&self, numbers: Stream<u64>) -> Result<u64>;
    /// Adds the answers to so many signals.
    fn ask(&self, times: u64) -> Result<u64>;
    /// Raises a signal as a blocking procedure does.
    fn ask_blocking(&self) -> Result<u64>;
    /// Asks for each number that it sends.
    fn asked(&self, times: u64) -> Result<Stream<u64>>;
    fn panics(&self) -> Result<Stream<u64>>;
    fn null(&self) -> Result<()>;
    #[signal]
    fn which(&self, time: u64, text: &str) -> u64;
}

pub struct Server {
    feed: Feed,
    /// How many calls of `watch`, `drain` and `drain_all` have begun.
    begun: AtomicU64,
    /// How many results of `watch` and futures of `drain` have been dropped.
    dropped: Arc<AtomicU64>,
    drained: mpsc::Sender<Option<Kind>>,
}

struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl FeedsAsync for Server {
    async fn below(&self, limit: u64) -> Result<Stream<u64>> {
        Ok(polled(0..limit))
    }

    async fn iterated(&self, limit: u64) -> Result<Stream<u64>> {
        Ok(Stream::of(0..limit))
    }

    async fn sum(&self, name: &str, mut numbers: Stream<u64>) -> Result<u64> {
        let mut sum = name.len() as u64;
        while let Some(number) = numbers.next_item().await {
            match number? {
                0 => break,
                number => sum += number,
            }
        }
        Ok(sum)
    }

    async fn doubled(&self, mut numbers: Stream<u64>) -> Result<Stream<u64>> {
        Ok(Stream::polled(move |context| {
            numbers.poll_item(context).map(|next| next.map(|number| Ok(number? * 2)))
        }))
    }

    async fn texts(&self, lens: Vec<u32>, end: Option<u32>) -> Result<Stream<String, Odd>, Odd> {
        if lens.is_empty() {
            return Err(Odd { number: 0 }.into());
        }
        let texts = lens.into_iter().map(|len| Ok("x".repeat(len as usize)));
        Ok(Stream::new(texts.chain(end.map(|number| Err(Odd { number }.into())))))
    }

    async fn watch(&self) -> Result<Stream<u64>> {
        let (mut items, dropped) = (self.feed.stream(), self.begin());
        Ok(Stream::polled(move |context| {
            let _ = &dropped;
            items.poll_item(context)
        }))
    }

    async fn drain(&self, numbers: Stream<u64>) -> Result<u64> {
        let _dropped = self.begin();
        self.take_all(numbers).await
    }

    async fn drain_all(&self, numbers: Stream<u64>) -> Result<u64> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.take_all(numbers).await
    }

    async fn ask(&self, times: u64) -> Result<u64> {
        let mut sum = 0;
        for time in 0..times {
            sum += FeedsAsyncSignals::which(time, "async").await?;
        }
        Ok(sum)
    }

    async fn ask_blocking(&self) -> Result<u64> {
        Ok(FeedsSignals::which(0, "blocking")?)
    }

    async fn asked(&self, times: u64) -> Result<Stream<u64>> {
        let mut left = 0..times;
        let mut asking: Option<Asking> = None;
        Ok(Stream::polled(move |context| {
            if asking.is_none() {
                asking = left.next().map(|time| Box::pin(FeedsAsyncSignals::which(time, "")) as Asking);
            }
            let Some(asks) = &mut asking else { return Poll::Ready(None) };
            let asked = asks.as_mut().poll(context);
            asked.map(|answer| {
                asking = None;
                Some(answer.map_err(Error::from))
            })
        }))
    }

    async fn panics(&self) -> Result<Stream<u64>> {
        let mut once = Some(1);
        Ok(Stream::polled(move |_| Poll::Ready(Some(Ok(once.take().expect("of the test"))))))
    }

    async fn null(&self) -> Result<()> {
        Ok(())
    }
}

type Asking = std::pin::Pin<Box<dyn Future<Output = std::result::Result<u64, farcall::Unwound>> + Send>>;

impl Server {
    fn new() -> (Arc<Server>, mpsc::Receiver<Option<Kind>>) {
        let (drained, ends) = mpsc::channel();
        let (feed, begun, dropped) = Default::default();
        (Arc::new(Server { feed, begun, dropped, drained }), ends)
    }

    /// Counts a call, and its end when what this returns is dropped.
    fn begin(&self) -> Dropped {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Dropped(self.dropped.clone())
    }

    async fn take_all(&self, mut numbers: Stream<u64>) -> Result<u64> {
        let mut taken = 0;
        let ended = loop {
            match numbers.next_item().await {
                Some(Ok(_)) => taken += 1,
                Some(Err(why)) => break Err(why),
                None => break Ok(taken),
            }
        };
        let _ = self.drained.send(ended.as_ref().err().map(|why| failure(why).kind()));
        ended
    }
}

/// Returns an executor of one thread, which ends with it.
pub fn one_thread() -> impl Fn(Task) + Send + Sync + 'static {
    struct Spawned {
        task: Mutex<Option<Task>>,
        queue: mpsc::Sender<Arc<Spawned>>,
    }
    impl Wake for Spawned {
        fn wake(self: Arc<Self>) {
            let _ = self.queue.clone().send(self);
        }
    }
    let (queue, tasks) = mpsc::channel::<Arc<Spawned>>();
    std::thread::spawn(move || {
        for spawned in tasks {
            let waker = Waker::from(spawned.clone());
            let mut place = spawned.task.lock().unwrap();
            let Some(mut task) = place.take() else { continue };
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                *place = Some(task);
            }
        }
    });
    let queue = Mutex::new(queue);
    move |task| {
        let queue = queue.lock().unwrap().clone();
        Arc::new(Spawned { task: Mutex::new(Some(task)), queue }).wake();
    }
}

/// Runs a test with a server that one thread executes, called through the network, and with one in this
/// process.
fn everywhere(test: impl Fn(&FeedsClient, &Server, &mpsc::Receiver<Option<Kind>>)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let (server, ends) = Server::new();
    let exported = FeedsAsyncServer::from(server.clone());
    let _export = there.export_async_on("Feeds/a", exported, one_thread()).unwrap();
    test(&here.import::<dyn Feeds>("Feeds/a").unwrap(), &server, &ends);
    let (server, ends) = Server::new();
    test(&farcall::stub::local_async(FeedsAsyncServer::from(server.clone())), &server, &ends);
}

#[test]
fn results_arrive_item_by_item() {
    everywhere(|feeds, _, _| {
        for limit in [0, 1, 10, 20_000] {
            let below = (0..limit).collect::<Vec<u64>>();
            assert_eq!(feeds.below(limit).unwrap().collect::<Result<Vec<u64>>>().unwrap(), below);
            assert_eq!(feeds.iterated(limit).unwrap().collect::<Result<Vec<u64>>>().unwrap(), below);
            assert_eq!(block_on(async { all(feeds.start().below(limit).await?).await }).unwrap(), below);
        }
    });
}

#[test]
fn arguments_are_taken_by_a_task() {
    everywhere(|feeds, _, _| {
        assert_eq!(feeds.sum("abc", Stream::of(0..0)).unwrap(), 3);
        assert_eq!(feeds.sum("", Stream::of(1..=20_000)).unwrap(), 200_010_000);
        // The server stops at the zero.
        assert_eq!(feeds.sum("", Stream::of((1..=3).chain(0..))).unwrap(), 6);
        assert_eq!(block_on(feeds.start().sum("", Stream::of(1..=20_000))).unwrap(), 200_010_000);
        assert_eq!(feeds.start().sum("", Stream::of(1..=20_000)).wait().unwrap(), 200_010_000);
    });
}

#[test]
fn streams_pass_both_ways_at_once() {
    everywhere(|feeds, _, _| {
        let twice: Vec<u64> = (0..10_000).map(|n| 2 * n).collect();
        let doubled: Result<Vec<u64>> = feeds.doubled(Stream::of(0..10_000)).unwrap().collect();
        assert_eq!(doubled.unwrap(), twice);
        let awaited = block_on(async { all(feeds.start().doubled(Stream::of(0..10_000)).await?).await });
        assert_eq!(awaited.unwrap(), twice);
        // One item after the other: what is sent depends on what came.
        let (send, items) = mpsc::channel();
        let mut doubled = feeds.doubled(Stream::of(items)).unwrap();
        for n in 0..100 {
            send.send(n).unwrap();
            assert_eq!(doubled.next().unwrap().unwrap(), 2 * n);
        }
        drop(send);
        assert!(doubled.next().is_none());
    });
}

#[test]
fn items_may_be_long_and_an_exception_ends_a_stream() {
    everywhere(|feeds, _, _| {
        let mut texts = feeds.texts(vec![3, 500_000, 0, 12_000], Some(7)).unwrap();
        for len in [3, 500_000, 0, 12_000] {
            assert_eq!(texts.next().unwrap().unwrap().len(), len);
        }
        assert_eq!(texts.next().unwrap().unwrap_err().declared(), Some(&Odd { number: 7 }));
        assert!(texts.next().is_none());
        let why = feeds.texts(Vec::new(), None).unwrap_err();
        assert_eq!(why.declared(), Some(&Odd { number: 0 }));
        let mut panics = feeds.panics().unwrap();
        let ended: Vec<Result<u64>> = panics.by_ref().collect();
        assert_eq!(failure(ended.last().unwrap().as_ref().unwrap_err()).kind(), Kind::Panicked);
    });
}

#[test]
fn a_thousand_watches_hold_no_thread_and_end_when_they_are_dropped() {
    everywhere(|feeds, server, _| {
        // One thread of the executor serves them all, and one task receives.
        let mut watches: Vec<Stream<u64>> =
            (0..1_000).map(|_| block_on(feeds.start().watch()).unwrap()).collect();
        let mut context = Context::from_waker(Waker::noop());
        for watch in &mut watches {
            assert!(std::pin::pin!(watch.next_item()).poll(&mut context).is_pending());
        }
        (0..1_000).for_each(|item| server.feed.give(Some(item)));
        let mut items: Vec<u64> = Vec::new();
        block_on(poll_fn(|context| {
            for watch in &mut watches {
                while let Poll::Ready(item) = watch.poll_item(context) {
                    items.push(item.unwrap().unwrap());
                }
            }
            if items.len() == 1_000 { Poll::Ready(()) } else { Poll::Pending }
        }));
        items.sort_unstable();
        assert_eq!(items, (0..1_000).collect::<Vec<u64>>());
        drop(watches);
        while server.dropped.load(Ordering::SeqCst) < 1_000 {
            std::thread::yield_now();
        }
        assert_eq!(feeds.null(), Ok(()));
    });
}

#[test]
fn a_watch_ends_when_the_server_ends_it() {
    everywhere(|feeds, server, _| {
        let mut watch = feeds.watch().unwrap();
        for n in 0..10 {
            server.feed.give(Some(n));
            assert_eq!(watch.next().unwrap().unwrap(), n);
        }
        server.feed.give(None);
        assert!(watch.next().is_none());
    });
}

#[test]
fn a_task_that_waits_for_an_argument_is_dropped_when_its_call_is_given_up() {
    everywhere(|feeds, server, _| {
        let counts = || (server.begun.load(Ordering::SeqCst), server.dropped.load(Ordering::SeqCst));
        let begin = |calls| {
            let mut call = feeds.start().drain(endless());
            let mut context = Context::from_waker(Waker::noop());
            while counts().0 < calls {
                assert!(std::pin::pin!(&mut call).poll(&mut context).is_pending());
                std::thread::yield_now();
            }
            call
        };
        let end = |calls| {
            while counts().1 < calls {
                assert_eq!(feeds.null(), Ok(()));
            }
            assert_eq!(counts(), (calls, calls));
        };
        let call = begin(1);
        assert_eq!(counts(), (1, 0));
        drop(call);
        end(1);
        let mut call = begin(2);
        assert_eq!(counts(), (2, 1));
        call.cancel();
        assert!(call.wait().is_err());
        end(2);
    });
}

#[test]
fn a_procedure_that_is_not_dropped_learns_of_a_deadline_where_it_waits() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let export = |name| {
        let (server, ends) = Server::new();
        let exported = FeedsAsyncServer::from(server.clone());
        let export = there.export_async_on(name, exported, one_thread()).unwrap();
        (here.import::<dyn Feeds>(name).unwrap(), server, ends, export)
    };
    let (feeds, server, ends, _export) = export("Feeds/a");
    // On a busy machine the deadline may pass before the procedure begins. Then it never begins, and the test
    // makes the next call.
    while server.begun.load(Ordering::SeqCst) == 0 {
        let call = feeds.within(std::time::Duration::from_millis(100)).start().drain_all(endless());
        let why = call.wait().unwrap_err();
        assert_eq!(failure(&why).kind(), Kind::Deadline, "{why}");
    }
    assert_eq!(ends.recv().unwrap(), Some(Kind::Cancelled));
    // The caller gives up without a deadline.
    let (feeds, server, ends, _export) = export("Feeds/b");
    let mut call = feeds.start().drain_all(endless());
    let mut context = Context::from_waker(Waker::noop());
    while server.begun.load(Ordering::SeqCst) == 0 {
        assert!(std::pin::pin!(&mut call).poll(&mut context).is_pending());
        std::thread::yield_now();
    }
    drop(call);
    assert_eq!(ends.recv().unwrap(), Some(Kind::Cancelled));
}

#[test]
fn a_server_that_stops_ends_its_streams() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let here = runtime();
    for _ in 0..5 {
        let (there, (server, ends)) = (runtime(), Server::new());
        let export = there.export_async_on("Feeds/a", FeedsAsyncServer::from(server), one_thread()).unwrap();
        let feeds = here.import::<dyn Feeds>("Feeds/a").unwrap().within(std::time::Duration::from_secs(1));
        let mut call = feeds.start().drain_all(endless());
        let mut watch = feeds.start().below(u64::MAX).wait().unwrap();
        assert_eq!(watch.next().unwrap().unwrap(), 0);
        let mut context = Context::from_waker(Waker::noop());
        assert!(std::pin::pin!(&mut call).poll(&mut context).is_pending());
        drop((export, there));
        assert!(watch.any(|item| item.is_err()));
        assert!(call.wait().is_err());
        assert!(matches!(ends.recv(), Ok(Some(_)) | Err(_)));
    }
}

struct Tenfold;

impl FeedsHandler for Tenfold {
    fn which(&self, _: FeedsRaiser, time: u64, text: &str) -> Answer<u64> {
        match time {
            5 => Answer::unwind(Result::<u64>::Ok(500)),
            _ => Answer::Resume(10 * time + text.len() as u64),
        }
    }
}

#[test]
fn an_async_procedure_awaits_the_answers_to_its_signals() {
    everywhere(|feeds, _, _| {
        let catching = feeds.catching(Tenfold);
        assert_eq!(catching.ask(5).unwrap(), 125);
        assert_eq!(block_on(catching.start().ask(5)).unwrap(), 125);
        // The handler unwinds the call.
        assert_eq!(catching.ask(8).unwrap(), 500);
        assert_eq!(catching.start().ask(8).wait().unwrap(), 500);
        let why = feeds.ask(1).unwrap_err();
        assert_eq!((failure(&why).kind(), why.ran()), (Kind::Unwound, Ran::Yes), "{why}");
        let why = catching.ask_blocking().unwrap_err();
        assert_eq!(why.ran(), Ran::Yes);
        assert!(why.to_string().contains("AsyncSignals"), "{why}");
        let asked: Result<Vec<u64>> = catching.asked(5).unwrap().collect();
        assert_eq!(asked.unwrap(), [0, 10, 20, 30, 40]);
        let asked = block_on(async { all(catching.start().asked(5).await?).await });
        assert_eq!(asked.unwrap(), [0, 10, 20, 30, 40]);
    });
}

#[test]
fn streams_of_tasks_pass_through_a_network_that_loses_datagrams() {
    let runtime =
        || farcall::Runtime::builder().registry(farcall::names::Memory::new()).open().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let (server, _) = Server::new();
    let export = there.export_async_on("Feeds/a", FeedsAsyncServer::from(server), one_thread()).unwrap();
    let wire = lossy::wire(export.address());
    let feeds = here.import::<dyn Feeds>(&format!("udp://{wire}/Feeds")).unwrap();
    let below = block_on(async { all(feeds.start().below(5_000).await?).await });
    assert_eq!(below.unwrap(), (0..5_000).collect::<Vec<u64>>());
    assert_eq!(block_on(feeds.start().sum("", Stream::of(1..=20_000))).unwrap(), 200_010_000);
    let doubled = block_on(async { all(feeds.start().doubled(Stream::of(0..5_000)).await?).await });
    assert_eq!(doubled.unwrap(), (0..5_000).map(|n| 2 * n).collect::<Vec<u64>>());
    assert_eq!(feeds.catching(Tenfold).ask(5).unwrap(), 125);
}
