//! Streams that do not come to their end: no receiver takes a part for the whole.

use std::time::Duration;

use super::*;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// Has the server tell what it sees of a stream.
fn told(server: &Server) -> mpsc::Receiver<Told> {
    let (send, told) = mpsc::channel();
    *server.told.lock().unwrap() = Some(send);
    told
}

/// Takes what the server saw until the end of a stream.
fn end_of(told: &mpsc::Receiver<Told>) -> (Vec<u64>, Told) {
    let mut items = Vec::new();
    loop {
        match told.recv_timeout(LONG).expect("the stream ends for the server") {
            Told::Item(item) => items.push(item),
            end => return (items, end),
        }
    }
}

/// Returns an iterator without items, which ends when the server has taken this many of the ones before.
fn once_taken(server: &Server, count: u64) -> impl Iterator<Item = u64> + Send + 'static {
    let taken = server.taken.clone();
    std::iter::from_fn(move || {
        while taken.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
        None
    })
}

#[test]
fn an_argument_that_ends_by_an_error_is_not_complete_and_fails_the_call() {
    everywhere(|numbers, server| {
        let told = told(server);
        assert_eq!(numbers.tell(Stream::of(0..3)).unwrap(), 3);
        assert_eq!(end_of(&told), (vec![0, 1, 2], Told::End));
        let items = (0..3).chain(once_taken(server, 4)).map(Ok).chain([Err(failed().into())]);
        let why = numbers.tell(Stream::new(items)).unwrap_err();
        assert_eq!((failure(&why).kind(), why.ran()), (Kind::NotPermitted, Ran::Maybe), "{why}");
        let (_, end) = end_of(&told);
        assert_eq!(end, Told::Failed(Kind::Cancelled));
        assert_eq!(numbers.null(), Ok(()));
    });
}

#[test]
fn an_argument_whose_iterator_panics_is_not_complete() {
    everywhere(|numbers, server| {
        let told = told(server);
        let items = (0..3).chain(once_taken(server, 1)).chain(3..5);
        let items = items.inspect(|n| assert!(*n < 3, "of the test"));
        let why = numbers.tell(Stream::of(items)).unwrap_err();
        assert_eq!((failure(&why).kind(), why.ran()), (Kind::BadArguments, Ran::Maybe), "{why}");
        assert_eq!(end_of(&told).1, Told::Failed(Kind::Cancelled));
        assert_eq!(numbers.null(), Ok(()));
    });
}

#[test]
fn an_argument_of_a_call_whose_deadline_passes_is_not_complete() {
    // On a busy machine the deadline may pass before the procedure begins, or before it has an item. Then the
    // test makes the next call.
    while !ends_at_a_deadline() {}
}

/// Makes a call whose deadline passes while its argument goes on. Returns whether the procedure had an item.
fn ends_at_a_deadline() -> bool {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Server::default());
    let told = told(&server);
    let _export = there.export::<dyn Numbers>("Numbers/a", server).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap().within(Duration::from_millis(100));
    let (send, items) = mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| numbers.tell(Stream::of(items)));
        // A procedure that does not begin tells nothing. Then a further item shows the caller that the
        // deadline has passed.
        let first = loop {
            let _ = send.send(7);
            match told.try_recv() {
                Ok(first) => break Some(first),
                Err(_) if call.is_finished() => break None,
                Err(_) => std::thread::yield_now(),
            }
        };
        let had_item = matches!(first, Some(Told::Item(_)));
        if had_item {
            let (_, end) = end_of(&told);
            assert!(matches!(end, Told::Failed(_)), "{end:?}");
        }
        drop(send);
        // Either end may notice the deadline first.
        let why = call.join().unwrap().unwrap_err();
        assert_eq!(failure(&why).kind(), Kind::Deadline, "{why}");
        had_item
    })
}

#[test]
fn an_iterator_may_wait_for_what_the_server_does_with_its_items() {
    everywhere(|numbers, server| {
        let told = told(server);
        // Each item is made when the server has taken the one before.
        let mut next = 0;
        let items = std::iter::from_fn(move || {
            if next > 0 {
                assert_eq!(told.recv_timeout(LONG), Ok(Told::Item(next - 1)));
            }
            next += 1;
            (next <= 50).then_some(next - 1)
        });
        assert_eq!(numbers.tell(Stream::of(items)).unwrap(), 50);
    });
}

/// Returns the error of a call, which may come before the stream that is its result or in place of an item.
fn error_of(stream: Result<Stream<u64>>) -> farcall::Error {
    let error = |mut stream: Stream<u64>| stream.find_map(Result::err).expect("a failure is the last item");
    stream.map_or_else(|why| why, error)
}

#[test]
fn an_argument_that_fails_ends_the_stream_of_the_result_too() {
    everywhere(|numbers, _| {
        let items = (0..3).map(Ok).chain([Err(failed().into())]);
        let why = error_of(numbers.doubled(Stream::new(items)));
        assert_eq!(failure(&why).kind(), Kind::NotPermitted, "{why}");
        let items = (0..5).inspect(|n| assert!(*n < 3, "of the test"));
        let why = error_of(numbers.doubled(Stream::of(items)));
        assert_eq!(failure(&why).kind(), Kind::BadArguments, "{why}");
        assert_eq!(numbers.null(), Ok(()));
    });
}

#[test]
fn a_result_ends_though_the_iterator_of_the_argument_waits() {
    everywhere(|numbers, _| {
        let (send, items) = mpsc::channel();
        let mut doubled = numbers.doubled(Stream::of(items)).unwrap();
        send.send(1).unwrap();
        send.send(u64::MAX).unwrap();
        assert_eq!(doubled.next().unwrap().unwrap(), 2);
        std::thread::scope(|scope| {
            let (ended, ends) = mpsc::channel();
            scope.spawn(move || ended.send(doubled.next().is_none()));
            let heard = ends.recv_timeout(LONG);
            drop(send);
            assert_eq!(heard, Ok(true));
        });
    });
}

/// Makes a blocking call with an iterator that gives these items and then waits, and returns its outcome. The
/// iterator waits until the call has ended.
fn ended_though_the_iterator_waits<T: Send>(
    items: Vec<u64>,
    call: impl FnOnce(Stream<u64>) -> Result<T> + Send,
) -> Result<T> {
    let (release, waits) = mpsc::channel::<u64>();
    std::thread::scope(|scope| {
        // Also a failed assertion drops this, which ends the iterator.
        let release = release;
        let (ended, ends) = mpsc::channel();
        scope.spawn(move || ended.send(call(Stream::of(items.into_iter().chain(waits)))));
        let outcome = ends.recv_timeout(LONG);
        drop(release);
        outcome.expect("the call ends though the iterator of its argument waits")
    })
}

#[test]
fn a_blocking_call_ends_with_its_result_though_the_iterator_of_its_argument_waits() {
    everywhere(|numbers, _| {
        let sum = ended_though_the_iterator_waits(vec![3, 4, 0], |items| numbers.sum("abc", items));
        assert_eq!(sum, Ok(10));
        assert_eq!(numbers.null(), Ok(()));
    });
}

#[test]
fn a_blocking_call_ends_at_its_deadline_though_the_iterator_of_its_argument_waits() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _export = there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap().within(Duration::from_millis(100));
    for items in [vec![], vec![1], vec![1, 2, 3]] {
        for started in [false, true] {
            let ended = ended_though_the_iterator_waits(items.clone(), |items| match started {
                false => numbers.sum("", items),
                true => numbers.start().sum("", items).wait(),
            });
            let why = ended.unwrap_err();
            assert_eq!(failure(&why).kind(), Kind::Deadline, "{why}");
        }
    }
}

#[test]
fn a_blocking_call_ends_when_its_server_does_though_the_iterator_of_its_argument_waits() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Server::default());
    let told = told(&server);
    let export = there.export::<dyn Numbers>("Numbers/a", server).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    std::thread::scope(|scope| {
        let ends = scope.spawn(move || {
            assert_eq!(told.recv_timeout(LONG), Ok(Told::Item(1)));
            drop((export, there));
        });
        let ended = ended_though_the_iterator_waits(vec![1], |items| numbers.tell(items));
        assert!(ended.is_err(), "{ended:?}");
        ends.join().unwrap();
    });
}

#[test]
fn a_server_that_stops_while_it_sends_does_not_end_the_stream_as_complete() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let here = runtime();
    for _ in 0..5 {
        let there = runtime();
        let export = there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
        let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap().within(Duration::from_secs(1));
        let mut below = numbers.below(1_000_000).unwrap();
        assert_eq!(below.next().unwrap().unwrap(), 0);
        drop((export, there));
        assert!(below.any(|item| item.is_err()), "{} items", 1_000_000);
    }
}

#[test]
fn a_stream_that_may_not_wait_for_its_end_fails() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone());
    let (here, there) = (runtime().build().unwrap(), runtime().workers(1).threads(2).build().unwrap());
    let _export = there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    let mut waits = numbers.below(1_000_000).unwrap();
    assert_eq!(waits.next().unwrap().unwrap(), 0);
    for _ in 0..20 {
        let Ok(below) = numbers.below(10) else { continue };
        let all: Result<Vec<u64>> = below.collect();
        assert!(all.as_ref().map_or(true, |all| all.len() == 10), "{all:?}");
    }
    drop(waits);
    // A thread of the server is free again when it has heard of the cancel.
    while numbers.null().is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_server_may_keep_a_stream_that_its_call_does_not_outlive() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Server::default());
    let export = there.export::<dyn Numbers>("Numbers/a", server.clone()).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    numbers.keep(Stream::of(0..100_000)).unwrap();
    let why = server.kept.lock().unwrap().as_mut().unwrap().find_map(Result::err);
    assert_eq!(failure(&why.expect("there were more")).kind(), Kind::Cancelled);
    numbers.keep(Stream::of(0..100_000)).unwrap();
    // The export drops the server, and the server drops the stream.
    drop(server);
    drop(export);
    assert!(numbers.null().is_err());
}

#[test]
fn a_stream_outlives_the_runtime_of_its_caller_or_fails() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _export = there.export::<dyn Numbers>("Numbers/a", Arc::new(Server::default())).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    let mut below = numbers.below(20_000).unwrap();
    assert_eq!(below.next().unwrap().unwrap(), 0);
    drop((numbers, here));
    let rest: Result<Vec<u64>> = below.collect();
    assert!(rest.as_ref().map_or(true, |rest| rest.len() == 19_999), "{:?}", rest.map(|rest| rest.len()));
}

#[test]
fn a_server_learns_with_its_next_item_that_nobody_takes_them() {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let server = Arc::new(Server::default());
    let _export = there.export::<dyn Numbers>("Numbers/a", server.clone()).unwrap();
    let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
    for _ in 0..50 {
        let mut drip = numbers.drip().unwrap();
        assert_eq!(drip.by_ref().take(100).filter(Result::is_ok).count(), 100);
        drop(drip);
        // The iterator holds the counter, too, until it is dropped.
        while Arc::strong_count(&server.made) > 1 {
            std::thread::yield_now();
        }
        let made = server.made.load(Ordering::SeqCst);
        assert!(made <= 2, "{made} items for nobody");
    }
}

#[test]
fn an_iterator_is_dropped_when_its_receiver_takes_no_more() {
    everywhere(|numbers, server| {
        let told = told(server);
        let (held, was_dropped) = mpsc::channel::<()>();
        let items = (1..=5).inspect(move |_| {
            let _ = &held;
        });
        std::thread::scope(|scope| {
            let call = scope.spawn(|| numbers.tell(Stream::of(items)));
            assert_eq!(was_dropped.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
            assert_eq!(call.join().unwrap().unwrap(), 5);
        });
        assert_eq!(end_of(&told).1, Told::End);
    });
}

#[test]
fn a_server_that_drains_ends_a_watch_and_lets_a_stream_that_flows_go_on() {
    for whole in [false, true] {
        let names = farcall::names::Memory::new();
        let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
        let (here, there) = (runtime(), runtime());
        let ours = Arc::new(Server::default());
        let export = there.export::<dyn Numbers>("Numbers/a", ours.clone()).unwrap();
        let numbers = here.import::<dyn Numbers>("Numbers/a").unwrap();
        let (send, watched) = mpsc::channel();
        *ours.watched.lock().unwrap() = Some(watched);
        let mut watch = numbers.watch().unwrap();
        (0..3).for_each(|number| send.send(number).unwrap());
        assert!((0..3).all(|number| watch.next().unwrap().unwrap() == number));
        let mut flows = numbers.below(200_000).unwrap();
        assert_eq!(flows.next().unwrap().unwrap(), 0);
        // The receiver takes nothing more until the watch has ended.
        let mut held_up = numbers.texts(vec![300_000; 40], None).unwrap();
        assert_eq!(held_up.next().unwrap().unwrap().len(), 300_000);
        let takes = std::thread::spawn(move || flows.map(Result::unwrap).eq(1..200_000));
        let drains = std::thread::spawn(move || {
            let minute = std::time::Duration::from_secs(60);
            if whole { there.drain(minute) } else { export.drain(minute) }
        });
        let why = watch.next().unwrap().unwrap_err();
        let why = failure(&why);
        assert_eq!((why.kind(), why.ran(), watch.taken()), (Kind::Draining, Ran::Yes, 3), "{why}");
        assert!(takes.join().unwrap());
        assert_eq!(held_up.filter(|text| text.as_ref().is_ok_and(|text| text.len() == 300_000)).count(), 39);
        // The procedure ends when its iterator does.
        drop(send);
        assert!(drains.join().unwrap());
    }
}
