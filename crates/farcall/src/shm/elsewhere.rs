//! Runs work in a separate thread, because a peer can block that work for any length of time. A caller waits
//! for that thread only for a bounded time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::env::Env;
use crate::lock;

/// The most threads that run such work, in the whole process. When all of them are blocked, further work is
/// refused.
const MAX_THREADS: usize = 16;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Runs `meet` in a separate thread, and returns its result if it comes within `most`. A later result is
/// dropped in that thread.
pub(crate) fn elsewhere<T: Send + 'static>(
    env: &Arc<dyn Env>,
    most: Duration,
    meet: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let one_more = |threads| (threads < MAX_THREADS).then_some(threads + 1);
    THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
    // `Some(None)` until there is a result, `Some(Some(_))` once there is one, `None` once the caller has
    // stopped waiting.
    let given = Arc::new(Mutex::new(Some(None)));
    let (place, event) = (given.clone(), env.event());
    let over = event.clone();
    let run = move || {
        let met = meet();
        let late = match &mut *lock(&place) {
            Some(place) => std::mem::replace(place, met),
            None => met,
        };
        over.set();
        drop(late);
        THREADS.fetch_sub(1, Ordering::Relaxed);
    };
    if env.spawn("farcall-meet", Box::new(run)).is_err() {
        THREADS.fetch_sub(1, Ordering::Relaxed);
        return None;
    }
    let _waiting = crate::serving::wait_guard();
    event.wait(Some(most));
    lock(&given).take().flatten()
}
