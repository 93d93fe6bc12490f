//! Overwrites what computations with secrets leave on the stack.
//!
//! The libraries that compute keep copies of keys in variables, and the compiler moves values from one place
//! of the stack to another. Such copies stay until something else is written there, which may be never: a
//! thread that has once computed a handshake may not use so much stack again.

use std::hint::black_box;

/// Bytes of the stack that are overwritten: more than a handshake needs, also in builds without optimisation.
const STACK: usize = 24 * 1024;

/// Computes something, and then overwrites the part of the stack that this has used. What is returned should
/// have its secrets on the heap, because it may be moved on the stack.
///
/// What remains: the processor's registers, what the system has written to disk (swap, hibernation, crash
/// dumps), and what the optimiser copies to places of its own choice. Rust promises nothing about these.
#[inline(never)]
pub(crate) fn wiped<T>(compute: impl FnOnce() -> T) -> T {
    let computed = apart(compute);
    overwrite();
    computed
}

/// Computes in a stack frame that ends before [`overwrite`] begins its own at the same place.
#[inline(never)]
fn apart<T>(compute: impl FnOnce() -> T) -> T {
    black_box(compute())
}

#[inline(never)]
fn overwrite() {
    // The compiler must assume that somebody reads these zeros, so it writes them.
    black_box(&mut [0_u8; STACK]);
}

/// Bytes of the stack that one seal needs at most. (From 2,048 bytes on, glibc's way to fill memory takes
/// three times as long on x86-64.)
const STACK_OF_SEAL: usize = 1984;

/// Overwrites what sealing or opening one datagram has left on the stack, if the caller did just that.
#[inline(never)]
pub(crate) fn after_seal() {
    black_box(&mut [0_u8; STACK_OF_SEAL]);
}
