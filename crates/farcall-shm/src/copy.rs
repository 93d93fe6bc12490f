//! Copies bytes out of and into words that another process may write at the same time.
#![allow(unsafe_code)]

use std::sync::atomic::AtomicU64;

use crate::words;

/// Writes bytes into words, as many as there is room for.
#[inline]
pub(crate) fn put(words: &[AtomicU64], bytes: &[u8]) {
    let len = bytes.len().min(size_of_val(words));
    if len < ASM_COPY_MIN_BYTES {
        return words::put(words, bytes);
    }
    // SAFETY: both have `len` bytes; others may write the words too, and no other thread writes the bytes.
    unsafe { copy(words.as_ptr().cast_mut().cast(), bytes.as_ptr(), len) }
}

/// Writes bytes into words from byte `at` on, as many as there is room for. No other process may write these
/// words.
pub(crate) fn put_at(words: &[AtomicU64], at: usize, bytes: &[u8]) {
    let Some((word, behind)) = words.get(at / 8..).and_then(<[AtomicU64]>::split_first) else { return };
    match at % 8 {
        0 => put(&words[at / 8..], bytes),
        at => put(behind, words::begin(word, at, bytes)),
    }
}

/// Appends the first `len` bytes of words, or as many as there are.
#[inline]
pub(crate) fn append(words: &[AtomicU64], len: usize, into: &mut Vec<u8>) {
    let len = len.min(size_of_val(words));
    into.reserve(len);
    let start = into.len();
    if len < ASM_COPY_MIN_BYTES {
        into.resize(start + len, 0);
        return words::get(words, &mut into[start..]);
    }
    // SAFETY: the words have `len` bytes, and others may write them; `into` has room for as many after its
    // own, and all of them are initialised then.
    unsafe {
        copy(into.as_mut_ptr().add(start), words.as_ptr().cast(), len);
        into.set_len(start + len);
    }
}

/// The least number of bytes for which [`copy`] is faster than copying words. On machines without it, no
/// number is.
pub(crate) const ASM_COPY_MIN_BYTES: usize =
    if cfg!(all(target_arch = "x86_64", not(miri))) { 256 } else { usize::MAX };

/// Copies bytes by an instruction that is opaque to the compiler: each byte is read and written once, in any
/// order. Nothing more may be assumed of bytes that another process writes. The processor copies whole cache
/// lines, which between two processors is three times as fast as copying words.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as promised; the direction flag is clear on entry to asm blocks.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") len => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unreachable!("{to:p} {from:p} {len}: without this instruction all bytes are copied by words");
}
