//! Tests that the lead is passed on: while any thread waits, exactly one thread leads.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;

use crate::lead::{Lead, Parker};

/// The place where a thread waits, and whether the answer to its call has come.
struct Place {
    woken: Mutex<bool>,
    changed: Condvar,
    answered: AtomicBool,
}

impl Parker for Place {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

impl Place {
    fn new() -> Arc<Place> {
        Arc::new(Place {
            woken: Mutex::new(false),
            changed: Condvar::new(),
            answered: AtomicBool::new(false),
        })
    }

    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
        *woken = false;
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }
}

/// A socket at which answers arrive, and the lead of the threads that wait for them.
struct Net {
    lead: Lead<Place>,
    /// The number of threads that lead now.
    leaders: AtomicUsize,
    /// The threads whose answers are still to arrive. The last one's answer arrives next.
    arriving: Mutex<Vec<Arc<Place>>>,
}

impl Net {
    /// Makes a socket at which the answers to these threads arrive in this order.
    fn new(answers: &[&Arc<Place>]) -> Arc<Net> {
        let arriving = answers.iter().rev().map(|place| (*place).clone()).collect();
        Arc::new(Net { lead: Lead::default(), leaders: AtomicUsize::new(0), arriving: Mutex::new(arriving) })
    }

    /// Waits for the answer after the call was sent, as a caller does by `Endpoint::attend`.
    fn attend(&self, own: &Arc<Place>) {
        if self.lead.join(own) {
            return self.lead(own);
        }
        while !own.is_answered() {
            own.wait();
            if self.lead.accept(own) {
                return self.lead(own);
            }
        }
        self.lead.leave(own);
    }

    /// Receives until the leader's own answer has come, as `Endpoint::lead_until` does.
    fn lead(&self, own: &Arc<Place>) {
        assert_eq!(self.leaders.fetch_add(1, Ordering::SeqCst), 0, "two threads lead at the same time");
        while !own.is_answered() {
            let next = self.arriving.lock().unwrap().pop();
            let next = next.expect("the leader's own answer has not arrived yet");
            next.answered.store(true, Ordering::SeqCst);
            if !Arc::ptr_eq(&next, own) {
                next.wake();
            }
        }
        self.leaders.fetch_sub(1, Ordering::SeqCst);
        self.lead.pass();
    }
}

#[test]
fn two_callers_hand_over() {
    loom::model(|| {
        let (a, b) = (Place::new(), Place::new());
        let net = Net::new(&[&a, &b]);
        let (other_net, other) = (net.clone(), b.clone());
        let thread = thread::spawn(move || other_net.attend(&other));
        net.attend(&a);
        thread.join().unwrap();
        assert!(net.lead.join(&a), "no thread leads after all have stopped waiting");
    });
}

#[test]
fn three_callers_hand_over() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (a, b, c) = (Place::new(), Place::new(), Place::new());
        let net = Net::new(&[&b, &c, &a]);
        let others = [b, c].map(|place| {
            let net = net.clone();
            thread::spawn(move || net.attend(&place))
        });
        net.attend(&a);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(net.lead.join(&a), "no thread leads after all have stopped waiting");
    });
}

#[test]
fn a_thread_that_stands_by_leads_when_no_other_thread_does() {
    loom::model(|| {
        let (caller, service) = (Place::new(), Place::new());
        // The service thread waits for the last answer, which is the answer to a started call.
        let net = Net::new(&[&caller, &service]);
        let (other_net, other) = (net.clone(), service.clone());
        let thread = thread::spawn(move || {
            while !other.is_answered() {
                let leads = other_net.lead.stand_by(&other) || {
                    other.wait();
                    other_net.lead.accept(&other)
                };
                match leads {
                    true => other_net.lead(&other),
                    false => other_net.lead.leave(&other),
                }
            }
        });
        net.attend(&caller);
        thread.join().unwrap();
        assert!(net.lead.join(&caller), "no thread leads after all have stopped waiting");
    });
}
