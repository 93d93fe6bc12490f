//! Posted writes at the importer. Each is sent at once in a datagram of its own, and is not acknowledged
//! until the importer asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use super::allowance::Allowance;
use super::refuse;
use crate::Result;
use crate::access::{MAX_POST_BYTES, OPEN, POSTED, Posted, Refused};
use crate::posted::{self, Answer, Asking, Faults, may_ask_again};
use farcall_core::stub::{Binding, PendingCall, Reply, Sink, bad_arguments, decode_reply, no_reply};
use farcall_core::xdr::{self, Decoder, Encode, Encoder};
use farcall_core::{CallFailed, Error, Kind, Pending, Ran, lock};

/// The writes that one import has posted, in one stream.
pub(super) struct PostedWrites {
    binding: Binding,
    generation: u64,
    /// Whether the stream is open. Until then nothing was posted.
    is_open: AtomicBool,
    state: Mutex<State>,
}

type State = posted::Posts<Error<Refused>>;

/// The most bytes that a posted write writes. Longer writes are calls.
const MAX_POSTED_BYTES: usize = MAX_POST_BYTES - 40;

impl PostedWrites {
    pub(super) fn new(binding: Binding, generation: u64) -> PostedWrites {
        let state = Mutex::new(State::new(Faults::default()));
        PostedWrites { binding, generation, is_open: AtomicBool::new(false), state }
    }

    /// Posts a write. If the write is too long, or nothing can be posted, waits until all earlier writes are
    /// executed and returns false. The caller then makes the write by a call.
    pub(super) fn post(
        self: &Arc<Self>,
        offset: u64,
        bytes: &[u8],
        notify: bool,
        time: Allowance,
    ) -> Result<bool> {
        if bytes.len() <= MAX_POSTED_BYTES {
            self.open(time)?;
            while lock(&self.state).is_full() {
                self.wait(State::MAX_AFTER_WAIT, time)?;
            }
            if self.send(offset, bytes, notify)? {
                return Ok(true);
            }
        }
        self.settle(time)?;
        Ok(false)
    }

    /// Waits until all posted writes are executed.
    #[inline]
    pub(super) fn settle(self: &Arc<Self>, time: Allowance) -> Result<()> {
        if self.is_open.load(Ordering::Relaxed) { self.wait(0, time) } else { Ok(()) }
    }

    /// Starts to ask whether all posted writes are executed. No thread waits for the answer.
    pub(super) fn start_settling(self: &Arc<Self>, time: Allowance) -> Pending<(), Refused> {
        match self.ask(0) {
            Ok(None) => Pending::ended(Ok(())),
            Ok(Some(asking)) => {
                let mut settling = Settling { posts: self.clone(), time, asking, call: None };
                settling.call();
                Pending::new(Box::new(settling))
            }
            Err(why) => Pending::ended(Err(why)),
        }
    }

    /// Opens the stream if it is not open.
    fn open(&self, time: Allowance) -> Result<()> {
        if self.is_open.load(Ordering::Relaxed) {
            return Ok(());
        }
        let stream = time.binding(&self.binding).call::<u64, Refused>(&OPEN, &|e| e.u64(self.generation))?;
        lock(&self.state).opened(stream);
        self.is_open.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sends a write, and keeps it until it is acknowledged. Returns false if nothing can be posted.
    fn send(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<bool> {
        let mut state = lock(&self.state);
        state.check()?;
        let Some(next) = state.next() else { return Ok(false) };
        let mut post = Vec::with_capacity(MAX_POST_BYTES);
        let encode = |e: &mut Encoder<'_>| -> std::result::Result<(), xdr::Error> {
            (next, self.generation).encode(e)?;
            (offset, notify, bytes).encode(e)
        };
        encode(&mut Encoder::new(&mut post)).map_err(bad_arguments)?;
        if !self.binding.channel().post(&post) {
            return Ok(false);
        }
        state.sent(post);
        Ok(true)
    }

    /// Blocks until at most `most` of the earlier posted writes are unacknowledged.
    #[cold]
    fn wait(self: &Arc<Self>, most: usize, time: Allowance) -> Result<()> {
        match self.ask(most)? {
            Some(asking) => {
                Pending::new(Box::new(Settling { posts: self.clone(), time, asking, call: None })).wait()
            }
            None => Ok(()),
        }
    }

    /// Returns the question to ask the exporter until at most `most` writes are unacknowledged, if more are
    /// unacknowledged now.
    fn ask(&self, most: usize) -> Result<Option<Asking>> {
        let state = lock(&self.state);
        state.check()?;
        Ok(state.ask(most))
    }

    fn question(&self, asking: &Asking, e: &mut Encoder<'_>) -> std::result::Result<(), xdr::Error> {
        (self.generation, asking.stream()).encode(e)
    }

    /// Handles an answer. If no further answer is needed, returns true. Otherwise sends the unacknowledged
    /// writes again.
    fn receive_answer(&self, asking: &mut Asking, answer: Result<Posted>) -> Result<bool> {
        let mut state = lock(&self.state);
        state.check()?;
        let next = match answer {
            Ok(Posted { refused: Some(why), .. }) | Err(Error::Declared(why)) => {
                return fail(&mut state, why.into());
            }
            Ok(Posted { next: None, .. }) => return fail(&mut state, forgotten().into()),
            Ok(Posted { next: Some(next), .. }) => next,
            Err(Error::CallFailed(why)) => {
                let again = may_ask_again(why.kind());
                let why = why.but_ran(Ran::Maybe).into();
                return if again { Err(why) } else { fail(&mut state, why) };
            }
        };
        match state.acknowledge(asking, next) {
            Answer::Done => return Ok(true),
            Answer::SendAgain => {}
            Answer::NoProgress => return fail(&mut state, no_progress().into()),
            Answer::Impossible => return fail(&mut state, impossible().into()),
        }
        for post in state.unacknowledged() {
            self.binding.channel().post(post);
        }
        Ok(false)
    }
}

fn fail<T>(state: &mut State, why: Error<Refused>) -> Result<T> {
    state.fail(why.clone());
    Err(why)
}

#[cold]
fn forgotten() -> CallFailed {
    CallFailed::new(Kind::Forgotten, Ran::Maybe)
        .because("the exporter has forgotten which posted writes it has executed")
}

#[cold]
fn impossible() -> CallFailed {
    CallFailed::new(Kind::BadResult, Ran::Maybe)
        .because("the exporter claims to have executed more writes than were posted")
}

#[cold]
fn no_progress() -> CallFailed {
    CallFailed::new(Kind::Unreachable, Ran::Maybe)
        .because("the exporter answers, but posted writes do not arrive")
}

/// A started question whether all posted writes are executed.
struct Settling {
    posts: Arc<PostedWrites>,
    /// The time of all questions together.
    time: Allowance,
    asking: Asking,
    /// The call that asks, while it is under way.
    call: Option<Box<dyn PendingCall>>,
}

impl Settling {
    /// Returns the call that asks. Starts one if none is under way.
    fn call(&mut self) -> &mut Box<dyn PendingCall> {
        let Settling { posts, time, asking, call } = self;
        call.get_or_insert_with(|| {
            let binding = time.binding(&posts.binding);
            let started = binding.start::<Posted, Refused>(&POSTED, &|e| posts.question(asking, e));
            started.into_call().unwrap_or_else(|| Box::new(no_reply()))
        })
    }

    /// Handles an answer. If no further answer is needed, passes the outcome to the sink and returns true.
    fn receive_answer(&mut self, answer: Option<Result<Posted>>, sink: Sink<'_>) -> bool {
        self.call = None;
        let answer = answer.unwrap_or_else(|| Err(no_reply().into()));
        match self.posts.receive_answer(&mut self.asking, answer) {
            Ok(false) => return false,
            Ok(true) => sink(Reply::Result(Decoder::new(&[]))),
            Err(Error::CallFailed(why)) => sink(Reply::Failed(why)),
            Err(Error::Declared(refused)) => refuse(&refused, sink),
        }
        true
    }
}

impl PendingCall for Settling {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        loop {
            let mut answer = None;
            match self.call.take() {
                Some(call) => call.wait(&mut |reply| answer = Some(decode_reply(reply))),
                None => {
                    let question = |e: &mut Encoder<'_>| self.posts.question(&self.asking, e);
                    let binding = self.time.binding(&self.posts.binding);
                    answer = Some(binding.call(&POSTED, &question));
                }
            }
            if self.receive_answer(answer, sink) {
                return;
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        loop {
            let mut answer = None;
            if self.call().poll(context, &mut |reply| answer = Some(decode_reply(reply))).is_pending() {
                return Poll::Pending;
            }
            if self.receive_answer(answer, sink) {
                return Poll::Ready(());
            }
        }
    }

    /// Does nothing, because the question changes nothing.
    fn cancel(&mut self) {}

    fn detach(self: Box<Self>) {}
}
