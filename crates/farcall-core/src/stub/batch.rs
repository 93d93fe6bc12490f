//! The wire form of one-way calls, and their execution: a batch of them is the arguments of one ordinary
//! call.
//!
//! A batch says which calls it has: their order, which is that of one stub, and the number of the first of
//! them in it. So a server that still has an earlier batch, which its client has given up, executes no later
//! one before it.

use std::future::{Future, poll_fn};
use std::task::Poll;

use super::channel::Procedure;
use super::dispatch::{AsyncDispatched, Dispatched, catch, panicked};
use super::scope;
use super::signal_id::InterfaceId;
use crate::context::context;
use crate::exchange::MAX_MESSAGE;
use crate::guard;
use crate::xdr::{self, Decoder, Encoder};
use crate::{CallFailed, Kind, Ran};

/// How many bytes of one-way calls wait at a caller before the next caller has to wait.
pub(super) const MAX_WAITING: usize = 256 << 10;
/// The most bytes of arguments of one one-way call.
pub(super) const MAX_CALL: usize = MAX_MESSAGE;
/// The most bytes of a batch: what waits, one more call, and what each call has before its arguments.
const MAX_BATCH: usize = MAX_WAITING + MAX_CALL + 64;
/// A future that executes a batch lets other tasks run after this many calls.
const CALLS_IN_A_ROW: usize = 64;

/// The procedure that executes a batch of one-way calls, in order. Every export of an interface with one-way
/// procedures has it. It returns nothing.
pub static BATCH: Procedure = Procedure {
    number: 0xffff_0001,
    name: "one-way calls",
    interface: InterfaceId::NONE,
    idempotent: false,
    blocking: false,
    uncancelled: true,
    exchanges: false,
    deadline: None,
};

/// Where a batch has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlace {
    /// The order of the calls. Each stub that makes one-way calls has one of its own, a random number.
    pub order: u64,
    /// How many calls there were in that order before the first one of the batch.
    pub first: u64,
}

impl BatchPlace {
    /// Writes the head of a batch.
    pub(super) fn encode(&self, encoder: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        encoder.u64(self.order)?;
        encoder.u64(self.first)
    }
}

/// Adds a one-way call to the calls of a batch.
pub(super) fn append(batch: &mut Vec<u8>, procedure: u32, arguments: &[u8]) {
    batch.extend_from_slice(&procedure.to_be_bytes());
    batch.extend_from_slice(&(arguments.len() as u32).to_be_bytes());
    // The length of encoded arguments is a multiple of four, so no padding follows them.
    batch.extend_from_slice(arguments);
}

/// Executes the calls of a batch in order, by `execute`, once `begin` lets the batch begin. What `begin`
/// returns is dropped when the batch has ended. A call that panics ends none of the others. Nobody answers
/// signals in them. `ended` hears of each call how it ended; what it replied is dropped. A malformed batch
/// executes none of its calls.
pub fn execute_each<G>(
    batch: &mut Decoder<'_>,
    begin: impl FnOnce(BatchPlace) -> Result<G, CallFailed>,
    mut execute: impl FnMut(u32, &mut Decoder<'_>, &mut Encoder<'_>) -> Dispatched,
    mut ended: impl FnMut(u32, Dispatched),
) -> Dispatched {
    let place = match check(batch) {
        Ok(place) => place,
        Err(refused) => return refused,
    };
    let _turn = match begin(place) {
        Ok(turn) => turn,
        Err(why) => return Dispatched::Failed(why),
    };
    let _no_exchanges = scope::enter(None);
    let (mut reply, mut executed) = (Vec::new(), 0_usize);
    while let Ok((procedure, arguments)) = next(batch) {
        if executed.is_multiple_of(CALLS_IN_A_ROW) && context().is_cancelled() {
            return given_up();
        }
        executed += 1;
        reply.clear();
        let dispatched =
            catch(|| execute(procedure, &mut Decoder::new(arguments), &mut Encoder::new(&mut reply)));
        ended(procedure, dispatched);
    }
    Dispatched::Result
}

/// Executes the calls of a batch as [`execute_each`] does, in a future. `start` makes the future of one call.
pub fn execute_each_later<G: Send + 'static, B: Future<Output = Result<G, CallFailed>> + Send + 'static>(
    batch: Vec<u8>,
    begin: impl FnOnce(BatchPlace) -> B + Send + 'static,
    mut start: impl FnMut(u32, Vec<u8>) -> AsyncDispatched + Send + 'static,
    mut ended: impl FnMut(u32, Dispatched) + Send + 'static,
) -> AsyncDispatched {
    Box::pin(async move {
        let mut batch = Decoder::new(&batch);
        let place = match check(&mut batch) {
            Ok(place) => place,
            Err(refused) => return (refused, Vec::new()),
        };
        let _turn = match begin(place).await {
            Ok(turn) => turn,
            Err(why) => return (Dispatched::Failed(why), Vec::new()),
        };
        let mut executed = 0_usize;
        while let Ok((procedure, arguments)) = next(&mut batch) {
            if executed.is_multiple_of(CALLS_IN_A_ROW) {
                if context().is_cancelled() {
                    return (given_up(), Vec::new());
                }
                yield_once().await;
            }
            executed += 1;
            let future = guard::run(|| start(procedure, arguments.to_vec()));
            let dispatched = match future {
                Err(panic) => Dispatched::Failed(panicked(panic)),
                Ok(mut future) => {
                    let step = poll_fn(|context| {
                        let _no_exchanges = scope::enter(None);
                        match guard::run(|| future.as_mut().poll(context)) {
                            Ok(polled) => polled.map(|(dispatched, _)| dispatched),
                            Err(panic) => Poll::Ready(Dispatched::Failed(panicked(panic))),
                        }
                    });
                    step.await
                }
            };
            ended(procedure, dispatched);
        }
        (Dispatched::Result, Vec::new())
    })
}

/// Passes calls without the head of a batch to `pass`, in order: the number of each one's procedure, and its
/// arguments.
pub(super) fn each<'a>(batch: &'a [u8], mut pass: impl FnMut(u32, &'a [u8])) {
    let mut batch = Decoder::new(batch);
    while let Ok((procedure, arguments)) = next(&mut batch) {
        pass(procedure, arguments);
    }
}

/// Reads the head of a batch, and checks that its calls can be read.
fn check(batch: &mut Decoder<'_>) -> Result<BatchPlace, Dispatched> {
    if batch.remaining() > MAX_BATCH {
        let why = format!("a batch of one-way calls has at most {MAX_BATCH} bytes");
        return Err(Dispatched::Failed(CallFailed::new(Kind::TooLarge, Ran::No).because(why)));
    }
    let head = |batch: &mut Decoder<'_>| Ok(BatchPlace { order: batch.u64()?, first: batch.u64()? });
    let place = head(batch).map_err(Dispatched::BadArguments)?;
    let mut calls = batch.clone();
    while calls.remaining() > 0 {
        next(&mut calls).map_err(Dispatched::BadArguments)?;
    }
    Ok(place)
}

/// The end of a batch that its client has cancelled. No client of ours does.
fn given_up() -> Dispatched {
    Dispatched::Failed(CallFailed::new(Kind::Cancelled, Ran::Maybe))
}

/// Lets the executor run other tasks.
async fn yield_once() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn next<'a>(batch: &mut Decoder<'a>) -> Result<(u32, &'a [u8]), xdr::Error> {
    Ok((batch.u32()?, batch.bytes()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(bytes: &[u8]) -> (Vec<(u32, usize)>, Dispatched) {
        let mut executed = Vec::new();
        let execute = |procedure, arguments: &mut Decoder<'_>, _: &mut Encoder<'_>| {
            executed.push((procedure, arguments.remaining()));
            assert_ne!(procedure, 13, "a call that panics");
            Dispatched::Result
        };
        let dispatched = execute_each(&mut Decoder::new(bytes), |_| Ok(()), execute, |_, _| ());
        (executed, dispatched)
    }

    const HEAD: [u8; 16] = [7; 16];

    #[test]
    fn a_batch_that_may_not_begin_executes_nothing() {
        let mut batch = HEAD.to_vec();
        append(&mut batch, 3, &[]);
        let begin = |place: BatchPlace| {
            assert_eq!(place, BatchPlace { order: 0x0707_0707_0707_0707, first: 0x0707_0707_0707_0707 });
            Err::<(), _>(CallFailed::new(Kind::Overloaded, Ran::No))
        };
        let execute = |_, _: &mut Decoder<'_>, _: &mut Encoder<'_>| panic!("the batch may not begin");
        let dispatched = execute_each(&mut Decoder::new(&batch), begin, execute, |_, _| ());
        assert_eq!(dispatched.failure().map(|why| why.kind()), Some(Kind::Overloaded));
    }

    #[test]
    fn the_calls_of_a_batch_are_executed_in_order_whatever_one_does() {
        let mut batch = HEAD.to_vec();
        append(&mut batch, 3, &[1; 8]);
        append(&mut batch, 13, &[]);
        append(&mut batch, 3, &[2; 4]);
        let (calls, dispatched) = executed(&batch);
        assert_eq!(calls, [(3, 8), (13, 0), (3, 4)]);
        assert!(matches!(dispatched, Dispatched::Result));
        assert_eq!(executed(&HEAD).0, []);
    }

    #[test]
    fn a_batch_that_no_client_of_ours_makes_is_refused() {
        let (calls, dispatched) = executed(&vec![0; MAX_BATCH + 8]);
        let why = dispatched.failure().expect("a refusal");
        assert_eq!((why.kind(), why.ran(), calls.len()), (Kind::TooLarge, Ran::No, 0));
    }

    #[test]
    fn no_call_of_a_malformed_batch_is_executed() {
        let mut call = Vec::new();
        append(&mut call, 3, &[1; 8]);
        for len in 1..call.len() {
            let torn = [&HEAD, &call[..], &call[..len]].concat();
            let (calls, dispatched) = executed(&torn);
            assert!(matches!(dispatched, Dispatched::BadArguments(_)) && calls.is_empty());
        }
        for len in 0..HEAD.len() {
            assert!(matches!(executed(&HEAD[..len]).1, Dispatched::BadArguments(_)));
        }
    }
}
