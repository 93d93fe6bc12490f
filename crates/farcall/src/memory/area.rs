//! The words of a segment: each is read and written as a whole, and no reference to its bytes is formed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapped::Ground;

const WORD: usize = size_of::<u64>();

/// Memory that many access at the same time.
#[derive(Debug)]
pub(super) struct Area {
    place: Place,
    len: usize,
}

#[derive(Debug)]
enum Place {
    /// This process's alone.
    Own(Arc<[AtomicU64]>),
    /// In a file that others may map.
    File(Ground),
}

impl Area {
    /// So many zeros.
    pub(super) fn new(len: usize) -> Area {
        Area { place: Place::Own(zeros(len).into()), len }
    }

    /// These words.
    pub(super) fn of(words: Arc<[AtomicU64]>) -> Area {
        Area { len: words.len() * WORD, place: Place::Own(words) }
    }

    /// So many bytes of memory that others may map.
    pub(super) fn on(ground: Ground, len: usize) -> Area {
        Area { place: Place::File(ground), len }
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether so many bytes stand there.
    pub(super) fn has(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64)
    }

    /// What others map, if they may.
    pub(super) fn ground(&self) -> Option<&Ground> {
        match &self.place {
            Place::Own(_) => None,
            Place::File(ground) => Some(ground),
        }
    }

    /// Copies bytes out, words in ascending order. They must be there.
    #[inline(always)]
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        self.with(|words| read(words, offset, into));
    }

    /// Copies bytes out in any order. They must be there.
    pub(super) fn read_bytes(&self, offset: u64, into: &mut [u8]) {
        if !self.ground().is_some_and(|ground| ground.copy_out(offset as usize, into)) {
            self.read(offset, into);
        }
    }

    /// Copies bytes in, words in ascending order. There must be room.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        self.with(|words| write(words, offset, bytes));
    }

    /// Copies bytes in, in any order. There must be room.
    pub(super) fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        if !self.ground().is_some_and(|ground| ground.copy_in(offset as usize, bytes)) {
            self.write(offset, bytes);
        }
    }

    /// Compares and swaps the word at an offset that [`WORD`] divides; gives what it was.
    pub(super) fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> u64 {
        self.with(|words| compare_and_swap(words, offset, old, new))
    }

    #[inline]
    fn with<R>(&self, access: impl FnOnce(&[AtomicU64]) -> R) -> R {
        match &self.place {
            Place::Own(words) => access(words),
            Place::File(ground) => ground.with(access),
        }
    }
}

/// Memory of this process alone, all zeros.
pub(super) fn zeros(len: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(AtomicU64::default).take(len.div_ceil(WORD)).collect()
}

/// A word that can be read as a whole, and what was written before it.
pub(super) trait Load {
    fn load(&self) -> u64;
}

impl Load for AtomicU64 {
    #[inline(always)]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
}

/// Copies bytes out of words, in ascending order.
#[inline(always)]
pub(super) fn read(words: &[impl Load], offset: u64, into: &mut [u8]) {
    let (words, skip) = (&words[offset as usize / WORD..], offset as usize % WORD);
    match into.as_chunks_mut() {
        (whole, []) if skip == 0 => read_words(words, whole),
        _ => read_ragged(words, skip, into),
    }
}

#[inline(always)]
fn read_words(words: &[impl Load], into: &mut [[u8; WORD]]) {
    let words = &words[..into.len()];
    for (bytes, word) in into.iter_mut().zip(words) {
        *bytes = word.load().to_le_bytes();
    }
}

/// Copies bytes out of words, of which the first and the last may be copied in part.
fn read_ragged(mut words: &[impl Load], skip: usize, into: &mut [u8]) {
    let (begin, rest) = into.split_at_mut(if skip == 0 { 0 } else { into.len().min(WORD - skip) });
    if let (false, Some((word, behind))) = (begin.is_empty(), words.split_first()) {
        begin.copy_from_slice(&word.load().to_le_bytes()[skip..skip + begin.len()]);
        words = behind;
    }
    let (whole, end) = rest.as_chunks_mut::<WORD>();
    read_words(words, whole);
    if let (false, Some(word)) = (end.is_empty(), words.get(whole.len())) {
        end.copy_from_slice(&word.load().to_le_bytes()[..end.len()]);
    }
}

/// Copies bytes into words, in ascending order. Those that are not written whole may be written by others meanwhile.
#[inline]
pub(super) fn write(words: &[AtomicU64], offset: u64, bytes: &[u8]) {
    let (mut words, skip) = (&words[offset as usize / WORD..], offset as usize % WORD);
    let (begin, rest) = bytes.split_at(if skip == 0 { 0 } else { bytes.len().min(WORD - skip) });
    if let (false, Some((word, behind))) = (begin.is_empty(), words.split_first()) {
        merge(word, skip, begin);
        words = behind;
    }
    let (whole, end) = rest.as_chunks::<WORD>();
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

/// Compares and swaps the word at an offset that [`WORD`] divides; gives what it was.
#[inline]
pub(super) fn compare_and_swap(words: &[AtomicU64], offset: u64, old: u64, new: u64) -> u64 {
    let swapped =
        words[offset as usize / WORD].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    swapped.unwrap_or_else(|found| found)
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
