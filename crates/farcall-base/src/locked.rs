//! Locks mutexes whose data a panic cannot spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread has panicked while it held the lock.
///
/// Use this only for data that stays consistent even if a method panics halfway. For such data, an error
/// about the panic would help no caller.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
