//! The trait of registries of names, and the guard that keeps an entry published.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::{Entry, Error, Label, Ownership, Result};

/// A registry of names: exporters publish to it, importers ask it.
///
/// The rest of farcall holds it as an `Arc<dyn Registry>`. Every method except [`Registry::routes`] can block
/// for as long as the registry's medium does (a lock on a file, a round trip to a server). So farcall asks a
/// registry when it binds, and never during a call.
///
/// A caller's deadline holds for the registry, too. A registry that waits for a network implements
/// [`Registry::instances_within`], [`Registry::lookup_within`] and [`Registry::version_within`], and says so
/// by [`Registry::keeps_deadlines`]. Any other is asked in a thread of its own by callers with a deadline,
/// and left alone when the deadline has passed.
///
/// An answer is only a hint: the instance can be gone when it is called. The call notices that, because each
/// call checks the export's identifier.
pub trait Registry: Send + Sync {
    /// Publishes `entry` until the registration is dropped or withdrawn, or its owner dies.
    ///
    /// Replaces an earlier entry of the same name if the owner of the earlier entry is dead, or if an earlier
    /// program of this process published it (execve(2)).
    ///
    /// # Errors
    ///
    /// [`Error::Taken`](crate::Error::Taken) if a live process, this one included, exports that name;
    /// [`Error::TooLarge`](crate::Error::TooLarge) if the entry exceeds a bound; otherwise an error of the
    /// registry's medium. An error leaves the registry unchanged.
    fn publish(&self, entry: &Entry) -> Result<Registration>;

    /// Publishes `entry` as [`Registry::publish`] does, for an exporter that must be the only owner of the
    /// name. It does not replace an entry whose owner may live, as far as this process can tell
    /// ([`Liveness::Unknown`](crate::Liveness::Unknown)).
    ///
    /// The default is [`Registry::publish`], for registries that never replace such an entry.
    ///
    /// # Errors
    ///
    /// Those of [`Registry::publish`]; [`Error::Taken`](crate::Error::Taken) also if the owner may live.
    fn publish_exclusively(&self, entry: &Entry) -> Result<Registration> {
        self.publish(entry)
    }

    /// Adds an entry that no process owns. It stays until it is withdrawn. For servers that cannot publish
    /// their entries.
    ///
    /// The default is to refuse.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`](crate::Error::Taken) if the registry has an entry of that name that is not void;
    /// [`Error::TooLarge`](crate::Error::TooLarge) if the entry exceeds a bound;
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) if this registry adds none; otherwise an error of
    /// the registry's medium.
    fn add(&self, entry: &Entry) -> Result<()> {
        let why = format!("{} cannot be added by hand", entry.name());
        Err(Error::NotPermitted { registry: "in use".to_owned(), why })
    }

    /// Returns whether exporters publish their entries here. If they do not, because people write the entries
    /// or they are made of something else, no entry can have a proof, and importers with keys do not ask for
    /// one.
    ///
    /// The default is true.
    fn is_published_to(&self) -> bool {
        true
    }

    /// Withdraws the entry of this name, if this process, a dead one or none owns it. Returns whether there
    /// was one.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`](crate::Error::Taken) if another live process owns the entry; otherwise an error of
    /// the registry's medium.
    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool>;

    /// Returns the instances of a type whose owners are not known to be dead, by ascending name. Returns an
    /// empty list if no process exports the type.
    ///
    /// # Errors
    ///
    /// An error of the registry's medium.
    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>>;

    /// Returns the entry of one instance, unless there is none or its owner is known to be dead.
    ///
    /// # Errors
    ///
    /// An error of the registry's medium.
    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>>;

    /// Returns all entries whose owners are not known to be dead, by ascending name, and the version at which
    /// they were read.
    ///
    /// # Errors
    ///
    /// An error of the registry's medium.
    fn list(&self) -> Result<Listing>;

    /// Returns a number that changes whenever an entry is published, replaced or withdrawn.
    ///
    /// A client that follows a group polls this number, and lists the group again when it differs from
    /// [`Listing::version`]. When an owner dies, the number changes only once a writer has noticed that.
    ///
    /// # Errors
    ///
    /// An error of the registry's medium.
    fn version(&self) -> Result<u64>;

    /// Returns what [`Registry::instances`] does, within this time. A registry of several servers gives each
    /// of them a share of the time.
    ///
    /// The default is [`Registry::instances`], which may take longer.
    ///
    /// # Errors
    /// Those of [`Registry::instances`]. [`Error::Unavailable`](crate::Error::Unavailable) if the time has
    /// passed.
    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        let _ = within;
        self.instances(type_name)
    }

    /// Returns what [`Registry::instances_within`] does, as of now: not from a copy that follows the registry
    /// and may be behind it. Asked when a server from such a copy takes no calls any more.
    ///
    /// The default is [`Registry::instances_within`].
    ///
    /// # Errors
    /// Those of [`Registry::instances_within`].
    fn instances_now(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.instances_within(type_name, within)
    }

    /// Returns what [`Registry::lookup`] does, within this time.
    ///
    /// The default is [`Registry::lookup`], which may take longer.
    ///
    /// # Errors
    /// Those of [`Registry::lookup`]. [`Error::Unavailable`](crate::Error::Unavailable) if the time has
    /// passed.
    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        let _ = within;
        self.lookup(type_name, instance)
    }

    /// Returns what [`Registry::version`] does, within this time.
    ///
    /// The default is [`Registry::version`], which may take longer.
    ///
    /// # Errors
    /// Those of [`Registry::version`]. [`Error::Unavailable`](crate::Error::Unavailable) if the time has
    /// passed.
    fn version_within(&self, within: Duration) -> Result<u64> {
        let _ = within;
        self.version()
    }

    /// Returns whether the three methods above end in time. They also do if this registry waits for nothing
    /// but a file or memory.
    ///
    /// The default is false.
    fn keeps_deadlines(&self) -> bool {
        false
    }

    /// Returns addresses of the registry. A server that is bound to all addresses of its host (`0.0.0.0`)
    /// must choose which to publish. It publishes the addresses from which its host sends to these, because
    /// the registry's clients can be expected to reach those too. A loopback address says that all clients
    /// are on this machine. Does not block.
    ///
    /// The default is none: then such a server must be told which addresses to publish.
    fn routes(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// Returns whether clients on other machines read this registry, as far as it can tell. A server that
    /// only its own machine can call is not published in such a registry unless it is told to. Does not
    /// block.
    ///
    /// The default is whether one of the [routes](Registry::routes) is no loopback address.
    fn is_shared(&self) -> bool {
        self.routes().iter().any(|route| !route.to_canonical().is_loopback())
    }
}

/// The content of a registry at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listing {
    /// The value of [`Registry::version`] when this was read.
    pub version: u64,
    /// The entries, by ascending type and instance.
    pub entries: Vec<Entry>,
}

impl Listing {
    /// Returns a listing. For implementations of [`Registry`].
    pub fn new(version: u64, entries: Vec<Entry>) -> Self {
        Self { version, entries }
    }
}

/// Keeps an entry published; dropping it withdraws the entry.
///
/// It withdraws only the entry that it published. If that entry was withdrawn in another way and the name was
/// published again, the older registration has no effect. The copy that a forked child inherits has no effect
/// either.
#[must_use = "dropping a registration withdraws its entry"]
pub struct Registration {
    name: String,
    process: u32,
    ownership: Option<Ownership>,
    renew: Option<Arc<Renew>>,
    undo: Option<Undo>,
}

type Undo = Box<dyn FnOnce() -> Result<bool> + Send + Sync>;
type Renew = dyn Fn(&Entry) -> Result<bool> + Send + Sync;

/// A handle by which the entry of a [`Registration`] is replaced while it stays published. It does not keep
/// the registration.
#[derive(Clone)]
pub struct Renewal(Weak<Renew>);

impl Registration {
    /// Returns a registration of `name` that `undo` withdraws. `undo` runs at most once, and returns whether
    /// the entry was still there. For implementations of [`Registry`].
    pub fn new(name: impl fmt::Display, undo: impl FnOnce() -> Result<bool> + Send + Sync + 'static) -> Self {
        let (name, process) = (name.to_string(), std::process::id());
        Self { name, process, ownership: None, renew: None, undo: Some(Box::new(undo)) }
    }

    /// Adds that this process owns the name as long as `ownership` lasts. For implementations of [`Registry`]
    /// that never let two processes own one name at the same time. [`Ownership::end`] is called before the
    /// entry is withdrawn.
    pub fn owning(mut self, ownership: Ownership) -> Self {
        self.ownership = Some(ownership);
        self
    }

    /// Adds how the entry is replaced by another one of the same name, the same export and the same owner
    /// while it stays published. Readers find the old or the new one; the ownership and its fence stay.
    /// `renew` returns false if the entry is no longer published, and an error if the old one stays. For
    /// implementations of [`Registry`]; exporters with keys need it.
    pub fn renewing(mut self, renew: impl Fn(&Entry) -> Result<bool> + Send + Sync + 'static) -> Self {
        self.renew = Some(Arc::new(renew));
        self
    }

    /// Returns the handle by which the entry is replaced, if the registry can do that.
    pub fn renewal(&self) -> Option<Renewal> {
        self.renew.as_ref().map(|renew| Renewal(Arc::downgrade(renew)))
    }

    /// Returns the ownership of the name, if the registry keeps others from owning it at the same time.
    pub fn ownership(&self) -> Option<&Ownership> {
        self.ownership.as_ref()
    }

    /// Withdraws the entry. Returns whether it was still there.
    ///
    /// # Errors
    ///
    /// An error of the registry's medium. The entry may then stay until its owner exits.
    pub fn withdraw(mut self) -> Result<bool> {
        self.take_back()
    }

    fn take_back(&mut self) -> Result<bool> {
        let Some(undo) = self.undo.take() else {
            return Ok(false);
        };
        // After `fork` the child holds a copy of its parent's registration.
        if self.process != std::process::id() {
            return Ok(false);
        }
        if let Some(ownership) = &self.ownership {
            ownership.end();
        }
        undo()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // An error cannot be reported. The entry then stays until this process exits, and readers skip it
        // from then on.
        let _ = self.take_back();
    }
}

impl Renewal {
    /// Replaces the entry by another one of the same name, the same export and the same owner. Returns false
    /// if the registration has ended.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`](crate::Error::TooLarge) if the new entry exceeds a bound; otherwise an error of
    /// the registry's medium. The old entry may stay then.
    pub fn renew(&self, entry: &Entry) -> Result<bool> {
        entry.check()?;
        self.0.upgrade().map_or(Ok(false), |renew| renew(entry))
    }

    /// Returns whether the registration was dropped or withdrawn.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewal")
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

    fn publish_exclusively(&self, entry: &Entry) -> Result<Registration> {
        (**self).publish_exclusively(entry)
    }

    fn add(&self, entry: &Entry) -> Result<()> {
        (**self).add(entry)
    }

    fn is_published_to(&self) -> bool {
        (**self).is_published_to()
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

    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        (**self).instances_within(type_name, within)
    }

    fn instances_now(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        (**self).instances_now(type_name, within)
    }

    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        (**self).lookup_within(type_name, instance, within)
    }

    fn version_within(&self, within: Duration) -> Result<u64> {
        (**self).version_within(within)
    }

    fn keeps_deadlines(&self) -> bool {
        (**self).keeps_deadlines()
    }

    fn routes(&self) -> Vec<IpAddr> {
        (**self).routes()
    }
}
