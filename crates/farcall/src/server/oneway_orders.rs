//! Executes the batches of one-way calls of one stub one after the other, in the order of their calls.
//!
//! A client sends a batch when the one before has ended. But a client that has heard nothing for its patience
//! gives a batch up, and goes on with the next. If the server was merely stopped, or the datagrams were late,
//! it then has both. The later batch waits until the earlier one has ended; and if the earlier one comes to
//! its turn after the later one, it is refused, because it is too late for it.
//!
//! An order has a random number, which nobody else knows. Clients can make as many orders as they like, so
//! those that are remembered are bounded, and the network that has most pays (docs/protocol.md, "Bounds").

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::context::Set;
use crate::env::{Env, Time};
use crate::host::{Host, Network};
use crate::stub::BatchPlace;
use crate::{CallFailed, Kind, Ran, guard, lock, serving};

/// How long an order is known after its last batch. A batch that comes later is not one that was overtaken.
const KEPT: Duration = Duration::from_secs(60);

/// When this many orders are idle, some are forgotten, until `KEPT_IDLE_ORDERS` are left. So the orders are
/// not all looked at for each new one. Orders that are in use are not counted: the calls of an export are
/// bounded.
const MAX_IDLE_ORDERS: usize = 16_384;
const KEPT_IDLE_ORDERS: usize = MAX_IDLE_ORDERS / 4 * 3;

/// The most batches of one order that wait for an earlier one. A client has one, and a few that it has given
/// up.
const MAX_WAITING: usize = 8;

/// The orders of one-way calls at an export.
pub(super) struct Orders {
    env: Arc<dyn Env>,
    known: Mutex<KnownOrders>,
    /// How many batches have arrived.
    arrived: AtomicU64,
}

#[derive(Default)]
struct KnownOrders {
    orders: HashMap<u64, Order>,
    /// How many of them are idle.
    idle: usize,
}

struct Order {
    /// The host that has made the order.
    host: Host,
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
    host: Host,
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
        Arc::new(Orders { env: env.clone(), known: Mutex::default(), arrived: AtomicU64::default() })
    }

    /// Blocks until a batch of a client at this host may begin.
    ///
    /// # Errors
    /// When a later batch has begun, or too many wait, or this thread must not wait. The batch did not run.
    pub(super) fn begin(self: &Arc<Self>, place: BatchPlace, host: Host) -> Result<Turn, CallFailed> {
        let mut batch = self.arrive(place, host);
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
    pub(super) async fn begin_later(
        self: Arc<Self>,
        place: BatchPlace,
        host: Host,
    ) -> Result<Turn, CallFailed> {
        let mut batch = self.arrive(place, host);
        poll_fn(|context| match batch.try_begin(context.waker()) {
            Some(begun) => Poll::Ready(begun),
            None => Poll::Pending,
        })
        .await
    }

    fn arrive(self: &Arc<Self>, place: BatchPlace, host: Host) -> Arrived {
        let number = self.arrived.fetch_add(1, Relaxed);
        Arrived { orders: self.clone(), place, host, number, waits: false }
    }
}

impl Arrived {
    /// Lets the batch begin, or refuses it. Returns `None` if it waits for an earlier one; `waker` is then
    /// woken when it is its turn.
    fn try_begin(&mut self, waker: &Waker) -> Option<Result<Turn, CallFailed>> {
        // Cloning and dropping wakers run the user's code, so both happen without the lock.
        let mut waker = Some(waker.clone());
        let Arrived { orders: shared, place, host, number, waits } = self;
        let turn = || Turn { orders: shared.clone(), order: place.order };
        let known = &mut *lock(&shared.known);
        if known.idle >= MAX_IDLE_ORDERS && !known.orders.contains_key(&place.order) {
            known.forget(shared.env.now());
        }
        let Some(order) = known.orders.get_mut(&place.order) else {
            known.orders.insert(place.order, Order::begun(*host, place.first));
            return Some(Ok(turn()));
        };
        if place.first <= order.latest {
            let why = "later one-way calls of its stub have begun";
            return Some(Err(CallFailed::new(Kind::Cancelled, Ran::No).because(why)));
        }
        if !order.executes && order.waiting.iter().all(|other| place.first <= other.first) {
            known.idle -= usize::from(order.is_idle());
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
            let known = &mut *lock(&self.orders.known);
            let Some(order) = known.orders.get_mut(&self.place.order) else { return };
            let own = order.waiting.iter().position(|own| own.number == self.number);
            let left = own.map(|own| order.waiting.swap_remove(own));
            known.idle += usize::from(left.is_some() && order.is_idle());
            (left, order.next())
        };
        wake(next);
    }
}

impl Order {
    /// Returns an order of which a batch executes, with this first call.
    fn begun(host: Host, first: u64) -> Order {
        Order { host, latest: first, executes: true, since: Time::default(), waiting: Vec::new() }
    }

    /// Returns whether no batch executes or waits.
    fn is_idle(&self) -> bool {
        !self.executes && self.waiting.is_empty()
    }

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
            let known = &mut *lock(&self.orders.known);
            let Some(order) = known.orders.get_mut(&self.order) else { return };
            (order.executes, order.since) = (false, now);
            known.idle += usize::from(order.is_idle());
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

impl KnownOrders {
    /// Forgets idle orders: those that are older than [`KEPT`], and then as many of the others as makes room.
    /// Each is one of the network that has most idle orders and, in it, of the host that has most: the order
    /// that was not in use for longest.
    fn forget(&mut self, now: Time) {
        self.orders.retain(|_, order| !order.is_idle() || now.since(order.since) < KEPT);
        let idle = self.orders.iter().filter(|(_, order)| order.is_idle());
        let mut idle: Vec<(Host, Time, u64)> =
            idle.map(|(number, order)| (order.host, order.since, *number)).collect();
        // The networks take turns to keep an order, and the hosts of a network. So those that have most lose
        // orders until they have as few as the next ones.
        idle.sort_unstable_by_key(|(host, since, number)| (*host, Reverse(*since), *number));
        let of_hosts = numbered(idle, |(host, ..)| *host);
        let mut of_hosts: Vec<(Network, usize, u64)> =
            of_hosts.map(|(turn, (host, _, number))| (host.network(), turn, number)).collect();
        of_hosts.sort_unstable();
        let mut turns: Vec<(usize, u64)> =
            numbered(of_hosts, |(network, ..)| *network).map(|(turn, (.., number))| (turn, number)).collect();
        turns.sort_unstable();
        let kept = turns.len().min(KEPT_IDLE_ORDERS);
        for (_, number) in turns.drain(kept..) {
            self.orders.remove(&number);
        }
        self.idle = kept;
    }
}

/// Numbers the items of each group from 0. Items of one group are side by side.
fn numbered<T, G: PartialEq>(items: Vec<T>, group: impl Fn(&T) -> G) -> impl Iterator<Item = (usize, T)> {
    let mut last: Option<(G, usize)> = None;
    items.into_iter().map(move |item| {
        let group = group(&item);
        let number = last.take().filter(|(former, _)| *former == group).map_or(0, |(_, number)| number + 1);
        last = Some((group, number));
        (number, item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;
    use std::sync::mpsc;
    use std::thread;

    const HOST: Host = Host::V4(0x0a00_0001);

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
        let first = orders.begin(at(0), HOST).unwrap();
        let later = orders.clone();
        let thread = thread::spawn(move || {
            let turn = later.begin(at(10), HOST).unwrap();
            told.send(()).unwrap();
            drop(turn);
        });
        while lock(&orders.known).orders[&1].waiting.is_empty() {
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
        drop(orders.begin(at(10), HOST).unwrap());
        for first in [0, 10] {
            assert_eq!(refused(orders.begin(at(first), HOST)), (Kind::Cancelled, Ran::No));
        }
        drop(orders.begin(at(11), HOST).unwrap());
        drop(orders.begin(BatchPlace { order: 2, first: 0 }, HOST).unwrap());
    }

    #[test]
    fn few_batches_wait_in_an_order() {
        let orders = orders();
        let _first = orders.begin(at(0), HOST).unwrap();
        let mut waiting: Vec<Arrived> =
            (1..=MAX_WAITING as u64).map(|first| orders.arrive(at(first), HOST)).collect();
        for _ in 0..2 {
            assert!(waiting.iter_mut().all(|batch| batch.try_begin(Waker::noop()).is_none()));
        }
        assert_eq!(refused(orders.begin(at(100), HOST)), (Kind::Overloaded, Ran::No));
        // A batch that was given up while it waited makes room.
        drop(waiting.pop());
        assert!(orders.arrive(at(100), HOST).try_begin(Waker::noop()).is_none());
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
        let turn = orders.begin(at(0), HOST).unwrap();
        let wakers: Vec<Arc<Woken>> = (0..3).map(|_| Arc::default()).collect();
        let woken = || wakers.iter().map(|woken| woken.0.load(Relaxed)).collect::<Vec<_>>();
        let mut waiting = [30, 20, 10].map(|first| orders.arrive(at(first), HOST));
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
            (0..10).map(|order| orders.begin(BatchPlace { order, first: 0 }, HOST).unwrap()).collect();
        for order in 10..3 * MAX_IDLE_ORDERS as u64 {
            drop(orders.begin(BatchPlace { order, first: 0 }, HOST).unwrap());
        }
        assert!(lock(&orders.known).orders.len() <= MAX_IDLE_ORDERS + 10);
        assert!((0..10).all(|order| lock(&orders.known).orders.contains_key(&order)), "these still execute");
        drop(turns);
    }

    #[test]
    fn an_order_of_one_network_survives_any_number_of_another() {
        let (orders, other) = (orders(), |host| Host::V6(0x2001 << 48 | host));
        drop(orders.begin(at(10), HOST).unwrap());
        // Each host of the other network makes few orders, and one of them many.
        for order in 2..3 * MAX_IDLE_ORDERS as u64 {
            let host = other(if order % 2 == 0 { 0 } else { order % 5_000 });
            drop(orders.begin(BatchPlace { order, first: 0 }, host).unwrap());
        }
        assert_eq!(refused(orders.begin(at(5), HOST)), (Kind::Cancelled, Ran::No));
        assert!(lock(&orders.known).orders.len() <= MAX_IDLE_ORDERS);
    }

    #[test]
    fn the_network_with_most_orders_forgets_the_oldest_of_its_host_with_most() {
        let mut known = KnownOrders::default();
        let hosts = [(0x0a00_0001, 4_000), (0x0a01_0001, 10_000), (0x0a01_0002, 3_000)];
        let begin = Time::from_nanos(0);
        for (number, (host, order)) in
            hosts.iter().flat_map(|(host, many)| (0..*many).map(move |order| (*host, order))).enumerate()
        {
            let since = begin + Duration::from_millis(order);
            let order = Order { executes: false, since, ..Order::begun(Host::V4(host), 0) };
            known.orders.insert(number as u64, order);
        }
        known.idle = known.orders.len();
        known.forget(begin + Duration::from_secs(11));
        assert_eq!((known.orders.len(), known.idle), (KEPT_IDLE_ORDERS, KEPT_IDLE_ORDERS));
        let left = |host| known.orders.values().filter(move |order| order.host == Host::V4(host));
        let many = KEPT_IDLE_ORDERS - 4_000 - 3_000;
        assert_eq!(hosts.map(|(host, _)| left(host).count()), [4_000, many, 3_000]);
        let oldest = left(0x0a01_0001).map(|order| order.since).min();
        assert_eq!(oldest, Some(begin + Duration::from_millis(10_000 - many as u64)));
        // Orders older than a minute are forgotten, in every network.
        known.forget(begin + KEPT + Duration::from_millis(9_000));
        assert_eq!((known.orders.len(), known.idle), (999, 999));
    }

    #[test]
    fn orders_count_as_idle_while_no_batch_executes_or_waits() {
        let (orders, idle) = (orders(), |orders: &Orders| lock(&orders.known).idle);
        let turn = orders.begin(at(0), HOST).unwrap();
        let mut second = orders.arrive(at(10), HOST);
        assert!(second.try_begin(Waker::noop()).is_none());
        let mut third = orders.arrive(at(20), HOST);
        assert!(third.try_begin(Waker::noop()).is_none());
        drop(turn);
        assert_eq!(idle(&orders), 0, "two batches wait");
        drop(third);
        let turn = second.try_begin(Waker::noop()).unwrap().unwrap();
        drop(turn);
        assert_eq!(idle(&orders), 0, "the batch is still in the list");
        drop(second);
        assert_eq!(idle(&orders), 1);
        let turn = orders.begin(at(30), HOST).unwrap();
        assert_eq!(idle(&orders), 0);
        drop(turn);
        assert_eq!(idle(&orders), 1);
    }
}
