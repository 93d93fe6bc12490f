//! Counts the work of readers, so that a test can see that it grows no faster than the input.
//!
//! A reader of what others wrote (an interface file, a description, a registry's answer, a graph, a key file)
//! counts one step for each part that it looks at: a token, a declaration, a type, an entry, an element that
//! it compares. Steps are not time. Equal inputs take equally many steps on every machine.

use std::cell::Cell;

thread_local! {
    /// The steps of this thread, from its beginning. Only differences mean anything.
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts one step of the calling thread.
#[inline]
pub fn step() {
    steps(1);
}

/// Counts this many steps of the calling thread.
#[inline]
pub fn steps(count: usize) {
    // A thread that ends may still read while its counter is gone.
    let _ = STEPS.try_with(|steps| steps.set(steps.get().wrapping_add(count as u64)));
}

/// Calls `read`, and returns its result and the number of steps that it took.
///
/// ```
/// use farcall_base::work;
///
/// let (sum, steps) = work::counted(|| (0..10).inspect(|_| work::step()).sum::<u32>());
/// assert_eq!((sum, steps), (45, 10));
/// ```
pub fn counted<T>(read: impl FnOnce() -> T) -> (T, u64) {
    let before = STEPS.get();
    let result = read();
    (result, STEPS.get().wrapping_sub(before))
}
