//! What passes inside a call besides its arguments and its result: the seam between the carriers of calls,
//! and the signals and streams of `stub` (docs/inside-a-call.md).

mod local;
mod watchers;

use std::future::poll_fn;
use std::task::{Poll, Waker};

use bytes::Bytes;
pub use farcall_base::Tail;
pub(crate) use local::{LocalExchanges, pair};
pub use watchers::Watchers;

use crate::{CallFailed, Kind, Ran, room};

/// The longest question or answer of a signal, and the longest item of a stream, in bytes.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;

/// One end of the exchanges of one call, as the call's carrier offers it. A method returns `None` if the call
/// has ended or was given up, or if the exchange is over.
pub trait Exchanges: Send + Sync {
    /// Opens an exchange, and returns its number. The other end hears of the exchange when something is sent
    /// in it. At most 64 may be open.
    fn open(&self) -> Option<u32>;

    /// Sends bytes, a multiple of four, in an exchange: as many as there is room for. Returns how many.
    /// `tail` counts if it was all.
    fn send(&self, exchange: u32, bytes: &[u8], tail: Tail) -> Option<usize>;

    /// Sends `bytes` and then `long`, as [`Exchanges::send`] does. The carrier may keep `long` without a
    /// copy, and drop it while it holds locks.
    fn send_long(&self, exchange: u32, bytes: &[u8], long: &Bytes) -> Option<usize> {
        let sent = self.send(exchange, bytes, Tail::More)?;
        if sent < bytes.len() {
            return Some(sent);
        }
        Some(sent + self.send(exchange, long, Tail::More)?)
    }

    /// Sends the last bytes of an exchange, and ends it, as [`Exchanges::send`] does. The call's result
    /// follows at once, and may share their datagram.
    fn send_before_result(&self, exchange: u32, bytes: &[u8]) -> Option<usize> {
        self.send(exchange, bytes, Tail::End)
    }

    /// Moves at most `most` bytes that have arrived in an exchange to the end of `into`. Returns whether they
    /// are the last.
    fn take(&self, exchange: u32, into: &mut Vec<u8>, most: usize) -> Option<bool>;

    /// Takes no more of what the other end sends in an exchange.
    fn stop(&self, exchange: u32);

    /// Sends what waits at this end of earlier bytes of an exchange. Returns whether nothing waits any more:
    /// the direction can be ended only then.
    fn flush(&self, _exchange: u32) -> Option<bool> {
        Some(true)
    }

    /// Returns whether all that was sent in an exchange has arrived at the other end. If not,
    /// [`Exchanges::epoch`] changes when that may be so. `None` also from an end that cannot tell: a client
    /// learns it by the result.
    fn has_arrived(&self, _exchange: u32) -> Option<bool> {
        None
    }

    /// Notes that the call's result is a stream, which is sent in an exchange.
    fn sends_result(&self, _exchange: u32) {}

    /// Gives the call up, as its caller.
    fn give_up(&self) {}

    /// Returns the rule that is broken on purpose, if any.
    #[doc(hidden)]
    fn mutant(&self) -> crate::broken::Mutant {
        crate::broken::Mutant::NONE
    }

    /// Returns an exchange that the other end has opened and that this method has not returned before.
    fn next_opened(&self) -> Option<u32>;

    /// Returns a number that changes whenever something may have changed: bytes have arrived, there is room
    /// to send, the other end takes no more, or the call has ended or was given up.
    fn epoch(&self) -> u64;

    /// Blocks until [`Exchanges::epoch`] differs from `epoch`.
    ///
    /// # Errors
    /// When this thread must not wait.
    fn wait(&self, epoch: u64) -> Result<(), CallFailed>;

    /// Has the waker woken once [`Exchanges::epoch`] differs from `epoch`: at once if it does already. It
    /// takes the place of an earlier waker of the same exchange. Each exchange has a waker of its own,
    /// because parts of one task may wait in different exchanges; number 0 is for the call as a whole.
    fn watch(&self, exchange: u32, epoch: u64, waker: &Waker);

    /// Returns a waker that changes the epoch, so that no thread goes on to wait in [`Exchanges::wait`]. A
    /// thread polls the items of a stream with it.
    fn nudge(&self) -> Waker;
}

/// Waits in a task until [`Exchanges::epoch`] differs from `epoch`.
pub(crate) async fn changed(exchanges: &dyn Exchanges, exchange: u32, epoch: u64) {
    poll_fn(|context| {
        if exchanges.epoch() != epoch {
            return Poll::Ready(());
        }
        exchanges.watch(exchange, epoch, context.waker());
        Poll::Pending
    })
    .await;
}

/// Sends all bytes in an exchange, and waits for room where there is none.
///
/// # Errors
/// When the call has ended, the exchange is over, or this thread must not wait.
pub(crate) fn send_all(
    exchanges: &dyn Exchanges,
    exchange: u32,
    mut bytes: &[u8],
    tail: Tail,
) -> Result<(), CallFailed> {
    loop {
        let epoch = exchanges.epoch();
        let sent = exchanges.send(exchange, bytes, tail).ok_or_else(over)?;
        bytes = &bytes[sent..];
        if bytes.is_empty() {
            return Ok(());
        }
        exchanges.wait(epoch)?;
    }
}

/// Sends all bytes in an exchange, as [`send_all`] does. Waits in a task.
///
/// # Errors
/// When the call has ended, or the exchange is over.
pub(crate) async fn send_all_later(
    exchanges: &dyn Exchanges,
    exchange: u32,
    mut bytes: &[u8],
    tail: Tail,
) -> Result<(), CallFailed> {
    loop {
        let epoch = exchanges.epoch();
        let sent = exchanges.send(exchange, bytes, tail).ok_or_else(over)?;
        bytes = &bytes[sent..];
        if bytes.is_empty() {
            return Ok(());
        }
        changed(exchanges, exchange, epoch).await;
    }
}

/// Takes exactly the next bytes of an exchange, and waits for them.
///
/// # Errors
/// When the call has ended, the exchange is over or ends earlier, or this thread must not wait.
pub(crate) fn take_exactly<const N: usize>(
    exchanges: &dyn Exchanges,
    exchange: u32,
) -> Result<([u8; N], bool), CallFailed> {
    let mut bytes = Vec::with_capacity(N);
    loop {
        let epoch = exchanges.epoch();
        let most = N - bytes.len();
        let ended = exchanges.take(exchange, &mut bytes, most).ok_or_else(over)?;
        if let Ok(all) = <[u8; N]>::try_from(&bytes[..]) {
            return Ok((all, ended));
        }
        if ended {
            return Err(CallFailed::new(Kind::BadArguments, Ran::Yes).because("an exchange ends too early"));
        }
        exchanges.wait(epoch)?;
    }
}

/// Takes all bytes of an exchange until its end, and waits for them.
///
/// # Errors
/// When the call has ended, the exchange is over, there are more than [`MAX_MESSAGE`] bytes, or this thread
/// must not wait.
pub(crate) fn take_all(exchanges: &dyn Exchanges, exchange: u32) -> Result<Vec<u8>, CallFailed> {
    let mut bytes = Vec::new();
    loop {
        let epoch = exchanges.epoch();
        if take_more(exchanges, exchange, &mut bytes)? {
            return Ok(bytes);
        }
        exchanges.wait(epoch)?;
    }
}

/// Takes all bytes of an exchange until its end, as [`take_all`] does. Waits in a task.
///
/// # Errors
/// When the call has ended, the exchange is over, or there are more than [`MAX_MESSAGE`] bytes.
pub(crate) async fn take_all_later(exchanges: &dyn Exchanges, exchange: u32) -> Result<Vec<u8>, CallFailed> {
    let mut bytes = Vec::new();
    loop {
        let epoch = exchanges.epoch();
        if take_more(exchanges, exchange, &mut bytes)? {
            return Ok(bytes);
        }
        changed(exchanges, exchange, epoch).await;
    }
}

/// How many bytes of a message are taken at a time.
const TAKEN_AT_ONCE: usize = 64 << 10;

/// Takes what has arrived of a message. Returns whether that is all of it.
fn take_more(exchanges: &dyn Exchanges, exchange: u32, bytes: &mut Vec<u8>) -> Result<bool, CallFailed> {
    loop {
        let before = bytes.len();
        // The first piece comes without a copy.
        if before > 0
            && let Err(why) = room::reserve(bytes, TAKEN_AT_ONCE)
        {
            exchanges.stop(exchange);
            return Err(CallFailed::no_memory("a signal", Ran::Yes, why));
        }
        let most = TAKEN_AT_ONCE.min(MAX_MESSAGE + 4 - before);
        if exchanges.take(exchange, bytes, most).ok_or_else(over)? {
            return Ok(true);
        }
        if bytes.len() > MAX_MESSAGE {
            exchanges.stop(exchange);
            let why = format!("a signal with more than {MAX_MESSAGE} bytes");
            return Err(CallFailed::new(Kind::TooLarge, Ran::Yes).because(why));
        }
        if bytes.len() - before < most {
            return Ok(false);
        }
    }
}

/// The failure of an exchange whose call has ended or was given up.
pub(crate) fn over() -> CallFailed {
    CallFailed::new(Kind::Cancelled, Ran::Yes).because("the call was given up")
}
