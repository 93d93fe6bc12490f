//! Accesses to a segment by calls: each access is a call, which the exporter's runtime executes.
//!
//! ```text
//! allowance  the time that is left to an access, which may take several calls
//! reads      started reads, which share packets
//! deposits   started accesses whose results arrive in segments of this process; they share packets too
//! posts      posted writes, which are not acknowledged until the importer asks
//! ```

mod allowance;
mod deposits;
mod posts;
mod reads;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::Result;
use crate::access::{
    COMPARE_AND_SWAP, MAX_ACCESS_BYTES, MAX_ARGUMENT_BYTES, RANGE_NAME_BYTES, READ, Refused, WRITE,
    WRITE_EACH,
};
use crate::carrier::Carrier;
use crate::deposit::{Deposit, DepositTarget};
use allowance::Allowance;
use deposits::Deposits;
use farcall_core::env::Env;
use farcall_core::stub::NO_HANDLERS;
use farcall_core::stub::{Binding, Call, Procedure, Reply, Sink, bad_arguments, decode_reply};
use farcall_core::xdr::{self, Decode, Decoder, Encode, Encoder};
use farcall_core::{CallFailed, Error, Kind, Pending, Ran};
use posts::PostedWrites;
use reads::Reads;

/// Accesses one generation of a segment by calls.
pub(super) struct Served {
    binding: Binding,
    env: Arc<dyn Env>,
    /// The time of each access.
    within: Option<Duration>,
    generation: u64,
    reads: Arc<Reads>,
    deposits: Arc<Deposits>,
    posts: Arc<PostedWrites>,
}

impl Served {
    pub(super) fn new(env: Arc<dyn Env>, binding: Binding, generation: u64) -> Served {
        let posts = Arc::new(PostedWrites::new(binding.clone(), generation));
        Served::with(env, binding, (generation, None), posts)
    }

    /// Returns a carrier that posts writes in the order of all that share `posts`. Started accesses share
    /// packets only with those of the same carrier, because a packet is one call and has one time.
    fn with(
        env: Arc<dyn Env>,
        binding: Binding,
        (generation, within): (u64, Option<Duration>),
        posts: Arc<PostedWrites>,
    ) -> Served {
        let timed = within.map_or_else(|| binding.clone(), |within| binding.within(within));
        let deposits = Deposits::new(env.clone(), (timed.clone(), within.is_some()), generation);
        let reads = Reads::new(env.clone(), timed, generation);
        Served { binding, env, within, generation, reads, deposits, posts }
    }

    /// Returns the time of an access that begins now.
    #[inline(always)]
    fn begin(&self) -> Allowance {
        Allowance::new(&self.binding, self.within)
    }

    /// Reads ranges that are not too long for one access.
    #[inline(never)]
    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])], time: Allowance) -> Result<()> {
        let (ranges, mut outcome) = (RefCell::new(ranges), Ok(()));
        let encode = |e: &mut Encoder<'_>| {
            e.u64(self.generation)?;
            ranges.borrow().iter().try_for_each(|(offset, into)| {
                e.u64(*offset)?;
                e.u32(into.len() as u32)
            })
        };
        self.binding.channel().call(
            Call {
                procedure: &READ,
                within: time.left(&self.binding),
                encode: &encode,
                handlers: &NO_HANDLERS,
                sending: None,
                shared: None,
                carries: &[],
                hurries: false,
            },
            &mut |reply| {
                outcome = match reply {
                    Reply::Result(mut result) => {
                        let bytes = result.bytes().map_err(no_result);
                        bytes
                            .and_then(|bytes| distribute(bytes, &mut ranges.borrow_mut()))
                            .map_err(Error::from)
                    }
                    reply => decode_reply::<(), Refused>(reply),
                };
            },
        );
        outcome
    }

    /// Tries to make a call on the fast path. Returns whether that was possible. Returns the outcome too,
    /// unless `short` has accepted the result.
    #[inline(always)]
    fn call_briefly<T: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: &[u8],
        short: &mut dyn FnMut(&[u8]) -> bool,
    ) -> (bool, Option<Result<T>>) {
        // The fast path has no deadline.
        if self.within.is_some() {
            return (false, None);
        }
        let mut outcome = None;
        let sink = &mut |reply: Reply<'_>| outcome = Some(decode_reply(reply));
        let brief = self.binding.channel().call_briefly(procedure, arguments, short, sink);
        (brief, outcome)
    }

    /// Reads a short range on the fast path. Returns `None`, with nothing done, if that is not possible.
    #[inline(always)]
    fn read_briefly(&self, offset: u64, into: &mut [u8]) -> Option<Result<()>> {
        if into.len() > MAX_FAST_READ_BYTES {
            return None;
        }
        let mut arguments = [0; 20];
        arguments[..8].copy_from_slice(&self.generation.to_be_bytes());
        arguments[8..16].copy_from_slice(&offset.to_be_bytes());
        arguments[16..].copy_from_slice(&(into.len() as u32).to_be_bytes());
        match self.call_briefly::<Bytes>(&READ, &arguments, &mut |result| take_opaque(result, into)) {
            (true, None) => Some(Ok(())),
            (_, Some(bytes)) => Some(bytes.and_then(|bytes| Ok(distribute(&bytes, &mut [(offset, into)])?))),
            (false, None) => None,
        }
    }

    /// Reads a range in the ordinary way, in parts if it is too long for one access.
    #[inline(never)]
    fn read_parts(&self, begin: u64, into: &mut [u8], time: Allowance) -> Result<()> {
        if into.len() <= MAX_ACCESS_BYTES {
            return self.read_ranges(&mut [(begin, into)], time);
        }
        let offsets = (begin..).step_by(MAX_ACCESS_BYTES);
        let mut parts = into.chunks_mut(MAX_ACCESS_BYTES).zip(offsets);
        parts.try_for_each(|(part, offset)| self.read_ranges(&mut [(offset, part)], time))
    }

    fn write_short(&self, offset: u64, bytes: &[u8], notify: bool, time: Allowance) -> Result<()> {
        let mut arguments = [0; 24 + MAX_FAST_WRITE_BYTES];
        arguments[..8].copy_from_slice(&self.generation.to_be_bytes());
        arguments[8..16].copy_from_slice(&offset.to_be_bytes());
        arguments[16..20].copy_from_slice(&u32::from(notify).to_be_bytes());
        arguments[20..24].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
        arguments[24..24 + bytes.len()].copy_from_slice(bytes);
        let arguments = &arguments[..24 + bytes.len().next_multiple_of(4)];
        match self.call_briefly(&WRITE, arguments, &mut |result| result.is_empty()) {
            (true, None) => Ok(()),
            (_, Some(outcome)) => outcome,
            (false, None) => self.call(&WRITE, (offset, notify, bytes), time),
        }
    }

    /// Writes more bytes than one access may have, in parts. The last part asks for one notice of all bytes.
    #[cold]
    fn write_parts(&self, begin: u64, bytes: &[u8], notify: bool, time: Allowance) -> Result<()> {
        let last = (bytes.len() - 1) / MAX_ACCESS_BYTES;
        let offsets = (begin..).step_by(MAX_ACCESS_BYTES);
        let mut parts = bytes.chunks(MAX_ACCESS_BYTES).zip(offsets).enumerate();
        parts.try_for_each(|(which, (part, offset))| match which {
            0 => self.call(&WRITE, (offset, false, part), time),
            which if which == last && notify => {
                self.call(&WRITE, (offset, true, part, begin), time).map_err(half_way)
            }
            _ => self.call(&WRITE, (offset, false, part), time).map_err(half_way),
        })
    }

    /// Writes bytes, in parts if there are many.
    fn write_once(&self, offset: u64, bytes: &[u8], notify: bool, time: Allowance) -> Result<()> {
        if bytes.len() <= MAX_FAST_WRITE_BYTES {
            return self.write_short(offset, bytes, notify, time);
        }
        if bytes.len() <= MAX_ACCESS_BYTES {
            return self.call(&WRITE, (offset, notify, bytes), time);
        }
        self.write_parts(offset, bytes, notify, time)
    }

    fn call<T: for<'a> Decode<'a>>(
        &self,
        procedure: &Procedure,
        arguments: impl Encode,
        time: Allowance,
    ) -> Result<T> {
        time.binding(&self.binding).call(procedure, &|e| encode(self.generation, &arguments, e))
    }

    fn start<T>(&self, procedure: &Procedure, arguments: impl Encode) -> Pending<T, Refused> {
        let binding = self.begin().binding(&self.binding);
        binding.start(procedure, &|e| encode(self.generation, &arguments, e))
    }
}

/// Returns the failure of an access whose time was over before it was sent, because all of it was spent on
/// waiting for earlier posted writes.
#[cold]
fn not_begun(why: Error<Refused>) -> Error<Refused> {
    match why {
        Error::CallFailed(why) if why.kind() == Kind::Deadline => why.but_ran(Ran::No).into(),
        other => other,
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
        match self.read_briefly(offset, into) {
            Some(outcome) => outcome,
            None => self.read_parts(offset, into, self.begin()),
        }
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let time = self.begin();
        if exceeds_one_access(ranges.iter().map(|(_, into)| into.len())) {
            return ranges.iter_mut().try_for_each(|(begin, into)| self.read_parts(*begin, into, time));
        }
        self.read_ranges(ranges, time)
    }

    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        let time = self.begin();
        self.posts.settle(time).map_err(not_begun)?;
        self.write_once(offset, bytes, notify, time)
    }

    fn write_each(&self, ranges: &[(u64, &[u8])], notify: bool) -> Result<()> {
        let time = self.begin();
        self.posts.settle(time).map_err(not_begun)?;
        if exceeds_one_access(ranges.iter().map(|(_, bytes)| bytes.len())) {
            let last = ranges.len() - 1;
            let mut each = ranges.iter().enumerate();
            return each.try_for_each(|(which, (offset, bytes))| {
                let written = self.write_once(*offset, bytes, notify && which == last, time);
                written.map_err(|why| if which == 0 { why } else { half_way(why) })
            });
        }
        time.binding(&self.binding).call(&WRITE_EACH, &|e| {
            (self.generation, notify).encode(e)?;
            ranges.iter().try_for_each(|range| range.encode(e))
        })
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        let time = self.begin();
        self.posts.settle(time).map_err(not_begun)?;
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
            (false, None) => self.call(&COMPARE_AND_SWAP, (offset, old, new), time),
        }
    }

    fn post(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        let time = self.begin();
        match self.posts.post(offset, bytes, notify, time).map_err(not_begun)? {
            true => Ok(()),
            // All earlier posted writes are executed.
            false => self.write_once(offset, bytes, notify, time),
        }
    }

    fn flush(&self) -> Result<()> {
        self.posts.settle(self.begin())
    }

    fn start_flush(&self) -> Pending<(), Refused> {
        self.posts.start_settling(self.begin())
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        self.reads.start(offset, len)
    }

    fn start_read_into(&self, offset: u64, len: u32, target: DepositTarget) -> Deposit {
        self.deposits.start_read(offset, len as usize, target)
    }

    fn start_compare_and_swap_into(&self, offset: u64, old: u64, new: u64, target: DepositTarget) -> Deposit {
        self.deposits.start_swap(offset, (old, new), target)
    }

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        self.start(&WRITE, (offset, false, bytes))
    }

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        self.start(&COMPARE_AND_SWAP, (offset, old, new))
    }

    fn within(&self, time: Duration) -> Arc<dyn Carrier> {
        let (env, binding) = (self.env.clone(), self.binding.clone());
        Arc::new(Served::with(env, binding, (self.generation, Some(time)), self.posts.clone()))
    }
}

/// Returns the failure of a write of which earlier parts were executed. A refusal would say that nothing was
/// written.
#[cold]
fn half_way(why: Error<Refused>) -> Error<Refused> {
    let failed = match why {
        Error::CallFailed(why) if why.ran() == Ran::No => why.but_ran(Ran::Maybe),
        Error::CallFailed(why) => why,
        Error::Declared(refused) => {
            let kind = if refused == Refused::Stale { Kind::NotExported } else { Kind::NotPermitted };
            CallFailed::new(kind, Ran::Maybe).caused_by(refused)
        }
    };
    failed.into()
}

/// Returns whether ranges of these lengths are too long for one access.
fn exceeds_one_access(lengths: impl Iterator<Item = usize>) -> bool {
    let (bytes, names) = lengths.fold((0, RANGE_NAME_BYTES), |(bytes, names): (usize, usize), len| {
        (bytes.saturating_add(len), names + RANGE_NAME_BYTES)
    });
    bytes > MAX_ACCESS_BYTES || MAX_ACCESS_BYTES + names > MAX_ARGUMENT_BYTES
}

/// The most bytes of a read that is tried on the fast path. The result must fit a datagram.
const MAX_FAST_READ_BYTES: usize = 1_000;

/// The most bytes of a write that is tried on the fast path, for which the arguments are copied.
const MAX_FAST_WRITE_BYTES: usize = 128;

/// Copies the bytes of opaque data without padding into `into`. Returns false if the data has another length.
#[inline(always)]
fn take_opaque(result: &[u8], into: &mut [u8]) -> bool {
    let Some((length, bytes)) = result.split_first_chunk::<4>() else { return false };
    let fits = u32::from_be_bytes(*length) as usize == bytes.len() && bytes.len() == into.len();
    if fits {
        into.copy_from_slice(bytes);
    }
    fits
}

/// Distributes the bytes of a result over the requested ranges.
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
fn other_length(wanted: usize, received: usize) -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes)
        .because(format!("{received} bytes were received, {wanted} were requested"))
}

/// Passes a refusal to the sink, encoded as in a reply.
fn refuse(why: &Refused, sink: Sink<'_>) {
    let mut encoded = Vec::new();
    match why.encode(&mut Encoder::new(&mut encoded)) {
        Ok(()) => sink(Reply::Exception(Decoder::new(&encoded))),
        Err(why) => sink(Reply::Failed(bad_arguments(why))),
    }
}

#[cold]
fn no_result(why: xdr::Error) -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Yes).caused_by(why)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use farcall_core::stub::{Channel, PendingCall};
    use farcall_core::{System, lock};

    /// An exporter that never answers. It notes the time of each call.
    #[derive(Default)]
    struct Silent(Mutex<Vec<Option<Duration>>>);

    impl Channel for Silent {
        fn call(&self, call: Call<'_>, sink: Sink<'_>) {
            lock(&self.0).push(call.within);
            sink(Reply::Failed(CallFailed::new(Kind::Deadline, Ran::Maybe)));
        }

        fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
            lock(&self.0).push(call.within);
            Box::new(CallFailed::new(Kind::Deadline, Ran::Maybe))
        }

        fn call_briefly(
            &self,
            _: &Procedure,
            _: &[u8],
            _: &mut dyn FnMut(&[u8]) -> bool,
            _: Sink<'_>,
        ) -> bool {
            panic!("the fast path has no deadline")
        }
    }

    #[test]
    fn each_call_of_each_access_has_what_is_left_of_its_time() {
        const TIME: Duration = Duration::from_secs(60);
        let (silent, env) = (Arc::new(Silent::default()), Arc::new(System));
        let memory = Served::new(env, Binding::new(silent.clone()), 1).within(TIME);
        let long = vec![0; MAX_ACCESS_BYTES + 1];
        let late = |outcome: Result<()>| {
            assert!(matches!(&outcome, Err(Error::CallFailed(why)) if why.kind() == Kind::Deadline));
            let times = std::mem::take(&mut *lock(&silent.0));
            assert!(!times.is_empty() && times.iter().all(|time| time.is_some_and(|time| time <= TIME)));
        };
        late(memory.read(0, &mut [0; 8]));
        late(memory.read(0, &mut long.clone()));
        late(memory.read_each(&mut [(0, &mut [0; 8]), (16, &mut [0; 8])]));
        late(memory.write(0, &[0; 8], false));
        late(memory.write(0, &[0; 500], true));
        late(memory.write(0, &long, true));
        late(memory.write_each(&[(0, &[0; 8]), (16, &[0; 8])], false));
        late(memory.compare_and_swap(0, 1, 2).map(drop));
        late(memory.post(0, &[0; 8], false));
        late(memory.start_read(0, 8).wait().map(drop));
        late(memory.start_write(0, &[0; 8]).wait());
        late(memory.start_compare_and_swap(0, 1, 2).wait().map(drop));
    }
}
