//! A question that is under way: to servers, to a registry, or to a resolver. All threads and tasks that ask
//! the same question wait for the same answer, each until its own deadline.
//!
//! [`Asides`] asks questions that block and that cannot be interrupted, each in a thread of its own.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::context::Set;
use crate::env::{Env, Time};
use crate::{CallFailed, Kind, Ran, guard, lock};

/// The answer to a question, or why there is none.
pub type Answer<T> = Result<T, CallFailed>;

/// A question whose answer is a `T`.
pub struct Question<T>(Mutex<State<T>>);

struct State<T> {
    answer: Option<Answer<T>>,
    /// The wakers of the threads and tasks that wait for the answer, by their numbers.
    waiting: BTreeMap<u64, Waker>,
    last: u64,
}

impl<T> Default for Question<T> {
    fn default() -> Question<T> {
        Question(Mutex::new(State { answer: None, waiting: BTreeMap::new(), last: 0 }))
    }
}

impl<T: Clone> Question<T> {
    /// Waits for the answer. Gives up when `over` returns an error.
    pub async fn wait(&self, over: impl Fn() -> Result<(), CallFailed>) -> Answer<T> {
        let asker = self.ask();
        poll_fn(|context| {
            over()?;
            asker.poll(context)
        })
        .await
    }

    /// Blocks until the answer has come. Returns `None` if it has not come by `until`.
    pub fn wait_until(&self, env: &dyn Env, until: Time) -> Option<Answer<T>> {
        let _waiting = crate::serving::wait_guard();
        let (asker, event) = (self.ask(), env.event());
        let waker = Waker::from(Arc::new(Set(event.clone())));
        loop {
            if let Poll::Ready(answer) = asker.poll(&mut Context::from_waker(&waker)) {
                return Some(answer);
            }
            let left = until.since(env.now());
            if left.is_zero() {
                return None;
            }
            event.wait(Some(left));
        }
    }

    /// Returns a handle with which one thread or task waits for the answer.
    pub fn ask(&self) -> Asker<'_, T> {
        let mut state = lock(&self.0);
        state.last += 1;
        Asker { question: self, number: state.last }
    }
}

/// A thread or task that waits for an answer.
pub struct Asker<'a, T> {
    question: &'a Question<T>,
    number: u64,
}

impl<T: Clone> Asker<'_, T> {
    /// Returns the answer if it has come. Otherwise `context` is woken when the answer comes.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let mut state = lock(&self.question.0);
        if let Some(answer) = &state.answer {
            return Poll::Ready(answer.clone());
        }
        state.waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Asker<'_, T> {
    fn drop(&mut self) {
        lock(&self.question.0).waiting.remove(&self.number);
    }
}

/// Answers a question when this is dropped, even if the thread or task that looks for the answer panics.
pub struct Answering<T, F: FnMut()> {
    question: Arc<Question<T>>,
    answer: Option<Answer<T>>,
    forget: F,
}

impl<T, F: FnMut()> Answering<T, F> {
    /// Returns an answerer, whose drop answers the question: with `unanswered`, unless [`Answering::find`]
    /// has set another answer. The drop first runs `forget`, which must make later askers ask again.
    pub fn new(question: &Arc<Question<T>>, unanswered: CallFailed, forget: F) -> Answering<T, F> {
        Answering { question: question.clone(), answer: Some(Err(unanswered)), forget }
    }

    /// Sets the answer that the drop gives.
    pub fn find(&mut self, answer: Answer<T>) {
        self.answer = Some(answer);
    }
}

impl<T, F: FnMut()> Drop for Answering<T, F> {
    fn drop(&mut self) {
        (self.forget)();
        let waiting = {
            let mut state = lock(&self.question.0);
            state.answer = self.answer.take();
            std::mem::take(&mut state.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }
}

/// Questions that block, asked by threads of their own. A thread whose answer is late is left alone, and its
/// answer serves whoever asks the same meanwhile. The number of threads is bounded; further questions wait
/// for one.
pub struct Asides<K, T>(Mutex<AsideState<K, T>>);

struct AsideState<K, T> {
    /// The questions that have no answer yet.
    under_way: HashMap<K, UnderWay<T>>,
    /// The questions that wait for a thread.
    queue: VecDeque<Job>,
    threads: usize,
}

type Job = Box<dyn FnOnce() + Send>;

struct UnderWay<T> {
    question: Arc<Question<T>>,
    /// When the thread itself stops looking for the answer; `None` if nobody can tell.
    until: Option<Time>,
}

/// The most threads that look for answers of one kind at the same time.
const MAX_ASIDE_THREADS: usize = 64;

/// The most questions of one kind that have no answer yet.
const MAX_ASIDES: usize = 16_384;

impl<K, T> Default for Asides<K, T> {
    fn default() -> Asides<K, T> {
        Asides(Mutex::new(AsideState { under_way: HashMap::new(), queue: VecDeque::new(), threads: 0 }))
    }
}

impl<K, T> Asides<K, T>
where
    K: Clone + Eq + Hash + fmt::Display + Send + 'static,
    T: Clone + Send + 'static,
{
    /// Returns the question that `key` names: the one that is under way, or a new one, which a thread answers
    /// by `answer`. `until` says when `answer` stops looking, if it does. A question that stops looking much
    /// earlier than that is not shared.
    ///
    /// # Errors
    /// When too many other questions are under way, or there is no thread and none can be started.
    pub fn ask(
        self: &Arc<Self>,
        env: &Arc<dyn Env>,
        key: &K,
        until: Option<Time>,
        answer: impl FnOnce() -> Answer<T> + Send + 'static,
    ) -> Answer<Arc<Question<T>>> {
        let question = Arc::new(Question::default());
        {
            let mut state = lock(&self.0);
            if let Some(former) = state.under_way.get(key).filter(|former| former.serves(until, env.now())) {
                return Ok(former.question.clone());
            }
            if state.under_way.len() >= MAX_ASIDES {
                let why = format!("{MAX_ASIDES} others are being looked for: try {key} again later");
                return Err(CallFailed::new(Kind::Overloaded, Ran::No).because(why));
            }
            state.under_way.insert(key.clone(), UnderWay { question: question.clone(), until });
        }
        let (asides, asked, ours) = (self.clone(), key.clone(), question.clone());
        let forget = move || {
            let mut state = lock(&asides.0);
            // A question that looks for longer may have taken its place.
            if state.under_way.get(&asked).is_some_and(|present| Arc::ptr_eq(&present.question, &ours)) {
                state.under_way.remove(&asked);
            }
        };
        let why = format!("{key} is not known so far");
        let unanswered = CallFailed::new(Kind::Unreachable, Ran::No).because(why);
        let mut answering = Answering::new(&question, unanswered, forget);
        self.run(
            env,
            Box::new(move || {
                // The user's registry may panic.
                if let Ok(found) = guard::run(answer) {
                    answering.find(found);
                }
            }),
        )?;
        Ok(question)
    }

    /// Has a thread run a job. If the job is dropped instead, that answers its question.
    fn run(self: &Arc<Self>, env: &Arc<dyn Env>, job: Job) -> Result<(), CallFailed> {
        {
            let mut state = lock(&self.0);
            if state.threads >= MAX_ASIDE_THREADS {
                state.queue.push_back(job);
                return Ok(());
            }
            state.threads += 1;
        }
        let mut thread = AsideThread { asides: self.clone(), has_left: false };
        let work = move || {
            let mut next = Some(job);
            while let Some(job) = next {
                job();
                next = thread.next_job();
            }
        };
        let spawned = env.spawn("farcall-aside", Box::new(work));
        spawned.map_err(|why| CallFailed::local("starting a thread", why))
    }
}

/// A thread that looks for answers.
struct AsideThread<K, T> {
    asides: Arc<Asides<K, T>>,
    /// Whether the thread counts no more.
    has_left: bool,
}

impl<K, T> AsideThread<K, T> {
    /// Returns the next question that waits for a thread. If there is none, this thread counts no more.
    fn next_job(&mut self) -> Option<Job> {
        let mut state = lock(&self.asides.0);
        let next = state.queue.pop_front();
        if next.is_none() {
            state.threads -= 1;
            self.has_left = true;
        }
        next
    }
}

impl<K, T> Drop for AsideThread<K, T> {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        // The thread could not be started, or was unwound, as in a simulated process that was killed. Then
        // the questions that nobody would answer are dropped.
        let left = {
            let mut state = lock(&self.asides.0);
            state.threads -= 1;
            if state.threads == 0 { std::mem::take(&mut state.queue) } else { VecDeque::new() }
        };
        drop(left);
    }
}

impl<T> UnderWay<T> {
    /// Returns whether the question serves an asker who waits until `until`: it looks for an answer for at
    /// least half of the time that the asker has. So askers who come one after another, each with a little
    /// more time than the last, start few threads.
    fn serves(&self, until: Option<Time>, now: Time) -> bool {
        match (self.until, until) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(ours), Some(theirs)) => ours.since(now) * 2 >= theirs.since(now),
        }
    }
}
