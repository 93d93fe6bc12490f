//! Queued calls are sent: by the service thread, or by the thread that queued them.

use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

use crate::flush_signal::{Duty, FlushSignal};

/// A conversation, and the service thread's seat.
struct Net {
    signal: FlushSignal,
    queue: Mutex<Queue>,
    woken: Mutex<bool>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: usize,
    /// It is known that there are calls in it: `PeerState::left`, and `Endpoint::unsent`.
    left: bool,
    sent: usize,
}

impl Net {
    fn new() -> Arc<Net> {
        let (woken, changed) = (Mutex::new(false), Condvar::new());
        Arc::new(Net { signal: FlushSignal::default(), queue: Mutex::new(Queue::default()), woken, changed })
    }

    /// `Endpoint::begin_started`, and `leave`.
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

    /// `Endpoint::send_unsent`.
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

    /// The service thread, which rests whenever it finds nothing. Where nobody would wake it loom finds out.
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

    /// The service thread, which sleeps in the socket for a nap.
    fn nap(&self) {
        self.signal.watch();
        self.send_unsent();
    }

    /// The service thread, which goes to sleep in the socket.
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
fn what_is_left_wakes_a_service_thread_that_rests() {
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
fn what_is_left_is_sent_while_the_service_thread_receives() {
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
fn two_who_start_calls_and_one_who_sends_them_leave_none() {
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
fn what_is_left_is_sent_by_a_service_thread_that_naps_before_it_sleeps() {
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
