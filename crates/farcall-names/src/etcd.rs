//! A registry in etcd, which machines share.

mod document;
mod exports;
#[cfg(test)]
mod fake;
mod gateway;
mod mirror;
mod settings;
#[cfg(feature = "etcd-tls")]
mod tls;
mod version;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::{Entry, Error, Label, Listing, Owner, PlaceError, Registration, Registry, Result};
use document::Keys;
use exports::Exports;
use gateway::{Gateway, decoded, encoded, number};
use mirror::Mirror;
use settings::{Access, Credentials, Location};
#[cfg(feature = "etcd-tls")]
pub use tls::{EtcdTls, EtcdTlsError};

/// How long an entry stays after its exporter has gone, if no other time is set.
const LEASE_TIME: Duration = Duration::from_secs(10);

/// The shortest and the longest time of a lease.
const MIN_LEASE_TIME: Duration = Duration::from_secs(2);
const MAX_LEASE_TIME: Duration = Duration::from_secs(3600);

/// A registry in etcd (version 3.4 or newer), by its JSON gateway.
///
/// Entries are keys that people can read, `farcall/v1/TYPE/INSTANCE`, with documents that other tools can
/// write (`docs/names.md`). Entries of one process have a lease, which a thread keeps alive: when the process
/// dies, its entries go within the lease's time. If the lease is lost while the process lives, the entries
/// come back by themselves as soon as etcd is in reach. If a program follows a group, a second thread watches
/// the registry; following then costs etcd nothing, and goes on with what is known while etcd is away.
///
/// Clones share one connection. Nothing is sent before the first use. When the last clone and the last
/// registration are dropped, the lease is revoked.
///
/// ```no_run
/// use farcall_names::{Etcd, Registry};
///
/// let registry = Etcd::at("etcd://10.0.0.1,10.0.0.2,10.0.0.3/team")?;
/// println!("{} entries", registry.list()?.entries.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Etcd(Arc<Cluster>);

/// What clones of a registry share.
struct Cluster {
    gateway: Arc<Gateway>,
    keys: Keys,
    exports: Arc<Exports>,
    mirror: Arc<Mirror>,
    /// Whether exclusive owners need members without the defect of old versions.
    checks_versions: bool,
    /// Whether the members were found to be without it.
    is_checked: AtomicBool,
}

/// The settings of a registry in etcd.
#[derive(Clone)]
pub struct EtcdBuilder {
    location: Location,
    access: Access,
    lease_time: Duration,
    checks_versions: bool,
}

impl Etcd {
    /// Returns the registry at `etcd://HOST[:PORT][,HOST[:PORT]…][/PREFIX]`. The port is 2379 and the prefix
    /// `farcall` if they are not written. The hosts are members of one cluster; each is tried if others fail.
    ///
    /// # Errors
    /// If the place is not written like that. A place `etcds://…` needs a [builder](Etcd::builder), because
    /// TLS needs authorities to trust.
    pub fn at(place: &str) -> std::result::Result<Etcd, PlaceError> {
        let builder = Etcd::builder(place)?;
        if builder.location.is_secure() {
            return Err(builder.location.wrong("TLS needs authorities to trust: EtcdBuilder::tls sets them"));
        }
        Ok(builder.build())
    }

    /// Returns a builder with more settings. The place can also be `etcds://…`, which means TLS, with the
    /// feature `etcd-tls`.
    ///
    /// # Errors
    /// If the place is not written as [`Etcd::at`] says.
    pub fn builder(place: &str) -> std::result::Result<EtcdBuilder, PlaceError> {
        let (location, access) = (place.parse()?, Access::default());
        Ok(EtcdBuilder { location, access, lease_time: LEASE_TIME, checks_versions: true })
    }
}

impl EtcdBuilder {
    /// Sets etcd's user and password. A cluster without users ignores them.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> EtcdBuilder {
        self.access.credentials = Some(Credentials { user: user.into(), password: password.into() });
        self
    }

    /// Sets how to speak by TLS, for a place `etcds://…`. Without this such a registry trusts no member of
    /// etcd, so all requests fail. etcd's gateway does not take the user's name from a certificate: etcd's
    /// roles count for the [user](EtcdBuilder::user) with the password.
    ///
    /// # Errors
    /// If the place is `etcd://…`, which is without TLS.
    #[cfg(feature = "etcd-tls")]
    pub fn tls(mut self, tls: EtcdTls) -> std::result::Result<EtcdBuilder, PlaceError> {
        if !self.location.is_secure() {
            return Err(self.location.wrong("it is without TLS, and TLS was set; write etcds://…"));
        }
        self.access.tls = Some(tls);
        Ok(self)
    }

    /// Sets how long entries stay after their exporter has gone, from 2 s to an hour, in whole seconds. The
    /// default is 10 s. etcd may grant more. After an election of etcd's the time counts anew. A member of
    /// etcd that is silent may cost a lease of less than 4 s; then the entries go, and come back by
    /// themselves.
    #[must_use]
    pub fn lease_time(mut self, time: Duration) -> EtcdBuilder {
        self.lease_time = time.clamp(MIN_LEASE_TIME, MAX_LEASE_TIME);
        self
    }

    /// Lets names be owned exclusively in any version of etcd. By default this is refused if a member of the
    /// place is older than 3.4.31 or 3.5.13: if such a member hung while it was the leader, it may take back
    /// leases that were prolonged, and then a name has two owners ([etcd issue
    /// 15247](https://github.com/etcd-io/etcd/issues/15247)). For an etcd that has the mend under an older
    /// number.
    #[must_use]
    pub fn exclusive_in_any_version(mut self) -> EtcdBuilder {
        self.checks_versions = false;
        self
    }

    /// Returns the registry.
    pub fn build(self) -> Etcd {
        let keys = Keys::new(&self.location.prefix);
        let gateway = Arc::new(Gateway::new(self.location, &self.access));
        let exports =
            Arc::new(Exports::new(gateway.clone(), keys.clone(), self.lease_time, Clock::default()));
        let mirror = Arc::new(Mirror::new(gateway.clone(), keys.clone()));
        let (checks_versions, is_checked) = (self.checks_versions, AtomicBool::new(false));
        Etcd(Arc::new(Cluster { gateway, keys, exports, mirror, checks_versions, is_checked }))
    }
}

/// Reads lines as answers of etcd. For the fuzz target.
pub(crate) fn fuzz(lines: &[u8]) {
    mirror::fuzz(lines);
}

impl Cluster {
    /// Checks that no member takes back leases that were prolonged, as far as members of the place answer.
    fn check_versions(&self) -> Result<()> {
        if self.checks_versions && !self.is_checked.load(Ordering::Relaxed) {
            self.gateway.check_versions()?;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Registry for Etcd {
    fn publish(&self, entry: &Entry) -> Result<Registration> {
        entry.check()?;
        self.0.exports.publish(entry, self.clone())
    }

    fn publish_exclusively(&self, entry: &Entry) -> Result<Registration> {
        self.0.check_versions()?;
        self.publish(entry)
    }

    fn add(&self, entry: &Entry) -> Result<()> {
        entry.check()?;
        let key = self.0.keys.of(&entry.type_name, &entry.instance);
        let text = document::render(&Entry { owner: Owner::NONE, ..entry.clone() });
        let request = json!({
            "compare": [{"key": encoded(&key), "target": "MOD", "result": "EQUAL", "mod_revision": "0"}],
            "success": [{"request_put": {"key": encoded(&key), "value": encoded(&text)}}],
            "failure": [{"request_range": {"key": encoded(&key)}}],
        });
        let answer = self.0.gateway.call("kv/txn", &request)?;
        let found = &answer["responses"][0]["response_range"]["kvs"][0];
        // The answer to an earlier try may have been lost.
        let is_there = decoded(&found["value"]).is_some_and(|value| value == text.as_bytes());
        match answer["succeeded"].as_bool() == Some(true) || is_there {
            true => Ok(()),
            false => Err(parsed(&entry.type_name, &entry.instance, &key, found)?.taken()),
        }
    }

    fn withdraw(&self, type_name: &Label, instance: &Label) -> Result<bool> {
        let Cluster { gateway, keys, exports, .. } = &*self.0;
        let key = keys.of(type_name, instance);
        let answer = gateway.call("kv/range", &json!({"key": encoded(&key)}))?;
        let Some(kv) = answer["kvs"].get(0) else { return Ok(false) };
        // An entry without a lease was written by a tool, and nobody else takes it out.
        let lease = number(&kv["lease"]);
        if lease != 0 && !exports.is_own(lease) {
            let entry = parsed(type_name, instance, &key, kv)?;
            if !exports::is_dead_here(&entry.owner) {
                return Err(entry.taken());
            }
        }
        exports.remove(&key, number(&kv["create_revision"]))
    }

    fn instances(&self, type_name: &Label) -> Result<Vec<Entry>> {
        self.instances_within(type_name, Duration::MAX)
    }

    fn instances_within(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.0.mirror.instances(type_name, within)
    }

    fn instances_now(&self, type_name: &Label, within: Duration) -> Result<Vec<Entry>> {
        self.0.mirror.instances_now(type_name, within)
    }

    fn lookup(&self, type_name: &Label, instance: &Label) -> Result<Option<Entry>> {
        self.lookup_within(type_name, instance, Duration::MAX)
    }

    fn lookup_within(&self, type_name: &Label, instance: &Label, within: Duration) -> Result<Option<Entry>> {
        let key = self.0.keys.of(type_name, instance);
        let request = json!({"key": encoded(&key)});
        let answer: Value = self.0.gateway.call_until(mirror::after(within), "kv/range", &request)?;
        answer["kvs"].get(0).map(|kv| parsed(type_name, instance, &key, kv)).transpose()
    }

    fn list(&self) -> Result<Listing> {
        let read = mirror::read(&self.0.gateway, &self.0.keys, self.0.keys.all())?;
        Ok(Listing::new(read.revision, read.entries))
    }

    fn version(&self) -> Result<u64> {
        self.version_within(Duration::MAX)
    }

    fn version_within(&self, within: Duration) -> Result<u64> {
        self.0.mirror.version(within)
    }

    fn keeps_deadlines(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        !self.0.gateway.location().is_local()
    }

    /// Returns those of etcd's hosts that are written as addresses.
    fn routes(&self) -> Vec<IpAddr> {
        self.0.gateway.location().addresses().collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.mirror.stop();
        self.exports.stop();
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Etcd").field(&self.0.gateway.location().to_string()).finish()
    }
}

impl fmt::Debug for EtcdBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EtcdBuilder { location, access: _, lease_time, checks_versions: _ } = self;
        f.debug_struct("EtcdBuilder")
            .field("location", &location.to_string())
            .field("lease_time", lease_time)
            .finish_non_exhaustive()
    }
}

/// Returns the entry that a key's value holds.
fn parsed(type_name: &Label, instance: &Label, key: &str, kv: &Value) -> Result<Entry> {
    let value = decoded(&kv["value"]).unwrap_or_default();
    document::parse(type_name.clone(), instance.clone(), &value)
        .map_err(|why| Error::Malformed { key: key.to_owned(), why })
}
