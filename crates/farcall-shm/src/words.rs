//! Copies a few bytes to and from atomic words. Each word is read or written once, and no reference to shared
//! bytes is formed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Writes bytes into words, as many as there is room for.
#[inline]
pub(crate) fn put(words: &[AtomicU64], bytes: &[u8]) {
    let (chunks, rest) = bytes.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(chunks) {
        word.store(u64::from_ne_bytes(*chunk), Ordering::Relaxed);
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(chunks.len())) {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        word.store(u64::from_ne_bytes(last), Ordering::Relaxed);
    }
}

/// Writes bytes into a word, from the word's byte `at` on. Returns the bytes that did not fit, which belong
/// into the next words. No other process may write the word.
#[inline]
pub(crate) fn begin<'a>(word: &AtomicU64, at: usize, bytes: &'a [u8]) -> &'a [u8] {
    let mut whole = word.load(Ordering::Relaxed).to_ne_bytes();
    let (first, rest) = bytes.split_at(bytes.len().min(8 - at % 8));
    whole[at % 8..at % 8 + first.len()].copy_from_slice(first);
    word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    rest
}

/// Fills `bytes` from words, as far as there are words.
#[inline]
pub(crate) fn get(words: &[AtomicU64], bytes: &mut [u8]) {
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    let whole = chunks.len();
    for (word, chunk) in words.iter().zip(chunks) {
        *chunk = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    if let (false, Some(word)) = (rest.is_empty(), words.get(whole)) {
        let last = word.load(Ordering::Relaxed).to_ne_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_whatever_their_number() {
        let words = [const { AtomicU64::new(0) }; 4];
        for len in 0..=32 {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 + 1).collect();
            put(&words, &bytes);
            let mut back = vec![0; len];
            get(&words, &mut back);
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let words = [const { AtomicU64::new(0) }; 2];
        put(&words, &[7; 40]);
        let mut back = [1; 20];
        get(&words, &mut back);
        assert_eq!(back[..16], [7; 16]);
    }
}
