//! Finds this machine's clerk, or starts one.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::cache::Known;
use super::entry::Entry;
use super::listings::{self, ListedClerk};
use super::{CLERK_NAMES, Clerk, ClerkRuntime, Core, Fault, How, NAMES, Names, NamesClient, Place, Settings};
use crate::access::TYPE;
use farcall_core::broken::Rule;
use farcall_core::env::Event;
use farcall_core::env::breaks;
use farcall_core::stub::Interface as _;
use farcall_core::{CallFailed, Error, Kind, Ran, Result, guard, lock};

/// What a runtime knows about its machine's clerk, which is the name service for memory segments.
#[derive(Default)]
pub struct Locator(State);

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    /// A thread looks for the clerk. Afterwards it sets these events.
    Seeking(Vec<Arc<dyn Event>>),
    Known(MachineClerk),
}

/// The clerk of this machine, as a runtime reaches it.
#[derive(Clone)]
pub(super) enum MachineClerk {
    /// A clerk that this runtime has started, on a second runtime. If the clerk used this runtime, each would
    /// keep the other alive.
    Own(Arc<Clerk>),
    /// A clerk that the user has started and holds.
    Given(Weak<Core>),
    /// A clerk of another runtime, in this process or another process of the machine.
    Other(Arc<ListedClerk>, NamesClient),
}

/// The next step of a thread that needs the machine's clerk.
enum Turn {
    Take(MachineClerk),
    Wait(Arc<dyn Event>),
    /// The thread looks for a clerk, and drops the former state.
    Seek(State),
}

/// The most clerks that are asked, one after the other, when clerks are gone or of no use.
const MAX_ATTEMPTS: usize = 3;

/// Calls `ask` with the machine's clerk. If that clerk is gone, finds or starts the next one. A runtime with
/// keys also passes over a clerk that does not believe this runtime, or cannot ask it.
pub(super) fn ask<T>(
    runtime: &dyn ClerkRuntime,
    ask: impl Fn(&MachineClerk) -> Result<T, Fault>,
) -> Result<T> {
    let mut passed = Vec::new();
    // The failure of a clerk that does not answer explains more than the failure to start another clerk.
    let mut silent: Option<CallFailed> = None;
    for _ in 0..MAX_ATTEMPTS {
        let clerk = match machine_clerk(runtime, &passed) {
            Ok(clerk) => clerk,
            Err(why) => return Err(silent.unwrap_or(why).into()),
        };
        let why = match ask(&clerk) {
            Ok(answer) => return Ok(answer),
            Err(Error::Declared(fault)) if !clerk.is_of_no_use(runtime, &fault) => {
                return Err(CallFailed::from(fault).into());
            }
            Err(Error::Declared(fault)) => CallFailed::from(fault),
            Err(Error::CallFailed(why)) => why,
        };
        let Some(address) = clerk.address() else { return Err(why.into()) };
        passed.push(address);
        silent = Some(why);
        forget(runtime, &clerk);
    }
    let why = || CallFailed::new(Kind::Unreachable, Ran::No).because("the machine's clerk does not answer");
    Err(silent.unwrap_or_else(why).into())
}

/// Returns the machine's clerk, if it is known.
pub(super) fn known(runtime: &dyn ClerkRuntime) -> Option<MachineClerk> {
    match &lock(runtime.locator()).0 {
        State::Known(clerk) => Some(clerk.clone()),
        State::Unknown | State::Seeking(_) => None,
    }
}

/// Makes the runtime use this clerk.
pub(super) fn adopt(runtime: &dyn ClerkRuntime, clerk: &Clerk) {
    let given = State::Known(MachineClerk::Given(Arc::downgrade(&clerk.core)));
    // The former state is dropped after the lock is released.
    let _former = match &mut lock(runtime.locator()).0 {
        // The thread that looks for a clerk finds this one in the registry.
        State::Seeking(_) => State::Unknown,
        state => std::mem::replace(state, given),
    };
}

/// Returns the machine's clerk, but none of those at the addresses `passed`.
pub(super) fn machine_clerk(
    runtime: &dyn ClerkRuntime,
    passed: &[SocketAddr],
) -> std::result::Result<MachineClerk, CallFailed> {
    loop {
        let turn = lock(runtime.locator()).turn(runtime);
        match turn {
            Turn::Take(clerk) if clerk.is_listed(runtime) => return Ok(clerk),
            Turn::Take(clerk) => forget(runtime, &clerk),
            Turn::Wait(event) => {
                let left = listings::remaining(runtime);
                event.wait(left);
                if listings::remaining(runtime) == Some(Duration::ZERO) {
                    return Err(late("another thread still looks for this machine's clerk"));
                }
            }
            Turn::Seek(former) => {
                drop(former);
                // The registry may be the user's code. If it panics, other threads must not wait for ever.
                let sought = guard::run(|| seek(runtime, passed)).unwrap_or_else(|panic| {
                    let why = panic.message().unwrap_or("no text");
                    Err(CallFailed::new(Kind::Local, Ran::No)
                        .because(format!("the registry panicked: {why}")))
                });
                let found = sought.as_ref().map_or(State::Unknown, |clerk| State::Known(clerk.clone()));
                let former = std::mem::replace(&mut lock(runtime.locator()).0, found);
                if let State::Seeking(waiting) = former {
                    waiting.iter().for_each(|event| event.set());
                }
                return sought;
            }
        }
    }
}

/// Forgets a clerk that is gone.
fn forget(runtime: &dyn ClerkRuntime, clerk: &MachineClerk) {
    // The former state is dropped after the lock is released.
    let _former = match &mut lock(runtime.locator()).0 {
        state @ State::Known(_) if state.address() == clerk.address() => std::mem::take(state),
        _ => State::Unknown,
    };
}

/// Finds the machine's clerk in the registry, or starts one. If another program has the name of a new clerk,
/// and is not believed, the new clerk serves this runtime alone: it finds segments by the registry.
fn seek(runtime: &dyn ClerkRuntime, passed: &[SocketAddr]) -> std::result::Result<MachineClerk, CallFailed> {
    let (sibling, machine) = (runtime.sibling(), runtime.machine()?);
    let listed = || {
        let mut clerks = listings::clerks_of(runtime, machine).into_iter();
        clerks.find(|clerk| !passed.contains(&clerk.address))
    };
    let has_keys = runtime.key_prefix().is_some();
    let other = |clerk: ListedClerk| {
        // Who may answer for the clerk's table may answer for its calls, too.
        let names = if has_keys { format!("{TYPE}/{CLERK_NAMES}") } else { NAMES.to_owned() };
        let url = format!("udp://{}/{names}", clerk.address);
        let binding = sibling.bind_later(&url, <dyn Names>::interface())?;
        Ok(MachineClerk::Other(Arc::new(clerk), binding.into()))
    };
    if let Some(clerk) = listed() {
        return other(clerk);
    }
    if listings::remaining(runtime) == Some(Duration::ZERO) {
        return Err(late("the registry has not said who is this machine's clerk"));
    }
    let own = |place| {
        let clerk = Clerk::open(sibling.clone(), Settings::default(), place)?;
        Ok(MachineClerk::Own(Arc::new(clerk)))
    };
    own(Place::Listed).or_else(|why| {
        // Another process may have started a clerk meanwhile.
        if let Some(clerk) = listed() {
            return other(clerk);
        }
        let holder = listings::own_clerk(runtime, machine);
        let is_believed = !has_keys && !listings::clerks_of(runtime, machine).is_empty();
        let is_wall = breaks(Rule::DistrustedClerkIsPassedOver, || runtime.env().clone());
        if holder.is_none() || is_believed || is_wall { Err(why) } else { own(Place::Private) }
    })
}

impl Locator {
    fn turn(&mut self, runtime: &dyn ClerkRuntime) -> Turn {
        match &mut self.0 {
            State::Known(clerk) if clerk.is_there() => Turn::Take(clerk.clone()),
            State::Seeking(waiting) => {
                let event = runtime.env().event();
                waiting.push(event.clone());
                Turn::Wait(event)
            }
            state => Turn::Seek(std::mem::replace(state, State::Seeking(Vec::new()))),
        }
    }
}

impl State {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            State::Known(clerk) => clerk.address(),
            State::Unknown | State::Seeking(_) => None,
        }
    }
}

impl MachineClerk {
    fn is_there(&self) -> bool {
        !matches!(self, MachineClerk::Given(core) if core.strong_count() == 0)
    }

    /// Returns the clerk's address if it is another runtime's.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            MachineClerk::Other(clerk, _) => Some(clerk.address),
            MachineClerk::Own(_) | MachineClerk::Given(_) => None,
        }
    }

    /// Returns whether a fault says that this clerk cannot serve a runtime with keys. It may not call the
    /// exporter, for example, because that does not accept the clerk's key.
    fn is_of_no_use(&self, runtime: &dyn ClerkRuntime, fault: &Fault) -> bool {
        let is_of_clerk = matches!(fault, Fault::NotPermitted | Fault::Silent(_) | Fault::Disbelieved(_));
        is_of_clerk
            && self.address().is_some()
            && runtime.key_prefix().is_some()
            && !breaks(Rule::DistrustedClerkIsPassedOver, || runtime.env().clone())
    }

    /// Returns whether the registry still lists a clerk of another runtime. Without this check, a call to a
    /// clerk that is gone would fail only after the whole patience.
    fn is_listed(&self, runtime: &dyn ClerkRuntime) -> bool {
        match self {
            MachineClerk::Other(clerk, _) => listings::is_clerk_listed(runtime, clerk),
            MachineClerk::Own(_) | MachineClerk::Given(_) => true,
        }
    }

    /// Returns the clerk if this runtime can reach it without a call.
    fn core(&self) -> Option<Arc<Core>> {
        match self {
            MachineClerk::Own(clerk) => Some(clerk.core.clone()),
            MachineClerk::Given(core) => core.upgrade(),
            MachineClerk::Other(..) => None,
        }
    }

    pub(super) fn add(&self, entry: &Entry) -> Result<(), Fault> {
        match (self.core(), self) {
            (Some(core), _) => core.add_entry(entry),
            (None, MachineClerk::Other(_, names)) => names.add(entry.clone()),
            (None, _) => Err(ended()),
        }
    }

    pub(super) fn know(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known, Fault> {
        match (self.core(), self) {
            (Some(core), _) => core.know(name, hint, how),
            (None, MachineClerk::Other(_, names)) => Ok(Known::valid(names.look_up(name, hint, how)?)),
            (None, _) => Err(ended()),
        }
    }

    /// Deletes a segment without waiting for the clerk's answer.
    pub(super) fn delete(&self, name: &str, generation: u64) {
        match (self.core(), self) {
            (Some(core), _) => drop(core.delete_entry(name, generation)),
            (None, MachineClerk::Other(_, names)) => names.start().delete(name, generation).detach(),
            (None, _) => {}
        }
    }
}

#[cold]
fn late(why: &'static str) -> CallFailed {
    CallFailed::new(Kind::Deadline, Ran::No).because(why)
}

fn ended() -> Error<Fault> {
    CallFailed::new(Kind::Stopped, Ran::No).because("the machine's clerk was dropped").into()
}
