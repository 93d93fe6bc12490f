//! Writes and reads a server's counters as a record of 64-bit words.
//!
//! A text is encoded as its length in bytes, then its bytes, then zeros up to the next word. A histogram is
//! encoded as a word whose bits mark the classes that are not empty, then the count of each marked class.
//!
//! ```text
//! 0           the number of the record, which is repeated behind the last word
//! 1           the mark of the format
//! 2           the number of words of the record, these included
//! 3 ..        process identifier, nanoseconds since the start, threads that execute, threads that receive,
//!             all threads, calls that wait, conversations, calls that have not ended, bytes held;
//!             ten counters of the protocol, and 24 of refused calls by kind
//! 46, 47      the number of exports that follow, and of exports for which there was no room;
//!             then for each export: identifier, accesses, reads that the kernel answered and one more (or
//!             zero if it does not serve), running calls, number of procedures, name;
//!             and for each procedure: name, results, exceptions, failures, cancelled, late, two histograms,
//!             of the times that calls waited and ran
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall_proto::server as proto;

use super::{BUCKETS, Export, Histogram, Procedure, Serving};

const MARK: u64 = u64::from_le_bytes(*b"tally  3");
/// The number of words in a server's segment of counters. Exports that do not fit are left out.
pub(crate) const WORDS: usize = 8 << 10;
/// The most words that a reader accepts in a record.
const MAX_WORDS: usize = 1 << 20;
/// The number of words in front of the counters.
const HEAD: usize = 3;

/// The words of a record. One thread at a time writes them.
pub(crate) struct Words {
    words: Arc<[AtomicU64]>,
    /// The number of times that the record was written.
    number: u64,
    /// The index of the word after the record.
    end: usize,
}

impl Words {
    pub(crate) fn new(words: Arc<[AtomicU64]>) -> Words {
        Words { words, number: 0, end: 0 }
    }

    /// Writes the counters. The number behind the record is written first, and the number in front last. A
    /// reader reads in ascending order. If it reads while the record is written, it finds two different
    /// numbers.
    pub(crate) fn write(&mut self, counted: &Serving) {
        self.number += 1;
        self.set(self.end, 0);
        let mut writer = Writer { words: &self.words, at: 1, end: self.words.len() - 1 };
        let complete = writer.serving(counted);
        debug_assert!(complete.is_some(), "the words have room for the counters in front of the exports");
        self.end = writer.at;
        self.set(2, self.end as u64);
        self.set(self.end, self.number);
        self.set(0, self.number);
    }

    fn set(&self, at: usize, word: u64) {
        self.words[at].store(word, Ordering::Release);
    }
}

/// Writes words one after the other. Each method returns `None` if there is no room.
struct Writer<'a> {
    words: &'a [AtomicU64],
    at: usize,
    end: usize,
}

impl Writer<'_> {
    fn put(&mut self, word: u64) -> Option<()> {
        if self.at >= self.end {
            return None;
        }
        self.words[self.at].store(word, Ordering::Release);
        self.at += 1;
        Some(())
    }

    fn all(&mut self, words: &[u64]) -> Option<()> {
        words.iter().try_for_each(|word| self.put(*word))
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.put(text.len() as u64)?;
        text.as_bytes().chunks(8).try_for_each(|some| {
            let mut word = [0; 8];
            word[..some.len()].copy_from_slice(some);
            self.put(u64::from_le_bytes(word))
        })
    }

    fn histogram(&mut self, histogram: &Histogram) -> Option<()> {
        let counts = histogram.counts();
        let present = (0..BUCKETS).filter(|bucket| counts[*bucket] > 0);
        self.put(present.clone().fold(0, |bits, bucket| bits | 1 << bucket))?;
        present.into_iter().try_for_each(|bucket| self.put(counts[bucket]))
    }

    fn serving(&mut self, counted: &Serving) -> Option<()> {
        let Serving { process, up, protocol: did, .. } = counted;
        self.all(&[MARK, 0, u64::from(*process), up.as_nanos() as u64])?;
        self.all(&[counted.executing, counted.receiving, counted.threads, counted.queued])?;
        self.all(&[counted.conversations, counted.unfinished, counted.held_bytes])?;
        self.all(&[did.calls, did.sent, did.received, did.dropped, did.bytes_sent])?;
        self.all(&[did.duplicates, did.retransmitted, did.challenges, did.stale, did.evicted])?;
        self.all(&did.refused)?;
        let counts = self.at;
        self.all(&[0, 0])?;
        let told = counted.exports.iter().take_while(|export| {
            let before = self.at;
            let complete = self.export(export).is_some();
            self.at = if complete { self.at } else { before };
            complete
        });
        let told = told.count();
        let untold = counted.exports.len() - told;
        self.words[counts].store(told as u64, Ordering::Release);
        self.words[counts + 1].store(counted.untold + untold as u64, Ordering::Release);
        Some(())
    }

    fn export(&mut self, export: &Export) -> Option<()> {
        let answered = export.answered_by_kernel.map_or(0, |answered| answered.saturating_add(1));
        self.all(&[export.id, export.accesses, answered])?;
        self.all(&[export.running as u64, export.procedures.len() as u64])?;
        self.text(&export.name)?;
        export.procedures.iter().try_for_each(|procedure| {
            self.text(&procedure.name)?;
            let Procedure { results, exceptions, failures, cancelled, late, .. } = *procedure;
            self.all(&[results, exceptions, failures, cancelled, late])?;
            self.histogram(&procedure.queued)?;
            self.histogram(&procedure.ran)
        })
    }
}

/// The result of reading a record.
pub(crate) enum Record {
    /// The whole record.
    Whole(Box<Serving>),
    /// The words are the beginning of a record that has this many words.
    Longer(usize),
    /// The server was writing the record meanwhile.
    Torn,
    /// The words are no record, or a record of another format.
    Unknown,
}

/// Reads a record. The words come from another process and may be anything.
pub(crate) fn read(words: &[u64]) -> Record {
    let [number, mark, end, ..] = *words else { return Record::Unknown };
    let end = usize::try_from(end).unwrap_or(usize::MAX);
    match words.get(end) {
        _ if mark != MARK || !(HEAD..MAX_WORDS).contains(&end) => Record::Unknown,
        None => Record::Longer(end + 1),
        Some(behind) if *behind != number => Record::Torn,
        Some(_) => {
            let serving = Reader(&words[HEAD..end]).serving();
            serving.map_or(Record::Unknown, |serving| Record::Whole(Box::new(serving)))
        }
    }
}

/// Reads words one after the other. Each method returns `None` if words are missing or malformed.
struct Reader<'a>(&'a [u64]);

impl Reader<'_> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*word)
    }

    fn some<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (words, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*words)
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::try_from(self.next()?).ok()?;
        let (words, rest) = self.0.split_at_checked(len.div_ceil(8))?;
        self.0 = rest;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        String::from_utf8(bytes).ok()
    }

    fn histogram(&mut self) -> Option<Histogram> {
        let (present, mut counts) = (self.next()?, [0; BUCKETS]);
        for (bucket, count) in counts.iter_mut().enumerate() {
            if present >> bucket & 1 != 0 {
                *count = self.next()?;
            }
        }
        Some(Histogram::from_counts(counts))
    }

    /// Reads `count` items. Each takes at least one word, so the number of words bounds the loop.
    fn each<T>(&mut self, count: u64, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..count).map(|_| one(self)).collect()
    }

    fn serving(mut self) -> Option<Serving> {
        let [process, up, executing, receiving, threads, queued] = self.some()?;
        let [conversations, unfinished, held_bytes] = self.some()?;
        let [calls, sent, received, dropped, bytes_sent] = self.some()?;
        let [duplicates, retransmitted, challenges, stale, evicted] = self.some()?;
        let mut protocol =
            proto::Stats { calls, sent, received, dropped, bytes_sent, ..proto::Stats::default() };
        (protocol.duplicates, protocol.retransmitted, protocol.challenges) =
            (duplicates, retransmitted, challenges);
        (protocol.stale, protocol.evicted, protocol.refused) = (stale, evicted, self.some()?);
        let [told, untold] = self.some()?;
        let exports = self.each(told, Reader::export)?;
        let (process, up) = (u32::try_from(process).ok()?, Duration::from_nanos(up));
        Some(Serving {
            process,
            up,
            executing,
            receiving,
            threads,
            queued,
            conversations,
            unfinished,
            held_bytes,
            protocol,
            exports,
            untold,
        })
    }

    fn export(&mut self) -> Option<Export> {
        let [id, accesses, answered, running, procedures] = self.some()?;
        let answered_by_kernel = answered.checked_sub(1);
        let (name, running) = (self.text()?, usize::try_from(running).ok()?);
        let procedures = self.each(procedures, Reader::procedure)?;
        Some(Export { id, name, procedures, running, accesses, answered_by_kernel })
    }

    fn procedure(&mut self) -> Option<Procedure> {
        let name = self.text()?.into();
        let [results, exceptions, failures, cancelled, late] = self.some()?;
        let (queued, ran) = (self.histogram()?, self.histogram()?);
        Some(Procedure { name, results, exceptions, cancelled, late, failures, queued, ran })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counters as Counted;
    use super::*;

    fn serving(exports: usize) -> Serving {
        let counted = Counted::default();
        counted.results.fetch_add(7, Ordering::Relaxed);
        counted.ran.record(Duration::from_micros(3));
        counted.ran.record(Duration::from_secs(3));
        let export = |which: usize| Export {
            id: which as u64 + 1,
            name: format!("Store/number-{which}"),
            procedures: vec![counted.snapshot("get"), counted.snapshot("a longer name")],
            running: which,
            accesses: 5,
            answered_by_kernel: which.checked_sub(1).map(|which| which as u64),
        };
        let mut protocol = proto::Stats { calls: 3, evicted: 4, ..proto::Stats::default() };
        protocol.refused[23] = 9;
        Serving {
            process: 77,
            up: Duration::from_secs(9),
            executing: 1,
            receiving: 2,
            threads: 3,
            queued: 4,
            conversations: 5,
            unfinished: 6,
            held_bytes: 7,
            protocol,
            exports: (0..exports).map(export).collect(),
            untold: 0,
        }
    }

    fn written(counted: &Serving) -> Vec<u64> {
        let shared: Arc<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut words = Words::new(shared.clone());
        words.write(&serving(9));
        words.write(counted);
        shared.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn read(words: &[u64]) -> Option<Serving> {
        let Record::Whole(serving) = super::read(words) else { return None };
        Some(*serving)
    }

    #[test]
    fn what_was_written_is_read() {
        let counted = serving(3);
        let read = read(&written(&counted)).unwrap();
        assert_eq!(format!("{read:?}"), format!("{counted:?}"));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let read = read(&written(&serving(2_000))).unwrap();
        assert!(read.exports.len() > 100 && read.untold + read.exports.len() as u64 == 2_000);
    }

    #[test]
    fn what_is_half_written_is_not_taken() {
        let words = written(&serving(3));
        let end = words[2] as usize;
        assert!(matches!(super::read(&words[..end]), Record::Longer(len) if len == end + 1));
        let mut torn = words.clone();
        torn[end] = 0;
        assert!(matches!(super::read(&torn), Record::Torn));
        assert!((HEAD..end).all(|end| Reader(&words[HEAD..end]).serving().is_none()));
    }
}
