//! What a runtime counts, as a segment that every server exports: its words, who writes them and who reads them.
//!
//! All in words, little-endian as everywhere. A text is its length in bytes, then the bytes, then zeros to the next word; a
//! histogram a word whose bits say which classes are not empty, then how many fell into each of those.
//!
//! ```text
//! 0           the number of the writing; the same stands behind the last word
//! 1           what it is: the format's mark
//! 2           how many words there are, those in front included
//! 3 ..        process, nanoseconds that it has served, threads that execute, that receive, all, calls that wait,
//!             conversations, calls that have not ended, bytes held; ten counts of the protocol, 24 of what it refused
//! 46, 47      exports that follow, and those of which there was no room to tell; then each of them:
//!             identifier, accesses, running, procedures that follow, name; of each procedure
//!             its name, results, exceptions, failures, and the histograms of how long calls waited and ran
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farcall_proto::server as proto;

use super::segment::{Core, TYPE};
use super::{Memory, Remote, Result, access};
use crate::env::Env;
use crate::server::{Direct, Executor, Exported, Server};
use crate::stats::{BUCKETS, Export, Histogram, Procedure, Serving};
use crate::stub::Interface;
use crate::{CallFailed, Kind, Ran, Runtime};

/// The name of the segment.
pub(super) const NAME: &str = "counters";

const MARK: u64 = u64::from_le_bytes(*b"tally  1");
/// How many words there are: what does not fit is not told.
const WORDS: usize = 8 << 10;
/// More words are nobody's.
const MOST: usize = 1 << 20;
/// What stands in front.
const HEAD: usize = 3;

/// What a server counts, read from its memory: also while it executes nothing, however many threads are stuck.
///
/// Every server exports it as the segment `counters`, unless it does not [describe](crate::Builder::describe) itself.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use farcall::memory::Counters;
///
/// let counters = Counters::import(&farcall::Runtime::current()?, "127.0.0.1:7000".parse()?)?;
/// for export in counters.read()?.exports {
///     println!("{}: {} calls execute", export.name, export.running);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Counters(Remote);

impl Counters {
    /// Those of the server at that address.
    ///
    /// # Errors
    /// When nobody answers there, or says nothing of itself.
    pub fn import(runtime: &Runtime, address: SocketAddr) -> crate::Result<Counters> {
        runtime.import_segment(&format!("udp://{address}/{NAME}")).map(Counters)
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// As of every read; and when what stands there is not what is known here.
    pub fn read(&self) -> Result<Serving> {
        /// More than there usually is; and a writing may be in the way of each reading.
        const FIRST: usize = 4 << 10;
        const TRIES: usize = 8;
        let mut len = FIRST;
        for _ in 0..TRIES {
            let mut bytes = vec![0; len.min(self.0.size() as usize)];
            self.0.read(0, &mut bytes)?;
            let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            match Reader::whole(&words) {
                Whole::Yes(reader) => return reader.serving().ok_or_else(|| unknown().into()),
                Whole::Longer(words) => len = words.saturating_mul(8),
                Whole::Torn => {}
                Whole::Unknown => break,
            }
        }
        Err(unknown().into())
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counters")
    }
}

#[cold]
fn unknown() -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes)
        .because("what the server counts is not written in a way that is known here")
}

/// Exports what a server counts, as an export and a generation that nobody else has.
pub(crate) fn offer_counters(server: &Server, export: u64, generation: u64) {
    let env: &Arc<dyn Env> = server.env();
    let words: Arc<[AtomicU64]> = super::area::zeros(WORDS * 8).into();
    let core = Arc::new(Core::to_read(words.clone(), generation, &**env));
    let executor = Executor::Here(Box::new(Direct::<dyn access::Access>(core.clone())));
    let exported = Exported::new(export, &[], Some(<dyn access::Access>::interface()), executor, env);
    let (type_name, instance) = (TYPE.to_owned(), NAME.to_owned());
    let offer = proto::Export { id: export, type_name, instance, procedures: Vec::new() };
    server.export_tally(offer, Arc::new(exported.with_accesses(Some(core))), words);
}

/// The words, to be written by one at a time.
pub(crate) struct Words {
    words: Arc<[AtomicU64]>,
    /// How often they were written, and where they end.
    number: u64,
    end: usize,
}

impl Words {
    pub(crate) fn new(words: Arc<[AtomicU64]>) -> Words {
        Words { words, number: 0, end: 0 }
    }

    /// Writes down what was counted. Who reads from the first word on meanwhile finds different numbers at both ends: the
    /// one behind goes first.
    pub(crate) fn write(&mut self, counted: &Serving) {
        self.number += 1;
        self.set(self.end, 0);
        let mut writer = Writer { words: &self.words, at: 1, end: self.words.len() - 1 };
        let complete = writer.serving(counted);
        debug_assert!(complete.is_some(), "the segment has room for what stands in front");
        self.end = writer.at;
        self.set(2, self.end as u64);
        self.set(self.end, self.number);
        self.set(0, self.number);
    }

    fn set(&self, at: usize, word: u64) {
        self.words[at].store(word, Ordering::Release);
    }
}

/// Writes words one after the other, as long as there is room.
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
        self.all(&[export.id, export.accesses, export.running as u64, export.procedures.len() as u64])?;
        self.text(&export.name)?;
        export.procedures.iter().try_for_each(|procedure| {
            self.text(&procedure.name)?;
            self.all(&[procedure.results, procedure.exceptions, procedure.failures])?;
            self.histogram(&procedure.queued)?;
            self.histogram(&procedure.ran)
        })
    }
}

/// Whether what was read is one writing.
enum Whole<'a> {
    Yes(Reader<'a>),
    /// It has so many words.
    Longer(usize),
    /// It was being written.
    Torn,
    Unknown,
}

/// Reads words one after the other; whoever wrote them may have written anything.
struct Reader<'a>(&'a [u64]);

impl<'a> Reader<'a> {
    fn whole(words: &'a [u64]) -> Whole<'a> {
        let [number, mark, end, ..] = *words else { return Whole::Unknown };
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        match words.get(end) {
            _ if mark != MARK || !(HEAD..MOST).contains(&end) => Whole::Unknown,
            None => Whole::Longer(end + 1),
            Some(behind) if *behind != number => Whole::Torn,
            Some(_) => Whole::Yes(Reader(&words[HEAD..end])),
        }
    }

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

    /// As many as are said to follow; each has at least one word, so there are no more than that.
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
        let [id, accesses, running, procedures] = self.some()?;
        let (name, running) = (self.text()?, usize::try_from(running).ok()?);
        let procedures = self.each(procedures, Reader::procedure)?;
        Some(Export { id, name, procedures, running, accesses })
    }

    fn procedure(&mut self) -> Option<Procedure> {
        let name = self.text()?.into();
        let [results, exceptions, failures] = self.some()?;
        let (queued, ran) = (self.histogram()?, self.histogram()?);
        Some(Procedure { name, results, exceptions, failures, queued, ran })
    }
}

/// Reads words that may be anything.
#[doc(hidden)]
pub fn fuzz_counters(words: &[u64]) -> Option<usize> {
    match Reader::whole(words) {
        Whole::Yes(reader) => reader.serving().map(|serving| serving.exports.len()),
        Whole::Longer(_) | Whole::Torn | Whole::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Counters as Counted;

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
        let shared: Arc<[AtomicU64]> = super::super::area::zeros(WORDS * 8).into();
        let mut words = Words::new(shared.clone());
        words.write(&serving(9));
        words.write(counted);
        shared.iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    fn read(words: &[u64]) -> Option<Serving> {
        let Whole::Yes(reader) = Reader::whole(words) else { return None };
        reader.serving()
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
        assert!(matches!(Reader::whole(&words[..end]), Whole::Longer(len) if len == end + 1));
        let mut torn = words.clone();
        torn[end] = 0;
        assert!(matches!(Reader::whole(&torn), Whole::Torn));
        assert!((HEAD..end).all(|end| Reader(&words[HEAD..end]).serving().is_none()));
    }
}
