//! Balances calls over the members of a group: each call goes to one member, which is chosen when it is made.
//!
//! | file | job |
//! |---|---|
//! | `health.rs` | what is known of a member: its latency, its outstanding calls, its failures |
//! | `picker.rs` | chooses a member |
//! | `ejection.rs` | takes members out that fail more than the others |
//! | `channel.rs` | carries the calls of a balanced stub |

mod channel;
mod ejection;
mod health;
mod picker;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::env::{Env, Time};
use crate::{guard, lock};

use crate::stub::{Binding, Client, Member, Roster};

use channel::Balanced;
use ejection::Ejections;
use health::Health;
use picker::Picker;

/// How long the members of a group are taken as known. Then the group is asked for them again.
const MEMBERS_KNOWN_FOR: Duration = Duration::from_millis(100);

/// Chooses a member of a group for each call, by what its earlier calls have shown of the members.
///
/// [`Group::balancer`](crate::Group::balancer) makes one. Its stubs share what they learn. Clones are the
/// same balancer.
///
/// - The latency of a member is a moving average that follows rises at once and falls slowly ("peak EWMA"). A
///   call goes to the better one of two members that are drawn by chance: the one whose latency times (its
///   outstanding calls + 1) is less. A member that answers nothing counts as being as slow as it has been
///   silent.
/// - A failure for which the member is to blame counts as a long latency, so that a server that refuses fast
///   attracts nobody. A member that fails five times in a row, or much more often than the others, is taken
///   out for some seconds, and longer each time; then one call tries it. At most half of the members are out.
/// - A call that did not run goes to another member, twice at most. About a tenth of all calls may do so.
/// - A member that joins gets its share over ten seconds.
///
/// ```
/// # #[farcall::interface]
/// # pub trait Echo { fn echo(&self, text: &str) -> farcall::Result<String>; }
/// # struct Server;
/// # impl Echo for Server { fn echo(&self, text: &str) -> farcall::Result<String> { Ok(text.to_owned()) } }
/// use std::sync::Arc;
/// use farcall::Group;
///
/// let one = || farcall::stub::local::<dyn Echo>(Arc::new(Server));
/// let balancer = Group::of([("a", one()), ("b", one())]).balancer();
/// assert_eq!(balancer.stub().echo("to one of them").unwrap(), "to one of them");
/// assert_eq!(balancer.sticky("user 7").echo("to the member of user 7").unwrap(), "to the member of user 7");
/// assert_eq!(balancer.members().iter().map(|member| member.calls).sum::<u64>(), 2);
/// ```
pub struct Balancer<C> {
    shared: Arc<Shared>,
    client: std::marker::PhantomData<fn() -> C>,
}

/// How a stub chooses among the members that are not out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The better one of two by chance.
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
    /// The one with the highest hash of its name and this key.
    Sticky(u64),
}

/// The state of a member, for people and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberState {
    /// The member's name.
    pub name: Arc<str>,
    /// How many calls it got.
    pub calls: u64,
    /// How many of them failed for which it is to blame.
    pub failures: u64,
    /// How many of them have not ended.
    pub outstanding: u32,
    /// The average of its latency; `None` if it is not known yet.
    pub latency: Option<Duration>,
    /// How long it is out yet, and how often it was taken out since it last was in for long; `None` if it is
    /// in.
    pub out: Option<(Duration, u32)>,
}

/// What the stubs of a balancer share.
struct Shared {
    roster: Arc<dyn Roster>,
    env: Arc<dyn Env>,
    picker: Picker,
    ejections: Ejections,
    retries: channel::RetryBudget,
    /// Calls that were made while there was one member.
    unlooked: AtomicU32,
    /// When the group is asked for its members again, in nanoseconds.
    due: AtomicU64,
    state: Mutex<State>,
}

struct State {
    choices: Arc<[Choice]>,
    /// Whether a thread asks the group.
    asking: bool,
    /// What is known of members by their names.
    known: HashMap<Arc<str>, Arc<Health>>,
}

/// A member that a call can go to.
#[derive(Clone)]
struct Choice {
    member: Member,
    health: Arc<Health>,
    /// A hash of the member's name.
    hash: u64,
}

impl<C: Client> Balancer<C> {
    /// Returns a balancer of a group's members.
    pub(crate) fn new(roster: Arc<dyn Roster>) -> Balancer<C> {
        let members = roster.members();
        let env = members.first().map_or_else(
            || Arc::new(crate::System) as Arc<dyn Env>,
            |member| member.binding().channel().env(),
        );
        let mut seed = [0; 8];
        env.entropy(&mut seed);
        let now = env.now();
        let shared = Shared {
            picker: Picker::new(u64::from_ne_bytes(seed)),
            ejections: Ejections::new(now),
            retries: channel::RetryBudget::default(),
            unlooked: AtomicU32::new(1),
            due: AtomicU64::default(),
            state: Mutex::new(State { choices: Arc::new([]), asking: false, known: HashMap::new() }),
            roster,
            env,
        };
        // The first members begin with their whole share.
        shared.renew(&members, now, false);
        Balancer { shared: Arc::new(shared), client: std::marker::PhantomData }
    }

    /// Returns a stub whose calls go to the better one of two members by chance.
    pub fn stub(&self) -> C {
        self.stub_by(Policy::PowerOfTwo)
    }

    /// Returns a stub whose calls go to one member after the other.
    pub fn round_robin(&self) -> C {
        self.stub_by(Policy::RoundRobin)
    }

    /// Returns a stub whose calls go to the member of a key, as long as that member is not out. When a member
    /// joins or leaves, only its own keys move (rendezvous hashing). Processes agree on the member of a key
    /// if they see the same members.
    pub fn sticky(&self, key: impl AsRef<[u8]>) -> C {
        self.stub_by(Policy::Sticky(picker::hash(key.as_ref())))
    }

    /// Returns the state of each member.
    pub fn members(&self) -> Vec<MemberState> {
        let now = self.shared.env.now();
        let choices = self.shared.choices(now);
        choices.iter().map(|choice| choice.health.state(choice.member.shared_name(), now)).collect()
    }

    fn stub_by(&self, policy: Policy) -> C {
        C::from(Binding::new(Arc::new(Balanced { shared: self.shared.clone(), policy })))
    }
}

impl Shared {
    /// Returns the members that were known last.
    #[inline]
    fn known(&self) -> Arc<[Choice]> {
        lock(&self.state).choices.clone()
    }

    /// Returns whether it may be time to ask for the members. The clock is read for one call in 32.
    #[inline]
    fn is_due(&self) -> bool {
        const CALLS_PER_LOOK: u32 = 32;
        self.unlooked.fetch_add(1, Relaxed).is_multiple_of(CALLS_PER_LOOK)
    }

    /// Has the next call look whether it is time to ask for the members.
    fn look_at_next_call(&self) {
        self.unlooked.store(0, Relaxed);
    }

    /// Returns whether it is time to ask the group for its members.
    #[inline]
    fn is_due_at(&self, now: Time) -> bool {
        now.as_nanos() >= self.due.load(Relaxed)
    }

    /// Returns the present members.
    fn choices(&self, now: Time) -> Arc<[Choice]> {
        {
            let mut state = lock(&self.state);
            if !self.is_due_at(now) || state.asking {
                return state.choices.clone();
            }
            state.asking = true;
        }
        // Asking may take long and runs the user's registry, so no lock is held. Other calls go to the
        // members that are known.
        match guard::run(|| self.roster.members()) {
            // The time counts from now, because asking may have taken longer than members are taken as known.
            Ok(members) => self.renew(&members, self.env.now(), true),
            Err(_) => {
                lock(&self.state).asking = false;
                self.due.store((self.env.now() + MEMBERS_KNOWN_FOR).as_nanos(), Relaxed);
                self.known()
            }
        }
    }

    /// Notes the present members of the group. One that was not known begins `slowly`, or with its whole
    /// share.
    fn renew(&self, members: &[Member], now: Time, slowly: bool) -> Arc<[Choice]> {
        let mut state = lock(&self.state);
        state.asking = false;
        self.due.store((now + MEMBERS_KNOWN_FOR).as_nanos(), Relaxed);
        let same = state.choices.len() == members.len()
            && state
                .choices
                .iter()
                .zip(members)
                .all(|(choice, member)| choice.member.name() == member.name());
        if same {
            return state.choices.clone();
        }
        let begins = slowly && !state.choices.is_empty();
        let mut known = HashMap::with_capacity(members.len());
        let choice = |member: &Member| {
            let health = match state.known.get(member.name()) {
                Some(health) => health.clone(),
                None => Arc::new(Health::new(now, begins)),
            };
            known.insert(member.shared_name(), health.clone());
            Choice { member: member.clone(), health, hash: picker::hash(member.name().as_bytes()) }
        };
        let choices: Arc<[Choice]> = members.iter().map(choice).collect();
        (state.choices, state.known) = (choices.clone(), known);
        choices
    }
}

impl<C> Clone for Balancer<C> {
    fn clone(&self) -> Self {
        Balancer { shared: self.shared.clone(), client: std::marker::PhantomData }
    }
}

impl<C> fmt::Debug for Balancer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Balancer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
