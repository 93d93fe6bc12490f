//! The items of a stream that is made here: an iterator gives them, or they are polled.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::context::Set;
use crate::env::Env as _;
use crate::{Result, System};

/// The items of a stream that is made here.
pub(super) enum Items<T, E> {
    /// `next` may block.
    Iterated(Box<dyn Iterator<Item = Result<T, E>> + Send>),
    /// `next` may block. The items are bytes of this library, so that their drop runs no code of the user's.
    Read(Box<dyn Iterator<Item = Result<T, E>> + Send>),
    /// As `Read`, but `next` never blocks for long, as for the bytes of a file. The first items can share a
    /// datagram.
    AtHand(Box<dyn Iterator<Item = Result<T, E>> + Send>),
    /// A poll does not block.
    Polled(Box<Poller<T, E>>),
}

/// Returns the next item, or has the task woken when there may be one.
pub(super) type Poller<T, E> = dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<T, E>>> + Send;

impl<T, E> Items<T, E> {
    /// Whether a task can take the next item without a thread that may block.
    pub fn is_polled(&self) -> bool {
        matches!(self, Items::Polled(_) | Items::AtHand(_))
    }

    /// Whether the next item, if there is one, need not be waited for.
    pub fn is_at_hand(&self) -> bool {
        matches!(self, Items::AtHand(_))
    }

    /// Whether the items are bytes whose drop runs no code of the user's.
    pub fn are_own_bytes(&self) -> bool {
        matches!(self, Items::Read(_) | Items::AtHand(_))
    }

    /// Has a function see each item.
    pub fn seen_by(self, mut see: impl FnMut(&T) + Send + 'static) -> Items<T, E>
    where
        T: 'static,
        E: 'static,
    {
        let mut see = move |item: &Result<T, E>| item.iter().for_each(&mut see);
        match self {
            Items::Iterated(items) => Items::Iterated(Box::new(items.inspect(see))),
            Items::Read(items) => Items::Read(Box::new(items.inspect(see))),
            Items::AtHand(items) => Items::AtHand(Box::new(items.inspect(see))),
            Items::Polled(mut poll) => Items::Polled(Box::new(move |context| {
                let polled = poll(context);
                if let Poll::Ready(Some(item)) = &polled {
                    see(item);
                }
                polled
            })),
        }
    }

    /// Returns the next item. Blocks if an iterator gives the items; else has the task woken when there may
    /// be one.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, E>>> {
        match self {
            Items::Iterated(items) | Items::Read(items) | Items::AtHand(items) => Poll::Ready(items.next()),
            Items::Polled(poll) => poll(context),
        }
    }

    /// Blocks until there is an item.
    pub fn next(&mut self) -> Option<Result<T, E>> {
        let poll = match self {
            Items::Iterated(items) | Items::Read(items) | Items::AtHand(items) => return items.next(),
            Items::Polled(poll) => poll,
        };
        let event = System.event();
        let waker = Waker::from(Arc::new(Set(event.clone())));
        loop {
            match poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(next) => return next,
                Poll::Pending => _ = event.wait(None),
            }
        }
    }
}
