//! The call that the receiving thread itself waits for, and how each end of a call reaches its caller.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use farcall_proto::client::{CallId, CallProgress, Event, Lone, Outcome};
use farcall_proto::{Failure, Time};

use super::Peer;
use super::owners::{Owner, Owners};
use super::waiter::Wakes;
use crate::env::place;
use crate::receive_buffers::SharedBuffer;

/// Takes an outcome.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(Outcome<'_>);

/// The call that the receiving thread itself waits for: its outcome stays where it arrived.
pub(super) struct OwnCall<'a> {
    pub(super) peer: &'a Arc<Peer>,
    /// Once it has begun.
    pub(super) id: Option<CallId>,
    /// Whether the call has an owner among the [`Owners`], too: another thread may receive its end.
    pub(super) owned: bool,
    /// The call while it is on the fast path, and when it was sent.
    pub(super) lone: Option<(Lone, Time)>,
    pub(super) sink: Taker<'a>,
    /// Its outcome was given to the sink.
    pub(super) done: bool,
    /// Its outcome, until no lock is held.
    landed: Option<Landed>,
}

/// An outcome whose body stands in the datagram that is at hand, or any other.
enum Landed {
    Result(Range<usize>),
    Exception(Range<usize>),
    Apart(Box<Outcome<'static>>),
}

/// Marks a call that has not ended as nobody's, also when its thread panicked while it led.
impl Drop for OwnCall<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.done {
            self.abandon();
        }
    }
}

impl<'a> OwnCall<'a> {
    pub(super) fn new(peer: &'a Arc<Peer>, sink: Taker<'a>) -> OwnCall<'a> {
        OwnCall { peer, id: None, owned: false, lone: None, sink, done: false, landed: None }
    }

    #[inline]
    fn land(&mut self, outcome: Outcome<'_>, datagram: &[u8]) {
        let here = match &outcome {
            Outcome::Result(body) => place(datagram, body).map(Landed::Result),
            Outcome::Exception(body) => place(datagram, body).map(Landed::Exception),
            Outcome::Failed(_) => None,
        };
        self.landed = Some(here.unwrap_or_else(|| Landed::Apart(Box::new(outcome.into_owned()))));
    }

    /// Takes the call from the fast path: something else than its result has happened.
    #[inline]
    pub(super) fn go_on(&mut self, now: Time, arguments: &[u8]) {
        if let Some((lone, sent)) = self.lone.take() {
            let conversation = &mut self.peer.lock().conversation;
            self.id = Some(conversation.go_on(now, lone, Some(sent), Owners::NOBODY, arguments));
        }
    }

    /// Takes in a datagram that is just the result of a call on the fast path, and gives that to the sink.
    /// Returns the conversation's next timer, and whether the peer is listed. `None`, and nothing has
    /// changed, for any other datagram.
    #[inline(always)]
    pub(super) fn take(&mut self, clock: impl Fn() -> Time, datagram: &[u8]) -> Option<(Option<Time>, bool)> {
        let (lone, sent) = self.lone.as_ref()?;
        let (body, timer) = {
            let mut state = self.peer.lock();
            let body = state.conversation.end_lone(clock, lone, Some(*sent), datagram)?;
            (body, (state.conversation.timeout(), state.listed))
        };
        (self.done, self.lone) = (true, None);
        (self.sink)(Outcome::Result(Cow::Borrowed(body)));
        Some(timer)
    }

    /// Gives the outcome to the sink, if it has come and stands in the datagram. No lock is held but the
    /// lead: a type's decoding may panic, but must not call.
    #[inline]
    pub(super) fn settle(&mut self, datagram: &[u8]) {
        let Some(landed) = self.landed.take() else { return };
        self.done = true;
        match landed {
            Landed::Result(place) => (self.sink)(Outcome::Result(Cow::Borrowed(&datagram[place]))),
            Landed::Exception(place) => (self.sink)(Outcome::Exception(Cow::Borrowed(&datagram[place]))),
            apart @ Landed::Apart(_) => self.landed = Some(apart),
        }
    }

    /// Nobody waits for the call's end any more, if it has begun.
    #[cold]
    fn abandon(&mut self) {
        if let Some((_, sent)) = self.lone {
            // Its arguments are gone, so it can be cancelled but not sent again.
            self.go_on(sent, &[]);
            let id = self.id;
            id.into_iter().for_each(|id| self.peer.lock().conversation.cancel(sent, id));
        }
        let Some(id) = self.id.filter(|_| !self.owned) else { return };
        let state = &mut *self.peer.lock();
        if state.conversation.progress(id) != CallProgress::Ended {
            state.owners.abandon(id);
        }
    }

    /// It did not even begin.
    #[cold]
    pub(super) fn fail(&mut self, failure: Failure) {
        self.land(Outcome::Failed(failure), &[]);
        self.done = true;
    }

    /// Gives an outcome that stands elsewhere to the sink, when somebody else may lead: it may be long.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        if let Some(Landed::Apart(outcome)) = self.landed.take() {
            (self.sink)(*outcome);
        }
    }
}

/// Takes an event of a peer to its owner. The event comes from a timer, or from a datagram, with the receive
/// buffer that started calls may share. `mine` is the receiving thread's call, to this peer or another. The end of a call is dropped if its caller's thread
/// panicked while it led.
#[inline(always)]
pub(super) fn deliver(
    peer: &Peer,
    owners: &mut Owners,
    event: Event<'_>,
    (datagram, buffer): (&[u8], Option<&SharedBuffer>),
    mine: Option<&mut OwnCall<'_>>,
    wakes: &mut Wakes,
) {
    match event {
        Event::Ended { id, token, outcome, arguments } => {
            let owner = owners.take(token);
            if let Some(mine) = mine.filter(|mine| mine.id == Some(id) && mine.peer.id == peer.id) {
                return mine.land(outcome, datagram);
            }
            match owner {
                Some(Owner::Thread(waiter)) => {
                    waiter.slot.end(outcome, arguments, None);
                    wakes.waiters.push(waiter);
                }
                Some(Owner::Started(slot, watcher)) => {
                    slot.end(outcome, arguments, buffer);
                    if let Some(news) = slot.news() {
                        news.end(wakes);
                    }
                    wakes.add(watcher);
                }
                None if token == Owners::NOBODY && owners.was_abandoned(id) => {}
                Some(Owner::Bind(..)) | None => debug_assert!(false, "a call ended that nobody had made"),
            }
        }
        Event::Bound { token, answer } => match owners.take(token) {
            Some(Owner::Bind(binds, which)) => binds.end(which, answer, wakes),
            _ => debug_assert!(false, "a bind ended that nobody had begun"),
        },
    }
}
