//! Which clerk is this machine's, and how exports and imports go through it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::cache::Known;
use super::entry::check_name;
use super::{
    Clerk, Core, Entry, Fault, How, Label, NAMES, Names, NamesClient, Settings, TABLE, TYPE, is_reserved,
    listed,
};
use crate::env::Event;
use crate::memory::access::{Access, Facts};
use crate::memory::{Memory, Remote, Rights, Segment};
use crate::names::{Address, Registration};
use crate::sys::fork;
use crate::{CallFailed, Error, Kind, Ran, Result, Runtime};

/// What a runtime knows of the clerk of its machine.
#[derive(Default)]
pub(crate) enum Desk {
    #[default]
    Unknown,
    /// A thread is finding out; these wait for it.
    Sought(Vec<Arc<dyn Event>>),
    Known(Whose),
}

/// Whose clerk it is.
#[derive(Clone)]
pub(crate) enum Whose {
    /// The runtime's own, with a runtime of its own: or the two would keep one another alive.
    Own(Arc<Clerk>),
    /// One that the user started, and holds.
    Given(Weak<Core>),
    /// Another's, in this process or another one of the machine.
    Other(SocketAddr, NamesClient),
}

/// A segment's name, which the clerk and the registry know until this is dropped.
pub(in crate::memory) struct Named {
    runtime: Runtime,
    /// As it was added last.
    entry: Mutex<Entry>,
    /// The process that it was exported in.
    process: u64,
    _registration: Registration,
}

/// How often another clerk is sought when one is gone.
const ATTEMPTS: usize = 3;

/// How long a new clerk waits for those exporters that do not answer.
const RECOVERY: Duration = Duration::from_secs(1);

/// How many exporters it asks at once.
const AT_ONCE: usize = 64;

impl Runtime {
    /// Imports the segment that is exported under a name on the machine whose clerk is at the hint. It is looked up there, unless
    /// our clerk has learnt it before and it is still so.
    ///
    /// # Errors
    /// When nobody exports the name there, or nobody answers.
    pub fn import_segment_at(&self, name: &str, hint: SocketAddr) -> Result<Remote> {
        self.import_named(name, Some(hint))
    }

    /// Imports a segment, believing nothing that our clerk has learnt before: for who knows, from an access that failed, that it
    /// is no longer so.
    ///
    /// # Errors
    /// When nobody exports the name, or nobody answers.
    pub fn import_segment_anew(&self, name: &str, hint: Option<SocketAddr>) -> Result<Remote> {
        let known = self.know(name, hint, How::Anew)?;
        self.import_known(known)
    }

    pub(in crate::memory) fn import_named(&self, name: &str, hint: Option<SocketAddr>) -> Result<Remote> {
        let known = self.know(name, hint, How::Cached)?;
        let generation = known.entry.generation;
        match self.import_known(known) {
            Ok(remote) if remote.generation() == generation => Ok(remote),
            // What the clerk knew is no longer so.
            _ => self.import_segment_anew(name, hint),
        }
    }

    fn import_known(&self, known: Known) -> Result<Remote> {
        let remote = self.import_at(Address::from(known.entry.address), &known.entry.name)?;
        Ok(if remote.generation() == known.entry.generation { remote.unless(known.purged) } else { remote })
    }

    fn know(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known> {
        self.ask(|whose| whose.know(name, hint, how))
    }

    /// Asks the machine's clerk; if that is gone, the next one.
    fn ask<T>(&self, ask: impl Fn(&Whose) -> Result<T, Fault>) -> Result<T> {
        let mut gone = None;
        // It says more than that no other clerk may take its place.
        let mut silent: Option<CallFailed> = None;
        for _ in 0..ATTEMPTS {
            let whose = match self.clerk(gone) {
                Ok(whose) => whose,
                Err(why) => return Err(silent.unwrap_or(why).into()),
            };
            match (ask(&whose), &whose) {
                (Ok(answer), _) => return Ok(answer),
                (Err(Error::Declared(fault)), _) => return Err(CallFailed::from(fault).into()),
                (Err(Error::CallFailed(why)), Whose::Other(address, _)) => {
                    (gone, silent) = (Some(*address), Some(why))
                }
                (Err(Error::CallFailed(why)), _) => return Err(why.into()),
            }
            self.part_with(&whose);
        }
        let why =
            || CallFailed::new(Kind::Unreachable, Ran::No).because("the machine's clerk does not answer");
        Err(silent.unwrap_or_else(why).into())
    }

    /// The machine's clerk, but not the one at an address where there is none any more.
    fn clerk(&self, gone: Option<SocketAddr>) -> std::result::Result<Whose, CallFailed> {
        loop {
            match self.with_desk(|desk| desk.turn(self)) {
                Turn::Take(whose) if whose.is_listed(self) => return Ok(whose),
                Turn::Take(whose) => self.part_with(&whose),
                Turn::Wait(event) => drop(event.wait(None)),
                Turn::Seek(former) => {
                    drop(former);
                    let sought = self.seek(gone);
                    let found = sought.as_ref().map_or(Desk::Unknown, |whose| Desk::Known(whose.clone()));
                    if let Desk::Sought(waiting) = self.with_desk(|desk| std::mem::replace(desk, found)) {
                        waiting.iter().for_each(|event| event.set());
                    }
                    return sought;
                }
            }
        }
    }

    /// Forgets a clerk that is gone.
    fn part_with(&self, whose: &Whose) {
        // (What it was is dropped outside of the lock.)
        let _former = self.with_desk(|desk| match desk {
            Desk::Known(known) if known.address() == whose.address() => std::mem::take(desk),
            _ => Desk::Unknown,
        });
    }

    /// Finds the machine's clerk in the registry, or starts one.
    fn seek(&self, gone: Option<SocketAddr>) -> std::result::Result<Whose, CallFailed> {
        let (sibling, here) = (self.sibling(), self.host()?);
        let listed = || clerk_of(self, here).filter(|address| Some(*address) != gone);
        let other = |address| {
            let names = sibling.import_unbound::<dyn Names>(&format!("udp://{address}/{NAMES}"))?;
            Ok(Whose::Other(address, names))
        };
        if let Some(address) = listed() {
            return other(address);
        }
        match Clerk::open(&sibling, Settings::default()) {
            Ok(clerk) => Ok(Whose::Own(Arc::new(clerk))),
            // Somebody else may have been faster.
            Err(why) => listed().map_or(Err(why), other),
        }
    }
}

/// What a thread that needs the machine's clerk does next.
enum Turn {
    Take(Whose),
    Wait(Arc<dyn Event>),
    /// What was known before is no more.
    Seek(Desk),
}

impl Desk {
    fn turn(&mut self, runtime: &Runtime) -> Turn {
        match self {
            Desk::Known(whose) if whose.is_there() => Turn::Take(whose.clone()),
            Desk::Sought(waiting) => {
                let event = runtime.env().event();
                waiting.push(event.clone());
                Turn::Wait(event)
            }
            Desk::Unknown | Desk::Known(_) => Turn::Seek(std::mem::replace(self, Desk::Sought(Vec::new()))),
        }
    }
}

impl Whose {
    fn is_there(&self) -> bool {
        !matches!(self, Whose::Given(core) if core.strong_count() == 0)
    }

    /// Where it is, if it is another's.
    fn address(&self) -> Option<SocketAddr> {
        match self {
            Whose::Other(address, _) => Some(*address),
            Whose::Own(_) | Whose::Given(_) => None,
        }
    }

    /// Whether another's is still there, as far as the registry knows: to call one that is not would take the patience.
    fn is_listed(&self, runtime: &Runtime) -> bool {
        self.address().is_none_or(|address| clerk_of(runtime, address.ip()) == Some(address))
    }

    /// The clerk, if it is in this process and ours.
    fn core(&self) -> Option<Arc<Core>> {
        match self {
            Whose::Own(clerk) => Some(clerk.core.clone()),
            Whose::Given(core) => core.upgrade(),
            Whose::Other(..) => None,
        }
    }

    fn add(&self, entry: &Entry) -> Result<(), Fault> {
        match (self.core(), self) {
            (Some(core), _) => core.add_entry(entry),
            (None, Whose::Other(_, names)) => names.add(entry.clone()),
            (None, _) => Err(ended()),
        }
    }

    fn know(&self, name: &str, hint: Option<SocketAddr>, how: How) -> Result<Known, Fault> {
        match (self.core(), self) {
            (Some(core), _) => core.know(name, hint, how),
            (None, Whose::Other(_, names)) => Ok(Known::for_sure(names.look_up(name, hint, how)?)),
            (None, _) => Err(ended()),
        }
    }

    /// Deletes without waiting.
    fn delete(&self, name: &str, generation: u64) {
        match (self.core(), self) {
            (Some(core), _) => drop(core.delete_entry(name, generation)),
            (None, Whose::Other(_, names)) => names.start().delete(name, generation).detach(),
            (None, _) => {}
        }
    }
}

fn ended() -> Error<Fault> {
    CallFailed::new(Kind::Stopped, Ran::No).because("the machine's clerk was dropped").into()
}

/// From now on this is the clerk that the runtime asks.
pub(super) fn adopt(runtime: &Runtime, clerk: &Clerk) {
    let given = Desk::Known(Whose::Given(Arc::downgrade(&clerk.core)));
    let former = runtime.with_desk(|desk| match desk {
        // Whoever seeks finds it in the registry.
        Desk::Sought(_) => Desk::Unknown,
        _ => std::mem::replace(desk, given),
    });
    drop(former);
}

/// Adds to a new clerk what the registry says is exported on its machine.
pub(super) fn recover(core: &Core) {
    let (here, runtime) = (core.address.ip(), &core.runtime);
    let machine = listed("", here);
    let exported = segments(runtime).into_iter().filter_map(|(address, instance)| {
        let name = instance.as_str().strip_suffix(&machine)?.to_owned();
        (!is_reserved(&name) && address.ip() == here).then_some((address, name))
    });
    let exported: Vec<(SocketAddr, String)> = exported.collect();
    for some in exported.chunks(AT_ONCE) {
        let asked = some.iter().filter_map(|(address, name)| {
            let access =
                runtime.import_unbound::<dyn Access>(&format!("udp://{address}/{TYPE}/{name}")).ok()?;
            Some((address, name, access.within(RECOVERY).start_facts()))
        });
        // All are asked before the first is waited for.
        for (address, name, facts) in asked.collect::<Vec<_>>() {
            let Ok(facts) = facts.wait() else { continue };
            let Facts { generation, size, rights } = facts;
            let _ =
                core.add_entry(&Entry { name: name.clone(), address: *address, generation, size, rights });
        }
    }
}

/// Whether the registry knows a segment of this machine, and where it is.
pub(super) fn is_listed(runtime: &Runtime, entry: &Entry, here: IpAddr) -> bool {
    let Some((kind, instance)) = labels(&listed(&entry.name, here)) else { return false };
    match runtime.registry().lookup(&kind, &instance) {
        Ok(listed) => listed.is_some_and(|listed| listed.address == entry.address.into()),
        // It may be.
        Err(_) => true,
    }
}

/// The clerks of the other machines of which the registry knows that they export the name.
pub(super) fn homes(runtime: &Runtime, name: &str, here: IpAddr) -> Vec<SocketAddr> {
    let segments = segments(runtime).into_iter();
    let there =
        segments.filter(|(at, instance)| at.ip() != here && instance.as_str() == listed(name, at.ip()));
    there.filter_map(|(at, _)| clerk_of(runtime, at.ip())).collect()
}

/// The segments that the registry knows: where, and as what.
fn segments(runtime: &Runtime) -> Vec<(SocketAddr, Label)> {
    let Some((kind, _)) = labels(TABLE) else { return Vec::new() };
    let entries = runtime.registry().instances(&kind).unwrap_or_default().into_iter();
    entries.filter_map(|entry| Some((entry.address.socket()?, entry.instance))).collect()
}

/// The clerk of a machine, as far as the registry knows.
fn clerk_of(runtime: &Runtime, machine: IpAddr) -> Option<SocketAddr> {
    let (kind, instance) = labels(&listed(TABLE, machine))?;
    runtime.registry().lookup(&kind, &instance).ok()??.address.socket()
}

fn labels(instance: &str) -> Option<(Label, Label)> {
    Some((TYPE.parse().ok()?, instance.parse().ok()?))
}

impl Named {
    /// Names a segment that is exported.
    pub(in crate::memory) fn new(runtime: &Runtime, segment: &Segment, rights: Rights) -> Result<Named> {
        let name = segment.name();
        check_name(name).map_err(CallFailed::from)?;
        if is_reserved(name) {
            return Err(CallFailed::from(Fault::NotAName(format!(
                "{name:?} is the name of a segment of every clerk"
            )))
            .into());
        }
        let address = segment.address();
        // First the clerk: one that starts now need not ask us for what we are about to tell it.
        runtime.clerk(None)?;
        let registration = segment.list_as(&listed(name, address.ip()))?;
        let (generation, size, rights) = (segment.generation().unwrap_or(1), segment.size(), rights.bits());
        let entry = Entry { name: name.to_owned(), address, generation, size, rights };
        let (runtime, process) = (runtime.clone(), fork::generation());
        let named = Named { runtime, entry: Mutex::new(entry), process, _registration: registration };
        named.add()?;
        Ok(named)
    }

    /// Says that it is exported as another generation.
    pub(in crate::memory) fn add_anew(&self, generation: u64) -> Result<()> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).generation = generation;
        self.add()
    }

    /// Says that it is exported no longer.
    pub(in crate::memory) fn delete(&self) {
        let entry = self.entry();
        let known = self.runtime.with_desk(|desk| match desk {
            Desk::Known(whose) => Some(whose.clone()),
            _ => None,
        });
        if let Some(whose) = known {
            whose.delete(&entry.name, entry.generation);
        }
    }

    fn add(&self) -> Result<()> {
        let entry = self.entry();
        self.runtime.ask(|whose| whose.add(&entry))
    }

    fn entry(&self) -> Entry {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // A child of the process holds a copy of what is its parent's.
        if self.process == fork::generation() {
            self.delete();
        }
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.entry(), f)
    }
}
