//! Iterators of arguments that give nothing: they block only themselves, in whatever process the server is.

use std::time::Duration;

use farcall::stub::local_async;

use super::*;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// Takes numbers.
#[farcall::interface(async)]
pub trait Sinks {
    /// Takes one number, and raises the exception.
    fn refuse(&self, numbers: Stream<u64>) -> Result<u64, Odd>;
    fn sum(&self, numbers: Stream<u64>) -> Result<u64>;
}

struct Server;

impl Sinks for Server {
    fn refuse(&self, mut numbers: Stream<u64>) -> Result<u64, Odd> {
        match numbers.next() {
            Some(Ok(number)) => Err(Odd { number: number as u32 }.into()),
            other => panic!("{other:?}"),
        }
    }

    fn sum(&self, numbers: Stream<u64>) -> Result<u64> {
        let mut sum = 0;
        for number in numbers {
            sum += number?;
        }
        Ok(sum)
    }
}

impl SinksAsync for Server {
    async fn refuse(&self, mut numbers: Stream<u64>) -> Result<u64, Odd> {
        match numbers.next_item().await {
            Some(Ok(number)) => Err(Odd { number: number as u32 }.into()),
            other => panic!("{other:?}"),
        }
    }

    async fn sum(&self, mut numbers: Stream<u64>) -> Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next_item().await {
            sum += number?;
        }
        Ok(sum)
    }
}

/// Runs a test with stubs through the network, and to blocking and asynchronous servers of this process.
fn everywhere(test: impl Fn(&SinksClient)) {
    let names = farcall::names::Memory::new();
    let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
    let (here, there) = (runtime(), runtime());
    let _export = there.export::<dyn Sinks>("Sinks/a", Arc::new(Server)).unwrap();
    test(&here.import::<dyn Sinks>("Sinks/a").unwrap());
    test(&farcall::stub::local::<dyn Sinks>(Arc::new(Server)));
    test(&local_async(SinksAsyncServer::new(Server)));
}

/// Makes a call in a thread, with an iterator that gives these items and then waits until the call has ended.
/// Returns the call's outcome.
fn ended<T: Send + 'static>(items: Vec<u64>, call: impl FnOnce(Stream<u64>) -> T + Send + 'static) -> T {
    let (release, waits) = mpsc::channel::<u64>();
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || ended.send(call(Stream::of(items.into_iter().chain(waits)))));
    let outcome = ends.recv_timeout(LONG);
    // Also a failed test ends the iterator.
    drop(release);
    outcome.expect("the call ends though the iterator of its argument waits")
}

#[test]
fn a_call_ends_at_its_deadline_though_the_iterator_of_its_argument_gives_nothing() {
    everywhere(|sinks| {
        for items in [vec![], vec![1, 2]] {
            for started in [false, true] {
                let sinks = sinks.within(Duration::from_millis(100));
                let why = ended(items.clone(), move |items| match started {
                    false => sinks.sum(items),
                    true => sinks.start().sum(items).wait(),
                });
                let why = why.unwrap_err();
                assert_eq!(failure(&why).kind(), Kind::Deadline, "{why}");
            }
        }
        assert_eq!(sinks.within(LONG).sum(Stream::of(0..4)).unwrap(), 6);
    });
}

#[test]
fn a_call_ends_with_the_exception_of_the_procedure_though_the_iterator_of_its_argument_waits() {
    everywhere(|sinks| {
        for started in [false, true] {
            let sinks = sinks.clone();
            let why = ended(vec![7], move |items| match started {
                false => sinks.refuse(items),
                true => sinks.start().refuse(items).wait(),
            });
            assert_eq!(why.unwrap_err().declared(), Some(&Odd { number: 7 }));
        }
    });
}

/// A server that calls another one, with an argument that an iterator gives.
#[farcall::interface]
pub trait Relays {
    /// Returns how many seconds the caller will wait at most, as the iterator knows it.
    fn remaining(&self) -> Result<u64>;
}

struct Middle(SinksClient);

impl Relays for Middle {
    fn remaining(&self) -> Result<u64> {
        let remaining = || farcall::context().remaining().map_or(0, |left| left.as_secs());
        self.0.sum(Stream::of(std::iter::once_with(remaining)))
    }
}

#[test]
fn an_iterator_serves_the_call_in_which_its_stream_is_sent() {
    everywhere(|sinks| {
        let names = farcall::names::Memory::new();
        let runtime = || farcall::Runtime::builder().registry(names.clone()).build().unwrap();
        let (here, there) = (runtime(), runtime());
        let middle = Arc::new(Middle(sinks.clone()));
        let _export = there.export::<dyn Relays>("Relays/a", middle).unwrap();
        let relays = here.import::<dyn Relays>("Relays/a").unwrap().within(Duration::from_secs(3600));
        let left = relays.remaining().unwrap();
        assert!((3000..=3600).contains(&left), "{left}");
    });
}
