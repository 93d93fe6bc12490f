//! The in-process channel: the same stubs, encoding and decoding included, without a network.
//!
//! A call runs on its caller's thread. A started call runs on a thread of the channel, or on the thread that
//! waits for it, if that thread is first and the call has no deadline. Threads of the channel end when they
//! have been idle for 10 s. A call in which something may pass besides arguments and result has a thread of
//! its own.
//!
//! Deadlines and cancels mean what they mean through a network. A call whose deadline has passed before it is
//! made does not run. At its deadline, or when it is cancelled, a call ends at once, and its procedure is
//! told. So a call with a deadline of its own does not run on its caller's thread, which could not leave the
//! procedure. A call that only inherits the deadline of the call that its caller serves does: it ends with
//! its procedure, and the caller of the outer call is told at the deadline.

mod asynchronous;
mod driven;
mod execution;
mod unpark;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::alarm::{Alarm, Timer};
use super::arguments::bad_arguments;
use super::batch::{BATCH, execute_each};
use super::binding::Binding;
use super::catching;
use super::channel::{Call, Channel, OpenCall, PendingCall, Reply, Sink};
use super::dispatch::catch;
use super::ended::Ended;
use super::handling::Handling;
use super::interface::{AsyncServer, Interface};
use super::scope;
use super::sending::send_beside;
use crate::context::{Context as Serving, context, enter_near};
use crate::env::{Env as _, Time};
use crate::exchange::{self, Exchanges, LocalExchanges};
use crate::given_up::GivenUp;
use crate::workers::{Jobs, Refused, Threads};
use crate::xdr::{Decoder, Encoder};
use crate::{CallFailed, Kind, Ran, System, guard, lock, serving};

/// Returns a user-stub bound to a server in this process.
///
/// Arguments and results are encoded and decoded as for a network. A panic of the server makes the call fail.
/// To call a trait object only, use `&dyn Echo` directly. Use `local` to test encoding, or in a program whose
/// server may be in this process or elsewhere.
///
/// A call runs on its caller's thread, unless it has a deadline of its own or is started: then it runs on a
/// thread of the stub's, so that its caller can leave it in time.
///
/// ```
/// use std::sync::Arc;
///
/// #[farcall::interface]
/// pub trait Echo {
///     fn twice(&self, text: &str) -> farcall::Result<String>;
/// }
///
/// struct Server;
/// impl Echo for Server {
///     fn twice(&self, text: &str) -> farcall::Result<String> {
///         Ok(text.repeat(2))
///     }
/// }
///
/// # fn main() -> farcall::Result<()> {
/// let echo = farcall::stub::local::<dyn Echo>(Arc::new(Server));
/// assert_eq!(echo.twice("ab")?, "abab");
/// assert_eq!(echo.start().twice("cd").wait()?, "cdcd");
/// # Ok(())
/// # }
/// ```
pub fn local<T: ?Sized + Interface>(server: Arc<T>) -> T::Client {
    let jobs = Jobs::new(
        Arc::new(System),
        "farcall-local",
        Threads::besides_waiting(MAX_THREADS, 0),
        MAX_QUEUED_CALLS,
    );
    Binding::new(Arc::new(Local { server, jobs, alarm: Alarm::new(Arc::new(System)) })).into()
}

/// Returns a user-stub bound to an asynchronous server in this process.
///
/// A call makes progress only while its caller waits for it. A blocking call and `wait()` execute it on the
/// caller's thread; `start()` with `.await` executes it on the caller's executor, for servers that need one.
/// On the thread of a single-threaded tokio runtime, a blocking call fails once its procedure has waited for
/// a second without a pause: the procedure may be waiting for that runtime, which the call blocks.
pub fn local_async<S: AsyncServer>(server: S) -> <S::Interface as Interface>::Client {
    Binding::new(Arc::new(asynchronous::Local::new(server))).into()
}

/// The most threads of a channel that run started calls.
const MAX_THREADS: usize = 64;
/// The most started calls that wait for a thread.
const MAX_QUEUED_CALLS: usize = 65_536;

/// The maximum number of calls of this process that have a thread of their own.
const MAX_OWN_THREADS: usize = 1_024;

/// How long the thread that waits for a call with a deadline leaves it to the threads of the channel. Then it
/// starts another thread for the call: all of them may be waiting, for calls such as this.
const HANDOVER_TIME: Duration = Duration::from_millis(10);

struct Local<T: ?Sized> {
    server: Arc<T>,
    jobs: Arc<Jobs>,
    /// Ends calls at their deadlines.
    alarm: Arc<Alarm>,
}

/// The threads finish the queued calls, and end.
impl<T: ?Sized> Drop for Local<T> {
    fn drop(&mut self) {
        self.jobs.close();
    }
}

impl<T: ?Sized + Interface> Channel for Local<T> {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        if call.procedure.exchanges {
            return self.start(call).wait(sink);
        }
        if call.within.is_some() {
            return match self.begin(&call, Some(context())) {
                Ok(started) => started.wait(sink),
                Err(why) => sink(Reply::Failed(why)),
            };
        }
        match arguments_in_time(&call) {
            Ok((arguments, _)) => execute(&*self.server, call.procedure.number, arguments).deliver(sink),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let mut started = match self.begin(&call, None) {
            Ok(started) => started,
            Err(why) => return Box::new(why),
        };
        let Some((exchanges, handling)) = &mut started.inside else { return started };
        match send_in_thread(exchanges, handling) {
            Ok(()) => started,
            Err(why) => Box::new(why),
        }
    }
}

impl<T: ?Sized + Interface> Local<T> {
    /// Has a thread run a call. If the caller waits for it, the thread serves what the caller's thread
    /// serves.
    ///
    /// # Errors
    /// When its arguments cannot be encoded, or there is no thread for it.
    fn begin(&self, call: &Call<'_>, serving: Option<Serving>) -> Result<Box<Started<T>>, CallFailed> {
        let (arguments, deadline) = arguments_in_time(call)?;
        let (caller, callee) = call.procedure.exchanges.then(|| exchange::pair(deadline)).unzip();
        let job = Arc::new(Job {
            server: self.server.clone(),
            procedure: call.procedure.number,
            progress: Mutex::new(Progress { stage: Stage::Queued(arguments), waker: None }),
            serving: serving.map(|serving| serving.until(deadline)),
            given_up: GivenUp::new(deadline),
            timer: deadline.map(|_| self.alarm.timer()),
            ended: Condvar::new(),
            callee: callee.map(Arc::new),
        });
        if let (Some(deadline), Some(timer)) = (deadline, &job.timer) {
            timer.set(deadline, &Waker::from(job.clone()))?;
        }
        let queued = job.clone();
        let overloaded = CallFailed::new(Kind::Overloaded, Ran::No);
        let mut inside = caller.map(|caller| (Arc::new(caller), Handling::new(call)));
        if let Some((caller, handling)) = &mut inside {
            handling.begin(&**caller);
        }
        let submitted = match &inside {
            None => self.jobs.submit(Box::new(move || queued.run())),
            Some(_) => in_its_own_thread(move || queued.run()),
        };
        match submitted {
            Ok(()) => Ok(Box::new(Started { job, inside, detached: false })),
            Err(why) => {
                job.timer.iter().for_each(Timer::stop);
                Err(match why {
                    Refused::Full => overloaded.because("too many calls are started"),
                    Refused::NoThread(why) => overloaded.caused_by(why),
                })
            }
        }
    }
}

/// Has a thread send the argument of a started call that is a stream, if one must.
fn send_in_thread(exchanges: &Arc<LocalExchanges>, handling: &mut Handling) -> Result<(), CallFailed> {
    let Some(sending) = handling.take_for_thread() else { return Ok(()) };
    let sent = send_beside(&System, exchanges.clone(), sending);
    sent.map_err(|why| CallFailed::local("starting a thread", why).but_ran(Ran::Maybe))
}

/// Runs a call in a thread of its own: it may wait for its caller, whatever else runs.
fn in_its_own_thread(run: impl FnOnce() + Send + 'static) -> Result<(), Refused> {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            RUNNING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let before = RUNNING.fetch_add(1, Ordering::Relaxed);
    let counted = Counted;
    if before >= MAX_OWN_THREADS {
        return Err(Refused::Full);
    }
    let spawned = System.spawn(
        "farcall-local",
        Box::new(move || {
            let _counted = counted;
            run();
        }),
    );
    spawned.map_err(Refused::NoThread)
}

/// Returns the encoded arguments of a call whose time is not over, and its deadline.
fn arguments_in_time(call: &Call<'_>) -> Result<(Vec<u8>, Option<Time>), CallFailed> {
    let deadline = call.time_left(&System)?.map(|left| System.now() + left);
    let mut arguments = Vec::new();
    (call.encode)(&mut Encoder::new(&mut arguments)).map_err(bad_arguments)?;
    Ok((arguments, deadline))
}

fn execute<T: ?Sized + Interface>(server: &T, procedure: u32, arguments: Vec<u8>) -> Ended {
    let _hidden = catching::hide();
    let packet = Bytes::from(arguments);
    let mut reply = Vec::new();
    let (arguments, encoder) = (&mut Decoder::with_packet(&packet), &mut Encoder::new(&mut reply));
    let dispatched = if procedure == BATCH.number {
        let dispatch = |procedure, arguments: &mut Decoder<'_>, reply: &mut Encoder<'_>| {
            server.dispatch(procedure, arguments, reply)
        };
        // Each batch is executed in the caller's thread before the next call.
        execute_each(arguments, |_| Ok(()), dispatch, |_, _| ())
    } else {
        catch(|| server.dispatch(procedure, arguments, encoder))
    };
    Ended { dispatched, reply: reply.into() }
}

/// A started call, shared by its caller and the thread that runs it.
struct Job<T: ?Sized> {
    server: Arc<T>,
    procedure: u32,
    progress: Mutex<Progress>,
    /// What the thread of a caller that waits serves.
    serving: Option<Serving>,
    given_up: Arc<GivenUp>,
    /// Gives the call up at its deadline, if it has one.
    timer: Option<Timer>,
    ended: Condvar,
    /// The server's end of the call's exchanges, if it may have any.
    callee: Option<Arc<LocalExchanges>>,
}

struct Progress {
    stage: Stage,
    waker: Option<Waker>,
}

impl Progress {
    fn take(&mut self) -> Option<Ended> {
        match std::mem::replace(&mut self.stage, Stage::Taken) {
            Stage::Ended(ended) => Some(ended),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

enum Stage {
    Queued(Vec<u8>),
    Running,
    Ended(Ended),
    /// The caller has taken the reply.
    Taken,
}

impl<T: ?Sized> Job<T> {
    /// Moves the job to the stage `next` and returns its arguments, if it has not begun. Otherwise returns
    /// `None`.
    fn begin(&self, next: Stage) -> Option<Vec<u8>> {
        let mut progress = lock(&self.progress);
        let Stage::Queued(arguments) = &mut progress.stage else {
            return None;
        };
        let arguments = std::mem::take(arguments);
        progress.stage = next;
        Some(arguments)
    }

    /// Ends the job for its caller, unless it has ended, and tells the procedure.
    fn give_up(&self, kind: Kind) {
        let ended = |ran| Stage::Ended(Ended::failed(CallFailed::new(kind, ran)));
        {
            let mut progress = lock(&self.progress);
            progress.stage = match std::mem::replace(&mut progress.stage, Stage::Taken) {
                Stage::Queued(_) => ended(Ran::No),
                Stage::Running => ended(Ran::Maybe),
                Stage::Ended(how) => {
                    let how = if kind == Kind::Deadline { how.at_deadline() } else { how };
                    progress.stage = Stage::Ended(how);
                    return;
                }
                Stage::Taken => return,
            };
        }
        self.given_up.give_up();
        self.tell();
    }

    /// Tells the caller that the job has ended.
    fn tell(&self) {
        self.timer.iter().for_each(Timer::stop);
        let waker = lock(&self.progress).waker.take();
        self.ended.notify_all();
        self.callee.iter().for_each(|callee| callee.end_all());
        if let Some(waker) = waker {
            guard::run_alone("a waker", || waker.wake());
        }
    }
}

impl<T: ?Sized + Interface> Job<T> {
    fn run(&self) {
        let Some(arguments) = self.begin(Stage::Running) else {
            return;
        };
        let ended = {
            let _carried = self.serving.as_ref().map(Serving::carry);
            let _serving = enter_near(self.given_up.clone());
            let callee = self.callee.clone();
            let _exchanging = scope::enter(callee.map(|callee| callee as Arc<dyn Exchanges>));
            execute(&*self.server, self.procedure, arguments)
        };
        let ended = if self.given_up.is_late() { ended.at_deadline() } else { ended };
        let late = {
            let mut progress = lock(&self.progress);
            match progress.stage {
                Stage::Running => {
                    progress.stage = Stage::Ended(ended);
                    None
                }
                // The call was cancelled meanwhile, and its caller has been told.
                _ => Some(ended),
            }
        };
        drop(late);
        self.tell();
    }

    /// Blocks until the job has ended, at its deadline if it has one. The calling thread runs a job that has
    /// not begun, unless the job has a deadline.
    fn wait(self: &Arc<Self>) {
        let deadline = self.given_up.deadline();
        if deadline.is_none() {
            self.run();
        }
        let _waiting = serving::wait_guard();
        let mut handover = Some(HANDOVER_TIME);
        let mut progress = lock(&self.progress);
        loop {
            let is_queued = match progress.stage {
                Stage::Queued(_) => true,
                Stage::Running => false,
                Stage::Ended(_) | Stage::Taken => return,
            };
            let left = deadline.map(|deadline| deadline.since(System.now()));
            if left.is_some_and(|left| left.is_zero()) {
                drop(progress);
                return self.give_up(Kind::Deadline);
            }
            let most = left.into_iter().chain(handover.filter(|_| is_queued)).min();
            let Some(most) = most else {
                progress = self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.ended.wait_timeout(progress, most).unwrap_or_else(PoisonError::into_inner);
            progress = waited.0;
            if waited.1.timed_out() && matches!(progress.stage, Stage::Queued(_)) && handover.take().is_some()
            {
                drop(progress);
                let job = self.clone();
                // If there can be no further thread, the call stays in the queue.
                let _ = in_its_own_thread(move || job.run());
                progress = lock(&self.progress);
            }
        }
    }
}

/// Ends a job at its deadline.
impl<T: ?Sized + Interface> Wake for Job<T> {
    fn wake(self: Arc<Self>) {
        self.give_up(Kind::Deadline);
    }
}

/// The caller's end of a [`Job`].
struct Started<T: ?Sized + Interface> {
    job: Arc<Job<T>>,
    /// The caller's end of the call's exchanges, if it may have any, and who answers its signals.
    inside: Option<(Arc<LocalExchanges>, Handling)>,
    detached: bool,
}

impl<T: ?Sized + Interface> Started<T> {
    /// Waits until the job has ended, and answers its signals. At its deadline the call ends.
    fn wait_inside(&mut self) -> Result<(), CallFailed> {
        let Some((exchanges, handling)) = &mut self.inside else { return Ok(()) };
        let job = &self.job;
        let over =
            || exchanges.is_late() || !matches!(lock(&job.progress).stage, Stage::Queued(_) | Stage::Running);
        handling.attend(&**exchanges, &over)?;
        if handling.stream.is_none() && exchanges.is_late() {
            job.give_up(Kind::Deadline);
        }
        Ok(())
    }

    /// Returns the exchange of the result, if that is a stream which the server has begun to send.
    fn stream(&self) -> Option<u32> {
        self.inside.as_ref()?.1.stream
    }

    /// Goes on to the end of the call, now that its stream has ended.
    fn forget_stream(&mut self) {
        if let Some((_, handling)) = &mut self.inside {
            handling.stream = None;
        }
    }

    /// Gives the call to the sink if its result is a stream which the server has begun to send. Returns
    /// whether it did.
    fn give_stream(&mut self, sink: Sink<'_>) -> bool {
        if self.stream().is_none() {
            return false;
        }
        let (job, inside) = (self.job.clone(), self.inside.take());
        // The stream has the call from now on: the drop of this handle cancels nothing.
        self.detached = true;
        sink(Reply::Stream(Box::new(Started { job, inside, detached: false })));
        true
    }

    /// Gives the outcome of the call, or that of the handler which has unwound it.
    fn deliver(&mut self, ended: Ended, sink: Sink<'_>) {
        match &mut self.inside {
            Some((_, handling)) => handling.leave(ended).deliver(sink),
            None => ended.deliver(sink),
        }
    }
}

impl<T: ?Sized + Interface> PendingCall for Started<T> {
    fn wait(mut self: Box<Self>, sink: Sink<'_>) {
        if self.inside.is_some() {
            if let Err(why) = self.wait_inside() {
                return sink(Reply::Failed(why.but_ran(Ran::Maybe)));
            }
            if self.give_stream(sink) {
                return;
            }
            let ended = lock(&self.job.progress).take();
            return ended.into_iter().for_each(|ended| self.deliver(ended, sink));
        }
        // If no thread has come to it yet, this does not wait for one: all of them may be waiting, for calls
        // such as this.
        self.job.wait();
        let ended = lock(&self.job.progress).take();
        if let Some(ended) = ended {
            ended.deliver(sink);
        }
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        if let Some((exchanges, handling)) = &mut self.inside {
            let epoch = exchanges.epoch();
            handling.step(&**exchanges, epoch, context);
            if handling.stream.is_some() {
                self.give_stream(sink);
                return Poll::Ready(());
            }
            exchanges.watch(0, epoch, context.waker());
        }
        let mut progress = lock(&self.job.progress);
        let Some(ended) = progress.take() else {
            progress.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        drop(progress);
        self.deliver(ended, sink);
        Poll::Ready(())
    }

    fn cancel(&mut self) {
        self.job.give_up(Kind::Cancelled);
    }

    fn detach(mut self: Box<Self>) {
        // Nobody sends the rest of an argument, so the call cannot go on.
        if OpenCall::sends(&*self) {
            return;
        }
        self.detached = true;
        // Nobody answers signals any more.
        self.inside.iter().for_each(|(exchanges, _)| exchanges.end_all());
    }
}

impl<T: ?Sized + Interface> OpenCall for Started<T> {
    fn exchanges(&self) -> Arc<dyn Exchanges> {
        self.inside.as_ref().expect("a call with a stream has exchanges").0.clone()
    }

    fn stream(&self) -> u32 {
        self.stream().expect("the server has begun to send the stream")
    }

    fn sends(&self) -> bool {
        self.inside.as_ref().is_some_and(|(_, handling)| handling.sends())
    }

    fn attend(&mut self, context: &mut Context<'_>) {
        if let Some((exchanges, handling)) = &mut self.inside {
            handling.step(&**exchanges, exchanges.epoch(), context);
        }
    }

    fn finish(mut self: Box<Self>, sink: Sink<'_>) {
        self.forget_stream();
        PendingCall::wait(self, sink);
    }

    fn poll_finish(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        self.forget_stream();
        PendingCall::poll(self, context, sink)
    }
}

impl<T: ?Sized + Interface> Drop for Started<T> {
    fn drop(&mut self) {
        if !self.detached {
            self.cancel();
        }
    }
}
