//! What a registry of names does, and the guard that keeps an entry published.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{Entry, Label, Result};

/// A registry of names: exporters publish to it, importers ask it.
///
/// It is an object-safe seam: the rest of farcall holds an `Arc<dyn Registry>`. Every method may
/// block for as long as the registry's medium does (a lock on a file, a round trip to a server),
/// so none belongs on the path of a call.
///
/// An answer is a hint, as in Cedar: the instance may be gone by the time it is called. That is
/// found out by the call itself, because the export's identifier is checked on each one.
pub trait Registry: Send + Sync {
    /// Publishes `entry` until the registration is dropped or withdrawn, or its owner dies.
    ///
    /// A former entry of the same name is replaced if its owner is dead, or if an earlier program of
    /// this process published it (execve(2)).
    ///
    /// # Errors
    ///
    /// [`Error::Taken`](crate::Error::Taken) if a live process, this one included, exports that name;
    /// [`Error::TooLarge`](crate::Error::TooLarge) if the entry exceeds a bound; else what went
    /// wrong with the registry's medium. After an error the registry holds what it held before.
    fn publish(&self, entry: &Entry) -> Result<Registration>;

    /// Withdraws the entry of this name, if this process or a dead one owns it. True if there was
    /// one.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`](crate::Error::Taken) if another live process owns it; else what went wrong
    /// with the registry's medium.
    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool>;

    /// The members of a type's group whose owners are not known to be dead, by ascending instance
    /// name. A type that nobody exports is an empty group.
    ///
    /// # Errors
    ///
    /// What went wrong with the registry's medium.
    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>>;

    /// The entry of one instance, unless there is none or its owner is known to be dead.
    ///
    /// # Errors
    ///
    /// What went wrong with the registry's medium.
    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>>;

    /// Every entry whose owner is not known to be dead, by ascending name, and the version at
    /// which they were read.
    ///
    /// # Errors
    ///
    /// What went wrong with the registry's medium.
    fn list(&self) -> Result<Listing>;

    /// A number that differs whenever something was published or withdrawn since.
    ///
    /// This is the place of watches: who follows a group asks for this and lists again when it
    /// differs from [`Listing::version`]. It need not change when an owner dies, until a writer
    /// notices.
    ///
    /// # Errors
    ///
    /// What went wrong with the registry's medium.
    fn version(&self) -> Result<u64>;

    /// An address of the registry: a server at all addresses of its host (`0.0.0.0`) publishes the one from
    /// which its host sends there, because those who ask the registry can be expected to reach that too. A
    /// loopback address says that all who ask are on this machine. Does not block.
    ///
    /// By default none: such a server must then be told what to publish.
    fn route(&self) -> Option<IpAddr> {
        None
    }
}

/// All that a registry held at one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// What [`Registry::version`] was when this was read.
    pub version: u64,
    /// The entries, by ascending type and instance.
    pub entries: Vec<Entry>,
}

impl Listing {
    /// A listing, for those who implement [`Registry`].
    pub fn new(version: u64, entries: Vec<Entry>) -> Self {
        Self { version, entries }
    }
}

/// Keeps an entry published; dropping it withdraws the entry.
///
/// It withdraws what it published and nothing else: once that was withdrawn otherwise and the name
/// published anew, the older registration has no effect. Nor has the copy that a forked child inherits.
#[must_use = "dropping a registration withdraws its entry"]
pub struct Registration {
    name: String,
    process: u32,
    undo: Option<Undo>,
}

type Undo = Box<dyn FnOnce() -> Result<bool> + Send + Sync>;

impl Registration {
    /// A registration of `name` that `undo` takes back, for those who implement [`Registry`].
    /// `undo` runs at most once, and says whether there was still something to withdraw.
    pub fn new(name: impl fmt::Display, undo: impl FnOnce() -> Result<bool> + Send + Sync + 'static) -> Self {
        Self { name: name.to_string(), process: std::process::id(), undo: Some(Box::new(undo)) }
    }

    /// Withdraws the entry, and says whether it was still there.
    ///
    /// # Errors
    ///
    /// What went wrong with the registry's medium; the entry may then stay until its owner exits.
    pub fn withdraw(mut self) -> Result<bool> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<bool> {
        let Some(undo) = self.undo.take() else {
            return Ok(false);
        };
        // After `fork` the child holds a copy of a registration that is its parent's.
        if self.process != std::process::id() {
            return Ok(false);
        }
        undo()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // Nobody is left to tell. The entry then stays until this process exits, when readers skip it.
        let _ = self.take_back();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R: Registry + ?Sized> Registry for Arc<R> {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        (**self).publish(entry)
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        (**self).withdraw(type_name, instance)
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        (**self).instances(type_name)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        (**self).lookup(type_name, instance)
    }

    fn list(&self) -> Result<Listing> {
        (**self).list()
    }

    fn version(&self) -> Result<u64> {
        (**self).version()
    }

    fn route(&self) -> Option<IpAddr> {
        (**self).route()
    }
}
