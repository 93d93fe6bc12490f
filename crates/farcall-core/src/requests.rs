//! Lets a program take the calls of its export from a queue, in whatever order it chooses, and answer them
//! when it likes (RPC2's GETREQUEST; Satyanarayanan & Siegel 1990, section IV).

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{self, Poll, Waker};

use crate::stub::{
    AsyncDispatched, AsyncServer, Binding, Dispatched, EncodedArguments, Interface, Procedure, Reply, catch,
    no_reply,
};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Context, Kind, Ran, context, guard, lock};

/// The calls of an export that wait to be taken.
pub struct Requests<T: ?Sized> {
    queue: Arc<Queue>,
    interface: PhantomData<fn(&T)>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The calls that wait, in the order in which they arrived.
    waiting: VecDeque<Arrived>,
    /// How many calls have arrived.
    arrived: u64,
    /// Whether the export has ended, so that no more calls come.
    closed: bool,
}

/// A call that was taken from its export's queue. Dropping it without an answer fails the call.
pub struct Request<T: ?Sized> {
    call: Arrived,
    interface: PhantomData<fn(&T)>,
}

struct Arrived {
    /// How many calls arrived before this call.
    serial: u64,
    procedure: &'static Procedure,
    arguments: Vec<u8>,
    context: Context,
    answer: Arc<Mutex<Answer>>,
}

/// The answer of a call, until the call's task takes it.
#[derive(Default)]
struct Answer {
    outcome: Option<(Dispatched, Vec<u8>)>,
    waker: Option<Waker>,
}

impl<T: ?Sized + Interface> Requests<T> {
    /// Returns an empty queue, and the server that puts calls into it.
    pub fn new() -> (Requests<T>, QueueServer<T>) {
        let queue = Arc::new(Queue::default());
        let server = QueueServer { queue: queue.clone(), interface: PhantomData };
        (Requests { queue, interface: PhantomData }, server)
    }

    /// Takes the call that has waited longest. If no call waits, blocks until one arrives. Returns `None`
    /// once the export has ended.
    pub fn next(&self) -> Option<Request<T>> {
        self.next_where(|_, _| true)
    }

    /// Takes the call that has waited longest among the calls that `filter` accepts, by their procedure and
    /// context. If there is none, blocks until one arrives. Returns `None` once the export has ended.
    ///
    /// After each arrival `filter` is asked again about all calls that wait. The filter may block. Meanwhile
    /// calls arrive, and other threads take calls. If another thread has taken a call that the filter
    /// accepts, or its caller has given it up, that call is passed over.
    pub fn next_where(
        &self,
        mut filter: impl FnMut(&'static Procedure, &Context) -> bool,
    ) -> Option<Request<T>> {
        let mut asked = 0;
        let mut state = lock(&self.queue.state);
        loop {
            let place = state.waiting.partition_point(|call| call.serial < asked);
            if let Some(call) = state.waiting.get(place) {
                let (serial, procedure, context) = (call.serial, call.procedure, call.context.clone());
                // The filter runs without the lock, because it is the user's code, and the threads that
                // receive calls need the lock.
                drop(state);
                let accepted = filter(procedure, &context);
                drop(context);
                state = lock(&self.queue.state);
                let place = state.waiting.binary_search_by_key(&serial, |call| call.serial);
                if let Some(call) = place.ok().filter(|_| accepted).and_then(|at| state.waiting.remove(at)) {
                    return Some(Request { call, interface: PhantomData });
                }
                asked = serial + 1;
            } else if state.closed {
                return None;
            } else {
                state = self.queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                asked = 0;
            }
        }
    }

    /// Returns how many calls wait to be taken.
    pub fn waiting(&self) -> usize {
        lock(&self.queue.state).waiting.len()
    }
}

/// Fails the calls that wait, because no thread will take them any more.
impl<T: ?Sized> Drop for Requests<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.queue.state);
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }
}

impl<T: ?Sized> fmt::Debug for Requests<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl<T: ?Sized + Interface> Request<T> {
    /// Returns the procedure that is called.
    pub fn procedure(&self) -> &'static Procedure {
        self.call.procedure
    }

    /// Returns the call's context: its caller, its deadline, and whether it was given up.
    pub fn context(&self) -> &Context {
        &self.call.context
    }

    /// Executes the call at a server, in this thread, and answers it.
    pub fn serve(self, server: &T) {
        let mut reply = Vec::new();
        let dispatched = {
            let _serving = self.call.context.enter();
            let mut arguments = Decoder::new(&self.call.arguments);
            catch(|| {
                server.dispatch(self.call.procedure.number, &mut arguments, &mut Encoder::new(&mut reply))
            })
        };
        self.call.answer(dispatched, reply);
    }

    /// Calls the same procedure at another server, waits for that call, and answers this one with its
    /// outcome.
    pub fn pass_on(self, to: &Binding) {
        let mut answer = None;
        let arguments = EncodedArguments { bytes: &self.call.arguments, shared: None };
        let call = to.start_encoded(self.call.procedure, (arguments, None), self.context().remaining());
        call.wait(&mut |reply| {
            answer = Some(match reply {
                Reply::Result(mut body) | Reply::ResultOf(mut body, _) => {
                    (Dispatched::Result, rest(&mut body))
                }
                Reply::Exception(mut body) => (Dispatched::Exception, rest(&mut body)),
                // The drop of the stream cancels the call.
                Reply::Stream(_) => {
                    let why = CallFailed::new(Kind::Local, Ran::Maybe);
                    (Dispatched::Failed(why.because("a call with streams is not passed on")), Vec::new())
                }
                Reply::Failed(why) => {
                    // Nothing ran here, so the call ran if the other server ran it.
                    let ran = why.ran();
                    (Dispatched::Failed(CallFailed::nested(why).but_ran(ran)), Vec::new())
                }
            });
        });
        let (dispatched, reply) = answer.unwrap_or_else(|| (Dispatched::Failed(no_reply()), Vec::new()));
        self.call.answer(dispatched, reply);
    }

    /// Fails the call.
    pub fn fail(self, why: CallFailed) {
        self.call.answer(Dispatched::Failed(why), Vec::new());
    }
}

/// Returns the encoded bytes that a decoder has not read.
fn rest(body: &mut Decoder<'_>) -> Vec<u8> {
    let len = body.remaining();
    body.opaque(len).map(<[u8]>::to_vec).unwrap_or_default()
}

impl<T: ?Sized> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("procedure", &self.call.procedure.name).finish_non_exhaustive()
    }
}

impl Arrived {
    /// Answers the call, unless it was answered before.
    fn answer(&self, dispatched: Dispatched, reply: Vec<u8>) {
        let waker = {
            let mut answer = lock(&self.answer);
            answer.outcome.get_or_insert((dispatched, reply));
            answer.waker.take()
        };
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }
}

impl Drop for Arrived {
    fn drop(&mut self) {
        self.answer(unanswered(), Vec::new());
    }
}

fn unanswered() -> Dispatched {
    Dispatched::Failed(CallFailed::new(Kind::Other, Ran::No).because("the server dropped the request"))
}

/// The server of an export whose calls are taken from a queue.
pub struct QueueServer<T: ?Sized> {
    queue: Arc<Queue>,
    interface: PhantomData<fn(&T)>,
}

impl<T: ?Sized + Interface> AsyncServer for QueueServer<T> {
    type Interface = T;

    fn dispatch(self: Arc<Self>, procedure: u32, arguments: Vec<u8>) -> AsyncDispatched {
        match T::PROCEDURES.iter().find(|known| known.number == procedure) {
            None => Box::pin(std::future::ready((Dispatched::NoSuchProcedure, Vec::new()))),
            Some(procedure) => Box::pin(Waiting {
                queue: self.queue.clone(),
                begun: Some((procedure, arguments)),
                answer: Arc::default(),
            }),
        }
    }
}

/// Ends the queue: no more calls come.
impl<T: ?Sized> Drop for QueueServer<T> {
    fn drop(&mut self) {
        lock(&self.queue.state).closed = true;
        self.queue.changed.notify_all();
    }
}

/// A call that waits to be answered.
struct Waiting {
    queue: Arc<Queue>,
    /// The call, until it is put into the queue.
    begun: Option<(&'static Procedure, Vec<u8>)>,
    answer: Arc<Mutex<Answer>>,
}

impl Future for Waiting {
    type Output = (Dispatched, Vec<u8>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        let waker = Some(cx.waker().clone());
        let former = std::mem::replace(&mut lock(&self.answer).waker, waker);
        drop(former);
        if let Some((procedure, arguments)) = self.begun.take() {
            let (context, answer) = (context(), self.answer.clone());
            let mut state = lock(&self.queue.state);
            let call = Arrived { serial: state.arrived, procedure, arguments, context, answer };
            state.arrived += 1;
            if state.closed {
                drop(state);
                drop(call);
            } else {
                state.waiting.push_back(call);
                drop(state);
                // All threads are woken, because each may have a filter of its own.
                self.queue.changed.notify_all();
            }
        }
        match lock(&self.answer).outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        }
    }
}

/// Takes a call that was given up out of the queue.
impl Drop for Waiting {
    fn drop(&mut self) {
        let given_up = {
            let mut state = lock(&self.queue.state);
            let place = state.waiting.iter().position(|call| Arc::ptr_eq(&call.answer, &self.answer));
            place.and_then(|place| state.waiting.remove(place))
        };
        drop(given_up);
    }
}
