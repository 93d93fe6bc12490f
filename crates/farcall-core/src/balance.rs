//! Balances calls over the members of a group: each call goes to one member, which is chosen when it is made.
//!
//! | file | job |
//! |---|---|
//! | `health.rs` | what is known of a member: its latency, its outstanding calls, its failures |
//! | `picker.rs` | chooses a member |
//! | `ejection.rs` | takes members out that fail more than the others |
//! | `list.rs` | holds the members that calls go to |
//! | `channel.rs` | carries the calls of a balanced stub |
//! | `attempts.rs` | bounds the attempts of a call, each at another member |
//! | `started.rs` | started calls |
//! | `watched.rs` | notes the calls of a member that a group call makes |

mod attempts;
mod channel;
mod ejection;
mod health;
mod list;
mod picker;
mod started;
mod watched;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::env::{Env, Event, Time};
use crate::stub::{Binding, Call, Channel, Client, Member, Members, Reply, Roster, Sink, hash};
use crate::{CallFailed, Kind, Ran, guard, lock};

use attempts::RetryBudget;
use channel::Balanced;
use ejection::Ejections;
use health::{Health, Verdict};
use list::List;
use picker::Picker;
use watched::Watched;

#[doc(hidden)]
pub use crate::member_state::ShowMembers;
pub use crate::member_state::{MemberState, Out, WhyOut};

/// How long the members of a group are taken as known. Then the group is asked for them again.
const MEMBERS_KNOWN_FOR: Duration = Duration::from_millis(100);

/// How long a call waits for another thread that asks, after it has met a member that is leaving.
const MAX_WAIT_FOR_MEMBERS: Duration = Duration::from_secs(1);

/// How many members of a group a balancer uses if the program does not say.
pub(crate) const MAX_MEMBERS: usize = 100;

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
/// - A member that does not answer is asked in the background whether it does, before a call tries it. A call
///   with a deadline that its member has not begun in half of its time goes to another one, if it was not sent
///   or is idempotent.
/// - A member that joins gets its share over ten seconds.
/// - While the registry lists nobody who takes calls, the members that it listed before stay as long as they
///   take calls, for ten minutes at most. A call with a deadline that the only member has not begun in half
///   of its time goes to one of them.
/// - Of a group of more than 100 members, 100 get calls: those on this machine first, then the ones with the
///   highest hashes of their names and a random number. So the clients of a large group spread over it, and
///   each has few connections. [`Group::balancer_of_at_most`](crate::Group::balancer_of_at_most) sets another
///   bound.
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
    /// The better one of two by chance of those on this machine, as long as one of these is not out.
    LocalFirst,
    /// One after the other.
    RoundRobin,
    /// The one with the highest hash of its name and this key.
    Sticky(u64),
}

/// What the stubs of a balancer share.
struct Shared {
    roster: Arc<dyn Roster>,
    /// How many members are used at most, and the number on which it depends which ones.
    subset: (usize, u64),
    env: Arc<dyn Env>,
    picker: Picker,
    ejections: Ejections,
    retries: RetryBudget,
    /// Calls that were made while there was one member.
    unlooked: AtomicU32,
    /// When the group is asked for its members again, in nanoseconds.
    due: AtomicU64,
    /// The members that are known. Only a thread that holds `state` sets them.
    list: List,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a thread asks the group.
    asking: bool,
    /// How often the group was asked, and the number of the last such question that has ended.
    asked: u64,
    answered: u64,
    /// Threads that need its answer, because the member that they met is leaving.
    waiting: Vec<Arc<dyn Event>>,
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
    /// Returns a balancer of at most `most` of a group's members, and at least one.
    pub(crate) fn new(roster: Arc<dyn Roster>, most: usize) -> Balancer<C> {
        Balancer { shared: Shared::new(roster, most.max(1)), client: std::marker::PhantomData }
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
        self.stub_by(Policy::Sticky(hash(key.as_ref())))
    }

    /// Returns a stub whose calls go to the members on this machine, as long as one of them is not out, and
    /// otherwise to the others; each time to the better one of two by chance. A member is known to be on this
    /// machine if it is in this process, if its address is a loopback address, or if the registry says that
    /// its process runs here.
    ///
    /// ```no_run
    /// # #[farcall::interface]
    /// # pub trait Store { fn get(&self, key: &str) -> farcall::Result<u64>; }
    /// # fn main() -> farcall::Result<()> {
    /// let store = farcall::import_all::<dyn Store>("Store")?.balancer().local_first();
    /// store.get("answer")?; // to an instance on this machine, if there is one
    /// # Ok(())
    /// # }
    /// ```
    pub fn local_first(&self) -> C {
        self.stub_by(Policy::LocalFirst)
    }

    /// Returns the `count` members that are best for a call now, the best first. Their calls are noted.
    pub(crate) fn best(&self, count: usize) -> Members {
        let shared = &self.shared;
        let now = shared.env.now();
        let choices = shared.choices(now, None);
        shared.ejections.look(&choices, now);
        let best = shared.picker.best(&choices, count, now);
        Members::new(best.into_iter().map(|which| Watched::member(shared, &choices, which)).collect())
    }

    /// Returns the state of each member.
    pub fn members(&self) -> Vec<MemberState> {
        let shared = &self.shared;
        let now = shared.env.now();
        states(&shared.choices(now, None), now)
    }

    fn stub_by(&self, policy: Policy) -> C {
        C::from(Binding::new(Arc::new(Balanced { shared: self.shared.clone(), policy })))
    }
}

fn states(choices: &[Choice], now: Time) -> Vec<MemberState> {
    let all: u64 = choices.iter().map(|choice| choice.health.counts().0).sum();
    let state = |choice: &Choice| {
        let (calls, failures, outstanding) = choice.health.counts();
        // The calls of the only member are not counted.
        let share = match (calls, choices.len()) {
            (_, 1) => 1.0,
            (0, _) => 0.0,
            (calls, _) => calls as f64 / all as f64,
        };
        MemberState {
            name: choice.member.shared_name(),
            on_this_machine: choice.member.is_on_this_machine(),
            calls,
            share,
            failures,
            outstanding,
            latency: choice.health.average(),
            out: choice.health.why_out(now),
        }
    };
    choices.iter().map(state).collect()
}

impl Choice {
    #[inline]
    fn channel(&self) -> &Arc<dyn Channel> {
        self.member.binding().channel()
    }
}

impl Shared {
    fn new(roster: Arc<dyn Roster>, most: usize) -> Arc<Shared> {
        let env = roster.env();
        let random = || {
            let mut number = [0; 8];
            env.entropy(&mut number);
            u64::from_ne_bytes(number)
        };
        let subset = (most, random());
        let members = roster.at_most(subset.0, subset.1, None);
        members.join(Members::JOIN_TIME);
        let now = env.now();
        let shared = Arc::new(Shared {
            subset,
            picker: Picker::new(random()),
            ejections: Ejections::new(now),
            retries: RetryBudget::default(),
            unlooked: AtomicU32::new(1),
            due: AtomicU64::default(),
            list: List::new(),
            state: Mutex::new(State::default()),
            roster,
            env,
        });
        // The first members begin with their whole share.
        shared.renew(&members, now, false);
        let shown: Weak<Shared> = Arc::downgrade(&shared);
        shared.roster.note_balancer(shown);
        shared
    }

    /// Returns the index of a member for a call among these choices, or among those that the group has by
    /// now; and when that was known, because the question for these may take time. The call may take
    /// `within`, and has `met` the members with these states already.
    fn choose(
        &self,
        choices: &mut Arc<[Choice]>,
        policy: Policy,
        (mut now, within): (Time, Option<Duration>),
        met: &[Arc<Health>],
    ) -> Result<(usize, Time), CallFailed> {
        if self.is_due_at(now) {
            *choices = self.choices(now, within);
            now = self.env.now();
        }
        self.ejections.look(choices, now);
        let which = self.picker.pick(choices, policy, now, met).ok_or_else(no_members)?;
        Ok((which, now))
    }

    /// Returns the index of a member for a call that reads no clock, if the call needs none.
    #[inline(always)]
    fn pick_untimed(&self, policy: Policy, choices: &[Choice]) -> Option<usize> {
        if policy == Policy::PowerOfTwo { self.picker.pick_untimed(choices) } else { None }
    }

    /// Makes a call at a member, and notes how it ends. Returns how it has failed; the sink gets other
    /// replies.
    fn call_at(
        &self,
        (choices, which): (&[Choice], usize),
        begun: Time,
        call: &Call<'_>,
        sink: Sink<'_>,
    ) -> Option<CallFailed> {
        let Choice { health, .. } = &choices[which];
        health.begin(begun);
        // The user's code in the sink may panic.
        let under_way = health.under_way();
        let mut failed = None;
        choices[which].channel().pass_on(call, &mut |reply| match reply {
            Reply::Failed(why) => failed = Some(why),
            reply => sink(reply),
        });
        drop(under_way);
        self.note(choices, which, begun, failed.as_ref());
        failed
    }

    /// Notes how a call ended that went to a member at `begun`.
    fn note(&self, choices: &[Choice], which: usize, begun: Time, failure: Option<&CallFailed>) {
        let now = self.env.now();
        choices[which].health.end(begun, now, failure);
        if failure.is_some_and(|why| Verdict::of(why) != Verdict::Leaves) {
            self.ejections.note_failure(choices, which, now);
        }
    }

    /// Returns whether it may be time to ask for the members. The clock is read for one call in 32.
    #[inline]
    fn is_due(&self) -> bool {
        const CALLS_PER_LOOK: u32 = 32;
        self.unlooked.fetch_add(1, Relaxed).is_multiple_of(CALLS_PER_LOOK)
    }

    /// Returns whether a call may go on elsewhere if its first member has not begun it in half of its time:
    /// it has a deadline, and there are others, or former ones that still take calls. The items of a stream
    /// are sent once, so such a call has all of its time at one member.
    #[inline]
    fn may_hurry(&self, choices: &[Choice], call: &Call<'_>) -> bool {
        let has_others = || choices.len() > 1 || self.roster.has_former();
        call.within.is_some() && call.sending.is_none() && has_others()
    }

    /// Has the next call look whether it is time to ask for the members.
    fn look_at_next_call(&self) {
        self.unlooked.store(0, Relaxed);
    }

    /// Asks the group for its members now, because one is leaving, or waits for the thread that asks. That
    /// takes no more than half of the time that the call has left, `within`.
    #[cold]
    fn ask_now(&self, within: Option<Duration>) -> Arc<[Choice]> {
        let most = within.map_or(MAX_WAIT_FOR_MEMBERS, |within| MAX_WAIT_FOR_MEMBERS.min(within / 2));
        let until = self.env.now() + most;
        // An answer to an earlier question may be older than the member's farewell.
        let needed = lock(&self.state).asked + 1;
        loop {
            let answered = {
                let mut state = lock(&self.state);
                if state.answered >= needed {
                    return self.list.get();
                }
                state.asking.then(|| {
                    let answered = self.env.event();
                    state.waiting.push(answered.clone());
                    answered
                })
            };
            let left = until.since(self.env.now());
            match answered {
                _ if left.is_zero() => return self.list.get(),
                Some(answered) => drop(answered.wait(Some(left))),
                None => {
                    self.due.store(0, Relaxed);
                    self.roster.ask_anew();
                    // The registry gets a part of this time, so that those who wait hear the answer.
                    self.choices(self.env.now(), Some(left));
                }
            }
        }
    }

    /// Returns whether it is time to ask the group for its members.
    #[inline]
    fn is_due_at(&self, now: Time) -> bool {
        now.as_nanos() >= self.due.load(Relaxed)
    }

    /// Returns the present members, for a call that may take `within`.
    fn choices(&self, now: Time, within: Option<Duration>) -> Arc<[Choice]> {
        {
            let mut state = lock(&self.state);
            if !self.is_due_at(now) || state.asking {
                return self.list.get();
            }
            state.asking = true;
            state.asked += 1;
        }
        // Asking may take long and runs the user's registry, so no lock is held. Other calls go to the
        // members that are known.
        match guard::run(|| self.roster.at_most(self.subset.0, self.subset.1, within)) {
            // The time counts from now, because asking may have taken longer than members are taken as known.
            Ok(members) => self.renew(&members, self.env.now(), true),
            Err(_) => {
                self.end_asking(&mut lock(&self.state));
                self.due.store((self.env.now() + MEMBERS_KNOWN_FOR).as_nanos(), Relaxed);
                self.list.get()
            }
        }
    }

    fn end_asking(&self, state: &mut State) {
        state.asking = false;
        state.answered = state.asked;
        state.waiting.drain(..).for_each(|waits| waits.set());
    }

    /// Notes the present members of the group. One that was not known begins `slowly`, or with its whole
    /// share.
    fn renew(&self, members: &[Member], now: Time, slowly: bool) -> Arc<[Choice]> {
        let mut state = lock(&self.state);
        self.end_asking(&mut state);
        self.due.store((now + MEMBERS_KNOWN_FOR).as_nanos(), Relaxed);
        let former = self.list.get();
        let is_same = |(choice, member): (&Choice, &Member)| {
            choice.member.name() == member.name()
                && choice.member.is_on_this_machine() == member.is_on_this_machine()
                // The group makes a new channel for a member that has left and come back.
                && Arc::ptr_eq(choice.member.binding().channel(), member.binding().channel())
        };
        if !former.is_empty() && former.len() == members.len() && former.iter().zip(members).all(is_same) {
            return former;
        }
        let begins = slowly && !former.is_empty();
        let mut known = HashMap::with_capacity(members.len());
        let choice = |member: &Member| {
            let health = match state.known.get(member.name()) {
                Some(health) => health.clone(),
                None => Arc::new(Health::new(now, begins)),
            };
            known.insert(member.shared_name(), health.clone());
            // From now on the channel notes when its server is silent.
            member.binding().channel().is_asked();
            Choice { member: member.clone(), health, hash: hash(member.name().as_bytes()) }
        };
        let choices: Arc<[Choice]> = members.iter().map(choice).collect();
        state.known = known;
        self.list.set(choices.clone());
        choices
    }
}

#[cold]
fn no_members() -> CallFailed {
    CallFailed::new(Kind::NoSuchName, Ran::No).because("the group has no members")
}

impl ShowMembers for Shared {
    fn show_members(&self) -> Vec<MemberState> {
        states(&self.list.get(), self.env.now())
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
