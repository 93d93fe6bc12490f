//! A futex in loom: the value is compared and the sleeper enrolled under one lock, as in the kernel.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};

/// How often each word was woken.
pub struct Kernel {
    wakes: Mutex<HashMap<usize, u32>>,
    changed: Condvar,
    /// The peer has taken whoever sleeps at a shared word and a private one away from the shared one.
    stranded: bool,
    /// Whether a thread can sleep at a shared word and a private one at once (futex_waitv).
    waitv: bool,
}

loom::thread_local! {
    static KERNEL: RefCell<Option<Arc<Kernel>>> = RefCell::new(None);
}

impl Kernel {
    pub fn new(stranded: bool) -> Arc<Kernel> {
        Arc::new(Kernel { wakes: Mutex::new(HashMap::new()), changed: Condvar::new(), stranded, waitv: true })
    }

    /// A kernel without futex_waitv. The peer is honest.
    pub fn without_waitv() -> Arc<Kernel> {
        let wakes = Mutex::new(HashMap::new());
        Arc::new(Kernel { wakes, changed: Condvar::new(), stranded: false, waitv: false })
    }

    /// From now on it is the thread's.
    pub fn enter(self: &Arc<Kernel>) {
        KERNEL.with(|kernel| *kernel.borrow_mut() = Some(self.clone()));
    }
}

fn kernel() -> Arc<Kernel> {
    KERNEL.with(|kernel| kernel.borrow().clone().expect("a thread without a kernel"))
}

/// (Time does not pass: what is not woken sleeps for ever.)
pub fn sleep(word: &AtomicU32, value: u32, _: Duration) {
    sleep_at(&[(word, value)]);
}

pub fn sleep_at_either(shared: (&AtomicU32, u32), private: (&AtomicU32, u32)) {
    if kernel().waitv {
        return sleep_at(&[shared, private]);
    }
    if private.0.load(Ordering::Acquire) == private.1 {
        sleep_at(&[shared]);
    }
}

fn sleep_at(words: &[(&AtomicU32, u32)]) {
    let kernel = kernel();
    let mut wakes = kernel.wakes.lock().unwrap();
    if words.iter().any(|(word, value)| word.load(Ordering::SeqCst) != *value) {
        return;
    }
    let heard = if kernel.stranded { &words[1..] } else { words };
    let count = |wakes: &HashMap<usize, u32>| -> u32 {
        heard
            .iter()
            .map(|(word, _)| wakes.get(&(std::ptr::from_ref(*word) as usize)).copied().unwrap_or(0))
            .sum()
    };
    let before = count(&wakes);
    while count(&wakes) == before {
        // Loom reports a deadlock if nobody ever wakes it.
        wakes = kernel.changed.wait(wakes).unwrap();
    }
}

pub fn wake_private(word: &AtomicU32) {
    wake_one(word);
}

pub fn wake_one(word: &AtomicU32) {
    let kernel = kernel();
    *kernel.wakes.lock().unwrap().entry(std::ptr::from_ref(word) as usize).or_default() += 1;
    kernel.changed.notify_all();
}
