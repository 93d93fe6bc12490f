//! Which clerk is this machine's.

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use super::cache::Known;
use super::entry::Entry;
use super::listings::clerk_of;
use super::{Clerk, ClerkRuntime, Core, Fault, How, NAMES, Names, NamesClient, Settings};
use farcall_core::env::Event;
use farcall_core::stub::Interface as _;
use farcall_core::{CallFailed, Error, Kind, Ran, Result};

/// What a runtime knows of the clerk of its machine.
#[derive(Default)]
pub struct Locator(State);

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    /// A thread is finding out; it sets these events then.
    Sought(Vec<Arc<dyn Event>>),
    Known(MachineClerk),
}

/// The clerk of this machine, as a runtime reaches it.
#[derive(Clone)]
pub(super) enum MachineClerk {
    /// The runtime's own, with a runtime of its own: or the two would keep one another alive.
    Own(Arc<Clerk>),
    /// One that the user started, and holds.
    Given(Weak<Core>),
    /// Another's, in this process or another one of the machine.
    Other(SocketAddr, NamesClient),
}

/// What a thread that needs the machine's clerk does next.
enum Turn {
    Take(MachineClerk),
    Wait(Arc<dyn Event>),
    /// The thread finds a clerk, and drops what was known before.
    Seek(State),
}

/// How often another clerk is sought when one is gone.
const MAX_ATTEMPTS: usize = 3;

/// Asks the machine's clerk; if that is gone, the next one.
pub(super) fn ask<T>(
    runtime: &dyn ClerkRuntime,
    ask: impl Fn(&MachineClerk) -> Result<T, Fault>,
) -> Result<T> {
    let mut gone = None;
    // That a clerk is silent says more than that no other clerk may take its place.
    let mut silent: Option<CallFailed> = None;
    for _ in 0..MAX_ATTEMPTS {
        let clerk = match machine_clerk(runtime, gone) {
            Ok(clerk) => clerk,
            Err(why) => return Err(silent.unwrap_or(why).into()),
        };
        match (ask(&clerk), &clerk) {
            (Ok(answer), _) => return Ok(answer),
            (Err(Error::Declared(fault)), _) => return Err(CallFailed::from(fault).into()),
            (Err(Error::CallFailed(why)), MachineClerk::Other(address, _)) => {
                (gone, silent) = (Some(*address), Some(why))
            }
            (Err(Error::CallFailed(why)), _) => return Err(why.into()),
        }
        forget(runtime, &clerk);
    }
    let why = || CallFailed::new(Kind::Unreachable, Ran::No).because("the machine's clerk does not answer");
    Err(silent.unwrap_or_else(why).into())
}

/// Returns the machine's clerk, if it is known.
pub(super) fn known(runtime: &dyn ClerkRuntime) -> Option<MachineClerk> {
    match &lock(runtime).0 {
        State::Known(clerk) => Some(clerk.clone()),
        State::Unknown | State::Sought(_) => None,
    }
}

/// Makes that the clerk which the runtime asks.
pub(super) fn adopt(runtime: &dyn ClerkRuntime, clerk: &Clerk) {
    let given = State::Known(MachineClerk::Given(Arc::downgrade(&clerk.core)));
    // (What was known before is dropped outside of the lock.)
    let _former = match &mut lock(runtime).0 {
        // The thread that seeks one finds it in the registry.
        State::Sought(_) => State::Unknown,
        state => std::mem::replace(state, given),
    };
}

/// Finds the machine's clerk, but not the one at an address where there is none any more.
pub(super) fn machine_clerk(
    runtime: &dyn ClerkRuntime,
    gone: Option<SocketAddr>,
) -> std::result::Result<MachineClerk, CallFailed> {
    loop {
        let turn = lock(runtime).turn(runtime);
        match turn {
            Turn::Take(clerk) if clerk.is_listed(runtime) => return Ok(clerk),
            Turn::Take(clerk) => forget(runtime, &clerk),
            Turn::Wait(event) => drop(event.wait(None)),
            Turn::Seek(former) => {
                drop(former);
                let sought = seek(runtime, gone);
                let found = sought.as_ref().map_or(State::Unknown, |clerk| State::Known(clerk.clone()));
                let former = std::mem::replace(&mut lock(runtime).0, found);
                if let State::Sought(waiting) = former {
                    waiting.iter().for_each(|event| event.set());
                }
                return sought;
            }
        }
    }
}

/// Forgets a clerk that is gone.
fn forget(runtime: &dyn ClerkRuntime, clerk: &MachineClerk) {
    // (What was known is dropped outside of the lock.)
    let _former = match &mut lock(runtime).0 {
        state @ State::Known(_) if state.address() == clerk.address() => std::mem::take(state),
        _ => State::Unknown,
    };
}

/// Finds the machine's clerk in the registry, or starts one.
fn seek(
    runtime: &dyn ClerkRuntime,
    gone: Option<SocketAddr>,
) -> std::result::Result<MachineClerk, CallFailed> {
    let (sibling, machine) = (runtime.sibling(), runtime.machine()?);
    let listed = || clerk_of(&**runtime.registry(), machine).filter(|address| Some(*address) != gone);
    let other = |address| {
        let binding = sibling.bind_later(&format!("udp://{address}/{NAMES}"), <dyn Names>::interface())?;
        Ok(MachineClerk::Other(address, binding.into()))
    };
    if let Some(address) = listed() {
        return other(address);
    }
    match Clerk::open(sibling.clone(), Settings::default()) {
        Ok(clerk) => Ok(MachineClerk::Own(Arc::new(clerk))),
        // Another process may have been faster.
        Err(why) => listed().map_or(Err(why), other),
    }
}

fn lock(runtime: &dyn ClerkRuntime) -> MutexGuard<'_, Locator> {
    runtime.locator().lock().unwrap_or_else(PoisonError::into_inner)
}

impl Locator {
    fn turn(&mut self, runtime: &dyn ClerkRuntime) -> Turn {
        match &mut self.0 {
            State::Known(clerk) if clerk.is_there() => Turn::Take(clerk.clone()),
            State::Sought(waiting) => {
                let event = runtime.env().event();
                waiting.push(event.clone());
                Turn::Wait(event)
            }
            state => Turn::Seek(std::mem::replace(state, State::Sought(Vec::new()))),
        }
    }
}

impl State {
    fn address(&self) -> Option<SocketAddr> {
        match self {
            State::Known(clerk) => clerk.address(),
            State::Unknown | State::Sought(_) => None,
        }
    }
}

impl MachineClerk {
    fn is_there(&self) -> bool {
        !matches!(self, MachineClerk::Given(core) if core.strong_count() == 0)
    }

    /// Where the clerk is, if it is another's.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            MachineClerk::Other(address, _) => Some(*address),
            MachineClerk::Own(_) | MachineClerk::Given(_) => None,
        }
    }

    /// Whether another's clerk is still there, as far as the registry knows: a call of one that is gone would take the
    /// patience.
    fn is_listed(&self, runtime: &dyn ClerkRuntime) -> bool {
        let registry = &**runtime.registry();
        self.address().is_none_or(|address| clerk_of(registry, address.ip()) == Some(address))
    }

    /// The clerk, if it is in this process and known to this runtime.
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
            (None, MachineClerk::Other(_, names)) => Ok(Known::for_sure(names.look_up(name, hint, how)?)),
            (None, _) => Err(ended()),
        }
    }

    /// Deletes without waiting.
    pub(super) fn delete(&self, name: &str, generation: u64) {
        match (self.core(), self) {
            (Some(core), _) => drop(core.delete_entry(name, generation)),
            (None, MachineClerk::Other(_, names)) => names.start().delete(name, generation).detach(),
            (None, _) => {}
        }
    }
}

fn ended() -> Error<Fault> {
    CallFailed::new(Kind::Stopped, Ran::No).because("the machine's clerk was dropped").into()
}
