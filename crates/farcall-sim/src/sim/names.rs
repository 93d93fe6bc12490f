//! The registry of a simulation, as one life of a process sees it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farcall::names::{Entry, Error, Label, Listing, Registration, Registry, Result};

use super::publication::{Held, Publication};
use super::world::World;

/// The one registry that all processes share. It can always be reached, unless the test has silenced it.
///
/// The entries of a crashed process stay, as they would between machines. A process that binds to such an
/// entry gets no answer. An entry is replaced when its name is published again.
pub(super) struct Names {
    world: Arc<World>,
    process: usize,
    life: u32,
}

/// A number greater than the number of lives that any process has in one run.
const LIVES: u32 = 10_000;

/// Returns the process number of a life.
pub(super) fn number(process: usize, life: u32) -> u32 {
    (process as u32 + 1) * LIVES + life % LIVES
}

impl Names {
    pub(super) fn new(world: Arc<World>, process: usize, life: u32) -> Names {
        Names { world, process, life }
    }

    /// Waits until the registry answers, for `within` at most.
    fn ask(&self, within: Option<Duration>) -> Result<()> {
        self.world.services.ask_registry(within, |time| self.world.sleep(time))
    }
}

/// Returns whether the process of this number lives.
fn lives(world: &World, number: u32) -> bool {
    let (process, life) = ((number / LIVES).saturating_sub(1) as usize, number % LIVES);
    let state = world.lock();
    state.processes.get(process).is_some_and(|machine| machine.alive && machine.life % LIVES == life)
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the registry lose all entries. Returns their names.
pub(super) fn lose(world: &World) -> Vec<String> {
    let publications: &BTreeMap<_, _> = &lock(&world.publications);
    let lost = |(name, Publication { entry, .. }): (&String, &Publication)| {
        world.names.withdraw(&entry.type_name, &entry.instance).unwrap().then(|| name.clone())
    };
    publications.iter().filter_map(lost).collect()
}

/// Publishes an entry again that the registry has lost, if its process lives and has not withdrawn it.
pub(super) fn publish_again(world: &World, name: &str) {
    let publications = lock(&world.publications);
    let Some(lost) = publications.get(name).filter(|lost| lives(world, lost.publisher)) else { return };
    if let Some(registration) = &mut *lock(&lost.registration)
        && let Ok(again) = world.names.publish(&lost.entry)
    {
        *registration = again;
    }
}

impl Registry for Names {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        let me = number(self.process, self.life);
        if !lives(&self.world, me) {
            return Ok(Registration::new(entry.name(), || Ok(false)));
        }
        let name = entry.name().to_string();
        let publisher = lock(&self.world.publications).get(&name).map(|former| former.publisher);
        if let Some(Entry { owner, address, .. }) = self.lookup(&entry.type_name, &entry.instance)? {
            if publisher.is_some_and(|publisher| lives(&self.world, publisher)) {
                return Err(Error::Taken { name: entry.name(), owner, address });
            }
            self.world.names.withdraw(&entry.type_name, &entry.instance)?;
        }
        let held: Held = Arc::new(Mutex::new(Some(self.world.names.publish(entry)?)));
        let publication = Publication { publisher: me, entry: entry.clone(), registration: held.clone() };
        lock(&self.world.publications).insert(name.clone(), publication);
        let (world, renewed) = (self.world.clone(), held.clone());
        let undo = move || {
            let Some(registration) = lock(&held).take() else { return Ok(false) };
            if lives(&world, me) {
                return registration.withdraw();
            }
            // A process that has crashed withdraws nothing.
            std::mem::forget(registration);
            Ok(false)
        };
        let world = self.world.clone();
        let renew = move |entry: &Entry| {
            let renewal = lock(&renewed).as_ref().and_then(Registration::renewal);
            if let Some(publication) = lock(&world.publications).get_mut(&name)
                && Arc::ptr_eq(&publication.registration, &renewed)
            {
                publication.entry = entry.clone();
            }
            renewal.map_or(Ok(false), |renewal| renewal.renew(entry))
        };
        Ok(Registration::new(entry.name(), undo).renewing(renew))
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        self.world.names.withdraw(type_name, instance)
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.ask(None)?;
        self.world.names.instances(type_name)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        self.ask(None)?;
        self.world.names.lookup(type_name, instance)
    }

    fn list(&self) -> Result<Listing> {
        self.ask(None)?;
        self.world.names.list()
    }

    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.ask(Some(within))?;
        self.world.names.instances(type_name)
    }

    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        self.ask(Some(within))?;
        self.world.names.lookup(type_name, instance)
    }

    fn version_within(&self, within: Duration) -> Result<u64> {
        self.ask(Some(within))?;
        self.world.names.version()
    }

    fn keeps_deadlines(&self) -> bool {
        self.world.services.keeps_deadlines()
    }

    fn version(&self) -> Result<u64> {
        self.ask(None)?;
        self.world.names.version()
    }
}
