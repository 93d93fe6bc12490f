//! Started calls whose reply goes to a recipient, on the thread that receives it, instead of to a handle.

use std::sync::Arc;
use std::task::Waker;

use crate::CallFailed;

/// Takes the reply of a call that [`Channel::start_for`](super::Channel::start_for) has started.
pub trait Recipient: Send + Sync {
    /// Takes the one reply of the call. The thread that received the reply calls this, and holds locks. So
    /// this must not block, start a call, or run code of the user's. `wake` takes wakers that are woken when
    /// no lock is held.
    fn arrived(self: Arc<Self>, reply: Arrived<'_>, wake: &mut dyn FnMut(Waker));
}

/// How a call with a recipient ended.
#[derive(Clone, Copy, Debug)]
pub enum Arrived<'a> {
    /// The procedure returned this encoded result.
    Result(&'a [u8]),
    /// The procedure raised its declared exception, which is encoded here.
    Exception(&'a [u8]),
    /// The call failed. To learn why, or to succeed, the recipient starts it in the ordinary way.
    Failed,
}

/// Identifies a call with a recipient at the place where it is under way.
#[derive(Clone, Copy, Debug)]
pub struct CallKey {
    /// The activity in which the call is made.
    pub activity: u32,
    /// The call's number in its conversation.
    pub sequence: u64,
    /// The token under which the place knows the recipient.
    pub token: u64,
}

/// The place at which a call with a recipient is under way.
pub trait Arrivals: Send + Sync {
    /// Blocks until `done` returns true, and receives meanwhile. One thread at a time may wait for a call.
    ///
    /// # Errors
    /// When this thread must not wait, or belongs to a forked child.
    fn wait_for(&self, call: CallKey, done: &dyn Fn() -> bool) -> Result<(), CallFailed>;

    /// Makes another thread receive soon, because a task waits for the call. The waker is woken when the call
    /// has ended.
    fn watch(&self, call: CallKey, waker: Waker);
}
