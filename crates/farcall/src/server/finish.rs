//! What a dispatch means to the protocol: the end that a call's caller is told.

use farcall_proto::server::Finish;
use farcall_proto::{Failure, Kind, Ran, Time};

use crate::stub::Dispatched;
use crate::{CallFailed, context, guard};

#[inline(always)]
pub(super) fn finish(dispatched: Dispatched) -> Finish {
    let finish = match &dispatched {
        Dispatched::Result => Finish::Result,
        Dispatched::Exception => Finish::Exception,
        _ => return failure(dispatched).into(),
    };
    // There is nothing in it to drop, which the compiler would look for.
    std::mem::forget(dispatched);
    finish
}

#[cold]
fn failure(dispatched: Dispatched) -> Failure {
    let Some(why) = dispatched.failure() else { return Failure::new(Kind::Other, Ran::Yes) };
    let failure = Failure::new(why.kind(), why.ran()).with_detail(why.detail());
    // Its cause may be of the user's making.
    guard::run_alone("the drop of an error", || drop(why));
    failure
}

/// The end of a call whose procedure has returned. Nobody wants a result that comes after the caller's
/// deadline: the caller is told that the deadline has passed.
pub(super) fn unless_late(call: &context::Incoming, now: Time, dispatched: Dispatched) -> Dispatched {
    match dispatched {
        Dispatched::Result | Dispatched::Exception if call.is_late(now) => {
            Dispatched::Failed(CallFailed::new(Kind::Deadline, Ran::Yes))
        }
        other => other,
    }
}
