//! Asks the registry, within the deadline of whoever binds.
//!
//! A registry that [keeps deadlines](Registry::keeps_deadlines) is told how much time is left. Any other is
//! the user's, and may block for as long as it likes. It is asked in a thread of its own, which is left alone
//! when the deadline has passed. So is any registry that a task asks: tasks share few threads, and the call
//! that a task makes may be cancelled meanwhile.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use farcall_core::broken::Rule;
use farcall_names::{Entry, Label, Name, Registry};

use super::tasks::Tasks;
use super::{Inner, registry_failed};
use crate::env::{Env, Time, breaks};
use crate::question::{Answer, Asides, Question};
use crate::{CallFailed, Kind, Ran};

/// What a registry is asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Wanted {
    Instances(Label),
    /// Not from a copy that may be behind the registry.
    InstancesNow(Label),
    Instance(Label, Label),
    Version,
}

/// A question to the registry. Calls that ask an equal question share one answer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Asked {
    wanted: Wanted,
    /// A number of its own for a question whose answer must be no older than the question; otherwise 0.
    asker: u64,
}

/// What a registry has answered.
#[derive(Clone)]
pub(super) enum Found {
    Entries(Vec<Entry>),
    Version(u64),
}

/// The registry of a runtime, for those that ask it. It does not keep the runtime.
pub(super) struct Lookups {
    env: Arc<dyn Env>,
    registry: Arc<dyn Registry>,
    /// The questions that threads of their own ask.
    aside: Arc<Asides<Asked, Found>>,
    /// Work that asks the registry in the background, by numbers.
    background: Arc<Asides<u64, ()>>,
    /// When the registry did not answer a [brief](Lookups::ask_briefly) question in time, in nanoseconds; 0
    /// if it did not last.
    silent_at: AtomicU64,
}

/// After a brief question without an answer, none is asked for this long.
const BRIEF_PAUSE: Duration = Duration::from_secs(1);

impl Inner {
    /// Returns the entries of a type or of an instance, with `anew` not from a copy that may be behind the
    /// registry. Blocks until the deadline at most.
    pub(super) fn entries(&self, name: &Name, anew: bool, deadline: Option<Time>) -> Answer<Vec<Entry>> {
        self.names()?;
        Ok(self.lookups.ask(&Wanted::of(name, anew)?, deadline)?.into_entries())
    }

    /// Returns the entries of a type or of an instance, on behalf of a task. Gives up when `over` returns an
    /// error.
    pub(super) async fn entries_later(
        self: &Arc<Self>,
        name: &Name,
        anew: bool,
        deadline: Option<Time>,
        over: &impl Fn() -> Result<(), CallFailed>,
    ) -> Answer<Vec<Entry>> {
        let wanted = Wanted::of(name, anew)?;
        if breaks(Rule::TasksAskAside, || self.env.clone()) && self.registry.keeps_deadlines() {
            return Tasks::run_blocking(self, || self.entries(name, anew, deadline));
        }
        Tasks::run_blocking(self, || self.names().map(drop))?;
        let asker = if anew { self.random() } else { 0 };
        Ok(self.lookups.ask_aside(Asked { wanted, asker })?.wait(over).await?.into_entries())
    }
}

impl Lookups {
    pub(super) fn new(env: &Arc<dyn Env>, registry: &Arc<dyn Registry>) -> Lookups {
        let (aside, background) = Default::default();
        let silent_at = AtomicU64::new(0);
        Lookups { env: env.clone(), registry: registry.clone(), aside, background, silent_at }
    }

    /// Asks the registry on behalf of somebody who can do without the answer. Blocks until the deadline at
    /// most, and not at all if the registry has just been found silent.
    pub(super) fn ask_briefly(&self, wanted: &Wanted, deadline: Time) -> Option<Found> {
        let silent_at = self.silent_at.load(Relaxed);
        if silent_at != 0 && self.env.now() < Time::from_nanos(silent_at) + BRIEF_PAUSE {
            return None;
        }
        let found = self.ask(wanted, Some(deadline));
        let now = self.env.now();
        let is_silent = found.is_err() && now >= deadline;
        self.silent_at.store(if is_silent { now.as_nanos() } else { 0 }, Relaxed);
        found.ok()
    }

    /// Asks the registry. Blocks until the deadline at most.
    ///
    /// # Errors
    /// The registry's, or [`Kind::Deadline`] if it has not answered in time.
    pub(super) fn ask(&self, wanted: &Wanted, deadline: Option<Time>) -> Answer<Found> {
        let Some(deadline) = deadline else {
            return wanted.ask(&*self.registry, None).map_err(registry_failed);
        };
        let left = deadline.since(self.env.now());
        if left.is_zero() {
            return Err(late(wanted));
        }
        if self.registry.keeps_deadlines() {
            let found = wanted.ask(&*self.registry, Some(left));
            return found.map_err(|why| match deadline <= self.env.now() {
                true => late(wanted).caused_by(why),
                false => registry_failed(why),
            });
        }
        crate::client::may_wait(&self.env)?;
        self.ask_aside(Asked { wanted: wanted.clone(), asker: 0 })?
            .wait_until(&*self.env, deadline)
            .unwrap_or_else(|| Err(late(wanted)))
    }

    /// Returns the question to the registry that is under way, or starts one.
    fn ask_aside(&self, asked: Asked) -> Answer<Arc<Question<Found>>> {
        let (registry, wanted) = (self.registry.clone(), asked.wanted.clone());
        let answer = move || wanted.ask(&*registry, None).map_err(registry_failed);
        self.aside.ask(&self.env, &asked, None, answer)
    }

    /// Runs `work`, which asks the registry, in a thread of its own. Neither keeps the runtime, which may end
    /// meanwhile with its sockets.
    ///
    /// # Errors
    /// When there is no thread and none can be started.
    pub(super) fn ask_in_background(
        self: &Arc<Self>,
        number: u64,
        work: impl FnOnce(&Lookups) + Send + 'static,
    ) -> Answer<()> {
        let lookups = self.clone();
        let work = move || {
            work(&lookups);
            Ok(())
        };
        self.background.ask(&self.env, &number, None, work).map(drop)
    }
}

impl Wanted {
    /// Returns what to ask a registry for so that a name can be bound.
    ///
    /// # Errors
    /// When it is a name that no registry knows.
    fn of(name: &Name, anew: bool) -> Result<Wanted, CallFailed> {
        match name {
            Name::Type(type_name) if anew => Ok(Wanted::InstancesNow(type_name.clone())),
            Name::Type(type_name) => Ok(Wanted::Instances(type_name.clone())),
            Name::Instance { type_name, instance } => {
                Ok(Wanted::Instance(type_name.clone(), instance.clone()))
            }
            other => {
                let why = format!("this version cannot bind {other}");
                Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why))
            }
        }
    }

    fn ask(&self, registry: &dyn Registry, within: Option<Duration>) -> farcall_names::Result<Found> {
        let entries = match (self, within) {
            (Wanted::Version, None) => return registry.version().map(Found::Version),
            (Wanted::Version, Some(within)) => return registry.version_within(within).map(Found::Version),
            (Wanted::Instances(type_name), None) => registry.instances(type_name)?,
            (Wanted::Instances(type_name), Some(within)) => registry.instances_within(type_name, within)?,
            (Wanted::InstancesNow(type_name), within) => {
                registry.instances_now(type_name, within.unwrap_or(Duration::MAX))?
            }
            (Wanted::Instance(type_name, instance), within) => {
                let found = match within {
                    None => registry.lookup(type_name, instance)?,
                    Some(within) => registry.lookup_within(type_name, instance, within)?,
                };
                found.into_iter().collect()
            }
        };
        Ok(Found::Entries(self.fitting(entries)))
    }

    /// Returns the entries that answer the question, each name once. A hostile registry could otherwise have a
    /// member counted several times in a majority, or send callers of one name to another.
    fn fitting(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        entries.retain(|entry| match self {
            Wanted::Instances(type_name) | Wanted::InstancesNow(type_name) => entry.type_name == *type_name,
            Wanted::Instance(type_name, instance) => {
                (&entry.type_name, &entry.instance) == (type_name, instance)
            }
            Wanted::Version => false,
        });
        // Registries list instances by ascending name, so there is rarely anything to look for.
        if !entries.is_sorted_by(|one, next| one.instance < next.instance) {
            let mut listed = HashSet::new();
            entries.retain(|entry| listed.insert(entry.instance.clone()));
        }
        entries
    }
}

impl Found {
    pub(super) fn into_entries(self) -> Vec<Entry> {
        match self {
            Found::Entries(entries) => entries,
            Found::Version(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wanted.fmt(f)
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Instances(type_name) | Wanted::InstancesNow(type_name) => {
                write!(f, "{type_name} in the registry")
            }
            Wanted::Instance(type_name, instance) => write!(f, "{type_name}/{instance} in the registry"),
            Wanted::Version => f.write_str("the version of the registry"),
        }
    }
}

#[cold]
fn late(wanted: &Wanted) -> CallFailed {
    CallFailed::new(Kind::Deadline, Ran::No).because(format!("{wanted} is not known so far"))
}
