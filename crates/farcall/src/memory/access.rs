//! Accesses as calls: what an importer asks of an exporter whose memory it has not mapped.
//!
//! They are calls of the segment's export, by numbers that no interface can have. To ask what the segment is ([`Facts`]) is one
//! of them, so that it can be imported while nobody executes calls; each of the others names the generation that it means.

use std::fmt;
use std::net::SocketAddr;

use farcall_proto::server::HostName;
use farcall_proto::{ACCESSES, READINGS};

use super::segment::{Core, Rights};
use crate::server::{Accesses, Accessor};
use crate::stub::{self, Dispatched, Procedure};
use crate::xdr::{self, Decoder, Encode, Encoder};
use crate::{CallFailed, Error, Kind, Pending, Ran, Result};

/// Why an access was refused: it was not done, and nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub enum Refused {
    /// It reaches beyond the segment, which has so many bytes.
    OutOfRange(u64),
    /// Compare and swap is for words, whose offsets eight divides.
    NotAWord,
    /// The right to it was not given.
    NotPermitted,
    /// The exporter has inhibited writing.
    Inhibited,
    /// The segment was revoked, or exported anew, since it was imported.
    Stale,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OutOfRange(size) => write!(f, "it reaches beyond the segment, which has {size} bytes"),
            Refused::NotAWord => f.write_str("a word's offset is a multiple of eight"),
            Refused::NotPermitted => f.write_str("the right to it was not given"),
            Refused::Inhibited => f.write_str("writing is inhibited"),
            Refused::Stale => f.write_str("the segment was revoked, or exported anew, since it was imported"),
        }
    }
}

impl std::error::Error for Refused {}

/// What a segment is, to who imports it.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub(super) struct Facts {
    pub(super) generation: u64,
    pub(super) size: u64,
    /// The bits of [`Rights`] that whoever asks has.
    pub(super) rights: u32,
}

/// A segment, as an interface: it has nothing but what can be done with all of them.
#[farcall::interface]
pub(super) trait Access {}

impl Access for Core {}

impl AccessClient {
    /// What the segment is now.
    pub(super) fn facts(&self) -> Result<Facts, Refused> {
        self.binding().call(&FACTS, &|_| Ok(()))
    }

    /// Starts to ask the exporter for the segment's [`Facts`].
    pub(super) fn start_facts(&self) -> Pending<Facts, Refused> {
        self.binding().start(&FACTS, &|_| Ok(()))
    }
}

/// Takes nothing; gives [`Facts`].
pub(super) static FACTS: Procedure = access("facts", READINGS + 1);

/// Takes a generation and ranges, each an offset and a length of four bytes, up to its end; gives opaque data: their bytes,
/// one behind the other.
pub(super) static READ: Procedure = access("read", READINGS);

/// Takes a generation, an offset, whether the exporter is to hear of it, and opaque data, which it writes.
pub(super) static WRITE: Procedure = access("write", ACCESSES);

/// Takes a generation, whether the exporter is to hear of the last, and up to its end offsets and opaque data, which it writes in
/// that order.
pub(super) static WRITE_EACH: Procedure = access("write_each", ACCESSES + 3);

/// Takes a generation; gives a new [stream](super::streams).
pub(super) static OPEN: Procedure = access("open", ACCESSES + 2);

/// Takes a generation and a stream; gives what is [`Posted`] there.
pub(super) static POSTED: Procedure = access("posted", READINGS + 2);

/// Takes a generation, an offset, the old and the new word; gives what was there.
pub(super) static COMPARE_AND_SWAP: Procedure = access("compare_and_swap", ACCESSES + 1);

const fn access(name: &'static str, number: u32) -> Procedure {
    Procedure {
        number,
        name,
        idempotent: number >= READINGS,
        blocking: false,
        uncancelled: false,
        deadline: None,
    }
}

/// The most bytes of one access: the exporter copies them while nobody else is served.
pub(super) const MOST: usize = 1 << 20;

/// The most bytes of its arguments: ranges without bytes cost too.
pub(super) const MOST_ARGUMENTS: usize = MOST + (64 << 10);

/// What names a range, whatever its length, takes of that at most.
pub(super) const NAMES: usize = 16;

/// What a read asks for.
struct Reading<'d> {
    generation: u64,
    ranges: &'d [[u8; RANGE]],
    /// How many bytes, all in all.
    total: usize,
}

const RANGE: usize = 12;

/// Where a range is, and how long.
fn range(range: &[u8; RANGE]) -> (u64, usize) {
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
    /// Whether a reading may be executed.
    fn check_reading(&self, reading: &Reading<'_>) -> Result<(), Refused> {
        self.check(reading.generation, Rights::READ)?;
        for bytes in reading.ranges {
            let (offset, length) = range(bytes);
            self.check_range(offset, length)?;
        }
        if reading.total > MOST {
            return Err(too_long(reading.total).into());
        }
        Ok(())
    }

    /// As [`Accesses::read`], of one range.
    #[inline(always)]
    fn read_one(&self, number: u32, arguments: &[u8; 8 + RANGE], result: &mut [u8]) -> Option<usize> {
        let (generation, ranges) = arguments.split_first_chunk()?;
        let (generation, (offset, len)) = (u64::from_be_bytes(*generation), range(ranges.first_chunk()?));
        if number != READ.number || !self.may_read(generation) || !self.area().has(offset, len) {
            return None;
        }
        let total = opaque(len);
        let (length, bytes) = result.get_mut(..total)?.split_first_chunk_mut()?;
        *length = (len as u32).to_be_bytes();
        let (bytes, padding) = bytes.split_at_mut(len);
        self.area().read(offset, bytes);
        if !padding.is_empty() {
            padding.fill(0);
        }
        // Taken away meanwhile, it may be another generation's.
        self.is(generation).then_some(total)
    }

    /// Answers a read of several ranges, or of none.
    #[inline(never)]
    fn read_several(&self, number: u32, arguments: &[u8], result: &mut [u8]) -> Option<usize> {
        let reading = Reading::parse(arguments)?;
        if number != READ.number || self.check_reading(&reading).is_err() {
            return None;
        }
        let result = result.get_mut(..opaque(reading.total))?;
        self.read_all(&reading, result).then_some(result.len())
    }

    /// Fills in the result of a reading that may be executed. False if the segment was taken away meanwhile.
    fn read_all(&self, reading: &Reading<'_>, result: &mut [u8]) -> bool {
        let Some((length, mut rest)) = result.split_first_chunk_mut() else { return false };
        *length = (reading.total as u32).to_be_bytes();
        for bytes in reading.ranges {
            let (offset, length) = range(bytes);
            let Some((now, behind)) = std::mem::take(&mut rest).split_at_mut_checked(length) else {
                return false;
            };
            self.area().read(offset, now);
            rest = behind;
        }
        rest.fill(0);
        self.is(reading.generation)
    }

    fn facts(&self, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        stub::arguments(arguments, |_| Ok(()))?;
        let facts = |generation| Facts { generation, size: self.size(), rights: self.far().bits() };
        Ok(answer(reply, self.generation().map(facts).ok_or_else(|| Refused::Stale.into())))
    }

    fn read_long(&self, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let bytes = arguments.opaque(arguments.remaining())?;
        let truncated = xdr::ErrorKind::Truncated { needed: RANGE, remaining: bytes.len() % RANGE };
        let reading = Reading::parse(bytes).ok_or_else(|| arguments.error(truncated))?;
        if let Err(why) = self.check_reading(&reading) {
            return Ok(answer::<()>(reply, Err(why)));
        }
        let mut result = vec![0; opaque(reading.total)];
        if !self.read_all(&reading, &mut result) {
            return Ok(answer::<()>(reply, Err(Refused::Stale.into())));
        }
        reply.opaque(&result)?;
        Ok(Dispatched::Result)
    }

    fn write(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, offset) = (arguments.u64()?, arguments.u64()?);
        let (notify, bytes) = (arguments.bool()?, arguments.bytes()?);
        Ok(answer(reply, self.write_ranges(by, generation, notify, &[(offset, bytes)])))
    }

    fn write_each(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, notify) = (arguments.u64()?, arguments.bool()?);
        let mut ranges = Vec::new();
        while arguments.remaining() > 0 {
            ranges.push((arguments.u64()?, arguments.bytes()?));
        }
        Ok(answer(reply, self.write_ranges(by, generation, notify, &ranges)))
    }

    /// Writes all of them, in their order, if all may be.
    fn write_ranges(
        &self,
        by: &mut Accessor,
        generation: u64,
        notify: bool,
        ranges: &[(u64, &[u8])],
    ) -> Result<(), Refused> {
        self.change_ranges(generation, ranges)?;
        self.tell_of(by, notify, ranges);
        Ok(())
    }

    fn change_ranges(&self, generation: u64, ranges: &[(u64, &[u8])]) -> Result<(), Refused> {
        let total = ranges.iter().map(|(_, bytes)| bytes.len()).fold(0, usize::saturating_add);
        if total > MOST {
            return Err(too_long(total).into());
        }
        let _changing = self.change();
        self.check(generation, Rights::WRITE)?;
        ranges.iter().try_for_each(|(offset, bytes)| self.check_range(*offset, bytes.len()))?;
        ranges.iter().for_each(|(offset, bytes)| self.area().write(*offset, bytes));
        Ok(())
    }

    /// Tells that they were written.
    fn tell_of(&self, by: &mut Accessor, notify: bool, ranges: &[(u64, &[u8])]) {
        for (which, (offset, bytes)) in ranges.iter().enumerate() {
            self.written(*offset, bytes.len(), notify && which + 1 == ranges.len(), by);
        }
    }

    fn open(&self, by: &Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let may = self.check(arguments.u64()?, Rights::WRITE);
        let host = by.from.as_ref().map(HostName::at).unwrap_or_default();
        Ok(answer(reply, may.map(|()| self.streams().open(host))))
    }

    fn posted(&self, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, stream) = (arguments.u64()?, arguments.u64()?);
        let posted =
            if self.is(generation) { Ok(self.streams().posted(stream)) } else { Err(Refused::Stale.into()) };
        Ok(answer(reply, posted))
    }

    /// Does a posted write, if it is its stream's next.
    fn do_posted(&self, by: &mut Accessor, bytes: &[u8]) -> std::result::Result<(), xdr::Error> {
        let d = &mut Decoder::new(bytes);
        let (stream, number) = (d.u64()?, d.u64()?);
        let (generation, offset, notify, bytes) = (d.u64()?, d.u64()?, d.bool()?, d.bytes()?);
        let ranges = [(offset, bytes)];
        let mut done = false;
        self.streams().post(stream, number, || {
            self.change_ranges(generation, &ranges)?;
            done = true;
            Ok(())
        });
        if done {
            self.tell_of(by, notify, &ranges);
        }
        Ok(())
    }

    fn swap(&self, by: &mut Accessor, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>) -> Outcome {
        let (generation, offset) = (arguments.u64()?, arguments.u64()?);
        let (old, new) = (arguments.u64()?, arguments.u64()?);
        let changing = self.change();
        let may = self.check(generation, Rights::CAS).and_then(|()| self.check_word(offset));
        let found = may.map(|()| self.area().compare_and_swap(offset, old, new));
        drop(changing);
        if matches!(found, Ok(found) if found == old) {
            self.written(offset, 8, false, by);
        }
        Ok(answer(reply, found))
    }
}

/// Encodes how an access ended. One that failed was not done, and no call of its own did.
fn answer<T: Encode>(reply: &mut Encoder<'_>, outcome: Result<T, Refused>) -> Dispatched {
    match outcome {
        Err(Error::CallFailed(why)) => Dispatched::Failed(why),
        outcome => stub::reply(reply, outcome),
    }
}

/// Why so much is not accessed at once.
#[cold]
pub(super) fn too_long(len: usize) -> CallFailed {
    CallFailed::new(Kind::TooLarge, Ran::No)
        .because(format!("an access of {len} bytes; one has at most {MOST}"))
}

/// Has a small segment of generation 7, that others may do everything with, take an access or a post, with any arguments. The first
/// byte chooses which.
#[doc(hidden)]
pub fn fuzz_access(data: &[u8]) {
    let Some((which, arguments)) = data.split_first() else { return };
    let core = Core::to_read(super::area::zeros(512).into(), 7, &crate::System).open_to_all();
    core.streams().open(HostName::default());
    let by = &mut Accessor::at(Some(SocketAddr::from(([127, 0, 0, 1], 1))));
    let numbers =
        [FACTS, READ, WRITE, WRITE_EACH, OPEN, POSTED, COMPARE_AND_SWAP].map(|procedure| procedure.number);
    match numbers.get(usize::from(*which)) {
        None => Accesses::post(&core, by, arguments),
        Some(number) => {
            let quick = Accesses::read(&core, *number, arguments, &mut [0; 1024]);
            let (mut reply, decoder) = (Vec::new(), &mut Decoder::new(arguments));
            let ended = Accesses::access(&core, by, *number, decoder, &mut Encoder::new(&mut reply));
            assert!(
                quick.is_none() || matches!(ended, Dispatched::Result),
                "what is answered at once is a result"
            );
        }
    }
}

/// How an access ended, or that its arguments are none.
type Outcome = std::result::Result<Dispatched, xdr::Error>;

/// How many bytes opaque data of that length has.
fn opaque(len: usize) -> usize {
    4 + len.next_multiple_of(4)
}

impl Accesses for Core {
    fn access(
        &self,
        by: &mut Accessor,
        number: u32,
        arguments: &mut Decoder<'_>,
        reply: &mut Encoder<'_>,
    ) -> Dispatched {
        if arguments.remaining() > MOST_ARGUMENTS {
            return Dispatched::Failed(too_long(arguments.remaining()));
        }
        let outcome = match number {
            number if number == FACTS.number => self.facts(arguments, reply),
            number if number == READ.number => self.read_long(arguments, reply),
            number if number == WRITE.number => self.write(by, arguments, reply),
            number if number == WRITE_EACH.number => self.write_each(by, arguments, reply),
            number if number == OPEN.number => self.open(by, arguments, reply),
            number if number == POSTED.number => self.posted(arguments, reply),
            number if number == COMPARE_AND_SWAP.number => self.swap(by, arguments, reply),
            _ => return Dispatched::NoSuchProcedure,
        };
        outcome.unwrap_or_else(Dispatched::BadArguments)
    }

    fn most(&self, number: u32, arguments: &[u8]) -> usize {
        let reading =
            Reading::parse(arguments).filter(|reading| number == READ.number && reading.total <= MOST);
        reading.map_or(0, |reading| opaque(reading.total))
    }

    fn post(&self, by: &mut Accessor, bytes: &[u8]) {
        // There is nobody to tell that it was none.
        let _ = self.do_posted(by, bytes);
    }

    fn read(&self, number: u32, arguments: &[u8], result: &mut [u8]) -> Option<usize> {
        match <&[u8; 8 + RANGE]>::try_from(arguments) {
            Ok(one) => self.read_one(number, one, result),
            Err(_) => self.read_several(number, arguments, result),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_fails_and_was_not_done() {
        let core = Core::to_read(super::super::area::zeros(2 * MOST).into(), 7, &crate::System).open_to_all();
        let write = |bytes: usize| {
            let front = [7_u64, 0].map(u64::to_be_bytes).concat();
            [front, vec![0; 4], (bytes as u32).to_be_bytes().to_vec(), vec![9; bytes]].concat()
        };
        let read = [7_u64, 0].map(u64::to_be_bytes).concat();
        let read = [read, (MOST as u32 + 4).to_be_bytes().to_vec()].concat();
        let ranges = [7_u64.to_be_bytes().to_vec(), vec![0; RANGE * MOST_ARGUMENTS.div_ceil(RANGE)]].concat();
        for (procedure, arguments) in
            [(&WRITE, write(MOST + 4)), (&WRITE, write(MOST_ARGUMENTS)), (&READ, read), (&READ, ranges)]
        {
            let (mut reply, by) = (Vec::new(), &mut Accessor::default());
            let d = &mut Decoder::new(&arguments);
            let ended = Accesses::access(&core, by, procedure.number, d, &mut Encoder::new(&mut reply));
            let Dispatched::Failed(why) = ended else { panic!("{} of {}", procedure.name, arguments.len()) };
            assert_eq!((why.kind(), why.ran()), (Kind::TooLarge, Ran::No));
            let mut there = [1; 8];
            core.area().read(0, &mut there);
            assert_eq!(there, [0; 8]);
        }
    }
}
