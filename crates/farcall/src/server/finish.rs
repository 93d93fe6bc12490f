//! Turns the outcome of a dispatched procedure into the outcome that the protocol reports to the caller.

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
    // These two variants have nothing to drop. `forget` saves the check for that, which the compiler would
    // add.
    std::mem::forget(dispatched);
    finish
}

#[cold]
fn failure(dispatched: Dispatched) -> Failure {
    let Some(why) = dispatched.failure() else { return Failure::new(Kind::Other, Ran::Yes) };
    let failure = Failure::new(why.kind(), why.ran()).with_detail(why.detail());
    // The cause in the error may be of a type of the user's, whose drop may panic.
    guard::run_alone("the drop of an error", || drop(why));
    failure
}

/// Turns the outcome of a procedure that returned after its caller's deadline into a failure, because the
/// caller no longer waits for the result. What the procedure waited for ended at the same deadline, perhaps a
/// stream or a call of its own: that failure, passed on, is the deadline's too.
pub(super) fn unless_late(call: &context::Incoming, now: Time, dispatched: Dispatched) -> Dispatched {
    match dispatched {
        Dispatched::Result | Dispatched::Exception if call.is_late(now) => {
            Dispatched::Failed(CallFailed::new(Kind::Deadline, Ran::Yes))
        }
        Dispatched::Failed(why) if why.kind().is_of_what_it_waited_for() && call.is_late(now) => {
            let late = CallFailed::new(Kind::Deadline, why.ran()).because(why.detail().to_owned());
            // The cause in the error may be of a type of the user's, whose drop may panic.
            guard::run_alone("the drop of an error", || drop(why));
            Dispatched::Failed(late)
        }
        other => other,
    }
}
