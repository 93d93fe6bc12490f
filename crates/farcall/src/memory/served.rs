//! The carrier by packets: the exporter's runtime serves each access.

use std::sync::Arc;

use bytes::Bytes;

use super::Result;
use super::access::{
    COMPARE_AND_SWAP, MOST, MOST_ARGUMENTS, NAMES, READ, Refused, WRITE, WRITE_EACH, too_long,
};
use super::carrier::Carrier;
use super::pipeline::Pipeline;
use super::posts::Posts;
use crate::env::Env;
use crate::stub::{Binding, Call, Procedure, Reply, decode_reply};
use crate::xdr::{self, Decode, Encode, Encoder};
use crate::{CallFailed, Error, Kind, Pending, Ran};

/// Accesses of one generation, as calls.
pub(super) struct Served {
    binding: Binding,
    generation: u64,
    reads: Arc<Pipeline>,
    posts: Arc<Posts>,
}

impl Served {
    pub(super) fn new(env: Arc<dyn Env>, binding: Binding, generation: u64) -> Served {
        let reads = Pipeline::new(env, binding.clone(), generation);
        let posts = Arc::new(Posts::new(binding.clone(), generation));
        Served { binding, generation, reads, posts }
    }

    /// Reads ranges, which `encode` names and `take` takes.
    #[inline(always)]
    fn read_by(
        &self,
        encode: impl Fn(&mut Encoder<'_>) -> std::result::Result<(), xdr::Error>,
        take: impl FnOnce(&[u8]) -> std::result::Result<(), CallFailed>,
    ) -> Result<()> {
        let (mut take, mut outcome) = (Some(take), Ok(()));
        let encode = |e: &mut Encoder<'_>| {
            e.u64(self.generation)?;
            encode(e)
        };
        self.binding.channel().call(Call { procedure: &READ, within: None, encode: &encode }, &mut |reply| {
            outcome = match (reply, take.take()) {
                (Reply::Result(mut result), Some(take)) => {
                    result.bytes().map_err(no_result).and_then(take).map_err(Error::from)
                }
                (reply, _) => decode_reply::<(), Refused>(reply),
            };
        });
        outcome
    }

    /// Makes a brief call: whether it could be one, and its outcome unless `short` took that.
    #[inline(always)]
    fn call_briefly<T: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        short: &mut dyn FnMut(&[u8]) -> bool,
    ) -> (bool, Option<Result<T>>) {
        let mut outcome = None;
        let sink = &mut |reply: Reply<'_>| outcome = Some(decode_reply(reply));
        let brief = self.binding.channel().call_briefly(procedure, arguments, short, sink);
        (brief, outcome)
    }

    /// Reads what one read may.
    #[inline(always)]
    fn read_once(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.len() > BRIEF {
            return self.read_long(offset, into);
        }
        let mut arguments = [0; 20];
        arguments[..8].copy_from_slice(&self.generation.to_be_bytes());
        arguments[8..16].copy_from_slice(&offset.to_be_bytes());
        arguments[16..].copy_from_slice(&(into.len() as u32).to_be_bytes());
        match self.call_briefly::<Bytes>(&READ, &arguments, &mut |result| take_opaque(result, into)) {
            (true, None) => Ok(()),
            (_, Some(bytes)) => Ok(copy(&bytes?, into)?),
            (false, None) => self.read_long(offset, into),
        }
    }

    #[inline(never)]
    fn read_long(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let length = into.len() as u32;
        let encode = |e: &mut Encoder<'_>| {
            e.u64(offset)?;
            e.u32(length)
        };
        self.read_by(encode, |bytes| copy(bytes, into))
    }

    fn write_short(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        let mut arguments = [0; 24 + SHORT];
        arguments[..8].copy_from_slice(&self.generation.to_be_bytes());
        arguments[8..16].copy_from_slice(&offset.to_be_bytes());
        arguments[16..20].copy_from_slice(&u32::from(notify).to_be_bytes());
        arguments[20..24].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
        arguments[24..24 + bytes.len()].copy_from_slice(bytes);
        let arguments = &arguments[..24 + bytes.len().next_multiple_of(4)];
        match self.call_briefly(&WRITE, arguments, &mut |result| result.is_empty()) {
            (true, None) => Ok(()),
            (_, Some(outcome)) => outcome,
            (false, None) => self.call(&WRITE, (offset, notify, bytes)),
        }
    }

    fn call<T: for<'a> Decode<'a>>(&self, procedure: &Procedure, arguments: impl Encode) -> Result<T> {
        self.binding.call(procedure, &|e| encode(self.generation, &arguments, e))
    }

    fn start<T>(&self, procedure: &Procedure, arguments: impl Encode) -> Pending<T, Refused> {
        self.binding.start(procedure, &|e| encode(self.generation, &arguments, e))
    }
}

fn encode(
    generation: u64,
    arguments: &impl Encode,
    e: &mut Encoder<'_>,
) -> std::result::Result<(), xdr::Error> {
    e.u64(generation)?;
    arguments.encode(e)
}

impl Carrier for Served {
    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.len() <= MOST {
            return self.read_once(offset, into);
        }
        let offsets = (offset..).step_by(MOST);
        into.chunks_mut(MOST).zip(offsets).try_for_each(|(part, offset)| self.read_once(offset, part))
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        if is_too_much(ranges.iter().map(|(_, into)| into.len())) {
            return ranges.iter_mut().try_for_each(|(offset, into)| self.read(*offset, into));
        }
        let asked: Vec<(u64, u32)> =
            ranges.iter().map(|(offset, into)| (*offset, into.len() as u32)).collect();
        let encode = |e: &mut Encoder<'_>| {
            asked.iter().try_for_each(|(offset, length)| {
                e.u64(*offset)?;
                e.u32(*length)
            })
        };
        self.read_by(encode, |bytes| distribute(bytes, ranges))
    }

    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        self.posts.settle()?;
        if bytes.len() <= SHORT {
            return self.write_short(offset, bytes, notify);
        }
        if bytes.len() <= MOST {
            return self.call(&WRITE, (offset, notify, bytes));
        }
        let offsets = (offset..).step_by(MOST);
        bytes
            .chunks(MOST)
            .zip(offsets)
            .try_for_each(|(part, offset)| self.call(&WRITE, (offset, notify, part)))
    }

    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        if is_too_much(ranges.iter().map(|(_, bytes)| bytes.len())) {
            let last = ranges.len() - 1;
            let mut each = ranges.iter().enumerate();
            return each.try_for_each(|(which, (offset, bytes))| {
                self.write(*offset, bytes, notify && which == last)
            });
        }
        self.posts.settle()?;
        self.binding.call(&WRITE_EACH, &|e| {
            (self.generation, notify).encode(e)?;
            ranges.iter().try_for_each(|range| range.encode(e))
        })
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.posts.settle()?;
        let mut arguments = [0; 32];
        for (place, word) in
            arguments.as_chunks_mut::<8>().0.iter_mut().zip([self.generation, offset, old, new])
        {
            *place = word.to_be_bytes();
        }
        let mut found = 0;
        let take = &mut |result: &[u8]| {
            result.try_into().is_ok_and(|word| {
                found = u64::from_be_bytes(word);
                true
            })
        };
        match self.call_briefly(&COMPARE_AND_SWAP, &arguments, take) {
            (true, None) => Ok(found),
            (_, Some(outcome)) => outcome,
            (false, None) => self.call(&COMPARE_AND_SWAP, (offset, old, new)),
        }
    }

    fn post(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        match self.posts.post(offset, bytes, notify)? {
            true => Ok(()),
            false => self.write(offset, bytes, notify),
        }
    }

    fn flush(&self) -> Result<()> {
        self.posts.settle()
    }

    fn start_flush(&self) -> Pending<(), Refused> {
        self.posts.start_settling()
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        match len as usize {
            len if len > MOST => Pending::ended(Err(too_long(len).into())),
            _ => self.reads.start(offset, len),
        }
    }

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        if bytes.len() > MOST {
            return Pending::ended(Err(too_long(bytes.len()).into()));
        }
        self.start(&WRITE, (offset, false, bytes))
    }

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        self.start(&COMPARE_AND_SWAP, (offset, old, new))
    }
}

/// Whether ranges of these lengths are too much for one access.
fn is_too_much(lengths: impl Iterator<Item = usize>) -> bool {
    let (bytes, names) =
        lengths.fold((0, NAMES), |(bytes, names), len| (len.saturating_add(bytes), NAMES + names));
    bytes > MOST || MOST + names > MOST_ARGUMENTS
}

/// Reads of so many bytes are tried as brief calls: their results fit a datagram.
const BRIEF: usize = 1_000;

/// Writes of at most this many bytes are tried on the fast path: their arguments are put together first.
const SHORT: usize = 128;

/// Takes opaque data of the length that was asked for, which needs no padding.
#[inline(always)]
fn take_opaque(result: &[u8], into: &mut [u8]) -> bool {
    let Some((length, bytes)) = result.split_first_chunk::<4>() else { return false };
    let usual = u32::from_be_bytes(*length) as usize == bytes.len() && bytes.len() == into.len();
    if usual {
        into.copy_from_slice(bytes);
    }
    usual
}

/// Copies what was read.
#[inline]
fn copy(bytes: &[u8], into: &mut [u8]) -> std::result::Result<(), CallFailed> {
    if bytes.len() != into.len() {
        return Err(other_length(into.len(), bytes.len()));
    }
    into.copy_from_slice(bytes);
    Ok(())
}

/// Distributes what was read.
fn distribute(mut bytes: &[u8], ranges: &mut [(u64, &mut [u8])]) -> std::result::Result<(), CallFailed> {
    let wanted: usize = ranges.iter().map(|(_, into)| into.len()).sum();
    if bytes.len() != wanted {
        return Err(other_length(wanted, bytes.len()));
    }
    for (_, into) in ranges {
        let (now, rest) = bytes.split_at(into.len());
        into.copy_from_slice(now);
        bytes = rest;
    }
    Ok(())
}

#[cold]
pub(super) fn other_length(wanted: usize, came: usize) -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes).because(format!("{wanted} bytes were asked for, {came} came"))
}

#[cold]
fn no_result(why: xdr::Error) -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why)
}
