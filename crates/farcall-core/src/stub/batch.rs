//! The wire form of one-way calls, and their execution: a batch of them is the arguments of one ordinary
//! call.

use std::future::poll_fn;
use std::task::Poll;

use super::channel::Procedure;
use super::dispatch::{AsyncDispatched, Dispatched, catch, panicked};
use super::scope;
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
    idempotent: false,
    blocking: false,
    uncancelled: true,
    exchanges: false,
    deadline: None,
};

/// Adds a one-way call to a batch.
pub(super) fn append(batch: &mut Vec<u8>, procedure: u32, arguments: &[u8]) {
    batch.extend_from_slice(&procedure.to_be_bytes());
    batch.extend_from_slice(&(arguments.len() as u32).to_be_bytes());
    // The length of encoded arguments is a multiple of four, so no padding follows them.
    batch.extend_from_slice(arguments);
}

/// Executes the calls of a batch in order, by `execute`. A call that panics ends none of the others. Nobody
/// answers signals in them. `ended` hears of each call how it ended; what it replied is dropped. A malformed
/// batch executes none of its calls.
pub fn execute_each(
    batch: &mut Decoder<'_>,
    mut execute: impl FnMut(u32, &mut Decoder<'_>, &mut Encoder<'_>) -> Dispatched,
    mut ended: impl FnMut(u32, Dispatched),
) -> Dispatched {
    if let Err(refused) = check(batch) {
        return refused;
    }
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

/// Executes the calls of a batch as [`execute_each`] does, in a future. `begin` makes the future of one call.
pub fn execute_each_later(
    batch: Vec<u8>,
    mut begin: impl FnMut(u32, Vec<u8>) -> AsyncDispatched + Send + 'static,
    mut ended: impl FnMut(u32, Dispatched) + Send + 'static,
) -> AsyncDispatched {
    Box::pin(async move {
        let mut batch = Decoder::new(&batch);
        if let Err(refused) = check(&batch) {
            return (refused, Vec::new());
        }
        let mut executed = 0_usize;
        while let Ok((procedure, arguments)) = next(&mut batch) {
            if executed.is_multiple_of(CALLS_IN_A_ROW) {
                if context().is_cancelled() {
                    return (given_up(), Vec::new());
                }
                yield_once().await;
            }
            executed += 1;
            let future = guard::run(|| begin(procedure, arguments.to_vec()));
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

/// Passes the calls of a batch to `pass`, in order: the number of each one's procedure, and its arguments.
pub(super) fn each<'a>(batch: &'a [u8], mut pass: impl FnMut(u32, &'a [u8])) {
    let mut batch = Decoder::new(batch);
    while let Ok((procedure, arguments)) = next(&mut batch) {
        pass(procedure, arguments);
    }
}

/// Checks that a batch can be read to its end.
fn check(batch: &Decoder<'_>) -> Result<(), Dispatched> {
    if batch.remaining() > MAX_BATCH {
        let why = format!("a batch of one-way calls has at most {MAX_BATCH} bytes");
        return Err(Dispatched::Failed(CallFailed::new(Kind::TooLarge, Ran::No).because(why)));
    }
    let mut batch = batch.clone();
    while batch.remaining() > 0 {
        next(&mut batch).map_err(Dispatched::BadArguments)?;
    }
    Ok(())
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
        let dispatched = execute_each(&mut Decoder::new(bytes), execute, |_, _| ());
        (executed, dispatched)
    }

    #[test]
    fn the_calls_of_a_batch_are_executed_in_order_whatever_one_does() {
        let mut batch = Vec::new();
        append(&mut batch, 3, &[1; 8]);
        append(&mut batch, 13, &[]);
        append(&mut batch, 3, &[2; 4]);
        let (calls, dispatched) = executed(&batch);
        assert_eq!(calls, [(3, 8), (13, 0), (3, 4)]);
        assert!(matches!(dispatched, Dispatched::Result));
        assert_eq!(executed(&[]).0, []);
    }

    #[test]
    fn a_batch_that_no_client_of_ours_makes_is_refused() {
        let (calls, dispatched) = executed(&vec![0; MAX_BATCH + 8]);
        let why = dispatched.failure().expect("a refusal");
        assert_eq!((why.kind(), why.ran(), calls.len()), (Kind::TooLarge, Ran::No, 0));
    }

    #[test]
    fn no_call_of_a_malformed_batch_is_executed() {
        let mut batch = Vec::new();
        append(&mut batch, 3, &[1; 8]);
        for len in 1..batch.len() {
            let torn = [&batch[..], &batch[..len]].concat();
            let (calls, dispatched) = executed(&torn);
            assert!(matches!(dispatched, Dispatched::BadArguments(_)) && calls.is_empty());
        }
    }
}
