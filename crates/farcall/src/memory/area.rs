//! The words of a segment: each is read and written as a whole, and no reference to its bytes is formed.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Memory that many access at the same time.
#[derive(Debug)]
pub(super) struct Area {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl Area {
    /// So many zeros.
    pub(super) fn new(len: usize) -> Area {
        let words = std::iter::repeat_with(AtomicU64::default).take(len.div_ceil(WORD)).collect();
        Area { words, len }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether so many bytes stand there.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// Copies bytes out, words in ascending order. They must be there.
    pub(super) fn read(&self, offset: u64, mut into: &mut [u8]) {
        let (mut word, mut skip) = (offset as usize / WORD, offset as usize % WORD);
        while !into.is_empty() {
            let bytes = self.words[word].load(Ordering::Acquire).to_le_bytes();
            let (now, rest) = into.split_at_mut(into.len().min(WORD - skip));
            now.copy_from_slice(&bytes[skip..skip + now.len()]);
            (into, word, skip) = (rest, word + 1, 0);
        }
    }

    /// Copies bytes in, words in ascending order. There must be room.
    pub(super) fn write(&self, offset: u64, mut bytes: &[u8]) {
        let (mut word, mut skip) = (offset as usize / WORD, offset as usize % WORD);
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(WORD - skip));
            match <[u8; WORD]>::try_from(now) {
                Ok(whole) => self.words[word].store(u64::from_le_bytes(whole), Ordering::Release),
                // Its other bytes may be somebody else's.
                Err(_) => self.merge(word, skip, now),
            }
            (bytes, word, skip) = (rest, word + 1, 0);
        }
    }

    fn merge(&self, word: usize, skip: usize, bytes: &[u8]) {
        let merged = |old: u64| {
            let mut whole = old.to_le_bytes();
            whole[skip..skip + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_le_bytes(whole))
        };
        let _ = self.words[word].fetch_update(Ordering::AcqRel, Ordering::Acquire, merged);
    }

    /// Compares and swaps the word at an offset that [`WORD`] divides; gives what it was.
    pub(super) fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> u64 {
        let word = &self.words[offset as usize / WORD];
        let swapped = word.compare_exchange(old.to_le(), new.to_le(), Ordering::AcqRel, Ordering::Acquire);
        u64::from_le(swapped.unwrap_or_else(|found| found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_wherever_they_begin() {
        let area = Area::new(64);
        for offset in 0..20 {
            for len in 0..40 {
                let bytes: Vec<u8> = (0..len).map(|i| (offset * 7 + i) as u8 | 1).collect();
                area.write(0, &[0; 64]);
                area.write(offset as u64, &bytes);
                let mut all = [0; 64];
                area.read(0, &mut all);
                assert_eq!(all[offset..offset + len], bytes);
                assert!(all[..offset].iter().chain(&all[offset + len..]).all(|byte| *byte == 0));
                let mut back = vec![0; len];
                area.read(offset as u64, &mut back);
                assert_eq!(back, bytes);
            }
        }
    }

    #[test]
    fn what_is_not_there_is_known() {
        let area = Area::new(13);
        assert!(area.has(0, 13) && area.has(13, 0) && area.has(12, 1));
        assert!(!area.has(0, 14) && !area.has(14, 0) && !area.has(u64::MAX, 1) && !area.has(1, usize::MAX));
    }

    #[test]
    fn a_word_is_swapped_once() {
        let area = Area::new(16);
        assert_eq!(area.compare_and_swap(8, 0, 7), 0);
        assert_eq!(area.compare_and_swap(8, 0, 9), 7);
        let mut word = [0; 8];
        area.read(8, &mut word);
        assert_eq!(u64::from_le_bytes(word), 7);
    }
}
