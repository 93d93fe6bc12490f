//! Keeps the outcome of a call until its caller fetches it.

use std::borrow::Cow;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use farcall_proto::SharedArguments;
use farcall_proto::client::Outcome;
use farcall_proto::server::Finish;

use super::news::CallNews;
use crate::env::place;
use crate::lock;
use crate::receive_buffers::SharedBuffer;
use crate::stub::EncodedArguments;

/// The longest body, in bytes, that is kept in the outcome itself. Longer bodies are kept in a buffer.
const MAX_INLINE_BYTES: usize = 56;

/// The shortest body, in bytes, that stays in the receive buffer. Copying a shorter body is cheaper.
const MIN_SHARED_BYTES: usize = 1 << 10;

/// The largest buffer, in bytes, that a slot keeps for its next use. A longer body gets a buffer of its own.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// An outcome that waits to be fetched. A waiting thread uses the same one, with its buffer, for many calls.
#[derive(Debug)]
struct BufferedOutcome {
    /// How the call ended, without the bytes of its result or exception.
    finish: Option<Finish>,
    /// The body's length, which has 32 bits on the wire. A body of at most [`MAX_INLINE_BYTES`] is in
    /// `short`.
    len: u32,
    /// The index in `shared` at which the body begins.
    at: u32,
    short: [u8; MAX_INLINE_BYTES],
    long: LongBytes,
    /// The receive buffer that contains the body, if the body was not copied.
    shared: Option<SharedBuffer>,
}

/// A body that is not in the outcome itself, or the arguments of a call that failed.
#[derive(Debug)]
enum LongBytes {
    Own(Vec<u8>),
    /// Arguments that other calls share.
    Shared(Arc<SharedArguments>),
}

impl Default for LongBytes {
    fn default() -> LongBytes {
        LongBytes::Own(Vec::new())
    }
}

impl LongBytes {
    /// Returns the outcome's own buffer, which replaces shared arguments.
    #[inline]
    fn own(&mut self) -> &mut Vec<u8> {
        if let LongBytes::Shared(_) = self {
            *self = LongBytes::default();
        }
        let LongBytes::Own(bytes) = self else { unreachable!("shared arguments were replaced") };
        bytes
    }
}

impl Default for BufferedOutcome {
    fn default() -> BufferedOutcome {
        BufferedOutcome {
            finish: None,
            len: 0,
            at: 0,
            short: [0; MAX_INLINE_BYTES],
            long: LongBytes::default(),
            shared: None,
        }
    }
}

impl BufferedOutcome {
    /// Keeps an outcome. A long body stays in its receive buffer if that may be shared. Otherwise the body is
    /// copied to `long`. If `long` is too small, it takes over the buffer of `arguments`, because a call that
    /// succeeded no longer needs its arguments. A failure has no body; its call's arguments are kept instead.
    #[inline]
    fn put(
        &mut self,
        outcome: Outcome<'_>,
        (arguments, shared): (&mut Vec<u8>, Option<Arc<SharedArguments>>),
        buffer: Option<&SharedBuffer>,
    ) {
        let (finish, body) = match outcome {
            Outcome::Result(body) => (Finish::Result, body),
            Outcome::Exception(body) => (Finish::Exception, body),
            Outcome::Failed(failure) => {
                self.long = match shared {
                    Some(shared) => LongBytes::Shared(shared),
                    None => LongBytes::Own(std::mem::take(arguments)),
                };
                (failure.into(), Cow::Borrowed(&[][..]))
            }
        };
        self.finish = Some(finish);
        self.len = body.len() as u32;
        match body {
            body if body.len() <= MAX_INLINE_BYTES => self.short[..body.len()].copy_from_slice(&body),
            Cow::Owned(body) => self.long = LongBytes::Own(body),
            Cow::Borrowed(body) => {
                if let Some(buffer) = buffer.filter(|_| body.len() >= MIN_SHARED_BYTES)
                    && let Some(place) = place(buffer, body)
                {
                    (self.shared, self.at) = (Some(buffer.clone()), place.start as u32);
                    return;
                }
                // A very large buffer is not taken over, because it would stay allocated as long as the
                // thread or the result exists.
                let room = arguments.capacity();
                let long = self.long.own();
                if long.capacity() < body.len()
                    && room >= body.len()
                    && room <= MAX_KEPT_BYTES.max(2 * body.len())
                {
                    std::mem::swap(long, arguments);
                }
                long.clear();
                long.extend_from_slice(body);
            }
        }
    }

    /// Takes the outcome out and, if the call failed, its arguments. The outcome borrows the body, or owns a
    /// large one. Returns `None` if there is no outcome.
    #[inline]
    fn take(&mut self) -> Option<(Outcome<'_>, LongBytes)> {
        let finish = self.finish.take()?;
        if let Finish::Failed(failure) = finish {
            let kept = std::mem::take(&mut self.long);
            return Some((Outcome::Failed(*failure), kept));
        }
        let len = self.len as usize;
        let body = match &self.shared {
            _ if len <= MAX_INLINE_BYTES => Cow::Borrowed(&self.short[..len]),
            Some(buffer) => Cow::Borrowed(&buffer[self.at as usize..][..len]),
            None if len <= MAX_KEPT_BYTES => Cow::Borrowed(&self.long.own()[..]),
            None => Cow::Owned(std::mem::take(self.long.own())),
        };
        let is_result = matches!(finish, Finish::Result);
        Some((if is_result { Outcome::Result(body) } else { Outcome::Exception(body) }, Default::default()))
    }
}

/// The place where another thread puts the outcome of a call.
#[derive(Default)]
pub(super) struct ResultSlot {
    kept: Mutex<BufferedOutcome>,
    over: AtomicBool,
    /// What the caller is to learn of the call's exchanges (signals and streams), if it expects any.
    news: OptionalNews,
}

/// The news of a call's exchanges, which few calls have.
#[derive(Default)]
struct OptionalNews(Option<ManuallyDrop<Box<CallNews>>>);

impl Drop for OptionalNews {
    #[inline(always)]
    fn drop(&mut self) {
        #[cold]
        #[inline(never)]
        fn drop_news(news: ManuallyDrop<Box<CallNews>>) {
            drop(ManuallyDrop::into_inner(news));
        }
        if let Some(news) = self.0.take() {
            drop_news(news);
        }
    }
}

/// A function that takes an outcome and, if the call failed, the encoded arguments, with which the call can
/// be repeated.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(Outcome<'_>, EncodedArguments<'_>);

impl ResultSlot {
    /// Makes this the slot of a call whose caller expects exchanges.
    #[cold]
    pub(super) fn expect_news(&mut self) {
        self.news = OptionalNews(Some(ManuallyDrop::new(Box::default())));
    }

    /// Returns what the caller is to learn of the call's exchanges, if it expects any.
    #[inline]
    pub(super) fn news(&self) -> Option<&CallNews> {
        self.news.0.as_deref().map(|news| &**news)
    }

    /// Stores the outcome, and marks the call as ended.
    #[inline]
    pub(super) fn end(
        &self,
        outcome: Outcome<'_>,
        arguments: (&mut Vec<u8>, Option<Arc<SharedArguments>>),
        buffer: Option<&SharedBuffer>,
    ) {
        debug_assert!(!self.is_over(), "a call ends once");
        lock(&self.kept).put(outcome, arguments, buffer);
        self.over.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Gives the outcome to `taker`, if it has come and was not given before. `taker` may run under the lock,
    /// as no other thread needs the lock after the call has ended.
    #[inline]
    pub(super) fn give(&self, taker: Taker<'_>) {
        if let Some((outcome, arguments)) = lock(&self.kept).take() {
            let arguments = match &arguments {
                LongBytes::Shared(shared) => EncodedArguments::of(shared),
                LongBytes::Own(bytes) => EncodedArguments { bytes, shared: None },
            };
            taker(outcome, arguments);
        }
    }

    /// Makes the slot ready for the thread's next call, after its outcome was given. A large buffer is not
    /// kept, because the thread keeps the slot for ever.
    pub(super) fn renew(&self) {
        self.over.store(false, Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        if kept.long.own().capacity() > MAX_KEPT_BYTES {
            kept.long = LongBytes::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_result_does_not_keep_the_room_of_long_arguments() {
        let body = [7; 100];
        let result = || Outcome::Result(Cow::Borrowed(&body));
        let (mut kept, mut arguments) = (BufferedOutcome::default(), Vec::with_capacity(8 << 20));
        kept.put(result(), (&mut arguments, None), None);
        assert!(kept.long.own().capacity() <= MAX_KEPT_BYTES && arguments.capacity() >= 8 << 20);
        let (mut kept, mut arguments) = (BufferedOutcome::default(), Vec::with_capacity(4096));
        kept.put(result(), (&mut arguments, None), None);
        assert!(kept.long.own().capacity() >= 4096, "little room is used again");
        assert!(matches!(kept.take(), Some((Outcome::Result(taken), _)) if taken[..] == body));
    }
}
