//! The call of the receiving thread itself, and the delivery of outcomes to callers. The receiving thread is
//! the leader of all threads that wait at the socket: it receives for them too.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use farcall_proto::client::{CallId, CallProgress, Conversation, Event, Lone, Outcome};
use farcall_proto::secure::Opened;
use farcall_proto::{Failure, Tail, Time};

use super::Peer;
use super::news::CallNews;
use super::owners::{Owner, Owners};
use super::peer::PeerState;
use super::waiter::Wakes;
use crate::env::place;
use crate::receive_buffers::SharedBuffer;
use crate::stub::{Arrived, Recipient, UNCAUGHT};

/// A function that takes an outcome.
pub(crate) type Taker<'a> = &'a mut dyn FnMut(Outcome<'_>);

/// The call of the receiving thread itself. Its result is decoded from the receive buffer, without a copy.
pub(super) struct OwnCall<'a> {
    pub(super) peer: &'a Arc<Peer>,
    /// The call's identifier, once the call has begun in the ordinary way.
    pub(super) id: Option<CallId>,
    /// Whether the call also has an owner among the [`Owners`], because another thread may receive its
    /// outcome.
    pub(super) owned: bool,
    /// The call while it is on the fast path, and the time when it was sent.
    pub(super) lone: Option<(Lone, Time)>,
    pub(super) sink: Taker<'a>,
    /// Whether the call has ended.
    pub(super) done: bool,
    /// The outcome, from when it was received under a lock until it is given to the sink without a lock.
    kept_outcome: Option<KeptOutcome>,
}

/// An outcome. Its body is a range of the present datagram. In `Apart` it is a copy.
enum KeptOutcome {
    Result(Range<usize>),
    Exception(Range<usize>),
    Apart(Box<Outcome<'static>>),
}

/// Abandons a call that has not ended, for example because its thread panicked while it led.
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
        OwnCall { peer, id: None, owned: false, lone: None, sink, done: false, kept_outcome: None }
    }

    #[inline]
    fn keep_outcome(&mut self, outcome: Outcome<'_>, datagram: &[u8]) {
        let here = match &outcome {
            Outcome::Result(body) => place(datagram, body).map(KeptOutcome::Result),
            Outcome::Exception(body) => place(datagram, body).map(KeptOutcome::Exception),
            Outcome::Failed(_) => None,
        };
        self.kept_outcome = Some(here.unwrap_or_else(|| KeptOutcome::Apart(Box::new(outcome.into_owned()))));
    }

    /// Makes the call an ordinary call, no longer one on the fast path, because something else than its
    /// result has arrived.
    #[inline]
    pub(super) fn go_on(&mut self, now: Time, arguments: &[u8]) {
        if let Some((lone, sent)) = self.lone.take() {
            let conversation = &mut self.peer.lock().conversation;
            self.id = Some(conversation.go_on(now, lone, Some(sent), Owners::NOBODY, arguments));
        }
    }

    /// Gives the result of a call on the fast path to the sink, if the datagram contains just that result.
    /// Returns the conversation's next timer, and whether the peer is in the list of peers with timers. For
    /// any other datagram, returns `None` and changes nothing, except that the datagram may have been
    /// `opened`.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        clock: impl Fn() -> Time,
        (datagram, opened): (&mut [u8], &mut Option<Opened>),
    ) -> Option<(Option<Time>, bool)> {
        let (lone, sent) = self.lone.as_ref()?;
        let (body, timer) = {
            let mut state = self.peer.lock();
            *opened = state.conversation.open(datagram);
            let body = state.conversation.end_lone(clock, lone, Some(*sent), (datagram, *opened))?;
            (body, (state.conversation.timeout(), state.listed))
        };
        (self.done, self.lone) = (true, None);
        (self.sink)(Outcome::Result(Cow::Borrowed(body)));
        Some(timer)
    }

    /// Gives an outcome in the datagram to the sink, if there is one. The thread leads, but holds no lock. So
    /// the decoding of a user's type may panic, but must not make calls.
    #[inline]
    pub(super) fn settle(&mut self, datagram: &[u8]) {
        let Some(kept_outcome) = self.kept_outcome.take() else { return };
        self.done = true;
        match kept_outcome {
            KeptOutcome::Result(place) => (self.sink)(Outcome::Result(Cow::Borrowed(&datagram[place]))),
            KeptOutcome::Exception(place) => (self.sink)(Outcome::Exception(Cow::Borrowed(&datagram[place]))),
            apart @ KeptOutcome::Apart(_) => self.kept_outcome = Some(apart),
        }
    }

    /// Notes that no thread waits for the call's outcome any more, if the call has begun.
    #[cold]
    fn abandon(&mut self) {
        if let Some((_, sent)) = self.lone {
            // The call can be cancelled, but not sent again, because its arguments are gone.
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

    /// Ends a call that failed before it began.
    #[cold]
    pub(super) fn fail(&mut self, failure: Failure) {
        self.keep_outcome(Outcome::Failed(failure), &[]);
        self.done = true;
    }

    /// Gives a copied outcome to the sink. The caller has passed the lead on first, because decoding may take
    /// long.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        if let Some(KeptOutcome::Apart(outcome)) = self.kept_outcome.take() {
            (self.sink)(*outcome);
        }
    }
}

/// Delivers an event of a peer to its owner. The event comes from a timer or from a datagram; `buffer` is the
/// datagram's receive buffer, if started calls may share it. `mine` is the receiving thread's own call, to
/// this peer or another. An outcome is dropped if its caller's thread has panicked while it led.
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
        Event::Ended { id, token, outcome, arguments, shared } => {
            let owner = owners.take(token);
            if let Some(mine) = mine.filter(|mine| mine.id == Some(id) && mine.peer.id == peer.id) {
                return mine.keep_outcome(outcome, datagram);
            }
            match owner {
                Some(Owner::Thread(waiter)) => {
                    waiter.slot.end(outcome, (arguments, shared), None);
                    wakes.add_thread(waiter);
                }
                Some(Owner::Started(slot, watcher)) => {
                    slot.end(outcome, (arguments, shared), buffer);
                    if let Some(news) = slot.news() {
                        news.change().into_iter().for_each(|thread| wakes.add_thread(thread));
                    }
                    wakes.add(watcher);
                }
                Some(Owner::Recipient(recipient, watcher)) => {
                    pass_to(recipient, &outcome, wakes);
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

/// Passes the reply of a call to its recipient.
#[inline(never)]
fn pass_to(recipient: Arc<dyn Recipient>, outcome: &Outcome<'_>, wakes: &mut Wakes) {
    let reply = match outcome {
        Outcome::Result(body) => Arrived::Result(body),
        Outcome::Exception(body) => Arrived::Exception(body),
        Outcome::Failed(_) => Arrived::Failed,
    };
    recipient.arrived(reply, &mut |waker| wakes.add_uncounted(waker));
}

/// Passes a conversation's news about exchanges (signals and streams) to the callers. Declines an exchange if
/// the call's caller expects none.
#[cold]
pub(super) fn pass_news(
    peer: &Peer,
    state: &mut PeerState,
    mut mine: Option<&mut OwnCall<'_>>,
    wakes: &mut Wakes,
) {
    let PeerState { conversation, owners, .. } = state;
    while let Some((id, token, exchange, news)) = conversation.next_news() {
        match owners.started(token) {
            Some((slot, watcher)) if let Some(of_call) = slot.news().filter(|news| !news.declines()) => {
                of_call.note(exchange, news).into_iter().for_each(|thread| wakes.add_thread(thread));
                // A task's watcher is removed when the task is woken. The task adds a new one when it polls.
                wakes.add(if watcher.is_task() { std::mem::take(watcher) } else { watcher.clone() });
            }
            _ => {
                let sink = &mut |event: Event<'_>| {
                    deliver(peer, owners, event, (&[], None), mine.as_deref_mut(), wakes);
                };
                decline(conversation, id, exchange, sink);
            }
        }
    }
}

/// Declines an exchange that the caller does not expect. To the server it looks as if no handler catches its
/// signal.
fn decline(conversation: &mut Conversation, id: CallId, exchange: u32, sink: &mut dyn FnMut(Event<'_>)) {
    conversation.send_in(id, exchange, &UNCAUGHT.to_be_bytes(), Tail::End);
    conversation.stop_exchange(id, exchange, 0, sink);
}

/// Declines the exchanges that the server has opened in a call, and those that it will open, because the call
/// is detached.
#[cold]
pub(super) fn decline_all(
    peer: &Peer,
    state: &mut PeerState,
    (id, news): (CallId, &CallNews),
    wakes: &mut Wakes,
) {
    let PeerState { conversation, owners, .. } = state;
    let sink = &mut |event: Event<'_>| deliver(peer, owners, event, (&[], None), None, wakes);
    news.decline().into_iter().for_each(|exchange| decline(conversation, id, exchange, sink));
}
