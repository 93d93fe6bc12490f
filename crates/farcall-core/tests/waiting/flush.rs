//! Tests that every queued call is sent, by the service thread or by a thread that queues calls.

use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

use crate::flush_signal::{Duty, FlushSignal};

/// A conversation with its queue of calls, and the place where the service thread rests.
struct Net {
    signal: FlushSignal,
    queue: Mutex<Queue>,
    /// Whether the service thread was woken.
    woken: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The number of queued calls.
    calls: usize,
    /// Whether the queue is in the list of queues with calls. It stands for `PeerState::left` and
    /// `Endpoint::unsent`.
    left: bool,
    /// The number of calls that were sent.
    sent: usize,
}

impl Net {
    fn new() -> Arc<Net> {
        let (woken, changed) = (Mutex::new(false), Condvar::new());
        Arc::new(Net { signal: FlushSignal::default(), queue: Mutex::new(Queue::default()), woken, changed })
    }

    /// Queues a call, as `Endpoint::begin_started` and `Endpoint::leave` do.
    fn start(&self) {
        let first = {
            let mut queue = self.queue.lock().unwrap();
            queue.calls += 1;
            !std::mem::replace(&mut queue.left, true)
        };
        if first {
            match self.signal.note_queued() {
                Duty::Nothing => {}
                Duty::Wake => self.wake(),
                Duty::Send => self.send_unsent(),
            }
        }
    }

    /// Sends the queued calls, as `Endpoint::send_unsent` does.
    fn send_unsent(&self) {
        if self.signal.take() {
            let mut queue = self.queue.lock().unwrap();
            queue.left = false;
            queue.sent += std::mem::take(&mut queue.calls);
        }
    }

    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Acts as the service thread, which rests whenever it finds no queued call. If no thread wakes it, loom
    /// reports a deadlock.
    fn rest_until_sent(&self, calls: usize) {
        self.signal.watch();
        self.send_unsent();
        while self.queue.lock().unwrap().sent < calls {
            if self.signal.rest(|| false) {
                let mut woken = self.woken.lock().unwrap();
                while !*woken {
                    woken = self.changed.wait(woken).unwrap();
                }
                *woken = false;
            }
            self.signal.watch();
            self.send_unsent();
        }
    }

    /// Acts as the service thread before it sleeps in the socket for a nap, after which it looks again.
    fn nap(&self) {
        self.signal.watch();
        self.send_unsent();
    }

    /// Acts as the service thread before it sleeps in the socket until a datagram arrives.
    fn receive(&self) {
        self.signal.will_receive();
        self.send_unsent();
    }
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(test);
}

#[test]
fn queued_calls_wake_a_service_thread_that_rests() {
    check(|| {
        let net = Net::new();
        let other = net.clone();
        let service = thread::spawn(move || other.rest_until_sent(2));
        net.start();
        net.start();
        service.join().unwrap();
    });
}

#[test]
fn queued_calls_are_sent_while_the_service_thread_begins_to_receive() {
    check(|| {
        let net = Net::new();
        net.signal.watch();
        let other = net.clone();
        let service = thread::spawn(move || other.receive());
        net.start();
        net.start();
        service.join().unwrap();
        assert_eq!(net.queue.lock().unwrap().sent, 2);
    });
}

#[test]
fn two_threads_that_start_and_send_calls_leave_none_queued() {
    check(|| {
        let net = Net::new();
        // The service thread sleeps in the socket throughout.
        net.signal.will_receive();
        let threads = [net.clone(), net.clone()].map(|net| {
            thread::spawn(move || {
                net.start();
                net.send_unsent();
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let queue = net.queue.lock().unwrap();
        assert_eq!(queue.sent, 2);
    });
}

#[test]
fn queued_calls_are_sent_while_the_service_thread_naps_and_then_receives() {
    check(|| {
        let net = Net::new();
        net.signal.will_receive();
        let other = net.clone();
        let service = thread::spawn(move || {
            other.nap();
            other.receive();
        });
        net.start();
        net.start();
        service.join().unwrap();
        assert_eq!(net.queue.lock().unwrap().sent, 2);
    });
}
