//! Many started calls over UDP: each is sent and gets its own result, whether its thread waits for it, polls
//! it, cancels it or drops it. A [`Calls`] returns started calls as they end.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{block_on, builder};
use farcall::{Calls, Export, Pending};

#[farcall::interface]
trait Place {
    /// Tells the test that this call has arrived, and returns `n`.
    fn arrive(&self, n: u32) -> farcall::Result<u32>;
    /// Waits until the test sends one message to `go`.
    #[blocking]
    fn stay(&self) -> farcall::Result<()>;
}

struct Yard {
    came: Mutex<Sender<u32>>,
    go: Mutex<Receiver<()>>,
}

impl Place for Yard {
    fn arrive(&self, n: u32) -> farcall::Result<u32> {
        self.came.lock().unwrap().send(n).unwrap();
        Ok(n)
    }

    fn stay(&self) -> farcall::Result<()> {
        self.go.lock().unwrap().recv().unwrap();
        Ok(())
    }
}

/// A stub with outstanding calls, and its server. Further calls through the stub may be queued to share
/// datagrams.
struct Busy {
    place: PlaceClient,
    /// The arguments of the `arrive` calls that have arrived.
    came: Receiver<u32>,
    /// Ends one `stay` call for each message.
    go: Sender<()>,
    staying: Vec<Pending<()>>,
    _export: Export,
}

/// The number of `stay` calls that a [`Busy`] keeps outstanding.
const STAYING: usize = 8;

impl Busy {
    fn new() -> Busy {
        let runtime = builder().workers(2 * STAYING).shared_memory(false).build().unwrap();
        let ((tell, came), (go, may_go)) = (channel(), channel());
        let yard = Yard { came: Mutex::new(tell), go: Mutex::new(may_go) };
        let export = runtime.export::<dyn Place>("Place/yard", Arc::new(yard)).unwrap();
        let place = runtime.import::<dyn Place>("Place/yard").unwrap();
        let staying = (0..STAYING).map(|_| place.start().stay()).collect();
        Busy { place, came, go, staying, _export: export }
    }

    fn end(self) {
        for _ in 0..STAYING {
            self.go.send(()).unwrap();
        }
        self.staying.into_iter().for_each(|call| call.wait().unwrap());
    }
}

#[test]
fn a_started_call_is_sent_even_if_no_thread_waits_for_it() {
    let busy = Busy::new();
    for n in 0..100 {
        let call = busy.place.start().arrive(n);
        assert_eq!(busy.came.recv().unwrap(), n, "the call arrives before any thread waits for it");
        drop(call);
    }
    for n in 0..100 {
        busy.place.start().arrive(n).detach();
        assert_eq!(busy.came.recv().unwrap(), n);
    }
    busy.end();
}

#[test]
fn a_started_call_can_be_waited_for_polled_or_cancelled() {
    let busy = Busy::new();
    for n in 0..100 {
        assert_eq!(busy.place.start().arrive(n).wait().unwrap(), n);
        assert_eq!(block_on(busy.place.start().arrive(n)).unwrap(), n);
        assert_eq!(busy.place.arrive(n).unwrap(), n);
        let mut call = busy.place.start().arrive(n);
        call.cancel();
        match call.wait() {
            Ok(m) => assert_eq!(m, n),
            Err(why) => assert!(why.to_string().contains("cancelled"), "{why}"),
        }
    }
    busy.end();
}

#[test]
fn each_call_in_a_window_of_started_calls_gets_its_own_result() {
    let busy = Busy::new();
    let mut window = VecDeque::new();
    for n in 0..20_000 {
        if window.len() == 256 {
            let (m, call): (u32, Pending<u32>) = window.pop_front().unwrap();
            assert_eq!(call.wait().unwrap(), m);
        }
        window.push_back((n, busy.place.start().arrive(n)));
    }
    for (m, call) in window {
        assert_eq!(call.wait().unwrap(), m);
    }
    assert_eq!(busy.came.try_iter().count(), 20_000);
    busy.end();
}

#[test]
fn threads_that_start_calls_concurrently_get_their_own_results() {
    let busy = Busy::new();
    std::thread::scope(|scope| {
        for thread in 0u32..4 {
            let place = &busy.place;
            scope.spawn(move || {
                for round in 0..100 {
                    let numbers = |k: u32| thread * 1_000_000 + round * 1000 + k;
                    let calls: Vec<_> = (0..16).map(|k| place.start().arrive(numbers(k))).collect();
                    for (k, call) in (0u32..).zip(calls) {
                        let came = if thread % 2 == 0 { call.wait() } else { block_on(call) };
                        assert_eq!(came.unwrap(), numbers(k));
                    }
                }
            });
        }
    });
    assert_eq!(busy.came.try_iter().count(), 4 * 100 * 16);
    busy.end();
}

#[test]
fn calls_are_returned_when_they_end_in_any_order() {
    let mut busy = Busy::new();
    let (mut staying, mut arriving) = (Calls::new(), Calls::new());
    for (n, stay) in busy.staying.drain(..).enumerate() {
        staying.add(n, stay);
    }
    for _ in 0..200 {
        for n in 0..20 {
            arriving.add(n, busy.place.start().arrive(n));
        }
        let mut ended: Vec<_> = (0..20).map(|_| arriving.wait().unwrap()).collect();
        ended.sort_by_key(|(n, _)| *n);
        assert!(ended.iter().zip(0..).all(|((n, result), i)| *n == i && *result == Ok(i)), "{ended:?}");
        assert!(arriving.is_empty() && arriving.wait().is_none());
        assert!(staying.try_next().is_none());
    }
    assert!(staying.wait_for(Duration::from_micros(1)).is_none());
    assert_eq!(staying.len(), STAYING);
    for left in (0..STAYING).rev() {
        busy.go.send(()).unwrap();
        assert_eq!(staying.wait().map(|(_, result)| result), Some(Ok(())));
        assert_eq!(staying.len(), left);
    }
}

#[test]
fn calls_that_failed_before_the_wait_are_returned_too() {
    let place = farcall::stub::local::<dyn Place>(Arc::new(Yard {
        came: Mutex::new(channel().0),
        go: Mutex::new(channel().1),
    }));
    let mut calls = Calls::new();
    for n in 0..5 {
        // No thread receives these reports any more, so the procedure panics.
        calls.add(n, place.start().arrive(n));
    }
    let failed = std::iter::from_fn(|| calls.wait()).filter(|(_, result)| result.is_err()).count();
    assert_eq!(failed, 5);
}
