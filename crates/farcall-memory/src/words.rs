//! Copies bytes to and from atomic words. Each word is read and written as a whole, and no reference to its
//! bytes is ever formed.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BYTES: usize = size_of::<u64>();

/// Returns words for `len` bytes, all zeros.
pub fn zeros(len: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(len.div_ceil(WORD_BYTES)).collect()
}

/// Copies bytes out of words, in ascending order. The range must be within the words. Loads are Acquire: a
/// reader that sees a word's new value also sees everything that its writer wrote before.
#[inline(always)]
pub fn read(words: &[AtomicU64], offset: u64, into: &mut [u8]) {
    read_by(words, |word| word.load(Ordering::Acquire), offset, into);
}

/// Copies bytes out of words that `load` reads, in ascending order. The range must be within the words.
#[inline(always)]
pub fn read_by<W>(words: &[W], load: impl Fn(&W) -> u64, offset: u64, into: &mut [u8]) {
    let (words, skip) = (&words[offset as usize / WORD_BYTES..], offset as usize % WORD_BYTES);
    match into.as_chunks_mut() {
        (whole, []) if skip == 0 => read_words(words, load, whole),
        _ => read_ragged(words, load, skip, into),
    }
}

#[inline(always)]
fn read_words<W>(words: &[W], load: impl Fn(&W) -> u64, into: &mut [[u8; WORD_BYTES]]) {
    let words = &words[..into.len()];
    for (bytes, word) in into.iter_mut().zip(words) {
        *bytes = load(word).to_le_bytes();
    }
}

/// Copies bytes out of words. It may copy only part of the first and of the last word.
fn read_ragged<W>(mut words: &[W], load: impl Fn(&W) -> u64, skip: usize, into: &mut [u8]) {
    let (begin, rest) = into.split_at_mut(if skip == 0 { 0 } else { into.len().min(WORD_BYTES - skip) });
    if let (false, Some((word, behind))) = (begin.is_empty(), words.split_first()) {
        begin.copy_from_slice(&load(word).to_le_bytes()[skip..skip + begin.len()]);
        words = behind;
    }
    let (whole, end) = rest.as_chunks_mut::<WORD_BYTES>();
    read_words(words, &load, whole);
    if let (false, Some(word)) = (end.is_empty(), words.get(whole.len())) {
        end.copy_from_slice(&load(word).to_le_bytes()[..end.len()]);
    }
}

/// Copies bytes into words, in ascending order. The range must be within the words. When only part of a word
/// is written, concurrent writes of other threads or processes to the word's other bytes are not lost.
#[inline]
pub fn write(words: &[AtomicU64], offset: u64, bytes: &[u8]) {
    let (mut words, skip) = (&words[offset as usize / WORD_BYTES..], offset as usize % WORD_BYTES);
    let (begin, rest) = bytes.split_at(if skip == 0 { 0 } else { bytes.len().min(WORD_BYTES - skip) });
    if let (false, Some((word, behind))) = (begin.is_empty(), words.split_first()) {
        merge(word, skip, begin);
        words = behind;
    }
    let (whole, end) = rest.as_chunks::<WORD_BYTES>();
    let (words, behind) = words.split_at(whole.len());
    for (bytes, word) in whole.iter().zip(words) {
        word.store(u64::from_le_bytes(*bytes), Ordering::Release);
    }
    if let (false, Some(word)) = (end.is_empty(), behind.first()) {
        merge(word, 0, end);
    }
}

fn merge(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let merged = |old: u64| {
        let mut whole = old.to_le_bytes();
        whole[skip..skip + bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(whole))
    };
    let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, merged);
}

/// Compares and swaps the word at an offset that is a multiple of eight. Returns the word's former value.
#[inline]
pub fn compare_and_swap(words: &[AtomicU64], offset: u64, old: u64, new: u64) -> u64 {
    let swapped =
        words[offset as usize / WORD_BYTES].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    swapped.unwrap_or_else(|found| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_were_written_at_any_offset() {
        let words = zeros(64);
        for offset in 0..20 {
            for len in 0..40 {
                let bytes: Vec<u8> = (0..len).map(|i| (offset * 7 + i) as u8 | 1).collect();
                write(&words, 0, &[0; 64]);
                write(&words, offset as u64, &bytes);
                let mut all = [0; 64];
                read(&words, 0, &mut all);
                assert_eq!(all[offset..offset + len], bytes);
                assert!(all[..offset].iter().chain(&all[offset + len..]).all(|byte| *byte == 0));
                let mut back = vec![0; len];
                read(&words, offset as u64, &mut back);
                assert_eq!(back, bytes);
            }
        }
    }

    #[test]
    fn a_word_is_swapped_once() {
        let words = zeros(16);
        assert_eq!(compare_and_swap(&words, 8, 0, 7), 0);
        assert_eq!(compare_and_swap(&words, 8, 0, 9), 7);
        let mut word = [0; 8];
        read(&words, 8, &mut word);
        assert_eq!(u64::from_le_bytes(word), 7);
    }
}
