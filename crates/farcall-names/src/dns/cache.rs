//! What DNS has answered, for as long as it is good.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farcall_base::lock;

use super::lookup::Found;
use crate::{Entry, Label, Listing};

/// The most types that are kept. Further ones are asked for each time, and are not followed.
const MAX_TYPES: usize = 256;

/// How long the last answer serves when DNS is away, until it is asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long the lookups of one refresh may take that fail. One type that fails does not keep the others from
/// being asked for, and a silent DNS does not take its whole time for each of them.
const FAILURES_TAKE: Duration = Duration::from_secs(5);

/// The answers for the types that have been asked for.
pub(super) struct Cache {
    look_up: Box<LookUp>,
    state: Mutex<State>,
}

/// Asks DNS for a type. Blocks for the given time at most.
type LookUp = dyn Fn(&Label, Duration) -> Result<Found, String> + Send + Sync;

#[derive(Default)]
struct State {
    /// A number that changes when the entries of a type change.
    version: u64,
    types: BTreeMap<Label, Known>,
    /// The process that has a thread that asks anew. A forked child has a copy of this without the thread.
    refreshing: Option<u32>,
}

/// What is known of a type.
struct Known {
    entries: Vec<Entry>,
    /// Until when the entries are good.
    until: Instant,
}

impl Cache {
    pub(super) fn new(
        look_up: impl Fn(&Label, Duration) -> Result<Found, String> + Send + Sync + 'static,
    ) -> Cache {
        Cache { look_up: Box::new(look_up), state: Mutex::default() }
    }

    /// Returns the entries of a type. Asks DNS if no answer is good any more, and waits for it for `within`
    /// at most.
    ///
    /// # Errors
    /// A text that says why DNS has not answered, if nothing is known of the type.
    pub(super) fn instances(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>, String> {
        {
            let state = lock(&self.state);
            if let Some(known) = state.types.get(type_name)
                && (known.is_good_at(Instant::now()) || state.is_refreshing())
            {
                return Ok(known.entries.clone());
            }
        }
        let found = (self.look_up)(type_name, within);
        lock(&self.state).keep(type_name, found)
    }

    /// Returns the version of what is known. Starts to ask anew for what is no longer good, and does not wait
    /// for that.
    pub(super) fn version(self: &Arc<Self>) -> u64 {
        let version = {
            let mut state = lock(&self.state);
            let now = Instant::now();
            if state.is_refreshing() || state.types.values().all(|known| known.is_good_at(now)) {
                return state.version;
            }
            state.refreshing = Some(std::process::id());
            state.version
        };
        let refresh = Refresh(self.clone());
        // If no thread can be started, `refresh` is dropped, and the next question tries again.
        let _ = std::thread::Builder::new().name("farcall-dns".into()).spawn(move || refresh.run());
        version
    }

    /// Returns all that is known.
    pub(super) fn list(&self) -> Listing {
        let state = lock(&self.state);
        Listing::new(state.version, state.types.values().flat_map(|known| known.entries.clone()).collect())
    }
}

impl State {
    fn is_refreshing(&self) -> bool {
        self.refreshing == Some(std::process::id())
    }

    /// Keeps what DNS has answered for a type, or what was known before if it has not. Returns the entries.
    fn keep(&mut self, type_name: &Label, found: Result<Found, String>) -> Result<Vec<Entry>, String> {
        let known = self.types.get_mut(type_name);
        let found = found.and_then(|found| completed(found, known.as_deref()));
        let (entries, until) = match (found, known) {
            (Ok(found), _) => (found.entries, Instant::now() + found.ttl),
            (Err(_), Some(known)) => {
                known.until = Instant::now() + RETRY_AFTER;
                return Ok(known.entries.clone());
            }
            (Err(why), None) => return Err(why),
        };
        if self.types.len() >= MAX_TYPES && !self.types.contains_key(type_name) {
            return Ok(entries);
        }
        let former = self.types.insert(type_name.clone(), Known { entries: entries.clone(), until });
        if former.map(|former| former.entries).unwrap_or_default() != entries {
            self.version = self.version.wrapping_add(1);
        }
        Ok(entries)
    }
}

/// Adds what was known before of the instances whose addresses could not be found.
fn completed(mut found: Found, known: Option<&Known>) -> Result<Found, String> {
    let Some(why) = found.unresolved.values().next() else { return Ok(found) };
    let known = known.map_or(&[][..], |known| &known.entries);
    let lacking = known.iter().filter(|entry| found.unresolved.contains_key(&entry.instance));
    found.entries.extend(lacking.cloned());
    if found.entries.is_empty() {
        return Err(why.clone());
    }
    found.entries.sort_by(|a, b| a.instance.cmp(&b.instance));
    found.ttl = found.ttl.min(RETRY_AFTER);
    Ok(found)
}

impl Known {
    fn is_good_at(&self, now: Instant) -> bool {
        now < self.until
    }
}

/// Asks anew for the types whose answers have ended, in a thread of its own.
struct Refresh(Arc<Cache>);

impl Refresh {
    fn run(self) {
        let mut due: Vec<(Instant, Label)> = {
            let (state, now) = (lock(&self.0.state), Instant::now());
            let due = state.types.iter().filter(|(_, known)| !known.is_good_at(now));
            due.map(|(type_name, known)| (known.until, type_name.clone())).collect()
        };
        due.sort();
        let mut left = FAILURES_TAKE;
        for (_, type_name) in due {
            // What is not asked for now is the first in the next refresh.
            if left.is_zero() {
                break;
            }
            let began = Instant::now();
            let found = (self.0.look_up)(&type_name, left);
            if found.is_err() {
                left = left.saturating_sub(began.elapsed());
            }
            // An error leaves what was known before.
            let _ = lock(&self.0.state).keep(&type_name, found);
        }
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        lock(&self.0.state).refreshing = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn label(text: &str) -> Label {
        text.parse().unwrap()
    }

    fn entry(instance: &str) -> Entry {
        Entry::new(label("Store"), label(instance), "udp://10.0.0.7:7000".parse().unwrap(), 0)
    }

    fn found(instances: &[&str], ttl: Duration) -> Found {
        let entries = instances.iter().map(|instance| entry(instance)).collect();
        Found { entries, ttl, ..Found::default() }
    }

    /// Returns a cache whose lookups take their answers from the channel.
    fn cache() -> (Arc<Cache>, mpsc::Sender<Result<Found, String>>) {
        let (answer, answers) = mpsc::channel();
        let answers = Mutex::new(answers);
        (Arc::new(Cache::new(move |_, _| lock(&answers).recv().unwrap())), answer)
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_version_changes_with_the_entries_and_is_never_waited_for() {
        let (cache, answers) = cache();
        assert_eq!(cache.version(), 0);
        answers.send(Ok(found(&["a"], Duration::ZERO))).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("a")]);
        // This starts a thread, which waits for the answer.
        assert_eq!(cache.version(), 1);
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("a")]);
        answers.send(Ok(found(&["a", "b"], LONG))).unwrap();
        while cache.version() == 1 {
            std::thread::yield_now();
        }
        assert_eq!(cache.list().entries, [entry("a"), entry("b")]);
        assert_eq!(cache.version(), 2);
    }

    #[test]
    fn the_last_answer_stays_while_dns_is_away() {
        let (cache, answers) = cache();
        answers.send(Err("away".into())).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG), Err("away".into()));
        answers.send(Ok(found(&["a"], Duration::ZERO))).unwrap();
        cache.instances(&label("Store"), LONG).unwrap();
        answers.send(Err("away".into())).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("a")]);
        // No lookup is made within the next seconds: there is no answer for one.
        drop(answers);
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("a")]);
        assert_eq!(cache.version(), 1);
    }

    #[test]
    fn an_instance_whose_host_is_not_resolved_stays_as_it_was() {
        let (cache, answers) = cache();
        let unresolved = |instances: &[&str]| Found {
            unresolved: [(label("b"), "why".to_owned()), (label("c"), "why".to_owned())].into(),
            ..found(instances, Duration::ZERO)
        };
        answers.send(Ok(unresolved(&[]))).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG), Err("why".into()));
        answers.send(Ok(found(&["a", "b", "d"], Duration::ZERO))).unwrap();
        cache.instances(&label("Store"), LONG).unwrap();
        answers.send(Ok(unresolved(&["d", "e"]))).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("b"), entry("d"), entry("e")]);
    }

    #[test]
    fn types_beyond_the_bound_are_not_kept() {
        let (cache, answers) = cache();
        for which in 0..=MAX_TYPES {
            answers.send(Ok(found(&["a"], LONG))).unwrap();
            cache.instances(&label(&format!("T{which}")), LONG).unwrap();
        }
        assert_eq!(lock(&cache.state).types.len(), MAX_TYPES);
    }

    #[test]
    fn a_type_that_fails_does_not_keep_others_from_being_asked_for_anew() {
        let versions = Arc::new(Mutex::new(BTreeMap::<Label, u32>::new()));
        let asked = versions.clone();
        let look_up = move |type_name: &Label, _| {
            let mut asked = lock(&asked);
            let times = asked.entry(type_name.clone()).or_default();
            *times += 1;
            match (type_name.as_str(), *times) {
                ("A", 2..) => Err("the zone of A is broken".to_owned()),
                (_, 1) => Ok(found(&["a"], Duration::ZERO)),
                _ => Ok(found(&["a", "b"], LONG)),
            }
        };
        let cache = Arc::new(Cache::new(look_up));
        for type_name in ["A", "B", "C"] {
            cache.instances(&label(type_name), LONG).unwrap();
        }
        cache.version();
        while lock(&cache.state).is_refreshing() {
            std::thread::yield_now();
        }
        assert_eq!(lock(&versions).values().copied().collect::<Vec<_>>(), [2, 2, 2]);
        let known = |type_name: &str| cache.instances(&label(type_name), LONG).unwrap().len();
        assert_eq!(["A", "B", "C"].map(known), [1, 2, 2]);
    }

    #[test]
    fn a_forked_child_has_no_thread_that_asks_anew() {
        let (cache, answers) = cache();
        answers.send(Ok(found(&["a"], Duration::ZERO))).unwrap();
        cache.instances(&label("Store"), LONG).unwrap();
        lock(&cache.state).refreshing = Some(0);
        answers.send(Ok(found(&["b"], LONG))).unwrap();
        assert_eq!(cache.instances(&label("Store"), LONG).unwrap(), [entry("b")]);
    }
}
