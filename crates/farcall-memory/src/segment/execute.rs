//! Executes the accesses to a segment that arrive as calls.

use std::net::SocketAddr;
use std::sync::Arc;

use super::core::Core;
use super::{Notify, Settings};
use crate::access::{
    COMPARE_AND_SWAP, FACTS, Facts, MAX_ACCESS_BYTES, MAX_ARGUMENT_BYTES, OPEN, POSTED, Posted, READ,
    Refused, Rights, WRITE, WRITE_EACH, too_long,
};
use crate::posted::Write;
use crate::runtime::{AccessHandler, Accessor};
use crate::words;
use farcall_core::env::Env;
use farcall_core::stub::{self, Dispatched};
use farcall_core::xdr::{self, Decoder, Encode, Encoder};
use farcall_core::{Error, Principal, Result, lock, room};

impl AccessHandler for Core {
    fn access(
        &self,
        by: &mut Accessor,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched {
        if arguments.remaining() > MAX_ARGUMENT_BYTES {
            return Dispatched::Failed(too_long(arguments.remaining()));
        }
        let outcome = match number {
            number if number == FACTS.number => self.facts(by, arguments, reply),
            number if number == READ.number => self.read_long(by, arguments, reply),
            number if number == WRITE.number => self.write(by, arguments, reply),
            number if number == WRITE_EACH.number => self.write_each(by, arguments, reply),
            number if number == OPEN.number => self.open(by, arguments, reply),
            number if number == POSTED.number => self.posted(by, arguments, reply),
            number if number == COMPARE_AND_SWAP.number => self.swap(by, arguments, reply),
            _ => return Dispatched::NoSuchProcedure,
        };
        outcome.unwrap_or_else(Dispatched::BadArguments)
    }

    fn result_bytes(&self, number: u32, arguments: &[u8]) -> usize {
        let reading = Reading::parse(arguments)
            .filter(|reading| number == READ.number && reading.total <= MAX_ACCESS_BYTES);
        reading.map_or(0, |reading| opaque_bytes(reading.total))
    }

    fn post(&self, by: &mut Accessor, bytes: &[u8]) {
        // If the bytes are not a write, the error is ignored, because no caller waits for it.
        let _ = self.execute_posted(by, bytes);
    }

    fn answered_by_kernel(&self) -> Option<u64> {
        self.area.shared_memory()?.answered_by_kernel()
    }

    fn read(
        &self,
        principal: Option<&Principal>,
        number: u32,
        arguments: &[u8],
        result: &mut [u8],
    ) -> Option<usize> {
        match <&[u8; 8 + RANGE_BYTES]>::try_from(arguments) {
            Ok(one) => self.read_one(principal, number, one, result),
            Err(_) => self.read_several(principal, number, arguments, result),
        }
    }

    fn may_map(&self, by: &Accessor, writes: bool) -> bool {
        self.terms().let_map(by, writes)
    }
}

/// The outcome of an access, or an error if its arguments cannot be decoded.
type Outcome = std::result::Result<Dispatched, xdr::Error>;

/// The arguments of a read.
struct Reading<'d> {
    generation: u64,
    ranges: &'d [[u8; RANGE_BYTES]],
    /// The total length of all ranges, in bytes.
    total: usize,
}

/// The bytes that encode a range's offset and length.
const RANGE_BYTES: usize = 12;

/// Returns the offset and the length of a range.
fn range(range: &[u8; RANGE_BYTES]) -> (u64, usize) {
    let [a, b, c, d, e, f, g, h, length @ ..] = *range;
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes(length) as usize)
}

impl<'d> Reading<'d> {
    fn parse(arguments: &'d [u8]) -> Option<Reading<'d>> {
        let (generation, ranges) = arguments.split_first_chunk()?;
        let (ranges, []) = ranges.as_chunks() else { return None };
        let total = ranges.iter().map(|bytes| range(bytes).1).fold(0, usize::saturating_add);
        Some(Reading { generation: u64::from_be_bytes(*generation), ranges, total })
    }
}

impl Core {
    /// Answers a read of one range that arrived in a packet.
    #[inline(always)]
    fn read_one(
        &self,
        principal: Option<&Principal>,
        number: u32,
        arguments: &[u8; 8 + RANGE_BYTES],
        result: &mut [u8],
    ) -> Option<usize> {
        let (generation, ranges) = arguments.split_first_chunk()?;
        let (generation, (offset, len)) = (u64::from_be_bytes(*generation), range(ranges.first_chunk()?));
        let digest = self.digest();
        let is_allowed = self.is(generation) && self.lets_read(digest, principal);
        if number != READ.number || !is_allowed || !self.area.has(offset, len) {
            return None;
        }
        let total = opaque_bytes(len);
        let (length, bytes) = result.get_mut(..total)?.split_first_chunk_mut()?;
        *length = (len as u32).to_be_bytes();
        let (bytes, padding) = bytes.split_at_mut(len);
        self.area.read(offset, bytes);
        if !padding.is_empty() {
            padding.fill(0);
        }
        // If the segment was revoked or exported again meanwhile, or the right was withdrawn, the bytes may
        // be of a time after that.
        (self.is(generation) && self.digest() == digest).then_some(total)
    }

    /// Answers a read of several ranges, or of none, that arrived in a packet.
    #[inline(never)]
    fn read_several(
        &self,
        principal: Option<&Principal>,
        number: u32,
        arguments: &[u8],
        result: &mut [u8],
    ) -> Option<usize> {
        let (digest, reading) = (self.digest(), Reading::parse(arguments)?);
        let is_allowed = self.is(reading.generation) && self.lets_read(digest, principal);
        if number != READ.number || !is_allowed || self.check_ranges(&reading).is_err() {
            return None;
        }
        let result = result.get_mut(..opaque_bytes(reading.total))?;
        (self.read_all(&reading, result) && self.digest() == digest).then_some(result.len())
    }

    /// Checks that the ranges of a read are within the segment, and not too long.
    fn check_ranges(&self, reading: &Reading<'_>) -> Result<(), Refused> {
        for bytes in reading.ranges {
            let (offset, length) = range(bytes);
            self.check_range(offset, length)?;
        }
        if reading.total > MAX_ACCESS_BYTES {
            return Err(too_long(reading.total).into());
        }
        Ok(())
    }

    /// Writes the result of a read that may be executed. Returns false if the segment was revoked or exported
    /// again meanwhile.
    fn read_all(&self, reading: &Reading<'_>, result: &mut [u8]) -> bool {
        let Some((length, mut rest)) = result.split_first_chunk_mut() else { return false };
        *length = (reading.total as u32).to_be_bytes();
        for bytes in reading.ranges {
            let (offset, length) = range(bytes);
            let Some((now, behind)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
                return false;
            };
            self.area.read(offset, now);
            rest = behind;
        }
        rest.fill(0);
        self.is(reading.generation)
    }

    fn facts(&self, by: &Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        stub::arguments(arguments, |_| Ok(()))?;
        let facts = |generation| Facts::new(generation, self.size(), self.terms().rights(by));
        Ok(answer(reply, self.generation().map(facts).ok_or_else(|| Refused::Stale.into())))
    }

    fn read_long(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let bytes = arguments.opaque(arguments.remaining())?;
        let truncated =
            xdr::ErrorKind::Truncated { needed: RANGE_BYTES, remaining: bytes.len() % RANGE_BYTES };
        let reading = Reading::parse(bytes).ok_or_else(|| arguments.error(truncated))?;
        let begun = self.begin_access(reading.generation, by, Rights::READ);
        let terms = match begun.and_then(|terms| self.check_ranges(&reading).map(|()| terms)) {
            Ok(terms) => terms,
            Err(why) => return Ok(answer::<()>(reply, Err(why))),
        };
        let mut result = room::zeroed(opaque_bytes(reading.total))
            .map_err(|why| reply.error(xdr::ErrorKind::NoMemory(why.bytes)))?;
        if !self.read_all(&reading, &mut result) {
            return Ok(answer::<()>(reply, Err(Refused::Stale.into())));
        }
        for bytes in reading.ranges {
            let (offset, len) = range(bytes);
            self.was_read(&terms, offset, len, by);
        }
        reply.opaque(&result)?;
        Ok(Dispatched::Result)
    }

    fn write(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, offset) = (arguments.u64()?, arguments.u64()?);
        let (notify, bytes) = (arguments.bool()?, arguments.bytes()?);
        let begin = arguments.u64().unwrap_or(offset).min(offset);
        Ok(answer(reply, self.write_ranges(by, generation, notify.then_some(begin), &[(offset, bytes)])))
    }

    fn write_each(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, notify) = (arguments.u64()?, arguments.bool()?);
        let mut ranges = Vec::new();
        while arguments.remaining() > 0 {
            ranges.push((arguments.u64()?, arguments.bytes()?));
        }
        let notify = ranges.last().filter(|_| notify).map(|(offset, _)| *offset);
        Ok(answer(reply, self.write_ranges(by, generation, notify, &ranges)))
    }

    /// Writes all ranges, in their order, if all may be written, and notifies the exporter. `notify` is the
    /// offset where the notice of the last range begins, if the writer asked for one.
    fn write_ranges(
        &self,
        by: &mut Accessor,
        generation: u64,
        notify: Option<u64>,
        ranges: &[(u64, &[u8])],
    ) -> Result<(), Refused> {
        let total = ranges.iter().map(|(_, bytes)| bytes.len()).fold(0, usize::saturating_add);
        if total > MAX_ACCESS_BYTES {
            return Err(too_long(total).into());
        }
        let terms = self.begin_change(generation, by, Rights::WRITE)?;
        ranges.iter().try_for_each(|(offset, bytes)| self.check_range(*offset, bytes.len()))?;
        ranges.iter().for_each(|(offset, bytes)| self.area.write(*offset, bytes));
        for (which, (offset, bytes)) in ranges.iter().enumerate() {
            self.wrote(&terms, *offset, bytes, notify.filter(|_| which + 1 == ranges.len()), by);
        }
        Ok(())
    }

    fn open(&self, by: &Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let allowed = self.begin_change(arguments.u64()?, by, Rights::WRITE).map(drop);
        Ok(answer(reply, allowed.map(|()| self.open_stream(by))))
    }

    fn posted(&self, by: &Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, stream) = (arguments.u64()?, arguments.u64()?);
        if !self.is(generation) {
            return Ok(answer::<Posted>(reply, Err(Refused::Stale.into())));
        }
        let posted = match lock(&self.streams).posted(by.principal_name(), stream) {
            Some((next, refused)) => Posted { next: Some(next), refused: refused.cloned() },
            None => Posted { next: None, refused: None },
        };
        Ok(answer(reply, Ok(posted)))
    }

    /// Executes a posted write if it is the next one of a stream that its importer opened.
    fn execute_posted(&self, by: &mut Accessor, bytes: &[u8]) -> std::result::Result<(), xdr::Error> {
        let d = &mut Decoder::new(bytes);
        let (stream, number) = (d.u64()?, d.u64()?);
        let (generation, offset, notify, bytes) = (d.u64()?, d.u64()?, d.bool()?, d.bytes()?);
        let principal = by.principal.clone();
        let owner = principal.as_ref().map(|principal| &principal.name);
        lock(&self.streams).post(owner, stream, number, || {
            match self.write_ranges(by, generation, notify.then_some(offset), &[(offset, bytes)]) {
                Ok(()) => Write::Done,
                Err(Error::Declared(why)) => Write::Refused(why),
                Err(Error::CallFailed(_)) => Write::Nothing,
            }
        });
        Ok(())
    }

    fn swap(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, offset) = (arguments.u64()?, arguments.u64()?);
        let (old, new) = (arguments.u64()?, arguments.u64()?);
        Ok(answer(reply, self.compare_and_swap(by, generation, offset, (old, new))))
    }

    fn compare_and_swap(
        &self,
        by: &mut Accessor,
        generation: u64,
        offset: u64,
        (old, new): (u64, u64),
    ) -> Result<u64, Refused> {
        let terms = self.begin_change(generation, by, Rights::CAS)?;
        self.check_word(offset)?;
        let found = self.area.compare_and_swap(offset, old, new);
        match found == old {
            true => self.wrote(&terms, offset, &new.to_le_bytes(), None, by),
            false => self.was_read(&terms, offset, 8, by),
        }
        Ok(found)
    }
}

/// Encodes the outcome of an access. An access that failed was not executed.
fn answer<T: Encode>(reply: &mut Encoder<'_>, outcome: Result<T, Refused>) -> Dispatched {
    match outcome {
        Err(Error::CallFailed(why)) => Dispatched::Failed(why),
        outcome => stub::reply(reply, outcome),
    }
}

/// Returns how many bytes opaque data of this length takes when it is encoded.
fn opaque_bytes(len: usize) -> usize {
    4 + len.next_multiple_of(4)
}

/// Executes an access or a posted write with arbitrary arguments on a small segment of generation 7, to which
/// every process has all rights. The first byte chooses the procedure. For the fuzz target.
#[doc(hidden)]
pub fn fuzz_access(data: &[u8]) {
    let Some((which, arguments)) = data.split_first() else { return };
    let env: Arc<dyn Env> = Arc::new(farcall_core::System);
    let settings = Settings::new(512).anyone(Rights::ALL).notify(Notify::Always);
    let core = Core::of_words(words::zeros(512).into(), settings, 7, &env);
    // Without notices of reads, short reads take no lock.
    if data.len().is_multiple_of(2) {
        core.change_terms(|terms| terms.notify = Notify::Asked);
    }
    // The corpus posts to this stream.
    lock(&core.streams).open(None, None, 1);
    let by = &mut Accessor { from: Some(SocketAddr::from(([127, 0, 0, 1], 1))), ..Accessor::default() };
    let numbers =
        [FACTS, READ, WRITE, WRITE_EACH, OPEN, POSTED, COMPARE_AND_SWAP].map(|procedure| procedure.number);
    match numbers.get(usize::from(*which)) {
        None => core.post(by, arguments),
        Some(number) => {
            let quick = AccessHandler::read(&core, None, *number, arguments, &mut [0; 1024]);
            let (mut reply, decoder) = (Vec::new(), &mut Decoder::new(arguments));
            let ended = core.access(by, *number, decoder, &mut Encoder::new(&mut reply));
            assert!(
                quick.is_none() || matches!(ended, Dispatched::Result),
                "an access that is answered at once has a result"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::area::Area;
    use super::super::terms::Importers;
    use super::*;
    use crate::carrier::SharedMemory;
    use farcall_core::stub::Procedure;
    use farcall_core::xdr::Decode;
    use farcall_core::{Kind, Ran, System};
    use std::io;
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Memory that looks at its segment while it is being accessed.
    #[derive(Debug)]
    struct Observing {
        words: Box<[AtomicU64]>,
        segment: Weak<Core>,
        /// Whether each access withdraws the rights and gives them again. An access that takes the lock would
        /// wait for itself.
        withdraws: AtomicBool,
        /// Whether the last access held the lock.
        was_locked: Arc<AtomicBool>,
    }

    impl Observing {
        fn observe(&self) {
            let Some(segment) = self.segment.upgrade() else { return };
            self.was_locked.store(segment.are_terms_locked(), Ordering::Relaxed);
            if self.withdraws.load(Ordering::Relaxed) {
                segment.change_terms(|terms| terms.withdraw(Importers::Anyone));
                segment.change_terms(|terms| terms.grant(Importers::Anyone, Rights::ALL)).unwrap();
            }
        }
    }

    impl SharedMemory for Observing {
        fn offer(&self, _: u64) {}

        fn with(&self, access: &mut dyn FnMut(&[AtomicU64])) {
            self.observe();
            access(&self.words);
        }

        fn read(&self, offset: u64, into: &mut [u8]) {
            self.observe();
            words::read(&self.words, offset, into);
        }

        fn copy_out(&self, _: usize, _: &mut [u8]) -> bool {
            false
        }

        fn copy_in(&self, _: usize, _: &[u8]) -> bool {
            false
        }

        fn set_hears(&self, _: bool) {}

        fn hears(&self) -> bool {
            false
        }

        fn is_written_by_others(&self) -> bool {
            true
        }

        fn take_away(&self, _: Option<u64>) -> io::Result<()> {
            Ok(())
        }

        fn pin(&self) -> io::Result<()> {
            Ok(())
        }

        fn unpin(&self) {}

        fn is_pinned(&self) -> bool {
            false
        }

        fn ask_for_huge_pages(&self) -> io::Result<()> {
            Ok(())
        }

        fn withdraw(&self) {}
    }

    fn env() -> Arc<dyn Env> {
        Arc::new(System)
    }

    /// Returns a segment of generation 7 that everybody may access, and whether its last access held the
    /// lock.
    fn observed(withdraws: bool) -> (Arc<Core>, Arc<AtomicBool>) {
        let was_locked = Arc::new(AtomicBool::new(false));
        let core = Arc::new_cyclic(|segment| {
            let (words, segment) = (words::zeros(4096), segment.clone());
            let withdraws = AtomicBool::new(withdraws);
            let memory = Observing { words, segment, withdraws, was_locked: was_locked.clone() };
            let settings = Settings::new(4096).anyone(Rights::ALL);
            Core::new(Area::shared(Box::new(memory), 4096), settings, 7, &env())
        });
        (core, was_locked)
    }

    fn numbers(all: &[u64]) -> Vec<u8> {
        all.iter().flat_map(|number| number.to_be_bytes()).collect()
    }

    /// Returns the arguments of a read of these lengths at the beginning.
    fn reading(lengths: &[u32]) -> Vec<u8> {
        let ranges = lengths.iter().map(|len| [&numbers(&[0])[..], &len.to_be_bytes()].concat());
        [numbers(&[7]), ranges.collect::<Vec<_>>().concat()].concat()
    }

    #[test]
    fn a_short_read_is_discarded_if_the_right_was_withdrawn_meanwhile_and_given_again() {
        for lengths in [&[8][..], &[8, 8]] {
            let read = |core: &Core| {
                AccessHandler::read(core, None, READ.number, &reading(lengths), &mut [0; 64]).is_some()
            };
            assert!(read(&observed(false).0));
            assert!(!read(&observed(true).0));
        }
    }

    #[test]
    fn whoever_changes_the_terms_waits_for_all_accesses_but_short_reads() {
        let opaque = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
        let write = [numbers(&[7, 0]), vec![0; 4], opaque(&[1; 8])].concat();
        let write_each = [numbers(&[7]), vec![0; 4], numbers(&[0]), opaque(&[1; 8])].concat();
        for (procedure, arguments) in [
            (&READ, reading(&[2048])),
            (&WRITE, write),
            (&WRITE_EACH, write_each),
            (&COMPARE_AND_SWAP, numbers(&[7, 0, 0, 1])),
        ] {
            let (core, was_locked) = observed(false);
            let (mut reply, by) = (Vec::new(), &mut Accessor::default());
            let d = &mut Decoder::new(&arguments);
            let ended = core.access(by, procedure.number, d, &mut Encoder::new(&mut reply));
            assert!(matches!(ended, Dispatched::Result), "{}", procedure.name);
            assert!(was_locked.load(Ordering::Relaxed), "{}", procedure.name);
        }
        let (core, was_locked) = observed(false);
        let stream = core.open_stream(&Accessor::default());
        let post = [numbers(&[stream, 0, 7, 0]), vec![0; 4], opaque(&[1; 8])].concat();
        core.post(&mut Accessor::default(), &post);
        assert!(was_locked.load(Ordering::Relaxed) && core.area.load(0) != 0);
    }

    /// A segment of 64 bytes and generation 7, which everybody may read, and which "alice" and "bob" may
    /// write.
    fn with_writers() -> Core {
        let settings = Settings::new(64).anyone(Rights::READ);
        let core = Core::of_words(words::zeros(64).into(), settings, 7, &env());
        for writer in ["alice", "bob"] {
            core.change_terms(|terms| terms.grant(Importers::Principal(writer), Rights::WRITE)).unwrap();
        }
        core
    }

    fn by(name: &str, port: u16) -> Accessor {
        let from = Some(SocketAddr::from(([127, 0, 0, 1], port)));
        Accessor { from, principal: Some(Arc::new(Principal::new(name, [7; 32]))), ..Accessor::default() }
    }

    fn access<T: for<'d> Decode<'d>>(
        core: &Core,
        by: &mut Accessor,
        procedure: &Procedure,
        arguments: &[u64],
    ) -> T {
        let (mut reply, arguments) = (Vec::new(), numbers(arguments));
        let d = &mut Decoder::new(&arguments);
        let ended = core.access(by, procedure.number, d, &mut Encoder::new(&mut reply));
        assert!(matches!(ended, Dispatched::Result), "{}", procedure.name);
        T::decode(&mut Decoder::new(&reply)).unwrap()
    }

    fn post(core: &Core, by: &mut Accessor, (stream, number): (u64, u64), offset: u64, bytes: &[u8]) {
        let front = [numbers(&[stream, number, 7, offset]), vec![0; 4]].concat();
        core.post(by, &[front, (bytes.len() as u32).to_be_bytes().to_vec(), bytes.to_vec()].concat());
    }

    fn found(core: &Core, offset: u64) -> u64 {
        core.area.load(offset)
    }

    #[test]
    fn who_may_only_read_learns_nothing_of_a_writers_stream_and_cannot_have_it_refused() {
        let core = with_writers();
        let (writer, reader) = (&mut by("alice", 1), &mut by("carol", 1));
        let stream: u64 = access(&core, writer, &OPEN, &[7]);
        for reader in [reader, &mut Accessor::default()] {
            let posted: Posted = access(&core, reader, &POSTED, &[7, stream]);
            assert_eq!(posted.next, None);
            post(&core, reader, (stream, 0), 0, &[]);
        }
        // The principal goes on with its stream at another address.
        let writer = &mut by("alice", 2);
        post(&core, writer, (stream, 0), 0, &[1; 8]);
        assert_eq!(found(&core, 0), 0x0101_0101_0101_0101);
        let posted: Posted = access(&core, writer, &POSTED, &[7, stream]);
        assert_eq!((posted.next, posted.refused), (Some(1), None));
    }

    #[test]
    fn another_writer_cannot_post_in_the_place_of_the_one_who_opened_the_stream() {
        let core = with_writers();
        let (writer, other) = (&mut by("alice", 1), &mut by("bob", 1));
        let stream: u64 = access(&core, writer, &OPEN, &[7]);
        post(&core, other, (stream, 0), 0, &[]);
        post(&core, writer, (stream, 0), 0, &[1; 8]);
        post(&core, other, (stream, 1), 8, &[2; 8]);
        assert_eq!((found(&core, 0), found(&core, 8)), (0x0101_0101_0101_0101, 0));
        let posted: Posted = access(&core, writer, &POSTED, &[7, stream]);
        assert_eq!((posted.next, posted.refused), (Some(1), None));
    }

    #[test]
    fn nobody_guesses_the_stream_of_a_writer_without_a_key() {
        let settings = Settings::new(64).anyone(Rights::ALL);
        let core = Core::of_words(words::zeros(64).into(), settings, 7, &env());
        let (writer, other) = (&mut Accessor::default(), &mut Accessor::default());
        let own: u64 = access(&core, other, &OPEN, &[7]);
        let stream: u64 = access(&core, writer, &OPEN, &[7]);
        for guess in
            (0..1_000).chain((1..1_000).flat_map(|near| [own.wrapping_add(near), own.wrapping_sub(near)]))
        {
            let posted: Posted = access(&core, other, &POSTED, &[7, guess]);
            assert_eq!(posted.next, if guess == own { Some(0) } else { None });
            post(&core, other, (guess, 0), 0, &[]);
        }
        post(&core, writer, (stream, 0), 0, &[1; 8]);
        assert_eq!(found(&core, 0), 0x0101_0101_0101_0101);
    }

    #[test]
    fn an_access_that_is_too_long_fails_and_was_not_executed() {
        let settings = Settings::new(2 * MAX_ACCESS_BYTES).anyone(Rights::ALL);
        let core = Core::of_words(words::zeros(2 * MAX_ACCESS_BYTES).into(), settings, 7, &env());
        let write = |bytes: usize| {
            let front = [7_u64, 0].map(u64::to_be_bytes).concat();
            [front, vec![0; 4], (bytes as u32).to_be_bytes().to_vec(), vec![9; bytes]].concat()
        };
        let read = [7_u64, 0].map(u64::to_be_bytes).concat();
        let read = [read, (MAX_ACCESS_BYTES as u32 + 4).to_be_bytes().to_vec()].concat();
        let ranges =
            [7_u64.to_be_bytes().to_vec(), vec![0; RANGE_BYTES * MAX_ARGUMENT_BYTES.div_ceil(RANGE_BYTES)]]
                .concat();
        for (procedure, arguments) in [
            (&WRITE, write(MAX_ACCESS_BYTES + 4)),
            (&WRITE, write(MAX_ARGUMENT_BYTES)),
            (&READ, read),
            (&READ, ranges),
        ] {
            let (mut reply, by) = (Vec::new(), &mut Accessor::default());
            let d = &mut Decoder::new(&arguments);
            let ended = core.access(by, procedure.number, d, &mut Encoder::new(&mut reply));
            let Dispatched::Failed(why) = ended else { panic!("{} of {}", procedure.name, arguments.len()) };
            assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No));
            let mut there = [1; 8];
            core.area.read(0, &mut there);
            assert_eq!(there, [0; 8]);
        }
    }
}
