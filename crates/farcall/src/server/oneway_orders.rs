//! Executes the batches of one-way calls of one stub one after the other, in the order of their calls.
//!
//! A client sends a batch when the one before has ended. But a client that has heard nothing for its patience
//! gives a batch up, and goes on with the next. If the server was merely stopped, or the datagrams were late,
//! it then has both. The later batch waits until the earlier one has ended; and if the earlier one comes to
//! its turn after the later one, it is refused, because it is too late for it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::context::Set;
use crate::env::{Env, Time};
use crate::stub::BatchPlace;
use crate::{CallFailed, Kind, Ran, guard, lock, serving};

/// How long an order is known after its last batch. A batch that comes later is not one that was overtaken.
const KEPT: Duration = Duration::from_secs(60);

/// When this many orders are known, those that were not in use for longest are forgotten, down to the second
/// number. So a client that makes many orders does not have all of them looked at for each.
const MAX_ORDERS: usize = 16_384;
const KEPT_ORDERS: usize = MAX_ORDERS / 4 * 3;

/// The most batches of one order that wait for an earlier one. A client has one, and a few that it has given
/// up.
const MAX_WAITING: usize = 8;

/// The orders of one-way calls at an export.
pub(super) struct Orders {
    env: Arc<dyn Env>,
    orders: Mutex<HashMap<u64, Order>>,
    /// How many batches have arrived.
    arrived: AtomicU64,
}

struct Order {
    /// The first call of the latest batch that has begun.
    latest: u64,
    executes: bool,
    /// When the latest batch has ended.
    since: Time,
    waiting: Vec<Waiting>,
}

/// A batch that waits. The one with the earliest calls begins first.
struct Waiting {
    first: u64,
    number: u64,
    /// `None` once it was woken.
    waker: Option<Waker>,
}

/// A batch that has not begun.
struct Arrived {
    orders: Arc<Orders>,
    place: BatchPlace,
    /// Tells it from other batches, which may claim to have the same place.
    number: u64,
    waits: bool,
}

/// The execution of a batch. Dropping it lets the next batch of the order begin.
pub(super) struct Turn {
    orders: Arc<Orders>,
    order: u64,
}

impl Orders {
    pub(super) fn new(env: &Arc<dyn Env>) -> Arc<Orders> {
        Arc::new(Orders { env: env.clone(), orders: Mutex::default(), arrived: AtomicU64::default() })
    }

    /// Blocks until a batch may begin.
    ///
    /// # Errors
    /// When a later batch has begun, or too many wait, or this thread must not wait. The batch did not run.
    pub(super) fn begin(self: &Arc<Self>, place: BatchPlace) -> Result<Turn, CallFailed> {
        let mut batch = self.arrive(place);
        if let Some(begun) = batch.try_begin(Waker::noop()) {
            return begun;
        }
        let _waiting = serving::try_wait_guard()?;
        let event = self.env.event();
        let waker = Waker::from(Arc::new(Set(event.clone())));
        loop {
            if let Some(begun) = batch.try_begin(&waker) {
                return begun;
            }
            event.wait(None);
        }
    }

    /// Waits as [`Orders::begin`] does, in a task.
    pub(super) async fn begin_later(self: Arc<Self>, place: BatchPlace) -> Result<Turn, CallFailed> {
        let mut batch = self.arrive(place);
        poll_fn(|context| match batch.try_begin(context.waker()) {
            Some(begun) => Poll::Ready(begun),
            None => Poll::Pending,
        })
        .await
    }

    fn arrive(self: &Arc<Self>, place: BatchPlace) -> Arrived {
        let number = self.arrived.fetch_add(1, Relaxed);
        Arrived { orders: self.clone(), place, number, waits: false }
    }
}

impl Arrived {
    /// Lets the batch begin, or refuses it. Returns `None` if it waits for an earlier one; `waker` is then
    /// woken when it is its turn.
    fn try_begin(&mut self, waker: &Waker) -> Option<Result<Turn, CallFailed>> {
        // Cloning and dropping wakers run the user's code, so both happen without the lock.
        let mut waker = Some(waker.clone());
        let Arrived { orders: shared, place, number, waits } = self;
        let turn = || Turn { orders: shared.clone(), order: place.order };
        let orders = &mut *lock(&shared.orders);
        if orders.len() >= MAX_ORDERS && !orders.contains_key(&place.order) {
            forget(orders, shared.env.now());
        }
        let Some(order) = orders.get_mut(&place.order) else {
            let order =
                Order { latest: place.first, executes: true, since: Time::default(), waiting: Vec::new() };
            orders.insert(place.order, order);
            return Some(Ok(turn()));
        };
        if place.first <= order.latest {
            let why = "later one-way calls of its stub have begun";
            return Some(Err(CallFailed::new(Kind::Cancelled, Ran::No).because(why)));
        }
        if !order.executes && order.waiting.iter().all(|other| place.first <= other.first) {
            (order.latest, order.executes) = (place.first, true);
            return Some(Ok(turn()));
        }
        if let Some(own) = order.waiting.iter_mut().find(|own| own.number == *number) {
            std::mem::swap(&mut own.waker, &mut waker);
            return None;
        }
        if order.waiting.len() >= MAX_WAITING {
            let why = "earlier one-way calls of its stub have not ended";
            return Some(Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why)));
        }
        order.waiting.push(Waiting { first: place.first, number: *number, waker: waker.take() });
        *waits = true;
        None
    }
}

/// Makes room for another batch that waits, and lets the next one begin if it was this one's turn.
impl Drop for Arrived {
    fn drop(&mut self) {
        if !self.waits {
            return;
        }
        let (_left, next) = {
            let mut orders = lock(&self.orders.orders);
            let Some(order) = orders.get_mut(&self.place.order) else { return };
            let own = order.waiting.iter().position(|own| own.number == self.number);
            let left = own.map(|own| order.waiting.swap_remove(own));
            (left, order.next())
        };
        wake(next);
    }
}

impl Order {
    /// Returns the waker of the batch whose turn it is, if it was not woken yet.
    fn next(&mut self) -> Option<Waker> {
        if self.executes {
            return None;
        }
        self.waiting.iter_mut().min_by_key(|batch| batch.first)?.waker.take()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.orders.env.now();
        let next = {
            let mut orders = lock(&self.orders.orders);
            let Some(order) = orders.get_mut(&self.order) else { return };
            (order.executes, order.since) = (false, now);
            order.next()
        };
        wake(next);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        guard::run_alone("a waker", || waker.wake());
    }
}

/// Forgets orders whose batches have ended: those that are older than [`KEPT`], or else as many of the others
/// as makes room.
fn forget(orders: &mut HashMap<u64, Order>, now: Time) {
    let mut kept = KEPT;
    while orders.len() > KEPT_ORDERS {
        orders
            .retain(|_, order| order.executes || !order.waiting.is_empty() || now.since(order.since) < kept);
        if kept.is_zero() {
            return;
        }
        kept = if kept > Duration::from_millis(1) { kept / 2 } else { Duration::ZERO };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;
    use std::sync::mpsc;
    use std::thread;

    fn orders() -> Arc<Orders> {
        let env: Arc<dyn Env> = Arc::new(System);
        Orders::new(&env)
    }

    fn at(first: u64) -> BatchPlace {
        BatchPlace { order: 1, first }
    }

    fn refused(begun: Result<Turn, CallFailed>) -> (Kind, Ran) {
        begun.err().map(|why| (why.kind(), why.ran())).expect("the batch is refused")
    }

    #[test]
    fn a_later_batch_begins_when_the_earlier_one_has_ended() {
        let (orders, (told, begun)) = (orders(), mpsc::channel());
        let first = orders.begin(at(0)).unwrap();
        let later = orders.clone();
        let thread = thread::spawn(move || {
            let turn = later.begin(at(10)).unwrap();
            told.send(()).unwrap();
            drop(turn);
        });
        while lock(&orders.orders)[&1].waiting.is_empty() {
            thread::yield_now();
        }
        assert!(begun.try_recv().is_err(), "the later batch waits");
        drop(first);
        begun.recv().unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn a_batch_that_was_overtaken_is_refused() {
        let orders = orders();
        drop(orders.begin(at(10)).unwrap());
        for first in [0, 10] {
            assert_eq!(refused(orders.begin(at(first))), (Kind::Cancelled, Ran::No));
        }
        drop(orders.begin(at(11)).unwrap());
        drop(orders.begin(BatchPlace { order: 2, first: 0 }).unwrap());
    }

    #[test]
    fn few_batches_wait_in_an_order() {
        let orders = orders();
        let _first = orders.begin(at(0)).unwrap();
        let mut waiting: Vec<Arrived> =
            (1..=MAX_WAITING as u64).map(|first| orders.arrive(at(first))).collect();
        for _ in 0..2 {
            assert!(waiting.iter_mut().all(|batch| batch.try_begin(Waker::noop()).is_none()));
        }
        assert_eq!(refused(orders.begin(at(100))), (Kind::Overloaded, Ran::No));
        // A batch that was given up while it waited makes room.
        drop(waiting.pop());
        assert!(orders.arrive(at(100)).try_begin(Waker::noop()).is_none());
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicU64);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_waiting_batch_with_the_earliest_calls_begins_first() {
        let orders = orders();
        let turn = orders.begin(at(0)).unwrap();
        let wakers: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
        let woken = || wakers.iter().map(|woken| woken.0.load(Relaxed)).collect::<Vec<_>>();
        let mut waiting = [30, 20, 10].map(|first| orders.arrive(at(first)));
        for (batch, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(batch.try_begin(&Waker::from(waker.clone())).is_none());
        }
        let [mut last, mut second, first] = waiting;
        drop(turn);
        assert_eq!(woken(), [0, 0, 1]);
        assert!(last.try_begin(&Waker::from(wakers[0].clone())).is_none(), "it is not its turn");
        // The next one is woken if one that was woken is given up.
        drop(first);
        assert_eq!(woken(), [0, 1, 1]);
        let turn = second.try_begin(Waker::noop()).unwrap().unwrap();
        drop(second);
        assert_eq!(woken(), [0, 1, 1]);
        drop(turn);
        assert_eq!(woken(), [1, 1, 1]);
        drop(last.try_begin(Waker::noop()).unwrap().unwrap());
    }

    #[test]
    fn the_orders_that_are_known_are_bounded() {
        let orders = orders();
        let turns: Vec<Turn> =
            (0..10).map(|order| orders.begin(BatchPlace { order, first: 0 }).unwrap()).collect();
        for order in 10..3 * MAX_ORDERS as u64 {
            drop(orders.begin(BatchPlace { order, first: 0 }).unwrap());
        }
        assert!(lock(&orders.orders).len() <= MAX_ORDERS);
        assert!((0..10).all(|order| lock(&orders.orders).contains_key(&order)), "these still execute");
        drop(turns);
    }
}
