//! Asks a silent server in the background whether it answers again, so that no call of a group or of a
//! balancer has to find out. RPC2 marks such a connection as broken (Satyanarayanan & Siegel 1990, section
//! IV).

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use super::import::Importer;
use super::started;
use super::tasks::Tasks;
use crate::builtin::HEALTH;
use crate::client::CallRequest;
use crate::env::Time;
use crate::stub::{Call, NO_HANDLERS, PendingCall, Reply};
use crate::{CallFailed, Kind, Ran, lock};

/// A server that is only suspected counts as silent when it has not answered for this long.
pub(super) const SUSPICION: Duration = Duration::from_secs(1);

/// The time between the failure of one question and the next question.
const PAUSE: Duration = Duration::from_secs(1);

/// A silent server is not asked any more when no group and no balancer has looked for this long. The next
/// call then finds out itself.
const INTEREST: Duration = Duration::from_secs(30);

/// What an importer knows of the silence of its server, once a group or a balancer has looked.
#[derive(Default)]
pub(super) struct Silence {
    /// Whether the server is being asked.
    asks: AtomicBool,
    /// When a group or a balancer last looked, in nanoseconds.
    looked: AtomicU64,
    evidence: Mutex<Option<Evidence>>,
}

/// Why a server is asked.
struct Evidence {
    since: Time,
    /// Whether a call has failed because the server answers nothing, and not only for lack of time.
    is_certain: bool,
}

impl Silence {
    /// Returns whether the server is being asked. Notes that somebody looks.
    #[inline]
    fn is_asked(&self, now: impl FnOnce() -> Time) -> bool {
        let asks = self.asks.load(Ordering::Relaxed);
        if asks {
            self.looked.store(now().as_nanos(), Ordering::Relaxed);
        }
        asks
    }

    /// Returns how calls would fail that are made now, if the server is known to be silent.
    #[cold]
    fn failure(&self, now: Time, name: &dyn std::fmt::Display) -> Option<CallFailed> {
        let evidence = lock(&self.evidence);
        let Evidence { since, is_certain } = evidence.as_ref()?;
        let silent = now.since(*since);
        if !is_certain && silent < SUSPICION {
            return None;
        }
        let why = format!(
            "{name} has been silent for {:.1} s; it is asked in the background and called again when it answers",
            silent.as_secs_f64()
        );
        Some(CallFailed::new(Kind::Unreachable, Ran::No).because(why))
    }

    /// Notes that the server is asked no more.
    fn end(&self) {
        *lock(&self.evidence) = None;
        self.asks.store(false, Ordering::Relaxed);
    }
}

impl Importer {
    /// Returns how calls would fail that are made now, if the server is known to be silent.
    #[inline]
    pub(super) fn known_silence(&self) -> Option<CallFailed> {
        if !self.is_asked() {
            return None;
        }
        self.silence.get()?.failure(self.inner.env.now(), &self.name)
    }

    /// Returns whether the server is being asked in the background. From the first time on, the importer
    /// notes when its server is silent.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.silence.get_or_init(Box::default).is_asked(|| self.inner.env.now())
    }

    /// Asks the server in the background whether it answers, if a call has failed so that it may not. Does so
    /// only if a group or a balancer uses the import.
    pub(super) fn suspect(&self, failure: Kind) {
        let Some(silence) = self.silence.get() else { return };
        let is_certain = failure == Kind::Unreachable;
        if !is_certain && failure != Kind::Deadline {
            return;
        }
        let now = self.inner.env.now();
        {
            let mut evidence = lock(&silence.evidence);
            let known = evidence.get_or_insert(Evidence { since: now, is_certain });
            known.is_certain |= is_certain;
        }
        if !silence.asks.swap(true, Ordering::Relaxed) {
            silence.looked.store(now.as_nanos(), Ordering::Relaxed);
            ask(self.me.clone(), &self.inner, None);
        }
    }
}

/// Starts a task that asks the server of an import, not before `from`. If the server does not answer, another
/// task asks again. Between two questions only a weak reference keeps the import.
fn ask(importer: Weak<Importer>, inner: &Arc<super::Inner>, from: Option<Time>) {
    let env = inner.env.clone();
    let asked = importer.clone();
    let steps = async move {
        poll_fn(|_| if from.is_some_and(|from| env.now() < from) { Poll::Pending } else { Poll::Ready(()) })
            .await;
        let Some(importer) = asked.upgrade() else { return };
        let Some(silence) = importer.silence.get() else { return };
        let now = env.now().as_nanos();
        let is_forgotten =
            now.saturating_sub(silence.looked.load(Ordering::Relaxed)) > INTEREST.as_nanos() as u64;
        if is_forgotten || answers(&importer).await {
            return silence.end();
        }
        if let Some(evidence) = &mut *lock(&silence.evidence) {
            evidence.is_certain = true;
        }
        ask(importer.me.clone(), &importer.inner, Some(env.now() + PAUSE));
    };
    // If no thread can be started, the next call finds out itself.
    if Tasks::spawn(inner, from, Box::pin(steps)).is_err()
        && let Some(importer) = importer.upgrade()
        && let Some(silence) = importer.silence.get()
    {
        silence.end();
    }
}

/// Returns whether the server answers a question after its health. Any answer will do, also a refusal.
async fn answers(importer: &Arc<Importer>) -> bool {
    let mut question = start_question(importer);
    let mut answered = false;
    poll_fn(|context| {
        question.poll(context, &mut |reply| {
            // Where the registry fails, the server was not asked.
            answered = match reply {
                Reply::Failed(why) => {
                    !matches!(why.kind(), Kind::Unreachable | Kind::Deadline | Kind::Local | Kind::Registry)
                }
                _ => true,
            };
        })
    })
    .await;
    answered
}

fn start_question(importer: &Arc<Importer>) -> Box<dyn PendingCall> {
    let call = Call {
        procedure: &HEALTH,
        within: None,
        encode: &|_| Ok(()),
        shared: None,
        handlers: &NO_HANDLERS,
        sending: None,
        carries: &[],
        hurries: false,
    };
    started::start(importer, &CallRequest { call: &call, deadline: None, begin_by: None, trace: None })
}
